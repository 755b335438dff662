"""Flags: every row of the table works from the command line and from the environment, ranges are checked."""

import argparse
from dataclasses import fields

import pytest

from ninfer_jax.errors import ConfigError
from ninfer_jax.server.flag_table import FLAGS
from ninfer_jax.server.options import ServeOptions, add_arguments, resolve, unknown_variables


def options(*arguments, **environ):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return resolve(parser.parse_args(arguments), environ)


def test_table_and_dataclass_name_the_same_things():
    assert {flag.field for flag in FLAGS} == {member.name for member in fields(ServeOptions)}


def test_defaults_are_the_contract():
    assert options() == ServeOptions()
    assert (options().host, options().port, options().max_context) == ("127.0.0.1", 8080, 8192)
    assert (options().max_concurrency, options().max_pending_requests) == (1, 16)
    assert (options().pending_timeout_ms, options().prefill_chunk) == (30_000, 1024)
    assert (options().max_request_mib, options().default_max_tokens) == (384, None)
    assert (options().response_store_max_records, options().response_store_max_mib) == (1024, 256)


@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("port", "0", 0),
        ("max-context", "1024", 1024),
        ("kv-capacity", "auto", "auto"),
        ("kv-capacity", "16384", 16384),
        ("temperature", "0.5", 0.5),
        ("top-k", "20", 20),
        ("seed", "-5", -5),
        ("model-id", "mine", "mine"),
        ("log-level", "off", "off"),
        ("weights", "int8", "int8"),
        ("default-thinking-budget", "512", 512),
        ("default-max-tokens", "100", 100),
        ("response-store-max-records", "3", 3),
        ("response-store-max-mib", "2", 2),
    ],
)
def test_a_value_comes_from_flag_or_environment_and_the_flag_wins(flag, text, value):
    field, variable = flag.replace("-", "_"), "NINFER_" + flag.replace("-", "_").upper()
    assert getattr(options(f"--{flag}={text}"), field) == value
    assert getattr(options(**{variable: text}), field) == value
    assert getattr(options(f"--{flag}={text}", **{variable: "nonsense"}), field) == value


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag.is_switch], ids=lambda flag: flag.name)
def test_switches(flag):
    assert getattr(options(f"--{flag.name}"), flag.field) is True
    assert getattr(options(**{flag.variable: "yes"}), flag.field) is True
    assert getattr(options(**{flag.variable: "0"}), flag.field) is False
    with pytest.raises(ConfigError, match=flag.variable):
        options(**{flag.variable: "perhaps"})


@pytest.mark.parametrize(
    ("alias", "field"),
    [
        ("--max-model-len", "max_context"),
        ("--max-num-seqs", "max_concurrency"),
        ("--served-model-name", "model_id"),
    ],
)
def test_names_people_know(alias, field):
    assert str(getattr(options(alias, "4" if "num" in alias else "512"), field)) in ("4", "512")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--port", "65536"], "--port must be an integer from 0 to 65535"),
        (["--port", "http"], "--port must be an integer"),
        (["--max-concurrency", "9"], "--max-concurrency must be an integer from 1 to 8"),
        (["--max-concurrency", "0"], "from 1 to 8"),
        (["--max-pending-requests", "-1"], "--max-pending-requests"),
        (["--temperature", "nan"], "--temperature must be a number from 0 to 2"),
        (["--top-p", "1.1"], "--top-p"),
        (["--kv-capacity", "some"], "--kv-capacity must be a number of tokens or auto"),
        (["--kv-capacity", "100"], "--kv-capacity must be at least --max-context"),
        (["--top-k", "21"], "--top-k must be at most --top-k-cap"),
        (["--greedy", "--temperature", "1"], "--temperature contradicts --greedy"),
        (["--log-level", "loud"], "--log-level must be one of"),
        (["--api-key", " "], "--api-key must not be empty"),
        (["--seed", "1.5"], "--seed"),
        (["--default-thinking-budget", "0"], "--default-thinking-budget"),
        (["--max-request-mib", "0"], "--max-request-mib"),
    ],
)
def test_a_wrong_value_names_its_flag(arguments, complaint):
    with pytest.raises(ConfigError, match=complaint):
        options(*arguments)


def test_a_wrong_variable_names_itself():
    with pytest.raises(ConfigError, match="NINFER_PORT must be an integer"):
        options(NINFER_PORT="x")


def test_a_misspelt_variable_is_found():
    environ = {"NINFER_MAX_CONTXT": "1", "NINFER_PORT": "1", "PATH": "x", "NINFER_ZZZ": ""}
    assert unknown_variables(environ) == [
        "NINFER_MAX_CONTXT (did you mean NINFER_MAX_CONTEXT?)",
        "NINFER_ZZZ",
    ]


def test_top_k_cap_raises_the_range():
    assert options("--top-k-cap", "64", "--top-k", "50").top_k == 50


def test_the_key_is_not_printed():
    assert "hunter2" not in repr(options("--api-key", "hunter2"))


def test_help_names_every_flag_and_variable():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    text = parser.format_help()
    for flag in FLAGS:
        assert f"--{flag.name}" in text
        assert flag.variable in text
