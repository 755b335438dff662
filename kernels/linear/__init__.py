"""Matrix products and row look-ups over plain and quantised weights."""

from ninfer_jax.kernels.linear.api import embed, linear
from ninfer_jax.kernels.linear.quant import (
    Matrix,
    QuantArray,
    quantise,
    quantise_rows,
    stored_values,
    values_and_scale,
)

__all__ = [
    "Matrix",
    "QuantArray",
    "embed",
    "linear",
    "quantise",
    "quantise_rows",
    "stored_values",
    "values_and_scale",
]
