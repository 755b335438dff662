"""Model output to reasoning, content and tool calls; one machine for streams and for whole texts.

:class:`StreamParser` takes text as it comes and gives deltas as they become certain. :func:`parse_output`
is the same machine fed once, so the two cannot differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ninfer_jax.text.conversation import Tool
from ninfer_jax.text.cursor import SPACE
from ninfer_jax.text.hermes_tools import HermesToolParser
from ninfer_jax.text.qwen_tools import QwenToolParser
from ninfer_jax.text.reasoning import Mode, SplitState, split_finish, split_step
from ninfer_jax.text.tool_region import FallbackReason, ParseDiagnostics, ToolRegionParser
from ninfer_jax.types import Channel, Delta, TextDelta, ToolCallDelta

ToolDialect: TypeAlias = Literal["qwen_xml", "hermes_json"]

_DIALECTS: dict[ToolDialect, type[ToolRegionParser]] = {
    "qwen_xml": QwenToolParser,
    "hermes_json": HermesToolParser,
}


@dataclass(frozen=True, slots=True)
class ToolParsing:
    """Which calls may be recognised in the output, and how strictly. No tools: nothing is parsed."""

    tools: Sequence[Tool] = ()
    dialect: ToolDialect = "qwen_xml"
    tolerant: bool = False
    max_name: int = 64

    def parser(self) -> ToolRegionParser:
        return _DIALECTS[self.dialect](self.tools, tolerant=self.tolerant, max_name=self.max_name)


@dataclass(frozen=True, slots=True)
class ParsedCall:
    name: str
    arguments: str
    """A JSON object, members in the model's order, numbers as the model spelled them."""


@dataclass(frozen=True, slots=True)
class ParsedOutput:
    reasoning: str
    content: str
    tool_calls: tuple[ParsedCall, ...]
    fallback_reason: FallbackReason
    diagnostics: ParseDiagnostics


class ChannelParser:
    """Text that is already split by channel in, deltas out.

    Drops the newlines before a closing reasoning marker, and reads tool calls out of the content.
    Tolerant parsing also promotes a call made inside thinking that nothing but white space follows.
    """

    def __init__(self, parsing: ToolParsing) -> None:
        self._tools = parsing.parser() if parsing.tools else None
        self._thoughts = _ThoughtCalls(parsing) if parsing.tools and parsing.tolerant else None
        self._newlines = 0  # held at the end of reasoning
        self._channel: Channel = "content"

    @property
    def diagnostics(self) -> ParseDiagnostics:
        own = self._tools.diagnostics if self._tools else ParseDiagnostics()
        if self._thoughts and self._thoughts.promoted:
            return self._thoughts.promoted
        return own

    def feed(self, channel: Channel, text: str) -> list[Delta]:
        if channel == "reasoning":
            self._channel = channel
            return self._reasoning(text)
        if self._channel == "reasoning":
            self._channel, self._newlines = channel, 0
        if self._tools is None:
            return [TextDelta("content", text)] if text else []
        before = self._thoughts.flush_before(text) if self._thoughts else []
        return before + self._tools.feed(text)

    def finish(self) -> list[Delta]:
        deltas: list[Delta] = []
        if self._newlines:
            deltas += self._thought("\n" * self._newlines)
        if self._thoughts:
            deltas += self._thoughts.finish()
        if self._tools:
            deltas += self._tools.finish()
        return deltas

    def _reasoning(self, text: str) -> list[Delta]:
        word = text.rstrip("\n")
        if not word:
            self._newlines += len(text)
            return []
        shown = "\n" * self._newlines + word
        self._newlines = len(text) - len(word)
        return self._thought(shown)

    def _thought(self, text: str) -> list[Delta]:
        return self._thoughts.feed(text) if self._thoughts else [TextDelta("reasoning", text)]


