"""The sampler members of a request, and how they meet flags and the model's defaults."""

from dataclasses import dataclass, replace
from typing import TypeVar

from ninfer_jax.server.fields import JsonObject, invalid, optional_integer, optional_number
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.types import SamplingParams

_SEED_LOW, _SEED_HIGH = -(2**63), 2**63 - 1
MAX_STOP_STRINGS = 4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SamplingFields:
    """What a request said; None is "nothing"."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None


def parse_sampling(
    body: JsonObject, options: ServeOptions, *, max_temperature: float = 2.0
) -> SamplingFields:
    """The OpenAI spelling with the ``top_k`` and ``min_p`` extensions."""
    return SamplingFields(
        temperature=optional_number(body, "temperature", 0, max_temperature),
        top_k=optional_integer(body, "top_k", 0, options.top_k_cap),
        top_p=optional_number(body, "top_p", 0, 1),
        min_p=optional_number(body, "min_p", 0, 1),
        presence_penalty=optional_number(body, "presence_penalty", -2, 2),
        frequency_penalty=optional_number(body, "frequency_penalty", -2, 2),
        seed=optional_integer(body, "seed", _SEED_LOW, _SEED_HIGH),
    )


def resolve_sampling(
    asked: SamplingFields, defaults: SamplingParams, options: ServeOptions, fresh_seed: int
) -> SamplingParams:
    """Request over flags over the model's defaults; ``--greedy`` over all of them."""
    seed = _first(asked.seed, options.seed, fresh_seed)
    resolved = SamplingParams(
        temperature=_first(asked.temperature, options.temperature, defaults.temperature),
        top_k=min(_first(asked.top_k, options.top_k, defaults.top_k), options.top_k_cap),
        top_p=_first(asked.top_p, options.top_p, defaults.top_p),
        min_p=_first(asked.min_p, options.min_p, defaults.min_p),
        presence_penalty=_first(asked.presence_penalty, options.presence_penalty, defaults.presence_penalty),
        frequency_penalty=_first(
            asked.frequency_penalty, options.frequency_penalty, defaults.frequency_penalty
        ),
        seed=seed & (2**64 - 1),
    )
    return replace(resolved, temperature=0.0) if options.greedy else resolved


def _first(asked: T | None, flag: T | None, default: T) -> T:
    if asked is not None:
        return asked
    return default if flag is None else flag


def parse_stop(body: JsonObject, name: str = "stop") -> tuple[str, ...]:
    """Up to four non-empty strings; a single string, an empty array and null are fine too."""
    value = body.get(name)
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise invalid(name, "must be a string or an array of strings")
    if len(stops) > MAX_STOP_STRINGS:
        raise invalid(name, f"takes at most {MAX_STOP_STRINGS} strings, not {len(stops)}")
    if not all(stops):
        raise invalid(name, "must not contain an empty string")
    return tuple(stops)
