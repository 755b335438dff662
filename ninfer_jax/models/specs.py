"""Short spellings of ``ArraySpec`` for the kinds of weights that decoders have.

They return ``Any`` because a spec stands where the weights tree has its array.
"""

from collections.abc import Mapping
from typing import Any

from ninfer_jax.models.base import ArraySpec, Role


def vector(size: int, source: str, axis: str | None, init: Any = "ones", keep_float32: bool = False) -> Any:
    """One value a channel: a norm's gain, for instance."""
    return ArraySpec(
        (size,), (axis,), (source,), ((size,),), role="vector", init=init, keep_float32=keep_float32
    )


def matrix(
    rows: Mapping[str, int], columns: int, axes: tuple[str | None, str | None], role: Role = "matmul"
) -> Any:
    """``[out, in]``; ``rows`` names the tensors that are stacked on axis 0, with their row counts."""
    shapes = tuple((size, columns) for size in rows.values())
    return ArraySpec((sum(rows.values()), columns), axes, tuple(rows), shapes, role=role)


def bias(rows: Mapping[str, int], axis: str) -> Any:
    """The bias of the matrix with these ``rows``."""
    sources = tuple(name.removesuffix(".weight") + ".bias" for name in rows)
    shapes = tuple((size,) for size in rows.values())
    return ArraySpec((sum(rows.values()),), (axis,), sources, shapes, role="vector", init="normal")


def vocabulary(rows: int, hidden: int, source: str, role: Role) -> Any:
    """An embedding or a head, ``[V, H]``."""
    return ArraySpec((rows, hidden), ("vocab", "hidden"), (source,), ((rows, hidden),), role=role)
