"""The table of the server's flags, by group, in the order of ``--help``.

A row names a member of ``ServeOptions``, which holds its default.
"""

from collections.abc import Mapping

from ninfer_jax.server.flag import Flag, choice, integer, number, switch, text, tokens_or_auto

LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "critical", "off")
WEIGHT_FORMATS = ("f32", "bf16", "int8")
DEFAULT_MAX_TOKENS = 8192

_NETWORK = (
    Flag("host", text, "address to listen on", "H"),
    Flag("port", integer(0, 65535), "port to listen on; 0 picks a free one", "N"),
    Flag("api-key", text, "value clients must send as bearer token or x-api-key", "KEY"),
    Flag("cors", switch, "send permissive browser CORS headers"),
    Flag("max-request-mib", integer(1, 4096), "largest request body, checked before parsing", "MIB"),
    Flag(
        "shutdown-grace-ms",
        integer(0),
        "how long SIGTERM lets running requests finish before it ends them",
        "MS",
    ),
    Flag(
        "exit-on-failure",
        switch,
        "end the process when the engine has failed, so that a supervisor starts it again",
    ),
    Flag("log-level", choice(*LOG_LEVELS), f"one of {', '.join(LOG_LEVELS)}", "LEVEL"),
    Flag(
        "log-stats-interval-ms",
        integer(0),
        "how often throughput is reported; 0 never",
        "MS",
    ),
    Flag("request-log-jsonl", text, "append one JSON object an event to this file", "FILE"),
    Flag(
        "profile-dir",
        text,
        "let holders of the --api-key capture profiler traces into this folder",
        "DIR",
    ),
)

_MODEL = (
    Flag(
        "model-id",
        text,
        "public name of the model (default: the model's own)",
        "ID",
        aliases=("served-model-name",),
    ),
    Flag(
        "weights",
        choice(*WEIGHT_FORMATS),
        f"weight format, one of {', '.join(WEIGHT_FORMATS)} (default: by device)",
        "FORMAT",
    ),
)

_CAPACITY = (
    Flag(
        "max-context",
        integer(64),
        "most tokens of one sequence, prompt and output",
        "N",
        aliases=("max-model-len",),
    ),
    Flag(
        "kv-capacity",
        tokens_or_auto,
        "tokens of the KV pool all requests share, or auto (default: --max-context)",
        "N|auto",
    ),
    Flag(
        "max-concurrency",
        integer(1, 8),
        "most requests that run at once, 1 to 8",
        "N",
        aliases=("max-num-seqs",),
    ),
    Flag("max-pending-requests", integer(0, 4096), "more requests that may wait for a lane", "N"),
    Flag("pending-timeout-ms", integer(1), "longest preparation plus wait for a lane", "MS"),
    Flag("response-store-max-records", integer(1), "most Responses kept for later requests", "N"),
    Flag(
        "response-store-max-mib",
        integer(1),
        "most memory of kept Responses, their Items and their histories",
        "MIB",
    ),
    Flag("prefill-chunk", integer(16, 65536), "most prompt tokens of one prefill step", "N"),
    Flag("no-prefix-reuse", switch, "compute every prompt from its first token"),
)

_SAMPLING = (
    Flag(
        "default-max-tokens",
        integer(1),
        f"output limit of a request that sets none (default: {DEFAULT_MAX_TOKENS}; on Responses, what is"
        " left of the context)",
        "N",
    ),
    Flag("temperature", number(0, 2), "temperature of a request that sets none", "F"),
    Flag("top-p", number(0, 1), "top_p of a request that sets none", "F"),
    Flag("top-k", integer(0, 256), "top_k of a request that sets none; 0 means --top-k-cap", "N"),
    Flag("min-p", number(0, 1), "min_p of a request that sets none", "F"),
    Flag("presence-penalty", number(-2, 2), "presence_penalty of a request that sets none", "F"),
    Flag("frequency-penalty", number(-2, 2), "frequency_penalty of a request that sets none", "F"),
    Flag(
        "seed",
        integer(-(2**63), 2**64 - 1),
        "seed of a request that sets none (default: a fresh one each)",
        "N",
    ),
    Flag("greedy", switch, "take the likeliest token in every request"),
    Flag("top-k-cap", integer(1, 256), "largest top_k a request may ask for", "N"),
)

_THINKING = (
    Flag("no-thinking", switch, "answer without thinking unless a request asks for it"),
    Flag(
        "preserve-thinking",
        switch,
        "keep the reasoning of closed turns in later prompts by default",
    ),
    Flag(
        "default-thinking-budget",
        integer(1),
        "thinking tokens of a request that thinks and sets no budget",
        "N",
    ),
    Flag(
        "tolerant-tool-calls",
        switch,
        "recover complete tool calls whose wrapper or surroundings are malformed",
    ),
    Flag("lenient-api", switch, "ignore, and log, request hints that are refused otherwise"),
)

GROUPS: Mapping[str, tuple[Flag, ...]] = {
    "network": _NETWORK,
    "model": _MODEL,
    "capacity": _CAPACITY,
    "sampling": _SAMPLING,
    "thinking and tools": _THINKING,
}
FLAGS = tuple(flag for group in GROUPS.values() for flag in group)
