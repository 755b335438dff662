"""One handler drives every generation endpoint; a protocol is one :class:`ResponseBuilder`.

    reserve -> read and parse the body -> builder.prepare -> submit -> stream or fold the events

Everything before ``submit`` may wait, for at most the reservation's deadline, and runs off the event
loop where it is work. The reservation is released in ``finally``: a client that leaves, at any point,
frees its place. Adding a protocol is writing a builder.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from sanic import HTTPResponse, Request

from ninfer_jax.errors import QueueTimeoutError, ServerOverloadedError
from ninfer_jax.server import sse
from ninfer_jax.server.body import parse_body, read_body
from ninfer_jax.server.channel import EventChannel
from ninfer_jax.server.completion import Completion
from ninfer_jax.server.errors import public
from ninfer_jax.server.frontend import Frontend
from ninfer_jax.server.http import json_response
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.server.request_ids import request_id_of
from ninfer_jax.server.resident import LoadedModel, Resident
from ninfer_jax.server.streaming import SseStream
from ninfer_jax.types import (
    Admitted,
    Event,
    Failed,
    Finished,
    GenerationRequest,
    ModelInfo,
    Output,
    PrefillProgress,
)

logger = logging.getLogger(__name__)

MAX_COUNTING = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """All that a builder knows of the world; nothing in it reads a clock or the network."""

    request_id: str
    created: int
    """Unix seconds when the request arrived."""
    new_id: Callable[[str], str]
    """``new_id("chatcmpl-")`` gives a fresh ``chatcmpl-...``."""
    new_seed: Callable[[], int]
    model_id: str
    """The public model id."""
    info: ModelInfo
    frontend: Frontend
    options: ServeOptions


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """What ``prepare`` makes of a body."""

    generation: GenerationRequest
    stream: bool = False
    ignored: tuple[str, ...] = ()
    """Hints that ``--lenient-api`` dropped; the request's log line names them."""


class ResponseBuilder(ABC):
    """One request's translation: a body to a generation request, events to protocol objects.

    Made for one request and used by one thread at a time. ``prepare`` runs first, on a worker thread;
    then either ``format_response`` or the stream methods, in this order: ``format_stream_start`` once,
    ``format_chunk`` for each event, ``format_stream_end`` once, or ``format_stream_error`` at any point.
    """

    def __init__(self, context: RequestContext) -> None:
        self.context = context

    @abstractmethod
    def prepare(self, body: Mapping[str, Any]) -> PreparedRequest:
        """Validate, lower and render. Raises RequestError for what the client got wrong."""

    @abstractmethod
    def format_stream_start(self, event: Admitted) -> Iterable[sse.Frame]:
        """Frames due when the engine has admitted the request."""

    @abstractmethod
    def format_chunk(self, event: PrefillProgress | Output) -> Iterable[sse.Frame]: ...

    @abstractmethod
    def format_stream_end(self, event: Finished) -> Iterable[sse.Frame]: ...

    @abstractmethod
    def format_stream_error(self, error: BaseException) -> Iterable[sse.Frame]:
        """Frames that end a stream whose status line is already out; may come before the start."""

    @abstractmethod
    def format_response(self, completion: Completion) -> Mapping[str, Any]:
        """The aggregate body, from a completion whose ``admitted`` and ``finished`` are set."""


