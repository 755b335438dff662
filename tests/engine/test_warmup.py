"""After warm-up nothing compiles, whatever is served; and a second warm-up reads the disk."""

import os
from contextlib import contextmanager

import jax
import numpy as np
import pytest

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
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert set(programs.decode) == {1}
    assert set(programs.prefill) == {16}


@pytest.fixture
def cache_settings():
    before = {name: getattr(jax.config, name) for name in warmup.CACHE_SETTINGS}
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    jax.experimental.compilation_cache.compilation_cache.reset_cache()


@pytest.mark.usefixtures("cache_settings")
def test_the_compilation_cache_is_kept_on_disk(tmp_path, monkeypatch):
    jax.config.update(warmup.CACHE_DIRECTORY, None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert warmup.enable_compilation_cache() == tmp_path / "ninfer-jax" / "xla"
    chosen = tmp_path / "chosen"
    jax.config.update(warmup.CACHE_DIRECTORY, str(chosen))
    assert warmup.enable_compilation_cache() == chosen
    jax.clear_caches()
    jax.experimental.compilation_cache.compilation_cache.reset_cache()
    jax.jit(lambda x: x * 5 + 1)(np.arange(9))
    assert os.listdir(chosen)


@pytest.mark.usefixtures("cache_settings")
def test_a_compilation_cache_that_cannot_be_made_is_told_and_left_out(tmp_path, caplog):
    (tmp_path / "file").touch()
    jax.config.update(warmup.CACHE_DIRECTORY, str(tmp_path / "file" / "xla"))
    assert warmup.enable_compilation_cache() is None
    assert f"cannot keep compiled programs in {tmp_path / 'file' / 'xla'}" in caplog.text
    jax.experimental.compilation_cache.compilation_cache.reset_cache()
    assert jax.jit(lambda x: x * 7 + 1)(np.arange(9))[1] == 8
