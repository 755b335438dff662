"""The benchmark's arithmetic, on a target whose speed is known."""

import dataclasses
import itertools
import json

import pytest

from ninfer_jax.cli import bench_report
from ninfer_jax.cli.bench_measures import decode_window, experiments, measure
from ninfer_jax.cli.bench_target import Job, Trace, random_tokens


class ClockworkTarget:
    """A serial prefill at ``prefill_rate`` tokens a second, known prefixes free, then a round of all
    rows every ``round_seconds``."""

    def __init__(self, name, prefill_rate, round_seconds):
        self.name, self.prefill_rate, self.round_seconds = name, prefill_rate, round_seconds
        self.known = set()
        self.order = []

    def run(self, jobs):
        traces, ready = [], 0.0
        for job in jobs:
            assert job.seed not in self.known
            reused = job.shared_tokens if job.shared_seed in self.known else 0
            self.known |= {job.seed, job.shared_seed}
            ready += (job.prompt_tokens - reused) / self.prefill_rate
            traces.append((job, ready))
        rounds = range(max(job.output_tokens for job in jobs) - 1)
        self.order.append(self.name)
        return [
            Trace(
                job.prompt_tokens,
                0.0,
                (first, *(ready + (i + 1) * self.round_seconds for i in rounds)),
                tuple(range(1, job.output_tokens + 1)),
            )
            for job, first in traces
        ]

    def peak_memory(self):
        return 3 * 2**20

    def close(self):
        pass


@pytest.fixture
def results():
    targets = [ClockworkTarget("fast", 1000.0, 0.01), ClockworkTarget("slow", 500.0, 0.05)]
    return measure(targets, experiments(), repeats=3)


def by_name(results):
    return {metric.name: metric for metric in results.metrics}


@pytest.mark.parametrize(
    ("name", "fast", "ratio"),
    [
        ("prefill 512", 1000.0, 2.0),
        ("time to first token, 1500 tokens", 1500.0, 2.0),
        ("decode B=1", 100.0, 5.0),
        ("decode B=8", 800.0, 5.0),
        ("inter-token p95, B=1", 10.0, 5.0),
        ("8 streams of 128 + 64, end to end", 8 * 64 / (1.024 + 63 * 0.01), None),
        ("time to first token, 1500-token prefix known", 16.0, 2.0),
    ],
)
def test_figures_of_a_known_speed(results, name, fast, ratio):
    metric = by_name(results)[name]
    assert results.median("fast", metric) == pytest.approx(fast, rel=1e-6)
    if ratio:
        assert results.ratio("fast", "slow", metric) == pytest.approx(ratio, rel=1e-6)
    assert len(results.samples["fast"][metric]) == 3


def test_targets_take_turns_and_change_the_first():
    targets = [ClockworkTarget("a", 1.0, 1.0), ClockworkTarget("b", 1.0, 1.0)]
    shared = []
    for target in targets:
        target.order = shared
    measure(targets, experiments()[:1], repeats=2)
    assert shared == ["b", "a", "a", "b", "b", "a"]


def test_a_ratio_is_the_median_of_pairs_not_a_ratio_of_medians(results):
    metric = by_name(results)["prefill 128"]
    results.samples["fast"][metric] = [10.0, 40.0, 100.0]
    results.samples["slow"][metric] = [10.0, 20.0, 400.0]
    assert results.ratio("fast", "slow", metric) == 1.0


def test_the_window_starts_when_all_rows_decode_and_ends_with_the_first():
    early = Trace(1, 0.0, (1.0, 2.0, 3.0, 4.0), (1, 2, 3, 4))
    late = Trace(1, 0.0, (2.0, 3.0, 4.0, 5.0), (1, 3, 5, 7))
    assert decode_window([early, late]) == (2 + 4, 2.0)


def test_prompts_share_exactly_what_they_say():
    one = random_tokens(Job(40, 1, seed=1, shared_tokens=30, shared_seed=9), 1000)
    two = random_tokens(Job(40, 1, seed=2, shared_tokens=30, shared_seed=9), 1000)
    assert len(one) == len(two) == 40
    assert (
        sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=True))) == 30
    )
    assert all(125 <= token < 875 for token in one)


def test_the_report_is_a_table_and_then_one_json_line(results, capsys):
    memory = {"fast": 3 * 2**20, "slow": None}
    table = bench_report.results_table(results, "fast", memory)
    bench_report.print_report([table], {"model": "m", **bench_report.results_json(results, "fast", memory)})
    printed = capsys.readouterr().out
    record = json.loads(printed.splitlines()[-1])
    assert record["schema"] == "ninfer_bench/1"
    assert record["medians"]["fast"]["decode B=8"] == pytest.approx(800.0)
    assert record["ratios"]["slow"]["decode B=8"] == pytest.approx(5.0)
    assert record["machine"]["cores"] >= 1
    assert "5.00x" in printed
    assert "decode B=8 (tok/s)" in printed


def test_a_metric_that_one_target_lacks_has_no_ratio(results):
    metric = dataclasses.replace(by_name(results)["prefill 128"], name="odd")
    results.samples["fast"][metric] = [1.0]
    assert results.ratio("fast", "slow", metric) is None
    assert results.median("slow", metric) is None
