"""Logits against transformers in float32: every family, by chunks, in ragged batches, then decoding."""

from typing import Any

import numpy as np
import pytest

from ninfer_jax.models import llama
from tests.models.cases import CONFIGS, Driver, hugging_face_model, random_tensors, weights_from

pytestmark = pytest.mark.parity

LENGTHS = (1, 63, 130, 9)
DECODED = 4
TOLERANCE = 1e-4


def oracle(model: Any, row: list[int]) -> Any:
    import torch

    with torch.no_grad():
        return model(torch.tensor([row])).logits[0].numpy()


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_match_transformers(name: str) -> None:
    config = llama.parse_config(CONFIGS[name])
    specs = llama.abstract(config)
    tensors = random_tensors(specs)
    model = hugging_face_model(CONFIGS[name], tensors)
    assert config == llama.parse_config(model.config.to_dict())
    weights = weights_from(specs, tensors)
    rng = np.random.default_rng(3)
    rows = [rng.integers(0, config.vocab_size, length + DECODED).tolist() for length in LENGTHS]
    driver = Driver(config, weights, len(rows))
    for chunk in range(0, max(LENGTHS), 50):
        driver.step([row[:length][chunk : chunk + 50] for row, length in zip(rows, LENGTHS, strict=True)], 50)
    for step in range(DECODED):
        driver.step([[row[length + step]] for row, length in zip(rows, LENGTHS, strict=True)])
    for row, logits in zip(rows, driver.logits, strict=True):
        expected = oracle(model, row)
        assert np.abs(expected).max() > 1.0
        np.testing.assert_allclose(np.stack(logits), expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("chunk", [1, 16, 64, 200])
def test_chunking_does_not_matter(chunk: int) -> None:
    config = llama.parse_config(CONFIGS["qwen3"])
    specs = llama.abstract(config)
    tensors = random_tensors(specs, seed=1)
    model = hugging_face_model(CONFIGS["qwen3"], tensors)
    weights = weights_from(specs, tensors)
    row = np.random.default_rng(4).integers(0, config.vocab_size, 150).tolist()
    driver = Driver(config, weights, 1)
    for start in range(0, len(row), chunk):
        driver.step([row[start : start + chunk]], chunk)
    np.testing.assert_allclose(np.stack(driver.logits[0]), oracle(model, row), atol=TOLERANCE, rtol=0)
