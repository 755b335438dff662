"""A minute of the soak; ``python -m tests.soak`` is the long one."""

import os

import pytest

from tests.soak.soak import slope, soak

SECONDS = float(os.environ.get("NINFER_SOAK_SECONDS", "60"))


def test_the_slope_of_a_line_is_found():
    assert slope([(5 + i / 10, 100 + 0.3 * i) for i in range(50)]) == pytest.approx(3.0)


@pytest.mark.soak
def test_nothing_leaks_compiles_or_changes_under_chaos(tmp_path):
    report = soak(tmp_path, SECONDS)
    assert not report.problems, "\n".join(report.lines())
