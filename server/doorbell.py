"""How the engine thread wakes coroutines: one call into the event loop, however many streams have news."""

import asyncio
from collections import deque
from contextlib import suppress


class Doorbell:
    """One for all channels of a loop. Any thread may call ``note`` and ``ring``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._noted: deque[asyncio.Event] = deque()
        self._is_rung = False

    def note(self, ready: asyncio.Event) -> None:
        """To be set by the next ``ring``."""
        self._noted.append(ready)

    def ring(self) -> None:
        """Set everything that was noted, soon, on the loop; nothing to do where it is going to anyway."""
        if self._is_rung:
            return
        self._is_rung = True
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._is_rung = False  # first: whatever is noted from here on rings again
        while self._noted:
            self._noted.popleft().set()
