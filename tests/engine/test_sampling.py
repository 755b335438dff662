"""The sampler against a plain numpy account of the same rules, and against probability itself."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_jax.engine import rng
from ninfer_jax.engine.sampling import (
    Candidates,
    SamplingPipeline,
    SamplingRows,
    draw,
    top_candidates,
)
from ninfer_jax.types import SamplingParams

VOCAB = 1000
GREEDY = SamplingParams(temperature=0.0)


@jax.jit
def jit_sample(logits, rows, counts, slots, positions):
    return SamplingPipeline().sample(logits, rows, counts, slots, positions, rng.Purpose.DECODE)


jit_distribution = jax.jit(SamplingPipeline.distribution, static_argnums=0)
jit_top = jax.jit(top_candidates, static_argnums=1)


def oracle(logits: np.ndarray, params: SamplingParams, counts: np.ndarray, cap: int = 20) -> dict[int, float]:
    """Token id to probability, step by step in float64."""
    x = logits.astype(np.float64)
    x = x - params.presence_penalty * (counts > 0) - params.frequency_penalty * counts
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    order = order[: min(cap, params.top_k or cap)]
    if params.temperature == 0:
        return {order[0]: 1.0}
    weights = np.exp((x[order] - x[order[0]]) / params.temperature)
    p = weights / weights.sum()
    p = np.where(p >= params.min_p * p[0], p, 0.0)
    before = 0.0
    kept: dict[int, float] = {}
    for rank, (token, probability) in enumerate(zip(order, p, strict=True)):
        if probability > 0 and (rank == 0 or before < params.top_p or params.top_p >= 1):
            kept[token] = float(probability)
        before += probability
    total = sum(kept.values())
    return {token: probability / total for token, probability in kept.items()}


def run(logits, params, counts=None, positions=None):
    """Tokens of ``jit_sample`` for these rows; row i counts in slot i."""
    rows = len(params)
    counts = np.zeros((rows, logits.shape[1]), np.int32) if counts is None else counts
    positions = np.arange(rows) if positions is None else np.asarray(positions)
    return np.asarray(
        jit_sample(
            jnp.asarray(logits), SamplingRows.of(params), jnp.asarray(counts), jnp.arange(rows), positions
        )
    )


def random_logits(rows: int, vocab: int = VOCAB, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, vocab), np.float32) * 3


@pytest.mark.parametrize("vocab", [5, 19, 20, 97, 2560, 2561, 5000])
@pytest.mark.parametrize("k", [1, 20, 256])
def test_top_candidates_equal_top_k(vocab, k):
    logits = random_logits(3, vocab)
    values, ids = jax.lax.top_k(jnp.asarray(logits), min(k, vocab))
    ours = jit_top(jnp.asarray(logits), k)
    np.testing.assert_array_equal(ours.ids, ids)
    np.testing.assert_array_equal(ours.scores, values)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_top_candidates_break_ties_by_lowest_id(seed, levels):
    """Few distinct values over many blocks: nearly everything is a tie."""
    logits = np.random.default_rng(seed).integers(0, levels, (2, 6000)).astype(np.float32)
    logits[:, 5500:] = -np.inf
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :20]
    np.testing.assert_array_equal(jit_top(jnp.asarray(logits), 20).ids, expected)


PARAMS = [
    SamplingParams(),
    SamplingParams(top_k=3),
    SamplingParams(temperature=0.3, top_p=0.8),
    SamplingParams(temperature=1.7, min_p=0.2),
    SamplingParams(top_k=7, min_p=0.05, top_p=0.6),
    SamplingParams(presence_penalty=1.5),
    SamplingParams(frequency_penalty=-0.7, presence_penalty=0.5, temperature=0.5),
    SamplingParams(top_p=0.0),
    SamplingParams(min_p=1.0),
    SamplingParams(top_k=256),
    GREEDY,
    replace(GREEDY, frequency_penalty=2.0),
]


@pytest.mark.parametrize("with_penalty", [False, True])
def test_distribution_equals_the_oracle(with_penalty):
    params = [p for p in PARAMS if with_penalty or not (p.presence_penalty or p.frequency_penalty)]
    logits = random_logits(len(params))
    counts = np.random.default_rng(1).integers(0, 4, logits.shape).astype(np.int32)
    candidates = jit_distribution(
        SamplingPipeline(),
        jnp.asarray(logits),
        SamplingRows.of(params),
        jnp.asarray(counts),
        jnp.arange(len(params)),
    )
    for row, one in enumerate(params):
        expected = oracle(logits[row], one, counts[row])
        scores = np.asarray(candidates.scores[row])
        got = dict(zip(np.asarray(candidates.ids[row]).tolist(), scores / scores.sum(), strict=True))
        assert {token for token, p in got.items() if p > 0} == set(expected)
        for token, probability in expected.items():
            assert got[token] == pytest.approx(probability, abs=1e-5)


def test_counts_are_read_at_the_slot_and_not_at_the_row():
    logits = np.zeros((2, VOCAB), np.float32)
    logits[:, [3, 8]] = 5.0, 4.5
    counts = np.zeros((4, VOCAB), np.int32)
    counts[2, 3] = 1
    params = [replace(GREEDY, presence_penalty=1.0)] * 2
    tokens = jit_sample(
        jnp.asarray(logits), SamplingRows.of(params), jnp.asarray(counts), jnp.array([0, 2]), jnp.arange(2)
    )
    assert np.asarray(tokens).tolist() == [3, 8]


def test_greedy_takes_the_lowest_id_of_a_tie():
    logits = np.zeros((1, VOCAB), np.float32)
    logits[0, [700, 41, 900]] = 2.0
    assert run(logits, [GREEDY]).tolist() == [41]
    assert run(logits, [SamplingParams(top_p=0.0, seed=5)]).tolist() == [41]


def test_ids_that_the_model_excludes_are_never_drawn():
    logits = np.full((64, VOCAB), -np.inf, np.float32)
    logits[:, :3] = 0.0
    tokens = run(logits, [SamplingParams(seed=seed, temperature=2.0) for seed in range(64)])
    assert set(tokens.tolist()) == {0, 1, 2}


def test_a_draw_follows_the_distribution():
    """Chi-square over 20,000 seeds; the critical value is that of 1 in a million."""
    params = SamplingParams(temperature=1.3, top_k=8, min_p=0.02, top_p=0.97)
    logits = random_logits(1, 200, seed=4)
    expected = oracle(logits[0], params, np.zeros(200))
    num_draws = 20_000
    tokens = run(np.repeat(logits, num_draws, 0), [replace(params, seed=seed) for seed in range(num_draws)])
    ids = list(expected)
    assert set(tokens.tolist()) <= set(ids)
    observed = np.array([(tokens == token).sum() for token in ids])
    wanted = np.array([expected[token] for token in ids]) * num_draws
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    critical = {4: 33.4, 5: 35.9, 6: 38.3, 7: 40.5}[len(ids) - 1]
    assert statistic < critical


def test_one_seed_draws_independently_at_each_position():
    """The same for 20,000 positions of one seed."""
    logits = np.log(np.array([[0.5, 0.3, 0.2]], np.float32))
    num_draws = 20_000
    tokens = run(
        np.repeat(logits, num_draws, 0), [SamplingParams(seed=9)] * num_draws, positions=np.arange(num_draws)
    )
    observed = np.bincount(tokens, minlength=3) / num_draws
    np.testing.assert_allclose(observed, [0.5, 0.3, 0.2], atol=0.02)
    pairs = np.bincount(tokens[:-1] * 3 + tokens[1:], minlength=9).reshape(3, 3) / (num_draws - 1)
    np.testing.assert_allclose(pairs, np.outer([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]), atol=0.02)


def test_a_token_does_not_depend_on_its_row_or_batch():
    params = [SamplingParams(seed=seed, temperature=1.5) for seed in (7, 2**64 - 1, 7, 123)]
    logits = random_logits(4)
    positions = [11, 400, 12, 5]
    together = run(logits, params, positions=positions)
    for row in range(4):
        assert run(logits[[row]], [params[row]], positions=[positions[row]]) == together[row]
    order = [2, 0, 3, 1]
    shuffled = run(logits[order], [params[i] for i in order], positions=[positions[i] for i in order])
    np.testing.assert_array_equal(shuffled, together[order])


def test_seed_position_and_purpose_each_change_the_number():
    def u(seed, position, purpose):
        words = jnp.asarray(rng.seed_words(seed))[None]
        return float(rng.uniform(words, jnp.array([position]), purpose)[0])

    base = u(3, 10, rng.Purpose.DECODE)
    assert u(3, 10, rng.Purpose.DECODE) == base
    others = {
        u(4, 10, rng.Purpose.DECODE),
        u(3 + 2**32, 10, rng.Purpose.DECODE),  # the high word counts
        u(3, 11, rng.Purpose.DECODE),
        *(u(3, 10, purpose) for purpose in rng.Purpose if purpose is not rng.Purpose.DECODE),
    }
    assert len(others) == 2 + len(rng.Purpose)
    assert base not in others


def test_the_key_is_that_of_jax():
    """Stated once against jax's public functions, so the numbers never change silently."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(77, impl="threefry2x32"), 12), 1)
    words = jnp.asarray(rng.seed_words(77))[None]
    assert float(rng.uniform(words, jnp.array([12]), rng.Purpose.DECODE)[0]) == float(jax.random.uniform(key))


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_outside_64_bits_is_refused(seed):
    with pytest.raises(ValueError, match="64-bit"):
        rng.seed_words(seed)


@pytest.mark.parametrize(("u", "token"), [(0.0, 5), (0.4999, 5), (0.5, 6), (0.9999999, 6)])
def test_draw_inverts_the_cumulative_distribution(u, token):
    candidates = Candidates(jnp.array([[5, 6, 7]]), jnp.array([[0.2, 0.2, 0.0]]))
    assert int(draw(candidates, jnp.array([u]))[0]) == token


def test_the_cap_bounds_every_row():
    pipeline = SamplingPipeline(cap=4)
    candidates = jit_distribution(
        pipeline,
        jnp.asarray(random_logits(1)),
        SamplingRows.of([SamplingParams(top_k=10)]),
        jnp.zeros((1, VOCAB), jnp.int32),
        jnp.arange(1),
    )
    assert candidates.ids.shape == (1, 4)
