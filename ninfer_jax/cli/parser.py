"""An argument parser whose errors are one line, name the flag, and suggest what was meant."""

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

USAGE_ERROR = 2
MODEL_FLAGS = ("--model", "--model-path", "-m")
"""How other programs name what is a plain argument here."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """``"; did you mean X?"`` for the closest of ``known``, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def add_model(parser: argparse.ArgumentParser) -> None:
    """The plain argument MODEL as ``model``: a Path, or None for the demo model."""
    parser.add_argument(
        "model",
        nargs="?",
        type=Path,
        metavar="MODEL",
        help="a .gguf file, a Hugging Face folder or a NAME.ninfer artifact (default: the demo model)",
    )


class CommandParser(argparse.ArgumentParser):
    """One command's parser. Flags are never abbreviated: an abbreviation is a name nobody chose."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def parse_args(  # type: ignore[override]  # argparse overloads this for custom namespaces
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown[0]))
        return parsed

    def _unknown(self, argument: str) -> str:
        flag = argument.partition("=")[0]
        if not flag.startswith("-"):
            return f"unexpected argument {argument!r}"
        if flag in MODEL_FLAGS and any(
            action.metavar == "MODEL" for action in self._get_positional_actions()
        ):
            return f"unknown flag {flag}; the model is named without one: {self.prog} MODEL"
        return f"unknown flag {flag}{suggestion(flag, self._option_string_actions)}"

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(USAGE_ERROR)
