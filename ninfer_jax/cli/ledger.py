"""The memory ledger and the decode bound as people read them; ``plan`` and ``serve`` print the same lines."""

from collections.abc import Iterable, Sequence

from ninfer_jax.cli.sizes import binary_size
from ninfer_jax.engine.plan import Ledger, Traffic


def table(rows: Iterable[Sequence[str]], indent: str = "  ") -> list[str]:
    """Columns as wide as they must be; the first is words, the others are numbers."""
    rows = [list(row) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        indent
        + "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def memory_lines(ledger: Ledger, memory: int | None = None) -> list[str]:
    """What holds how much; with the device's ``memory``, what is left and how far KV could grow."""
    rows = [
        *((f"weights, {dtype}", size) for dtype, size in ledger.weights.items()),
        (f"KV pools, {ledger.kv_capacity:,} tokens", ledger.kv_pools),
        ("recurrent state", ledger.recurrent_state),
        ("lane state", ledger.lane_state),
        ("workspace", ledger.workspace),
        ("runtime", ledger.runtime),
        ("total", ledger.total),
    ]
    if memory is not None:
        left = memory - ledger.total
        rows.append(("headroom" if left >= 0 else "missing", abs(left)))
    lines = table([(name, binary_size(size)) for name, size in rows if size])
    if memory is not None and ledger.page_bytes:
        largest = ledger.largest_kv_capacity(memory)
        lines.append(f"  largest --kv-capacity that fits: {largest:,} tokens")
    return lines


def traffic_lines(traffics: Iterable[Traffic], bandwidth: int) -> list[str]:
    """One row a batch and context. The rate is a bound from bytes and bandwidth, not a measurement."""
    header = ("decode round", "context", "weights", "KV", "state", "bytes", "tok/s at most")
    rows = [
        (
            f"batch {traffic.batch}",
            f"{traffic.context:,}",
            binary_size(traffic.weights),
            binary_size(traffic.kv),
            binary_size(traffic.state),
            binary_size(traffic.total),
            f"{traffic.tokens_per_second(bandwidth):,.0f}",
        )
        for traffic in traffics
    ]
    return table([header, *rows])
