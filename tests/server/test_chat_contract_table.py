"""docs/serving.md promises a test for every sentence; the tests it names exist and `-k chat` finds them."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_every_named_test_exists():
    table = (ROOT / "docs" / "serving.md").read_text().partition("sentence by sentence")[2]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "`test_" in line]
    assert len(rows) > 60
    named = {name for row in rows for name in re.findall(r"`(test_\w+)`", row)}
    defined = {
        name
        for path in Path(__file__).parent.glob("test_*chat*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.M)
    }
    assert not named - defined
