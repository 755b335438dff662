"""Host phases: every moment counted once, in total, a class and a request."""

import statistics
import time
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


class SlowExecutor(FakeExecutor):
    """A device that takes 2 ms a unit."""

    def __init__(self) -> None:
        super().__init__(2, 16)
        self.during_wait = lambda: time.sleep(0.002)


class QuickExecutor(FakeExecutor):
    """A device without checks, so that the host is what is measured."""

    def __init__(self) -> None:
        super().__init__(8, 64)

    def decode(self, lanes: Sequence[int], token_ids: Sequence[int], frontiers: Sequence[int]) -> FakePending:
        return FakePending([1] * len(lanes))


def test_the_phases_of_a_busy_engine_sum_to_wall_time() -> None:
    config = EngineConfig(max_context=512, kv_capacity=1024, max_concurrency=2, prefill_chunk=64)
    engine = fake_engine(config, start=False, executor=SlowExecutor())
    recorders = [Recorder(), Recorder()]
    for first, recorder in enumerate(recorders):
        session = FakeSession(forces={3: (1, 2)})
        engine.reserve().submit(fake_request(range(first, 100 + first), 60, session=session), recorder)
    engine.scheduler.services.clock.resume()
    started = time.perf_counter()
    while not all(recorder.terminal for recorder in recorders):
        engine.thread.step()
    elapsed = time.perf_counter() - started
    work = engine.stats()["host_work"]
    booked = work["elapsed_seconds"]["total"] + work["device_wait_seconds"]
    assert booked == pytest.approx(elapsed, rel=0.05)
    classes = work["work_class_seconds"].values()
    assert sum(c["host"] + c["device_wait"] for c in classes) == pytest.approx(booked)
    assert work["device_wait_seconds"] >= 60 * 0.002
    counters = engine.stats()["counters"]
    for recorder in recorders:
        timing = recorder.finished.counters["engine_timing"]
        assert timing["units"] == {"prefill": 2, "control": 1}
        assert timing["decode"]["rounds"] <= counters["decode_rounds"]
        assert timing["device_wait_exposed_seconds"] <= work["device_wait_seconds"]
        assert recorder.finished.timings.total <= elapsed * 1.05
    engine.shutdown()


def test_idle_time_is_not_host_time() -> None:
    engine = fake_engine(EngineConfig(max_context=64, kv_capacity=64))
    recorder = Recorder()
    engine.reserve().submit(fake_request([1], 2), recorder)
    recorder.wait()
    time.sleep(0.3)
    recorder = Recorder()
    engine.reserve().submit(fake_request([1], 2), recorder)
    recorder.wait()
    work = engine.stats()["host_work"]
    assert work["elapsed_seconds"]["total"] + work["device_wait_seconds"] < 0.25
    engine.shutdown()


def test_the_host_time_of_a_round_of_eight_is_small() -> None:
    """All host phases of a B = 8 decode round, sessions without text work."""
    config = EngineConfig(max_context=512, kv_capacity=4096, max_concurrency=8, prefill_chunk=64)
    engine = fake_engine(config, start=False, executor=QuickExecutor())
    for row in range(8):
        engine.reserve().submit(fake_request([row] * 20, 400), Recorder())
    while engine.stats()["gauges"]["decode_ready"] < 8:
        engine.thread.step()
    rounds = []
    for _ in range(200):
        before = engine.stats()["host_work"]["elapsed_seconds"]["total"]
        engine.thread.step()
        rounds.append(engine.stats()["host_work"]["elapsed_seconds"]["total"] - before)
    assert engine.stats()["counters"]["decode_rounds"] >= 200
    assert statistics.median(rounds) < 0.0015
    engine.shutdown()