BuilderFactory = Callable[[RequestContext], ResponseBuilder]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a process takes time and identity from; tests pass their own."""

    now: Callable[[], float]
    new_id: Callable[[str], str]
    new_seed: Callable[[], int]


class ProtocolHandler:
    """Runs requests of any protocol against the resident model. One for the whole app."""

    def __init__(
        self,
        resident: Resident,
        options: ServeOptions,
        sources: Sources,
        workers: ThreadPoolExecutor,
        *,
        heartbeat: float = sse.HEARTBEAT_SECONDS,
    ) -> None:
        self._resident = resident
        self._options = options
        self._sources = sources
        self._workers = workers
        self._heartbeat = heartbeat
        self._num_counting = 0

    async def generate(self, request: Request, factory: BuilderFactory) -> HTTPResponse | None:
        """Run one generation request to its last byte. Errors before the first byte are raised."""
        model = self._resident.admit()
        reservation = model.engine.reserve()
        channel = EventChannel(asyncio.get_running_loop())
        self._resident.enter(channel)
        try:
            builder = factory(self._context(request, model))
            raw = await read_body(request, self._options.max_request_bytes, reservation.deadline)
            prepared = await self._work(lambda: builder.prepare(parse_body(raw)), reservation.deadline)
            reservation.submit(prepared.generation, channel.put)
            if prepared.stream:
                await self._stream(request, builder, channel)
            else:
                await self._aggregate(request, builder, channel)
        finally:
            self._resident.leave(channel)
            reservation.release()
        return None

    async def compute(
        self, request: Request, function: Callable[[RequestContext, Mapping[str, Any]], Mapping[str, Any]]
    ) -> HTTPResponse:
        """Answer with ``function(context, body)``, run on a worker thread; for token counts.

        Takes no engine place; at most ``MAX_COUNTING`` such requests exist at once.
        """
        model = self._resident.admit()
        if self._num_counting >= MAX_COUNTING:
            raise ServerOverloadedError(f"{MAX_COUNTING} token counts are already running; try again")
        self._num_counting += 1
        try:
            deadline = time.monotonic() + self._options.pending_timeout_ms / 1000
            context = self._context(request, model)
            raw = await read_body(request, self._options.max_request_bytes, deadline)
            answer = await self._work(lambda: function(context, parse_body(raw)), deadline)
        finally:
            self._num_counting -= 1
        return json_response(answer)

    async def _work(self, function: Callable[[], T], deadline: float) -> T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await loop.run_in_executor(self._workers, function)
        except TimeoutError:
            raise QueueTimeoutError("the request was not prepared before its deadline; try again") from None

    async def _aggregate(self, request: Request, builder: ResponseBuilder, channel: EventChannel) -> None:
        completion = Completion()
        while completion.finished is None:
            event = await channel.get()
            if isinstance(event, Failed):
                raise event.error
            if event is not None:
                completion.add(event)
        response = await request.respond(json_response(builder.format_response(completion)))
        await response.send(end_stream=True)

    async def _stream(self, request: Request, builder: ResponseBuilder, channel: EventChannel) -> None:
        """Headers wait for admission, or for the first heartbeat: an error before is a proper status."""
        event = await channel.get(self._heartbeat)
        if isinstance(event, Failed):
            raise event.error
        stream = await SseStream.open(request)
        try:
            while not isinstance(event, Finished | Failed):
                await stream.write(sse.HEARTBEAT if event is None else encode_event(builder, event))
                event = await channel.get(stream.last_write + self._heartbeat - time.monotonic())
            last = encode_event(builder, event)
        except Exception as error:
            logger.exception("request %s: its stream could not be written", builder.context.request_id)
            last = encode_event(builder, Failed(public(error)))
        await stream.end(last)

    def _context(self, request: Request, model: LoadedModel) -> RequestContext:
        return RequestContext(
            request_id=request_id_of(request),
            created=int(self._sources.now()),
            new_id=self._sources.new_id,
            new_seed=self._sources.new_seed,
            model_id=self._options.model_id or model.engine.info.model_id,
            info=model.engine.info,
            frontend=model.frontend,
            options=self._options,
        )


def encode_event(builder: ResponseBuilder, event: Event) -> bytes:
    """The bytes a stream sends for one event; often none."""
    match event:
        case Admitted():
            frames = builder.format_stream_start(event)
        case Finished():
            frames = builder.format_stream_end(event)
        case Failed():
            frames = builder.format_stream_error(event.error)
        case _:
            frames = builder.format_chunk(event)
    return b"".join(map(sse.encode, frames))
