"""What has been decided and not been told yet: events wait here for the next unit to be on the device.

What decides the next unit comes first, then its submission, and the device computes while consumers and
the observer hear of the unit before. :meth:`Outbox.deliver` is due after every submission, before a wait,
and wherever no unit follows that could hide it: nothing stays here while the engine thread waits.
"""

import logging
from collections import deque

from ninfer_jax.engine.observer import EngineObserver
from ninfer_jax.engine.request import EngineRequest
from ninfer_jax.types import Event, Output, Wake

logger = logging.getLogger(__name__)


class Outbox:
    """Events of all requests in the order they were decided. Only the engine thread touches it; its bound
    is what one boundary and its unit can post."""

    def __init__(self, observer: EngineObserver) -> None:
        self._observer = observer
        self._events: deque[tuple[EngineRequest, Event]] = deque()

    def __len__(self) -> int:
        return len(self._events)

    def post(self, request: EngineRequest, event: Event) -> None:
        self._events.append((request, event))

    def deliver(self) -> None:
        """Hand everything over, then wake the consumers: each distinct wake-up is called once, however
        many events asked for it. A sink or a wake-up that raises stops nothing."""
        events = self._events
        wakes: dict[Wake, None] = {}
        while events:
            request, event = events.popleft()
            wake = request.deliver(event)
            if wake is not None:
                wakes[wake] = None
            if isinstance(event, Output) and event.token_ids:
                num = len(event.token_ids)
                self._observer.output(request.spec, num, event.completion_tokens, event.at)
        for wake in wakes:
            try:
                wake()
            except Exception:
                logger.exception("a consumer could not be woken")
