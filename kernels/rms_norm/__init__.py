"""Root mean square norm."""

from ninfer_jax.kernels.rms_norm.api import rms_norm

__all__ = ["rms_norm"]
