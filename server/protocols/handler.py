"""One handler drives every generation endpoint.

    reserve -> read and parse the body -> builder.prepare -> render -> submit -> stream or fold the events

Everything before ``submit`` may wait, for at most the reservation's deadline, and runs off the event
loop where it is work. The reservation is released in ``finally``: a client that leaves, at any point,
gives its reservation back. Adding a protocol is writing a builder.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from sanic import HTTPResponse, Request

from ninfer_jax.errors import NinferError, QueueTimeoutError, ServerOverloadedError
from ninfer_jax.observe.requests import Rejection, RequestObserver, RequestShape
from ninfer_jax.server import sse
from ninfer_jax.server.body import parse_body, read_body
from ninfer_jax.server.channel import EventChannel
from ninfer_jax.server.completion import Completion
from ninfer_jax.server.doorbell import Doorbell
from ninfer_jax.server.errors import ErrorFamily, family_of, public
from ninfer_jax.server.http import json_response
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.server.protocols.base import BuilderFactory, ResponseBuilder
from ninfer_jax.server.protocols.lowering import lower, shape_of
from ninfer_jax.server.protocols.request import RequestContext
from ninfer_jax.server.request_ids import client_request_id_of, request_id_of
from ninfer_jax.server.resident import Resident, ServedModel
from ninfer_jax.server.streaming import SseStream
from ninfer_jax.types import Admitted, Event, Failed, Finished, GenerationRequest

logger = logging.getLogger(__name__)

MAX_COUNTING = 16

T = TypeVar("T")


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
        observer: RequestObserver | None = None,
        heartbeat: float = sse.HEARTBEAT_SECONDS,
    ) -> None:
        self._resident = resident
        self._options = options
        self._sources = sources
        self._workers = workers
        self._observer = observer
        self._heartbeat = heartbeat
        self._num_counting = 0

    async def generate(self, request: Request, factory: BuilderFactory) -> HTTPResponse | None:
        """Run one generation request to its last byte. Errors before the first byte are raised."""
        received_at = time.monotonic()
        model = self._resident.admit()
        reservation = model.engine.reserve()
        channel = EventChannel(self._doorbell)
        self._resident.enter(channel)
        try:
            builder = factory(self._context(request, model))
            raw = await read_body(request, self._options.max_request_bytes, reservation.deadline)
            job = _Preparation(builder, family_of(request.path), self._observer, received_at)
            generation = await self._work(lambda: job.run(raw), reservation.deadline)
            with job.rejections():
                job.announce()
                reservation.submit(generation, channel.put)
            if job.stream:
                await self._stream(request, builder, channel)
            else:
                await self._aggregate(request, builder, channel)
        finally:
            self._resident.leave(channel)
            reservation.release()
        return None

    @cached_property
    def _doorbell(self) -> Doorbell:
        """All requests' own; made in the first one, when the loop runs."""
        return Doorbell(asyncio.get_running_loop())

    async def compute(
        self, request: Request, function: Callable[[RequestContext, Mapping[str, Any]], Mapping[str, Any]]
    ) -> HTTPResponse:
        """Answer with ``function(context, body)``, run on a worker thread; for token counts.

        Reserves nothing in the engine; at most ``MAX_COUNTING`` such requests exist at once.
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

    def _context(self, request: Request, model: ServedModel) -> RequestContext:
        return RequestContext(
            request_id=request_id_of(request),
            created=int(self._sources.now()),
            new_id=self._sources.new_id,
            new_seed=self._sources.new_seed,
            model_id=self._options.model_id or model.engine.info.model_id,
            info=model.engine.info,
            frontend=model.frontend,
            options=self._options,
            client_request_id=client_request_id_of(request),
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


class _Preparation:
    """From a raw body to a generation request; tells the observer how that went."""

    def __init__(
        self,
        builder: ResponseBuilder,
        family: ErrorFamily,
        observer: RequestObserver | None,
        received_at: float,
    ) -> None:
        self._builder = builder
        self._family = family
        self._observer = observer
        self._received_at = received_at
        self._shape: RequestShape | None = None
        self.stream = False

    def run(self, raw: bytearray) -> GenerationRequest:
        builder = self._builder
        prepared = builder.prepare(parse_body(raw))
        self.stream = prepared.stream
        self._shape = shape_of(builder.protocol, builder.context, prepared)
        if prepared.ignored:
            logger.info("request %s: ignored %s", builder.context.request_id, ", ".join(prepared.ignored))
        with self.rejections():
            return lower(builder.context, prepared)

    def announce(self) -> None:
        """Tell the observer, with nothing between this and the submission that could lose the request."""
        if self._observer is not None:
            assert self._shape is not None, "announced before it was prepared"
            self._observer.prepared(self._builder.context.request_id, self._shape, self._received_at)

    @contextmanager
    def rejections(self) -> Iterator[None]:
        """Report a refusal of a request whose body was understood."""
        try:
            yield
        except NinferError as error:
            if self._observer is not None and self._shape is not None:
                status, kind = self._family.kind(error)
                rejection = Rejection(status, kind, error)
                request_id = self._builder.context.request_id
                self._observer.rejected(request_id, self._shape, self._received_at, rejection)
            raise
