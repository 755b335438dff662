"""A target in a process of its own, so that one engine's threads and memory are not another's."""

import contextlib
import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from ninfer_jax.cli import environment
from ninfer_jax.cli.bench_target import Job, Target, Trace
from ninfer_jax.errors import NinferError


class WorkerTarget:
    """Runs ``factory()`` and every call to its target in a child process. The factory and its
    arguments must pickle (a module-level function, or a ``functools.partial`` of one)."""

    def __init__(self, name: str, factory: Callable[[], Target]) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child, factory), daemon=True)
        self._process.start()
        child.close()
        self._receive()  # the target is ready

    def run(self, jobs: Sequence[Job]) -> list[Trace]:
        traces: list[Trace] = self.call("run", list(jobs))
        return traces

    def peak_memory(self) -> int | None:
        memory: int | None = self.call("peak_memory")
        return memory

    def close(self) -> None:
        with contextlib.suppress(_WorkerEnded):
            self.call("close")
        self._process.join(timeout=30)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def call(self, method: str, *arguments: Any) -> Any:
        """The result of any method of the target."""
        self._pipe.send((method, arguments))
        return self._receive()

    def _receive(self) -> Any:
        try:
            error, result = self._pipe.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if error is not None:
            raise error
        return result

    def _ended(self) -> "_WorkerEnded":
        self._process.join()
        return _WorkerEnded(f"bench: the {self.name} process ended (exit {self._process.exitcode})")


class _WorkerEnded(NinferError):
    """The child is gone, so nothing more can be asked of it."""


def _serve(pipe: Connection, factory: Callable[[], Target]) -> None:
    """The child: build the target, then answer calls until ``close``."""
    environment.prepare()
    try:
        target = factory()
        pipe.send((None, None))
        method = ""
        while method != "close":
            method, arguments = pipe.recv()
            pipe.send((None, getattr(target, method)(*arguments)))
    except EOFError:
        os._exit(1)  # the parent is gone
    except NinferError as error:
        pipe.send((error, None))
    except Exception:
        pipe.send((NinferError(f"bench worker: {traceback.format_exc()}"), None))
