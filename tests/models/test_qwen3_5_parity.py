"""Hybrids against transformers in float32: hidden states, logits, and both recurrent states."""

import itertools
from typing import Any

import numpy as np
import pytest

from ninfer_jax.models.base import KVPool
from ninfer_jax.models.registry import architecture
from tests.models.cases import Driver, hugging_face_model, random_tensors, weights_from
from tests.models.hybrid_cases import CONFIGS, SCALE, scattered_positions

pytestmark = pytest.mark.parity

LENGTHS = (1, 2, 63, 64, 65, 150)
DECODED = 32
TOLERANCE = 1e-4


class Oracle:
    """One row through transformers: prompt in one pass, then token by token with its own cache."""

    def __init__(self, model: Any, row: list[int], prompt: int, positions: Any) -> None:
        import torch
        from transformers import DynamicCache

        cache = DynamicCache(config=model.config)
        logits, hidden = [], []
        spans = [(0, prompt), *((at, at + 1) for at in range(prompt, len(row)))]
        with torch.no_grad():
            for start, stop in spans:
                out = model(
                    input_ids=torch.tensor([row[start:stop]]),
                    position_ids=torch.from_numpy(positions[:, None, start:stop]),
                    cache=cache,
                    output_hidden_states=True,
                )
                logits.append(out.logits[0].numpy())
                hidden.append(out.hidden_states[-1][0].numpy())
        self.logits, self.hidden = np.concatenate(logits), np.concatenate(hidden)
        self.states = [
            (cache.get_recurrent_state(i)[0].numpy(), cache.get_conv_state(i)[0].numpy())
            if kind == "linear_attention"
            else None
            for i, kind in enumerate(model.config.layer_types)
        ]


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, atol=TOLERANCE, rtol=0)


def check_row(driver: Driver, row: int, oracle: Oracle) -> None:
    assert np.abs(oracle.logits).max() > 1.0
    close(np.stack(driver.logits[row]), oracle.logits)
    close(np.stack(driver.hidden[row]), oracle.hidden)
    for state, expected in zip(driver.state.layers, oracle.states, strict=True):
        if expected is None:
            assert isinstance(state, KVPool)
            continue
        rule, conv = expected
        history = state.conv.shape[1]
        close(state.rule[row], rule)
        close(np.asarray(state.conv[row]).T, conv[:, -history:])


@pytest.fixture(scope="module", params=CONFIGS)
def models(request: Any) -> Any:
    hf_config = CONFIGS[request.param]
    module = architecture(hf_config)
    config = module.parse_config(hf_config)
    specs = module.abstract(config)
    tensors = random_tensors(specs, scale=SCALE)
    model = hugging_face_model(hf_config, tensors)
    assert module.parse_config(model.config.to_dict()) == config
    return config, weights_from(specs, tensors), model


def random_row(config: Any, length: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, config.vocab_size, length).tolist()


def feed(driver: Driver, rows: list[list[int]], positions: list[Any], starts: Any, stops: Any) -> None:
    """One step of ``rows[b][starts[b]:stops[b]]`` at their own positions."""
    width = max(stops - starts)
    padded = np.zeros((3, len(rows), width), np.int32)
    for index, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        padded[:, index, : stop - start] = positions[index][:, start:stop]
    tokens = [row[start:stop] for row, start, stop in zip(rows, starts, stops, strict=True)]
    driver.step(tokens, width, padded)


@pytest.fixture(scope="module")
def references(models: Any) -> Any:
    """Rows of every prompt length, at positions whose axes differ, and what transformers makes of them."""
    config, _, model = models
    rows = [random_row(config, prompt + DECODED, prompt) for prompt in LENGTHS]
    positions = [scattered_positions(len(row), len(row)) for row in rows]
    oracles = [Oracle(model, *case) for case in zip(rows, LENGTHS, positions, strict=True)]
    return rows, positions, oracles


@pytest.mark.parametrize("chunk", [1, 7, 64, 150])
def test_rows_of_every_length_by_chunks_then_decode(models: Any, references: Any, chunk: int) -> None:
    config, weights, _ = models
    rows, positions, oracles = references
    driver = Driver(config, weights, len(rows))
    prompts = np.array(LENGTHS)
    for start in range(0, max(LENGTHS), chunk):
        starts = np.minimum(start, prompts)
        feed(driver, rows, positions, starts, np.minimum(start + chunk, prompts))
    for step in range(DECODED):
        feed(driver, rows, positions, prompts + step, prompts + step + 1)
    for index, oracle in enumerate(oracles):
        check_row(driver, index, oracle)


@pytest.mark.parametrize(("length", "chunk"), [(1, 1), (65, 1), (63, 7), (150, 150), (150, 64)])
def test_one_row_alone(models: Any, references: Any, length: int, chunk: int) -> None:
    config, weights, _ = models
    row, positions, oracle = (part[LENGTHS.index(length)] for part in references)
    driver = Driver(config, weights, 1)
    edges = [*range(0, length, chunk), *range(length, len(row) + 1)]
    for start, stop in itertools.pairwise(edges):
        feed(driver, [row], [positions], np.array([start]), np.array([stop]))
    check_row(driver, 0, oracle)


def test_a_batch_of_eight_equals_each_row_alone(models: Any) -> None:
    config, weights, _ = models
    lengths = (1, 2, 63, 64, 65, 150, 17, 100)
    rows = [random_row(config, length + 8, seed) for seed, length in enumerate(lengths)]
    batch = Driver(config, weights, len(rows))
    batch.step([row[:length] for row, length in zip(rows, lengths, strict=True)], 150)
    for step in range(8):
        batch.step([[row[length + step]] for row, length in zip(rows, lengths, strict=True)])
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        alone = Driver(config, weights, 1)
        alone.step([row[:length]], 150)
        for token in row[length:]:
            alone.step([[token]])
        close(np.stack(batch.logits[index]), np.stack(alone.logits[0]))
        for state, expected in zip(batch.state.layers, alone.state.layers, strict=True):
            if not isinstance(state, KVPool):
                close(state.rule[index], expected.rule[0])
                close(state.conv[index], expected.conv[0])
