"""The server's flags: one declarative table, resolved once, checked before anything loads.

A flag's value comes from the command line, else from its environment twin (``NINFER_MAX_CONTEXT`` for
``--max-context``), else from its default. Every wrong value is a :class:`ConfigError` that names where
it came from.
"""

import argparse
import difflib
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from ninfer_jax.config import WeightFormat
from ninfer_jax.errors import ConfigError

ENV_PREFIX = "NINFER_"
LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "critical", "off")
WEIGHT_FORMATS = ("f32", "bf16", "int8")
DEFAULT_MAX_TOKENS = 8192
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Everything the operator decides. Names are the flags'; None means "not set"."""

    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str | None = field(default=None, repr=False)
    cors: bool = False
    max_request_mib: int = 384
    shutdown_grace_ms: int = 20_000
    exit_on_failure: bool = False
    log_level: str = "info"
    log_stats_interval_ms: int = 5000
    request_log_jsonl: str | None = None
    profile_dir: str | None = None
    model_id: str | None = None
    weights: WeightFormat | None = None
    max_context: int = 8192
    kv_capacity: int | Literal["auto"] | None = None
    response_store_max_records: int = 1024
    response_store_max_mib: int = 256
    max_concurrency: int = 1
    max_pending_requests: int = 16
    pending_timeout_ms: int = 30_000
    prefill_chunk: int = 1024
    no_prefix_reuse: bool = False
    default_max_tokens: int | None = None
    """None: ``DEFAULT_MAX_TOKENS``, or what is left of the context where the protocol wants that."""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    greedy: bool = False
    top_k_cap: int = 20
    no_thinking: bool = False
    preserve_thinking: bool = False
    default_thinking_budget: int | None = None
    tolerant_tool_calls: bool = False
    lenient_api: bool = False

    @property
    def max_request_bytes(self) -> int:
        return self.max_request_mib << 20

    @property
    def kv_tokens(self) -> int | Literal["auto"]:
        """The KV pool asked for; it follows ``max_context`` when the flag is left out."""
        return self.max_context if self.kv_capacity is None else self.kv_capacity


@dataclass(frozen=True, slots=True)
class Flag:
    """One row of the table. ``parse`` turns text into the value, or raises ValueError with the reason."""

    group: str
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

    def help_text(self) -> str:
        default = _DEFAULTS[self.field]
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


NETWORK, MODEL, CAPACITY, SAMPLING, THINKING = (
    "network",
    "model",
    "capacity",
    "sampling",
    "thinking and tools",
)
_SEED = integer(-(2**63), 2**64 - 1)

