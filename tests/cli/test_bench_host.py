"""``bench --host``: the host's phases round by round, from the engine's stopwatch and from a server's log."""

import json
from pathlib import Path

import pytest

from ninfer_jax.cli import bench_host, main
from ninfer_jax.cli.bench_host import ROWS, RoundTimer, TimedEngineTarget, median_round, rounds_of_log
from ninfer_jax.cli.bench_target import Job
from ninfer_jax.config import EngineConfig
from ninfer_jax.observe.monitor import ServeMonitor
from ninfer_jax.observe.request_log import RequestLog
from tests.fakes import fake_engine

CONFIG = EngineConfig(max_context=2048, kv_capacity=16384, max_concurrency=ROWS)


def timed_target():
    timer = RoundTimer()
    engine = fake_engine(CONFIG, observer=timer)
    timer.clock = engine.scheduler.services.clock
    return TimedEngineTarget(engine, timer)


def test_every_full_round_is_split_into_its_phases():
    target = timed_target()
    try:
        target.run([Job(8, 40, seed) for seed in range(1, ROWS)])
        assert target.rounds() == []  # seven rows are no full round
        target.run([Job(8, 40, 100 + seed) for seed in range(ROWS)])
    finally:
        target.close()
    rounds = target.rounds()
    assert 10 < len(rounds) < 40
    for sample in rounds:
        assert sample["total"] == pytest.approx(sum(sample[name] for name in bench_host.PHASES))
        assert sample["total"] > 0
    assert median_round(rounds)["engine_commit_output"] > 0
    assert median_round([]) == {}


def test_a_log_gives_the_intervals_of_full_rounds_only(tmp_path):
    path = tmp_path / "log.jsonl"
    monitor = ServeMonitor(request_log=RequestLog(path), interval=0.002)
    engine = fake_engine(CONFIG, observer=monitor)
    monitor.start(engine.stats, "fake", {})
    target = bench_host.EngineTarget(engine, engine.shutdown)
    target.run([Job(8, 3, 99)])
    target.run([Job(8, 1500, seed) for seed in range(ROWS)])
    target.close()
    monitor.close()
    intervals = [json.loads(line) for line in path.read_text().splitlines()]
    full = [
        event
        for event in intervals
        if event["event"] == "throughput"
        and event["decode"]["average_size"] == ROWS
        and event["tokens"]["computed_prefill_tokens"] == 0
    ]
    rounds = rounds_of_log(path)
    assert len(rounds) == len(full) > 0
    for sample, event in zip(rounds, full, strict=True):
        spent = sample["total"] * event["decode"]["rounds"]
        assert spent == pytest.approx(event["host_work"]["elapsed_seconds"]["total"])


class StandInServer:
    url = "http://127.0.0.1:1"

    def __init__(self, flags):
        Path(flags[flags.index("--request-log-jsonl") + 1]).touch()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_the_command_prints_both_sides_and_their_ratio(monkeypatch, capsys):
    targets = [timed_target(), timed_target()]
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
