"""Folders that transformers saved, served over HTTP, answer with transformers' greedy tokens."""

from pathlib import Path
from typing import Any

import pytest

from ninfer_jax.artifact.loader import load
from ninfer_jax.artifact.random_source import CHAT_TEMPLATE, CONTROL_TOKENS, byte_tokenizer
from tests.cli.test_serve import CHAT, Running
from tests.models.hybrid_cases import CONFIGS, MULTIMODAL

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

VOCABULARY = 256 + len(CONTROL_TOKENS)
PRINTABLE = range(len(CONTROL_TOKENS), len(CONTROL_TOKENS) + 95)
PROMPTS = ("Hello", "The quick brown fox jumps over the lazy dog.")
TOKENS = 40


def save(name: str, folder: Path) -> Any:
    """A random model of one class in ``folder``, with a tokenizer beside it; returns it."""
    import torch
    import transformers

    sizes = {**CONFIGS["sparse" if "Moe" in name else "dense"], "vocab_size": VOCABULARY}
    sizes.pop("model_type")
    if name.endswith("ForConditionalGeneration"):
        rest = {key: value for key, value in MULTIMODAL.items() if key not in ("model_type", "text_config")}
        kind = getattr(transformers, name.replace("ForConditionalGeneration", "Config"))
        config = kind(text_config=sizes, **rest)
    else:
        config = getattr(transformers, name.replace("ForCausalLM", "TextConfig"))(**sizes)
    torch.manual_seed(7)
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.1)
        head = model.lm_head.weight
        head.normal_(0, 1)
        outside = [index for index in range(VOCABULARY) if index not in PRINTABLE]
        head[outside] = 0  # answers are plain ASCII, so that text and tokens say the same
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(byte_tokenizer(VOCABULARY).to_str())
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return model


def greedy_text(model: Any, prompt: str) -> str:
    import torch

    tokenizer = byte_tokenizer(VOCABULARY)
    rendered = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    ids = torch.tensor([tokenizer.encode(rendered, add_special_tokens=False).ids])
    with torch.no_grad():
        out = model.generate(ids, do_sample=False, max_new_tokens=TOKENS, eos_token_id=None, pad_token_id=0)
    return tokenizer.decode(out[0, ids.shape[1] :].tolist())


@pytest.mark.parametrize(
    "name",
    [
        "Qwen3_5ForCausalLM",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    ],
)
def test_served_answers_are_transformers_answers(name: str, tmp_path: Path) -> None:
    model = save(name, tmp_path)
    assert load(tmp_path, weights="f32").num_parameters > 0
    server = Running(tmp_path, "--weights", "f32")
    server.wait_ready()
    try:
        for prompt in PROMPTS:
            body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "ignore_eos": True}
            answer = server.http.post(CHAT, json={**body, "max_tokens": TOKENS})
            assert answer.status_code == 200, answer.text
            content = answer.json()["choices"][0]["message"]["content"]
            assert content.strip() == greedy_text(model, prompt).strip()
            assert len(content) > TOKENS // 2
    finally:
        server.end()
