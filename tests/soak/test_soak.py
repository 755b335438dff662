"""The soak, as long as it takes to check some answers; ``python -m tests.soak`` is the long one."""

import pytest

from tests.soak.soak import Length, slope, soak

NUM_ANSWERS = 1500


def test_the_slope_of_a_line_is_found():
    assert slope([(5 + i / 10, 100 + 0.3 * i) for i in range(50)]) == pytest.approx(3.0)


@pytest.mark.soak
def test_nothing_leaks_compiles_or_changes_under_chaos(tmp_path):
    report = soak(tmp_path, Length(answers=NUM_ANSWERS))
    assert not report.problems, "\n".join(report.lines())
