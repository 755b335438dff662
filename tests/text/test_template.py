from datetime import datetime

import pytest

from ninfer_jax.errors import CorruptModelError, InvalidPromptError
from ninfer_jax.json_values import parse_json
from ninfer_jax.text import template as template_module
from ninfer_jax.text.template import ChatTemplate


def render(source: str, **variables: object) -> str:
    return ChatTemplate(source, now=lambda: datetime(2024, 5, 6)).render(variables)


def test_blocks_are_trimmed() -> None:
    assert render("a\n  {% if true %}\nb\n  {% endif %}\nc") == "a\nb\nc"


def test_tojson_keeps_order_spelling_and_characters() -> None:
    value = parse_json('{"z": 1.50, "a": [1e2, "é<>&\'", null, true]}')
    assert render("{{ x | tojson }}", x=value) == '{"z": 1.50, "a": [1e2, "é<>&\'", null, true]}'
    assert render("{{ x | tojson(indent=2) }}", x={"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'
    assert render("{{ x | tojson(separators=(',', ':')) }}", x={"a": [1, 2]}) == '{"a":[1,2]}'
    assert (
        render("{{ x | tojson(ensure_ascii=true, sort_keys=true) }}", x={"b": "é", "a": 1})
        == '{"a": 1, "b": "\\u00e9"}'
    )


def test_globals_and_extensions() -> None:
    assert render("{{ strftime_now('%Y-%m-%d') }}") == "2024-05-06"
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert render("a{% generation %}b{% endgeneration %}c") == "abc"
    assert ChatTemplate("{{ messages }}{{ tools }}{% set x = 1 %}").variables == {"messages", "tools"}


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("{{ raise_exception('not so') }}", "not so"),
        ("{{ missing.attribute }}", "missing"),
        ("{{ x.append(1) }}", "refused"),
        ("{{ ''.__class__.__mro__ }}", "refused"),
        ("{{ range(10000000) | list }}", "refused"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"),
        ("{{ 1 / 0 }}", "division"),
    ],
)
def test_failures_are_invalid_prompts(source: str, match: str) -> None:
    with pytest.raises(InvalidPromptError, match=match):
        render(source, x=[])


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "MAX_RENDERED_CHARS", 1000)
    with pytest.raises(InvalidPromptError, match="1000 characters"):
        render("{% for i in range(2000) %}x{% endfor %}")


def test_a_broken_template_is_the_model_s_fault() -> None:
    with pytest.raises(CorruptModelError, match="does not compile"):
        ChatTemplate("{% if %}")
