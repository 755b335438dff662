"""``ninfer-jax generate``: one answer, or a chat, in the terminal. Text to stdout, the rest to stderr."""

import argparse
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.config import EngineConfig, WeightFormat
from ninfer_jax.engine.build import load_checked
from ninfer_jax.engine.generate_options import Options
from ninfer_jax.engine.generate_result import GenerateResult
from ninfer_jax.engine.inference_engine import InferenceEngine, Prompt
from ninfer_jax.errors import ConfigError, RequestError
from ninfer_jax.json_values import parse_json
from ninfer_jax.models.base import ModelConfig

HELP = "Generate text from a prompt or a file of messages, or chat, in the terminal."

PROMPT_SIGN = ">>> "
MAX_CONTEXT = 8192


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help=".gguf file, checkpoint folder or artifact (default: demo)"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--prompt", metavar="TEXT", help="a user message; with --raw the text to continue")
    source.add_argument(
        "--messages", metavar="FILE", help='JSON: [{"role": ..., "content": ...}]; - is stdin'
    )
    source.add_argument("--interactive", action="store_true", help="chat until end of file (Ctrl-D)")
    parser.add_argument("--system", metavar="TEXT", help="a system message before --prompt or the chat")
    parser.add_argument("--raw", action="store_true", help="no chat template: continue --prompt as it is")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="output tokens (default: no limit)")
    for name in ("temperature", "top-p", "min-p", "presence-penalty", "frequency-penalty"):
        parser.add_argument(f"--{name}", type=float, metavar="F", help="(default: the model's own)")
    parser.add_argument("--top-k", type=int, metavar="N", help="(default: the model's own)")
    parser.add_argument("--greedy", action="store_true", help="always the most probable token")
    parser.add_argument("--seed", type=int, metavar="N", help="makes a sampled answer repeatable")
    parser.add_argument("--stop", action="append", metavar="TEXT", help="end before this text; repeatable")
    parser.add_argument("--no-thinking", action="store_true", help="switch the template's thinking off")
    parser.add_argument("--max-context", type=int, metavar="N", help=f"(default: up to {MAX_CONTEXT})")
    parser.add_argument("--weights", choices=get_args(WeightFormat), help="(default: best for the device)")


def run(args: argparse.Namespace) -> int:
    prompt = _prompt(args)
    options = _options(args)
    with _start(args) as engine:
        if args.interactive:
            return _chat(engine, args.system, options)
        print(describe(_answer(engine, prompt, options)), file=sys.stderr)
    return 0


def _start(args: argparse.Namespace) -> InferenceEngine:
    """Load and compile, with a progress bar where someone may be watching."""
    path = Path(args.model) if args.model else demo_model()
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    bar = Progress(*columns, console=console, transient=True)
    with bar if console.is_terminal else nullcontext():
        task = bar.add_task("loading weights", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        def settings(model: ModelConfig) -> EngineConfig:
            limit = model.max_position_embeddings
            context = min(MAX_CONTEXT, limit) if args.max_context is None else args.max_context
            if context < 1:
                raise ConfigError("must be at least 1", field="--max-context")
            return EngineConfig(max_context=context, kv_capacity=context, pending_timeout=float("inf"))

        model = load_checked(path, settings, weights=args.weights, progress=show)
        bar.update(task, description="compiling kernels and programs")
        return InferenceEngine(model, config=settings(model.config), progress=show)


def _prompt(args: argparse.Namespace) -> Prompt:
    """What to answer; empty for a chat. Raises ConfigError before anything is loaded."""
    if args.raw and (args.prompt is None or args.system is not None):
        raise ConfigError("needs --prompt, and takes no --system", field="--raw")
    if args.interactive:
        return []
    if args.messages is not None:
        if args.system is not None:
            raise ConfigError("put the system message into the file of --messages", field="--system")
        return _read_messages(args.messages)
    if args.prompt is None:
        raise ConfigError("give --prompt TEXT, --messages FILE or --interactive", field="--prompt")
    if args.raw:
        return str(args.prompt)
    return [*_system(args.system), {"role": "user", "content": args.prompt}]


def _system(text: str | None) -> list[Mapping[str, Any]]:
    return [] if text is None else [{"role": "system", "content": text}]


def _read_messages(name: str) -> list[Mapping[str, Any]]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        value = parse_json(text)
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}", field="--messages") from error
    except ValueError as error:
        raise ConfigError(f"{name} is not JSON: {error}", field="--messages") from error
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list):
        raise ConfigError(f"{name} holds no list of messages", field="--messages")
    return messages


def _options(args: argparse.Namespace) -> Options:
    return Options(
        max_tokens=args.max_tokens,
        temperature=0.0 if args.greedy else args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        presence_penalty=args.presence_penalty,
        frequency_penalty=args.frequency_penalty,
        seed=args.seed,
        stop=args.stop,
        enable_thinking=False if args.no_thinking else None,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished result and the seconds from asking to its first text."""

    result: GenerateResult
    first_text: float | None


def _answer(engine: InferenceEngine, prompt: Prompt, options: Options) -> Answer:
    """Stream one answer to stdout; thoughts go to stderr. Ctrl-C ends it early."""
    asked = time.monotonic()
    first: float | None = None
    result = engine.submit(prompt, reasoning_cb=_show_reasoning, **options)
    try:
        for piece in result:
            first = first or time.monotonic() - asked
            print(piece, end="", flush=True)
    finally:
        result.cancel()
        print(flush=True)
    return Answer(result, first)


def _show_reasoning(piece: str) -> None:
    sys.stderr.write(f"\x1b[2m{piece}\x1b[0m" if sys.stderr.isatty() else piece)
    sys.stderr.flush()


def describe(answer: Answer) -> str:
    """``42 prompt tokens (0 cached), 8 output tokens, 0.12 s to the first text, 50.1 tok/s, stop``."""
    outcome = answer.result.outcome
    assert outcome is not None
    usage, timings = outcome.usage, outcome.timings
    parts = [
        f"{usage.prompt_tokens} prompt tokens ({usage.cached_tokens} cached)",
        f"{usage.completion_tokens} output tokens",
    ]
    if answer.first_text is not None:
        parts.append(f"{answer.first_text:.2f} s to the first text")
    if timings.decode > 0:
        parts.append(f"{(usage.completion_tokens - 1) / timings.decode:.1f} tok/s")
    return ", ".join([*parts, outcome.reason.value])


def _chat(engine: InferenceEngine, system: str | None, options: Options) -> int:
    """Read a line, answer it, remember both; a refused turn is forgotten. Ctrl-C stops an answer."""
    history = _system(system)
    while True:
        try:
            line = input(PROMPT_SIGN if sys.stdin.isatty() else "")
        except EOFError:
            return 0
        if not line.strip():
            continue
        turn = {"role": "user", "content": line}
        try:
            answer = _answer(engine, [*history, turn], options)
        except KeyboardInterrupt:
            print("(stopped)", file=sys.stderr)
            continue
        except RequestError as error:
            print(f"error: {error.message}", file=sys.stderr)
            continue
        print(describe(answer), file=sys.stderr)
        history += [turn, {"role": "assistant", "content": answer.result.text}]
