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


@numba.njit(inline="always")
def word(address: int, index: int) -> int:
    """The 8-byte field number ``index`` of the C struct at ``address``."""
    return numba.carray(as_pointer(address), index + 1, np.int64)[index]


@numba.njit(inline="always")
def set_word(address: int, index: int, value: int) -> None:
    numba.carray(as_pointer(address), index + 1, np.int64)[index] = value


@intrinsic
def bfloat16_to_float(typing: Any, bits: Any) -> Any:
    """A bfloat16, held as uint16, widened to float32."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = builder.zext(args[0], ir.IntType(32))
        return builder.bitcast(builder.shl(wide, ir.Constant(ir.IntType(32), 16)), ir.FloatType())

    return types.float32(types.uint16), emit
