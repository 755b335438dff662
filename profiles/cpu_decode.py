"""Time prefill and decode of a random-weight model of SmolLM2-135M's shape: a table, then one JSON line.

    PYTHONPATH=. python profiles/cpu_decode.py [--weights int8] [--repeats 30] [--capacity 16384]

Whole programs are timed (model, head, greedy token, host copy of the ids), median over rounds. Decode
cells are interleaved, so that a noisy machine spoils all of them alike. ``floor`` is what reading the
weights once and the live keys and values costs at the read bandwidth measured in the same run.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ninfer_jax.models import llama
from ninfer_jax.models.base import PAGE_SIZE, ModelState, StepInputs
from ninfer_jax.models.state import allocate_state
from ninfer_jax.models.weights import random_weights

VOCABULARY = 49152
CONFIG = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
}
MAX_ROWS = 8
PREFILL_CHUNK = 512


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def step(config: Any, weights: Any, state: ModelState, inputs: StepInputs) -> tuple[jax.Array, ModelState]:
    """The greedy token after each row's last real column, ``[B]``."""
    hidden, state = llama.forward(config, weights, state, inputs)
    last = jnp.take_along_axis(hidden, (inputs.lengths - 1)[:, None, None], axis=1)
    return jnp.argmax(llama.logits(config, weights, last[:, 0]), axis=-1), state


def step_inputs(starts: list[int], columns: int, width: int) -> StepInputs:
    """``columns`` tokens for each row; row b owns pages ``1 + b * width`` and up."""
    rows = len(starts)
    rng = np.random.default_rng(0)
    return StepInputs(
        tokens=jnp.asarray(rng.integers(0, VOCABULARY, (rows, columns)), jnp.int32),
        positions=jnp.asarray(np.array(starts)[None, :, None] + np.arange(columns), jnp.int32),
        starts=jnp.asarray(starts, jnp.int32),
        lengths=jnp.full(rows, columns, jnp.int32),
        block_tables=jnp.asarray(1 + np.arange(rows * width).reshape(rows, width), jnp.int32),
        slots=jnp.arange(rows, dtype=jnp.int32),
    )


class Bench:
    """One model and its state; ``run`` returns the seconds of one step."""

    def __init__(self, weights: Any, capacity: int) -> None:
        self.config = llama.parse_config(CONFIG)
        self.weights = random_weights(llama.abstract(self.config), 0, weights)
        self.width = capacity // MAX_ROWS // PAGE_SIZE
        num_pages = capacity // PAGE_SIZE + 1
        self.state = allocate_state(self.config, num_pages, MAX_ROWS, jnp.float32, jnp.float32)
        self.weight_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self.weights))
        pool_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self.state.layers))
        self.kv_token_bytes = pool_bytes / num_pages / PAGE_SIZE

    def run(self, inputs: StepInputs) -> float:
        begin = time.perf_counter()
        tokens, self.state = step(self.config, self.weights, self.state, inputs)
        np.asarray(tokens)
        return time.perf_counter() - begin

    def decode_step(self, rows: int, context: int) -> list[StepInputs]:
        return [step_inputs([context] * rows, 1, self.width)]

    def prefill_steps(self, length: int) -> list[StepInputs]:
        chunks = [(start, min(PREFILL_CHUNK, length - start)) for start in range(0, length, PREFILL_CHUNK)]
        return [step_inputs([start], columns, self.width) for start, columns in chunks]


def timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def read_bandwidth() -> float:
    """Bytes a second of XLA summing 256 MB with all threads, best of 10."""
    data = jnp.ones(64 * 2**20, jnp.float32)
    total = jax.jit(jnp.sum)
    return data.nbytes / min(timed(lambda: total(data).block_until_ready()) for _ in range(10))


def measure(bench: Bench, cells: dict[str, list[StepInputs]], repeats: int) -> dict[str, float]:
    """Median seconds of each cell, round by round over all of them; the first round compiles."""
    times: dict[str, list[float]] = {name: [] for name in cells}
    for index in range(repeats + 1):
        for name, steps in cells.items():
            seconds = sum(bench.run(inputs) for inputs in steps)
            if index:
                times[name].append(seconds)
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", default="int8", choices=["f32", "bf16", "int8"])
    parser.add_argument("--repeats", type=int, default=30, help="decode rounds; a fifth of it for prefill")
    parser.add_argument("--capacity", type=int, default=MAX_ROWS * 2048, help="pool size in tokens")
    parser.add_argument("--prefill", type=int, nargs="*", default=[128, 512, 1500])
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--contexts", type=int, nargs="*", default=[100, 500, 1900])
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    bench = Bench(options.weights, options.capacity)
    bandwidth = read_bandwidth()
    prompts = {f"prefill_{length}": bench.prefill_steps(length) for length in options.prefill}
    points = [(rows, context) for rows in options.rows for context in options.contexts]
    cells = {f"decode_b{rows}_ctx{context}": bench.decode_step(rows, context) for rows, context in points}
    seconds = measure(bench, prompts, max(3, options.repeats // 5)) | measure(bench, cells, options.repeats)
    result: dict[str, Any] = {"weights": options.weights, "bandwidth_gb_s": round(bandwidth / 1e9, 1)}
    print(f"weights {options.weights} {bench.weight_bytes / 1e6:.0f} MB, {bandwidth / 1e9:.1f} GB/s")
    for length in options.prefill:
        median = seconds[f"prefill_{length}"]
        print(f"prefill {length:5d} tokens: {median * 1e3:8.1f} ms  {length / median:7.1f} tok/s")
        result[f"prefill_{length}_tok_s"] = round(length / median, 1)
    for rows, context in points:
        median = seconds[f"decode_b{rows}_ctx{context}"]
        floor = (bench.weight_bytes + rows * context * bench.kv_token_bytes) / bandwidth
        print(
            f"decode B={rows} context {context:5d}: {median * 1e3:8.2f} ms  {rows / median:7.1f} tok/s"
            f"  floor {floor * 1e3:.2f} ms"
        )
        result[f"decode_b{rows}_ctx{context}_ms"] = round(median * 1e3, 3)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
