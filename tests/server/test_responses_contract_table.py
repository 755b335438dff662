"""The tests that docs/serving.md names exist, and `-k responses` finds them."""

from tests.server.contract_table import missing_tests


def test_every_named_test_exists():
    assert not missing_tests("OpenAI Responses", "test_responses*.py", min_rows=70)
