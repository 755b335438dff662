"""After warm-up nothing compiles, whatever is served."""

from contextlib import contextmanager

import jax
import numpy as np

from ninfer_jax.engine import warmup
from ninfer_jax.engine.shapes import ShapeLadder
from ninfer_jax.engine.state import LaneTable
from ninfer_jax.types import SamplingParams
from tests.engine import cases

TABLE = LaneTable.of([None] * cases.NUM_LANES, cases.PAGES_PER_LANE)


@contextmanager
def count_compilations():
    """Backend compilations (disk cache hits too) while the block runs."""
    events: list[str] = []

    def listen(name: str, seconds: float, **_: object) -> None:
        if name == "/jax/core/compile/backend_compile_duration":
            events.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_the_listener_sees_a_compilation():
    with count_compilations() as events:
        jax.jit(lambda x: x * 3 + 1)(np.arange(7))
    assert events


def test_serving_compiles_nothing():
    runner = cases.new_runner()
    random = np.random.default_rng(2)
    with count_compilations() as events:
        for batch in (1, 2, 3, 2):
            prompts = [random.integers(0, 200, int(n)).tolist() for n in random.integers(1, 150, batch)]
            params = [SamplingParams(temperature=t, top_k=k) for t, k in ((0.0, 0), (0.7, 5), (1.0, 0))]
            cases.generate(runner, prompts, 5, params[:batch], chunk=int(random.integers(1, 150)))
    assert not events


def test_progress_counts_every_program():
    calls: list[tuple[int, int]] = []
    ladder = ShapeLadder((1,), (16,))
    programs = warmup.compile_programs(
        cases.SPEC,
        cases.weights(),
        cases.new_state(),
        TABLE,
        ladder,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert (calls[0], calls[-1]) == ((0, 3), (3, 3))
    assert calls == sorted(calls)
    assert set(programs.decode) == {1}
    assert set(programs.prefill) == {16}
