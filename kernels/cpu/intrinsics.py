"""The few machine operations that Numba has no name for. Imported only where Numba is."""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

WORD = ir.IntType(64)


@intrinsic
def as_pointer(typing: Any, address: Any) -> Any:
    """An integer address as a ``void*``."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(address), emit


@intrinsic
def fetch_add(typing: Any, address: Any, amount: Any) -> Any:
    """Atomically add to the int64 at ``address``; returns what stood there before."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], "acq_rel")

    return types.int64(types.int64, types.int64), emit


@intrinsic
def exchange(typing: Any, address: Any, value: Any) -> Any:
    """Atomically put ``value`` into the int64 at ``address``; returns what stood there before."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], WORD.as_pointer())
        return builder.atomic_rmw("xchg", pointer, args[1], "acq_rel")

    return types.int64(types.int64, types.int64), emit


@intrinsic
def load_acquire(typing: Any, address: Any) -> Any:
    """The int64 at ``address``, seen with everything that was written before it."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(args[0], WORD.as_pointer()), "acquire", 8)

    return types.int64(types.int64), emit


@intrinsic
def call_with_pointer(typing: Any, function: Any, argument: Any) -> Any:
    """Call the C function ``void *f(void *)`` at an address."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(WORD, [WORD])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])

    return types.int64(types.int64, types.int64), emit


def symbol_address(name: str) -> Any:
    """A compiled function () -> the address of what the object file calls ``name``."""

    @intrinsic
    def address(typing: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            symbol = builder.module.globals.get(name) or ir.GlobalVariable(builder.module, WORD, name)
            return builder.ptrtoint(symbol, WORD)

        return types.int64(), emit

    return address


@numba.njit(inline="always")
def word(address: int, index: int) -> int:
    """The 8-byte field number ``index`` of the C struct at ``address``."""
    return numba.carray(as_pointer(address), index + 1, np.int64)[index]


@numba.njit(inline="always")
def set_word(address: int, index: int, value: int) -> None:
    numba.carray(as_pointer(address), index + 1, np.int64)[index] = value


@numba.njit(inline="always")
def floats_at(address: int, size: int) -> Any:
    """The float32 array ``[size]`` at ``address``."""
    return numba.carray(as_pointer(address), size, np.float32)


def _prefetch(locality: int) -> Any:
    @intrinsic
    def prefetch(typing: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            emit_prefetch(builder, args[0], locality)
            return context.get_dummy_value()

        return types.void(types.int64), emit

    return prefetch


prefetch = _prefetch(3)
"""A compiled (address): ask for the cache line there, which need not exist."""

prefetch_once = _prefetch(0)
"""The same for what is read once: it takes no room in the second-level cache, where the next call's code and
operands are better kept."""


def emit_prefetch(builder: Any, address: Any, locality: int = 3) -> None:
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    name = "llvm.prefetch.p0"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    read, keep, data = (ir.Constant(number, value) for value in (0, locality, 1))
    builder.call(function, [builder.inttoptr(address, byte), read, keep, data])


@intrinsic
def bfloat16_to_float(typing: Any, bits: Any) -> Any:
    """A bfloat16, held as uint16, widened to float32."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = builder.zext(args[0], ir.IntType(32))
        return builder.bitcast(builder.shl(wide, ir.Constant(ir.IntType(32), 16)), ir.FloatType())

    return types.float32(types.uint16), emit


@intrinsic
def bits_to_float(typing: Any, bits: Any) -> Any:
    """The float32 whose bits an int32 holds."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), emit


EXP_LOWEST = np.float32(-87.0)
EXP_LOG2E = np.float32(1.44269504088896341)
EXP_LN2 = (np.float32(0.693359375), np.float32(-2.12194440e-4))
"""ln 2 in two parts, the first of few bits: a small whole number times it is exact."""
EXP_POLYNOMIAL = tuple(
    np.float32(c)
    for c in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)


@numba.njit(inline="always")
def exp(x: Any) -> Any:
    """``e ** x`` for float32 x <= 0, within 2 units in the last place; loops over it vectorise.

    Cephes' expf: x = n ln 2 + r, a polynomial in r, 2 ** n by its bits.
    """
    x = max(x, EXP_LOWEST)
    n = np.rint(x * EXP_LOG2E)
    r = x - n * EXP_LN2[0] - n * EXP_LN2[1]
    p = EXP_POLYNOMIAL[0]
    p = p * r + EXP_POLYNOMIAL[1]
    p = p * r + EXP_POLYNOMIAL[2]
    p = p * r + EXP_POLYNOMIAL[3]
    p = p * r + EXP_POLYNOMIAL[4]
    p = p * r + EXP_POLYNOMIAL[5]
    p = p * r * r + r + np.float32(1.0)
    return p * bits_to_float((np.int32(n) + np.int32(127)) << np.int32(23))
