"""The token mixer of a Gated DeltaNet layer: a short causal convolution and the gated delta rule."""

from ninfer_jax.kernels.gated_delta.api import causal_conv, gated_delta_rule
from ninfer_jax.kernels.gated_delta.slots import RecurrentState, allocate_slots, write_slots

__all__ = ["RecurrentState", "allocate_slots", "causal_conv", "gated_delta_rule", "write_slots"]
