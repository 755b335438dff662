"""OpenAI Responses: Items to a conversation, events to Items, and what is kept for the next request."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ninfer_jax.errors import InvalidRequestError, NinferError, ResponseNotFoundError
from ninfer_jax.json_values import parse_json
from ninfer_jax.server.completion import Completion, TextSegment
from ninfer_jax.server.fields import JsonObject, invalid, join
from ninfer_jax.server.protocols.base import ResponseBuilder
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.server.protocols.lowering import render
from ninfer_jax.server.protocols.prompt_cache import parse_cache_options, select_writes
from ninfer_jax.server.protocols.request import GenerationSettings, PreparedRequest, RequestContext
from ninfer_jax.server.protocols.responses_fields import ResponseFields, check_parallel, parse_fields
from ninfer_jax.server.protocols.responses_history import HistoryBuilder
from ninfer_jax.server.protocols.responses_items import Item, ItemNormaliser
from ninfer_jax.server.protocols.responses_objects import (
    TERMINAL_EVENTS,
    failed_object,
    finished_object,
    is_cut,
    response_object,
)
from ninfer_jax.server.protocols.responses_output import Event, OutputItems
from ninfer_jax.server.protocols.responses_tools import MAX_NAME, Toolbox, parse_tool_choice, parse_tools
from ninfer_jax.server.protocols.sign_of_life import SignOfLife
from ninfer_jax.server.response_store import ResponseStore, Step, StoredResponse
from ninfer_jax.server.sse import Frame, to_json
from ninfer_jax.text.conversation import Conversation, TextPart, Turn
from ninfer_jax.types import Admitted, Delta, Finished, Output, PrefillProgress, TextDelta, ToolCallDelta


@dataclass(frozen=True, slots=True)
class _Continuation:
    """What the Response will be stored with."""

    parent: Step | None
    input_items: bytes
    session_key: str
    preserve_thinking: bool
    store: bool


class ResponsesBuilder(ResponseBuilder):
    protocol = "openai_responses"

    def __init__(self, context: RequestContext, store: ResponseStore) -> None:
        super().__init__(context)
        self._store = store
        self._id = context.new_id("resp_")
        self._head: dict[str, Any] = {}
        self._items = OutputItems(context.new_id, {}, seals_reasoning=False)
        self._continuation: _Continuation | None = None
        self._sequence_number = 0
        self._sign_of_life = SignOfLife()

    def prepare(self, body: Mapping[str, Any]) -> PreparedRequest:
        context = self.context
        hints = Hints(context.options.lenient_api)
        fields = parse_fields(body, context, hints)
        box = parse_tools(body, hints)
        callable_tools = parse_tool_choice(body, box.names)
        check_parallel(body, len(callable_tools), hints)
        implicit = parse_cache_options(body)
        parent = self._parent(fields)
        history, known_ids = self._restore(parent)
        find_stored = _StoredOutput(self._store).find
        normaliser = ItemNormaliser(context.new_id, find_stored, context.info.has_vision, known_ids)
        new_items = normaliser.normalise(body.get("input"))
        turns = _all_turns(history, new_items, fields.instructions)
        preserve = self._preserve(fields, parent)
        kept = self._continue(fields, parent, new_items, preserve)
        self._continuation = kept
        self._head = self._new_head(body, fields, box)
        self._items = OutputItems(context.new_id, box.names, seals_reasoning=fields.seals_reasoning)
        settings = GenerationSettings(
            sampling=fields.sampling,
            thinking=replace(fields.thinking, preserve=preserve),
            max_output_tokens=fields.max_output_tokens,
            fills_context=True,
            max_tool_name=MAX_NAME,
            session_key=kept.session_key if parent or fields.store else None,
            publish_session=fields.store,
        )
        conversation = Conversation(
            select_writes(turns, implicit=implicit), box.tools, callable_tools, implicit_breakpoint=implicit
        )
        return PreparedRequest(
            conversation,
            settings,
            fields.stream,
            tuple(hints.ignored),
            changes_semantics=parent is not None and preserve != parent.preserve_thinking,
        )

    def count(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The length of the prompt that a create request with this body would have."""
        prepared = self.prepare(body)
        prompt = render(self.context, prepared.conversation, prepared.settings.thinking).prompt
        return {"object": "response.input_tokens", "input_tokens": len(prompt.token_ids)}

    def format_stream_start(self, event: Admitted) -> Iterator[Frame]:
        self._sign_of_life.spoke(event.at)
        yield from map(self._frame, self._begin())

    def format_chunk(self, event: PrefillProgress | Output) -> Iterator[Frame]:
        events: list[Event] = []
        if isinstance(event, Output):
            events = [told for delta in event.deltas for told in self._items.feed(delta)]
        if not events and self._sign_of_life.is_due(event.at):
            events = [self._in_progress()]
        if events:
            self._sign_of_life.spoke(event.at)
        yield from map(self._frame, events)

    def format_stream_end(self, event: Finished) -> Iterator[Frame]:
        yield from map(self._frame, self._items.close(cut=is_cut(event.reason)))
        try:
            response = self._finish(event)
        except NinferError as error:
            yield from self.format_stream_error(error)
            return
        kind = TERMINAL_EVENTS.get(response["status"], "response.incomplete")
        yield self._frame({"type": kind, "response": response})

    def format_stream_error(self, error: BaseException) -> Iterable[Frame]:
        started = [] if self._sequence_number else self._begin()
        response = failed_object(self._head, error, self._items.items)
        return [self._frame(event) for event in (*started, {"type": "response.failed", "response": response})]

    def format_response(self, completion: Completion) -> Mapping[str, Any]:
        finished = completion.finished
        assert finished is not None
        for delta in _deltas(completion):
            for _ in self._items.feed(delta):
                pass
        for _ in self._items.close(cut=is_cut(finished.reason)):
            pass
        return self._finish(finished)

    def _parent(self, fields: ResponseFields) -> StoredResponse | None:
        if fields.previous_response_id is None:
            return None
        try:
            return self._store.get(fields.previous_response_id)
        except ResponseNotFoundError as error:
            raise InvalidRequestError(
                error.message, field="previous_response_id", code="previous_response_not_found"
            ) from None

    def _restore(self, parent: StoredResponse | None) -> tuple[HistoryBuilder, set[str]]:
        """The stored conversation, and the ids of its Items; in time linear in its length."""
        history = HistoryBuilder(text_after_calls=self.context.options.tolerant_tool_calls)
        known_ids: set[str] = set()
        for items in _stored_items(parent):
            for item in items:
                known_ids.add(item["id"])
                history.add(item, "previous_response_id")
            history.end_group()  # each stored answer was a turn of its own
        return history, known_ids

    def _continue(
        self,
        fields: ResponseFields,
        parent: StoredResponse | None,
        new_items: Sequence[Item],
        preserve: bool,
    ) -> _Continuation:
        """Raises UnsupportedFeatureError for what could not be stored whatever the answer."""
        encoded = to_json(new_items)
        step = parent.step if parent else None
        if fields.store:
            self._store.check_fits(len(encoded) + (step.total_bytes if step else 0))
        key = parent.session_key if parent else f"response:{self._id}"
        return _Continuation(step, encoded, key, preserve, fields.store)

    def _preserve(self, fields: ResponseFields, parent: StoredResponse | None) -> bool:
        """Request over parent over flag."""
        if fields.thinking.preserve is not None:
            return fields.thinking.preserve
        return parent.preserve_thinking if parent else self.context.options.preserve_thinking

    def _new_head(self, body: JsonObject, fields: ResponseFields, box: Toolbox) -> dict[str, Any]:
        parallel = body.get("parallel_tool_calls")
        return {
            "id": self._id,
            "object": "response",
            "created_at": self.context.created,
            "model": self.context.model_id,
            "background": False,
            "parallel_tool_calls": True if parallel is None else parallel,
            "service_tier": "default",
            "store": fields.store,
            "text": {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": box.echo,
            "top_logprobs": 0,
            "truncation": "disabled",
            **fields.echo,
        }

    def _begin(self) -> list[Event]:
        return [
            {"type": "response.created", "response": response_object(self._head)},
            self._in_progress(),
        ]

    def _in_progress(self) -> Event:
        response = response_object(self._head, output=self._items.items)
        return {"type": "response.in_progress", "response": response}

    def _finish(self, finished: Finished) -> dict[str, Any]:
        """The terminal object, stored if it is to be. Raises UnsupportedFeatureError over capacity."""
        response = finished_object(self._head, finished, self._items.items)
        kept = self._continuation
        assert kept is not None, "prepared before it is finished"
        if kept.store:
            items = self._items.items
            record = StoredResponse(
                id=self._id,
                body=to_json(response),
                step=Step(kept.parent, kept.input_items, to_json(items)),
                session_key=kept.session_key,
                preserve_thinking=kept.preserve_thinking,
                output_ids=tuple(item["id"] for item in items),
            )
            self._store.put(record)
        return response

    def _frame(self, event: Event) -> Frame:
        number = self._sequence_number
        self._sequence_number += 1
        return Frame({"type": event["type"], "sequence_number": number, **event}, event["type"])


class _StoredOutput:
    """Looks Items up by their ids; reads the output of a Response once."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store
        self._read: dict[str, dict[str, Item]] = {}

    def find(self, item_id: str) -> Item | None:
        producer = self._store.producer_of(item_id)
        if producer is None:
            return None
        if producer.id not in self._read:
            items = parse_json(producer.step.output_items)
            self._read[producer.id] = {item["id"]: item for item in items}
        return self._read[producer.id][item_id]


def _stored_items(parent: StoredResponse | None) -> Iterator[list[Item]]:
    """Inputs and outputs in turn, from the beginning of the conversation."""
    for step in parent.step.lineage() if parent else ():
        yield parse_json(step.input_items)
        yield parse_json(step.output_items)


def _all_turns(history: HistoryBuilder, new_items: Sequence[Item], instructions: str | None) -> list[Turn]:
    """The current instructions, the stored history, the new input."""
    for index, item in enumerate(new_items):
        history.add(item, join("input", index))
    turns = history.finish()
    if not new_items and not any(turn.role == "user" for turn in turns):
        raise invalid("input", "is required: there is no earlier user query to answer")
    return [Turn("developer", (TextPart(instructions),)), *turns] if instructions else turns


def _deltas(completion: Completion) -> Iterator[Delta]:
    for segment in completion.segments:
        if isinstance(segment, TextSegment):
            yield TextDelta("reasoning" if segment.channel == "reasoning" else "content", segment.text)
        else:
            yield ToolCallDelta(segment.index, segment.name, segment.arguments)
