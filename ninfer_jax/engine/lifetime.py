"""The bounded number of requests that exist at once, from before preparation to the written response."""

import threading
from collections.abc import Callable

from ninfer_jax.engine.request import EngineRequest
from ninfer_jax.errors import EngineError, EngineUnavailableError, ServerOverloadedError
from ninfer_jax.types import EventSink, GenerationRequest

Submit = Callable[["EngineReservation", GenerationRequest, EventSink], EngineRequest]


class Lifetime:
    """Counts outstanding reservations; blocks nobody."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._outstanding = 0
        self._is_closed = False
        self._changed = threading.Condition()

    @property
    def outstanding(self) -> int:
        return self._outstanding

    def take(self) -> None:
        with self._changed:
            if self._is_closed:
                raise EngineUnavailableError("the engine accepts no new requests")
            if self._outstanding >= self.capacity:
                raise ServerOverloadedError(f"{self.capacity} requests run or wait already")
            self._outstanding += 1

    def give_back(self) -> None:
        with self._changed:
            assert self._outstanding > 0, "a reservation was given back twice"
            self._outstanding -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """From now on nothing is reserved; what is reserved stays so."""
        with self._changed:
            self._is_closed = True

    def wait_empty(self, timeout: float | None) -> bool:
        """Whether every reservation came back within ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._outstanding == 0, timeout)


class EngineReservation:
    """Implements ``Reservation``. It counts until it is released and its request has ended."""

    def __init__(self, lifetime: Lifetime, deadline: float, submit: Submit, wake: Callable[[], None]) -> None:
        lifetime.take()
        self._lifetime = lifetime
        self._deadline = deadline
        self._submit = submit
        self._lock = threading.Lock()
        self._wake = wake
        self._request: EngineRequest | None = None
        self._is_cancelled = False
        self._is_released = False
        self._is_running = False
        self._is_returned = False

    @property
    def deadline(self) -> float:
        return self._deadline

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        with self._lock:
            if self._is_released:
                raise EngineUnavailableError("the reservation was released before the request was submitted")
            if self._request is not None:
                raise EngineError("the reservation has a request already")
            self._request = self._submit(self, request, sink)
            self._is_running = True
            self._request.cancel_requested = self._is_cancelled

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            self._cancel_running()

    def release(self) -> None:
        with self._lock:
            self._is_released = True
            if self._request is not None:
                self._request.is_muted = True
            self._cancel_running()
        self._return_once()

    def _cancel_running(self) -> None:
        if self._is_running and self._request is not None:
            self._request.cancel_requested = True
            self._wake()

    def ended(self) -> None:
        """The engine has nothing more to do for the request."""
        with self._lock:
            self._is_running = False
        self._return_once()

    def _return_once(self) -> None:
        with self._lock:
            if self._is_returned or not self._is_released or self._is_running:
                return
            self._is_returned = True
        self._lifetime.give_back()
