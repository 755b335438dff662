"""Write golden/greedy.json: transformers' greedy tokens for the tiny Llama of ``cases``.

    PYTHONPATH=. python tests/engine/make_golden.py

Refuses near ties, so that the file means the same on every machine.
"""

import json

import torch

from ninfer_jax.models import llama
from tests.engine import cases
from tests.engine.greedy_matrix import NUM_TOKENS, PROMPTS
from tests.models.cases import hugging_face_model, random_tensors
from tests.text.fakes import frontend

MIN_MARGIN = 1e-3


def main() -> None:
    torch.set_num_threads(1)  # tiny operations: more threads only wait for each other
    model = hugging_face_model(cases.HF_CONFIG, random_tensors(llama.abstract(cases.CONFIG)))
    tokenizer = frontend().tokenizer
    outputs = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt)
        start = len(ids)
        for _ in range(NUM_TOKENS):
            with torch.no_grad():
                best = model(torch.tensor([ids])).logits[0, -1].topk(2)
            assert best.values[0] - best.values[1] > MIN_MARGIN, f"a near tie after {prompt!r}"
            ids.append(int(best.indices[0]))
        outputs.append(ids[start:])
    cases.GOLDEN.parent.mkdir(exist_ok=True)
    lines = [f"{json.dumps(prompt)}: {output}" for prompt, output in zip(PROMPTS, outputs, strict=True)]
    cases.GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
