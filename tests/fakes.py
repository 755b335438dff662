"""Hand-computable stand-ins: a device whose KV pages hold the tokens themselves, and text-free sessions.

The fake device draws each token as a function of the whole history it can read back from its pages.
A page that holds anything but the right tokens therefore shows up as a wrong output token, and most
mistakes are caught earlier, by an assertion at the unit that made them.
"""

import threading
import zlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ninfer_jax.cache import ContiguousCache, KVCache, PageCache, RootOnlyPolicy, Storage
from ninfer_jax.config import NULL_PAGE, PAGE_SIZE, EngineConfig, pages_for
from ninfer_jax.engine.executor import LaneBinding
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.types import (
    Admitted,
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    ModelInfo,
    Output,
    OutputSummary,
    PrefillProgress,
    PreparedPrompt,
    Preview,
    SamplingParams,
    TextDelta,
)

VOCAB = 1000


def next_token(history: Sequence[int], seed: int = 0) -> int:
    """What the fake device draws after ``history``."""
    return zlib.crc32(array("i", history).tobytes(), seed) % VOCAB


def expected_output(prompt: Sequence[int], num_tokens: int, seed: int = 0) -> list[int]:
    """A lone run from nothing, by definition."""
    history = list(prompt)
    for _ in range(num_tokens):
        history.append(next_token(history, seed))
    return history[len(prompt) :]


@dataclass
class FakeLane:
    binding: LaneBinding
    history: list[int]
    counted: list[int] = field(default_factory=list)
    """Output tokens seen by the penalties."""


class FakePending:
    def __init__(self, tokens: list[int], before: Callable[[], None] | None = None) -> None:
        self._tokens = tokens
        self._before = before

    def wait(self) -> NDArray[np.int32]:
        if self._before is not None:
            self._before()
        return np.array(self._tokens, np.int32)


