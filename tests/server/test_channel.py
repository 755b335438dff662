"""Events cross to the event loop in order; what waits is merged and stays bounded."""

import asyncio
import threading

from ninfer_jax.errors import EngineError
from ninfer_jax.server.channel import EventChannel
from ninfer_jax.server.doorbell import Doorbell
from ninfer_jax.types import (
    Admitted,
    Failed,
    Output,
    PrefillProgress,
    TextDelta,
)


def output(number, *deltas):
    return Output((number,), deltas, number, float(number))


def put(channel, event):
    """As the engine does: the reader is woken when the event has been handed over."""
    wake = channel.put(event)
    if wake is not None:
        wake()


async def drain(channel):
    events = []
    while (event := await channel.get(0.01)) is not None:
        events.append(event)
    return events


async def test_a_fast_reader_sees_every_event():
    channel = EventChannel(Doorbell(asyncio.get_running_loop()))
    for event in (Admitted(3, 0, 0.0), PrefillProgress(0, 3, 0.0), output(1), output(2)):
        put(channel, event)
        assert await channel.get(1) == event


async def test_outputs_that_wait_join_except_the_first():
    channel = EventChannel(Doorbell(asyncio.get_running_loop()))
    for number in range(1, 1001):
        put(channel, output(number, TextDelta("content", str(number))))
    first, rest = await drain(channel)
    assert first.completion_tokens == 1
    assert rest.token_ids == tuple(range(2, 1001))
    assert rest.deltas == (TextDelta("content", "".join(map(str, range(2, 1001)))),)
    assert (rest.completion_tokens, rest.at) == (1000, 1000.0)


async def test_progress_keeps_the_first_and_the_last():
    channel = EventChannel(Doorbell(asyncio.get_running_loop()))
    for processed in range(0, 100, 10):
        put(channel, PrefillProgress(processed, 90, 0.0))
    assert [event.processed for event in await drain(channel)] == [0, 90]


async def test_nothing_follows_a_terminal_event():
    channel = EventChannel(Doorbell(asyncio.get_running_loop()))
    failed = Failed(EngineError("x"))
    put(channel, failed)
    put(channel, output(1))
    assert await drain(channel) == [failed]


async def test_order_survives_another_thread():
    channel = EventChannel(Doorbell(asyncio.get_running_loop()))
    producer = threading.Thread(target=lambda: [put(channel, output(n)) for n in range(5000)])
    producer.start()
    seen = []
    while len(seen) < 5000:
        event = await channel.get(5)
        assert event is not None
        seen.extend(event.token_ids)
    producer.join()
    assert seen == list(range(5000))


async def test_a_reader_that_is_cancelled_loses_nothing():
    channel = EventChannel(Doorbell(asyncio.get_running_loop()))
    assert await channel.get(0.0) is None
    put(channel, output(1))
    assert await channel.get(0.5) == output(1)


async def test_only_a_sleeping_reader_asks_to_be_woken():
    doorbell = Doorbell(asyncio.get_running_loop())
    channel = EventChannel(doorbell)
    assert channel.put(output(1)) == doorbell.ring
    assert channel.put(output(2)) is None
    assert len(await drain(channel)) == 2
    assert channel.put(output(3)) == doorbell.ring
    assert EventChannel(doorbell).put(output(1)) == doorbell.ring, "the same for all of a loop"
