"""What happened between two readings of the engine's statistics: the throughput record."""

from collections.abc import Mapping
from typing import Any

from ninfer_jax.observe.figures import difference, number, per, total

SCHEDULER_GAUGES = (
    "running",
    "prefilling",
    "decode_ready",
    "control_ready",
    "waiting",
    "materializing",
    "capture_pending",
    "terminal_pending",
)
TOKEN_COUNTERS = (
    "prompt_tokens",
    "reused_prompt_tokens",
    "computed_prefill_tokens",
    "first_tokens",
    "committed_decode_tokens",
    "committed_control_tokens",
)
REQUEST_COUNTERS = ("requests_submitted", "requests_admitted", "requests_failed", "queue_timeouts")


def throughput(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The ``throughput`` event's own members: counter differences, gauges at the end."""
    counters, gauges = difference(before["counters"], after["counters"]), after["gauges"]
    rounds, rows = counters["decode_rounds"], counters["decode_row_rounds"]
    own = {*TOKEN_COUNTERS, *REQUEST_COUNTERS, "decode_rounds", "decode_row_rounds", "requests_finished"}
    work = difference(before.get("host_work", {}), after.get("host_work", {}))
    return {
        "interval_seconds": seconds,
        "tokens": {name: counters[name] for name in TOKEN_COUNTERS},
        "requests": {
            **{name: counters[name] for name in REQUEST_COUNTERS},
            "finished": counters["requests_finished"],
        },
        "decode": {"rounds": rounds, "row_rounds": rows, "average_size": per(rows, rounds)},
        "scheduler": {name: number(gauges, name) for name in SCHEDULER_GAUGES},
        "context_cache": {
            "counters": {name: value for name, value in counters.items() if name not in own},
            "occupancy": {name: value for name, value in gauges.items() if name not in SCHEDULER_GAUGES},
        },
        "host_work": {**work, "normalized": normalized(work, rounds, rows)},
    }


def normalized(work: Mapping[str, Any], rounds: float, rows: float) -> dict[str, Any]:
    """Decode-class host time by round and row, slow paths by invocation; None where there was none."""
    decode_host = number(work, "work_class_seconds", "decode", "host")
    decode_wait = number(work, "work_class_seconds", "decode", "device_wait")
    return {
        "decode_host_seconds_per_round": per(decode_host, rounds),
        "decode_host_seconds_per_row_round": per(decode_host, rows),
        "decode_device_wait_seconds_per_round": per(decode_wait, rounds),
        "detail_seconds_per_invocation": {
            name: per(seconds, number(work, "detail_invocations", name))
            for name, seconds in work.get("detail_subset_seconds", {}).items()
        },
    }


def is_idle(record: Mapping[str, Any]) -> bool:
    """Nothing ran, nothing waited, and nothing came or went."""
    parts = (record["tokens"], record["requests"], record["scheduler"], record["context_cache"]["counters"])
    return not any(total(part) for part in parts) and not record["decode"]["rounds"]
