"""What the benchmark measures: jobs go into a target, traces of token times come out.

A target is anything that can run a batch of jobs: our engine in a process of its own, an
OpenAI-compatible server, llama.cpp, transformers. All figures are computed from traces, by the same
code for every target (:mod:`ninfer_jax.cli.bench_measures`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class Job:
    """One generation to time. Two jobs with the same ``seed`` have the same prompt; ``shared_tokens`` of
    it, from the start, come from ``shared_seed`` instead (a common prefix). Output is greedy and runs
    to ``output_tokens`` whatever the model says, where the target can do that."""

    prompt_tokens: int
    output_tokens: int
    seed: int
    shared_tokens: int = 0
    shared_seed: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """When one job's tokens were seen: ``counts[i]`` output tokens by ``times[i]`` (monotonic seconds,
    one clock for the whole machine). ``prompt_tokens`` is what the target really processed or reused."""

    prompt_tokens: int
    started: float
    times: tuple[float, ...]
    counts: tuple[int, ...]


class Target(Protocol):
    """Something to measure. ``run`` starts all jobs at once and returns their traces in order."""

    @property
    def name(self) -> str: ...

    def run(self, jobs: Sequence[Job]) -> list[Trace]: ...

    def peak_memory(self) -> int | None:
        """Largest resident size so far in bytes, weights included; None when it cannot be known."""
        ...

    def close(self) -> None: ...


def random_tokens(job: Job, vocab_size: int) -> list[int]:
    """The job's prompt as token ids, away from the ends of the vocabulary, where the special ids are."""
    low, high = vocab_size // 8, vocab_size - vocab_size // 8

    def draw(seed: int, count: int) -> list[int]:
        return np.random.default_rng(seed).integers(low, high, count).tolist()  # type: ignore[no-any-return]

    return draw(job.shared_seed, job.shared_tokens) + draw(job.seed, job.prompt_tokens - job.shared_tokens)


def own_peak_memory() -> int:
    """This process's peak resident size in bytes."""
    return peak_memory_of("self")


def peak_memory_of(process: int | str) -> int:
    """A process's peak resident size in bytes, as the kernel counts it (``VmHWM``)."""
    with open(f"/proc/{process}/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{process}/status has no VmHWM line")
