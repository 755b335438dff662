"""The Python API over a tiny random model: every way to ask gives the same answer."""

import asyncio
import threading
from dataclasses import replace

import pytest

from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.generate_options import resolve
from ninfer_jax.engine.generate_result import GenerateResult
from ninfer_jax.engine.inference_engine import GenerateRequest, InferenceEngine, default_config
from ninfer_jax.errors import ConfigError, EngineUnavailableError, InvalidRequestError
from ninfer_jax.types import FinishReason, SamplingParams
from tests.engine import cases

CONFIG = EngineConfig(
    max_context=256,
    kv_capacity=768,
    max_concurrency=2,
    max_pending_requests=2,
    pending_timeout=60,
    prefill_chunk=64,
)
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there"}]
PROMPTS = ["one", "a longer prompt than that", "3", "four", "five five", "6"]
GREEDY = {"temperature": 0.0, "max_tokens": 12}


@pytest.fixture(scope="module", params=["contiguous", "paged"])
def engine(request):
    with InferenceEngine(cases.loaded_model(), cache=request.param, config=CONFIG) as engine:
        yield engine


@pytest.fixture(scope="module")
def expected():
    """Each prompt alone in an engine with one lane."""
    with InferenceEngine(cases.loaded_model(), config=replace(CONFIG, max_concurrency=1)) as engine:
        return [engine.generate(prompt, **GREEDY) for prompt in PROMPTS]


def test_one_prompt(engine, expected):
    assert engine.generate(PROMPTS[0], **GREEDY) == expected[0]
    assert len(set(expected)) > 1


def test_more_prompts_than_places(engine, expected):
    """Six prompts; two lanes and four reservations in all."""
    assert engine.generate(PROMPTS, **GREEDY) == expected


def test_a_stream_concatenates_to_the_answer(engine, expected):
    pieces = list(engine.generate(PROMPTS[1], stream=True, **GREEDY))
    assert "".join(pieces) == expected[1]
    assert len(pieces) > 1


def test_a_stream_of_several_names_the_prompt(engine, expected):
    texts = [""] * len(PROMPTS)
    for index, piece in engine.generate(PROMPTS, stream=True, **GREEDY):
        texts[index] += piece
    assert texts == expected


def test_a_chat_is_rendered_with_the_template(engine):
    rendered = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello there<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    answer = engine.generate(CHAT, **GREEDY)
    assert answer == engine.generate(rendered, **GREEDY)
    assert engine.generate([CHAT, CHAT], **GREEDY) == [answer, answer]
    request = GenerateRequest(CHAT, temperature=0.0, max_tokens=12)
    assert engine.generate_with_request(request) == answer
    assert "".join(engine.generate_with_request(replace(request, stream=True))) == answer


async def test_an_async_generator(engine, expected):
    async def take(prompt):
        return "".join([piece async for piece in engine.generate_async(prompt, **GREEDY)])

    assert await asyncio.gather(*(take(prompt) for prompt in PROMPTS[:4])) == expected[:4]


async def test_leaving_an_async_generator_cancels(engine):
    generator = engine.generate_async("go on", temperature=0.0, stop=["never to be seen"])
    async for _ in generator:
        break
    await generator.aclose()
    await asyncio.to_thread(wait_idle, engine)


def test_leaving_a_stream_cancels(engine):
    for _ in engine.generate(PROMPTS[:2], stream=True, temperature=0.0):
        break
    wait_idle(engine)


def wait_idle(engine):
    for _ in range(24_000):  # two minutes: a busy machine is no failure
        if engine.get_stats()["outstanding"] == 0:
            return
        threading.Event().wait(0.005)
    raise AssertionError("a cancelled request holds its reservation")


def test_result_waits_and_callback(engine, expected):
    heard: list[str] = []
    result = engine.submit(PROMPTS[1], cb=heard.append, **GREEDY)
    assert isinstance(result, GenerateResult)
    while not result.is_done:
        assert result.wait(timeout=30)
    assert result.wait_completion(timeout=30) == "".join(heard) == "".join(result) == expected[1]
    assert result.finish_reason in (FinishReason.OUTPUT_LIMIT, FinishReason.STOP)
    assert result.usage.completion_tokens == len(result.token_ids)
    assert result.usage.prompt_tokens == len(PROMPTS[1])


