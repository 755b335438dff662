"""Numba kernels as XLA:CPU custom calls that share XLA's own threads."""

from ninfer_jax.kernels.cpu.ffi import ELEMENTS, Buffer, is_available, register, struct
from ninfer_jax.kernels.cpu.materialise import materialise

__all__ = ["ELEMENTS", "Buffer", "is_available", "materialise", "register", "struct"]
