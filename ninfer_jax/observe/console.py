"""The operational log: ``YYYY-MM-DD HH:MM:SS.mmm LEVEL message`` on stderr, for people.

Everything in the package logs through the standard ``logging`` module; :func:`configure` decides what is
shown. A terminal may show one transient line while the model loads; redirected output never holds
a control sequence.
"""

import logging
import re
import sys
from typing import IO

ROOT = "ninfer_jax"
TRACE = 5
OFF = logging.CRITICAL + 10
LEVELS = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "off": OFF,
}
CLEAR_LINE = "\r\x1b[2K"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """``text`` on one line, its control characters spelled out: what a client sends may be logged (a
    path), but must not steer the terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class ConsoleFormatter(logging.Formatter):
    """One line a record; a traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return f"{super().formatTime(record, datefmt)}.{int(record.msecs):03d}"

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)


class Console(logging.Handler):
    """Writes records to a stream and keeps at most one transient line below them, on a terminal."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__()
        self._stream = stream
        self.is_terminal = stream.isatty()
        self._transient = ""
        self.setFormatter(ConsoleFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            clear = CLEAR_LINE if self._transient else ""
            self._stream.write(f"{clear}{line}\n{self._transient}")
            self._stream.flush()
        except Exception:
            self.handleError(record)

    def show(self, text: str) -> None:
        """Replace the transient line, on a terminal; ``""`` removes it. From any thread."""
        if not self.is_terminal:
            return
        self.acquire()
        try:
            if text or self._transient:
                self._transient = printable(text)
                self._stream.write(CLEAR_LINE + self._transient)
                self._stream.flush()
        finally:
            self.release()


def configure(level: str, stream: IO[str] | None = None) -> Console:
    """Show this package's records from ``level`` (a key of ``LEVELS``) on ``stream``, by default stderr."""
    logging.addLevelName(TRACE, "TRACE")
    console = Console(sys.stderr if stream is None else stream)
    root = logging.getLogger(ROOT)
    for old in [handler for handler in root.handlers if isinstance(handler, Console)]:
        root.removeHandler(old)
    root.addHandler(console)
    root.setLevel(LEVELS[level])
    root.propagate = False
    return console


def show_transient(text: str) -> bool:
    """Put ``text`` on the terminal's transient line (``""`` removes it); False where there is none."""
    consoles = [handler for handler in logging.getLogger(ROOT).handlers if isinstance(handler, Console)]
    for console in consoles:
        console.show(text)
    return any(console.is_terminal for console in consoles)
