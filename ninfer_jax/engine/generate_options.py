"""What a Python caller may ask of one generation, checked and resolved against the model's defaults."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from ninfer_jax.errors import InvalidRequestError
from ninfer_jax.types import SamplingParams

UNLIMITED = 1 << 30
"""Output tokens when the caller sets no limit; the engine stops at the context's end."""

RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}


class Options(TypedDict, total=False):
    """Keyword arguments of every generating method; what is left out is the model's own default.

    ``max_tokens`` counts output tokens (no limit but the context). ``top_k`` 0 means the engine's cap.
    ``seed`` makes a sampled answer repeatable. ``stop`` is a string or several. ``enable_thinking``
    works on chats of models that have the switch.
    """

    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    enable_thinking: bool | None


@dataclass(frozen=True, slots=True)
class Resolved:
    sampling: SamplingParams
    max_tokens: int
    stop: tuple[str, ...]


def resolve(options: Options, defaults: SamplingParams, top_k_cap: int) -> Resolved:
    """Raises InvalidRequestError naming the option, for wrong values and for unknown names."""
    for name in options:
        if name not in Options.__annotations__:
            raise InvalidRequestError(f"unknown option {name!r}", field=name)
    asked = {name: value for name, value in options.items() if value is not None}
    for name, (low, high) in RANGES.items():
        value = asked.get(name, low)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise InvalidRequestError(
                f"{name} must be a number from {low} to {high}, not {value!r}", field=name
            )
    top_k = _integer(asked, "top_k", 0, top_k_cap, default=min(defaults.top_k, top_k_cap))
    seed = _integer(asked, "seed", -(2**63), 2**64 - 1, default=secrets.randbits(64))
    floats = {name: float(asked[name]) for name in RANGES if name in asked}  # type: ignore[arg-type]
    return Resolved(
        sampling=replace(defaults, top_k=top_k, seed=seed % 2**64, **floats),
        max_tokens=_integer(asked, "max_tokens", 0, UNLIMITED, default=UNLIMITED),
        stop=_stop(asked.get("stop", ())),
    )


def _integer(asked: dict[str, object], name: str, low: int, high: int, *, default: int) -> int:
    value = asked.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequestError(
            f"{name} must be an integer from {low} to {high}, not {value!r}", field=name
        )
    return value


def _stop(value: object) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else value
    if not isinstance(stops, Sequence) or not all(isinstance(stop, str) and stop for stop in stops):
        raise InvalidRequestError("stop must be non-empty strings", field="stop")
    return tuple(stops)
