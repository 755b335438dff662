"""transformers (PyTorch, f32) as a target: one batched prefill, then one batched step a token."""

import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ninfer_jax.cli.bench_target import Job, Trace, own_peak_memory, random_tokens
from ninfer_jax.errors import NinferError


class TransformersTarget:
    """A checkpoint folder or a GGUF file in transformers. It keeps no cache between requests."""

    name = "transformers"

    def __init__(self, path: Path, *, threads: int) -> None:
        os.environ.update(TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1")
        warnings.simplefilter("ignore")  # the peer's deprecations are not the reader's
        try:
            import accelerate  # noqa: F401  # transformers asks for it to read GGUF
            import torch
            import transformers
        except ImportError as error:
            raise NinferError(f"bench --against transformers: {error}") from None
        torch.set_num_threads(threads)
        self._torch: Any = torch
        where = (path.parent, {"gguf_file": path.name}) if path.is_file() else (path, {})
        load: Any = transformers.AutoModelForCausalLM.from_pretrained
        self._model: Any = load(where[0], dtype=torch.float32, **where[1]).eval()

    def run(self, jobs: Sequence[Job]) -> list[Trace]:
        """Rows must be of one length, as they are in every experiment."""
        torch = self._torch
        prompts = [random_tokens(job, self._model.config.vocab_size) for job in jobs]
        if len({len(prompt) for prompt in prompts}) != 1:
            raise NinferError("bench: transformers runs jobs of equal prompt length only")
        started = time.monotonic()
        times: list[float] = []
        with torch.inference_mode():
            tokens, cache = torch.tensor(prompts), None
            for _ in range(max(job.output_tokens for job in jobs)):
                output = self._model(
                    input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=1
                )
                cache = output.past_key_values
                tokens = output.logits[:, -1].argmax(-1, keepdim=True)
                tokens.tolist()
                times.append(time.monotonic())
        return [
            Trace(len(prompt), started, tuple(times[:limit]), tuple(range(1, limit + 1)))
            for limit, prompt in zip([job.output_tokens for job in jobs], prompts, strict=True)
        ]

    def peak_memory(self) -> int | None:
        return own_peak_memory()

    def close(self) -> None:
        del self._model
