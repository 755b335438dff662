"""``bench --host``: the host's phases round by round, from the engine's stopwatch and from a server's log."""

import itertools
import json
from pathlib import Path

import pytest

from ninfer_jax.cli import bench_host, main
from ninfer_jax.cli.bench_engine import EngineTarget
from ninfer_jax.cli.bench_host import ROWS, full_rounds, median_round, rounds_of_log
from ninfer_jax.cli.bench_rounds import RecordedTarget, RoundRecorder
from ninfer_jax.cli.bench_target import Job
from ninfer_jax.config import EngineConfig
from ninfer_jax.observe.interval import throughput
from ninfer_jax.observe.request_log import RequestLog
from tests.cli.fakes import gathered
from tests.fakes import fake_engine

CONFIG = EngineConfig(max_context=2048, kv_capacity=16384, max_concurrency=ROWS)


def recorded_target():
    recorder = RoundRecorder()
    return gathered(RecordedTarget(fake_engine(CONFIG, observer=recorder), recorder))


def test_every_full_round_is_split_into_its_phases():
    target = recorded_target()
    try:
        target.run([Job(8, 40, seed) for seed in range(1, ROWS)])
        assert full_rounds(target.readings()) == []  # seven rows are no full round
        target.run([Job(8, 40, 100 + seed) for seed in range(ROWS)])
    finally:
        target.close()
    rounds = full_rounds(target.readings())
    assert len(rounds) == 40 - ROWS - 1  # the first row has had ROWS tokens by then; pairs
    for sample in rounds:
        assert sample["total"] == pytest.approx(sum(sample[name] for name in bench_host.PHASES))
        assert sample["total"] > 0
    assert median_round(rounds)["engine_commit_output"] > 0
    assert median_round([]) == {}


def test_a_log_gives_the_intervals_of_full_rounds_only(tmp_path):
    """The engine's books are read at every unit, and each two of neighbouring units are an interval."""
    engine = fake_engine(CONFIG)
    target = gathered(EngineTarget(engine, engine.shutdown))
    executor = engine.scheduler.services.executor
    gather, books = executor.during_wait, []

    def read_books():
        gather()
        books.append(engine.stats())

    executor.during_wait = read_books
    target.run([Job(8, 30, seed) for seed in range(ROWS)])
    target.close()
    records = [throughput(before, after, 1.0) for before, after in itertools.pairwise(books)]
    path = tmp_path / "log.jsonl"
    log = RequestLog(path)
    log.write("request_start", 0.0, {})
    for record in records:
        log.write("throughput", 0.0, record)
    log.close()
    full = [
        record
        for record in records
        if record["decode"]["average_size"] == ROWS and record["tokens"]["computed_prefill_tokens"] == 0
    ]
    rounds = rounds_of_log(path)
    assert len(rounds) == len(full) > 10
    for sample, record in zip(rounds, full, strict=True):
        spent = sample["total"] * record["decode"]["rounds"]
        assert spent == pytest.approx(record["host_work"]["elapsed_seconds"]["total"])


class StandInServer:
    url = "http://127.0.0.1:1"

    def __init__(self, flags):
        Path(flags[flags.index("--request-log-jsonl") + 1]).touch()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_the_command_prints_both_sides_and_their_ratio(monkeypatch, capsys):
    targets = [recorded_target(), recorded_target()]
    engine, served = targets
    monkeypatch.setattr(engine, "call", lambda method: getattr(engine, method)(), raising=False)
    monkeypatch.setattr(bench_host, "WorkerTarget", lambda name, factory: engine)
    monkeypatch.setattr(bench_host, "HttpTarget", lambda name, url: served)
    monkeypatch.setattr(bench_host, "ServerProcess", StandInServer)
    try:
        assert main.main(["bench", __file__, "--host", "--repeats", "2"]) == 0
    finally:
        served.close()
    printed = capsys.readouterr().out
    record = json.loads(printed.splitlines()[-1])
    assert record["http_to_engine"] > 0
    assert len(record["rounds_per_second"]["engine"]) == len(record["rounds_per_second"]["http"]) == 2
    assert record["host_seconds_per_round"]["engine"]["total"] > 0
    assert "engine_commit_output" in printed
    assert "HTTP to engine" in printed
