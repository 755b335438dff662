"""The way of one request's events from the engine thread to its coroutine.

The engine never waits for a reader: while the reader is busy, new output joins what already waits, so
memory is bounded by the request's own output and a slow reader gets fewer, larger events.
"""

import asyncio
import threading
from collections import deque
from dataclasses import dataclass, field

from ninfer_jax.server.doorbell import Doorbell
from ninfer_jax.text.deltas import merge
from ninfer_jax.types import Delta, Event, Failed, Finished, Output, PrefillProgress, Wake


@dataclass(slots=True)
class _Outputs:
    """Output events that wait together."""

    token_ids: list[int] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    completion_tokens: int = 0
    at: float = 0.0

    def add(self, event: Output) -> None:
        self.token_ids.extend(event.token_ids)
        self.deltas.extend(event.deltas)
        self.completion_tokens, self.at = event.completion_tokens, event.at

    def event(self) -> Output:
        return Output(tuple(self.token_ids), merge(self.deltas), self.completion_tokens, self.at)


class EventChannel:
    """One producer thread, one consumer coroutine. The first progress and the first output event are
    never merged with later ones, so their times stay true."""

    def __init__(self, doorbell: Doorbell) -> None:
        """``doorbell`` is that of the consumer's loop."""
        self._doorbell = doorbell
        self._ready = asyncio.Event()
        self._lock = threading.Lock()
        self._waiting: deque[Event | _Outputs] = deque()
        self._awake = False
        self._closed = False
        self._first_progress: PrefillProgress | None = None
        self._had_output = False

    def put(self, event: Event) -> Wake | None:
        """Hand over an event, from any thread. Nothing is taken after a terminal event. The reader wakes
        when the caller calls what this returns; None when it has nothing to sleep through."""
        with self._lock:
            if self._closed:
                return None
            self._closed = isinstance(event, Finished | Failed)
            self._store(event)
            if self._awake:
                return None
            self._awake = True
        self._doorbell.note(self._ready)
        return self._doorbell.ring

    def _store(self, event: Event) -> None:
        last = self._waiting[-1] if self._waiting else None
        if isinstance(event, Output):
            if not self._had_output:
                self._had_output = True
                self._waiting.append(event)
                return
            if not isinstance(last, _Outputs):
                last = _Outputs()
                self._waiting.append(last)
            last.add(event)
        elif isinstance(event, PrefillProgress):
            self._first_progress = self._first_progress or event
            if isinstance(last, PrefillProgress) and last is not self._first_progress:
                self._waiting.pop()
            self._waiting.append(event)
        else:
            self._waiting.append(event)

    async def get(self, timeout: float | None = None) -> Event | None:
        """The next event, or None when ``timeout`` seconds pass first."""
        while True:
            with self._lock:
                if self._waiting:
                    item = self._waiting.popleft()
                    return item.event() if isinstance(item, _Outputs) else item
                self._ready.clear()
                self._awake = False
            try:
                async with asyncio.timeout(timeout):
                    await self._ready.wait()
            except TimeoutError:
                return None
