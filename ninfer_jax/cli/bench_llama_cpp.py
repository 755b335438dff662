"""llama.cpp as a target, through llama-cpp-python's low-level API.

The loop is llama-server's: every step is one batch of each running sequence's next token, filled up
with prompt tokens of those still in prefill. A prompt that starts with the longest-lived sequence's
prompt reuses its cache. Sampling is argmax.
"""

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ninfer_jax.cli.bench_target import Job, Trace, own_peak_memory, random_tokens
from ninfer_jax.errors import NinferError

BATCH = 2048
"""Tokens in one step, llama-server's default."""


class _Sequence:
    """One job's progress: ``tokens`` is prompt then output, ``done`` of them are in the cache."""

    def __init__(self, tokens: list[int], output_tokens: int, reused: int) -> None:
        self.tokens = tokens
        self.prompt_len = len(tokens)
        self.limit = len(tokens) + output_tokens
        self.done = reused
        self.times: list[float] = []

    @property
    def running(self) -> bool:
        return len(self.tokens) < self.limit


class LlamaCppTarget:
    """A GGUF file in llama.cpp on the CPU; one sequence a slot, each with its own cache region."""

    name = "llama.cpp"

    def __init__(self, path: Path, *, slots: int, context: int, threads: int) -> None:
        try:
            import llama_cpp
        except ImportError:
            raise NinferError("bench --against llama.cpp needs the package llama-cpp-python") from None
        self._api: Any = llama_cpp
        llama_cpp.llama_backend_init()
        self._silence = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._silence, ctypes.c_void_p(0))
        self._model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise NinferError(f"llama.cpp cannot load {path}")
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_seq_max = slots
        parameters.n_ctx = slots * context
        parameters.n_batch = BATCH
        parameters.n_threads = parameters.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise NinferError(f"llama.cpp cannot make a context of {slots} x {context} tokens")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._cached: list[list[int]] = [[] for _ in range(slots)]

    def run(self, jobs: Sequence[Job]) -> list[Trace]:
        prompts = [random_tokens(job, self._vocab_size) for job in jobs]
        started = time.monotonic()
        sequences = [
            _Sequence(prompt, job.output_tokens, self._reuse(slot, prompt))
            for slot, (job, prompt) in enumerate(zip(jobs, prompts, strict=True))
        ]
        while any(sequence.running for sequence in sequences):
            self._step(sequences)
        for slot, sequence in enumerate(sequences):
            self._cached[slot] = sequence.tokens[: sequence.done]
        return [
            Trace(s.prompt_len, started, tuple(s.times), tuple(range(1, len(s.times) + 1))) for s in sequences
        ]

    def peak_memory(self) -> int | None:
        return own_peak_memory()

    def close(self) -> None:
        self._api.llama_batch_free(self._batch)
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)

    def _reuse(self, slot: int, prompt: list[int]) -> int:
        """Keep the slot's cached tokens that ``prompt`` starts with, short of its last; drop the rest."""
        common = 0
        for old, new in zip(self._cached[slot], prompt[:-1], strict=False):
            if old != new:
                break
            common += 1
        self._api.llama_memory_seq_rm(self._memory, slot, common, -1)
        return common

    def _step(self, sequences: list[_Sequence]) -> None:
        """One ``llama_decode``: running sequences first (one token each), then prompt tokens."""
        by_need = sorted(
            (slot for slot, sequence in enumerate(sequences) if sequence.running),
            key=lambda slot: len(sequences[slot].tokens) - sequences[slot].done,
        )
        filled = 0
        sampled: list[tuple[int, _Sequence]] = []
        for slot in by_need:
            sequence = sequences[slot]
            count = min(len(sequence.tokens) - sequence.done, BATCH - filled)
            if count == 0:
                continue
            self._put(filled, slot, sequence, count)
            filled += count
            sequence.done += count
            if sequence.done == len(sequence.tokens):
                self._batch.logits[filled - 1] = 1
                sampled.append((filled - 1, sequence))
        self._batch.n_tokens = filled
        if self._api.llama_decode(self._context, self._batch) != 0:
            raise NinferError("llama.cpp: llama_decode failed")
        for row, sequence in sampled:
            logits = self._api.llama_get_logits_ith(self._context, row)
            sequence.tokens.append(int(np.ctypeslib.as_array(logits, (self._vocab_size,)).argmax()))
        now = time.monotonic()
        for _, sequence in sampled:
            sequence.times.append(now)

    def _put(self, at: int, slot: int, sequence: _Sequence, count: int) -> None:
        def field(pointer: Any) -> Any:
            return np.ctypeslib.as_array(pointer, (BATCH,))[at : at + count]

        field(self._batch.token)[:] = sequence.tokens[sequence.done : sequence.done + count]
        field(self._batch.pos)[:] = np.arange(sequence.done, sequence.done + count)
        field(self._batch.n_seq_id)[:] = 1
        field(self._batch.logits)[:] = 0
        for row in range(at, at + count):
            self._batch.seq_id[row][0] = slot
