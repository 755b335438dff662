"""Sparse experts on the CPU: pairs are grouped by expert, and each chosen expert is read once a call.

Three kernels: one lays out the groups, one makes ``silu(gate) * up`` of every pair, one adds the experts'
outputs to their tokens. A token's sum runs over its experts in ascending order, and every product is summed
in one order, so a token's result does not depend on the others, bit for bit.
"""

import functools

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.cpu import ELEMENTS, Kernel, call, floats, integers, is_available, values
from ninfer_jax.kernels.linear import Matrix, stored_values, values_and_scale

_CODE = "ninfer_jax.kernels.moe.numba_code"
_GROUPED = {"order": integers(1), "ends": integers(1), "active": integers(1)}
_GROUPS = Kernel("ninfer_expert_groups", f"{_CODE}:expert_groups", {"experts": integers(2)}, _GROUPED)


@functools.cache
def _hidden(element: str) -> Kernel:
    weight = {"gate_up": values(element, 3), "scale": floats(2)}
    return Kernel(
        f"ninfer_expert_hidden_{element}",
        f"{_CODE}:expert_hidden",
        {"x": floats(2), **weight, **_GROUPED, "experts": integers(2)},
        {"hidden": floats(2)},
        parameters=(element,),
    )


@functools.cache
def _output(element: str) -> Kernel:
    weight = {"down": values(element, 3), "scale": floats(2)}
    return Kernel(
        f"ninfer_expert_output_{element}",
        f"{_CODE}:expert_output",
        {"hidden": floats(2), **weight, **_GROUPED, "weights": floats(2)},
        {"out": floats(2)},
        parameters=(element,),
    )


def supports(gate_up: Matrix, down: Matrix) -> bool:
    """Whether this host can run the kernels and they know the weights' one format."""
    formats = {str(stored_values(weight).dtype) for weight in (gate_up, down)}
    return len(formats) == 1 and formats <= ELEMENTS.keys() and is_available()


def sparse_experts(
    x: jax.Array, gate_up: Matrix, down: Matrix, weights: jax.Array, experts: jax.Array
) -> jax.Array:
    """See ``api.sparse_experts``; float32 ``[n, H]``. See ``supports``."""
    num_experts, pairs = gate_up.shape[0], experts.size
    sizes = (pairs, num_experts, min(num_experts, pairs) + 1)
    groups = call(_GROUPS, experts, shapes=[(size,) for size in sizes])
    stored, scale = values_and_scale(gate_up)
    element = str(stored.dtype)
    x = x.astype(jnp.float32)
    (hidden,) = call(_hidden(element), x, stored, scale, *groups, experts, shapes=[(pairs, down.shape[2])])
    stored, scale = values_and_scale(down)
    (out,) = call(_output(element), hidden, stored, scale, *groups, weights, shapes=[x.shape])
    return out
