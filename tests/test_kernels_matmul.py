"""matmul against float64 products, over shapes, strides, element types, scales and epilogues."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kerneltools import (
    BF16,
    E4M3,
    E5M2,
    E8M0,
    F16,
    F32,
    FLOATS,
    U,
    gamma,
    normal,
    random_shapes,
    rounded,
    run_both_ways,
    wide,
    within,
)

import kittens as kt
from kittens import kernels, ops
from kittens.errors import ArgumentError, DTypeError
from kittens.ops import products, splitting
from kittens.recording import launch


@pytest.fixture(autouse=True)
def _both(monkeypatch):
    run_both_ways(monkeypatch)


def check(c, a, b, scale=1.0, extra=0):
    """c against a @ b scale, with `extra` roundings after the product."""
    a, b = wide(a, b)
    exact, size = a @ b * scale, np.abs(a) @ np.abs(b) * np.abs(scale)
    bound = gamma(a.shape[-1] + 2 + extra) * size
    within(c, exact, bound + rounded(np.abs(exact) + bound, c.dtype))


SHAPES = [
    (1, 1, 1),
    (64, 64, 64),
    (65, 63, 67),
    (1, 200, 3),
    (130, 1, 70),
    (7, 96, 129),
    (0, 5, 3),
    (5, 0, 3),
    (5, 3, 0),
    (260, 256, 260),
]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape, dtype):
    rng, (m, k, n) = np.random.default_rng(0), shape
    a, b = normal(rng, dtype, m, k), normal(rng, dtype, k, n)
    c = ops.matmul(a, b)
    assert c.dtype == dtype
    check(c, a, b)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_transposed_and_strided_operands_are_views(dtype):
    rng = np.random.default_rng(1)
    a, b = normal(rng, dtype, 50, 70), normal(rng, dtype, 33, 50)
    check(ops.matmul(a.T, b.T), a.T, b.T)
    big = normal(rng, dtype, 140, 100)
    x, y = big[::2, ::-2], big[40:90, 3:44]
    check(ops.matmul(x, y), x, y)
    check(ops.matmul(x, np.broadcast_to(y[:1], y.shape)), x, np.broadcast_to(y[:1], y.shape))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((2, 1), (1, 3)),
        ((3,), ()),
        ((), (3,)),
        ((2, 3), ()),
        ((0,), (0,)),
        ((1,), (4,)),
    ],
    ids=str,
)
def test_batches_broadcast(first, second):
    rng = np.random.default_rng(2)
    a, b = normal(rng, F32, *first, 20, 30), normal(rng, F32, *second, 30, 10)
    check(ops.matmul(a, b), a, b)
    if len(first) > 1:  # leading axes that cannot be merged
        check(ops.matmul(a.swapaxes(0, 1), b), a.swapaxes(0, 1), b) if second == () else None


def test_output_dtypes_and_out():
    rng = np.random.default_rng(3)
    a, b = normal(rng, BF16, 40, 50), normal(rng, BF16, 50, 30)
    for dtype in (*FLOATS, E4M3, E5M2):
        c = ops.matmul(a, b, dtype=dtype)
        assert c.dtype == dtype
        check(c, a, b)
    out = np.zeros((30, 80), F32).T[::2]
    assert ops.matmul(a, b, out=out) is out
    check(out, a, b)


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_bias_and_activation(dtype, activation):
    rng = np.random.default_rng(4)
    a, b, bias = normal(rng, dtype, 70, 40), normal(rng, dtype, 40, 66, scale=0.2), normal(rng, F32, 66)
    c = ops.matmul(a, b, bias=bias, activation=activation)
    x, y, z = wide(a, b, bias)
    before = x @ y + z
    error = gamma(44) * (np.abs(x) @ np.abs(y) + np.abs(z))
    exact = ACTIVATIONS[activation](before)
    bound = 1.2 * error + 16 * U * (1 + np.abs(before))  # each has a derivative of at most 1.13
    within(c, exact, bound + rounded(np.abs(exact) + bound, dtype))


def test_float8_with_scales():
    rng = np.random.default_rng(5)
    a, b = normal(rng, E4M3, 70, 100), normal(rng, E5M2, 100, 50)
    row, column = rng.uniform(0.1, 2, 70).astype(F32), rng.uniform(0.1, 2, 50).astype(F32)
    c = ops.matmul(a, b)
    assert c.dtype == BF16
    check(c, a, b)
    r, s = row.astype(float)[:, None], column.astype(float)
    check(ops.matmul(a, b, a_scale=row, b_scale=column, dtype=F32), a, b, r * s, 2)
    check(ops.matmul(a, b, a_scale=row[:, None], b_scale=column[None], dtype=F32), a, b, r * s, 2)
    check(
        ops.matmul(a, b, a_scale=0.5, b_scale=np.array(0.3, F32), dtype=F32),
        a,
        b,
        0.5 * float(F32.type(0.3)),
        2,
    )
    check(ops.matmul(a, b, b_scale=column, dtype=F16), a, b, s, 1)


@pytest.mark.parametrize("accumulate", ["fast", "promoted"])
def test_float8_summed_otherwise_is_the_same_on_the_reference(accumulate):
    rng = np.random.default_rng(15)
    a, b = normal(rng, E4M3, 70, 160), normal(rng, E5M2, 160, 50)
    row = rng.uniform(0.1, 2, 70).astype(F32)
    c = ops.matmul(a, b, a_scale=row, accumulate=accumulate, dtype=F32)
    check(c, a, b, row.astype(float)[:, None], 4)
    named = {"accumulate": accumulate, "activation": "none", "BM": 64, "BN": 64, "BK": 64}
    ir = str(kernels.matmul.ir(a, b, c, None, None, None, **named))
    assert ir.count("{accumulate='fast'} : float32[64,64]") == 1
    assert ir.count(" add(%") == (accumulate == "promoted")


def test_modes_of_accumulation_that_are_refused():
    a, b = np.zeros((4, 32), BF16), np.zeros((32, 4), BF16)
    with pytest.raises(DTypeError, match="fast accumulation of bfloat16"):
        ops.matmul(a, b, accumulate="fast")
    with pytest.raises(ArgumentError, match="the modes are full, fast, promoted"):
        ops.matmul(a, b, accumulate="slow")
    a, b, scale = a.astype(E4M3), b.astype(E4M3), np.ones((4, 1), E8M0)
    with pytest.raises(DTypeError, match="with block scales"):
        ops.matmul(a, b, a_scale=scale, b_scale=scale.T, accumulate="promoted")


def test_row_scales_of_a_batch():
    rng = np.random.default_rng(6)
    a, b = normal(rng, E4M3, 3, 20, 32), normal(rng, E4M3, 32, 10)
    row, column = rng.uniform(0.1, 2, (3, 20, 1)).astype(F32), rng.uniform(0.1, 2, (1, 10)).astype(F32)
    check(
        ops.matmul(a, b, a_scale=row, b_scale=column, dtype=F32),
        a,
        b,
        row.astype(float) * column.astype(float),
        2,
    )


@pytest.mark.parametrize("lead", [(), (2,)], ids=str)
def test_mxfp8(lead):
    rng = np.random.default_rng(7)
    a, b = normal(rng, E4M3, *lead, 70, 96), normal(rng, E5M2, 96, 50)
    row = np.exp2(rng.integers(-9, 9, (*lead, 70, 3))).astype(E8M0)
    column = np.exp2(rng.integers(-9, 9, (3, 50))).astype(E8M0)
    scaled_a = a.astype(float) * np.repeat(row.astype(float), 32, -1)
    scaled_b = b.astype(float) * np.repeat(column.astype(float), 32, -2)
    check(ops.matmul(a, b, a_scale=row, b_scale=column, dtype=F32), scaled_a, scaled_b)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_integers_are_exact(dtype):
    rng, info = np.random.default_rng(8), np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max + 1, s).astype(dtype) for s in ((70, 300), (300, 20)))
    exact = a.astype(np.int64) @ b.astype(np.int64)
    c = ops.matmul(a, b)
    assert c.dtype == np.int32
    assert (c == exact).all()
    scaled = ops.matmul(a, b, a_scale=2.0**-8, activation="relu")
    assert scaled.dtype == F32
    assert (scaled == np.maximum(exact * 2.0**-8, 0)).all()


def test_nan_and_infinity_propagate():
    a, b = np.ones((3, 4), F32), np.ones((4, 2), F32)
    a[0, 1], a[1, 2] = np.nan, np.inf
    c = ops.matmul(a, b)
    assert np.isnan(c[0]).all() and (c[1] == np.inf).all() and (c[2] == 4).all()


@random_shapes
@given(
    st.integers(0, 90),
    st.integers(0, 90),
    st.integers(0, 90),
    st.sampled_from(FLOATS),
    st.booleans(),
    st.booleans(),
    st.sampled_from([16, 32]),
)
def test_random_shapes(m, k, n, dtype, ta, tb, block):
    rng = np.random.default_rng(m * 8281 + k * 91 + n)
    a = normal(rng, dtype, k, m).T if ta else normal(rng, dtype, m, k)
    b = normal(rng, dtype, n, k).T if tb else normal(rng, dtype, k, n)
    check(ops.matmul(a, b, tune={"BM": block, "BN": 64, "BK": block}), a, b)


# In parts.


@random_shapes
@given(
    st.integers(0, 90),
    st.integers(0, 300),
    st.integers(0, 90),
    st.integers(1, 40),
    st.sampled_from(FLOATS),
    st.booleans(),
    st.booleans(),
    st.sampled_from([16, 32]),
)
def test_random_shapes_in_parts(m, k, n, splits, dtype, ta, tb, block):
    rng = np.random.default_rng(m * 8281 + k * 91 + n)
    a = normal(rng, dtype, k, m).T if ta else normal(rng, dtype, m, k)
    b = normal(rng, dtype, n, k).T if tb else normal(rng, dtype, k, n)
    bias = normal(rng, dtype, n)
    tune = {"BM": block, "BN": 64, "BK": block}
    c = ops.matmul(a, b, splits=splits, tune=tune)
    check(c, a, b, 1, splits + 1)
    assert (ops.matmul(a, b, splits=splits, tune=tune) == c).all()
    x, y, z = wide(a, b, bias)
    exact, size = x @ y + z, np.abs(x) @ np.abs(y) + np.abs(z)
    bound = gamma(k + splits + 4) * size
    got = ops.matmul(a, b, bias=bias, activation="relu", splits=splits, tune=tune)
    within(got, np.maximum(exact, 0), bound + rounded(np.abs(exact) + bound, dtype))


@pytest.mark.parametrize("lead", [((), ()), ((2, 3), ()), ((2, 1), (3,))], ids=str)
def test_scales_and_stacks_in_parts(lead):
    rng = np.random.default_rng(16)
    a, b = normal(rng, E4M3, *lead[0], 20, 320), normal(rng, E5M2, *lead[1], 320, 50)
    row, column = rng.uniform(0.1, 2, (*lead[0], 20, 1)), rng.uniform(0.1, 2, (*lead[1], 1, 50))
    scales = {"a_scale": row.astype(F32), "b_scale": column.astype(F32)}
    scale = scales["a_scale"].astype(float) * scales["b_scale"].astype(float)
    for accumulate in ("full", "promoted"):
        c = ops.matmul(a, b, splits=3, dtype=F32, accumulate=accumulate, **scales)
        check(c, a, b, scale, 8)
    check(ops.matmul(a, b, splits=3, dtype=F32), a, b, 1, 4)
    row = np.exp2(rng.integers(-9, 9, (*lead[0], 20, 10))).astype(E8M0)
    column = np.exp2(rng.integers(-9, 9, (*lead[1], 10, 50))).astype(E8M0)
    scaled = (
        a.astype(float) * np.repeat(row.astype(float), 32, -1),
        b.astype(float) * np.repeat(column.astype(float), 32, -2),
    )
    check(ops.matmul(a, b, a_scale=row, b_scale=column, splits=4, dtype=F32), *scaled, 1, 5)


def test_integers_in_parts_are_exact():
    rng = np.random.default_rng(17)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((70, 300), (300, 20)))
    exact = a.astype(np.int64) @ b.astype(np.int64)
    assert (ops.matmul(a, b, splits=5) == exact).all()
    scaled = ops.matmul(a, b, a_scale=2.0**-8, activation="relu", splits=5)
    assert (scaled == np.maximum(exact * 2.0**-8, 0)).all()


def parts(m, n, k, target, dtype="bfloat16"):
    """(programs of the whole product, into how many parts `ops.matmul` splits it, programs of each part)."""
    a, b, c = (kt.spec(dtype, s) for s in ((m, k), (k, n), (m, n)))
    target = kt.targets.parse(target)
    whole, pieces = (a, b, c, None, None, None), (a, b, kt.spec("float32", (1, m, n)))
    found = products._product_parts(whole, {}, pieces, {}, k, target)
    return (
        splitting.programs(kernels.matmul, whole, {}, target),
        found,
        splitting.programs(kernels.matmul_split, pieces, {}, target),
    )


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_80", "hip:gfx942", "hip:gfx950", "metal:apple7"])
def test_a_product_is_split_where_processors_have_nothing_to_do(target):
    processors = splitting.processors(kt.targets.parse(target))
    for m, n in ((64, 64), (256, 256), (16, 1024), (512, 1024), (2048, 2048), (8192, 8192)):
        for k in (512, 4096, 16384, 65536):
            programs, found, each = parts(m, n, k, target)
            if k < products.SPLIT_COLUMNS or 2 * programs > processors:
                assert found == 1
                continue
            assert 1 < found <= splitting.MOST and k // found >= products.PART_COLUMNS
            if k == 65536:
                waves = found * each / processors
                assert waves / math.ceil(waves) > 0.8 or found >= 0.9 * splitting.MOST


def test_nothing_is_split_unasked_where_a_target_does_not_tell_its_processors():
    assert parts(16, 16, 65536, "numpy")[1] == 1


def test_a_split_product_by_itself(monkeypatch):
    """On a simulated target a long product of few tiles is split, and the second call repeats both launches."""
    monkeypatch.setattr(products, "SPLIT_COLUMNS", 256)
    monkeypatch.setattr(products, "PART_COLUMNS", 64)
    rng = np.random.default_rng(18)
    a, b, bias = normal(rng, BF16, 70, 400), normal(rng, BF16, 400, 24), normal(rng, BF16, 24)
    seen = []
    monkeypatch.setattr(
        products,
        "launch",
        lambda kernel, *args, **named: (seen.append(kernel.name), launch(kernel, *args, **named)),
    )
    first = ops.matmul(a, b, bias=bias, on="cuda:sm_90a@sim")
    assert seen == ["matmul_split", "matmul_combine"]
    x, y, z = wide(a, b, bias)
    within(first, x @ y + z, 2**-7 * (np.abs(x) @ np.abs(y) + np.abs(z)) / 8)
    again = ops.matmul(a, b, bias=bias, on="cuda:sm_90a@sim")
    assert (again == first).all()
    assert (ops.matmul(a, b, bias=bias, splits=6, on="cuda:sm_90a@sim") == first).all()


def test_a_product_is_whole_where_nobody_makes_an_array_for_the_sums(monkeypatch):
    rng = np.random.default_rng(19)
    a, b, out = normal(rng, F32, 20, 300), normal(rng, F32, 300, 30), np.empty((20, 30), F32)
    monkeypatch.setattr(products, "empty", lambda *_: None)
    ops.matmul(a, b, splits=3, out=out)
    check(out, a, b)


def test_splits_that_are_none():
    with pytest.raises(ArgumentError, match="splits is 0"):
        ops.matmul(np.zeros((4, 4), F32), np.zeros((4, 4), F32), splits=0)


def test_the_kernel_is_short():
    import inspect

    lines = inspect.getsource(kernels.matmul.function).splitlines()
    text = [x for x in lines[lines.index('    """', 5) + 1 :] if x.strip()]
    assert len(text) <= 20
