"""A random checkpoint of any configuration, with a byte-level tokenizer, so that it can be served."""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ninfer_jax.artifact.recognise import recognise
from ninfer_jax.artifact.source import SourceKind, TensorInfo, count_formats
from ninfer_jax.errors import UnsupportedModelError
from ninfer_jax.models.base import ArraySpec
from ninfer_jax.models.weights import spec_leaves

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"
)


class RandomSource:
    """Weights drawn by name: the same seed gives a tensor the same values in every configuration where
    it has the same shape, in whatever order they are read."""

    kind: SourceKind = "random"

    def __init__(self, config_path: Path, config: Mapping[str, Any], seed: int = 0) -> None:
        self.path = config_path
        self.config = config
        self._seed = seed
        specs = spec_leaves(recognise(config).specs)
        self._specs: dict[str, tuple[ArraySpec, tuple[int, ...]]] = {
            name: (spec, shape)
            for spec in specs
            for name, shape in zip(spec.sources, spec.source_shapes, strict=True)
        }

    @property
    def model_id(self) -> str:
        return f"random-{self.config['model_type']}-{self._seed}"

    @cached_property
    def resources(self) -> Mapping[str, bytes]:
        vocab_size = (self.config.get("text_config") or self.config)["vocab_size"]
        tokenizer, ends = byte_tokenizer(vocab_size), [0, 2]
        return {
            "config.json": json.dumps(self.config, indent=2).encode(),
            "tokenizer.json": tokenizer.to_str().encode(),
            "chat_template.jinja": CHAT_TEMPLATE.encode(),
            "generation_config.json": json.dumps({"eos_token_id": ends}).encode(),
        }

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return {name: TensorInfo(shape, "F32", _nbytes(shape)) for name, (_, shape) in self._specs.items()}

    @property
    def formats(self) -> Mapping[str, int]:
        return count_formats(self.tensors)

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Every row has its own stream, so a row does not depend on the range it is read in."""
        spec, shape = self._specs[name]
        size = (stop - start, *shape[1:])
        match spec.init:
            case "ones":
                return np.ones(size, np.float32)
            case "zeros":
                return np.zeros(size, np.float32)
        if len(shape) == 1:
            return self._draw(spec, name, 0, shape)[start:stop]
        return np.stack([self._draw(spec, name, row, shape[1:]) for row in range(start, stop)])

    def _draw(self, spec: ArraySpec, name: str, row: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
        digest = hashlib.blake2b(f"{self._seed}\0{name}\0{row}".encode(), digest_size=16).digest()
        rng = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
        if spec.init == "uniform":
            return rng.random(shape, np.float32)
        is_matrix = len(spec.shape) > 1 and spec.role != "embedding"
        scale = shape[-1] ** -0.5 if is_matrix else 1.0
        return rng.standard_normal(shape, np.float32) * np.float32(scale)


def byte_tokenizer(vocab_size: int) -> Tokenizer:
    """Three control tokens and one token a byte, printable ASCII first; a vocabulary under 259 leaves
    out the last bytes. Raises UnsupportedModelError where not even ASCII fits."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=lambda piece: (ord(piece) > 126, piece))
    tokens = [*CONTROL_TOKENS, *alphabet][:vocab_size]
    if len(tokens) < len(CONTROL_TOKENS) + 1:
        raise UnsupportedModelError(f"a vocabulary of {vocab_size} is too small", field="vocab_size")
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in CONTROL_TOKENS])
    return tokenizer


def _nbytes(shape: tuple[int, ...]) -> int:
    return 4 * int(np.prod(shape))
