"""A command line flag with an environment twin, and what turns its text into a value."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ENV_PREFIX = "NINFER_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


@dataclass(frozen=True, slots=True)
class Flag:
    """``parse`` turns text into the value, or raises ValueError with the reason."""

    name: str
    parse: Callable[[str], Any]
    help: str
    metavar: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        return ENV_PREFIX + self.field.upper()

    @property
    def is_switch(self) -> bool:
        return self.parse is switch

    def help_text(self, default: object) -> str:
        known = "" if default is None or default is False else f" (default: {default})"
        return f"{self.help}{known} [{self.variable}]".replace("%", "%%")


def integer(low: int, high: int | None = None) -> Callable[[str], int]:
    span = f"at least {low}" if high is None else f"from {low} to {high}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"must be an integer {span}, not {text!r}") from None
        if value < low or (high is not None and value > high):
            raise ValueError(f"must be an integer {span}, not {value}")
        return value

    return parse


def number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:  # also refuses NaN
            raise ValueError(f"must be a number from {low:g} to {high:g}, not {text!r}")
        return value

    return parse


def choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}, not {text!r}")
        return text

    return parse


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def switch(value: str) -> bool:
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ValueError(f"must be 1 or 0, not {value!r}")


def tokens_or_auto(value: str) -> int | str:
    if value == "auto":
        return value
    try:
        return integer(1)(value)
    except ValueError:
        raise ValueError(f"must be a number of tokens or auto, not {value!r}") from None
