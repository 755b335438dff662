"""A protocol is one :class:`ResponseBuilder`: pure translation, with no HTTP, engine or clock inside."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from ninfer_jax.server.completion import Completion
from ninfer_jax.server.protocols.request import PreparedRequest, RequestContext
from ninfer_jax.server.sse import Frame
from ninfer_jax.types import Admitted, Finished, Output, PrefillProgress


class ResponseBuilder(ABC):
    """One request's translation: a body to a prepared request, events to protocol objects.

    Made for one request and used by one thread at a time. ``prepare`` runs first, on a worker thread;
    then either ``format_response`` or the stream methods, in this order: ``format_stream_start`` once,
    ``format_chunk`` for each event, ``format_stream_end`` once, or ``format_stream_error`` at any point.
    """

    protocol: ClassVar[str]
    """Its name in the request log."""

    def __init__(self, context: RequestContext) -> None:
        self.context = context

    @abstractmethod
    def prepare(self, body: Mapping[str, Any]) -> PreparedRequest:
        """Validate and lower. Raises RequestError for what the client got wrong."""

    @abstractmethod
    def format_stream_start(self, event: Admitted) -> Iterable[Frame]:
        """Frames due when the engine has admitted the request."""

    @abstractmethod
    def format_chunk(self, event: PrefillProgress | Output) -> Iterable[Frame]: ...

    @abstractmethod
    def format_stream_end(self, event: Finished) -> Iterable[Frame]: ...

    @abstractmethod
    def format_stream_error(self, error: BaseException) -> Iterable[Frame]:
        """Frames that end a stream whose status line is already out; may come before the start."""

    @abstractmethod
    def format_response(self, completion: Completion) -> Mapping[str, Any]:
        """The aggregate body, from a completion whose ``admitted`` and ``finished`` are set."""


BuilderFactory = Callable[[RequestContext], ResponseBuilder]
