"""OpenAI Chat Completions: request to conversation, events to chunks or to one completion object."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ninfer_jax.errors import ModelNotFoundError
from ninfer_jax.server import sse
from ninfer_jax.server.completion import Completion
from ninfer_jax.server.errors import OPENAI
from ninfer_jax.server.fields import JsonObject, optional_boolean, optional_integer, optional_object
from ninfer_jax.server.protocols.base import ResponseBuilder
from ninfer_jax.server.protocols.chat_capabilities import check_capabilities
from ninfer_jax.server.protocols.chat_messages import MessageParser
from ninfer_jax.server.protocols.chat_objects import final_timings, finish_reason, usage_object
from ninfer_jax.server.protocols.chat_stream import ChatChunks, StreamOptions
from ninfer_jax.server.protocols.chat_tools import parse_tool_choice, parse_tools
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.server.protocols.prompt_cache import parse_cache_options, select_writes
from ninfer_jax.server.protocols.request import GenerationSettings, PreparedRequest, RequestContext
from ninfer_jax.server.protocols.sampling import parse_sampling, parse_stop
from ninfer_jax.server.protocols.thinking import (
    ThinkingFields,
    combine,
    parse_effort,
    parse_template_switches,
)
from ninfer_jax.text.conversation import Conversation
from ninfer_jax.types import Admitted, Finished, Output, PrefillProgress


class ChatBuilder(ResponseBuilder):
    protocol = "openai_chat"

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        self._id = context.new_id("chatcmpl-")
        self._chunks = self._new_chunks(StreamOptions())

    def prepare(self, body: Mapping[str, Any]) -> PreparedRequest:
        check_model(body, self.context.model_id)
        hints = Hints(self.context.options.lenient_api)
        stream = optional_boolean(body, "stream") or False
        self._chunks = self._new_chunks(_stream_options(body))
        thinking = self._thinking(body, hints)
        settings = GenerationSettings(
            sampling=parse_sampling(body, self.context.options),
            thinking=thinking,
            max_output_tokens=_max_tokens(body),
            stop=parse_stop(body),
            ignore_eos=body.get("ignore_eos") is True,
        )
        conversation = self._conversation(body, hints)
        check_capabilities(body, len(conversation.callable_tools), hints)
        return PreparedRequest(conversation, settings, stream, tuple(hints.ignored))

    def _thinking(self, body: JsonObject, hints: Hints) -> ThinkingFields:
        capabilities = self.context.frontend.capabilities
        exposed = capabilities.efforts if capabilities else ()
        enable, preserve = parse_template_switches(body, hints)
        effort = parse_effort(body, "reasoning_effort", exposed, hints)
        return combine(enable, effort, preserve)

    def _conversation(self, body: JsonObject, hints: Hints) -> Conversation:
        implicit = parse_cache_options(body)
        parser = MessageParser(self.context.info.has_vision, hints)
        tools = parse_tools(body, hints)
        callable_tools = parse_tool_choice(body, tools)
        turns = select_writes(parser.parse(body), implicit=implicit)
        return Conversation(turns, tools, callable_tools, implicit_breakpoint=implicit)

    def format_stream_start(self, event: Admitted) -> Iterator[sse.Frame]:
        return map(sse.Frame, self._chunks.start(event))

    def format_chunk(self, event: PrefillProgress | Output) -> Iterator[sse.Frame]:
        if isinstance(event, PrefillProgress):
            return map(sse.Frame, self._chunks.progress(event))
        return map(sse.Frame, self._chunks.output(event))

    def format_stream_end(self, event: Finished) -> Iterator[sse.Frame]:
        yield from map(sse.Frame, self._chunks.end(event))
        yield sse.DONE

    def format_stream_error(self, error: BaseException) -> Iterable[sse.Frame]:
        return [sse.Frame(OPENAI.body(error, self.context.request_id)), sse.DONE]

    def format_response(self, completion: Completion) -> dict[str, Any]:
        finished = completion.finished
        assert finished is not None
        calls = [
            {
                "id": self._new_call_id(),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in completion.tool_calls
        ]
        message: dict[str, Any] = {"role": "assistant", "content": completion.content, "refusal": None}
        if completion.reasoning:
            message["reasoning_content"] = completion.reasoning
        if calls:
            message["content"] = completion.content or None
            message["tool_calls"] = calls
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish_reason(finished.reason, len(calls)),
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": usage_object(finished.usage),
            "timings": final_timings(finished),
        }

    def _head(self, kind: str) -> dict[str, Any]:
        context = self.context
        return {"id": self._id, "object": kind, "created": context.created, "model": context.model_id}

    def _new_chunks(self, options: StreamOptions) -> ChatChunks:
        return ChatChunks(self._head("chat.completion.chunk"), options, self._new_call_id)

    def _new_call_id(self) -> str:
        return self.context.new_id("call_")


def check_model(body: JsonObject, model_id: str) -> None:
    """No model, or none that is a name, means the loaded one; another name is an error."""
    asked = body.get("model")
    if isinstance(asked, str) and asked and asked != model_id:
        raise ModelNotFoundError(
            f"the model {asked[:200]!r} does not exist; this server has {model_id!r}", field="model"
        )


def _max_tokens(body: JsonObject) -> int | None:
    """Both spellings are checked; the current one wins over the legacy one."""
    legacy = optional_integer(body, "max_tokens", 0)
    current = optional_integer(body, "max_completion_tokens", 0)
    return legacy if current is None else current


def _stream_options(body: JsonObject) -> StreamOptions:
    given = optional_object(body, "stream_options") or {}
    return StreamOptions(
        include_usage=optional_boolean(given, "include_usage", path="stream_options") or False,
        timings_per_token=optional_boolean(body, "timings_per_token") or False,
        return_progress=optional_boolean(body, "return_progress") or False,
    )
