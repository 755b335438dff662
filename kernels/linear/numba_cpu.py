"""``linear`` on the CPU: the caller's side of ``numba_code.py``."""

import functools

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.cpu import ELEMENTS, Kernel, call, floats, is_available, values
from ninfer_jax.kernels.linear.quant import Matrix, stored_values, values_and_scale


@functools.cache
def _kernel(element: str) -> Kernel:
    return Kernel(
        f"ninfer_linear_{element}",
        "ninfer_jax.kernels.linear.numba_code:linear",
        {"x": floats(2), "weight": values(element, 2), "scale": floats(1)},
        {"out": floats(2)},
        parameters=(element,),
    )


def supports(weight: Matrix) -> bool:
    """Whether this host can run the kernel and it knows the weight's format."""
    return str(stored_values(weight).dtype) in ELEMENTS and is_available()


def dot(x: jax.Array, weight: Matrix) -> jax.Array:
    """``[rows, in]`` by ``[out, in]`` -> ``[rows, out]`` float32. See ``supports``."""
    stored, scale = values_and_scale(weight)
    kernel = _kernel(str(stored.dtype))
    shape = (x.shape[0], stored.shape[0])
    (out,) = call(kernel, x.astype(jnp.float32), stored, scale, shapes=[shape])
    return out
