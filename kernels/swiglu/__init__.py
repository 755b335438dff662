"""The gated activation of a feed-forward."""

from ninfer_jax.kernels.swiglu.api import swiglu

__all__ = ["swiglu"]
