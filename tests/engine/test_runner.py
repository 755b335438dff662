"""The device runner on a tiny model: whatever the batch, chunk or cache, the tokens are the same."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer_jax.engine import state as engine_state
from ninfer_jax.errors import EngineError
from ninfer_jax.models import llama
from ninfer_jax.models.base import PAGE_SIZE, StepInputs
from ninfer_jax.types import SamplingParams
from tests.engine import cases

RANDOM = np.random.default_rng(0)
PROMPTS = [RANDOM.integers(0, cases.CONFIG.vocab_size, length).tolist() for length in (70, 5, 33)]
NUM_TOKENS = 20


def full_forward_greedy(prompt: list[int], num_tokens: int) -> list[int]:
    """No cache at all: run the whole sequence again for every token."""

    @jax.jit
    def last_logits(tokens, length):
        state = engine_state.allocate(cases.CONFIG, replace(cases.ENGINE, max_concurrency=1), np.float32)
        inputs = StepInputs(
            tokens=tokens[None],
            positions=jnp.arange(tokens.shape[0])[None, None],
            starts=jnp.array([0]),
            lengths=length[None],
            block_tables=jnp.arange(1, 1 + cases.PAGES_PER_LANE)[None],
            slots=jnp.array([0]),
        )
        hidden, _ = llama.forward(cases.CONFIG, cases.weights(), state.model, inputs)
        return llama.logits(cases.CONFIG, cases.weights(), hidden[0, length - 1])

    tokens = np.zeros(len(prompt) + num_tokens, np.int32)
    tokens[: len(prompt)] = prompt
    for length in range(len(prompt), len(tokens)):
        tokens[length] = np.argmax(last_logits(jnp.asarray(tokens), jnp.asarray(length)))
    return tokens[len(prompt) :].tolist()


@pytest.fixture(scope="module")
def alone() -> list[list[int]]:
    runner = cases.new_runner()
    return [cases.generate(runner, [prompt], NUM_TOKENS)[0] for prompt in PROMPTS]


def test_greedy_equals_running_the_whole_sequence_again(alone):
    assert alone == [full_forward_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    assert len({tuple(output) for output in alone}) == len(PROMPTS)


@pytest.mark.parametrize("chunk", [1, 7, 16, 50, 64])
def test_greedy_does_not_depend_on_chunk_batch_or_lane(alone, chunk):
    runner = cases.new_runner()
    assert cases.generate(runner, PROMPTS, NUM_TOKENS, chunk=chunk) == alone
    assert cases.generate(runner, PROMPTS[::-1], NUM_TOKENS, chunk=chunk, lanes=[1, 2, 0]) == alone[::-1]


def test_sampled_tokens_depend_on_the_seed_alone():
    params = [SamplingParams(seed=seed, temperature=1.2, presence_penalty=0.4) for seed in (5, 6, 7)]
    runner = cases.new_runner()
    together = cases.generate(runner, PROMPTS, NUM_TOKENS, params)
    for lane, prompt in enumerate(PROMPTS):
        again = cases.generate(runner, [prompt], NUM_TOKENS, [params[lane]], chunk=9, lanes=[2 - lane])
        assert again == [together[lane]]
    other = cases.generate(runner, PROMPTS[:1], NUM_TOKENS, [SamplingParams(seed=8, temperature=1.2)])
    assert other != together[:1]


def test_a_shared_prefix_gives_the_same_tokens(alone):
    """Lane 1 reads lane 0's first page and prefills the rest into pages of its own."""
    prompt = PROMPTS[0]
    runner = cases.new_runner()
    cases.generate(runner, [prompt], 1)
    pages = (cases.lane_pages(0)[0], *cases.lane_pages(1)[1:])
    cases.bind(runner, 1, prompt, pages=pages, start=PAGE_SIZE)
    tokens = runner.prefill(1, prompt[PAGE_SIZE:], PAGE_SIZE, sample=True).wait().tolist()
    for step in range(NUM_TOKENS - 1):
        tokens += runner.decode([1], tokens[-1:], [len(prompt) + step]).wait().tolist()
    assert tokens == alone[0]


def test_a_copied_page_is_as_good_as_the_original(alone):
    prompt = PROMPTS[0]
    runner = cases.new_runner()
    cases.generate(runner, [prompt], 1)
    shared, tail = cases.lane_pages(0)[:2]
    pages = (shared, *cases.lane_pages(2)[1:])
    cases.bind(runner, 2, prompt, pages=pages, start=len(prompt) - 1, tail_page=tail)
    tokens = runner.prefill(2, prompt[-1:], len(prompt) - 1, sample=True).wait()
    assert tokens.tolist() == alone[0][:1]


def test_penalties_count_fed_output_tokens_only():
    """With a crushing presence penalty nothing comes twice, the prompt's own tokens may come, and a
    rebound lane starts from zero."""
    params = [SamplingParams(temperature=0.0, presence_penalty=1e6)]
    runner = cases.new_runner()
    first = cases.generate(runner, [PROMPTS[1]], 40, params)
    assert len(set(first[0])) == 40
    assert cases.generate(runner, [PROMPTS[1]], 40, params) == first
    free = cases.generate(runner, [PROMPTS[1]], 40)
    assert first[0][0] == free[0][0]


def test_forced_output_counts_for_penalties_and_a_prompt_does_not():
    """After every token but one has been forced, a crushing penalty leaves that one."""
    spared, prompt = 17, PROMPTS[1]
    others = [token for token in range(cases.CONFIG.vocab_size) if token != spared]
    runner = cases.new_runner()
    for is_output in (True, False):
        cases.bind(runner, 0, prompt, SamplingParams(temperature=0.0, presence_penalty=1e6))
        runner.prefill(0, prompt, 0)
        pending = runner.prefill(0, others, len(prompt), is_output=is_output, sample=True)
        assert (pending.wait().tolist() == [spared]) is is_output
        runner.release(0)


def test_a_chunk_that_does_not_sample_returns_nothing():
    runner = cases.new_runner()
    cases.bind(runner, 0, PROMPTS[0])
    assert runner.prefill(0, PROMPTS[0][:30], 0).wait().shape == (0,)


def test_hidden_states_that_are_not_finite_fail():
    runner = cases.new_runner(cases.poison(cases.weights()))
    cases.bind(runner, 0, PROMPTS[1])
    with pytest.raises(EngineError, match="not finite"):
        runner.prefill(0, PROMPTS[1], 0, sample=True).wait()
    with pytest.raises(EngineError, match="not finite"):
        runner.decode([0], [1], [5]).wait()


def test_a_lane_is_bound_once():
    runner = cases.new_runner()
    cases.bind(runner, 0, [1])
    with pytest.raises(AssertionError, match="already bound"):
        cases.bind(runner, 0, [1])
    with pytest.raises(AssertionError, match="not bound"):
        runner.decode([1], [1], [0])
