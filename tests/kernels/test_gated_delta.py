"""The gated delta rule and its convolution: forms against each other, against float64, and their slots."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_jax.kernels.cpu import is_available
from ninfer_jax.kernels.gated_delta import allocate_slots, api, pallas_triton, reference, write_slots, xla

RULES = [jax.jit(api.gated_delta_rule), jax.jit(xla.gated_delta_rule)]
CONVS = [jax.jit(api.causal_conv), jax.jit(xla.causal_conv)]
every_rule = pytest.mark.parametrize("gated_delta_rule", RULES, ids=["api", "xla"])
every_conv = pytest.mark.parametrize("causal_conv", CONVS, ids=["api", "xla"])
reference_rule = jax.jit(reference.gated_delta_rule)

SHAPES = [(2, 6, 8, 8), (4, 8, 16, 8), (1, 3, 8, 16)]  # Hk, Hv, dk, dv


def random_tokens(rows, columns, shape, seed=0):
    """Raw q, k, v, beta and log_decay as a layer produces them."""
    key_heads, heads, dk, dv = shape
    rng = np.random.default_rng(seed)
    q, k = (rng.standard_normal((rows, columns, key_heads, dk)) for _ in range(2))
    v = rng.standard_normal((rows, columns, heads, dv))
    beta = 1 / (1 + np.exp(-rng.standard_normal((rows, columns, heads))))
    log_decay = -rng.gamma(1.0, 0.3, (rows, columns, heads))
    return tuple(jnp.asarray(x, jnp.float32) for x in (q, k, v, beta, log_decay))


def random_pool(slots, shape, seed=1):
    _, heads, dk, dv = shape
    return jnp.asarray(np.random.default_rng(seed).standard_normal((slots, heads, dk, dv)), jnp.float32)


def float64_rule(q, k, v, beta, log_decay, state):
    """The recurrence, token by token, in numpy float64."""
    q, k, v, beta, log_decay, state = (np.asarray(x, np.float64) for x in (q, k, v, beta, log_decay, state))
    group = v.shape[2] // k.shape[2]
    unit = lambda x: np.repeat(x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6), group, axis=2)
    q, k = unit(q) * q.shape[-1] ** -0.5, unit(k)
    out = np.empty(v.shape)
    for t in range(v.shape[1]):
        state = state * np.exp(log_decay[:, t])[..., None, None]
        error = beta[:, t, :, None] * (v[:, t] - np.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + np.einsum("bhk,bhv->bhkv", k[:, t], error)
        out[:, t] = np.einsum("bhkv,bhk->bhv", state, q[:, t])
    return out, state


def every_row(rows):
    return jnp.arange(rows, dtype=jnp.int32)


@every_rule
@pytest.mark.parametrize(
    ("shape", "columns"),
    [(SHAPES[0], 1), (SHAPES[0], 2), (SHAPES[1], 63), (SHAPES[2], 64), (SHAPES[0], 65), (SHAPES[1], 150)],
)
def test_rule_equals_float64(gated_delta_rule, shape, columns):
    tokens, pool = random_tokens(2, columns, shape), random_pool(2, shape)
    expected, final = float64_rule(*tokens, pool)
    lengths = jnp.full(2, columns)
    out, new = gated_delta_rule(*tokens, pool, every_row(2), lengths)
    np.testing.assert_allclose(out, expected, atol=2e-5)
    np.testing.assert_allclose(new, final, atol=2e-5)
    plain, state = reference_rule(*tokens, pool)
    np.testing.assert_allclose(plain, expected, atol=2e-5)
    np.testing.assert_allclose(state, final, atol=2e-5)


@every_rule
@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from([1, 3, 70]), min_size=1, max_size=4), st.integers(0, 2**20))
def test_any_split_gives_the_same(gated_delta_rule, parts, seed):
    shape, columns = SHAPES[0], sum(parts)
    tokens, pool = random_tokens(1, columns, shape, seed), random_pool(1, shape, seed)
    expected, final = reference_rule(*tokens, pool)
    outs, start = [], 0
    for part in parts:
        step = tuple(x[:, start : start + part] for x in tokens)
        out, pool = gated_delta_rule(*step, pool, every_row(1), jnp.array([part]))
        outs.append(out)
        start += part
    np.testing.assert_allclose(jnp.concatenate(outs, axis=1), expected, atol=2e-5)
    np.testing.assert_allclose(pool, final, atol=2e-5)


@pytest.mark.skipif(not is_available(), reason="Numba's kernels are not here")
@pytest.mark.parametrize("shape", [(2, 6, 32, 128), (1, 3, 8, 40)])
def test_on_cpu_a_state_does_not_depend_on_the_step_or_the_batch(shape):
    """Bit for bit: one pass, ragged pieces and single tokens, alone and as a row of a batch."""
    rule = RULES[0]
    tokens, pool = random_tokens(3, 40, shape), random_pool(3, shape)
    lengths = jnp.array([40, 17, 1])
    outs, whole = rule(*tokens, pool, every_row(3), lengths)
    for pieces in ([40], [1] * 40, [7, 1, 30, 2]):
        alone, row_outs, start = pool[:1], [], 0
        for piece in pieces:
            step = tuple(x[:1, start : start + piece] for x in tokens)
            out, alone = rule(*step, alone, every_row(1), jnp.array([piece]))
            row_outs.append(out)
            start += piece
        assert np.asarray(alone[0]).tobytes() == np.asarray(whole[0]).tobytes(), pieces
        assert np.asarray(jnp.concatenate(row_outs, axis=1)).tobytes() == np.asarray(outs[:1]).tobytes()


@every_rule
def test_two_thousand_steps_stay_near_float64(gated_delta_rule):
    shape, columns = SHAPES[0], 2000
    tokens, pool = random_tokens(1, columns, shape, 5), jnp.zeros((1, 6, 8, 8))
    expected, final = float64_rule(*tokens, pool)
    worst = 0.0
    for t in range(columns):
        token = tuple(x[:, t : t + 1] for x in tokens)
        out, pool = gated_delta_rule(*token, pool, every_row(1), jnp.ones(1, jnp.int32))
        worst = max(worst, float(np.abs(np.asarray(out)[:, 0] - expected[:, t]).max()))
    assert worst < 1e-3
    assert np.abs(pool - final).max() < 1e-3


@every_rule
@pytest.mark.parametrize("columns", [1, 64, 100])
def test_padding_rows_write_nothing(gated_delta_rule, columns):
    """Whatever they hold and whatever slot they name, a live row's included."""
    shape = SHAPES[0]
    tokens, pool = random_tokens(3, columns, shape), random_pool(5, shape)
    tokens = tuple(x.at[1:].set(jnp.nan) for x in tokens)
    slots, lengths = jnp.array([3, 3, 1]), jnp.array([columns, 0, 0])
    _, new = gated_delta_rule(*tokens, pool, slots, lengths)
    alone = tuple(x[:1] for x in tokens)
    _, expected = gated_delta_rule(*alone, pool, slots[:1], lengths[:1])
    np.testing.assert_allclose(new[3], expected[3], atol=1e-6)
    for slot in (0, 1, 2, 4):
        assert np.asarray(new[slot]).tobytes() == np.asarray(pool[slot]).tobytes()


