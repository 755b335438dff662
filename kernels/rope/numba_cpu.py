"""The rotation on the CPU: one call where XLA compiles a loop for each layer and copies each part."""

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.cpu import Kernel, call, floats, is_available

_CODE = "ninfer_jax.kernels.rope.numba_code"
_ANGLES = {"cos": floats(2), "sin": floats(2)}
_ROTATE = Kernel("ninfer_rope", f"{_CODE}:rotate", {"x": floats(3), **_ANGLES}, {"out": floats(3)})
_ROTATE_QKV = Kernel(
    "ninfer_rope_qkv",
    f"{_CODE}:rotate_qkv",
    {"fused": floats(3), **_ANGLES},
    {"q": floats(3), "k": floats(3), "v": floats(3)},
)


def supports(x: jax.Array, cos: jax.Array) -> bool:
    """Whether this host can run the kernels, and nothing would have to be converted for them."""
    return x.dtype == cos.dtype == jnp.float32 and is_available()


def _tokens(x: jax.Array) -> jax.Array:
    """``[B, T, ...]`` as ``[B T, ...]``."""
    return x.reshape(-1, *x.shape[2:])


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """See ``api.rotate``."""
    tokens = _tokens(x)
    (out,) = call(_ROTATE, tokens, _tokens(cos), _tokens(sin), shapes=[tokens.shape])
    return out.reshape(x.shape)


def rotate_qkv(
    fused: jax.Array, cos: jax.Array, sin: jax.Array, *, num_heads: int, num_kv_heads: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """See ``api.rotate_qkv``."""
    step = fused.shape[:2]
    heads = _tokens(fused.reshape(*step, num_heads + 2 * num_kv_heads, -1))
    tokens, _, head_dim = heads.shape
    counts = (num_heads, num_kv_heads, num_kv_heads)
    shapes = [(tokens, count, head_dim) for count in counts]
    q, k, v = call(_ROTATE_QKV, heads, _tokens(cos), _tokens(sin), shapes=shapes)
    return q.reshape(*step, *q.shape[1:]), k.reshape(*step, *k.shape[1:]), v.reshape(*step, *v.shape[1:])