class _ThoughtCalls:
    """Calls that a model makes before it closes its thinking.

    Reasoning streams until a complete call is found; from there it is held until it is clear whether an
    answer follows. If one does, the call was only thought about and stays reasoning.
    """

    def __init__(self, parsing: ToolParsing) -> None:
        self._parser: ToolRegionParser | None = parsing.parser()
        self._held: list[str] = []  # everything fed, from the last point where nothing was held
        self._shown = 0  # characters of it that are out already
        self._length = 0
        self._deferred: list[Delta] = []
        self.promoted: ParseDiagnostics | None = None

    def feed(self, text: str) -> list[Delta]:
        if self._parser is None:
            return [TextDelta("reasoning", text)]
        self._held.append(text)
        self._length += len(text)
        return self._show(self._parser.feed(text))

    def flush_before(self, content: str) -> list[Delta]:
        """Content is about to follow; unless it is blank, what was held is reasoning after all."""
        if self._parser is None or not content.strip(SPACE):
            return []
        self._parser = None
        left = "".join(self._held)[self._shown :]
        return [TextDelta("reasoning", left)] if left else []

    def finish(self) -> list[Delta]:
        if self._parser is None:
            return []
        deltas = self._show(self._parser.finish())
        if self._deferred:
            self.promoted = self._parser.diagnostics
        return deltas + self._deferred

    def _show(self, deltas: list[Delta]) -> list[Delta]:
        shown: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, TextDelta):
                delta = TextDelta("reasoning", delta.text)
            if self._deferred or isinstance(delta, ToolCallDelta):
                self._deferred.append(delta)
                continue
            self._shown += len(delta.text)
            shown.append(delta)
        if self._shown == self._length:
            self._held.clear()
            self._shown = self._length = 0
        return shown


class StreamParser:
    """Text in, deltas out. Results never depend on where the text is cut.

    ``reasoning`` is None for models that do not think, else whether the prompt already opened it.
    """

    def __init__(self, parsing: ToolParsing | None = None, *, reasoning: bool | None = False) -> None:
        self._channels = ChannelParser(parsing or ToolParsing())
        self._split = start_state(reasoning)

    @property
    def diagnostics(self) -> ParseDiagnostics:
        return self._channels.diagnostics

    def feed(self, text: str) -> list[Delta]:
        segments, self._split = split_step(self._split, text)
        return [delta for channel, piece in segments for delta in self._channels.feed(channel, piece)]

    def finish(self) -> list[Delta]:
        """Flush what was held back. Called once; nothing may follow."""
        deltas = [
            d for channel, piece in split_finish(self._split) for d in self._channels.feed(channel, piece)
        ]
        return deltas + self._channels.finish()


def start_state(reasoning: bool | None) -> SplitState:
    if reasoning is None:
        return SplitState(Mode.CONTENT)
    return SplitState(Mode.REASONING_START if reasoning else Mode.CONTENT_START)


def parse_output(
    text: str,
    tools: Sequence[Tool],
    *,
    tolerant: bool = False,
    reasoning: bool | None = False,
    dialect: ToolDialect = "qwen_xml",
    max_name: int = 64,
) -> ParsedOutput:
    """Split a complete model output. Public and stable; never raises for any text."""
    parser = StreamParser(ToolParsing(tools, dialect, tolerant, max_name), reasoning=reasoning)
    return fold(parser.feed(text) + parser.finish(), parser.diagnostics)


def fold(deltas: Sequence[Delta], diagnostics: ParseDiagnostics) -> ParsedOutput:
    """The whole that a stream of deltas amounts to."""
    text: dict[Channel, list[str]] = {"reasoning": [], "content": []}
    calls: dict[int, ParsedCall] = {}
    for delta in deltas:
        if isinstance(delta, TextDelta):
            text[delta.channel].append(delta.text)
        else:
            earlier = calls.get(delta.index)
            name = earlier.name if earlier else delta.name or ""
            calls[delta.index] = ParsedCall(name, (earlier.arguments if earlier else "") + delta.arguments)
    return ParsedOutput(
        "".join(text["reasoning"]),
        "".join(text["content"]),
        tuple(calls[index] for index in sorted(calls)),
        diagnostics.fallback_reason,
        diagnostics,
    )
