"""``GET /metrics``: vLLM's metric suffixes under our prefix, so that dashboards need one rename.

Counters and gauges are read from ``Engine.stats()`` at the scrape: there is one set of books, and
``/stats``, the request log and this page cannot disagree. Only the histograms are kept here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ninfer_jax.observe.figures import number
from ninfer_jax.observe.histogram import SECONDS, TOKENS, Histogram
from ninfer_jax.observe.requests import RequestRecord
from ninfer_jax.types import Finished, FinishReason

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FINISHED_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.STOP_STRING: "stop",
    FinishReason.OUTPUT_LIMIT: "length",
    FinishReason.CONTEXT_LIMIT: "length",
    FinishReason.CANCELLED: "abort",
}
GAUGES = {
    "num_requests_running": ("Requests admitted and not ended.", ("gauges", "running")),
    "num_requests_waiting": ("Requests waiting for admission.", ("gauges", "waiting")),
}
COUNTERS = {
    "prompt_tokens": ("Prompt tokens of admitted requests, reused ones included.", ("prompt_tokens",)),
    "generation_tokens": (
        "Output tokens.",
        ("first_tokens", "committed_decode_tokens", "committed_control_tokens"),
    ),
    "prefix_cache_queries": ("Prompt tokens looked up in the prefix cache.", ("prompt_tokens",)),
    "prefix_cache_hits": ("Prompt tokens found there.", ("reused_prompt_tokens",)),
    "prefill_tokens": ("Prompt tokens computed.", ("computed_prefill_tokens",)),
    "decode_rounds": ("Decode rounds.", ("decode_rounds",)),
    "decode_row_rounds": ("Rows of all decode rounds.", ("decode_row_rounds",)),
    "queue_timeouts": ("Requests not admitted before their deadline.", ("queue_timeouts",)),
}
SPECULATION = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
HISTOGRAMS = {
    "time_to_first_token_seconds": ("Arrival to first output token.", SECONDS),
    "inter_token_latency_seconds": ("Between commits of one request, per token.", SECONDS),
    "request_time_per_output_token_seconds": ("Decode time by output tokens after the first.", SECONDS),
    "e2e_request_latency_seconds": ("Arrival to end.", SECONDS),
    "request_queue_time_seconds": ("Submission to admission.", SECONDS),
    "request_inference_time_seconds": ("Admission to last output token.", SECONDS),
    "request_prefill_time_seconds": ("Admission to first output token.", SECONDS),
    "request_decode_time_seconds": ("First to last output token.", SECONDS),
    "request_prompt_tokens": ("Prompt tokens of a request.", TOKENS),
    "request_generation_tokens": ("Output tokens of a request.", TOKENS),
    "request_params_max_tokens": ("Output tokens asked for.", TOKENS),
    "iteration_tokens_total": ("Tokens committed by a decode round.", TOKENS),
}


class Metrics(Collector):
    """Implements prometheus-client's Collector over one engine. ``prefix`` ends in a colon or underscore."""

    def __init__(self, prefix: str = "ninfer:") -> None:
        self._prefix = prefix
        self._stats: Callable[[], Mapping[str, Any]] | None = None
        self._model = ""
        self._histograms = {name: Histogram(bounds) for name, (_, bounds) in HISTOGRAMS.items()}
        self._gap = self._histograms["inter_token_latency_seconds"]
        self._round = self._histograms["iteration_tokens_total"]
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def attach(self, stats: Callable[[], Mapping[str, Any]], model_id: str) -> None:
        """The engine is there; before, the page has no engine figures."""
        self._stats, self._model = stats, model_id

    def text(self) -> bytes:
        """The page, in Prometheus' text format."""
        return generate_latest(self._registry)

    def admitted(self, queue_seconds: float) -> None:
        self._histograms["request_queue_time_seconds"].observe(queue_seconds)

    def first_token(self, ttft_seconds: float) -> None:
        self._histograms["time_to_first_token_seconds"].observe(ttft_seconds)

    def later_tokens(self, num_tokens: int, seconds: float) -> None:
        for _ in range(num_tokens):
            self._gap.observe(seconds / num_tokens)

    def round(self, num_tokens: int) -> None:
        self._round.observe(num_tokens)

    def finished(self, record: RequestRecord, event: Finished) -> None:
        usage, timings = event.usage, event.timings
        values = {
            "e2e_request_latency_seconds": record.total_seconds,
            "request_inference_time_seconds": timings.prompt + timings.decode,
            "request_prefill_time_seconds": timings.prompt,
            "request_decode_time_seconds": timings.decode,
            "request_prompt_tokens": usage.prompt_tokens,
            "request_generation_tokens": usage.completion_tokens,
        }
        if usage.completion_tokens > 1:
            per_token = timings.decode / (usage.completion_tokens - 1)
            values["request_time_per_output_token_seconds"] = per_token
        if record.request is not None:
            values["request_params_max_tokens"] = record.request.max_output_tokens
        for name, value in values.items():
            self._histograms[name].observe(value)

    def describe(self) -> Iterable[Metric]:
        return ()  # the set depends on what the engine has

    def collect(self) -> Iterable[Metric]:
        if self._stats is not None:
            yield from self._of_engine(self._stats())
        for name, (help_text, _) in HISTOGRAMS.items():
            buckets, total = self._histograms[name].buckets()
            family = HistogramMetricFamily(self._prefix + name, help_text, labels=["model_name"])
            family.add_metric([self._model], buckets, total)
            yield family

    def _of_engine(self, stats: Mapping[str, Any]) -> Iterable[Metric]:
        for name, (help_text, path) in GAUGES.items():
            yield self._gauge(name, help_text, number(stats, *path))
        capacity = number(stats, "capacity", "main_pages")
        used = number(stats, "gauges", "device_main_pages_occupied")
        usage = used / capacity if capacity else 0.0
        yield self._gauge("kv_cache_usage_perc", "Part of the KV pages that requests hold, 0 to 1.", usage)
        for name, (help_text, parts) in COUNTERS.items():
            yield self._counter(name, help_text, sum(number(stats, "counters", part) for part in parts))
        yield self._success(stats)
        speculation = stats.get("speculation")
        if speculation:
            for name in SPECULATION:
                yield self._counter(f"spec_decode_{name}", "Speculative decoding.", number(speculation, name))

    def _success(self, stats: Mapping[str, Any]) -> Metric:
        totals = dict.fromkeys([*FINISHED_REASONS.values(), "error"], 0.0)
        for reason, label in FINISHED_REASONS.items():
            totals[label] += number(stats, "counters", "requests_finished", reason.value)
        totals["error"] = number(stats, "counters", "requests_failed")
        name = self._prefix + "request_success"
        family = CounterMetricFamily(name, "Ended requests.", labels=["model_name", "finished_reason"])
        for label, value in totals.items():
            family.add_metric([self._model, label], value)
        return family

    def _gauge(self, name: str, help_text: str, value: float) -> Metric:
        family = GaugeMetricFamily(self._prefix + name, help_text, labels=["model_name"])
        family.add_metric([self._model], value)
        return family

    def _counter(self, name: str, help_text: str, value: float) -> Metric:
        family = CounterMetricFamily(self._prefix + name, help_text, labels=["model_name"])
        family.add_metric([self._model], value)
        return family
