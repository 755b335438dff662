"""A server process to be watched: its memory, descriptors, threads and compilations."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from ninfer_jax.cli.bench_server import free_port

READY_SECONDS = 300.0
MIB = 1 << 20
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
PLACES = ("--max-pending-requests", "8", "--pending-timeout-ms", "400")
"""More clients than places, and a pool that not everybody fits into."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a process holds at one moment."""

    resident_bytes: int
    descriptors: int
    threads: int


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
        python = [sys.executable, "-m", "ninfer_jax"]
        subprocess.run(
            [*python, "convert", "--random", self._folder / "config.json", model],
            check=True,
            capture_output=True,
        )
        command = [*python, "serve", str(model), "--port", str(self._port), *FLAGS, *PLACES]
        command += ["--log-level", "warning", "--request-log-jsonl", str(self.log)]
        environment = {**os.environ, "JAX_LOG_COMPILES": "1"}
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(command, stderr=stderr, env=environment)
        try:
            self._wait_ready()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

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

    def reading(self) -> Reading:
        root = Path(f"/proc/{self._process.pid}")
        status = dict(
            line.split(":", 1) for line in (root / "status").read_text().splitlines() if ":" in line
        )
        return Reading(
            resident_bytes=int(status["VmRSS"].split()[0]) * 1024,
            descriptors=len(os.listdir(root / "fd")),
            threads=int(status["Threads"]),
        )
