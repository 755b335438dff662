"""Root mean square norm."""

from ninfer_jax.kernels.rms_norm.api import add_rms_norm, rms_norm

__all__ = ["add_rms_norm", "rms_norm"]
