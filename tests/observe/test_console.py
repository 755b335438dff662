"""The operational log's form: what a line looks like, and what never reaches the stream."""

import io
import logging
import re

import pytest

from ninfer_jax.observe import console as module
from ninfer_jax.observe.console import CLEAR_LINE, LEVELS, configure, printable, show_transient

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (TRACE|DEBUG|INFO|WARNING|ERROR|CRITICAL) .+")
logger = logging.getLogger("ninfer_jax.some.module")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_line_has_time_level_and_message():
    stream = io.StringIO()
    configure("trace", stream)
    for level in (module.TRACE, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logger.log(level, "serving %s", "tiny")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5
    assert all(LINE.fullmatch(line) for line in lines)
    assert lines[2].endswith(" INFO serving tiny")


@pytest.mark.parametrize(("level", "shown"), [("info", 2), ("warning", 1), ("off", 0)])
def test_the_level_decides_what_is_shown(level, shown):
    stream = io.StringIO()
    configure(level, stream)
    logger.debug("internal")
    logger.info("milestone")
    logger.critical("end")
    assert len(stream.getvalue().splitlines()) == shown
    assert level in LEVELS


def test_configuring_again_does_not_double_the_lines():
    first, second = io.StringIO(), io.StringIO()
    configure("info", first)
    configure("info", second)
    logger.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_a_terminal_keeps_one_transient_line_below_the_records():
    stream = Terminal()
    configure("info", stream)
    assert show_transient("compiling 1/9")
    logger.info("milestone")
    assert show_transient("compiling 2/9")
    assert show_transient("")
    logger.info("ready")
    text = stream.getvalue()
    assert re.search(rf"{re.escape(CLEAR_LINE)}\S+ \S+ INFO milestone\ncompiling 1/9", text)
    assert text.count("compiling 2/9") == 1
    assert re.search(r"INFO ready\n$", text)


def test_redirected_output_has_no_control_sequences():
    stream = io.StringIO()
    configure("info", stream)
    assert not show_transient("compiling 1/9")
    logger.info("asked for %s", "/v1/\x1b[2J\n2026-01-01 fake line")
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 1
    assert "compiling" not in stream.getvalue()


def test_a_traceback_follows_on_lines_of_its_own():
    stream = io.StringIO()
    configure("info", stream)
    try:
        raise ValueError("odd")
    except ValueError:
        logger.exception("it broke")
    lines = stream.getvalue().splitlines()
    assert LINE.fullmatch(lines[0])
    assert lines[-1] == "ValueError: odd"


def test_printable_keeps_letters_of_any_script():
    assert printable("Grüße, 世界\t!") == "Grüße, 世界\\x09!"
