"""Rotary position embedding."""

from ninfer_jax.kernels.rope.api import rotate, rotate_qkv

__all__ = ["rotate", "rotate_qkv"]
