"""The line between the host loop and the device: one unit in, one small host array out.

The engine thread is the only caller. A *lane* is what an active request runs in, one of C; while bound it
has a state slot, a block table and a resolved sampler that live on the device. The real executor runs
compiled programs (``runner.py``); the tests' fake keeps the tokens themselves in its pages and slots,
which makes every scheduler and cache rule checkable bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ninfer_jax.types import SamplingParams


@dataclass(frozen=True, slots=True)
class LaneBinding:
    """What stays fixed for a lane from admission to release. ``pages`` covers the whole entitlement,
    in order; entries before ``start`` may be shared and are never written. ``rope_delta`` is added to
    the cache ordinal to get the rope position of generated tokens.

    The lane starts with a copy of the state in slot ``image``, or from zero; ``tail_page`` is copied to
    the page that ``start`` lies in."""

    pages: tuple[int, ...]
    slot: int
    sampling: SamplingParams
    prompt_len: int
    start: int = 0
    rope_delta: int = 0
    image: int | None = None
    tail_page: int | None = None


class Pending(Protocol):
    """A submitted unit. ``wait`` blocks until the device is done and returns its tokens ``[B]`` int32."""

    def wait(self) -> NDArray[np.int32]: ...


class Executor(Protocol):
    """Owns weights and device state. Every failure it raises is engine-wide.

    Penalties count *inputs*: a generated token is counted when it is written to the cache (as an input
    of ``decode``, or of ``prefill`` with ``is_output``), never when it is drawn, so a drawn token that
    the host does not accept leaves no trace. The newest accepted token is an input of the same unit
    that draws its successor, and is counted before that draw.
    """

    def bind(self, lane: int, binding: LaneBinding) -> None:
        """Start a request on a lane: its penalty counts become zero, its state zero or ``image``'s."""
        ...

    def release(self, lane: int) -> None: ...

    def prefill(
        self,
        lane: int,
        token_ids: Sequence[int],
        start: int,
        *,
        positions: Sequence[Sequence[int]] | None = None,
        is_output: bool = False,
        sample: bool = False,
    ) -> Pending:
        """Write ``token_ids`` at cache ordinals ``start..``. With ``sample`` the result is the one token
        drawn after the last of them; without it the result is empty. ``is_output`` counts them for
        penalties: a forced append writes the last accepted token and all but the last forced one."""
        ...

    def decode(self, lanes: Sequence[int], token_ids: Sequence[int], frontiers: Sequence[int]) -> Pending:
        """One token for every lane, exact batch. ``token_ids[i]`` is the lane's last accepted token, not
        yet in the cache; it is written at ordinal ``frontiers[i]``. The result has one token a lane."""
        ...

    def capture(self, lane: int, slot: int) -> None:
        """Copy the lane's state, as the last unit left it, to another slot."""
        ...
