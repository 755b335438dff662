"""Random scenarios: an engine's configuration and the requests that come to it."""

from dataclasses import dataclass

from hypothesis import strategies as st

from ninfer_jax.config import PAGE_SIZE, EngineConfig
from tests.fakes import VOCAB, FakeSession


@dataclass(frozen=True)
class Arrival:
    """A request ``gap`` steps after the one before. Its prompt is ``shared`` tokens of one of three
    families and ``tail`` of its own. ``cancel`` counts steps from submission; ``in_unit`` cancels
    while the device works instead of between two boundaries. ``follows`` makes it the next turn of the
    last request that has finished: its prompt, its output, and the tail."""

    gap: int
    family: int
    shared: int
    tail: int
    output: int
    cancel: int | None
    in_unit: bool
    stop_after: int | None
    force_at: int | None
    num_forced: int
    follows: bool

    def prompt(self, index: int) -> list[int]:
        shared = [(self.family * 311 + 7 * i) % VOCAB for i in range(self.shared)]
        return shared + [(13 * index + 3 * i + 1) % VOCAB for i in range(self.tail)]

    def session(self) -> FakeSession:
        forces = {} if self.force_at is None else {self.force_at: tuple(range(self.num_forced))}
        return FakeSession(self.stop_after, forces)


@dataclass(frozen=True)
class Scenario:
    config: EngineConfig
    arrivals: tuple[Arrival, ...]


ARRIVALS = st.builds(
    Arrival,
    gap=st.sampled_from((0, 0, 0, 0, 2, 9, 40)),
    family=st.sampled_from((0, 0, 0, 1)),
    shared=st.sampled_from((128, 0, 0, 0, 130, 1, 63, 64, 65, 127, 128, 129, 192, 200, 256)),
    tail=st.sampled_from((1, 2, 5, 20, 63, 64, 70)),
    output=st.sampled_from((0, 1, 2, 3, 5, 8, 13, 21, 55, 120, 10_000)),
    cancel=st.none() | st.none() | st.none() | st.integers(0, 20),
    in_unit=st.booleans(),
    stop_after=st.none() | st.none() | st.none() | st.integers(1, 12),
    force_at=st.none() | st.none() | st.integers(1, 6),
    num_forced=st.integers(1, 5),
    follows=st.booleans(),
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    lanes = draw(st.sampled_from((4, 3, 2, 1)))
    context = draw(st.sampled_from((320, 256, 320, 192, 100, 64)))
    pool = draw(st.sampled_from((3, 4, 2, 0, 20)))
    config = EngineConfig(
        max_context=context,
        kv_capacity=min(context + pool * PAGE_SIZE, lanes * context + PAGE_SIZE),
        max_concurrency=lanes,
        max_pending_requests=draw(st.sampled_from((6, 10, 1, 0))),
        pending_timeout=float(draw(st.sampled_from((10_000, 10_000, 60, 15)))),
        prefill_chunk=draw(st.sampled_from((16, 64, 100, 1024))),
        cache_layout=draw(st.sampled_from(("paged", "paged", "paged", "contiguous"))),
        prefix_reuse=draw(st.sampled_from((True, True, True, False))),
    )
    num_arrivals = draw(st.integers(1, 10))
    return Scenario(config, tuple(draw(ARRIVALS) for _ in range(num_arrivals)))
