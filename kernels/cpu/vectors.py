"""Words of LLVM vector code: what ``tiles.py`` is written in. Addresses and distances are bytes.

Each function appends to a builder; nothing here is compiled code. Imported only where Numba is.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from ninfer_jax.kernels.cpu.intrinsics import EXP_LN2, EXP_LOG2E, EXP_LOWEST, EXP_POLYNOMIAL, WORD

LANES = 16
"""Floats of one vector: a register of AVX-512, two of AVX2."""

FLOAT, INDEX = ir.FloatType(), ir.IntType(32)
VECTOR = ir.VectorType(FLOAT, LANES)
FLOAT_BYTES = 4
VECTOR_BYTES = LANES * FLOAT_BYTES
ZERO = ir.Constant(VECTOR, [0.0] * LANES)


def integer(value: int) -> ir.Constant:
    return ir.Constant(WORD, value)


def offset(builder: Any, address: Any, number: Any, distance: Any) -> Any:
    """The address of item ``number``, where items lie ``distance`` apart; either may be a Python int."""
    if isinstance(number, int) and isinstance(distance, int):
        return builder.add(address, integer(number * distance))
    number, distance = (integer(x) if isinstance(x, int) else x for x in (number, distance))
    return builder.add(address, builder.mul(number, distance))


def load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1, typ=kind)


def store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def load_widened(builder: Any, address: Any, element: str) -> Any:
    """LANES numbers of a weight format as float32, exactly."""
    wide = ir.VectorType(INDEX, LANES)
    match element:
        case "int8":
            values = load(builder, address, ir.VectorType(ir.IntType(8), LANES))
            return builder.sitofp(builder.sext(values, wide), VECTOR)
        case "bfloat16":
            bits = load(builder, address, ir.VectorType(ir.IntType(16), LANES))
            shift = ir.Constant(wide, [16] * LANES)
            return builder.bitcast(builder.shl(builder.zext(bits, wide), shift), VECTOR)
        case _:
            return load(builder, address, VECTOR)


def variables(builder: Any, values: Sequence[Any]) -> list[Any]:
    """Variables with first values; LLVM keeps them in registers."""
    slots = [cgutils.alloca_once(builder, value.type) for value in values]
    for value, slot in zip(values, slots, strict=True):
        builder.store(value, slot)
    return slots


def add_product(builder: Any, total: Any, a: Any, b: Any) -> None:
    """``total += a * b``, rounded once where the host multiplies and adds in one instruction."""
    builder.store(vector_call(builder, "fmuladd", a, b, builder.load(total)), total)


def vector_call(builder: Any, operation: str, *args: Any) -> Any:
    """LLVM's own function over vectors."""
    name = f"llvm.{operation}.v{LANES}f32"
    kind = ir.FunctionType(VECTOR, [VECTOR] * len(args))
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, args)


def broadcast(builder: Any, value: Any) -> Any:
    vector = ir.VectorType(value.type, LANES)
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(INDEX, 0))
    return builder.shuffle_vector(single, single, ir.Constant(ir.VectorType(INDEX, LANES), [0] * LANES))


def fold(builder: Any, vector: Any, combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Halves are combined with halves until one number is left."""
    width = LANES // 2
    while width:
        order = [*range(width, 2 * width), *[0] * (LANES - width)]
        upper = builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(INDEX, LANES), order))
        vector = combine(builder, vector, upper)
        width //= 2
    return builder.extract_element(vector, ir.Constant(INDEX, 0))


def add(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b)


def larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def vector_exp(builder: Any, x: Any) -> Any:
    """``intrinsics.exp`` of a vector."""

    def constant(value: Any) -> ir.Constant:
        return ir.Constant(VECTOR, [float(np.float32(value))] * LANES)

    x = larger(builder, x, constant(EXP_LOWEST))
    n = vector_call(builder, "rint", builder.fmul(x, constant(EXP_LOG2E)))
    r = x
    for part in EXP_LN2:
        r = vector_call(builder, "fmuladd", n, constant(-part), r)
    p = constant(EXP_POLYNOMIAL[0])
    for coefficient in EXP_POLYNOMIAL[1:]:
        p = vector_call(builder, "fmuladd", p, r, constant(coefficient))
    p = vector_call(builder, "fmuladd", builder.fmul(p, r), r, builder.fadd(r, constant(1.0)))
    numbers = ir.VectorType(INDEX, LANES)
    bias, shift = (ir.Constant(numbers, [value] * LANES) for value in (127, 23))
    power = builder.shl(builder.add(builder.fptosi(n, numbers), bias), shift)
    return builder.fmul(p, builder.bitcast(power, VECTOR))
