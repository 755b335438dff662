"""The demo model in float32 gives the greedy tokens of transformers on the same dequantised weights."""

import pytest

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.loader import load
from ninfer_jax.engine.inference_engine import InferenceEngine
from ninfer_jax.errors import ConfigError
from ninfer_jax.text.frontend import Frontend
from tests.engine.greedy_matrix import CHUNKS, LAYOUTS, NUM_TOKENS, PROMPTS, check, engine_config

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

FILLER = "The weather was fine, the sea was calm, and nobody on the pier had anything to do. "
PROMPTS_LONG = tuple(f"Story {n}. {FILLER * 4}{prompt}" for n, prompt in enumerate(PROMPTS, 1))
"""More than one page of tokens each, different from the second word on."""


@pytest.fixture(scope="module")
def model():
    try:
        return load(demo_model(), weights="f32")
    except ConfigError:
        pytest.skip("the demo model is not installed")


@pytest.fixture(scope="module")
def expected():
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # beside jax's own threads, more would only wait
    path = demo_model()
    oracle = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    frontend = Frontend.from_resources(load(path).resources, max_context=512)
    outputs = []
    for prompt in PROMPTS_LONG:
        ids = torch.tensor([frontend.prepare_text(prompt).prompt.token_ids])
        with torch.no_grad():
            out = oracle.generate(
                ids, max_new_tokens=NUM_TOKENS, min_new_tokens=NUM_TOKENS, do_sample=False, eos_token_id=None
            )
        outputs.append(out[0, ids.shape[1] :].tolist())
    return outputs


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_greedy_tokens_equal_transformers(model, expected, layout, chunk):
    with InferenceEngine(model, config=engine_config(layout, chunk, max_context=512)) as engine:
        check(engine, PROMPTS_LONG, expected, has_hits=layout == "paged")
