"""``convert`` and ``inspect`` from their command lines."""

import json
from pathlib import Path

import pytest

from ninfer_jax.artifact.loader import load
from ninfer_jax.artifact.random_source import byte_tokenizer
from ninfer_jax.cli.main import main
from ninfer_jax.observe.sizes import binary_size, short_count
from tests.artifact import checkpoints
from tests.artifact.test_groups import write as write_groups


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    hf_config = checkpoints.config()
    return checkpoints.write_gguf(tmp_path / "tiny.gguf", hf_config, checkpoints.tensors(hf_config))


def test_convert_then_inspect(gguf_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tiny.ninfer"
    assert main(["convert", str(gguf_file), "--weights", "bf16", str(out), "--model-id", "tiny-one"]) == 0
    printed = capsys.readouterr()
    assert "tiny-one" in printed.out
    assert printed.err == ""  # no bar and no control sequences where stderr is not a terminal
    assert load(out).identity.model_id == "tiny-one"

    assert main(["inspect", str(out), "--json", "--verify"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["model_id"] == "tiny-one"
    assert facts["kind"] == "ninfer"
    assert facts["architecture"]["layers"] == {"full_attention": 2}
    assert facts["weights"]["formats"] == {"float32": 5, "bfloat16": 9}
    assert facts["source"] == {"kind": "gguf", "name": "tiny.gguf", "formats": {"F32": 20}, "left_aside": {}}
    assert facts["template"]["tools"] is False
    assert facts["eos_token_ids"] == [0, 2]
    assert len(facts["resources"]["chat_template.jinja"]["sha256"]) == 64

    assert main(["inspect", str(out)]) == 0
    text = capsys.readouterr().out
    assert "2 full attention layers" in text
    assert "chat_template.jinja" in text


def test_inspect_agrees_about_the_source_and_the_artifact(
    gguf_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["convert", str(gguf_file), str(tmp_path / "t.ninfer"), "--weights", "int8"])
    capsys.readouterr()
    facts = []
    for path in (gguf_file, tmp_path / "t.ninfer"):
        main(["inspect", str(path), "--json"])
        facts.append(json.loads(capsys.readouterr().out))
    for key in (
        "model_id",
        "architecture",
        "num_parameters",
        "eos_token_ids",
        "sampling",
        "template",
        "resources",
    ):
        assert facts[0][key] == facts[1][key]


def test_what_stands_beside_the_text_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = write_groups(tmp_path), tmp_path / "h.ninfer"
    (source.path / "tokenizer.json").write_text(byte_tokenizer(97).to_str())
    assert main(["convert", str(source.path), str(out), "--weights", "int8", "--without", "vision"]) == 0
    printed = capsys.readouterr().out
    assert "with mtp:" in printed
    assert "parameters in int8" in printed
    assert "left aside: 33 tensors of vision" in printed
    assert main(["inspect", str(out)]) == 0
    assert "beside them   mtp: " in capsys.readouterr().out
    assert main(["inspect", str(source.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"]["vision"]["tensors"] == 33


def test_convert_random(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(checkpoints.config(vocab_size=300)))
    out = tmp_path / "r.ninfer"
    assert main(["convert", "--random", str(tmp_path / "config.json"), str(out), "--seed", "3"]) == 0
    assert load(out).identity.model_id == "random-llama-3"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["convert", "{gguf}", "{tmp}/out"], 2, "ends in .ninfer"),
        (["convert", "{tmp}/absent", "{tmp}/a.ninfer"], 1, "no such file or folder"),
        (["convert", "{gguf}", "{tmp}/none/a.ninfer"], 2, "there is no folder"),
        (["convert", "--random", "{tmp}/absent.json", "{tmp}/a.ninfer"], 1, "absent.json is missing"),
        (["inspect", "{tmp}"], 1, "neither a config.json nor a ninfer.json"),
    ],
)
def test_errors_are_one_line(
    gguf_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    assert main([part.format(gguf=gguf_file, tmp=tmp_path) for part in arguments]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_artifact_is_not_converted_again(
    gguf_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["convert", str(gguf_file), str(tmp_path / "a.ninfer")])
    assert main(["convert", str(tmp_path / "a.ninfer"), str(tmp_path / "b.ninfer")]) == 2
    assert "is an artifact already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_binary_size(nbytes: int, text: str) -> None:
    assert binary_size(nbytes) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999"), (134_515_008, "134.5M"), (35_951_822_704, "36.0B"), (2 * 10**12, "2.0T")],
)
def test_short_count(count: int, text: str) -> None:
    assert short_count(count) == text
