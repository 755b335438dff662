"""One answer in the making, for Python callers: waits, iteration, callback."""

import threading
from collections.abc import Callable, Iterator

from ninfer_jax.errors import EngineError, NinferError
from ninfer_jax.types import (
    Channel,
    Event,
    Failed,
    Finished,
    FinishReason,
    Output,
    Reservation,
    TextDelta,
    Usage,
)

TokenCallback = Callable[[str], None]


class GenerateResult:
    """The text of one request as it comes. Any thread may read; the engine thread writes.

    Take it whole (``wait_completion``), piece by piece (iterate, or ``wait`` and look at ``text``), or
    through ``cb``, which the engine thread calls with each piece and which must return at once
    (``reasoning_cb`` with pieces of what the model thinks before its answer).
    """

    def __init__(
        self,
        cb: TokenCallback | None = None,
        *,
        reasoning_cb: TokenCallback | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._callbacks: dict[Channel, TokenCallback | None] = {"content": cb, "reasoning": reasoning_cb}
        self._on_end = on_end
        self._changed = threading.Condition()
        self._news = threading.Event()
        self._reservation: Reservation | None = None
        self._pieces: list[str] = []
        self._reasoning: list[str] = []
        self._token_ids: list[int] = []
        self._finished: Finished | None = None
        self._error: NinferError | None = None
        self._is_done = False

    def wait(self, timeout: float | None = None) -> bool:
        """Block until there is text that no ``wait`` has announced, or the end. False on timeout."""
        if not self._news.wait(timeout):
            return False
        if not self._is_done:
            self._news.clear()
        return True

    def wait_completion(self, timeout: float | None = None) -> str:
        """The whole answer. Raises TimeoutError, or the NinferError that ended the request."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_done, timeout):
                raise TimeoutError(f"no complete answer within {timeout} s")
        self._raise_error()
        return self.text

    def __iter__(self) -> Iterator[str]:
        """Pieces of the answer as they become certain, from the first on. Raises what ended it."""
        index = 0
        while pieces := self._pieces_from(index):
            index += len(pieces)
            yield from pieces
        self._raise_error()

    def cancel(self) -> None:
        """End the request at the next boundary; what has been generated stays readable."""
        if self._reservation is not None:
            self._reservation.cancel()

    @property
    def text(self) -> str:
        """The answer so far, without reasoning."""
        return "".join(self._pieces)

    @property
    def reasoning(self) -> str:
        """What the model thought before its answer, so far."""
        return "".join(self._reasoning)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Every generated token so far, the one that ended the answer included."""
        return tuple(self._token_ids)

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def finish_reason(self) -> FinishReason | None:
        """None while it runs and after a failure."""
        return self._finished.reason if self._finished else None

    @property
    def usage(self) -> Usage | None:
        return self._finished.usage if self._finished else None

    @property
    def outcome(self) -> Finished | None:
        """The engine's own account: timings, counters, what the text side saw."""
        return self._finished

    def attach(self, reservation: Reservation) -> None:
        """What this result cancels and gives back in the engine; before it is submitted."""
        self._reservation = reservation

    def put(self, event: Event) -> None:
        """The request's event sink. A callback that raises ends its request, not the engine."""
        match event:
            case Output(token_ids=token_ids, deltas=deltas):
                texts = [delta for delta in deltas if isinstance(delta, TextDelta) and delta.text]
                with self._changed:
                    self._token_ids += token_ids
                    self._reasoning += [delta.text for delta in texts if delta.channel == "reasoning"]
                    self._pieces += [delta.text for delta in texts if delta.channel == "content"]
                    self._changed.notify_all()
                self._news.set()
                self._call_back(texts)
            case Finished():
                self._end(event, None)
            case Failed(error=error):
                self._end(None, error)

    def _call_back(self, texts: list[TextDelta]) -> None:
        try:
            for delta in texts:
                if callback := self._callbacks.get(delta.channel):
                    callback(delta.text)
        except Exception as error:
            self._callbacks.clear()
            self._error = EngineError(f"the callback raised {error!r}")
            self._error.__cause__ = error
            self.cancel()

    def _pieces_from(self, index: int) -> list[str]:
        """Block until there are any, or the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_done or len(self._pieces) > index)
            return self._pieces[index:]

    def _end(self, finished: Finished | None, error: NinferError | None) -> None:
        with self._changed:
            self._finished, self._error, self._is_done = finished, self._error or error, True
            self._changed.notify_all()
        self._news.set()
        if self._reservation is not None:
            self._reservation.release()
        if self._on_end is not None:
            self._on_end()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error
        if self._finished is None:
            raise EngineError("the request ended without an outcome")
