"""An observer that fails: heard of, counted, kept."""

from typing import Any

import pytest

from ninfer_jax.engine.observer import REPORT_SECONDS, GuardedObserver, NullObserver


def test_a_failing_observer_is_logged_at_a_limited_rate(caplog: pytest.LogCaptureFixture) -> None:
    class Observer(NullObserver):
        def round(self, *arguments: Any) -> None:
            raise RuntimeError("observer")

    clock = [0.0]
    guarded = GuardedObserver(Observer(), lambda: clock[0])
    for _ in range(3):
        for _ in range(100):
            guarded.round(1, 1, 0.0)
        clock[0] += REPORT_SECONDS
    messages = [record.message for record in caplog.records]
    assert messages == [
        f"the engine observer failed, {count} calls since the start" for count in (1, 101, 201)
    ]
    assert guarded.failures == 300
