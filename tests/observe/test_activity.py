"""A start that says nothing of itself is told about all the same."""

import io
import threading

import pytest

from ninfer_jax.observe.activity import Activity
from ninfer_jax.observe.console import CLEAR_LINE, configure


class Written(io.StringIO):
    """Tells when ``text`` has been written."""

    def __init__(self, text: str, *, is_terminal: bool = False) -> None:
        super().__init__()
        self._text = text
        self._is_terminal = is_terminal
        self.has_come = threading.Event()

    def isatty(self):
        return self._is_terminal

    def write(self, text):
        written = super().write(text)
        if self._text in self.getvalue():
            self.has_come.set()
        return written


def describe(done, total):
    return f"compiling: {done} of {total}" if total else "tracing"


@pytest.fixture
def activity():
    return Activity(describe, tick_seconds=0.01, record_seconds=0.02)


def test_a_log_hears_of_it_without_and_with_progress(activity):
    before = Written("INFO tracing, ")
    configure("info", before)
    with activity:
        assert before.has_come.wait(60)
        after = Written("INFO compiling: 2 of 9, ")
        configure("info", after)
        activity(2, 9)
        assert after.has_come.wait(60)
    assert not activity._thread.is_alive()
    assert CLEAR_LINE not in after.getvalue()


def test_a_terminal_has_one_line_that_is_gone_at_the_end(activity):
    stream = Written("compiling: 2 of 9, ", is_terminal=True)
    configure("info", stream)
    with activity:
        activity(2, 9)
        assert stream.has_come.wait(60)
    assert stream.getvalue().endswith(CLEAR_LINE)
    assert "\n" not in stream.getvalue()


def test_it_ends_with_what_it_tells_of(activity):
    stream = Written("tracing", is_terminal=True)
    configure("info", stream)

    def fail():
        with activity:
            assert stream.has_come.wait(60)
            raise ValueError("no model")

    with pytest.raises(ValueError, match="no model"):
        fail()
    assert stream.getvalue().endswith(CLEAR_LINE)