FLAGS: tuple[Flag, ...] = (
    Flag(NETWORK, "host", text, "address to listen on", "H"),
    Flag(NETWORK, "port", integer(0, 65535), "port to listen on; 0 picks a free one", "N"),
    Flag(NETWORK, "api-key", text, "value clients must send as bearer token or x-api-key", "KEY"),
    Flag(NETWORK, "cors", switch, "send permissive browser CORS headers"),
    Flag(NETWORK, "max-request-mib", integer(1, 4096), "largest request body, checked before parsing", "MIB"),
    Flag(
        NETWORK,
        "shutdown-grace-ms",
        integer(0),
        "how long SIGTERM lets running requests finish before it ends them",
        "MS",
    ),
    Flag(
        NETWORK,
        "exit-on-failure",
        switch,
        "end the process when the engine has failed, so that a supervisor starts it again",
    ),
    Flag(NETWORK, "log-level", choice(*LOG_LEVELS), f"one of {', '.join(LOG_LEVELS)}", "LEVEL"),
    Flag(
        NETWORK,
        "log-stats-interval-ms",
        integer(0),
        "how often throughput is reported; 0 never",
        "MS",
    ),
    Flag(NETWORK, "request-log-jsonl", text, "append one JSON object an event to this file", "FILE"),
    Flag(
        NETWORK,
        "profile-dir",
        text,
        "let holders of the --api-key capture profiler traces into this folder",
        "DIR",
    ),
    Flag(
        MODEL,
        "model-id",
        text,
        "public name of the model (default: the model's own)",
        "ID",
        aliases=("served-model-name",),
    ),
    Flag(
        MODEL,
        "weights",
        choice(*WEIGHT_FORMATS),
        f"weight format, one of {', '.join(WEIGHT_FORMATS)} (default: by device)",
        "FORMAT",
    ),
    Flag(
        CAPACITY,
        "max-context",
        integer(64),
        "most tokens of one sequence, prompt and output",
        "N",
        aliases=("max-model-len",),
    ),
    Flag(
        CAPACITY,
        "kv-capacity",
        tokens_or_auto,
        "tokens of the KV pool all requests share, or auto (default: --max-context)",
        "N|auto",
    ),
    Flag(
        CAPACITY,
        "max-concurrency",
        integer(1, 8),
        "most requests that run at once, 1 to 8",
        "N",
        aliases=("max-num-seqs",),
    ),
    Flag(CAPACITY, "max-pending-requests", integer(0, 4096), "more requests that may wait for a place", "N"),
    Flag(CAPACITY, "pending-timeout-ms", integer(1), "longest preparation plus wait for a place", "MS"),
    Flag(CAPACITY, "response-store-max-records", integer(1), "most Responses kept for later requests", "N"),
    Flag(
        CAPACITY,
        "response-store-max-mib",
        integer(1),
        "most memory of kept Responses, their Items and their histories",
        "MIB",
    ),
    Flag(CAPACITY, "prefill-chunk", integer(16, 65536), "most prompt tokens of one prefill step", "N"),
    Flag(CAPACITY, "no-prefix-reuse", switch, "compute every prompt from its first token"),
    Flag(
        SAMPLING,
        "default-max-tokens",
        integer(1),
        f"output limit of a request that sets none (default: {DEFAULT_MAX_TOKENS}; on Responses, what is"
        " left of the context)",
        "N",
    ),
    Flag(SAMPLING, "temperature", number(0, 2), "temperature of a request that sets none", "F"),
    Flag(SAMPLING, "top-p", number(0, 1), "top_p of a request that sets none", "F"),
    Flag(SAMPLING, "top-k", integer(0, 256), "top_k of a request that sets none; 0 means --top-k-cap", "N"),
    Flag(SAMPLING, "min-p", number(0, 1), "min_p of a request that sets none", "F"),
    Flag(SAMPLING, "presence-penalty", number(-2, 2), "presence_penalty of a request that sets none", "F"),
    Flag(SAMPLING, "frequency-penalty", number(-2, 2), "frequency_penalty of a request that sets none", "F"),
    Flag(SAMPLING, "seed", _SEED, "seed of a request that sets none (default: a fresh one each)", "N"),
    Flag(SAMPLING, "greedy", switch, "take the likeliest token in every request"),
    Flag(SAMPLING, "top-k-cap", integer(1, 256), "largest top_k a request may ask for", "N"),
    Flag(THINKING, "no-thinking", switch, "answer without thinking unless a request asks for it"),
    Flag(
        THINKING,
        "preserve-thinking",
        switch,
        "keep the reasoning of closed turns in later prompts by default",
    ),
    Flag(
        THINKING,
        "default-thinking-budget",
        integer(1),
        "thinking tokens of a request that thinks and sets no budget",
        "N",
    ),
    Flag(
        THINKING,
        "tolerant-tool-calls",
        switch,
        "recover complete tool calls whose wrapper or surroundings are malformed",
    ),
    Flag(THINKING, "lenient-api", switch, "ignore, and log, request hints that are refused otherwise"),
)
_DEFAULTS = {member.name: member.default for member in fields(ServeOptions)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every flag, in groups. Values stay text until :func:`resolve`, which names what is wrong."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for flag in FLAGS:
        group = groups.get(flag.group) or groups.setdefault(flag.group, parser.add_argument_group(flag.group))
        names = [f"--{name}" for name in (flag.name, *flag.aliases)]
        kind: dict[str, Any] = (
            {"action": "store_const", "const": "1"} if flag.is_switch else {"metavar": flag.metavar}
        )
        group.add_argument(*names, dest=flag.field, default=argparse.SUPPRESS, help=flag.help_text(), **kind)


def resolve(given: argparse.Namespace, environ: Mapping[str, str]) -> ServeOptions:
    """The options of one process. Raises ConfigError naming the flag or variable that is wrong."""
    values: dict[str, Any] = {}
    source: dict[str, str] = {}
    for flag in FLAGS:
        if hasattr(given, flag.field):
            source[flag.field], raw = f"--{flag.name}", getattr(given, flag.field)
        elif flag.variable in environ:
            source[flag.field], raw = flag.variable, environ[flag.variable]
        else:
            continue
        try:
            values[flag.field] = flag.parse(raw)
        except ValueError as error:
            raise ConfigError(f"{source[flag.field]} {error}", field=source[flag.field]) from None
    options = ServeOptions(**values)
    _check_together(options, types.MappingProxyType(source))
    return options


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """``NINFER_*`` variables that no flag reads, each with what was probably meant."""
    known = {flag.variable.removeprefix(ENV_PREFIX) for flag in FLAGS}
    given = {name.removeprefix(ENV_PREFIX) for name in environ if name.startswith(ENV_PREFIX)}
    described = []
    for name in sorted(given - known):
        close = difflib.get_close_matches(name, sorted(known), n=1)
        meant = f" (did you mean {ENV_PREFIX}{close[0]}?)" if close else ""
        described.append(f"{ENV_PREFIX}{name}{meant}")
    return described


def _check_together(options: ServeOptions, source: Mapping[str, str]) -> None:
    def refuse(field: str, problem: str) -> None:
        where = source.get(field, "--" + field.replace("_", "-"))
        raise ConfigError(f"{where} {problem}", field=where)

    if options.kv_capacity not in (None, "auto") and options.kv_tokens < options.max_context:  # type: ignore[operator]
        refuse("kv_capacity", f"must be at least --max-context ({options.max_context})")
    if options.profile_dir is not None and options.api_key is None:
        refuse("profile_dir", "needs an --api-key")
    if options.top_k is not None and options.top_k > options.top_k_cap:
        refuse("top_k", f"must be at most --top-k-cap ({options.top_k_cap})")
    if options.greedy and options.temperature not in (None, 0.0):
        refuse("temperature", "contradicts --greedy")
