"""The bench command: its choices, its own server as a child process, and the context sweep's account."""

import functools
import json
import os
import sys
import textwrap
from pathlib import Path

import pytest

from ninfer_jax.cli import bench, bench_server, bench_sweep, main
from ninfer_jax.cli.bench_engine import EngineTarget
from ninfer_jax.cli.bench_measures import decode_window
from ninfer_jax.cli.bench_server import ServerProcess, free_port
from ninfer_jax.cli.bench_target import Job
from ninfer_jax.config import EngineConfig
from ninfer_jax.errors import NinferError
from tests.cli.fakes import gathered
from tests.cli.test_bench_measures import ClockworkTarget
from tests.fakes import fake_engine

CONFIG = EngineConfig(max_context=2048, kv_capacity=16384, max_concurrency=8)


def fake_target(name="ninfer-jax"):
    engine = fake_engine(CONFIG)
    return gathered(EngineTarget(engine, engine.shutdown, name=name))


def test_an_engine_target_runs_rows_together_to_their_limit():
    target = fake_target()
    try:
        traces = target.run([Job(30, 12, seed) for seed in range(1, 9)])
        assert all(trace.counts == tuple(range(1, 13)) for trace in traces)
        tokens, seconds = decode_window(traces)
        assert tokens > 0
        assert seconds > 0
        assert target.kv_bytes_per_token() == 2 * 4
        with pytest.raises(NinferError, match="context"):
            target.run([Job(3000, 1, 99)])
        assert target.run([Job(5, 1, 100)])[0].counts == (1,)
    finally:
        target.close()


@pytest.fixture
def engines(monkeypatch):
    """Both of our targets are fakes; the model is a file that is never read."""
    monkeypatch.setattr(bench, "WorkerTarget", lambda name, factory: fake_target(name))
    return [str(Path(__file__)), "--no-http", "--repeats", "2"]


def test_the_command_ends_with_one_json_line(engines, capsys):
    assert main.main(["bench", *engines]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    medians = record["medians"]["ninfer-jax"]
    assert {"prefill 1500", "decode B=8", "time to first token, 1500-token prefix known"} <= set(medians)
    assert record["repeats"] == 2
    assert len(record["samples"]["ninfer-jax"]["decode B=4"]) == 2
    assert record["peak_memory_bytes"]["ninfer-jax"] > 0


def test_only_measures_what_was_asked_for(engines, capsys):
    assert main.main(["bench", *engines, "--only", "decode"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not any(name.startswith("prefill") for name in record["units"])
    assert "decode B=1" in record["units"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--only", "decode,speed"], "--only knows no experiment speed; there are prefill, decode, streams"),
        (["--repeats", "0"], "--repeats must be at least 1"),
        (["/no/such/model"], "there is no /no/such/model"),
        ([__file__, "--against", "llama.cpp", "--no-http"], "needs a .gguf model"),
    ],
)
def test_wrong_choices_exit_2(engines, capsys, line, said):
    assert main.main(["bench", *line]) == 2
    assert said in capsys.readouterr().err


SERVER = """
    import http.server, sys, time
    sys.argv  # -m ninfer_jax serve FLAGS
    port = int(sys.argv[sys.argv.index("--port") + 1])
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if time.monotonic() > started + 0.3 else 503)
            self.end_headers()
        def log_message(self, *args): pass
    if "--fail" in sys.argv: sys.exit(3)
    started = time.monotonic()
    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """``python`` runs a small server instead of ours."""
    script = tmp_path / "server.py"
    script.write_text(textwrap.dedent(SERVER))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(bench_server.sys, "executable", str(python))


def test_a_server_process_is_timed_until_ready_and_stopped(stand_in):
    with ServerProcess([]) as server:
        assert 0.3 < server.startup_seconds < 20
        assert os.path.exists(f"/proc/{server.process_id}")
        url, process_id = server.url, server.process_id
    assert url.startswith("http://127.0.0.1:")
    assert not os.path.exists(f"/proc/{process_id}")


def test_a_server_that_cannot_start_is_an_error(stand_in):
    with pytest.raises(NinferError, match="exit 3"):
        ServerProcess(["--fail"])


def test_free_ports_can_be_bound():
    assert 1024 <= free_port() <= 65535


def test_http_overhead_is_of_a_round(monkeypatch):
    fast, slow = ClockworkTarget(bench.OURS, 1e3, 0.0100), ClockworkTarget(bench.OURS_HTTP, 1e3, 0.0102)
    results = bench.measure([fast, slow], bench._chosen(["decode"]), 1)
    assert bench.http_overhead(results) == pytest.approx(2.0)


def test_the_sweep_accounts_for_growth_and_capacity():
    contexts = bench_sweep.CONTEXTS
    medians = {
        2048: {context: 0.010 + context * 2e-6 for context in contexts},
        20480: {context: 1.1 * (0.010 + context * 2e-6) for context in contexts},
    }
    record = bench_sweep.summary(medians, kv_bytes=20_000, bandwidth=20e9)
    assert record["growth_seconds"] == pytest.approx(1800 * 2e-6)
    assert record["growth_explained_by_bytes_seconds"] == pytest.approx(1800 * 1e-6)
    assert record["capacity_ratio"] == pytest.approx(1.1)


def test_the_sweep_runs_both_pools(monkeypatch, capsys):
    def worker(name, factory: functools.partial):
        target = fake_target(name)
        target.call = lambda method: getattr(target, method)()
        return target

    monkeypatch.setattr(bench_sweep, "WorkerTarget", worker)
    monkeypatch.setattr(bench_sweep, "BANDWIDTH_BYTES", 2**20)
    assert main.main(["bench", __file__, "--sweep-context", "--repeats", "1"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert record["kv_bytes_per_token"] == 8
    assert set(record["round_seconds"]) == {"2048", "20480"}
    assert set(record["round_seconds"]["2048"]) == {str(context) for context in bench_sweep.CONTEXTS}
    assert record["read_bandwidth_bytes_per_second"] > 0