class FakeExecutor:
    """Implements ``Executor``. ``during_wait`` runs inside every ``Pending.wait``; ``units`` records
    each unit as (name, lanes)."""

    def __init__(self, num_lanes: int, num_pages: int, num_slots: int | None = None) -> None:
        self.num_lanes = num_lanes
        self.images: list[list[int]] = [[] for _ in range(num_slots or num_lanes)]
        """A state image is the tokens it has seen."""
        self.pages: list[list[int]] = [[-1] * PAGE_SIZE for _ in range(num_pages + 1)]
        self.lanes: dict[int, FakeLane] = {}
        self.units: list[tuple[str, tuple[int, ...]]] = []
        self.during_wait: Callable[[], None] | None = None
        self.on_release: Callable[[int, FakeLane], None] | None = None

    def bind(self, lane: int, binding: LaneBinding) -> None:
        assert 0 <= lane < self.num_lanes, f"no lane {lane}"
        assert lane not in self.lanes, f"lane {lane} is bound already"
        assert NULL_PAGE not in binding.pages, "the null page belongs to nobody"
        assert len(set(binding.pages)) == len(binding.pages), "a page twice in one table"
        assert binding.start < binding.prompt_len, "a hit must leave a token to compute"
        for other in self.lanes.values():
            unfinished = other.binding.pages[len(other.history) // PAGE_SIZE :]
            own = binding.pages[binding.start // PAGE_SIZE :]
            assert not set(own) & set(other.binding.pages), "a page to be written is held by another lane"
            assert not set(unfinished) & set(binding.pages), "a page that is still written is shared"
        assert all(other.binding.slot != binding.slot for other in self.lanes.values()), "two write one slot"
        if binding.tail_page is not None:
            self.pages[binding.pages[binding.start // PAGE_SIZE]] = list(self.pages[binding.tail_page])
        history = [self._read(binding.pages, ordinal) for ordinal in range(binding.start)]
        assert -1 not in history, "reused a page that was never written"
        assert binding.image is None or self.images[binding.image] == history, "another prompt's state"
        self.images[binding.slot] = list(history)
        self.lanes[lane] = FakeLane(binding, history)

    def release(self, lane: int) -> None:
        state = self.lanes.pop(lane)
        if self.on_release is not None:
            self.on_release(lane, state)

    def prefill(
        self,
        lane: int,
        token_ids: Sequence[int],
        start: int,
        *,
        positions: Sequence[Sequence[int]] | None = None,
        is_output: bool = False,
        sample: bool = False,
    ) -> FakePending:
        assert len(token_ids) > 0, "an empty unit makes no progress"
        state = self.lanes[lane]
        self.units.append(("control" if is_output else "prefill", (lane,)))
        for offset, token in enumerate(token_ids):
            self._write(lane, token, start + offset)
        if is_output:
            state.counted.extend(token_ids)
        self._check_lane(lane)
        return FakePending([self._draw(state)] if sample else [], self.during_wait)

    def decode(self, lanes: Sequence[int], token_ids: Sequence[int], frontiers: Sequence[int]) -> FakePending:
        assert 0 < len(lanes) <= self.num_lanes, "an empty round"
        assert len(set(lanes)) == len(lanes) == len(token_ids) == len(frontiers)
        self.units.append(("decode", tuple(lanes)))
        drawn = []
        for lane, token, frontier in zip(lanes, token_ids, frontiers, strict=True):
            self._write(lane, token, frontier)
            self._check_lane(lane)
            self.lanes[lane].counted.append(token)
            drawn.append(self._draw(self.lanes[lane]))
        return FakePending(drawn, self.during_wait)

    def capture(self, lane: int, slot: int) -> None:
        assert all(state.binding.slot != slot for state in self.lanes.values()), "captured over a lane"
        self.images[slot] = list(self.images[self.lanes[lane].binding.slot])

    def _read(self, pages: Sequence[int], ordinal: int) -> int:
        return self.pages[pages[ordinal // PAGE_SIZE]][ordinal % PAGE_SIZE]

    def _write(self, lane: int, token: int, ordinal: int) -> None:
        state = self.lanes[lane]
        assert ordinal == len(state.history), f"lane {lane}: wrote {ordinal}, not {len(state.history)}"
        assert ordinal >= state.binding.start, "wrote below the reused prefix"
        page = state.binding.pages[ordinal // PAGE_SIZE]
        holders = [other for other, held in self.lanes.items() if page in held.binding.pages]
        assert holders == [lane], f"page {page} is written by lane {lane} and held by {holders}"
        self.pages[page][ordinal % PAGE_SIZE] = token
        state.history.append(token)
        self.images[state.binding.slot].append(token)

    def _check_lane(self, lane: int) -> None:
        """Everything that attention would read is what the lane wrote or reused."""
        state = self.lanes[lane]
        assert self.images[state.binding.slot] == state.history, f"lane {lane}: its state was overwritten"
        for index in range(pages_for(len(state.history))):
            block = state.history[index * PAGE_SIZE : (index + 1) * PAGE_SIZE]
            page = self.pages[state.binding.pages[index]]
            assert page[: len(block)] == block, f"lane {lane}: page {index} was overwritten"

    @staticmethod
    def _draw(state: FakeLane) -> int:
        return next_token(state.history, state.binding.sampling.seed)


class FakeSession:
    """An output session over bare numbers. ``stop_after`` ends with STOP at that output token;
    ``forces`` maps a number of committed output tokens to ids to append there."""

    def __init__(self, stop_after: int | None = None, forces: dict[int, tuple[int, ...]] | None = None):
        self.stop_after = stop_after
        self.forces = dict(forces or {})
        self.committed: list[int] = []
        self.finished: list[FinishReason] = []

    def preview(self, token_ids: Sequence[int]) -> Preview:
        for index in range(1, len(token_ids) + 1):
            count = len(self.committed) + index
            if count == self.stop_after:
                return Preview(index, FinishReason.STOP)
            if count in self.forces:
                return Preview(index, force=self.forces[count])
        return Preview(len(token_ids))

    def commit(self, token_ids: Sequence[int]) -> tuple[Delta, ...]:
        assert not self.finished, "committed after the end"
        self.committed.extend(token_ids)
        return (TextDelta("content", " ".join(map(str, token_ids))),)

    def finish(self, reason: FinishReason) -> tuple[Delta, ...]:
        self.finished.append(reason)
        return ()

    def summary(self) -> OutputSummary:
        return OutputSummary()


class Recorder:
    """An event sink that keeps everything; ``late`` is what came after the terminal event."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.late: list[Event] = []
        self.done = threading.Event()

    def __call__(self, event: Event) -> None:
        (self.events if self.terminal is None else self.late).append(event)
        if isinstance(event, Finished | Failed):
            self.done.set()

    @property
    def terminal(self) -> Finished | Failed | None:
        last = self.events[-1] if self.events else None
        return last if isinstance(last, Finished | Failed) else None

    @property
    def finished(self) -> Finished:
        assert isinstance(self.terminal, Finished), self.terminal
        return self.terminal

    @property
    def failed(self) -> Failed:
        assert isinstance(self.terminal, Failed), self.terminal
        return self.terminal

    @property
    def tokens(self) -> list[int]:
        return [token for event in self.events if isinstance(event, Output) for token in event.token_ids]

    @property
    def admitted(self) -> list[Admitted]:
        return [event for event in self.events if isinstance(event, Admitted)]

    @property
    def progress(self) -> list[PrefillProgress]:
        return [event for event in self.events if isinstance(event, PrefillProgress)]

    def wait(self, timeout: float = 60.0) -> "Recorder":
        assert self.done.wait(timeout), "no terminal event"
        return self


def fake_storage(num_pages: int, num_lanes: int = 8, num_checkpoints: int = 0) -> Storage:
    return Storage(num_pages, 2 * 4 * PAGE_SIZE, num_lanes, num_checkpoints)


def fake_cache(config: EngineConfig) -> KVCache:
    """The cache that a server would build for ``config``, for a pure-attention model."""
    storage = fake_storage(config.num_pages, config.max_concurrency, config.device_state_slots)
    if config.cache_layout == "contiguous":
        return ContiguousCache(storage)
    return PageCache(storage, None if config.prefix_reuse else RootOnlyPolicy())


def fake_info(config: EngineConfig) -> ModelInfo:
    return ModelInfo("fake", config.max_context, VOCAB, "fake", 0)


def fake_engine(
    config: EngineConfig,
    *,
    start: bool = True,
    cache: KVCache | None = None,
    executor: FakeExecutor | None = None,
    **options: object,
) -> HostEngine:
    """A real engine over a fake device; both are reachable through ``engine.scheduler.services``."""
    cache = cache or fake_cache(config)
    executor = executor or FakeExecutor(config.max_concurrency, cache.capacity, cache.slots.num_slots)
    engine = HostEngine(fake_info(config), executor, cache, config, check_when_idle=True, **options)  # type: ignore[arg-type]
    if start:
        engine.start()
    return engine


def fake_request(
    prompt: Sequence[int],
    max_output_tokens: int,
    *,
    session: FakeSession | None = None,
    seed: int = 0,
    request_id: str = "r",
) -> GenerationRequest:
    return GenerationRequest(
        request_id=request_id,
        prompt=PreparedPrompt(tuple(prompt)),
        sampling=SamplingParams(seed=seed),
        max_output_tokens=max_output_tokens,
        session=session or FakeSession(),
    )
