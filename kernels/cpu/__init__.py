"""Numba kernels as XLA:CPU custom calls that share XLA's own threads."""

from ninfer_jax.kernels.cpu.ffi import Buffer, is_available, register

__all__ = ["Buffer", "is_available", "register"]
