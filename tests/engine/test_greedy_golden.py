"""The tiny model gives transformers' greedy tokens in every combination of layout, chunk, batch, mode
and cache state (``make_golden.py`` wrote them)."""

import json

import pytest

from ninfer_jax.engine.inference_engine import InferenceEngine
from tests.engine import cases
from tests.engine.greedy_matrix import CHUNKS, LAYOUTS, check, engine_config


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_greedy_tokens_equal_the_golden_file(layout, chunk):
    golden = json.loads(cases.GOLDEN.read_text())
    config = engine_config(layout, chunk, max_context=256)
    with InferenceEngine(cases.loaded_model(), config=config) as engine:
        check(engine, list(golden), list(golden.values()), has_hits=layout == "paged")
