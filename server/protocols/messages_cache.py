"""Anthropic's ``cache_control``: which block ends are boundaries that later requests may start from.

They are hints: they change what is kept, never the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ninfer_jax.server.fields import JsonObject, invalid, join, one_of, optional_object, optional_string
from ninfer_jax.text.conversation import Tool, Turn

MAX_TARGETS = 4
TTLS = ("5m", "1h")


@dataclass(slots=True)
class CacheMarks:
    """Collects the marks of one request. Blocks are shown to it in wire order: tools, system, messages."""

    _targets: dict[str, str] = field(default_factory=dict)
    _last: str | None = None

    def see(self, block: JsonObject, path: str, *, cacheable: bool = True) -> bool:
        """Whether this block carries a mark. What cannot be a target (an empty text, a thinking block)
        has its mark checked and left out."""
        if cacheable:
            self._last = path
        ttl = _ttl_of(block, path)
        if ttl is None or not cacheable:
            return False
        self._add(path, ttl, path)
        return True

    def see_container(self, block: JsonObject, path: str, last_inner: str | None) -> bool:
        """A tool result ends where its last block ends: marks on either are one target."""
        ttl = _ttl_of(block, path)
        if ttl is None or last_inner is None:
            return False
        self._add(last_inner, ttl, path)
        return True

    def finish(self, body: JsonObject) -> bool:
        """Check the whole. Tells whether the request's own mark adds one on the last cacheable block."""
        targets = list(self._targets)
        if len(targets) > MAX_TARGETS:
            where = join(targets[MAX_TARGETS], "cache_control")
            raise invalid(where, f"is one too many: a request has at most {MAX_TARGETS} breakpoints")
        ttl = _ttl_of(body, "")
        if ttl is None or self._last is None:
            return False
        if self._last in self._targets:
            self._add(self._last, ttl, "")
            return False
        if len(targets) == MAX_TARGETS:
            raise invalid(
                "cache_control", f"needs a breakpoint of its own, and {MAX_TARGETS} blocks have one already"
            )
        return True

    def _add(self, target: str, ttl: str, path: str) -> None:
        if self._targets.setdefault(target, ttl) != ttl:
            raise invalid(
                join(join(path, "cache_control"), "ttl"),
                f"contradicts the ttl {self._targets[target]} that {target} carries at the same place",
            )


def _ttl_of(block: JsonObject, path: str) -> str | None:
    control = optional_object(block, "cache_control", path=path)
    if control is None:
        return None
    where = join(path, "cache_control")
    if control.get("type") != "ephemeral":
        raise invalid(join(where, "type"), "must be ephemeral")
    return one_of(optional_string(control, "ttl", path=where) or "5m", TTLS, join(where, "ttl"))


def mark_last(turns: Sequence[Turn], tools: Sequence[Tool]) -> tuple[list[Turn], list[Tool]]:
    """Mark the end of the last block that can be a boundary."""
    marked, declared = list(turns), list(tools)
    for index in range(len(marked) - 1, -1, -1):
        turn = marked[index]
        if turn.tool_calls:
            call = replace(turn.tool_calls[-1], breakpoint=True)
            marked[index] = replace(turn, tool_calls=(*turn.tool_calls[:-1], call))
            return marked, declared
        if turn.parts:
            part = replace(turn.parts[-1], breakpoint=True)
            marked[index] = replace(turn, parts=(*turn.parts[:-1], part))
            return marked, declared
    if declared:
        declared[-1] = replace(declared[-1], breakpoint=True)
    return marked, declared