def test_a_wait_can_time_out(engine):
    result = engine.submit("x" * 200, temperature=0.0)
    with pytest.raises(TimeoutError):
        result.wait_completion(timeout=0)
    result.cancel()
    result.wait_completion(timeout=30)
    assert result.finish_reason in (FinishReason.CANCELLED, FinishReason.CONTEXT_LIMIT, FinishReason.STOP)


def test_a_seed_repeats_an_answer(engine):
    def ask(seed):
        return engine.generate("tell me", max_tokens=20, temperature=2.0, seed=seed)

    assert ask(5) == ask(5)
    assert len({ask(seed) for seed in range(4)}) > 1
    assert ask(-1) == ask(2**64 - 1)


def test_a_stop_string_ends_the_answer(engine, expected):
    stop = expected[1][2:4]
    result = engine.submit(PROMPTS[1], stop=stop, **GREEDY)
    assert result.wait_completion() == expected[1][: expected[1].index(stop)]
    assert result.finish_reason is FinishReason.STOP_STRING


def test_a_callback_that_raises_fails_its_own_request(engine, expected):
    def fail(piece):
        raise RuntimeError("mine")

    result = engine.submit(PROMPTS[1], cb=fail, **GREEDY)
    with pytest.raises(Exception, match="mine"):
        result.wait_completion(timeout=30)
    assert engine.generate(PROMPTS[1], **GREEDY) == expected[1]


@pytest.mark.parametrize(
    ("prompt", "options", "field"),
    [
        ("x", {"temperature": 2.1}, "temperature"),
        ("x", {"temperature": True}, "temperature"),
        ("x", {"top_p": -0.1}, "top_p"),
        ("x", {"top_k": 21}, "top_k"),
        ("x", {"max_tokens": -1}, "max_tokens"),
        ("x", {"seed": 2**64}, "seed"),
        ("x", {"stop": [""]}, "stop"),
        ("x", {"max_new_tokens": 5}, "max_new_tokens"),
        ([{"role": "wizard", "content": "x"}], {}, "messages[0].role"),
        ([{"role": "user", "content": 5}], {}, "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image"}]}], {}, "messages[0].content"),
        ([{"role": "user", "content": "x", "name": "y"}], {}, "messages[0].name"),
        ([{"role": "user", "content": "x"}], {"enable_thinking": "yes"}, "enable_thinking"),
        ({"role": "user"}, {}, "prompt"),
        (5, {}, "prompt"),
    ],
)
def test_bad_requests_name_what_is_wrong(engine, prompt, options, field):
    with pytest.raises(InvalidRequestError) as error:
        engine.generate(prompt, **options)
    assert error.value.field == field


def test_no_prompts_no_answers(engine):
    assert engine.generate([]) == []


def test_options_resolve_against_the_defaults():
    defaults = SamplingParams(temperature=0.7, top_k=50, top_p=0.9)
    resolved = resolve({"seed": 3, "min_p": 0.1}, defaults, top_k_cap=20)
    assert resolved.sampling == SamplingParams(temperature=0.7, top_k=20, top_p=0.9, min_p=0.1, seed=3)
    fresh = {resolve({}, defaults, top_k_cap=20).sampling.seed for _ in range(8)}
    assert len(fresh) == 8


def test_shutdown_fails_what_runs_and_refuses_what_comes():
    engine = InferenceEngine(cases.loaded_model(), config=replace(CONFIG, max_concurrency=1))
    result = engine.submit("on and on", temperature=0.0)
    engine.shutdown()
    engine.shutdown()
    assert result.wait(timeout=30)
    assert result.is_done
    with pytest.raises(EngineUnavailableError):
        engine.generate("more")


def test_a_context_beyond_the_model_is_refused():
    with pytest.raises(ConfigError) as error:
        InferenceEngine(cases.loaded_model(), config=replace(CONFIG, max_context=1024, kv_capacity=1024))
    assert error.value.field == "--max-context"
    with pytest.raises(ConfigError) as error:
        InferenceEngine(cases.loaded_model(), config=replace(CONFIG, kv_capacity=64))
    assert error.value.field == "--kv-capacity"


def test_the_library_defaults_to_contiguous_lanes():
    config = default_config(cases.CONFIG)
    assert config.cache_layout == "contiguous"
    assert config.max_context == cases.CONFIG.max_position_embeddings
