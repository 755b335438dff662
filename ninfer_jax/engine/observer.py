"""What metrics, request log and console see of the engine, without touching its loop."""

import logging
from collections.abc import Callable
from typing import Any, Protocol

from ninfer_jax.types import Admitted, Failed, Finished, GenerationRequest

logger = logging.getLogger(__name__)


class EngineObserver(Protocol):
    """Told on the engine thread; must return at once and not block. An observer that raises is
    dropped (and logged), the engine goes on. Times are monotonic seconds.

    Interval data (throughput records) is not pushed: take differences of ``Engine.stats()``.
    """

    def submitted(self, request: GenerationRequest, at: float) -> None:
        """The request is in the queue."""
        ...

    def admitted(self, request: GenerationRequest, event: Admitted, queue_seconds: float) -> None: ...

    def output(self, request: GenerationRequest, num_tokens: int, completion_tokens: int, at: float) -> None:
        """Tokens were committed and published; the first call of a request marks its first token."""
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
    """Passes everything on to ``observer`` until that raises; then it is dropped."""

    def __init__(self, observer: EngineObserver) -> None:
        self._observer: EngineObserver = observer

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
            logger.exception("the engine observer failed and is dropped")
            self._observer = NullObserver()
