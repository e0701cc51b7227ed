"""Attention over packed sequences: the same bits as attention of each by itself; neighbours are neither read nor written."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kerneltools import E4M3, F16, F32, FLOATS, random_shapes, run_both_ways
from varlentools import check, inputs

import kittens as kt
from kittens import kernels, ops


@pytest.fixture
def both(monkeypatch):
    run_both_ways(monkeypatch)


LENGTHS = [(70, 70), (0, 12), (33, 0), (130, 100), (5, 40), (0, 0)]
MASKS = [{}, {"causal": True}, {"window": (20, 5)}, {"window": 70, "causal": True, "scale": 0.3}]


@pytest.mark.parametrize("kw", MASKS, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("heads", [(2, 2), (6, 2)], ids=str)
def test_sequences_do_not_see_each_other(heads, dtype, kw):
    check(dtype, *heads, LENGTHS, 32, 24, kw)


@pytest.mark.parametrize("kw", MASKS, ids=str)
def test_rows_of_nobody_are_left_alone(kw):
    check(F32, 4, 2, [(20, 33), (35, 30)], 16, 16, kw, {"BM": 32, "BN": 32}, apart=7)


@pytest.mark.parametrize("d", [1, 40, 72, 128, 256])
def test_head_dimensions(d):
    check(F16, 2, 1, [(33, 40), (20, 9)], d, d, {"causal": True})


def test_float8():
    check(E4M3, 2, 1, [(33, 70), (20, 9)], 48, 32, {"causal": True}, backward=False)


@pytest.mark.parametrize("lengths", [[], [(0, 0)], [(0, 9)], [(9, 0)]], ids=str)
def test_empty(lengths):
    check(F32, 2, 1, lengths, 16, 16, {"causal": True})


def test_traced_as_run(both):
    """Results that are kept where no sequence is are not compared here: all rows belong to one."""
    q, k, v, do, cu_q, cu_k = inputs(F32, 4, 2, LENGTHS, 16, 16)
    o, lse = ops.attention_varlen(q, k, v, cu_q, cu_k, 130, causal=True, return_lse=True)
    ops.attention_varlen_backward(q, k, v, o, lse, do, cu_q, cu_k, 130, 100, causal=True)


def test_a_gradient_of_the_log_sum_exp():
    q, k, v, _, cu_q, cu_k = inputs(F32, 2, 2, [(20, 20), (9, 9)], 16, 16)
    o, lse = ops.attention_varlen(q, k, v, cu_q, cu_k, 20, return_lse=True)
    ones = np.ones_like(lse)
    grads = ops.attention_varlen_backward(q, k, v, o, lse, 0 * o, cu_q, cu_k, 20, 20, dlse=ones)
    one = [x[:20].swapaxes(0, 1) for x in (q, k, v, o)]
    wanted = ops.attention_backward(*one[:3], one[3], lse[:, :20], 0 * one[3], dlse=ones[:, :20])
    for got, want in zip(grads, wanted, strict=True):
        assert (got[:20].swapaxes(0, 1) == want).all()


@random_shapes
@given(
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=5), st.integers(1, 3), st.integers(1, 2),
    st.integers(1, 40), st.integers(1, 40), st.sampled_from(FLOATS), st.one_of(st.none(), st.integers(0, 60)),
    st.one_of(st.none(), st.integers(0, 60)), st.sampled_from([16, 32, 48]), st.sampled_from([16, 64]), st.integers(0, 3),
)  # fmt: skip
def test_random_shapes(lengths, group, hk, d, dv, dtype, left, right, bm, bn, apart):
    tune = {"BM": bm, "BN": bn}
    check(dtype, group * hk, hk, lengths, d, dv, {"window": (left, right)}, tune, apart)


def test_bounds_beyond_what_there_is_are_cut():
    """Nothing is read or written out of bounds, whatever the numbers say."""
    q, k, v, _, _, _ = inputs(F32, 2, 2, [(20, 20)], 16, 16)
    wild = np.array([-3, 1000], np.int32)
    o = ops.attention_varlen(q, k, v, wild, wild, 20)
    mine = np.array([0, 20], np.int32)
    assert (o == ops.attention_varlen(q, k, v, mine, mine, 20)).all()


def test_the_kernels_are_short():
    import inspect

    from kittens.kernels import attention_varlen

    text = inspect.getsource(attention_varlen).split("from __future__")[1]
    assert sum(1 for x in text.splitlines() if x.strip()) <= 120
    assert len(inspect.getsource(kernels.attention_varlen_forward.function).splitlines()) <= 30


# What is refused.

Q, K, CU = np.zeros((30, 4, 8), F32), np.zeros((40, 2, 8), F32), np.array([0, 30], np.int32)
LSE = np.zeros((4, 30), F32)

REFUSED = {
    "rank": (lambda: ops.attention_varlen(Q[0], K, K, CU, CU, 9), kt.ShapeError, "q has 2 axes"),
    "heads": (lambda: ops.attention_varlen(Q[:, :3], K, K, CU, CU, 9), kt.ShapeError, "3 query heads on 2"),
    "width": (lambda: ops.attention_varlen(Q, K[..., :4], K, CU, CU, 9), kt.ShapeError, "head dimension"),
    "values": (lambda: ops.attention_varlen(Q, K, K[:9], CU, CU, 9), kt.ShapeError, "v has shape"),
    "int64": (lambda: ops.attention_varlen(Q, K, K, CU.astype(int), CU, 9), kt.DTypeError, "cu_q is int64"),
    "bounds": (lambda: ops.attention_varlen(Q, K, K, CU, CU[:1], 9), kt.ShapeError, "cu_k has shape"),
    "no bounds": (lambda: ops.attention_varlen(Q, K, K, CU[:0], CU[:0], 9), kt.ShapeError, "cu_q is empty"),
    "max_q": (lambda: ops.attention_varlen(Q, K, K, CU, CU, -1), kt.ArgumentError, "max_q is -1"),
    "max_k": (
        lambda: ops.attention_varlen_backward(Q, K, K, Q, LSE, Q, CU, CU, 9, 2.5), kt.ArgumentError, "max_k is 2.5",
    ),
    "lse": (
        lambda: ops.attention_varlen_backward(Q, K, K, Q, LSE.T, Q, CU, CU, 9, 9), kt.ShapeError, "lse has shape",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words) as caught:
        call()
    assert caught.value.hint


def test_a_length_beyond_all_rows_asks_for_no_more_programs() -> None:
    """The grid was as large as the longest sequence was said to be: too large for any memory, or without an end."""
    q = np.random.default_rng(0).standard_normal((40, 2, 16)).astype(np.float16)
    bounds = np.array([0, 15, 40], np.int32)
    o, lse = ops.attention_varlen(q, q, q, bounds, bounds, 40, return_lse=True)
    np.testing.assert_array_equal(ops.attention_varlen(q, q, q, bounds, bounds, 1 << 40), o)
    given = (q, q, q, o, lse, q, bounds, bounds)
    want, have = (ops.attention_varlen_backward(*given, n, n) for n in (40, 1 << 40))
    for a, b in zip(want, have, strict=True):
        np.testing.assert_array_equal(a, b)
