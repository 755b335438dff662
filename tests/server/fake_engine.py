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
        self._places: set[FakeReservation] = set()
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
            if len(self._places) >= self.capacity:
                raise ServerOverloadedError(f"all {self.capacity} places are taken")
            place = FakeReservation(self, time.monotonic() + self.pending_timeout)
            self._places.add(place)
            return place

    def submit(self, place: FakeReservation, request: GenerationRequest, sink: EventSink) -> None:
        if len(request.prompt.token_ids) > self._info.max_context:
            raise ContextLengthExceededError("the prompt does not fit the context")
        if time.monotonic() > place.deadline:
            raise QueueTimeoutError("not admitted in time")
        place.request, place.sink, place.submitted_at = request, sink, time.monotonic()
        with self._wake:
            self.requests.append(request)
            self._waiting.append(place)
            self._wake.notify()

    def release(self, place: FakeReservation) -> None:
        with self._wake:
            place.released = True
            self._places.discard(place)
            self._wake.notify()

    def stats(self) -> dict[str, int]:
        with self._wake:
            return {
                "running": len(self._running),
                "waiting": len(self._waiting),
                "places": len(self._places),
                "requests_total": len(self.requests),
            }

    def health(self) -> Health:
        return Health(ok=self._failure is None, model_loaded=True)

    def fail(self, error: NinferError) -> None:
        """Every request ends with this error; the engine takes no more."""
        with self._wake:
            self._failure = error
            for place in [*self._running, *self._waiting]:
                self._publish(place, Failed(error))
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
            for place in lanes:
                self._step(place)
            if self.round_seconds:
                time.sleep(self.round_seconds)
            elif not lanes:
                time.sleep(0.001)

    def _settle(self) -> None:
        self._running = [place for place in self._running if not place.released]
        late = [place for place in self._waiting if time.monotonic() > place.deadline]
        for place in late:
            self._publish(place, Failed(QueueTimeoutError("not admitted before the deadline")))
        self._waiting = [place for place in self._waiting if not place.released and place not in late]

    def _admit(self) -> None:
        if not self._waiting or len(self._running) >= self.max_concurrency:
            return
        place = self._waiting.pop(0)
        assert place.request is not None
        ids = place.request.prompt.token_ids
        place.cached = min(max((common(ids, old) for old in self.prompts), default=0), max(len(ids) - 1, 0))
        place.tokens, place.processed = self.script(place.request), place.cached
        place.admitted_at = time.monotonic()
        self.prompts.append(ids)
        self._running.append(place)
        self._publish(place, Admitted(len(ids), place.cached, place.admitted_at))
        self._publish(place, PrefillProgress(place.cached, len(ids), place.admitted_at))

    def _step(self, place: FakeReservation) -> None:
        request = place.request
        assert request is not None
        total = len(request.prompt.token_ids)
        if place.processed < total:
            time.sleep(self.prefill_seconds)
            place.processed = min(total, place.processed + self.prefill_chunk)
            self._publish(place, PrefillProgress(place.processed, total, time.monotonic()))
            if place.processed == total and request.max_output_tokens == 0:
                self._finish(place, FinishReason.OUTPUT_LIMIT)
            return None
        if place.cancelled:
            return self._finish(place, FinishReason.CANCELLED)
        room = min(request.max_output_tokens, self._info.max_context - total) - place.completion_tokens
        if room <= 0:
            return self._finish(place, self._limit(request, total))
        token = place.forced.pop(0) if place.forced else next(place.tokens)
        preview = request.session.preview([token])
        place.forced += preview.force
        kept = [token][: preview.accepted]
        deltas = request.session.commit(kept)
        place.completion_tokens += len(kept)
        now = time.monotonic()
        place.first_at = place.first_at or now
        self._publish(place, Output(tuple(kept), deltas, place.completion_tokens, now))
        if preview.finish is not None:
            self._finish(place, preview.finish)
        elif room == 1:
            self._finish(place, self._limit(request, total))
        return None

    def _limit(self, request: GenerationRequest, total: int) -> FinishReason:
        fits = request.max_output_tokens <= self._info.max_context - total
        return FinishReason.OUTPUT_LIMIT if fits else FinishReason.CONTEXT_LIMIT

    def _finish(self, place: FakeReservation, reason: FinishReason) -> None:
        assert place.request is not None
        session = place.request.session
        now = time.monotonic()
        rest = session.finish(reason)
        if rest:
            self._publish(place, Output((), rest, place.completion_tokens, now))
        summary = session.summary()
        usage = Usage(
            len(place.request.prompt.token_ids),
            place.cached,
            place.completion_tokens,
            summary.reasoning_tokens,
        )
        first = place.first_at or now
        timings = Timings(
            queue=place.admitted_at - place.submitted_at,
            prompt=first - place.admitted_at,
            decode=now - first if place.completion_tokens > 1 else 0.0,
            total=now - place.submitted_at,
        )
        with self._wake:
            if place in self._running:
                self._running.remove(place)
        self._publish(place, Finished(reason, usage, timings, summary))

    @staticmethod
    def _publish(place: FakeReservation, event: Event) -> None:
        if place.sink is not None and not place.released:
            wake = place.sink(event)
            if wake is not None:
                wake()


def common(a: Sequence[int], b: Sequence[int]) -> int:
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))


def idle_within(engine: FakeEngine, seconds: float = 60.0) -> bool:
    """Whether the engine gets every place back, on a machine however busy."""
    deadline = time.monotonic() + seconds
    while engine.stats()["places"]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
