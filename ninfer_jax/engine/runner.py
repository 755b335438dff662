"""The real executor: compiled programs over the device state. Called by the engine thread alone.

Everything that does not change between rounds stays on the device; a decode round sends three short
integer arrays and brings back one.
"""

from collections.abc import Sequence
from typing import cast

import jax
import numpy as np
from numpy.typing import NDArray

from ninfer_jax.cache import SlotPool
from ninfer_jax.engine.executor import LaneBinding
from ninfer_jax.engine.programs import INVALID_TOKEN, BindInputs, DecodeInputs, PrefillInputs, ProgramSpec
from ninfer_jax.engine.shapes import ShapeLadder
from ninfer_jax.engine.state import EngineState, LaneTable
from ninfer_jax.engine.warmup import CompiledPrograms
from ninfer_jax.errors import EngineError
from ninfer_jax.models.base import PAGE_SIZE, Weights


class PendingTokens:
    """Tokens that the device is computing."""

    __slots__ = ("_size", "_tokens")

    def __init__(self, tokens: jax.Array, size: int) -> None:
        self._tokens = tokens
        self._size = size

    def wait(self) -> NDArray[np.int32]:
        """The unit's tokens, ``[size]``. Raises EngineError when the model computed no finite numbers."""
        tokens: NDArray[np.int32] = np.asarray(self._tokens)[: self._size]
        if (tokens == INVALID_TOKEN).any():
            raise EngineError("the model's hidden state is not finite")
        return tokens


class DeviceRunner:
    """Implements :class:`~ninfer_jax.engine.executor.Executor` for ``C`` lanes of ``L`` pages.

    ``slots`` says which state images may be written; a unit that would write another is refused."""

    def __init__(
        self,
        spec: ProgramSpec,
        weights: Weights,
        state: EngineState,
        programs: CompiledPrograms,
        ladder: ShapeLadder,
        pages_per_lane: int,
        slots: SlotPool,
    ) -> None:
        self._config = spec.config
        self._weights = weights
        self._state = state
        self._programs = programs
        self._ladder = ladder
        self._pages_per_lane = pages_per_lane
        self._slots = slots
        self._bindings: list[LaneBinding | None] = [None] * state.counts.shape[0]
        self._table: LaneTable | None = None

    def bind(self, lane: int, binding: LaneBinding) -> None:
        assert self._bindings[lane] is None, f"lane {lane} is already bound"
        assert len(binding.pages) <= self._pages_per_lane, "more pages than a block table holds"
        self._slots.check_writable(binding.slot)
        self._bindings[lane] = binding
        self._table = None
        self._state = self._programs.bind_lane(self._state, BindInputs.of(lane, binding))

    def release(self, lane: int) -> None:
        """The stale row of the table stays: no program reads it until the lane is bound again."""
        self._bindings[lane] = None

    def prefill(
        self,
        lane: int,
        token_ids: Sequence[int],
        start: int,
        *,
        positions: Sequence[Sequence[int]] | None = None,
        is_output: bool = False,
        sample: bool = False,
    ) -> PendingTokens:
        binding = self._bound(lane)
        assert binding.start <= start
        assert start + len(token_ids) <= len(binding.pages) * PAGE_SIZE
        if positions is None:
            first = start + (binding.rope_delta if is_output else 0)
            positions = (range(first, first + len(token_ids)),) * self._config.rope_axes
        done = 0
        buckets = self._ladder.split(len(token_ids))
        for bucket in buckets:
            part = slice(done, done + bucket)
            inputs = PrefillInputs.padded(
                bucket,
                lane,
                start + done,
                token_ids[part],
                [axis[part] for axis in positions],
                is_output=is_output,
                sample=sample and done + bucket >= len(token_ids),
            )
            program = self._programs.prefill[bucket]
            tokens, self._state = program(self._weights, self._state, self._lane_table(), inputs)
            done += bucket
        return PendingTokens(tokens, int(sample))

    def decode(
        self, lanes: Sequence[int], token_ids: Sequence[int], frontiers: Sequence[int]
    ) -> PendingTokens:
        for lane, frontier in zip(lanes, frontiers, strict=True):
            binding = self._bound(lane)
            assert binding.start <= frontier < len(binding.pages) * PAGE_SIZE
        inputs = DecodeInputs(*np.array((lanes, token_ids, frontiers), np.int32))
        program = self._programs.decode[len(lanes)]
        tokens, self._state = program(self._weights, self._state, self._lane_table(), inputs)
        return PendingTokens(tokens, len(lanes))

    @property
    def state(self) -> EngineState:
        """The arrays as they are now; the next unit consumes them."""
        return self._state

    @property
    def temporaries(self) -> int:
        """Bytes that the hungriest program allocates while it runs, as compiled."""
        return self._programs.temporaries

    def capture(self, lane: int, slot: int) -> None:
        assert self._programs.copy_image is not None, "there are no slots for checkpoints"
        self._slots.check_writable(slot)
        source = np.int32(self._bound(lane).slot)
        self._state = self._programs.copy_image(self._state, source, np.int32(slot))

    def decode_hlo(self, num_rows: int) -> str:
        """The compiled text of a decode round, for whoever reads a profiler's trace."""
        program = cast(jax.stages.Compiled, self._programs.decode[num_rows])
        return program.as_text() or ""

    def _bound(self, lane: int) -> LaneBinding:
        binding = self._bindings[lane]
        assert binding is not None, f"lane {lane} is not bound"
        self._slots.check_writable(binding.slot)
        return binding

    def _lane_table(self) -> LaneTable:
        if self._table is None:
            self._table = LaneTable.of(self._bindings, self._pages_per_lane)
        return self._table
