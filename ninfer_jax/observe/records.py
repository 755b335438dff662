"""The members of each request event of the structured log, from what the engine and the server said."""

from collections.abc import Mapping
from typing import Any

from ninfer_jax.errors import NinferError
from ninfer_jax.observe.requests import Rejection, RequestRecord, RequestShape
from ninfer_jax.types import Finished, OutputSummary, SamplingParams

NO_SPECULATION: Mapping[str, Any] = {
    "backend": None,
    "draft_window": 0,
    "rounds": 0,
    "drafted_tokens": 0,
    "accepted_tokens": 0,
    "fallback_steps": 0,
    "accepted_per_position": [],
}
ENGINE_RESULTS = (
    "prefix_reuse_path",
    "prefix_cache_hit_tokens",
    "computed_prefill_tokens",
    "reserved_pages",
)


def request_start(record: RequestRecord) -> dict[str, Any]:
    return {**_identity(record), **_configuration(record), "prepare_seconds": record.prepare_seconds}


def request_rejected(record: RequestRecord, rejection: Rejection) -> dict[str, Any]:
    error = rejection.error
    return {
        **_identity(record),
        **_shape(record.shape),
        "resolved_reasoning_effort": None,
        "phase": "prepare",
        "error": {
            "status": rejection.status,
            "type": rejection.kind,
            "code": error.code,
            "parameter": error.field,
            "message": error.message,
        },
    }


def request_done(record: RequestRecord, event: Finished) -> dict[str, Any]:
    counters, usage, timings, summary = event.counters, event.usage, event.timings, event.summary
    return {
        **_identity(record),
        "result": {
            "finish_reason": event.reason.value,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "matched_stop_string": summary.stop_string is not None,
            **{name: counters.get(name) for name in ENGINE_RESULTS},
            "tool_call_parse": _tool_call_parse(summary),
            "thinking_budget": _thinking_budget(summary),
        },
        "timings_seconds": {
            "prepare": record.prepare_seconds,
            "queue": timings.queue,
            "ttft": record.ttft_seconds,
            "vision": counters.get("vision_seconds", 0.0),
            "prefill": timings.prompt,
            "decode": timings.decode,
            "total": record.total_seconds,
        },
        "engine_timing": counters.get("engine_timing"),
        "materialization": counters.get("materialization"),
        "speculative": counters.get("speculative") or NO_SPECULATION,
    }


def request_error(record: RequestRecord, error: NinferError) -> dict[str, Any]:
    return {
        **_identity(record),
        **_configuration(record),
        "error": {"code": error.code, "message": error.message},
    }


def _identity(record: RequestRecord) -> dict[str, Any]:
    return {"request_id": record.number, "http_request_id": record.request_id}


def _configuration(record: RequestRecord) -> dict[str, Any]:
    request = record.request
    assert request is not None
    return {
        **_shape(record.shape),
        "resolved_reasoning_effort": record.shape.resolved_effort,
        "sampler": _sampler(request.sampling),
        "max_output_tokens": request.max_output_tokens,
        "prompt_tokens": len(request.prompt.token_ids),
        "has_session_key": request.session_key is not None,
    }


def _shape(shape: RequestShape) -> dict[str, Any]:
    return {
        "protocol": shape.protocol,
        "stream": shape.stream,
        "messages": shape.num_messages,
        "tools": shape.num_tools,
        "media_items": shape.num_media_items,
        "thinking": shape.is_thinking,
        "thinking_budget": shape.thinking_budget,
        "requested_reasoning_effort": shape.requested_effort,
        "changes_semantics": shape.changes_semantics,
        "ignored": list(shape.ignored),
        "client_request_id": shape.client_request_id,
    }


def _sampler(sampling: SamplingParams) -> dict[str, Any]:
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": sampling.seed,
    }


def _tool_call_parse(summary: OutputSummary) -> dict[str, Any]:
    diagnostics = summary.diagnostics
    return {
        "saw_complete_marker": bool(diagnostics.get("tool_marker_seen", False)),
        "calls": summary.tool_calls,
        "empty_arguments_omitted": diagnostics.get("empty_arguments_omitted", 0),
        "schema_mismatches": diagnostics.get("schema_mismatches", 0),
        "fallback_reason": summary.parse_fallback_reason,
    }


def _thinking_budget(summary: OutputSummary) -> dict[str, Any]:
    diagnostics = summary.diagnostics
    return {
        "tokens": diagnostics.get("thinking_budget"),
        "forced_closes": diagnostics.get("thinking_budget_closes", 0),
    }
