"""Greedy tokens in every way to ask for them. The tiny model runs it against a golden file, the demo
model against transformers (``make parity``)."""

from collections.abc import Sequence

from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.generate_result import GenerateResult
from ninfer_jax.engine.inference_engine import InferenceEngine

NUM_TOKENS = 64
BATCH = 8
LAYOUTS = ("paged", "contiguous")
CHUNKS = (16, 1024)

PROMPTS = (
    "The lighthouse keeper climbed the stairs every evening at six. On the night of the great storm he saw",
    "To bake a simple loaf of bread you need flour, water, salt and yeast. First, mix the flour with the",
    "Water boils at a lower temperature on a high mountain than at sea level. The reason for this is that",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n\n",
    "Once upon a time, in a small village at the edge of a dark forest, there lived a girl who could talk",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is Madrid. The cap",
    "A binary search looks at the middle element of a sorted list, and then continues in the half of it th",
    "Dear Ms. Alvarez,\n\nThank you for your letter of the third of May. I am writing to let you know that w",
)
"""Each is longer than one page of 64 bytes, and differs from the others within the first."""


def engine_config(layout: str, chunk: int, max_context: int) -> EngineConfig:
    """Both layouts get the same pool, so they share their compiled decode programs."""
    return EngineConfig(
        max_context=max_context,
        kv_capacity=BATCH * max_context,
        max_concurrency=BATCH,
        pending_timeout=3600,
        prefill_chunk=min(chunk, max_context),
        cache_layout=layout,
    )


def until_end(tokens: Sequence[int], ends: frozenset[int]) -> list[int]:
    """What an engine gives for these tokens: all up to the first end token, that one included."""
    stop = next((index for index, token in enumerate(tokens, 1) if token in ends), len(tokens))
    return list(tokens[:stop])


def check(
    engine: InferenceEngine, prompts: Sequence[str], expected: Sequence[Sequence[int]], *, has_hits: bool
) -> None:
    """{aggregate, stream} x {alone, in a batch} x {cold, prefix hit}."""
    ends = engine.frontend.defaults.eos_ids
    wanted = [until_end(tokens, ends) for tokens in expected]
    for batch in (1, len(prompts)):
        for is_stream in (False, True):
            clear(engine)
            for is_hit in (False, True) if has_hits else (False,):
                results = [
                    result
                    for first in range(0, len(prompts), batch)
                    for result in ask(engine, prompts[first : first + batch], is_stream)
                ]
                where = f"batch of {batch}, {'stream' if is_stream else 'aggregate'}, hit: {is_hit}"
                assert [list(result.token_ids) for result in results] == wanted, where
                for result in results:
                    assert (result.usage.cached_tokens > 0) is is_hit, where


def ask(engine: InferenceEngine, prompts: Sequence[str], is_stream: bool) -> list[GenerateResult]:
    results = [engine.submit(prompt, temperature=0.0, max_tokens=NUM_TOKENS) for prompt in prompts]
    for result in results:
        if is_stream:
            assert "".join(result) == result.text
        else:
            result.wait_completion()
    return results


def clear(engine: InferenceEngine) -> None:
    """Forget every prefix. The engine is idle."""
    engine.engine.scheduler.services.cache.clear()
