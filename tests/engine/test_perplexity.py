"""Perplexity: the arithmetic on a tiny model, the price of int8 on the demo model."""

from pathlib import Path

import numpy as np
import pytest

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.loader import load
from ninfer_jax.engine.perplexity import perplexity
from ninfer_jax.errors import ConfigError
from ninfer_jax.text.frontend import Frontend
from tests.engine import cases
from tests.models.cases import Driver

SAMPLE = Path(__file__).parent.parent / "data" / "sample.txt"


def test_it_is_the_mean_likelihood_whatever_the_steps():
    ids = np.random.default_rng(4).integers(0, cases.CONFIG.vocab_size, 129).tolist()
    driver = Driver(cases.CONFIG, cases.weights(), 1)
    driver.step([ids])
    logits = np.stack(driver.logits[0]).astype(np.float64)
    losses = [np.log(np.exp(row).sum()) - row[token] for row, token in zip(logits, ids[1:], strict=False)]
    model = cases.loaded_model()
    expected = pytest.approx(np.exp(np.mean(losses[:128])), rel=1e-4)
    assert perplexity(model, ids, rows=1, columns=128) == expected
    assert perplexity(model, ids, rows=1, columns=32) == expected
    halves = perplexity(model, ids, rows=2, columns=16)
    assert halves == pytest.approx(perplexity(model, ids, rows=2, columns=1), rel=1e-4)
    with pytest.raises(ValueError, match="do not fill"):
        perplexity(model, ids, rows=2, columns=65)


@pytest.mark.parity
@pytest.mark.parametrize(("rows", "columns"), [(1, 256), (8, 1)])
def test_int8_costs_less_than_one_percent(rows, columns):
    try:
        path = demo_model()
    except ConfigError:
        pytest.skip("the demo model is not installed")
    values = []
    for weights in ("f32", "int8"):
        model = load(path, weights=weights)
        frontend = Frontend.from_resources(model.resources, max_context=1 << 20)
        ids = frontend.prepare_text(SAMPLE.read_text()).prompt.token_ids
        values.append(perplexity(model, ids, rows=rows, columns=columns))
    assert values[1] == pytest.approx(values[0], rel=0.01)
