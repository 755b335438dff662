"""``bench --stall``: each gap of the running streams holds one chunk and one round, by the engine's books."""

import json

import pytest

from ninfer_jax.cli import bench_stall, main
from ninfer_jax.cli.bench_rounds import RecordedTarget, RoundReading, RoundRecorder
from ninfer_jax.cli.bench_stall import CHUNKS, LONG_PROMPT, STREAMS, Gap, gaps_between, summary
from ninfer_jax.engine.accounting import ClockTotals
from tests.cli.fakes import gathered
from tests.fakes import fake_engine


def reading(at, units, decode, prefill, num_rows=STREAMS):
    """``decode`` and ``prefill`` are seconds since start-up, each in two phases."""
    work = tuple((round(seconds * 4e8), round(seconds * 6e8)) for seconds in (decode, prefill, 0))
    return RoundReading(at, num_rows, units, ClockTotals(work, (), ()))


def test_a_gap_lies_beside_the_chunk_in_it_and_the_round_at_its_end():
    readings = [
        reading(1.0, 5, 1.0, 2.0, num_rows=STREAMS - 1),
        reading(2.0, 5, 1.0, 2.0),
        reading(4.5, 6, 1.5, 3.5),  # a gap of 2.5: 1.5 of prefill, and a round of ...
        reading(9.0, 8, 2.5, 6.0),  # ... 1.0, known here
        reading(9.5, 8, 3.0, 6.0),
    ]
    (one, two) = gaps_between(readings, 2.0, 9.0)
    assert one == (2.5, 1, pytest.approx(1.5), pytest.approx(1.0))
    assert two == (4.5, 2, pytest.approx(2.5), pytest.approx(0.5))


def test_two_chunks_in_one_gap_would_show():
    row = summary(256, [Gap(1.0, 1, 0.75, 0.25)] * 99 + [Gap(3.0, 2, 1.5, 0.5)])
    assert row["chunks_per_gap_max"] == 2
    assert row["gap_p50_seconds"] == row["gap_p95_seconds"] == row["bound_p95_seconds"] == 1.0
    assert row["gap_max_seconds"] == 3.0
    assert row["chunks"] == 101


def test_the_command_cuts_the_long_prompt_into_chunks_between_rounds(monkeypatch, capsys):
    def worker(name, factory):
        _, config = factory.args
        recorder = RoundRecorder()
        target = gathered(RecordedTarget(fake_engine(config, observer=recorder), recorder))
        target.call = lambda method: getattr(target, method)()
        return target

    monkeypatch.setattr(bench_stall, "WorkerTarget", worker)
    assert main.main(["bench", __file__, "--stall", "--repeats", "2"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["stall"]
    assert [row["prefill_chunk"] for row in rows] == list(CHUNKS)
    for row in rows:
        assert row["chunks_per_gap_max"] == 1
        assert row["chunks"] == 2 * -(-LONG_PROMPT // row["prefill_chunk"])
        assert row["gaps"] >= row["chunks"]
        assert row["gap_max_seconds"] >= row["gap_p95_seconds"] >= row["gap_p50_seconds"] > 0
        assert row["bound_p95_seconds"] > 0
