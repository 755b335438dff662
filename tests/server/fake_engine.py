"""An engine small enough to follow by hand: it plays given tokens through the real output sessions.

One thread, ``max_concurrency`` lanes, a bounded line of waiting requests, prefill in chunks, one token a
round for every lane. A prompt's longest prefix shared with an earlier prompt counts as cached.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ninfer_jax.errors import (
    ContextLengthExceededError,
    EngineUnavailableError,
    NinferError,
    QueueTimeoutError,
    ServerOverloadedError,
)
from ninfer_jax.types import (
    Admitted,
    Event,
    EventSink,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Health,
    ModelInfo,
    Output,
    PrefillProgress,
    Timings,
    Usage,
)

Script = Callable[[GenerationRequest], Iterator[int]]

INFO = ModelInfo("fake-model", max_context=4096, vocab_size=260, architecture="fake", num_parameters=1)
WORDS = ("river", "stone", "green", "seven", "light", "paper", "cloud", "north", "apple", "table")


def babble(request: GenerationRequest) -> Iterator[int]:
    """Endless words, as bytes, that depend on the prompt and, unless greedy, on the seed."""
    key = repr((request.prompt.token_ids, 0 if request.sampling.is_greedy else request.sampling.seed))
    digest = hashlib.sha256(key.encode()).digest()
    index = 0
    while True:
        yield from (WORDS[digest[index % 32] % len(WORDS)] + " ").encode()
        index += 1


def say(text: str, *, end: int | None = 256) -> Script:
    """Always the same text, as bytes, then the end-of-turn token."""
    tokens = [*text.encode(), *([] if end is None else [end])]
    return lambda request: iter(tokens)


@dataclass(eq=False)
class FakeReservation:
    engine: "FakeEngine"
    deadline: float
    request: GenerationRequest | None = None
    sink: EventSink | None = None
    tokens: Iterator[int] = field(default_factory=lambda: iter(()))
    released: bool = False
    cancelled: bool = False
    processed: int = -1
    cached: int = 0
    forced: list[int] = field(default_factory=list)
    completion_tokens: int = 0
    submitted_at: float = 0.0
    admitted_at: float = 0.0
    first_at: float = 0.0

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        self.engine.submit(self, request, sink)

    def cancel(self) -> None:
        self.cancelled = True

    def release(self) -> None:
        self.engine.release(self)


class FakeEngine:
    def __init__(
        self,
        script: Script = babble,
        *,
        info: ModelInfo = INFO,
        max_concurrency: int = 1,
        max_pending: int = 16,
        pending_timeout: float = 30.0,
        round_seconds: float = 0.0,
        prefill_chunk: int = 64,
        prefill_seconds: float = 0.0,
    ) -> None:
        self.script, self._info = script, info
        self.max_concurrency, self.capacity = max_concurrency, max_concurrency + max_pending
        self.pending_timeout = pending_timeout
        self.round_seconds, self.prefill_chunk, self.prefill_seconds = (
            round_seconds,
            prefill_chunk,
            prefill_seconds,
        )
        self.requests: list[GenerationRequest] = []
        self.prompts: list[tuple[int, ...]] = []
        self._reservations: set[FakeReservation] = set()
        self._waiting: list[FakeReservation] = []
        self._running: list[FakeReservation] = []
        self._failure: NinferError | None = None
        self._wake = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    @property
    def info(self) -> ModelInfo:
        return self._info

    def reserve(self) -> FakeReservation:
        with self._wake:
            if self._failure is not None:
                raise EngineUnavailableError("the engine has failed")
            if len(self._reservations) >= self.capacity:
                raise ServerOverloadedError(f"{self.capacity} requests run or wait already")
            reservation = FakeReservation(self, time.monotonic() + self.pending_timeout)
            self._reservations.add(reservation)
            return reservation

    def submit(self, reservation: FakeReservation, request: GenerationRequest, sink: EventSink) -> None:
        if len(request.prompt.token_ids) > self._info.max_context:
            raise ContextLengthExceededError("the prompt does not fit the context")
        if time.monotonic() > reservation.deadline:
            raise QueueTimeoutError("not admitted in time")
        reservation.request, reservation.sink, reservation.submitted_at = request, sink, time.monotonic()
        with self._wake:
            self.requests.append(request)
            self._waiting.append(reservation)
            self._wake.notify()

    def release(self, reservation: FakeReservation) -> None:
        with self._wake:
            reservation.released = True
            self._reservations.discard(reservation)
            self._wake.notify()

    def stats(self) -> dict[str, int]:
        with self._wake:
            return {
                "running": len(self._running),
                "waiting": len(self._waiting),
                "reservations": len(self._reservations),
                "requests_total": len(self.requests),
            }

    def health(self) -> Health:
        return Health(ok=self._failure is None, model_loaded=True)

    def fail(self, error: NinferError) -> None:
        """Every request ends with this error; the engine takes no more."""
        with self._wake:
            self._failure = error
            for reservation in [*self._running, *self._waiting]:
                self._publish(reservation, Failed(error))
            self._running, self._waiting = [], []

    def close(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._wake:
                while not self._stopped and not self._waiting and not self._running:
                    self._wake.wait()
                if self._stopped:
                    return
                self._settle()
                self._admit()
                lanes = list(self._running)
            for reservation in lanes:
                self._step(reservation)
            if self.round_seconds:
                time.sleep(self.round_seconds)
            elif not lanes:
                time.sleep(0.001)

    def _settle(self) -> None:
        self._running = [reservation for reservation in self._running if not reservation.released]
        late = [reservation for reservation in self._waiting if time.monotonic() > reservation.deadline]
        for reservation in late:
            self._publish(reservation, Failed(QueueTimeoutError("not admitted before the deadline")))
        self._waiting = [
            reservation
            for reservation in self._waiting
            if not reservation.released and reservation not in late
        ]

    def _admit(self) -> None:
        if not self._waiting or len(self._running) >= self.max_concurrency:
            return
        reservation = self._waiting.pop(0)
        assert reservation.request is not None
        ids = reservation.request.prompt.token_ids
        reservation.cached = min(
            max((common(ids, old) for old in self.prompts), default=0), max(len(ids) - 1, 0)
        )
        reservation.tokens, reservation.processed = self.script(reservation.request), reservation.cached
        reservation.admitted_at = time.monotonic()
        self.prompts.append(ids)
        self._running.append(reservation)
        self._publish(reservation, Admitted(len(ids), reservation.cached, reservation.admitted_at))
        self._publish(reservation, PrefillProgress(reservation.cached, len(ids), reservation.admitted_at))

    def _step(self, reservation: FakeReservation) -> None:
        request = reservation.request
        assert request is not None
        total = len(request.prompt.token_ids)
        if reservation.processed < total:
            time.sleep(self.prefill_seconds)
            reservation.processed = min(total, reservation.processed + self.prefill_chunk)
            self._publish(reservation, PrefillProgress(reservation.processed, total, time.monotonic()))
            if reservation.processed == total and request.max_output_tokens == 0:
                self._finish(reservation, FinishReason.OUTPUT_LIMIT)
            return None
        if reservation.cancelled:
            return self._finish(reservation, FinishReason.CANCELLED)
        room = min(request.max_output_tokens, self._info.max_context - total) - reservation.completion_tokens
        if room <= 0:
            return self._finish(reservation, self._limit(request, total))
        token = reservation.forced.pop(0) if reservation.forced else next(reservation.tokens)
        preview = request.session.preview([token])
        reservation.forced += preview.force
        kept = [token][: preview.accepted]
        deltas = request.session.commit(kept)
        reservation.completion_tokens += len(kept)
        now = time.monotonic()
        reservation.first_at = reservation.first_at or now
        self._publish(reservation, Output(tuple(kept), deltas, reservation.completion_tokens, now))
        if preview.finish is not None:
            self._finish(reservation, preview.finish)
        elif room == 1:
            self._finish(reservation, self._limit(request, total))
        return None

    def _limit(self, request: GenerationRequest, total: int) -> FinishReason:
        fits = request.max_output_tokens <= self._info.max_context - total
        return FinishReason.OUTPUT_LIMIT if fits else FinishReason.CONTEXT_LIMIT

    def _finish(self, reservation: FakeReservation, reason: FinishReason) -> None:
        assert reservation.request is not None
        session = reservation.request.session
        now = time.monotonic()
        rest = session.finish(reason)
        if rest:
            self._publish(reservation, Output((), rest, reservation.completion_tokens, now))
        summary = session.summary()
        usage = Usage(
            len(reservation.request.prompt.token_ids),
            reservation.cached,
            reservation.completion_tokens,
            summary.reasoning_tokens,
        )
        first = reservation.first_at or now
        timings = Timings(
            queue=reservation.admitted_at - reservation.submitted_at,
            prompt=first - reservation.admitted_at,
            decode=now - first if reservation.completion_tokens > 1 else 0.0,
            total=now - reservation.submitted_at,
        )
        with self._wake:
            if reservation in self._running:
                self._running.remove(reservation)
        self._publish(reservation, Finished(reason, usage, timings, summary))

    @staticmethod
    def _publish(reservation: FakeReservation, event: Event) -> None:
        if reservation.sink is not None and not reservation.released:
            wake = reservation.sink(event)
            if wake is not None:
                wake()


def common(a: Sequence[int], b: Sequence[int]) -> int:
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))


def idle_within(engine: FakeEngine, seconds: float = 60.0) -> bool:
    """Whether the engine gets every reservation back, on a machine however busy."""
    deadline = time.monotonic() + seconds
    while engine.stats()["reservations"]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
