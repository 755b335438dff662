"""``ninfer-jax COMMAND ...``: finds the command, runs it, and turns errors into exit codes.

Exit codes: 0 done, 1 a :class:`NinferError`, 2 a wrong command line or configuration, 130 Ctrl-C.
A command is a module with ``HELP: str``, ``add_arguments(parser)`` and ``run(args) -> int``. It is
imported only when it is the one asked for, so ``--help`` is instant and jax is read after
:mod:`ninfer_jax.cli.environment` has prepared the process.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from ninfer_jax import __version__
from ninfer_jax.cli import environment
from ninfer_jax.cli.parser import USAGE_ERROR, CommandParser, suggestion
from ninfer_jax.errors import ConfigError, NinferError

PROGRAM = "ninfer-jax"
INTERRUPTED = 130
PIPE_CLOSED = 141


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the command table: the module to import, and its line in ``--help``."""

    name: str
    summary: str

    @property
    def module(self) -> str:
        return f"ninfer_jax.cli.{self.name}"


COMMANDS = (
    Command("serve", "serve a model over HTTP (OpenAI Chat, OpenAI Responses, Anthropic Messages)"),
    Command("generate", "generate text from a prompt, or chat, in the terminal"),
    Command("convert", "make a NAME.ninfer artifact from a checkpoint folder or a GGUF file"),
    Command("inspect", "print what a model file or folder is"),
    Command("plan", "print the memory a configuration needs, without loading it"),
    Command("bench", "measure speed, alone or against another engine"),
    Command("profile", "capture a JAX profiler trace of decode rounds or of a running server"),
)


class CommandModule(Protocol):
    """What every module of the table provides."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def load(command: Command) -> CommandModule:
    return cast(CommandModule, importlib.import_module(command.module))


def command_parser(command: Command, module: CommandModule) -> CommandParser:
    parser = CommandParser(prog=f"{PROGRAM} {command.name}", description=module.HELP)
    module.add_arguments(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code (argparse itself exits for ``--help`` and errors)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command, rest = _choose(arguments)
    environment.prepare()
    try:
        module = load(command)
        code = module.run(command_parser(command, module).parse_args(rest))
        sys.stdout.flush()
        return code
    except NinferError as error:
        print(f"{PROGRAM} {command.name}: error: {describe(error)}", file=sys.stderr)
        return USAGE_ERROR if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `ninfer-jax inspect MODEL | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def describe(error: NinferError) -> str:
    """The message, on one line, with the flag or member it blames in front if it is not in it."""
    message = " ".join(error.message.split())
    if error.field and error.field not in message:
        return f"{error.field}: {message}"
    return message


def _choose(arguments: list[str]) -> tuple[Command, list[str]]:
    """The command a line names and the arguments left for it. Exits for --help, --version, errors."""
    at = next((i for i, argument in enumerate(arguments) if not argument.startswith("-")), len(arguments))
    parser = _top_parser()
    parser.parse_args(arguments[:at])
    if at == len(arguments):
        parser.print_help(sys.stderr)
        raise SystemExit(USAGE_ERROR)
    by_name = {command.name: command for command in COMMANDS}
    name = arguments[at]
    if name not in by_name:
        parser.error(f"unknown command {name!r}{suggestion(name, by_name)}")
    return by_name[name], arguments[at + 1 :]


def _top_parser() -> CommandParser:
    width = max(len(command.name) for command in COMMANDS)
    table = "\n".join(f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS)
    parser = CommandParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} COMMAND ...",
        description=f"LLM inference on JAX/XLA.\n\ncommands:\n{table}",
        epilog=f"`{PROGRAM} COMMAND --help` explains one command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
