"""The sampler: one vectorised function in the graph, with every request parameter a per-row array.

Order: penalties, the best ``cap`` candidates, top-k, temperature, softmax, min-p, top-p, renormalise,
draw. Temperature 0 is exact argmax (lowest id on ties) of the penalised logits: penalties count there
too, as in the OpenAI API, and cost nothing when no row of the batch has one. Only speculative
verification of greedy rows ignores them.

Letters: B rows, V vocabulary, K candidates (``cap`` or V), S slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ninfer_jax.engine import rng
from ninfer_jax.types import SamplingParams

CANDIDATE_BLOCK = 128
"""Logits per block of :func:`top_candidates`; from 64 to 256 the cost hardly changes."""


class SamplingRows(NamedTuple):
    """Sampler settings, one row a request: ``[B]`` float32 (``top_k`` int32), seed ``[B, 2]`` uint32."""

    temperature: jax.Array
    top_k: jax.Array
    top_p: jax.Array
    min_p: jax.Array
    presence_penalty: jax.Array
    frequency_penalty: jax.Array
    seed: jax.Array

    @classmethod
    def of(cls, params: Sequence[SamplingParams]) -> "SamplingRows":
        """Device arrays for these requests."""

        def floats(name: str) -> jax.Array:
            values: jax.Array = jax.device_put(np.array([getattr(p, name) for p in params], np.float32))
            return values

        return cls(
            temperature=floats("temperature"),
            top_k=jax.device_put(np.array([p.top_k for p in params], np.int32)),
            top_p=floats("top_p"),
            min_p=floats("min_p"),
            presence_penalty=floats("presence_penalty"),
            frequency_penalty=floats("frequency_penalty"),
            seed=jax.device_put(np.stack([rng.seed_words(p.seed) for p in params])),
        )


class Candidates(NamedTuple):
    """The tokens still in question, best first, ties by lowest id. ``ids`` ``[B, K]`` int32;
    ``scores`` ``[B, K]`` float32: logits up to :class:`Softmax`, probabilities after it. A removed
    candidate has score -inf, then 0; what is removed is always the tail of a row."""

    ids: jax.Array
    scores: jax.Array


class Strategy(Protocol):
    """One step over the candidates. Frozen and hashable: a pipeline is a static argument."""

    def __call__(self, candidates: Candidates, rows: SamplingRows) -> Candidates: ...


@dataclass(frozen=True, slots=True)
class TopK:
    """Keep the first ``top_k``; 0 keeps every candidate, that is the cap."""

    def __call__(self, candidates: Candidates, rows: SamplingRows) -> Candidates:
        rank = lax.broadcasted_iota(jnp.int32, candidates.scores.shape, 1)
        keep = (rows.top_k[:, None] == 0) | (rank < rows.top_k[:, None])
        return candidates._replace(scores=jnp.where(keep, candidates.scores, -jnp.inf))


@dataclass(frozen=True, slots=True)
class Temperature:
    """Divide by the temperature; 0 keeps the best candidate alone."""

    def __call__(self, candidates: Candidates, rows: SamplingRows) -> Candidates:
        temperature = rows.temperature[:, None]
        is_greedy = temperature == 0.0
        rank = lax.broadcasted_iota(jnp.int32, candidates.scores.shape, 1)
        scores = candidates.scores / jnp.where(is_greedy, 1.0, temperature)
        return candidates._replace(scores=jnp.where(is_greedy & (rank > 0), -jnp.inf, scores))


@dataclass(frozen=True, slots=True)
class Softmax:
    def __call__(self, candidates: Candidates, rows: SamplingRows) -> Candidates:
        return candidates._replace(scores=jax.nn.softmax(candidates.scores, axis=-1))


@dataclass(frozen=True, slots=True)
class MinP:
    """Remove what is less probable than ``min_p`` times the best (Nguyen et al., arXiv 2407.01082)."""

    def __call__(self, candidates: Candidates, rows: SamplingRows) -> Candidates:
        floor = rows.min_p[:, None] * candidates.scores[:, :1]
        keep = candidates.scores >= floor
        return candidates._replace(scores=jnp.where(keep, candidates.scores, 0.0))


@dataclass(frozen=True, slots=True)
class TopP:
    """Keep the shortest prefix whose probability reaches ``top_p`` (Holtzman et al., arXiv 1904.09751),
    at least the best candidate."""

    def __call__(self, candidates: Candidates, rows: SamplingRows) -> Candidates:
        rank = lax.broadcasted_iota(jnp.int32, candidates.scores.shape, 1)
        before = jnp.cumsum(candidates.scores, axis=-1) - candidates.scores
        top_p = rows.top_p[:, None]
        keep = (rank == 0) | (before < top_p) | (top_p >= 1.0)
        return candidates._replace(scores=jnp.where(keep, candidates.scores, 0.0))


@dataclass(frozen=True, slots=True)
class SamplingPipeline:
    """From logits to a token. ``cap`` bounds the candidates of every row, whatever its ``top_k``."""

    cap: int = 20
    strategies: tuple[Strategy, ...] = (TopK(), Temperature(), Softmax(), MinP(), TopP())

    def distribution(
        self, logits: jax.Array, rows: SamplingRows, counts: jax.Array, slots: jax.Array
    ) -> Candidates:
        """Candidates with unnormalised probabilities, from logits ``[B, V]`` float32 (ids that must not
        be sampled are -inf) and the penalty counts ``[S, V]`` int32 of ``slots`` ``[B]``."""
        has_penalty = jnp.any((rows.presence_penalty != 0.0) | (rows.frequency_penalty != 0.0))
        candidates: Candidates = lax.cond(
            has_penalty,
            lambda: top_candidates(penalise(logits, rows, counts[slots]), self.cap),
            lambda: top_candidates(logits, self.cap),
        )
        for strategy in self.strategies:
            candidates = strategy(candidates, rows)
        return candidates

    def sample(
        self,
        logits: jax.Array,
        rows: SamplingRows,
        counts: jax.Array,
        slots: jax.Array,
        positions: jax.Array,
        purpose: rng.Purpose,
    ) -> jax.Array:
        """Tokens ``[B]`` int32. ``positions`` ``[B]`` are the logical positions of the tokens drawn."""
        candidates = self.distribution(logits, rows, counts, slots)
        return draw(candidates, rng.uniform(rows.seed, positions, purpose))


def penalise(logits: jax.Array, rows: SamplingRows, counts: jax.Array) -> jax.Array:
    """Subtract ``presence`` once and ``frequency`` per occurrence; counts ``[B, V]`` of output tokens."""
    occurrences = counts.astype(jnp.float32)
    presence = rows.presence_penalty[:, None] * (counts > 0)
    return logits - presence - rows.frequency_penalty[:, None] * occurrences


def top_candidates(logits: jax.Array, k: int) -> Candidates:
    """The ``k`` best of ``[B, V]``, exactly as ``lax.top_k`` orders them, at a fraction of its cost.

    A block outside the ``k`` blocks with the highest maxima (ties by lowest block) cannot hold one of
    the ``k`` best: each of those blocks holds a better element. So only ``k`` blocks are sorted.
    """
    batch, vocab = logits.shape
    k = min(k, vocab)
    num_blocks = -(-vocab // CANDIDATE_BLOCK)
    if num_blocks <= k:
        scores, ids = lax.top_k(logits, k)
        return Candidates(ids, scores)
    padding = num_blocks * CANDIDATE_BLOCK - vocab
    if padding:
        logits = jnp.pad(logits, ((0, 0), (0, padding)), constant_values=-jnp.inf)
    blocks = logits.reshape(batch, num_blocks, CANDIDATE_BLOCK)
    _, chosen = lax.top_k(blocks.max(axis=-1), k)
    chosen = jnp.sort(chosen, axis=-1)  # position in the gathered row then orders ids
    gathered = jnp.take_along_axis(blocks, chosen[:, :, None], axis=1)
    scores, places = lax.top_k(gathered.reshape(batch, k * CANDIDATE_BLOCK), k)
    first = jnp.take_along_axis(chosen, places // CANDIDATE_BLOCK, axis=1) * CANDIDATE_BLOCK
    return Candidates(first + places % CANDIDATE_BLOCK, scores)


def draw(candidates: Candidates, u: jax.Array) -> jax.Array:
    """Invert the cumulative distribution at ``u`` ``[B]`` in [0, 1): tokens ``[B]`` int32."""
    cumulative = jnp.cumsum(candidates.scores, axis=-1)
    index = jnp.sum(cumulative <= u[:, None] * cumulative[:, -1:], axis=-1)
    last = jnp.maximum(jnp.sum(candidates.scores > 0.0, axis=-1) - 1, 0)
    return jnp.take_along_axis(candidates.ids, jnp.minimum(index, last)[:, None], axis=1)[:, 0]