@every_rule
@pytest.mark.parametrize("length", [1, 5, 64, 70])
def test_padding_columns_change_nothing(gated_delta_rule, length):
    shape, columns = SHAPES[1], 128
    tokens, pool = random_tokens(1, columns, shape), random_pool(2, shape)
    garbage = tuple(x.at[:, length:].set(jnp.nan) for x in tokens)
    zeros = tuple(x.at[:, length:].set(0) for x in tokens)
    lengths = jnp.array([length])
    out, new = gated_delta_rule(*garbage, pool, jnp.array([1]), lengths)
    out_zeros, new_zeros = gated_delta_rule(*zeros, pool, jnp.array([1]), lengths)
    assert np.asarray(new).tobytes() == np.asarray(new_zeros).tobytes()
    assert np.asarray(out[:, :length]).tobytes() == np.asarray(out_zeros[:, :length]).tobytes()
    expected, final = reference_rule(*(x[:, :length] for x in tokens), pool[1:])
    np.testing.assert_allclose(out[:, :length], expected, atol=2e-5)
    np.testing.assert_allclose(new[1], final[0], atol=2e-5)


@every_conv
@pytest.mark.parametrize("columns", [1, 2, 9])
def test_convolution_and_its_history(causal_conv, columns):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((3, columns, 10)), jnp.float32)
    weight = jnp.asarray(rng.standard_normal((4, 10)), jnp.float32)
    pool = jnp.asarray(rng.standard_normal((6, 3, 10)), jnp.float32)
    slots, lengths = jnp.array([4, 0, 2]), jnp.array([columns, (columns + 1) // 2, 0])
    y, new = causal_conv(x, weight, pool, slots, lengths)
    for row, (slot, length) in enumerate(zip(slots.tolist(), lengths.tolist(), strict=True)):
        expected, history = reference.causal_conv(x[row : row + 1, :length], weight, pool[slot : slot + 1])
        np.testing.assert_allclose(y[row, :length], expected[0], atol=1e-6)
        assert np.asarray(new[slot]).tobytes() == np.asarray(history[0]).tobytes()
        assert np.isfinite(y).all()
    for slot in (1, 3, 5):
        assert np.asarray(new[slot]).tobytes() == np.asarray(pool[slot]).tobytes()


@pytest.mark.parametrize("rows", [1, 5])
def test_pallas_step_equals_float64_and_spares_padding_rows(rows):
    """In Pallas' interpreter. A padding row holds NaN and names a live row's slot."""
    shape = (2, 6, 16, 64)
    tokens, pool = random_tokens(rows, 1, shape), random_pool(rows + 2, shape)
    slots, lengths = jnp.arange(rows, dtype=jnp.int32)[::-1] + 1, jnp.ones(rows, jnp.int32)
    expected, final = float64_rule(*tokens, pool[slots])
    if rows > 1:
        tokens = tuple(x.at[-1].set(jnp.nan) for x in tokens)
        slots, lengths = slots.at[-1].set(slots[0]), lengths.at[-1].set(0)
    out, new = pallas_triton.gated_delta_rule(*tokens, pool, slots, lengths, interpret=True)
    real = np.asarray(lengths) > 0
    np.testing.assert_allclose(out[real], expected[real], atol=1e-5)
    np.testing.assert_allclose(new[slots[real]], final[real], atol=1e-5)
    untouched = sorted(set(range(rows + 2)) - set(np.asarray(slots)[real].tolist()))
    assert np.asarray(new)[untouched].tobytes() == np.asarray(pool)[untouched].tobytes()


def test_bad_shapes_are_named():
    tokens, pool = random_tokens(1, 4, SHAPES[0]), random_pool(2, SHAPES[1])
    with pytest.raises(ValueError, match="state"):
        api.gated_delta_rule(*tokens, pool, every_row(1), jnp.array([4]))
    with pytest.raises(ValueError, match="history"):
        api.causal_conv(
            jnp.zeros((1, 2, 3)), jnp.zeros((4, 3)), jnp.zeros((2, 2, 3)), every_row(1), jnp.array([2])
        )


def step_text(forms, num_slots, rows, columns):
    """The compiled text of one layer's step with donated slots, and how many of its bytes alias."""
    state = allocate_slots(num_slots, (6, 16, 16), (3, 160), jnp.float32)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, x, weight, slots, lengths):
        y, conv = forms.causal_conv(x, weight, state.conv, slots, lengths)
        q, k, v = jnp.split(y, (32, 64), axis=-1)
        q, k = (part.reshape(*part.shape[:2], 2, 16) for part in (q, k))
        v = v.reshape(*v.shape[:2], 6, 16)
        gates = y[..., :6]
        out, rule = forms.gated_delta_rule(q, k, v, gates, -gates, state.rule, slots, lengths)
        return out, state._replace(rule=rule, conv=conv)

    slots = jnp.arange(rows, dtype=jnp.int32)
    compiled = step.lower(state, jnp.zeros((rows, columns, 160)), jnp.zeros((4, 160)), slots, slots).compile()
    pools = state.rule.nbytes + state.conv.nbytes
    return compiled.as_text(), compiled.memory_analysis(), pools


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (8, 1), (1, 128)])
@pytest.mark.parametrize("forms", [api, xla], ids=["api", "xla"])
def test_slots_are_updated_in_place(forms, rows, columns):
    """Nothing the size of a pool is copied or made, so no step's cost depends on the number of slots."""
    num_slots = 40
    text, memory, pools = step_text(forms, num_slots, rows, columns)
    assert memory.alias_size_in_bytes == pools
    copies = [
        line for line in text.splitlines() if re.search(rf"= \w+\[{num_slots},[^=]* (copy|scatter)\(", line)
    ]
    assert not copies, copies
    assert memory.temp_size_in_bytes == step_text(forms, 20, rows, columns)[1].temp_size_in_bytes


def test_write_slots_casts_to_the_pool():
    pool = write_slots(jnp.zeros((3, 2), jnp.bfloat16), jnp.array([2]), jnp.array([True]), jnp.ones((1, 2)))
    assert pool.dtype == jnp.bfloat16
    assert pool[2].tolist() == [1, 1]
