"""A server whose engine is the real one, over a tiny random Llama that answers in printable ASCII."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from ninfer_jax.artifact.random_source import CHAT_TEMPLATE, CONTROL_TOKENS, byte_tokenizer
from ninfer_jax.cli.resident_model import load_resident
from ninfer_jax.observe.monitor import ServeMonitor
from ninfer_jax.server.options import ServeOptions
from tests.artifact import checkpoints
from tests.server.harness import LiveServer

MAX_CONTEXT = 512
VOCABULARY = 256 + len(CONTROL_TOKENS)
PRINTABLE = range(len(CONTROL_TOKENS), len(CONTROL_TOKENS) + 95)
OPTIONS = replace(
    ServeOptions(),
    model_id="fake-model",
    weights="f32",
    max_context=MAX_CONTEXT,
    kv_capacity=2 * MAX_CONTEXT,
    max_concurrency=2,
    prefill_chunk=32,
)


def write_model(folder: Path) -> Path:
    """No greedy token is a control token or half a character, so the answers of every test have a text."""
    hf_config = checkpoints.config(
        vocab_size=VOCABULARY, max_position_embeddings=MAX_CONTEXT, tie_word_embeddings=False
    )
    arrays = checkpoints.tensors(hf_config)
    head = arrays["lm_head.weight"]
    head[[row for row in range(VOCABULARY) if row not in PRINTABLE]] = 0
    head[list(PRINTABLE)] *= np.float32(10)
    checkpoints.write_folder(folder, hf_config, arrays)
    (folder / "tokenizer.json").write_text(byte_tokenizer(VOCABULARY).to_str())
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return folder


@contextmanager
def real_server(folder: Path) -> Iterator[LiveServer]:
    monitor = ServeMonitor(interval=0)
    resident = load_resident(write_model(folder), OPTIONS, monitor, lambda error: None)
    public = {name: getattr(OPTIONS, name) for name in ("model_id", "max_context", "max_concurrency")}
    try:
        with LiveServer(resident.engine, resident.frontend, monitor=monitor, **public) as server:
            yield server
    finally:
        resident.engine.shutdown()
        monitor.close()
