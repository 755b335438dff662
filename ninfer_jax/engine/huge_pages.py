"""Huge pages under weights and state on a CPU: reading a gigabyte through 4 KiB pages waits for their tables.

Linux gives huge pages to whom asks, which XLA's allocator does not; so what it has allocated is asked for
afterwards. Where the system has none, or gives none, everything stays as it was.
"""

import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax

HUGE_PAGE_SIZE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
"""Ask for huge pages from now on; and make them of what is there already (Linux 6.1)."""

GAP = 64 * 1024
"""Arrays that lie closer together than this are one span: a huge page may hold parts of several."""


def use_huge_pages(arrays: Any) -> int:
    """Ask for huge pages under the arrays of a pytree, which must be on the CPU; bytes asked for.

    Contents and addresses stay. Arrays of less than a huge page gain only where others lie beside them.
    """
    if not HUGE_PAGE_SIZE.is_file():
        return 0
    size = int(HUGE_PAGE_SIZE.read_text())
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    asked = 0
    for begin, end in _spans(jax.tree.leaves(arrays)):
        first, last = -(-begin // size) * size, end // size * size
        if first < last:
            for advice in (MADV_HUGEPAGE, MADV_COLLAPSE):
                madvise(first, last - first, advice)  # a refusal costs nothing but the speed
            asked += last - first
    return asked


def _spans(arrays: Iterable[jax.Array]) -> Iterator[tuple[int, int]]:
    """The address ranges that hold the arrays, in order, neighbours joined."""
    pieces = [shard.data for array in arrays for shard in array.addressable_shards]
    ranges = sorted((piece.unsafe_buffer_pointer(), piece.nbytes) for piece in pieces)
    begin = end = 0
    for address, num_bytes in ranges:
        if address - end > GAP:
            yield begin, end
            begin = address
        end = max(end, address + num_bytes)
    yield begin, end
