"""Captures of the JAX profiler, for TensorBoard's profile plugin or Perfetto."""

import time
from collections.abc import Callable
from pathlib import Path

import jax

from ninfer_jax.errors import ConfigError


def capture(folder: Path, work: Callable[[], object]) -> Path:
    """Trace the whole process while ``work`` runs; returns the folder of this capture inside ``folder``.

    Raises ConfigError when the folder cannot be written, or another trace is running.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = set(_captures(folder))
        jax.profiler.start_trace(str(folder))
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error.strerror}", field="--out") from None
    except RuntimeError as error:
        raise ConfigError(f"cannot start a trace: {error}") from None
    try:
        work()
    finally:
        jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
    return max(set(_captures(folder)) - before, default=folder)


def capture_for(folder: Path, seconds: float) -> Path:
    """Trace what the process does in the next ``seconds``."""
    return capture(folder, lambda: time.sleep(seconds))


def _captures(folder: Path) -> list[Path]:
    return list(folder.glob("plugins/profile/*"))
