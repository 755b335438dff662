"""A 100M-parameter random Qwen3.5 hybrid on this CPU, ours and transformers' torch code side by side.

    PYTHONPATH=. python profiles/hybrid_cpu.py [--weights int8 f32] [--repeats 5] [--moe]

Both read the same saved folder. Ours is the engine's own device half (compiled programs, sampling, the
copy of the token to the host); theirs is ``model(...)`` with its cache. Rounds are interleaved, so that a
noisy machine spoils both alike; figures are medians. Then our decode alone, by context and by slots.
Prints one JSON line.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ninfer_jax.artifact.loader import load
from ninfer_jax.artifact.random_source import CHAT_TEMPLATE, byte_tokenizer
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.build import build_device
from ninfer_jax.engine.executor import LaneBinding
from ninfer_jax.types import SamplingParams

VOCABULARY = 8192
PROMPT = 512
DECODED = 16
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 8192,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [6, 5, 5],
        "mrope_interleaved": True,
    },
}
EXPERTS = {
    "hidden_size": 512,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 256,
}


def save(folder: Path, moe: bool) -> Any:
    """A random float32 model of transformers, saved with a tokenizer; returns it."""
    import torch
    import transformers

    name = "Qwen3_5Moe" if moe else "Qwen3_5"
    config = getattr(transformers, f"{name}TextConfig")(**{**SIZES, **(EXPERTS if moe else {})})
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(byte_tokenizer(VOCABULARY).to_str())
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return model


class Ours:
    """One lane of the engine's device half."""

    def __init__(self, folder: Path, weights: Any, context: int = 1024, lanes: int = 1) -> None:
        config = EngineConfig(
            max_context=context, kv_capacity=context * lanes, max_concurrency=lanes, prefill_chunk=PROMPT
        )
        model = load(folder, weights=weights)
        self.num_parameters = model.num_parameters
        self.runner, cache = build_device(model, config)
        self.slot = cache.slots.allocate()
        self.pages = tuple(range(1, context // 64 + 1))

    def prefill(self, tokens: list[int]) -> float:
        self.runner.bind(0, LaneBinding(self.pages, self.slot, SamplingParams(temperature=0), len(tokens)))
        begin = time.perf_counter()
        self.runner.prefill(0, tokens, 0, sample=True).wait()
        return time.perf_counter() - begin

    def decode(self, start: int) -> float:
        """Seconds a token; the lane is free afterwards."""
        token, begin = 1, time.perf_counter()
        for frontier in range(start, start + DECODED):
            token = int(self.runner.decode([0], [token], [frontier]).wait()[0])
        seconds = (time.perf_counter() - begin) / DECODED
        self.runner.release(0)
        return seconds


class Theirs:
    """transformers' model with its own cache."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.cache: Any = None

    def prefill(self, tokens: list[int]) -> float:
        import torch
        from transformers import DynamicCache

        self.cache = DynamicCache(config=self.model.config)
        begin = time.perf_counter()
        with torch.no_grad():
            self.model(torch.tensor([tokens]), cache=self.cache, logits_to_keep=1).logits.argmax()
        return time.perf_counter() - begin

    def decode(self, start: int) -> float:
        import torch

        del start
        token, begin = torch.tensor([[1]]), time.perf_counter()
        with torch.no_grad():
            for _ in range(DECODED):
                token = self.model(token, cache=self.cache).logits[:, -1].argmax(-1, keepdim=True)
        return (time.perf_counter() - begin) / DECODED


def compare(sides: dict[str, Any], repeats: int) -> dict[str, dict[str, float]]:
    """Median tokens a second of each side, one round of warm-up."""
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, PROMPT).tolist()
    seconds: dict[str, dict[str, list[float]]] = {side: {"prefill": [], "decode": []} for side in sides}
    for repeat in range(repeats + 1):
        for name, side in sides.items():
            taken = {"prefill": side.prefill(tokens), "decode": side.decode(PROMPT)}
            if repeat:
                for phase, value in taken.items():
                    seconds[name][phase].append(value)
    per_call = {"prefill": PROMPT, "decode": 1}
    return {
        name: {
            phase: round(per_call[phase] / statistics.median(values), 1) for phase, values in taken.items()
        }
        for name, taken in seconds.items()
    }


def decode_milliseconds(folder: Path, weights: str, repeats: int) -> dict[str, dict[int, float]]:
    """Our decode by context (one slot) and by the number of slots (short context)."""
    by_context, by_slots = {}, {}
    long = Ours(folder, weights, context=4096)
    for context in (64, 1024, 4000):
        times = []
        for _ in range(repeats):
            long.prefill([1])  # attention reads pages of zeros as it reads any other
            times.append(long.decode(context))
        by_context[context] = round(1e3 * statistics.median(times), 2)
    for lanes in (1, 8):
        many = Ours(folder, weights, context=128, lanes=lanes)
        times = []
        for _ in range(repeats):
            many.prefill([1])
            times.append(many.decode(64))
        by_slots[lanes] = round(1e3 * statistics.median(times), 2)
    return {"by_context": by_context, "by_slots": by_slots}


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--weights", nargs="+", default=["int8", "f32"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--moe", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = save(folder, args.moe)
        sides: dict[str, Any] = {weights: Ours(folder, weights) for weights in args.weights}
        parameters = next(iter(sides.values())).num_parameters
        sides["transformers"] = Theirs(model)
        speeds = compare(sides, args.repeats)
        decode = decode_milliseconds(folder, args.weights[0], args.repeats)
    theirs = speeds["transformers"]
    ratios = {
        name: {phase: round(value / theirs[phase], 2) for phase, value in speed.items()}
        for name, speed in speeds.items()
        if name != "transformers"
    }
    facts = {
        "parameters": parameters,
        "threads": torch.get_num_threads(),
        "tokens_per_second": speeds,
        "times_transformers": ratios,
        "decode_ms": decode,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
