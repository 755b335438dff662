"""Rows of the table that a device check ends with, as Markdown and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["ok", "measured", "FAILED", "skipped"]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure or one check.

    ``value`` and ``plain`` (the same by plain XLA) are in ``unit``, and so is ``limit``: what the device's
    measured bandwidth and arithmetic would allow. ``error`` is the largest difference from a float32
    reference over the reference's largest value; ``tolerance`` is what it may be. ``nbytes`` and
    ``operations`` are what one call must move and compute.
    """

    section: str
    name: str
    status: Status
    value: float | None = None
    unit: str = ""
    limit: float | None = None
    plain: float | None = None
    error: float | None = None
    tolerance: float | None = None
    nbytes: int | None = None
    operations: int | None = None
    note: str = ""

    @property
    def share(self) -> float | None:
        """Of what the device allows, 1 being its limit; rates grow towards theirs, times shrink."""
        if not self.value or not self.limit:
            return None
        return self.value / self.limit if self.unit.endswith("/s") else self.limit / self.value


HEADINGS = ("", "verdict", "measured", "limit", "of limit", "plain XLA", "moves", "computes", "error", "note")


def markdown(title: str, rows: Sequence[Row]) -> str:
    """One table; a section's name stands in a row of its own."""
    lines = [f"**{title}**", "", _line(HEADINGS), _line(["---"] + ["---:"] * 8 + ["---"])]
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            lines.append(_line([f"**{section}**", *[""] * (len(HEADINGS) - 1)]))
        lines.append(_line(_cells(row)))
    return "\n".join(lines) + "\n"


def as_json(facts: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    return {**facts, "ok": not failures(rows), "rows": [{**asdict(row), "share": row.share} for row in rows]}


def failures(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.status == "FAILED"]


def _cells(row: Row) -> list[str]:
    share, error = row.share, "" if row.error is None else f"{row.error:.1e}"
    if error and row.tolerance is not None:
        error += f" (at most {row.tolerance:.0e})"
    verdict = f"**{row.status}**" if row.status == "FAILED" else row.status
    return [
        row.name,
        "" if row.status == "measured" else verdict,
        _quantity(row.value, row.unit),
        _quantity(row.limit, row.unit),
        "" if share is None else f"{100 * share:.0f}%",
        _quantity(row.plain, row.unit),
        _scaled(row.nbytes, "B"),
        _scaled(row.operations, "FLOP"),
        error,
        f"FAILED: {row.note}" if row.status == "FAILED" else row.note,
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def _quantity(value: float | None, unit: str) -> str:
    """Three digits at least, all of an integer part."""
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f} {unit}".rstrip()


def _scaled(count: int | None, unit: str) -> str:
    if not count:
        return ""
    power = min(4, (len(str(count)) - 1) // 3)
    return f"{count / 1000**power:.3g} {('', 'k', 'M', 'G', 'T')[power]}{unit}"
