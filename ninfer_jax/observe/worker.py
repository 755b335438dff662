"""A thread that writes logs, so that neither the engine nor the event loop waits for a disk."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

logger = logging.getLogger(__name__)

MAX_QUEUED = 10_000
Job: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]


class Worker:
    """Runs posted calls in order. When the disk has been stuck for ``MAX_QUEUED`` of them, new ones are
    dropped and counted: a log must not take the server down with it."""

    def __init__(self, name: str, *, capacity: int = MAX_QUEUED) -> None:
        self._queue: queue.Queue[Job | None] = queue.Queue(capacity)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        """Queue a call; from any thread, never blocks."""
        try:
            self._queue.put_nowait((function, arguments))
        except queue.Full:
            self._dropped += 1

    def close(self, timeout: float = 10.0) -> None:
        """Finish what is queued, for at most ``timeout`` seconds."""
        try:
            self._queue.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            function, arguments = job
            try:
                function(*arguments)
            except Exception:
                logger.exception("a log record could not be written")
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                logger.warning("%d log records were dropped", dropped)
