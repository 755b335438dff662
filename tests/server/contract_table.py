"""docs/serving.md promises a test for every sentence of a protocol's contract."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def missing_tests(protocol: str, files: str, *, min_rows: int) -> set[str]:
    """The tests that the table of a protocol names and no file of the pattern defines."""
    text = (ROOT / "docs" / "serving.md").read_text()
    table = text.partition(f"## {protocol}, sentence by sentence")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "`test_" in line]
    assert len(rows) >= min_rows
    named = {name for row in rows for name in re.findall(r"`(test_\w+)`", row)}
    defined = {
        name
        for path in Path(__file__).parent.glob(files)
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.M)
    }
    return named - defined
