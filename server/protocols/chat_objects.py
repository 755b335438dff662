"""The JSON objects of Chat Completions: usage, timings, progress. Pure functions."""

from typing import Any

from ninfer_jax.types import Admitted, Finished, FinishReason, Usage

FINISH_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.STOP_STRING: "stop",
    FinishReason.OUTPUT_LIMIT: "length",
    FinishReason.CONTEXT_LIMIT: "length",
    FinishReason.CANCELLED: "stop",
}


def finish_reason(reason: FinishReason, num_calls: int) -> str:
    """A cut answer is ``length`` even when it holds calls: the last may be missing."""
    mapped = FINISH_REASONS[reason]
    return "tool_calls" if num_calls and mapped == "stop" else mapped


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def timings_object(
    *, cached: int, prompt: int, prompt_seconds: float, predicted: int, decode_seconds: float
) -> dict[str, Any]:
    """llama.cpp's ``timings``. The first token belongs to the prompt, so ``predicted`` tokens span one
    interval less; a rate without work or time is 0, never infinite."""
    computed, intervals = prompt - cached, max(predicted - 1, 0)
    prompt_ms, decode_ms = 1000 * prompt_seconds, 1000 * decode_seconds
    return {
        "cache_n": cached,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / computed if computed else 0.0,
        "prompt_per_second": 1000 * computed / prompt_ms if prompt_ms > 0 else 0.0,
        "predicted_n": predicted,
        "predicted_ms": decode_ms,
        "predicted_per_token_ms": decode_ms / intervals if intervals else 0.0,
        "predicted_per_second": 1000 * intervals / decode_ms if decode_ms > 0 else 0.0,
    }


def final_timings(finished: Finished) -> dict[str, Any]:
    usage = finished.usage
    timings = timings_object(
        cached=usage.cached_tokens,
        prompt=usage.prompt_tokens,
        prompt_seconds=finished.timings.prompt,
        predicted=usage.completion_tokens,
        decode_seconds=finished.timings.decode,
    )
    speculative = finished.counters.get("speculative") or {}
    if speculative.get("drafted_tokens"):
        timings["draft_n"] = speculative["drafted_tokens"]
        timings["draft_n_accepted"] = speculative["accepted_tokens"]
    return timings


def progress_object(admitted: Admitted, processed: int, at: float) -> dict[str, Any]:
    return {
        "total": admitted.prompt_tokens,
        "cache": admitted.cached_tokens,
        "processed": processed,
        "time_ms": round(1000 * max(0.0, at - admitted.at)),
    }
