"""What a start is doing, told meanwhile: whoever watches sees within seconds that something goes on."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

from ninfer_jax.observe.console import show_transient

logger = logging.getLogger(__name__)

Describe: TypeAlias = Callable[[int, int], str]
"""From (done, total) to a few words."""

TICK_SECONDS = 1.0
RECORD_SECONDS = 5.0


class Activity:
    """A progress callback and, around what calls it, a context: a transient line that counts the seconds on a
    terminal, else a record every ``record_seconds``, whether or not there is progress."""

    def __init__(
        self,
        describe: Describe,
        *,
        tick_seconds: float = TICK_SECONDS,
        record_seconds: float = RECORD_SECONDS,
    ) -> None:
        self._describe = describe
        self._tick_seconds = tick_seconds
        self._record_seconds = record_seconds
        self._progress = (0, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="activity", daemon=True)

    def __call__(self, done: int, total: int) -> None:
        self._progress = done, total

    def __enter__(self) -> "Activity":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        show_transient("")

    def _tell(self) -> None:
        started = recorded = time.monotonic()
        while True:
            now = time.monotonic()
            text = f"{self._describe(*self._progress)}, {now - started:.0f} s"
            if not show_transient(text) and now - recorded >= self._record_seconds:
                recorded = now
                logger.info("%s", text)
            if self._ended.wait(self._tick_seconds):
                return
