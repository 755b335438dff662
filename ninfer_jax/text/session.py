"""One request's output decoder: token ids in, channel deltas out, stop rules decided before commit.

Everything that a stop rule depends on is one small immutable state (undecoded bytes, reasoning mode,
stop automaton, counters), so ``preview`` computes successors and throws them away; only the parser of
tool calls, which never ends a request, has state of its own and is fed at ``commit``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ninfer_jax.text.deltas import merge
from ninfer_jax.text.detokenizer import decode_step
from ninfer_jax.text.output_parser import ChannelParser, ToolParsing, start_state
from ninfer_jax.text.reasoning import Mode, Segment, SplitState, split_finish, split_step
from ninfer_jax.text.stop import State, StopMatcher
from ninfer_jax.types import Channel, Delta, FinishReason, OutputSummary, Preview


@dataclass(frozen=True, slots=True)
class ThinkingBudget:
    """At most ``tokens`` reasoning tokens of the model's own; then ``close_ids`` are forced."""

    tokens: int
    close_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What one request asks of its decoder. ``reasoning`` as in :class:`StreamParser`."""

    eos_ids: frozenset[int]
    hidden_ids: frozenset[int] = frozenset()
    """Control tokens whose text is never shown."""
    stop: tuple[str, ...] = ()
    reasoning: bool | None = None
    continues_text: bool = False
    """The prompt ends inside the answer: no reasoning can open, no newline is structure."""
    budget: ThinkingBudget | None = None
    parsing: ToolParsing = field(default_factory=ToolParsing)
    ignore_eos: bool = False


class _State(NamedTuple):
    pending: bytes
    split: SplitState
    channel: Channel  # of the text that the stop automaton has seen
    stop: State
    reasoning_tokens: int
    own_reasoning_tokens: int  # without forced ones
    forced_left: int
    forced_closes: int
    match: str | None


class _Step(NamedTuple):
    token_id: int
    state: _State
    segments: list[Segment]


class TextOutputSession:
    """Implements :class:`ninfer_jax.types.OutputSession`.

    A token counts as reasoning when the channel is still reasoning after it, so the token that completes
    the closing marker does not. The token that ends the request is counted by the engine and never shown.
    """

    def __init__(self, options: SessionOptions, token_bytes: Callable[[int], bytes]) -> None:
        self._options = options
        self._token_bytes = token_bytes
        self._stops = StopMatcher(options.stop)
        self._channels = ChannelParser(options.parsing)
        self._num_close_ids = len(options.budget.close_ids) if options.budget else 0
        split = SplitState(Mode.CONTENT) if options.continues_text else start_state(options.reasoning)
        self._state = _State(b"", split, "content", self._stops.start, 0, 0, 0, 0, None)
        self._ahead: list[_Step] = []

    def preview(self, token_ids: Sequence[int]) -> Preview:
        options = self._options
        eos = frozenset() if options.ignore_eos else options.eos_ids
        self._ahead = ahead = []
        state = self._state
        for count, token_id in enumerate(token_ids, 1):
            step = self._step(state, token_id)
            ahead.append(step)
            state = step.state
            if token_id in eos and not state.forced_left:
                return Preview(count, FinishReason.STOP)
            if state.match is not None:
                return Preview(count, FinishReason.STOP_STRING)
            if self._exhausted(state):
                assert options.budget is not None
                return Preview(count, force=options.budget.close_ids)
        return Preview(len(token_ids))

    def commit(self, token_ids: Sequence[int]) -> tuple[Delta, ...]:
        state = self._state
        deltas: list[Delta] = []
        ahead = self._ahead
        for index, token_id in enumerate(token_ids):
            if index < len(ahead) and ahead[index].token_id == token_id:
                step = ahead[index]
            else:  # not what was previewed: from here on compute
                ahead = []
                step = self._step(state, token_id)
            state = step.state
            for channel, text in step.segments:
                deltas += self._channels.feed(channel, text)
        if self._exhausted(state):
            state = state._replace(forced_left=self._num_close_ids)
        self._state = state
        self._ahead = []
        return merge(deltas)

    def finish(self, reason: FinishReason) -> tuple[Delta, ...]:
        state = self._state
        segments: list[Segment] = []
        if state.match is None:
            text, _ = decode_step(state.pending, final=True)
            pieces, split = split_step(state.split, text)
            state, segments = self._apply_stops(state._replace(split=split), [*pieces, *split_finish(split)])
            if state.match is None:
                held = self._stops.held(state.stop)
                segments += [Segment(state.channel, held)] if held else []
        self._state = state
        deltas = [d for channel, text in segments for d in self._channels.feed(channel, text)]
        return merge([*deltas, *self._channels.finish()])

    def summary(self) -> OutputSummary:
        parse = self._channels.diagnostics
        budget = self._options.budget
        return OutputSummary(
            reasoning_tokens=self._state.reasoning_tokens,
            stop_string=self._state.match,
            tool_calls=parse.calls,
            parse_fallback_reason=parse.fallback_reason,
            diagnostics={
                "tool_marker_seen": parse.marker_seen,
                "empty_arguments_omitted": parse.empty_arguments_omitted,
                "schema_mismatches": parse.schema_mismatches,
                "thinking_budget": budget.tokens if budget else None,
                "thinking_budget_closes": self._state.forced_closes,
            },
        )

    def _exhausted(self, state: _State) -> bool:
        budget = self._options.budget
        return (
            budget is not None
            and state.split.mode.in_reasoning
            and not state.forced_left
            and state.own_reasoning_tokens >= budget.tokens
        )

    def _step(self, state: _State, token_id: int) -> _Step:
        options = self._options
        shown = token_id not in options.hidden_ids and token_id not in options.eos_ids
        text, pending = (
            decode_step(state.pending + self._token_bytes(token_id)) if shown else ("", state.pending)
        )
        if text:
            segments, split = split_step(state.split, text)
        else:
            segments, split = [], state.split
        forced = state.forced_left > 0
        if options.reasoning is not None or pending or state.pending or forced:
            thinking = split.mode.in_reasoning
            state = _State(
                pending,
                split,
                state.channel,
                state.stop,
                state.reasoning_tokens + thinking,
                state.own_reasoning_tokens + (thinking and not forced),
                state.forced_left - forced,
                state.forced_closes + (state.forced_left == self._num_close_ids > 0),
                state.match,
            )
        if self._stops and segments:
            if forced:
                state, segments = self._release(state, segments)
            else:
                state, segments = self._apply_stops(state, segments)
        return _Step(token_id, state, segments)

    def _apply_stops(self, state: _State, segments: list[Segment]) -> tuple[_State, list[Segment]]:
        """Each channel is searched by itself; text held at its end is released when the channel changes."""
        certain: list[Segment] = []
        channel, stop = state.channel, state.stop
        for segment in segments:
            if segment.channel != channel:
                if held := self._stops.held(stop):
                    certain.append(Segment(channel, held))
                channel, stop = segment.channel, self._stops.start
            text, stop, match = self._stops.scan(stop, segment.text)
            if text or not segment.text:
                certain.append(Segment(channel, text))
            if match is not None:
                return state._replace(channel=channel, stop=stop, match=match), certain
        return state._replace(channel=channel, stop=stop), certain

    def _release(self, state: _State, segments: list[Segment]) -> tuple[_State, list[Segment]]:
        """Forced text is never searched: a stop string must not cut the close suffix in two."""
        held = self._stops.held(state.stop)
        before = [Segment(state.channel, held)] if held else []
        return state._replace(channel=segments[-1].channel, stop=self._stops.start), [*before, *segments]
