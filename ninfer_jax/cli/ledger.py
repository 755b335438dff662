"""The memory ledger and the decode bound as people read them; ``plan`` and ``serve`` print the same lines."""

from collections.abc import Iterable, Sequence

from ninfer_jax.engine.decode_traffic import Traffic
from ninfer_jax.engine.ledger import Ledger
from ninfer_jax.observe.sizes import binary_size


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


def memory_lines(ledger: Ledger, memory: int) -> list[str]:
    """What holds how much, what is left of the device's ``memory``, and how far KV could grow."""
    left = memory - ledger.total
    rows = [
        *ledger.entries(),
        ("total", ledger.total),
        ("headroom" if left >= 0 else "missing", abs(left)),
    ]
    lines = table([(name, binary_size(size)) for name, size in rows])
    if ledger.page_bytes:
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
