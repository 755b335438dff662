"""Random checkpoints: reproducible, independent of reading order, and servable."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from ninfer_jax.artifact.convert import convert
from ninfer_jax.artifact.loader import load
from ninfer_jax.artifact.random_source import RandomSource, byte_tokenizer
from ninfer_jax.errors import UnsupportedModelError
from ninfer_jax.text.conversation import Conversation, TextPart, Turn
from ninfer_jax.text.frontend import Frontend
from tests.artifact import checkpoints

CONFIG = checkpoints.config(vocab_size=300)
NAME = "model.layers.0.mlp.down_proj.weight"


def test_same_seed_same_weights(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    one, two, other = (RandomSource(path, CONFIG, seed) for seed in (7, 7, 8))
    whole = one.read(NAME, 0, 64)
    np.testing.assert_array_equal(two.read(NAME, 10, 20), whole[10:20])
    assert not np.array_equal(other.read(NAME, 0, 64), whole)
    assert abs(float(whole.std()) * 96**0.5 - 1) < 0.1
    np.testing.assert_array_equal(one.read("model.norm.weight", 3, 5), np.ones(2, np.float32))


def test_an_artifact_of_it_loads(tmp_path: Path) -> None:
    source = RandomSource(tmp_path / "config.json", CONFIG)
    convert(source, tmp_path / "r.ninfer", "int8", model_id="tiny-random")
    model = load(tmp_path / "r.ninfer")
    assert model.identity.model_id == "tiny-random"
    frontend = Frontend.from_resources(model.resources, max_context=256)
    assert frontend.defaults.eos_ids == {0, 2}
    assert frontend.tokenizer.vocab_size == 259
    turn = Conversation(turns=(Turn("user", (TextPart("Hi \u00e9"),)),))
    assert frontend.prepare(turn).text == "<|im_start|>user\nHi \u00e9<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("text", ["Hello, world!\n", "naïve 🙂 \t\x00"])
def test_every_byte_has_a_token(text: str) -> None:
    tokenizer = Tokenizer.from_str(byte_tokenizer(50_000).to_str())
    ids = tokenizer.encode("<|im_start|>" + text).ids
    assert ids[0] == 1
    assert len(ids) == 1 + len(text.encode())
    assert tokenizer.decode(ids) == text


def test_a_small_vocabulary_keeps_ascii() -> None:
    tokenizer = byte_tokenizer(97)
    assert max(tokenizer.get_vocab().values()) == 96
    assert tokenizer.decode(tokenizer.encode("Hello!").ids) == "Hello!"
    with pytest.raises(UnsupportedModelError, match="too small"):
        byte_tokenizer(3)


def test_config_json_is_needed(tmp_path: Path) -> None:
    bad = json.loads(json.dumps({**CONFIG, "model_type": "mamba"}))
    with pytest.raises(UnsupportedModelError, match="mamba"):
        RandomSource(tmp_path / "config.json", bad)
