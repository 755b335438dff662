"""A tiny random Llama and a runner around it, with compiled programs shared by a test session."""

from functools import cache
from pathlib import Path

import jax
import numpy as np

from ninfer_jax.artifact.loader import Identity, LoadedModel, SourceDescription
from ninfer_jax.cache import SlotPool
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.executor import LaneBinding
from ninfer_jax.engine.programs import ProgramSpec
from ninfer_jax.engine.runner import DeviceRunner
from ninfer_jax.engine.sampling import SamplingPipeline
from ninfer_jax.engine.shapes import ShapeLadder
from ninfer_jax.engine.state import LaneTable, allocate
from ninfer_jax.engine.warmup import CompiledPrograms, compile_programs
from ninfer_jax.models import llama
from ninfer_jax.models.base import Weights
from ninfer_jax.models.weights import num_parameters
from ninfer_jax.types import SamplingParams
from tests.models.cases import random_tensors, weights_from
from tests.text.fakes import resources

HF_CONFIG = {
    "model_type": "llama",
    "vocab_size": 263,  # the byte tokenizer's
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}
CONFIG = llama.parse_config(HF_CONFIG)
GOLDEN = Path(__file__).parent / "golden" / "greedy.json"
NUM_LANES = 3
PAGES_PER_LANE = 5
ENGINE = EngineConfig(
    max_context=PAGES_PER_LANE * 64,
    kv_capacity=NUM_LANES * PAGES_PER_LANE * 64,
    max_concurrency=NUM_LANES,
)
LADDER = ShapeLadder((1, 2, 3), (16, 64))
SPEC = ProgramSpec(llama, CONFIG, SamplingPipeline())
GREEDY = SamplingParams(temperature=0.0)


@cache
def weights() -> Weights:
    specs = llama.abstract(CONFIG)
    return weights_from(specs, random_tensors(specs))


def new_state():
    return allocate(CONFIG, ENGINE, np.float32)


@cache
def programs() -> CompiledPrograms:
    table = LaneTable.of([None] * NUM_LANES, PAGES_PER_LANE)
    return compile_programs(SPEC, weights(), new_state(), table, LADDER)


def new_runner(tree=None) -> DeviceRunner:
    """A fresh state behind the shared programs."""
    tree = weights() if tree is None else tree
    slots = SlotPool(NUM_LANES)
    for _ in range(NUM_LANES):
        slots.allocate()  # a lane's slot has its number
    return DeviceRunner(SPEC, tree, new_state(), programs(), LADDER, PAGES_PER_LANE, slots)


def lane_pages(lane: int) -> tuple[int, ...]:
    first = 1 + lane * PAGES_PER_LANE
    return tuple(range(first, first + PAGES_PER_LANE))


def bind(runner: DeviceRunner, lane: int, prompt, sampling: SamplingParams = GREEDY, **kwargs) -> None:
    kwargs.setdefault("pages", lane_pages(lane))
    kwargs.setdefault("slot", lane)
    runner.bind(lane, LaneBinding(sampling=sampling, prompt_len=len(prompt), **kwargs))


def generate(
    runner: DeviceRunner, prompts, num_tokens: int, sampling=None, *, chunk: int = 64, lanes=None
) -> list[list[int]]:
    """Tokens of each prompt, all decoded in one batch; binds and releases the lanes."""
    lanes = list(range(len(prompts))) if lanes is None else list(lanes)
    sampling = [GREEDY] * len(prompts) if sampling is None else sampling
    outputs: list[list[int]] = []
    for lane, prompt, params in zip(lanes, prompts, sampling, strict=True):
        bind(runner, lane, prompt, params)
        for start in range(0, len(prompt), chunk):
            part = prompt[start : start + chunk]
            pending = runner.prefill(lane, part, start, sample=start + chunk >= len(prompt))
            tokens = pending.wait().tolist()
        outputs.append(tokens)
    frontiers = [len(prompt) for prompt in prompts]
    for _ in range(num_tokens - 1):
        tokens = runner.decode(lanes, [output[-1] for output in outputs], frontiers).wait().tolist()
        for output, token in zip(outputs, tokens, strict=True):
            output.append(token)
        frontiers = [frontier + 1 for frontier in frontiers]
    for lane in lanes:
        runner.release(lane)
    return outputs


def loaded_model() -> LoadedModel:
    """The tiny model with a byte tokenizer and a ChatML template, as a loader would give it."""
    specs = llama.abstract(CONFIG)
    return LoadedModel(
        identity=Identity("tiny", "llama"),
        architecture=llama,
        config=CONFIG,
        hf_config=HF_CONFIG,
        weights=weights(),
        weight_format="f32",
        resources=resources(),
        source=SourceDescription("random", "memory", {}),
        num_parameters=num_parameters(specs),
        weight_bytes=4 * num_parameters(specs),
    )


def poison(tree: Weights) -> Weights:
    """The same weights, every number NaN."""
    return jax.tree.map(lambda leaf: leaf * float("nan"), tree)
