"""The tests that docs/serving.md names exist, and ``-k messages`` finds them."""

from tests.server.contract_table import missing_tests


def test_every_named_messages_test_exists():
    assert not missing_tests("Anthropic Messages", "test_messages_*.py", min_rows=60)
