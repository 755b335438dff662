"""Leniency: refused with advice, or dropped and remembered."""

import pytest

from ninfer_jax.errors import UnsupportedFeatureError
from ninfer_jax.server.protocols.hints import ADVICE, Hints


def test_a_strict_server_names_the_field_and_the_way_out():
    hints = Hints()
    with pytest.raises(UnsupportedFeatureError) as caught:
        hints.refuse("tools[0].type", "nobody runs it", value="web_search")
    assert caught.value.field == "tools[0].type"
    assert caught.value.message == f"tools[0].type 'web_search' is not supported: nobody runs it; {ADVICE}"
    assert hints.ignored == []


def test_an_error_keeps_its_own_code():
    error = UnsupportedFeatureError("no such effort", field="effort", code="reasoning_effort_not_supported")
    with pytest.raises(UnsupportedFeatureError, match="no such effort") as caught:
        Hints().refuse_with(error)
    assert (caught.value.field, caught.value.code) == ("effort", "reasoning_effort_not_supported")


def test_a_lenient_server_remembers_what_it_dropped():
    hints = Hints(lenient=True)
    hints.refuse("store", "nothing is stored")
    hints.refuse_with(UnsupportedFeatureError("no", field="reasoning.a client's word"), log_as="reasoning")
    hints.drop("tools[1]")
    assert hints.ignored == ["store", "reasoning", "tools[1]"]
