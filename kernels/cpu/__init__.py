"""Kernels that Numba compiles, as XLA:CPU custom calls that share XLA's own threads."""

from ninfer_jax.kernels.cpu.ffi import call, is_available, kernels_together
from ninfer_jax.kernels.cpu.kernel import ELEMENTS, Kernel, floats, integers, values
from ninfer_jax.kernels.cpu.materialise import materialise

__all__ = [
    "ELEMENTS",
    "Kernel",
    "call",
    "floats",
    "integers",
    "is_available",
    "kernels_together",
    "materialise",
    "values",
]
