"""One call into the event loop wakes every stream that has news."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ninfer_jax.config import EngineConfig
from ninfer_jax.server.channel import EventChannel
from ninfer_jax.server.doorbell import Doorbell
from ninfer_jax.types import Failed, Finished
from tests.fakes import expected_output, fake_engine, fake_request


class CountingLoop:
    """Holds what it was asked to call until ``run``."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.num_calls = 0

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self.calls.append(callback)
        self.num_calls += 1

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def test_any_number_of_channels_is_one_call() -> None:
    loop: Any = CountingLoop()
    doorbell = Doorbell(loop)
    events = [asyncio.Event() for _ in range(8)]
    for event in events:
        doorbell.note(event)
        doorbell.ring()
    assert loop.num_calls == 1
    assert not any(event.is_set() for event in events)
    loop.run()
    assert all(event.is_set() for event in events)
    late = asyncio.Event()
    doorbell.note(late)
    doorbell.ring()
    loop.run()
    assert late.is_set()
    assert loop.num_calls == 2


def test_a_bell_between_the_loops_last_look_and_its_sleep_is_heard() -> None:
    loop: Any = CountingLoop()
    doorbell, early, late = Doorbell(loop), asyncio.Event(), asyncio.Event()
    is_told = False

    class Noted(deque[asyncio.Event]):
        """Another thread notes and rings just when the loop has seen that there is nothing more."""

        def __bool__(self) -> bool:
            nonlocal is_told
            is_filled = len(self) > 0
            if not is_filled and not is_told:
                is_told = True
                doorbell.note(late)
                doorbell.ring()
            return is_filled

    doorbell._noted = Noted()
    doorbell.note(early)
    doorbell.ring()
    loop.run()
    assert early.is_set()
    loop.run()
    assert late.is_set()


def test_a_closed_loop_is_not_an_error() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    doorbell = Doorbell(loop)
    doorbell.note(asyncio.Event())
    doorbell.ring()
    doorbell.ring()


async def test_no_bell_is_missed_between_threads() -> None:
    """Eight threads note and ring, the loop answers: every event is set in the end."""
    doorbell = Doorbell(asyncio.get_running_loop())
    events = [[asyncio.Event() for _ in range(500)] for _ in range(8)]

    def note_and_ring(own: list[asyncio.Event]) -> None:
        for event in own:
            doorbell.note(event)
            doorbell.ring()

    threads = [threading.Thread(target=note_and_ring, args=(own,)) for own in events]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(60):
        for own in events:
            for event in own:
                await event.wait()
    for thread in threads:
        thread.join()


async def test_a_round_of_eight_streams_makes_one_call() -> None:
    loop: Any = CountingLoop()
    doorbell = Doorbell(loop)
    config = EngineConfig(max_context=256, kv_capacity=2048, max_concurrency=8)
    engine = fake_engine(config, start=False)
    channels = [EventChannel(doorbell) for _ in range(8)]
    for first, channel in enumerate(channels):
        engine.reserve().submit(fake_request([first], 30), channel.put)
    tokens: list[list[int]] = [[] for _ in channels]
    terminals = [None] * 8
    for _ in range(200):
        before = loop.num_calls
        engine.thread.step()
        rounds = engine.stats()["counters"]["decode_rounds"]
        assert loop.num_calls - before <= 1 + (rounds == 0)  # a prefill tells of its start and its end
        loop.run()
        for index, channel in enumerate(channels):
            while channel._waiting:
                event = await channel.get(60)
                tokens[index] += getattr(event, "token_ids", ())
                terminals[index] = event if isinstance(event, Finished | Failed) else terminals[index]
    assert tokens == [expected_output([first], 30) for first in range(8)]
    assert all(isinstance(terminal, Finished) for terminal in terminals)
    engine.shutdown()
