"""The console's sentences: one when a request ends, one an interval. Rounded, readable, no content."""

from collections.abc import Mapping
from typing import Any

from ninfer_jax.errors import NinferError
from ninfer_jax.observe.figures import number
from ninfer_jax.observe.requests import Rejection, RequestRecord
from ninfer_jax.types import Finished, FinishReason

PATHS = {
    "private_endpoint": "conversation",
    "private_turn_closure": "closed turn",
    "private_response_replay": "same turn",
    "private_long_anchor": "long anchor",
    "shared_stable_prefix": "shared prefix",
}


def started(record: RequestRecord) -> str:
    request = record.request
    assert request is not None
    return (
        f"{_name(record)} started: prompt {count(len(request.prompt.token_ids))}, "
        f"at most {count(request.max_output_tokens)} out, prepared in {duration(record.prepare_seconds)}"
    )


def finished(record: RequestRecord, event: Finished) -> str:
    usage, timings = event.usage, event.timings
    parts = [f"prompt {count(usage.prompt_tokens)}"]
    if usage.cached_tokens:
        share = 100 * usage.cached_tokens / usage.prompt_tokens
        path = str(event.counters.get("prefix_reuse_path", ""))
        parts.append(f"cache {count(usage.cached_tokens)} ({share:.0f}%, {PATHS.get(path, path)})")
    parts.append(f"output {count(usage.completion_tokens)}")
    if record.ttft_seconds is not None:
        parts.append(f"first token {duration(record.ttft_seconds)}")
    if usage.completion_tokens > 1 and timings.decode > 0:
        parts.append(f"{rate((usage.completion_tokens - 1) / timings.decode)} tok/s")
    parts.append(f"total {duration(record.total_seconds)}")
    verb = "cancelled" if event.reason is FinishReason.CANCELLED else f"done ({event.reason.value})"
    return f"{_name(record)} {verb}: {', '.join(parts)}"


def failed(record: RequestRecord, error: NinferError) -> str:
    return f"{_name(record)} failed: {error.code}"


def rejected(record: RequestRecord, rejection: Rejection) -> str:
    return f"{_name(record)} rejected: {rejection.status} {rejection.error.code}"


def parse_fallback(record: RequestRecord, reason: str) -> str:
    return f"{_name(record)}: tool-call markup returned as text ({reason})"


def throughput(record: Mapping[str, Any]) -> str:
    """One interval: token rates, who runs, who waits, the batch, the host's share of the time."""
    seconds, tokens, scheduler = record["interval_seconds"], record["tokens"], record["scheduler"]
    parts = []
    for label, name in (("prefill", "computed_prefill_tokens"), ("decode", "committed_decode_tokens")):
        if tokens[name]:
            parts.append(f"{label} {rate(tokens[name] / seconds)} tok/s ({count(tokens[name])})")
    parts.append(
        f"running {scheduler['running']} "
        f"(prefill {scheduler['prefilling']}, decode {scheduler['decode_ready']})"
    )
    parts += [
        f"{name.replace('_', ' ')} {scheduler[name]}"
        for name in ("waiting", "materializing", "terminal_pending")
        if scheduler[name]
    ]
    if record["decode"]["average_size"] is not None:
        parts.append(f"batch {record['decode']['average_size']:.1f}")
    host = number(record, "host_work", "elapsed_seconds", "total")
    parts.append(f"host {duration(host)} ({100 * host / seconds:.1f}%)")
    return "throughput: " + ", ".join(parts)


def count(value: float) -> str:
    return f"{value:,.0f}"


def rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _name(record: RequestRecord) -> str:
    return f"request {record.number} {record.shape.protocol}"
