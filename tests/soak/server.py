"""A server process to be watched: its memory, heap, descriptors, threads and compilations."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from ninfer_jax.cli.bench_server import free_port

READY_SECONDS = 1800.0
REST_SECONDS = 300.0
POLL_SECONDS = 0.1
STOP_SECONDS = 300.0
MIB = 1 << 20
ROOT = Path(__file__).parents[2]
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
FLAGS = ("--max-concurrency", "8", "--max-context", "1024", "--kv-capacity", "2048", "--prefill-chunk", "64")
CAPACITY = ("--max-pending-requests", "8", "--pending-timeout-ms", "400")
"""More clients than it takes, and a pool that not everybody fits into."""


UNSETTLED = ("running", "waiting", "terminal_pending")


@dataclass(frozen=True, slots=True)
class Reading:
    """What the process of a server at rest holds."""

    resident_bytes: int
    descriptors: int
    threads: int
    """Without those of pools that grow up to a bound."""
    blocks: int
    """Allocated by Python objects, of any kind."""
    arrays: int
    """Of jax."""
    types: dict[str, int]
    """Live objects that the garbage collector tracks."""


class WatchedServer:
    """``ninfer-jax serve`` over a tiny random model made in ``folder``, on loopback. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log = folder / "requests.jsonl"
        self._stderr = folder / "stderr.txt"
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> "WatchedServer":
        (self._folder / "config.json").write_text(json.dumps(CONFIG))
        model = self._folder / "tiny.ninfer"
        convert = ["-m", "ninfer_jax", "convert", "--random", self._folder / "config.json", model]
        subprocess.run([sys.executable, *convert], check=True, capture_output=True, cwd=ROOT)
        command = [sys.executable, "-m", "tests.soak.observed", "serve", str(model)]
        command += ["--port", str(self._port), *FLAGS, *CAPACITY]
        command += ["--log-level", "warning", "--request-log-jsonl", str(self.log)]
        environment = {**os.environ, "JAX_LOG_COMPILES": "1"}
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                cwd=ROOT,
                text=True,
            )
        try:
            self._wait_ready()
        except BaseException:
            self._process.kill()
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(STOP_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return code

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended while starting: {self._stderr.read_text()}")
            try:
                if httpx.get(f"{self.url}/health", timeout=5, trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise RuntimeError("the server was not ready in time")

    def num_compilations(self) -> int:
        """How many times XLA was asked to compile, cached on disk or not, by what jax logs of it."""
        return self._stderr.read_text(errors="replace").count("Compiling ")

    def complaints(self) -> list[str]:
        """Its own lines of a level above INFO."""
        lines = self._stderr.read_text(errors="replace").splitlines()
        return [line for line in lines if any(f" {level} " in line for level in ("ERROR", "CRITICAL"))]

    def stats(self) -> dict[str, Any]:
        return dict(httpx.get(f"{self.url}/stats", timeout=REST_SECONDS, trust_env=False).json())

    def metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=REST_SECONDS, trust_env=False).text

    def resident_bytes(self) -> int:
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def rest(self) -> list[str]:
        """Wait until nothing runs, statistics say so, and every connection has been noticed to be gone.
        What has not come to rest."""
        process = psutil.Process(self._process.pid)
        deadline = time.monotonic() + REST_SECONDS
        before = None
        while time.monotonic() < deadline:
            stats = self.stats()
            time.sleep(POLL_SECONDS)
            held = {name: stats["gauges"][name] for name in UNSETTLED} | {
                "reservations": stats["outstanding"]
            }
            held["connections"] = sum(c.status != psutil.CONN_LISTEN for c in process.net_connections())
            if stats == before and not any(held.values()):
                return []
            before = stats
        return [f"the server does not come to rest: {held}"]

    def reading(self) -> Reading:
        """Of a server at rest."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        census = json.loads(self._process.stdout.readline())
        process = psutil.Process(self._process.pid)
        return Reading(
            resident_bytes=process.memory_info().rss,
            descriptors=process.num_fds(),
            threads=process.num_threads() - census["pool_threads"],
            blocks=census["blocks"],
            arrays=census["arrays"],
            types=census["types"],
        )
