"""OpenAI's prompt-cache members: validation, and which boundaries a request may write.

They are hints: they change what is kept, never the prompt. One request writes at most four boundaries;
the implicit one, at the end of the content, is one of them unless the client marked that end itself.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from ninfer_jax.server.fields import JsonObject, invalid, join, one_of, optional_object, optional_string
from ninfer_jax.text.conversation import Part, Turn

MAX_WRITES = 4
MODES = ("implicit", "explicit")
RETENTIONS = ("in_memory", "in-memory", "24h")
_TTL = re.compile(r"[1-9][0-9]{0,5}[smhd]")


def parse_cache_options(body: JsonObject) -> bool:
    """Check every cache member; tell whether the implicit boundary may be written."""
    optional_string(body, "prompt_cache_key")
    retention = optional_string(body, "prompt_cache_retention")
    if retention is not None:
        one_of(retention, RETENTIONS, "prompt_cache_retention")
    cache = optional_object(body, "prompt_cache_options")
    if cache is None:
        return True
    _check_ttl(cache, "prompt_cache_options")
    mode = optional_string(cache, "mode", path="prompt_cache_options")
    return mode is None or one_of(mode, MODES, "prompt_cache_options.mode") == "implicit"


def parse_breakpoint(part: JsonObject, path: str) -> bool:
    """Whether a content part carries ``prompt_cache_breakpoint: {"mode": "explicit"}``."""
    mark = optional_object(part, "prompt_cache_breakpoint", path=path)
    if mark is None:
        return False
    where = join(path, "prompt_cache_breakpoint")
    _check_ttl(mark, where)
    if mark.get("mode") != "explicit":
        raise invalid(join(where, "mode"), "must be explicit")
    return True


def select_writes(turns: Sequence[Turn], *, implicit: bool) -> list[Turn]:
    """Keep the latest marks that fit beside the implicit one; the text of the turns stays."""
    at_end = bool(turns and turns[-1].parts and turns[-1].parts[-1].breakpoint)
    room = MAX_WRITES - (1 if implicit and not at_end else 0)
    kept: list[Turn] = []
    for turn in reversed(turns):
        parts: list[Part] = []
        for part in reversed(turn.parts):
            room -= part.breakpoint
            parts.append(replace(part, breakpoint=False) if part.breakpoint and room < 0 else part)
        kept.append(replace(turn, parts=tuple(reversed(parts))))
    return kept[::-1]


def _check_ttl(member: JsonObject, path: str) -> None:
    ttl = optional_string(member, "ttl", path=path)
    if ttl is not None and not _TTL.fullmatch(ttl):
        raise invalid(join(path, "ttl"), "must be a duration such as 30m")
