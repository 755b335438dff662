"""Places in a prompt where a later request may branch off, as exact token prefixes.

Each is a character offset in the rendered text, found by rendering a shorter conversation up to a probe
word. It is accepted only if the text so far is an exact prefix of the prompt's, and its tokens of the
prompt's tokens. Frontiers are advice to the cache: what cannot be proven is left out.
"""

from collections.abc import Iterator
from dataclasses import replace

from ninfer_jax.errors import RequestError
from ninfer_jax.json_values import dump_json
from ninfer_jax.text.conversation import Conversation, HistoryToolCall, TextPart, Turn
from ninfer_jax.text.rendering import ConversationRenderer
from ninfer_jax.text.segments import EncodedText, SegmentEncoder
from ninfer_jax.types import CacheFrontier

MAX_CLIENT_MARKERS = 4
"""The latest ones count; each costs a rendering."""

_PROBE = "q7probe"


class FrontierFinder:
    """Finds the frontiers of one rendered conversation."""

    def __init__(
        self, renderer: ConversationRenderer, conversation: Conversation, text: str, *, keeps_reasoning: bool
    ) -> None:
        self._renderer = renderer
        self._conversation = replace(conversation, continue_final_turn=False)
        self._turns = tuple(conversation.turns)
        self._answered = self._turns[:-1] if conversation.continue_final_turn else self._turns
        self._text = text
        self._keeps_reasoning = keeps_reasoning

    def find(self, encoder: SegmentEncoder, encoded: EncodedText) -> tuple[CacheFrontier, ...]:
        """In order of position; several kinds may share one."""
        found: set[CacheFrontier] = set()
        for kind, offset in self._offsets():
            position = encoder.position_of(encoded, offset) if offset else None
            if position is not None and 0 < position < len(encoded.token_ids):
                found.add(CacheFrontier(position, kind))
        return tuple(sorted(found, key=lambda frontier: (frontier.position, frontier.kind)))

    def _offsets(self) -> Iterator[tuple[str, int | None]]:
        if self._keeps_reasoning:
            yield "response_replay", self._after(self._answered)
        else:  # closing the turn will re-render everything from its first answer on
            yield "turn_closure", self._after(_through_last_query(self._answered))
        leading = tuple(turn for turn in self._turns[:1] if turn.role in ("system", "developer"))
        probe = Turn("user", (TextPart(_PROBE),))
        if leading or self._conversation.tools:
            yield "system_end", self._before_probe((*leading, probe), whole_turn=True)
        if self._conversation.tools:
            before_system = self._before_probe((Turn("system", probe.parts), Turn("user", (TextPart("."),))))
            yield "tools_end", before_system or self._tools_end(len(self._conversation.tools) - 1)
        if self._conversation.implicit_breakpoint:
            yield "implicit", self._content_end()
        yield from (("client_marker", offset) for offset in self._marked())

    def _content_end(self) -> int | None:
        """The last message part or tool call, else the last tool."""
        last = len(self._turns) - 1
        if last < 0:
            return self._tools_end(len(self._conversation.tools) - 1) if self._conversation.tools else None
        turn = self._turns[last]
        if turn.tool_calls:
            return self._boundary("call", last, len(turn.tool_calls) - 1)
        return self._boundary("part", last, len(turn.parts) - 1) if turn.parts else None

    def _marked(self) -> Iterator[int | None]:
        markers = [("tool", i, 0) for i, tool in enumerate(self._conversation.tools) if tool.breakpoint]
        for i, turn in enumerate(self._turns):
            markers += [("part", i, j) for j, part in enumerate(turn.parts) if part.breakpoint]
            markers += [("call", i, j) for j, call in enumerate(turn.tool_calls) if call.breakpoint]
        yield from (self._boundary(*marker) for marker in markers[-MAX_CLIENT_MARKERS:])

    def _boundary(self, what: str, i: int, j: int) -> int | None:
        """The end of tool ``i``, or of call or part ``j`` of turn ``i``."""
        if what == "tool":
            return self._tools_end(i)
        if what == "call":
            return self._common(self._with_turn(i, _other_call_after(self._turns[i], j)))
        return self._before_probe(self._with_turn(i, _probe_after(self._turns[i], j)))

    def _with_turn(self, index: int, turn: Turn) -> tuple[Turn, ...]:
        """Everything around the turn stays: templates look ahead, for the last question for instance."""
        return (*self._turns[:index], turn, *self._turns[index + 1 :])

    def _tools_end(self, index: int) -> int | None:
        definition = dump_json(self._conversation.tools[index].definition)
        at = self._text.find(definition)
        return at + len(definition) if at >= 0 else None

    def _after(self, turns: tuple[Turn, ...]) -> int | None:
        """The end of these turns, where the prompt goes on differently."""
        rendered = self._render(turns)
        return len(rendered) if rendered and self._text.startswith(rendered) else None

    def _before_probe(self, turns: tuple[Turn, ...], *, whole_turn: bool = False) -> int | None:
        """Where the prompt may leave these turns: at the probe, or at the opening of the probe's turn."""
        rendered = self._render(turns) or ""
        end = rendered.rfind(_PROBE)
        if whole_turn:
            end = rendered.rfind("<|", 0, max(end, 0))
        return end if end > 0 and self._text.startswith(rendered[:end]) else None

    def _common(self, turns: tuple[Turn, ...]) -> int | None:
        rendered = self._render(turns) or ""
        low, high = 0, min(len(rendered), len(self._text))
        while low < high:
            middle = (low + high + 1) // 2
            if self._text.startswith(rendered[:middle]):
                low = middle
            else:
                high = middle - 1
        return low

    def _render(self, turns: tuple[Turn, ...]) -> str | None:
        if not turns:
            return None
        try:
            return self._renderer.render(replace(self._conversation, turns=turns), generation=False)
        except RequestError:
            return None


def _probe_after(turn: Turn, index: int) -> Turn:
    """The turn with a probe at the end of one part; white space there is left to the probe's side."""
    part = turn.parts[index]
    probed = (
        (TextPart(part.text.rstrip() + _PROBE),) if isinstance(part, TextPart) else (part, TextPart(_PROBE))
    )
    return replace(turn, parts=(*turn.parts[:index], *probed, *turn.parts[index + 1 :]))


def _other_call_after(turn: Turn, index: int) -> Turn:
    """The same calls up to ``index``, and something else from there on."""
    kept = turn.tool_calls[: index + 1]
    is_last = len(kept) == len(turn.tool_calls)
    return replace(turn, tool_calls=(*kept, HistoryToolCall(_PROBE, _PROBE, {})) if is_last else kept)


def _through_last_query(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Up to the last turn in which a user says something."""
    for index in range(len(turns) - 1, -1, -1):
        if turns[index].role == "user":
            return turns[: index + 1]
    return ()
