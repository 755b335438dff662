"""The tests that docs/serving.md names exist, and `-k chat` finds them."""

from tests.server.contract_table import missing_tests


def test_every_named_test_exists():
    assert not missing_tests("Chat Completions", "test_*chat*.py", min_rows=60)
