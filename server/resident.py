"""The one model behind the server, from before it is loaded until after it has failed."""

import threading
from dataclasses import dataclass

from ninfer_jax.errors import EngineUnavailableError
from ninfer_jax.server.channel import EventChannel
from ninfer_jax.server.frontend import Frontend
from ninfer_jax.types import Engine, Failed, Health


@dataclass(frozen=True, slots=True)
class ServedModel:
    """An engine that is warm and the text side that belongs to it."""

    engine: Engine
    frontend: Frontend


class Resident:
    """What routes ask for the model. It may still be loading; it may be leaving."""

    def __init__(self) -> None:
        self._model: ServedModel | None = None
        self._draining = False
        self._running: set[EventChannel] = set()
        self._lock = threading.Lock()

    def attach(self, engine: Engine, frontend: Frontend) -> None:
        """The model is ready; from any thread."""
        self._model = ServedModel(engine, frontend)

    def model(self) -> ServedModel:
        """Raises EngineUnavailableError while the model loads."""
        if self._model is None:
            raise EngineUnavailableError("the model is still loading", code="model_loading")
        return self._model

    def admit(self) -> ServedModel:
        """The model for new work. Raises EngineUnavailableError while loading and while draining."""
        if self._draining:
            raise self._leaving()
        return self.model()

    def health(self) -> Health:
        if self._model is None:
            return Health(ok=False, model_loaded=False)
        health = self._model.engine.health()
        return Health(health.ok and not self._draining, health.model_loaded)

    def drain(self) -> None:
        """Take no new work; what runs may finish."""
        self._draining = True

    def end_running(self) -> None:
        """Give every running request a terminal error, so its stream ends in form."""
        with self._lock:
            channels = list(self._running)
        for wake in {channel.put(Failed(self._leaving())) for channel in channels}:
            if wake is not None:
                wake()

    def enter(self, channel: EventChannel) -> None:
        with self._lock:
            self._running.add(channel)

    def leave(self, channel: EventChannel) -> None:
        with self._lock:
            self._running.discard(channel)

    @property
    def num_running(self) -> int:
        with self._lock:
            return len(self._running)

    @staticmethod
    def _leaving() -> EngineUnavailableError:
        return EngineUnavailableError("the server is shutting down", code="server_shutting_down")
