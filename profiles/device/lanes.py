"""The engine's device half driven by hand: its compiled programs, without its thread and scheduler."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from ninfer_jax.artifact.loader import LoadedModel, activation_dtype
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.build import build_cache, storage
from ninfer_jax.engine.executor import LaneBinding
from ninfer_jax.engine.programs import ProgramSpec
from ninfer_jax.engine.runner import DeviceRunner
from ninfer_jax.engine.sampling import SamplingPipeline
from ninfer_jax.engine.shapes import ShapeLadder
from ninfer_jax.engine.state import LaneTable, allocate
from ninfer_jax.engine.warmup import compile_programs
from ninfer_jax.types import SamplingParams

GREEDY = SamplingParams(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Continuation:
    """Greedy tokens after a prompt, and the hidden ``[tokens, H]`` float32 that each was chosen from."""

    tokens: list[int]
    hidden: NDArray[np.float32]


class Lanes:
    """A warm executor for the sizes of ``ladder`` alone; it need not have every batch that serving needs."""

    def __init__(self, model: LoadedModel, config: EngineConfig, ladder: ShapeLadder) -> None:
        state = allocate(model.config, config, activation_dtype(model.weight_format))
        cache = build_cache(model.config, config, storage(config, state))
        spec = ProgramSpec(model.architecture, model.config, SamplingPipeline(cap=config.top_k_cap))
        table = LaneTable.of([None] * config.max_concurrency, config.pages_per_lane)
        programs = compile_programs(spec, model.weights, state, table, ladder)
        self.runner = DeviceRunner(
            spec, model.weights, state, programs, ladder, config.pages_per_lane, cache.slots
        )
        self._model = model
        self._slots = [cache.slots.allocate() for _ in range(config.max_concurrency)]
        self._pages_per_lane = config.pages_per_lane

    def start(self, lane: int, prompt: Sequence[int], piece: int | None = None) -> tuple[int, float]:
        """Prefill on a free lane, ``piece`` tokens at a time; the first token, and the seconds it took."""
        first_page = 1 + lane * self._pages_per_lane
        pages = tuple(range(first_page, first_page + self._pages_per_lane))
        self.runner.bind(lane, LaneBinding(pages, self._slots[lane], GREEDY, len(prompt)))
        jax.block_until_ready(self.runner.state)  # type: ignore[no-untyped-call]
        piece = piece or len(prompt)
        begin = time.perf_counter()
        for start in range(0, len(prompt), piece):
            part = prompt[start : start + piece]
            pending = self.runner.prefill(lane, part, start, sample=start + piece >= len(prompt))
        token = int(pending.wait()[0])
        return token, time.perf_counter() - begin

    def stop(self, num_lanes: int) -> None:
        for lane in range(num_lanes):
            self.runner.release(lane)

    def hidden(self, lane: int) -> NDArray[np.float32]:
        """The final-normed hidden of the lane's last token."""
        rows = np.array(self.runner.state.model.hidden, np.float32)
        return np.asarray(rows[self._slots[lane]])

    def scores(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits ``[V]`` of one hidden."""
        model = self._model
        row = hidden[None].astype(activation_dtype(model.weight_format))
        logits = np.asarray(_logits(model.architecture, model.config, model.weights, row))
        return np.asarray(logits[0])

    def continuation(
        self,
        prompts: Sequence[Sequence[int]],
        row: int,
        count: int,
        *,
        piece: int | None = None,
        forced: Sequence[int] = (),
    ) -> Continuation:
        """``count`` greedy tokens of ``prompts[row]`` while all decode together. With ``forced`` that row is
        fed those instead of its own, so that each of its choices can be compared."""
        feed = [self.start(lane, prompt, piece)[0] for lane, prompt in enumerate(prompts)]
        lanes, tokens, hidden = range(len(prompts)), [feed[row]], [self.hidden(row)]
        for step in range(count - 1):
            if forced:
                feed[row] = forced[step]
            frontiers = [len(prompt) + step for prompt in prompts]
            feed = self.runner.decode(lanes, feed, frontiers).wait().tolist()
            tokens.append(feed[row])
            hidden.append(self.hidden(row))
        self.stop(len(prompts))
        return Continuation(tokens, np.stack(hidden))


@partial(jax.jit, static_argnums=(0, 1))
def _logits(architecture: Any, config: Any, weights: Any, hidden: jax.Array) -> jax.Array:
    scores: jax.Array = architecture.logits(config, weights, hidden)
    return scores
