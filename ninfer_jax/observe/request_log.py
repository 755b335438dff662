"""The structured request log: one JSON object a line, full precision, never text or secrets.

``docs/request_log.schema.json`` describes every event. The file is opened for appending before the
model loads, and flushed after each line, so that campaigns can share one file and a crash loses nothing.
A full disk costs events, never requests.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from ninfer_jax.errors import ConfigError

SCHEMA = "ninfer_serve_request_log"
SCHEMA_VERSION = 20
SECRET_FLAGS = ("--api-key",)
REDACTED = "<redacted>"
WARNING_SECONDS = 60.0
"""While the disk refuses events, how often that is said."""
_NEWLINE = ord("\n")

logger = logging.getLogger(__name__)


class RequestLog:
    """An append-only file of events. Not thread-safe: one thread writes."""

    def __init__(
        self, path: Path, *, model: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises ConfigError when ``path`` cannot be opened, or is the model or lies inside it."""
        if model is not None and _is_inside(path, model):
            raise ConfigError(f"{path} is part of the model", field="--request-log-jsonl")
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise ConfigError(f"cannot open {path}: {error.strerror}", field="--request-log-jsonl") from None
        self._path = path
        self._clock = clock
        self._instance = secrets.token_hex(8)
        self._is_torn = False  # the file may end inside a line
        self._num_lost = 0
        self._warned_at: float | None = None

    def write(self, event: str, at: float, members: Mapping[str, Any]) -> None:
        """Append one event that happened at ``at`` (unix seconds). One that the disk refuses is lost: a
        warning counts them, and a line cut short is ended before the next one begins."""
        line: dict[str, Any] = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "event": event,
            "timestamp_unix_ms": int(at * 1000),
            "server_instance_id": self._instance,
            **members,
        }
        try:
            self._append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        except OSError as error:
            self._lose(error)
        else:
            self._recover()

    def close(self) -> None:
        self._file.close()

    def _append(self, line: bytes) -> None:
        rest = memoryview(b"\n" + line if self._is_torn else line)
        while rest:  # a disk that fills up takes a part of a line before it refuses
            written = self._file.write(rest)
            if written:
                self._is_torn = rest[written - 1] != _NEWLINE
            rest = rest[written:]

    def _lose(self, error: OSError) -> None:
        self._num_lost += 1
        now = self._clock()
        if self._warned_at is None or now - self._warned_at >= WARNING_SECONDS:
            self._warned_at = now
            logger.warning(
                "cannot write the request log %s: %s; %d events lost so far",
                self._path,
                error.strerror,
                self._num_lost,
            )

    def _recover(self) -> None:
        if self._num_lost:
            logger.info("the request log %s is written again; %d events lost", self._path, self._num_lost)
        self._num_lost, self._warned_at = 0, None


def redact(argv: Sequence[str]) -> list[str]:
    """The command line without the values of secret flags, in both spellings of a flag."""
    shown: list[str] = []
    is_secret = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        if is_secret:
            shown.append(REDACTED)
        elif equals and name in SECRET_FLAGS:
            shown.append(f"{name}={REDACTED}")
        else:
            shown.append(argument)
        is_secret = not is_secret and argument in SECRET_FLAGS
    return shown


def _is_inside(path: Path, model: Path) -> bool:
    """Whether ``path`` is the file ``model`` or lies in the folder, links and hard links resolved."""
    real, artifact = path.resolve(), model.resolve()
    if real == artifact or artifact in real.parents:
        return True
    return real.exists() and artifact.is_file() and os.path.samefile(real, artifact)
