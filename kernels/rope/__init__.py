"""Rotary position embedding."""

from ninfer_jax.kernels.rope.api import rotate, rotate_qkv
from ninfer_jax.kernels.rope.heads import split_heads

__all__ = ["rotate", "rotate_qkv", "split_heads"]
