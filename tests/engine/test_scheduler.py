"""The boundary's rules on runs small enough to follow by hand."""

from typing import Any

import pytest

from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.types import FinishReason
from tests.fakes import FakeSession, Recorder, expected_output, fake_engine, fake_request


def stepped_engine(**options: Any) -> HostEngine:
    defaults: dict[str, Any] = {
        "max_context": 640,
        "kv_capacity": 640,
        "max_concurrency": 4,
        "prefill_chunk": 64,
    }
    return fake_engine(EngineConfig(**(defaults | options)), start=False)


class Client:
    def __init__(self, engine: HostEngine, prompt: Any, output: int, **options: Any) -> None:
        self.prompt = list(prompt)
        self.recorder = Recorder()
        self.reservation = engine.reserve()
        self.reservation.submit(fake_request(prompt, output, **options), self.recorder)

    @property
    def is_admitted(self) -> bool:
        return bool(self.recorder.admitted)


def step_until(engine: HostEngine, done: Any) -> None:
    for _ in range(2000):
        if done():
            return
        engine.thread.step()
        assert engine.thread.failure is None
    raise AssertionError("it never happens")


def units(engine: HostEngine) -> list[tuple[str, tuple[int, ...]]]:
    return engine.scheduler.services.executor.units  # type: ignore[attr-defined,no-any-return]


def test_borrowers_pass_a_blocked_head_in_order_and_only_while_it_could_still_start() -> None:
    """Ten pages: one request holds 5, the head wants 8, so 2 are there to borrow for one page each."""
    engine = stepped_engine()
    incumbent = Client(engine, range(10), 300)
    step_until(engine, lambda: incumbent.is_admitted)
    head = Client(engine, range(20, 30), 500)
    borrowers = [Client(engine, range(first, first + 10), 50) for first in (40, 60, 80)]
    step_until(engine, lambda: borrowers[0].is_admitted)
    assert not borrowers[1].is_admitted
    step_until(engine, lambda: borrowers[1].is_admitted)
    for _ in range(30):
        engine.thread.step()
    assert not borrowers[2].is_admitted, "8 + 1 + 1 + 1 pages would not fit"
    assert not head.is_admitted
    step_until(engine, lambda: borrowers[0].recorder.terminal is not None)
    step_until(engine, lambda: borrowers[2].is_admitted)
    assert not head.is_admitted
    late = Client(engine, range(100, 110), 200)
    step_until(engine, lambda: incumbent.recorder.terminal is not None)
    step_until(engine, lambda: head.is_admitted)
    assert not late.is_admitted
    step_until(engine, lambda: late.recorder.terminal is not None)
    for client, output in ((incumbent, 300), (head, 500), (late, 200)):
        assert client.recorder.tokens == expected_output(client.prompt, output)


def test_a_head_that_gives_up_unblocks_the_queue() -> None:
    engine = stepped_engine()
    incumbent = Client(engine, range(10), 300)
    step_until(engine, lambda: incumbent.is_admitted)
    head = Client(engine, range(20, 30), 500)
    behind = Client(engine, range(40, 50), 200)
    for _ in range(5):
        engine.thread.step()
    assert not behind.is_admitted, "4 pages beside the head's 8 would not fit"
    head.reservation.cancel()
    step_until(engine, lambda: behind.is_admitted)
    assert head.recorder.finished.reason is FinishReason.CANCELLED
    assert incumbent.recorder.terminal is None


def test_decode_and_prefill_alternate_and_a_round_takes_every_ready_row() -> None:
    engine = stepped_engine(kv_capacity=2560)
    first, second = Client(engine, [1] * 10, 200), Client(engine, [2] * 10, 200)
    step_until(engine, lambda: engine.stats()["gauges"]["decode_ready"] == 2)
    start = len(units(engine))
    Client(engine, range(300), 5)
    for _ in range(9):
        engine.thread.step()
    kinds = [kind for kind, _ in units(engine)[start:]]
    assert kinds == ["prefill", "decode"] * 4 + ["prefill"] or kinds == ["decode", "prefill"] * 4 + ["decode"]
    assert all(lanes == (0, 1) for kind, lanes in units(engine)[start:] if kind == "decode")
    first.reservation.cancel()
    for _ in range(3):
        engine.thread.step()
    assert units(engine)[-1][1] != (0, 1)
    assert second.recorder.terminal is None


def test_the_next_turn_reuses_prompt_and_output() -> None:
    """The last output token is never in the cache: 100 + 93 - 1 tokens fill three pages."""
    engine = stepped_engine()
    first = Client(engine, range(100), 93)
    step_until(engine, lambda: first.recorder.terminal is not None)
    turn = [*range(100), *first.recorder.tokens]
    second = Client(engine, [*turn, 1, 2, 3], 10)
    step_until(engine, lambda: second.recorder.terminal is not None)
    assert second.recorder.finished.usage.cached_tokens == 192
    assert second.recorder.tokens == expected_output(second.prompt, 10)
    assert second.recorder.finished.counters["computed_prefill_tokens"] == 4


def test_a_running_request_shares_what_it_has_computed() -> None:
    engine = stepped_engine()
    first = Client(engine, range(130), 100)
    step_until(engine, lambda: bool(first.recorder.tokens))
    second = Client(engine, range(130), 20)
    step_until(engine, lambda: second.is_admitted)
    assert second.recorder.admitted[0].cached_tokens == 128
    assert engine.stats()["gauges"]["shared_active_references"] == 2
    step_until(engine, lambda: second.recorder.terminal is not None)
    assert second.recorder.tokens == expected_output(range(130), 20)


@pytest.mark.parametrize("num_forced", [1, 2, 5, 64, 65, 130])
def test_forced_tokens_of_any_number(num_forced: int) -> None:
    """More than a prefill chunk of them goes in several units."""
    engine = stepped_engine()
    forced = tuple(range(num_forced))
    client = Client(engine, [5, 6, 7], 300, session=FakeSession(forces={2: forced}))
    step_until(engine, lambda: client.recorder.terminal is not None)
    free = expected_output([5, 6, 7], 2)
    history = [5, 6, 7, *free, *forced]
    rest = 300 - 2 - num_forced
    assert client.recorder.tokens == [*free, *forced, *expected_output(history, rest)]
    assert engine.stats()["counters"]["control_units"] == -(-num_forced // 64)
    assert engine.stats()["counters"]["committed_control_tokens"] == num_forced


def test_forced_tokens_end_at_the_output_limit() -> None:
    engine = stepped_engine()
    client = Client(engine, [5, 6, 7], 4, session=FakeSession(forces={2: (1, 2, 3, 4)}))
    step_until(engine, lambda: client.recorder.terminal is not None)
    assert client.recorder.tokens == [*expected_output([5, 6, 7], 2), 1, 2]
    assert client.recorder.finished.reason is FinishReason.OUTPUT_LIMIT
