"""The engine as the server sees it: reservations, submission, statistics, health, drain and shutdown."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ninfer_jax.cache import KVCache
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.accounting import HostClock
from ninfer_jax.engine.board import FaultPoint, Services
from ninfer_jax.engine.executor import Executor
from ninfer_jax.engine.lifetime import EngineReservation, Lifetime
from ninfer_jax.engine.observer import EngineObserver, GuardedObserver, NullObserver
from ninfer_jax.engine.outbox import Outbox
from ninfer_jax.engine.request import EngineRequest, effective_output, entitlement_of
from ninfer_jax.engine.scheduler import Scheduler
from ninfer_jax.engine.thread import EngineThread
from ninfer_jax.errors import (
    ContextLengthExceededError,
    EngineUnavailableError,
    InvalidPromptError,
    InvalidRequestError,
    QueueTimeoutError,
)
from ninfer_jax.types import EventSink, GenerationRequest, Health, ModelInfo, PreparedPrompt, Reservation


class HostEngine:
    """One resident model behind a thread. Implements ``Engine``.

    ``executor`` and ``cache`` belong to the engine thread from here on. ``on_failure`` is called once,
    on that thread, when the engine as a whole has failed; every request has ended by then.
    """

    def __init__(
        self,
        info: ModelInfo,
        executor: Executor,
        cache: KVCache,
        config: EngineConfig,
        *,
        observer: EngineObserver | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
        now: Callable[[], float] = time.monotonic,
        fault: FaultPoint | None = None,
        check_when_idle: bool = False,
    ) -> None:
        self._info = info
        self._config = config
        self._now = now
        self._lifetime = Lifetime(config.max_concurrency + config.max_pending_requests)
        self._ids = itertools.count(1)
        self._ids_lock = threading.Lock()
        self._observer = GuardedObserver(observer or NullObserver(), now)
        services = Services(
            executor=executor,
            cache=cache,
            clock=HostClock(),
            now=now,
            observer=self._observer,
            outbox=Outbox(self._observer),
            max_concurrency=config.max_concurrency,
            prefill_chunk=config.prefill_chunk,
            fault=fault,
        )
        self.scheduler = Scheduler(services)
        self.thread = EngineThread(self.scheduler, on_failure, check_when_idle=check_when_idle)

    @property
    def info(self) -> ModelInfo:
        return self._info

    def start(self) -> None:
        """Begin to serve; the executor must be warm."""
        self.thread.start()

    def reserve(self) -> Reservation:
        if self.thread.is_closed:
            raise EngineUnavailableError("the engine has stopped")
        deadline = self._now() + self._config.pending_timeout
        return EngineReservation(self._lifetime, deadline, self._submit, self.thread.wake)

    def _submit(
        self, reservation: EngineReservation, request: GenerationRequest, sink: EventSink
    ) -> EngineRequest:
        now = self._now()
        if now >= reservation.deadline:
            raise QueueTimeoutError("the request was not admitted before its deadline")
        self._check_prompt(request.prompt)
        if request.max_output_tokens < 0:
            raise InvalidRequestError("the output limit must be at least 0", field="max_tokens")
        prompt_len = len(request.prompt.token_ids)
        output, reason = effective_output(request.max_output_tokens, prompt_len, self._config.max_context)
        entitlement = entitlement_of(prompt_len, output)
        if not self.scheduler.board.ledger.is_possible(entitlement):
            raise ContextLengthExceededError(
                f"the request needs {entitlement.main_pages} KV pages, "
                f"the cache has {self.scheduler.board.ledger.capacity.main_pages}"
            )
        with self._ids_lock:
            tracked = EngineRequest(
                id=next(self._ids),
                spec=request,
                sink=sink,
                entitlement=entitlement,
                effective_output=output,
                limit_reason=reason,
                deadline=reservation.deadline,
                submitted_at=now,
                post=self.scheduler.services.outbox.post,
                on_end=reservation.ended,
            )
            self.thread.post(tracked)
        return tracked

    def _check_prompt(self, prompt: PreparedPrompt) -> None:
        ids = prompt.token_ids
        if not ids:
            raise InvalidPromptError("the prompt has no tokens")
        if len(ids) > self._config.max_context:
            raise ContextLengthExceededError(
                f"the prompt has {len(ids)} tokens, the context holds {self._config.max_context}"
            )
        if min(ids) < 0 or max(ids) >= self._info.vocab_size:
            raise InvalidPromptError(f"token ids must lie in 0..{self._info.vocab_size - 1}")
        rows = (*(prompt.positions or ()), *((prompt.token_types,) if prompt.token_types else ()))
        if any(len(row) != len(ids) for row in rows):
            raise InvalidPromptError("token types and positions must be as long as the token ids")

    def stats(self) -> Mapping[str, Any]:
        """The state after the last boundary. ``counters`` and ``gauges`` by name, ``host_work`` in
        seconds, ``capacity`` as resolved at start-up. ``observer_failures`` counts calls of metrics and
        logs that raised."""
        published = self.scheduler.board.published
        return {
            **published.book.render(),
            "host_work": published.host.render(),
            "outstanding": self._lifetime.outstanding,
            "observer_failures": self._observer.failures,
            "capacity": {
                "outstanding": self._lifetime.capacity,
                "max_concurrency": self._config.max_concurrency,
                "max_context": self._config.max_context,
                "main_pages": self.scheduler.services.cache.capacity,
                "device_state_slots": self._config.device_state_slots,
                "total_device_state_slots": self._config.num_slots,
                "kv_bytes": self.scheduler.services.cache.storage.num_bytes,
            },
        }

    def health(self) -> Health:
        return Health(ok=self.thread.is_running, model_loaded=True)

    def drain(self, timeout: float | None = None) -> bool:
        """Reserve nothing any more and wait until every reservation has come back; whether all did."""
        self._lifetime.close()
        return self._lifetime.wait_empty(timeout)

    def shutdown(self) -> None:
        """Fail what still runs, then end the thread. May be called more than once, from any thread."""
        self._lifetime.close()
        self.thread.stop()
