"""What metrics, request log and console see of the engine, without touching its loop."""

import logging
import math
import time
from collections.abc import Callable
from typing import Any, Protocol

from ninfer_jax.types import Admitted, Failed, Finished, GenerationRequest

logger = logging.getLogger(__name__)

REPORT_SECONDS = 60.0
"""Between two records of a failing observer."""


class EngineObserver(Protocol):
    """Told on the engine thread; must return at once and not block. What one call raises is logged and
    counted; the engine goes on and so does the observer. Times are monotonic seconds.

    Interval data (throughput records) is not pushed: take differences of ``Engine.stats()``.
    """

    def submitted(self, request: GenerationRequest, at: float) -> None:
        """The request is in the queue."""
        ...

    def admitted(self, request: GenerationRequest, event: Admitted, queue_seconds: float) -> None: ...

    def output(self, request: GenerationRequest, num_tokens: int, completion_tokens: int, at: float) -> None:
        """Tokens were published, ``at`` is when they were committed; the first call of a request marks
        its first token. Of a round's tokens it tells after :meth:`round`."""
        ...

    def finished(self, request: GenerationRequest, event: Finished) -> None:
        """Terminal; statistics already show the released resources."""
        ...

    def failed(self, request: GenerationRequest, event: Failed) -> None: ...

    def round(self, num_rows: int, num_tokens: int, at: float) -> None:
        """A decode round was committed."""
        ...


class NullObserver:
    """Sees nothing."""

    def submitted(self, request: GenerationRequest, at: float) -> None:
        pass

    def admitted(self, request: GenerationRequest, event: Admitted, queue_seconds: float) -> None:
        pass

    def output(self, request: GenerationRequest, num_tokens: int, completion_tokens: int, at: float) -> None:
        pass

    def finished(self, request: GenerationRequest, event: Finished) -> None:
        pass

    def failed(self, request: GenerationRequest, event: Failed) -> None:
        pass

    def round(self, num_rows: int, num_tokens: int, at: float) -> None:
        pass


class GuardedObserver:
    """Passes everything on to ``observer``; what that raises goes no further.

    ``failures`` counts such calls; the log has the first and then at most one each
    :data:`REPORT_SECONDS`, so that an observer which always fails neither fills it nor falls silent.
    """

    def __init__(self, observer: EngineObserver, now: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._now = now
        self._next_report = -math.inf
        self.failures = 0

    def submitted(self, request: GenerationRequest, at: float) -> None:
        self._call(self._observer.submitted, request, at)

    def admitted(self, request: GenerationRequest, event: Admitted, queue_seconds: float) -> None:
        self._call(self._observer.admitted, request, event, queue_seconds)

    def output(self, request: GenerationRequest, num_tokens: int, completion_tokens: int, at: float) -> None:
        self._call(self._observer.output, request, num_tokens, completion_tokens, at)

    def finished(self, request: GenerationRequest, event: Finished) -> None:
        self._call(self._observer.finished, request, event)

    def failed(self, request: GenerationRequest, event: Failed) -> None:
        self._call(self._observer.failed, request, event)

    def round(self, num_rows: int, num_tokens: int, at: float) -> None:
        self._call(self._observer.round, num_rows, num_tokens, at)

    def _call(self, method: Callable[..., None], *arguments: Any) -> None:
        try:
            method(*arguments)
        except Exception:
            self.failures += 1
            now = self._now()
            if now >= self._next_report:
                self._next_report = now + REPORT_SECONDS
                logger.exception("the engine observer failed, %d calls since the start", self.failures)
