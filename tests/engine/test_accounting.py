"""Host phases: every moment counted once, in total, a class and a request."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.accounting import Detail, Exposure, HostClock, Phase, WorkClass
from tests.fakes import FakeExecutor, FakePending, FakeSession, Recorder, fake_engine, fake_request


class ManualClock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def test_phases_add_up_to_the_time_that_passed() -> None:
    now = ManualClock()
    clock = HostClock(now)
    for phase, duration in ((Phase.PROGRAM_SUBMIT, 3), (Phase.DEVICE_WAIT, 50), (Phase.PROGRAM_POST, 7)):
        now.now += 10
        clock.switch(phase)
        now.now += duration
    assert clock.stop(WorkClass.DECODE) == [10, 13, 7, 0, 0, 60]
    now.now += 1000
    clock.resume()
    now.now += 5
    clock.switch(Phase.ENGINE_BOUNDARY)
    clock.note(Detail.ADMISSION, since=now.now - 2)
    clock.stop(WorkClass.CONTROL)
    totals = clock.totals()
    assert totals.work == ((10, 13, 7, 0, 0, 60), (0,) * 6, (0, 0, 5, 0, 0, 0))
    rendered = totals.render()
    assert rendered["elapsed_seconds"]["total"] == pytest.approx(35e-9)
    assert rendered["device_wait_seconds"] == pytest.approx(60e-9)
    assert rendered["detail_subset_seconds"]["admission"] == pytest.approx(2e-9)


def test_exposure_splits_host_and_device() -> None:
    exposure = Exposure()
    exposure.add([1, 2, 3, 4, 5, 100], WorkClass.PREFILL)
    exposure.add([10, 0, 0, 0, 0, 7], WorkClass.DECODE)
    timing = exposure.timing(queue_wait=1.5)
    host = timing["host_exposed_seconds"]
    assert timing["queue_wait_seconds"] == 1.5
    assert host["total"] == sum(value for name, value in host.items() if name != "total")
    assert host["total"] == pytest.approx(25e-9)
    assert timing["device_wait_exposed_seconds"] == pytest.approx(107e-9)
    assert timing["decode"]["rounds"] == 1
    assert timing["decode"]["host_exposed_seconds"] == pytest.approx(10e-9)
    assert timing["units"] == {"prefill": 1, "control": 0}


UNIT_NANOSECONDS = 2_000_000


class SlowExecutor(FakeExecutor):
    """A device that takes 2 ms a unit, by the clock it is given."""

    def __init__(self, now: ManualClock) -> None:
        super().__init__(2, 16)
        self._clock = now
        self.during_wait = self._work

    def _work(self) -> None:
        self._clock.now += UNIT_NANOSECONDS


class TickingClock(ManualClock):
    """Each reading takes a microsecond, so that no phase is empty."""

    def __call__(self) -> int:
        self.now += 1000
        return self.now


class QuickExecutor(FakeExecutor):
    """A device without checks, so that the host is what is measured."""

    def __init__(self) -> None:
        super().__init__(8, 64)

    def decode(self, lanes: Sequence[int], token_ids: Sequence[int], frontiers: Sequence[int]) -> FakePending:
        return FakePending([1] * len(lanes))


def test_the_phases_of_a_busy_engine_sum_to_the_time_that_passed() -> None:
    config = EngineConfig(max_context=512, kv_capacity=1024, max_concurrency=2, prefill_chunk=64)
    now = TickingClock()
    executor = SlowExecutor(now)
    engine = fake_engine(config, start=False, executor=executor)
    engine.scheduler.services.clock._now = now
    recorders = [Recorder(), Recorder()]
    for first, recorder in enumerate(recorders):
        session = FakeSession(forces={3: (1, 2)})
        engine.reserve().submit(fake_request(range(first, 100 + first), 60, session=session), recorder)
    engine.scheduler.services.clock.resume()
    started = now.now
    while not all(recorder.terminal for recorder in recorders):
        engine.thread.step()
    elapsed = (now.now - started) * 1e-9
    work = engine.stats()["host_work"]
    booked = work["elapsed_seconds"]["total"] + work["device_wait_seconds"]
    assert booked == pytest.approx(elapsed, abs=0.0000015)  # all but a reading after the last boundary
    classes = work["work_class_seconds"].values()
    assert sum(c["host"] + c["device_wait"] for c in classes) == pytest.approx(booked)
    waited = len(executor.units) * UNIT_NANOSECONDS * 1e-9
    assert waited < work["device_wait_seconds"] < 1.01 * waited
    counters = engine.stats()["counters"]
    for recorder in recorders:
        timing = recorder.finished.counters["engine_timing"]
        assert timing["units"] == {"prefill": 2, "control": 1}
        assert timing["decode"]["rounds"] <= counters["decode_rounds"]
        assert timing["device_wait_exposed_seconds"] <= work["device_wait_seconds"]
    engine.shutdown()


def test_the_stopwatch_is_wall_time() -> None:
    engine = fake_engine(EngineConfig(max_context=64, kv_capacity=64), start=False)
    recorder = Recorder()
    before = time.perf_counter()
    engine.scheduler.services.clock.resume()
    engine.reserve().submit(fake_request([1], 40), recorder)
    while not recorder.terminal:
        engine.thread.step()
    elapsed = time.perf_counter() - before
    work = engine.stats()["host_work"]
    assert 0 < work["elapsed_seconds"]["total"] + work["device_wait_seconds"] <= elapsed
    assert 0 < recorder.finished.timings.total <= elapsed
    engine.shutdown()


def test_idle_time_is_not_host_time() -> None:
    """The engine looks at its cache when it goes to sleep; an hour passes then."""
    now = ManualClock()
    engine = fake_engine(EngineConfig(max_context=64, kv_capacity=64), start=False)
    check = engine.scheduler.services.cache.check
    is_asleep = threading.Event()

    def fall_asleep() -> None:
        check()
        now.now += 3600 * 10**9
        is_asleep.set()

    engine.scheduler.services.clock._now = now
    engine.scheduler.services.cache.check = fall_asleep  # type: ignore[method-assign]
    engine.start()
    for _ in range(2):
        assert is_asleep.wait(60)
        is_asleep.clear()
        recorder = Recorder()
        engine.reserve().submit(fake_request([1], 2), recorder)
        recorder.wait()
    engine.shutdown()
    work = engine.stats()["host_work"]
    assert work["elapsed_seconds"]["total"] + work["device_wait_seconds"] == 0


def test_the_host_does_little_in_a_round_of_eight() -> None:
    """Calls of functions, Python's and C's, in a B = 8 decode round, sessions without text work: what
    its time is made of, on any machine. ``ninfer-jax bench --host`` measures the time."""
    config = EngineConfig(max_context=512, kv_capacity=4096, max_concurrency=8, prefill_chunk=64)
    engine = fake_engine(config, start=False, executor=QuickExecutor())
    for row in range(8):
        engine.reserve().submit(fake_request([row] * 20, 400), Recorder())
    while engine.stats()["gauges"]["decode_ready"] < 8:
        engine.thread.step()
    calls: Counter[str] = Counter()
    sys.setprofile(lambda frame, event, argument: calls.update((event,)))
    try:
        for _ in range(200):
            engine.thread.step()
    finally:
        sys.setprofile(None)
    assert engine.stats()["counters"]["decode_rounds"] >= 200
    assert 0 < calls["call"] + calls["c_call"] < 200 * 640
    engine.shutdown()
