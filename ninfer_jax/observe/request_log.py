"""The structured request log: one JSON object a line, full precision, never text or secrets.

``docs/request_log.schema.json`` describes every event. The file is opened for appending before the
model loads, and flushed after each line, so that campaigns can share one file and a crash loses nothing.
"""

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


class RequestLog:
    """An append-only file of events. Not thread-safe: one thread writes."""

    def __init__(
        self, path: Path, *, model: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Raises ConfigError when ``path`` cannot be opened, or is the model or lies inside it."""
        if model is not None and _is_inside(path, model):
            raise ConfigError(f"{path} is part of the model", field="--request-log-jsonl")
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise ConfigError(f"cannot open {path}: {error.strerror}", field="--request-log-jsonl") from None
        self._clock = clock
        self._instance = secrets.token_hex(8)

    def write(self, event: str, at: float, members: Mapping[str, Any]) -> None:
        """Append one event that happened at ``at`` (unix seconds). Raises OSError when the disk refuses."""
        line: dict[str, Any] = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "event": event,
            "timestamp_unix_ms": int(at * 1000),
            "server_instance_id": self._instance,
            **members,
        }
        self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        self._file.close()


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
