"""What the operator decides, resolved once and checked before anything loads.

A flag's value comes from the command line, else from its environment twin (``NINFER_MAX_CONTEXT`` for
``--max-context``), else from its default. Every wrong value is a :class:`ConfigError` that names where
it came from.
"""

import argparse
import difflib
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from ninfer_jax.config import WeightFormat
from ninfer_jax.errors import ConfigError
from ninfer_jax.server.flag import ENV_PREFIX
from ninfer_jax.server.flag_table import FLAGS, GROUPS


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


def add_arguments(parser: argparse.ArgumentParser, *, listed: Collection[str] | None = None) -> None:
    """Add every flag, in groups; ``--help`` has those of ``listed``, by default all. Values stay text until
    :func:`resolve`, which names what is wrong."""
    defaults = {member.name: member.default for member in fields(ServeOptions)}
    for name, flags in GROUPS.items():
        group = parser.add_argument_group(name)
        for flag in flags:
            spellings = [f"--{spelling}" for spelling in (flag.name, *flag.aliases)]
            kind: dict[str, Any] = (
                {"action": "store_const", "const": "1"} if flag.is_switch else {"metavar": flag.metavar}
            )
            is_listed = listed is None or flag.name in listed
            help_text = flag.help_text(defaults[flag.field]) if is_listed else argparse.SUPPRESS
            group.add_argument(*spellings, dest=flag.field, default=argparse.SUPPRESS, help=help_text, **kind)


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
