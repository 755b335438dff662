"""Sparse mixtures: every form against the plain one, and the choice of experts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_jax.kernels.cpu import is_available
from ninfer_jax.kernels.linear import QuantArray, quantise
from ninfer_jax.kernels.linear.reference import dequantise
from ninfer_jax.kernels.moe import Routing, pallas_triton, reference, route, sparse_experts, xla
from ninfer_jax.kernels.moe.blocks import cut_into_blocks

EXPERTS, HIDDEN, INNER = 7, 24, 12


def random_case(tokens, top_k, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
    routing = route(draw(tokens, EXPERTS), top_k)
    return draw(tokens, HIDDEN), draw(EXPERTS, 2 * INNER, HIDDEN), draw(EXPERTS, HIDDEN, INNER), routing


def plain(weight):
    return jax.vmap(dequantise)(weight) if isinstance(weight, QuantArray) else weight.astype(jnp.float32)


FORMATS = {
    "f32": lambda weight: weight,
    "bf16": lambda weight: weight.astype(jnp.bfloat16),
    "int8": quantise,
}


@pytest.mark.parametrize("form", [sparse_experts, xla.one_by_one, xla.in_blocks])
@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize(("tokens", "top_k"), [(1, 3), (5, 1), (60, 3)])
def test_every_form_equals_the_plain_one(form, weights, tokens, top_k):
    x, gate_up, down, routing = random_case(tokens, top_k)
    gate_up, down = FORMATS[weights](gate_up), FORMATS[weights](down)
    expected = reference.sparse_experts(x, plain(gate_up), plain(down), *routing)
    arguments = (routing,) if form is sparse_experts else routing
    actual = jax.jit(form)(x, gate_up, down, *arguments)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not is_available(), reason="Numba's kernels are not here")
@pytest.mark.parametrize("weights", FORMATS)
def test_on_cpu_a_token_does_not_depend_on_its_neighbours(weights):
    """Bit for bit, in a batch or alone."""
    x, gate_up, down, routing = random_case(33, 3)
    gate_up, down = FORMATS[weights](gate_up), FORMATS[weights](down)
    together = np.asarray(sparse_experts(x, gate_up, down, routing))
    for token in (0, 7, 32):
        row = Routing(routing.weights[token : token + 1], routing.experts[token : token + 1])
        alone = np.asarray(sparse_experts(x[token : token + 1], gate_up, down, row))
        assert alone[0].tobytes() == together[token].tobytes()


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize(("tokens", "top_k"), [(1, 2), (3, 4), (60, 3)])
def test_pallas_kernel_equals_the_plain_one(quantised, tokens, top_k):
    """In Pallas' interpreter; sizes in whole tiles, blocks of one pair and sorted blocks."""
    rng = np.random.default_rng(3)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
    x, gate_up, down = draw(tokens, 128), draw(9, 128, 128) * 0.1, draw(9, 128, 64) * 0.1
    routing = route(draw(tokens, 9), top_k)
    if quantised:
        gate_up, down = quantise(gate_up), quantise(down)
    assert pallas_triton.supports(gate_up, down)
    expected = reference.sparse_experts(x, plain(gate_up), plain(down), *routing)
    actual = pallas_triton.sparse_experts(x, gate_up, down, *routing, interpret=True)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**20))
@settings(max_examples=30, deadline=None)
def test_every_pair_has_a_row_of_its_own_in_a_block_of_its_expert(tokens, top_k, seed):
    rng = np.random.default_rng(seed)
    experts = np.stack([rng.permutation(6)[:top_k] for _ in range(tokens)]).astype(np.int32)
    blocks = jax.tree.map(np.asarray, cut_into_blocks(jnp.asarray(experts), 6, 4))
    places = blocks.places.reshape(-1)
    assert len(set(places)) == places.size
    assert places.max() < blocks.used[0] * 4
    np.testing.assert_array_equal(blocks.experts[places // 4], experts.reshape(-1))
    np.testing.assert_array_equal(blocks.tokens.reshape(-1)[places], np.repeat(np.arange(tokens), top_k))


@pytest.mark.parametrize("form", [xla.one_by_one, xla.in_blocks])
def test_all_tokens_on_one_expert(form):
    """The most uneven choice there is: blocks of one expert, none of the others."""
    x, gate_up, down, _ = random_case(40, 1)
    weights, experts = jnp.ones((40, 1)), jnp.full((40, 1), EXPERTS - 1)
    expected = reference.sparse_experts(x, gate_up, down, weights, experts)
    np.testing.assert_allclose(form(x, gate_up, down, weights, experts), expected, rtol=1e-4, atol=1e-4)


def test_experts_nobody_chose_are_never_read():
    x, gate_up, down, _ = random_case(50, 2)
    experts = jnp.tile(jnp.array([[1, 4]]), (50, 1))
    unused = jnp.array([0, 2, 3, 5, 6])
    broken = Routing(jnp.full((50, 2), 0.5), experts)
    y = sparse_experts(x, gate_up.at[unused].set(jnp.nan), down.at[unused].set(jnp.nan), broken)
    assert np.isfinite(y).all()


def test_the_lowest_index_wins_a_tie_and_weights_sum_to_one():
    routing = route(jnp.array([[1.0, 3.0, 3.0, 3.0, 0.0]]), 2)
    assert routing.experts.tolist() == [[1, 2]]
    np.testing.assert_allclose(routing.weights, [[0.5, 0.5]])


def test_bad_shapes_are_named():
    x, gate_up, down, routing = random_case(2, 1)
    with pytest.raises(ValueError, match="gate_up"):
        sparse_experts(x, gate_up[:, 1:], down, routing)
