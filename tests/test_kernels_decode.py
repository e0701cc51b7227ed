"""Attention in decoding, dense and in pages, against attention of each sequence by itself; and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kerneltools import E4M3, F16, F32, FLOATS, U, normal, random_shapes, rounding, run_both_ways, within

import kittens as kt
from kittens import kernels, ops
from kittens.ops import splitting
from kittens.ops.heads import PART_KEYS


@pytest.fixture(autouse=True)
def _both(monkeypatch):
    run_both_ways(monkeypatch)


def inputs(dtype, b, h, hk, nq, n, d, dv=None, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (b, h, nq, d), (b, hk, n, d), (b, hk, n, dv or d)
    return [normal(rng, dtype, *shape) for shape in shapes]


def in_pages(k, v, lengths, page, spare=2, seed=0):
    """Keys and values in pages, whose rest is NaN, and the table, which names no page or a spare one where none is needed."""
    rng = np.random.default_rng(seed)
    b, hk, n, _ = k.shape
    most = -(-n // page) + 1
    table = rng.permutation(b * most + spare)[: b * most].reshape(b, most).astype(np.int32)
    pages = [np.full((b * most + spare, page, hk, x.shape[-1]), np.nan, x.dtype) for x in (k, v)]
    for i, end in enumerate(lengths):
        for number in range(most):
            rows = slice(number * page, min((number + 1) * page, end))
            if rows.start >= end:
                table[i, number] = rng.choice((-1, 2**31 - 1, table[i, number]))
                continue
            for into, x in zip(pages, (k, v), strict=True):
                into[table[i, number], : rows.stop - rows.start] = x[i, :, rows].swapaxes(0, 1)
    return *pages, table


def check(q, k, v, lengths, kw, page=0, splits=None, tune=None):
    """The results are those of attention to the keys that there are, to within what parts and their weights may differ."""
    at = np.array(lengths, np.int32)
    options = {**kw, "lengths": at, "splits": splits, "tune": tune, "return_lse": True}
    if page:
        k2, v2, table = in_pages(k, v, lengths, page)
        o, lse = ops.attention_decode(q, k2, v2, table=table, **options)
    else:
        k2, v2 = k.copy(), v.copy()
        for i, n in enumerate(lengths):
            k2[i, :, n:], v2[i, :, n:] = np.nan, np.nan
        o, lse = ops.attention_decode(q, k2, v2, **options)
    assert o.dtype == q.dtype and o.shape == (*q.shape[:-1], v.shape[-1])
    for i, n in enumerate(lengths):
        one, one_lse = ops.attention(q[i], k[i, :, :n], v[i, :, :n], return_lse=True, **kw)
        size = np.abs(v[i, :, :n].astype(float)).max(initial=0)
        within(o[i], one.astype(float), (4 * rounding(q.dtype)[0] + 2000 * U) * size)
        within(lse[i], one_lse.astype(float), 1e-4)


MASKS = [{}, {"causal": True}, {"window": (30, 2)}, {"window": 9, "causal": True, "scale": 0.4}]


@pytest.mark.parametrize("kw", MASKS, ids=str)
@pytest.mark.parametrize("page", [0, 16, 48])
@pytest.mark.parametrize("splits", [1, 5])
def test_masks_pages_and_parts(kw, page, splits):
    check(*inputs(F32, 3, 4, 2, 3, 130, 16), (130, 0, 65), kw, page, splits)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("heads", [(1, 1), (8, 2), (6, 6), (40, 1)], ids=str)
@pytest.mark.parametrize("queries", [1, 8])
def test_groups_of_heads_and_queries(heads, queries, dtype):
    check(*inputs(dtype, 2, *heads, queries, 90, 24, 40), (90, 31), {"causal": True}, splits=3)


@pytest.mark.parametrize("d", [1, 40, 64, 72, 128, 256])
def test_head_dimensions(d):
    check(*inputs(F16, 1, 4, 2, 1, 70, d), (69,), {}, page=16, splits=2)


def test_blocks():
    for bm, bn in ((16, 16), (32, 64), (64, 32)):
        check(*inputs(F32, 2, 10, 1, 4, 200, 32), (150, 7), {"causal": True}, 64, 3, {"BM": bm, "BN": bn})


def test_without_lengths_all_keys_are_seen():
    q, k, v = inputs(F32, 2, 4, 2, 2, 75, 16)
    o = ops.attention_decode(q, k, v, splits=2)
    within(o, ops.attention(q, k, v).astype(float), 1e-5)


def test_nothing_to_see():
    q, k, v = inputs(F32, 2, 4, 2, 3, 40, 16)
    o, lse = ops.attention_decode(
        q, k, v, lengths=np.array([0, 2], np.int32), causal=True, return_lse=True, splits=4
    )
    assert (o[0] == 0).all() and (lse[0] == -np.inf).all()
    assert (o[1, :, 0] == 0).all() and (lse[1, :, 0] == -np.inf).all() and np.isfinite(lse[1, :, 1:]).all()


@pytest.mark.parametrize(
    "shape", [(0, 2, 2, 1, 5), (1, 2, 2, 1, 0), (1, 0, 0, 1, 5), (1, 2, 1, 0, 5)], ids=str
)
def test_empty(shape):
    q, k, v = inputs(F32, *shape, 16)
    assert (ops.attention_decode(q, k, v) == 0).all()


def test_lengths_outside_their_range_are_cut():
    q, k, v = inputs(F32, 2, 2, 2, 1, 40, 16)
    found = ops.attention_decode(q, k, v, lengths=np.array([-5, 1000], np.int32))
    wanted = ops.attention_decode(q, k, v, lengths=np.array([0, 40], np.int32))
    assert (found == wanted).all()


def test_queries_that_lie_apart():
    q, k, v = inputs(F32, 2, 4, 2, 3, 50, 16)
    there = np.ascontiguousarray(q.swapaxes(1, 2)).swapaxes(1, 2)  # (B, N, H, D) in memory
    kw = {"lengths": np.array([50, 20], np.int32), "causal": True}
    for splits in (1, 3):
        wanted = ops.attention_decode(q, k, v, splits=splits, **kw)
        assert (ops.attention_decode(there, k, v, splits=splits, **kw) == wanted).all()
        out = np.empty((2, 3, 4, 16), F32).swapaxes(1, 2)
        assert ops.attention_decode(q, k, v, splits=splits, out=out, **kw) is out
        within(out, wanted.astype(float), 1e-6)


def test_results_repeat_and_large_scores_do_not_overflow():
    q, k, v = inputs(F32, 1, 4, 1, 1, 300, 16)
    check(q * 100, k * 10, v, (300,), {}, splits=4)
    first = ops.attention_decode(q, k, v, splits=4)
    assert (ops.attention_decode(q, k, v, splits=4) == first).all()


def test_float8():
    q, k, v = inputs(E4M3, 1, 4, 2, 2, 100, 32)
    found = ops.attention_decode(q, k, v, splits=3).astype(float)
    within(found, ops.attention(q, k, v).astype(float), 2**-4 * np.abs(v.astype(float)).max())


@random_shapes
@given(
    st.integers(1, 3), st.integers(1, 5), st.integers(1, 2), st.integers(1, 8), st.lists(st.integers(0, 120), min_size=3),
    st.integers(1, 50), st.sampled_from(FLOATS), st.one_of(st.none(), st.integers(0, 60)),
    st.one_of(st.none(), st.integers(0, 9)), st.sampled_from([0, 16, 32, 80]), st.integers(1, 9),
)  # fmt: skip
def test_random_shapes(b, group, hk, nq, lengths, d, dtype, left, right, page, splits):
    given = inputs(dtype, b, group * hk, hk, nq, 120, d, seed=sum(lengths))
    check(*given, lengths[:b], {"window": (left, right)}, page, splits)


def test_parts_fill_processors_and_are_not_small():
    h200, one = kt.targets.parse("cuda:sm_90a"), kt.targets.parse("numpy")
    for programs in (1, 7, 64, 131, 200, 1000):
        for keys in (1, 300, 4096, 131072):
            n = splitting.parts(programs, keys, h200, PART_KEYS)
            assert 1 <= n <= splitting.MOST and (n == 1 or keys // n >= PART_KEYS)
            if keys == 131072:
                waves = programs * n / (3 * 132)  # of whose shared memory a program takes less than a third
                assert waves / math.ceil(waves) > 0.85 or n >= 0.9 * splitting.MOST
    assert all(splitting.parts(n, keys, one, PART_KEYS) == 1 for n, keys in ((8, 131072), (0, 0)))


def test_the_kernels_are_short():
    import inspect

    from kittens.kernels import attention_decode

    text = inspect.getsource(attention_decode).split("from __future__")[1]
    assert sum(1 for x in text.splitlines() if x.strip()) <= 80
    for kernel in (kernels.attention_split, kernels.attention_combine):
        assert len(inspect.getsource(kernel.function).splitlines()) <= 40


# What is refused.

Q, K = np.zeros((2, 4, 1, 8), F32), np.zeros((2, 2, 30, 8), F32)
P, T, L = np.zeros((9, 16, 2, 8), F32), np.zeros((2, 3), np.int32), np.zeros(2, np.int32)

REFUSED = {
    "rank": (lambda: ops.attention_decode(Q[0], K[0], K[0]), kt.ShapeError, "q has 3 axes"),
    "heads": (lambda: ops.attention_decode(Q[:, :3], K, K), kt.ShapeError, "3 query heads on 2"),
    "lengths": (lambda: ops.attention_decode(Q, K, K, lengths=L[:1]), kt.ShapeError, "lengths has shape"),
    "int64": (lambda: ops.attention_decode(Q, K, K, lengths=L.astype(int)), kt.DTypeError, "lengths is int64"),
    "splits": (lambda: ops.attention_decode(Q, K, K, splits=0), kt.ArgumentError, "splits is 0"),
    "no lengths": (lambda: ops.attention_decode(Q, P, P, table=T), kt.ArgumentError, "lengths is not"),
    "table": (lambda: ops.attention_decode(Q, P, P, table=T[:1], lengths=L), kt.ShapeError, "table has shape"),
    "page": (
        lambda: ops.attention_decode(Q, P[:, :8], P[:, :8], table=T, lengths=L), kt.ShapeError, "pages of 8 keys",
    ),
    "page heads": (
        lambda: ops.attention_decode(Q[:, :3], P, P, table=T, lengths=L), kt.ShapeError, "3 query heads on 2",
    ),
    "values": (lambda: ops.attention_decode(Q, P, P[:5], table=T, lengths=L), kt.ShapeError, "v has shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words) as caught:
        call()
    assert caught.value.hint
