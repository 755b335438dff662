"""Our engine as a target, without HTTP and without text: the host loop and the compiled programs."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ninfer_jax.cli.bench_target import Job, Trace, own_peak_memory, random_tokens
from ninfer_jax.config import PAGE_SIZE, EngineConfig
from ninfer_jax.errors import NinferError
from ninfer_jax.types import (
    Delta,
    Engine,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Output,
    OutputSummary,
    PreparedPrompt,
    Preview,
    SamplingParams,
)

GREEDY = SamplingParams(temperature=0.0)
WAIT_TIMEOUT = 600.0


class UnendingSession:
    """An output session that decodes nothing and never stops: every job runs to its limit."""

    def preview(self, token_ids: Sequence[int]) -> Preview:
        return Preview(accepted=len(token_ids))

    def commit(self, token_ids: Sequence[int]) -> tuple[Delta, ...]:
        return ()

    def finish(self, reason: FinishReason) -> tuple[Delta, ...]:
        return ()

    def summary(self) -> OutputSummary:
        return OutputSummary()


class _Recorder:
    """Collects one job's token times from the engine thread."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.counts: list[int] = []
        self.error: NinferError | None = None
        self.ended = threading.Event()

    def __call__(self, event: Event) -> None:
        match event:
            case Output():
                self.times.append(event.at)
                self.counts.append(event.completion_tokens)
            case Finished():
                self.ended.set()
            case Failed():
                self.error = event.error
                self.ended.set()


class EngineTarget:
    """Any :class:`Engine`, warm and running. ``shutdown`` ends it."""

    def __init__(self, engine: Engine, shutdown: Callable[[], None], *, name: str = "ninfer-jax") -> None:
        self.name = name
        self._engine = engine
        self._shutdown = shutdown
        self._num_requests = 0

    def run(self, jobs: Sequence[Job]) -> list[Trace]:
        recorders = [_Recorder() for _ in jobs]
        requests = [self._request(job) for job in jobs]
        reservations = [self._engine.reserve() for _ in jobs]
        try:
            starts = []
            for reservation, request, recorder in zip(reservations, requests, recorders, strict=True):
                starts.append(time.monotonic())
                reservation.submit(request, recorder)
            for recorder in recorders:
                if not recorder.ended.wait(WAIT_TIMEOUT):
                    raise NinferError(f"bench: a job did not end within {WAIT_TIMEOUT:.0f} s")
                if recorder.error is not None:
                    raise recorder.error
        finally:
            for reservation in reservations:
                reservation.release()
        return [
            Trace(job.prompt_tokens, start, tuple(recorder.times), tuple(recorder.counts))
            for job, start, recorder in zip(jobs, starts, recorders, strict=True)
        ]

    def peak_memory(self) -> int | None:
        return own_peak_memory()

    def kv_bytes_per_token(self) -> int:
        """What all layers keep for one token."""
        capacity = self._engine.stats()["capacity"]
        pages = capacity["main_pages"] + 1  # and the null page
        kv_bytes: int = capacity["kv_bytes"] // (pages * PAGE_SIZE)
        return kv_bytes

    def close(self) -> None:
        self._shutdown()

    def _request(self, job: Job) -> GenerationRequest:
        self._num_requests += 1
        return GenerationRequest(
            request_id=f"bench-{self._num_requests}",
            prompt=PreparedPrompt(tuple(random_tokens(job, self._engine.info.vocab_size))),
            sampling=GREEDY,
            max_output_tokens=job.output_tokens,
            session=UnendingSession(),
            publish_session=False,
        )


def open_engine(path: Path, config: EngineConfig, name: str) -> EngineTarget:
    """Load a model and warm an engine; jax is imported here, in the target's own process."""
    from ninfer_jax.artifact.loader import load
    from ninfer_jax.engine.build import build_engine

    engine = build_engine(load(path, weights=config.weights), config)
    return EngineTarget(engine, engine.shutdown, name=name)
