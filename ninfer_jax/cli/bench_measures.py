"""The experiments, and the one loop that measures them.

Absolute speeds of a shared machine drift by tens of percent within minutes. So all targets do the same
experiment one after another, then the next, and this is repeated; what is compared is the ratio within
one repeat, and its median over the repeats is what is reported.
"""

import bisect
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ninfer_jax.cli.bench_target import Job, Target, Trace

PROMPT_TOKENS = 128
OUTPUT_TOKENS = 64
PREFIX_TOKENS = 1500
SUFFIX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure. ``higher_is_better`` decides how a ratio is turned, so that above 1 is faster."""

    name: str
    unit: str
    higher_is_better: bool


Sample = dict[Metric, float]


@dataclass(frozen=True, slots=True)
class Experiment:
    """``measure`` runs it once on a target; it takes new seeds, so that nothing is a prefix hit."""

    name: str
    measure: Callable[[Target, Iterator[int]], Sample]


def experiments() -> tuple[Experiment, ...]:
    """Every experiment, in the order of the table."""
    return (
        *(_prefill(tokens) for tokens in (128, 512, 1500)),
        *(_decode(rows) for rows in (1, 2, 4, 8)),
        _streams(8),
        Experiment("prefix", _prefix_hit),
    )


@dataclass(frozen=True, slots=True)
class Results:
    """``samples[target][metric]`` is one value a repeat, in order."""

    samples: dict[str, dict[Metric, list[float]]]

    def median(self, target: str, metric: Metric) -> float | None:
        values = self.samples[target].get(metric)
        return statistics.median(values) if values else None

    def ratio(self, target: str, other: str, metric: Metric) -> float | None:
        """How many times faster ``target`` is than ``other``: the median of each repeat's ratio."""
        ours, theirs = self.samples[target].get(metric), self.samples[other].get(metric)
        if not ours or not theirs:
            return None
        pairs = zip(ours, theirs, strict=True)
        return statistics.median(a / b if metric.higher_is_better else b / a for a, b in pairs)

    @property
    def metrics(self) -> list[Metric]:
        """Every metric that some target has, in the order of measuring."""
        return list(dict.fromkeys(metric for samples in self.samples.values() for metric in samples))


def measure(
    targets: Sequence[Target],
    chosen: Sequence[Experiment],
    repeats: int,
    progress: Callable[[str], None] = lambda line: None,
) -> Results:
    """Run every experiment ``repeats`` times on every target, interleaved, after one uncounted run."""
    results = Results({target.name: {} for target in targets})
    seeds = itertools.count(1)
    for repeat in range(-1, repeats):
        label = f"{repeat + 1}/{repeats}" if repeat >= 0 else "warm-up"
        for experiment in chosen:
            for target in targets if repeat % 2 == 0 else targets[::-1]:  # whoever is first pays for it
                progress(f"{label}: {experiment.name}, {target.name}")
                sample = experiment.measure(target, seeds)
                for metric, value in sample.items() if repeat >= 0 else ():
                    results.samples[target.name].setdefault(metric, []).append(value)
    return results


def first_token_seconds(trace: Trace) -> float:
    return trace.times[0] - trace.started


def decode_window(traces: Sequence[Trace]) -> tuple[int, float]:
    """(tokens, seconds) from the moment that every row decodes to the moment that the first ends."""
    begin = max(trace.times[0] for trace in traces)
    end = min(trace.times[-1] for trace in traces)
    return sum(_count_at(trace, end) - _count_at(trace, begin) for trace in traces), end - begin


def _count_at(trace: Trace, moment: float) -> int:
    seen = bisect.bisect_right(trace.times, moment)
    return trace.counts[seen - 1] if seen else 0


def rounds_spent(trace: Trace) -> list[float]:
    """Seconds between neighbouring chunks of one stream."""
    return [later - earlier for earlier, later in itertools.pairwise(trace.times)]


def _jobs(rows: int, prompt: int, output: int, seeds: Iterator[int]) -> list[Job]:
    return [Job(prompt, output, seed=next(seeds)) for _ in range(rows)]


def _prefill(tokens: int) -> Experiment:
    rate = Metric(f"prefill {tokens}", "tok/s", True)
    ttft = Metric(f"time to first token, {tokens} tokens", "ms", False)

    def run(target: Target, seeds: Iterator[int]) -> Sample:
        trace = target.run(_jobs(1, tokens, 1, seeds))[0]
        seconds = first_token_seconds(trace)
        return {rate: trace.prompt_tokens / seconds, ttft: seconds * 1000}

    return Experiment("prefill", run)


def _decode(rows: int) -> Experiment:
    rate = Metric(f"decode B={rows}", "tok/s", True)
    p50 = Metric(f"inter-token p50, B={rows}", "ms", False)
    p95 = Metric(f"inter-token p95, B={rows}", "ms", False)

    def run(target: Target, seeds: Iterator[int]) -> Sample:
        traces = target.run(_jobs(rows, PROMPT_TOKENS, OUTPUT_TOKENS, seeds))
        tokens, seconds = decode_window(traces)
        gaps = [gap * 1000 for trace in traces for gap in rounds_spent(trace)]
        return {
            rate: tokens / seconds,
            p50: statistics.median(gaps),
            p95: statistics.quantiles(gaps, n=20)[-1],
        }

    return Experiment("decode", run)


def _streams(rows: int) -> Experiment:
    rate = Metric(f"{rows} streams of {PROMPT_TOKENS} + {OUTPUT_TOKENS}, end to end", "tok/s", True)

    def run(target: Target, seeds: Iterator[int]) -> Sample:
        traces = target.run(_jobs(rows, PROMPT_TOKENS, OUTPUT_TOKENS, seeds))
        seconds = max(trace.times[-1] for trace in traces) - min(trace.started for trace in traces)
        return {rate: sum(trace.counts[-1] for trace in traces) / seconds}

    return Experiment("streams", run)


def _prefix_hit(target: Target, seeds: Iterator[int]) -> Sample:
    metric = Metric(f"time to first token, {PREFIX_TOKENS}-token prefix known", "ms", False)
    shared = next(seeds)

    def job() -> Job:
        total = PREFIX_TOKENS + SUFFIX_TOKENS
        return Job(total, 1, next(seeds), shared_tokens=PREFIX_TOKENS, shared_seed=shared)

    target.run([job()])
    return {metric: first_token_seconds(target.run([job()])[0]) * 1000}
