"""What a request produced, folded from the same events that a stream sends."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ninfer_jax.types import Admitted, Event, Finished, Output, TextDelta, ToolCallDelta


@dataclass(slots=True)
class TextSegment:
    """A run of text of one channel (``reasoning`` or ``content``)."""

    channel: str
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(slots=True)
class ToolCallSegment:
    index: int
    name: str
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """One JSON object, byte for byte what the stream's pieces give."""
        return "".join(self.pieces)


Segment: TypeAlias = TextSegment | ToolCallSegment


@dataclass(slots=True)
class Completion:
    """Segments in the order they began; ``finished`` and ``admitted`` are set when the fold is done."""

    segments: list[Segment] = field(default_factory=list)
    admitted: Admitted | None = None
    finished: Finished | None = None

    def add(self, event: Event) -> None:
        match event:
            case Admitted():
                self.admitted = event
            case Output():
                for delta in event.deltas:
                    self._add_delta(delta)
            case Finished():
                self.finished = event

    def _add_delta(self, delta: TextDelta | ToolCallDelta) -> None:
        last = self.segments[-1] if self.segments else None
        if isinstance(delta, TextDelta):
            if not isinstance(last, TextSegment) or last.channel != delta.channel:
                last = TextSegment(delta.channel)
                self.segments.append(last)
            last.pieces.append(delta.text)
            return
        if not isinstance(last, ToolCallSegment) or last.index != delta.index:
            assert delta.name is not None, "the first piece of a call carries its name"
            last = ToolCallSegment(delta.index, delta.name)
            self.segments.append(last)
        last.pieces.append(delta.arguments)

    def text(self, channel: str) -> str:
        return "".join(s.text for s in self.segments if isinstance(s, TextSegment) and s.channel == channel)

    @property
    def reasoning(self) -> str:
        return self.text("reasoning")

    @property
    def content(self) -> str:
        return self.text("content")

    @property
    def tool_calls(self) -> Sequence[ToolCallSegment]:
        return [s for s in self.segments if isinstance(s, ToolCallSegment)]
