"""Write ``expected_text.json``: SmolLM2's greedy answers in float32, computed on a CPU.

    JAX_PLATFORMS=cpu python -m profiles.device.write_expected

Refuses near ties, so that the file means the same on every device.
"""

import json
from typing import Any

import numpy as np

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.loader import LoadedModel, load
from ninfer_jax.engine.inference_engine import InferenceEngine
from ninfer_jax.engine.shapes import ShapeLadder
from ninfer_jax.text.simple_messages import conversation_of
from profiles.device.demo import EXPECTED, SMALL
from profiles.device.lanes import Lanes

MIN_MARGIN = 0.02
"""Between the best and the second-best logit, twenty times what float32 sums in another order change."""
QUESTIONS = {
    "What is the capital of France?": 16,
    "Write a short story about a lighthouse keeper who finds a bottle.": 64,
    "Explain in three sentences why the sky is blue.": 64,
    "List five fruits and the colour of each.": 48,
    "Write a Python function that adds two numbers.": 64,
    "Who wrote Hamlet?": 24,
}


def main() -> None:
    model = load(demo_model(), weights="f32")
    with InferenceEngine(model, config=SMALL) as engine:
        chats = [_answer(engine, model, question, tokens) for question, tokens in QUESTIONS.items()]
    kept = [chat for chat in chats if chat["margin"] >= MIN_MARGIN]
    EXPECTED.write_text(json.dumps(kept, indent=2) + "\n")
    for chat in chats:
        print(f"{chat['margin']:.4f} {'kept' if chat in kept else 'near tie'}: {chat['text'][:60]!r}")


def _answer(engine: InferenceEngine, model: LoadedModel, question: str, tokens: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    text = engine.generate(messages, temperature=0.0, max_tokens=tokens)
    prompt = engine.frontend.prepare(conversation_of(messages)).prompt.token_ids
    lanes = Lanes(model, SMALL, ShapeLadder((1,), (16, 32, 64)))
    told = lanes.continuation([prompt], 0, tokens)
    best = [np.sort(lanes.scores(hidden))[-2:] for hidden in told.hidden]
    margin = min(float(top - second) for second, top in best)
    return {"messages": messages, "max_tokens": tokens, "text": text, "margin": round(margin, 4)}


if __name__ == "__main__":
    main()
