"""Anthropic Messages: request to conversation, events to stream events or to one message object."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_jax.server import sse
from ninfer_jax.server.completion import Completion, TextSegment
from ninfer_jax.server.errors import ANTHROPIC
from ninfer_jax.server.fields import JsonObject, optional_boolean
from ninfer_jax.server.protocols import messages_options as options
from ninfer_jax.server.protocols.base import ResponseBuilder
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.server.protocols.lowering import render
from ninfer_jax.server.protocols.messages_cache import CacheMarks, mark_last
from ninfer_jax.server.protocols.messages_content import BlockParser
from ninfer_jax.server.protocols.messages_history import parse_messages, parse_system
from ninfer_jax.server.protocols.messages_objects import call_block, final_usage, stop_members, text_block
from ninfer_jax.server.protocols.messages_stream import PING, MessageEvents
from ninfer_jax.server.protocols.messages_tools import MAX_NAME, parse_tool_choice, parse_tools
from ninfer_jax.server.protocols.request import GenerationSettings, PreparedRequest, RequestContext
from ninfer_jax.server.protocols.sign_of_life import SignOfLife
from ninfer_jax.server.protocols.thinking import ThinkingFields
from ninfer_jax.text.conversation import Conversation
from ninfer_jax.types import Admitted, Finished, Output, PrefillProgress


@dataclass(frozen=True, slots=True)
class MessagesPrompt:
    """Everything of a request that decides its prompt; the same for generation and for counting."""

    model: str
    conversation: Conversation
    thinking: ThinkingFields
    ignored: tuple[str, ...]


def parse_prompt(body: JsonObject, context: RequestContext) -> MessagesPrompt:
    """Raises RequestError for what the client got wrong or asks in vain."""
    hints = Hints(context.options.lenient_api)
    model = options.required_model(body)
    options.check_capabilities(body)
    marks = CacheMarks()
    parser = BlockParser(context.info.has_vision, marks)
    tools = parse_tools(body, marks, hints)
    callable_tools = parse_tool_choice(body, tools, hints)
    system = parse_system(body, parser)
    history, continues = parse_messages(body, parser)
    turns = [*system, *history]
    if marks.finish(body):
        turns, tools = mark_last(turns, tools)
    thinking = options.parse_thinking(body, context, continues=continues, hints=hints)
    conversation = Conversation(
        turns, tools, callable_tools, continue_final_turn=continues, implicit_breakpoint=False
    )
    return MessagesPrompt(model, conversation, thinking, tuple(hints.ignored))


def count_tokens(context: RequestContext, body: Mapping[str, Any]) -> dict[str, int]:
    """The prompt's length; sampling, limits and streaming are not looked at."""
    prompt = parse_prompt(body, context)
    prepared = render(context, prompt.conversation, prompt.thinking)
    return {"input_tokens": len(prepared.prompt.token_ids)}


class MessagesBuilder(ResponseBuilder):
    protocol = "anthropic_messages"

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        self._id = context.new_id("msg_")
        self._model = ""
        self._events = MessageEvents({}, self._new_call_id)
        self._sign_of_life = SignOfLife()

    def prepare(self, body: Mapping[str, Any]) -> PreparedRequest:
        prompt = parse_prompt(body, self.context)
        self._model = prompt.model
        self._events = MessageEvents(self._head(), self._new_call_id)
        settings = GenerationSettings(
            sampling=options.parse_sampling(body, self.context.options),
            thinking=prompt.thinking,
            max_output_tokens=options.parse_max_tokens(body, self.context.options, prompt.thinking.budget),
            stop=options.parse_stop_sequences(body),
            max_tool_name=MAX_NAME,
        )
        stream = optional_boolean(body, "stream") or False
        return PreparedRequest(prompt.conversation, settings, stream, prompt.ignored)

    def format_stream_start(self, event: Admitted) -> Iterator[sse.Frame]:
        self._sign_of_life.spoke(event.at)
        return self._events.start(event)

    def format_chunk(self, event: PrefillProgress | Output) -> Iterable[sse.Frame]:
        """A ping for progress, and for output that has been held for long: a tool call's, mostly."""
        frames = [PING] if isinstance(event, PrefillProgress) else list(self._events.output(event))
        if not frames and self._sign_of_life.is_due(event.at):
            frames = [PING]
        if frames:
            self._sign_of_life.spoke(event.at)
        return frames

    def format_stream_end(self, event: Finished) -> Iterator[sse.Frame]:
        return self._events.end(event)

    def format_stream_error(self, error: BaseException) -> Iterable[sse.Frame]:
        return [sse.Frame(ANTHROPIC.body(error, self.context.request_id), "error")]

    def format_response(self, completion: Completion) -> dict[str, Any]:
        finished = completion.finished
        assert finished is not None
        content: list[dict[str, Any]] = []
        for segment in completion.segments:
            if not isinstance(segment, TextSegment):
                content.append(call_block(self._new_call_id(), segment.name, segment.arguments))
            elif segment.text:
                content.append(text_block(segment.channel, segment.text))
        return {
            **self._head(),
            "content": content,
            **stop_members(finished, len(completion.tool_calls)),
            "usage": final_usage(finished),
        }

    def _head(self) -> dict[str, Any]:
        return {"id": self._id, "type": "message", "role": "assistant", "model": self._model}

    def _new_call_id(self) -> str:
        return self.context.new_id("toolu_")
