"""Our own server as a child process: started with its own compile cache, timed until it is ready."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import httpx

from ninfer_jax.errors import NinferError

READY_TIMEOUT = 900.0
STOP_TIMEOUT = 30.0
HOST = "127.0.0.1"


class ServerProcess:
    """``ninfer-jax serve`` with ``arguments``, on a free port. ``startup_seconds`` runs from the start
    of the process to the first 200 of ``/health``. A context manager: leaving it stops the server."""

    def __init__(self, arguments: Sequence[str], *, compile_cache: Path | None = None) -> None:
        self.port = free_port()
        environment = dict(os.environ)
        if compile_cache:
            environment["JAX_COMPILATION_CACHE_DIR"] = str(compile_cache)
        command = [sys.executable, "-m", "ninfer_jax", "serve", *arguments]
        command += ["--host", HOST, "--port", str(self.port), "--log-level", "error"]
        started = time.monotonic()
        self._process = subprocess.Popen(command, env=environment)
        try:
            self._wait_ready(started + READY_TIMEOUT)
        except BaseException:
            self.stop()
            raise
        self.startup_seconds = time.monotonic() - started

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def process_id(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """SIGTERM, then after ``STOP_TIMEOUT`` SIGKILL."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_ready(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            if (code := self._process.poll()) is not None:
                raise NinferError(f"the server ended while starting (exit {code})")
            try:
                if httpx.get(f"{self.url}/health", timeout=5.0).status_code == 200:
                    return
            except httpx.TransportError:
                pass  # not listening yet
            time.sleep(0.05)
        raise NinferError(f"the server was not ready after {READY_TIMEOUT:.0f} s")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
