"""Slices of run-time bounds that Hopper's engine copies: their maps, which views they are, and packed attention by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kerneltools import BF16, F16
from varlentools import check, inputs

import kittens as kt
from kittens import kernels, ops
from kittens.artifact import SLICE_ROWS, Artifact, TileMap, from_bytes
from kittens.backends.cuda.machine import machine
from kittens.backends.cuda.sim import VENDOR
from kittens.codegen.known import within
from kittens.codegen.pipeline import artifact, planned, rerun_simulated
from kittens.runtime import evaluate_grid
from kittens.sim import SimulationFault

SIM = pytest.mark.sim
TARGET = "cuda:sm_90a@sim"
MASKS = [{}, {"causal": True}, {"window": (40, 9)}, {"window": 70, "causal": True, "scale": 0.3}]
LENGTHS = [(70, 70), (0, 12), (200, 150), (33, 0), (5, 140), (0, 0), (129, 64)]


# ---- maps


@given(
    st.integers(1, 2**30 - 1).map(lambda n: n * 16),
    st.tuples(st.integers(0, 2**30), st.integers(0, 2**30)).map(sorted),
    st.data(),
)
def test_rows_of_a_slice_are_where_the_tensor_has_them(stride: int, bounds: list[int], data: Any) -> None:
    first, last = bounds
    if first == last:
        return
    row = data.draw(st.integers(first, last - 1)) - first
    tile = TileMap("x", (1, 0), (64, 8), 128, sliced=True)
    extents, strides = tile.dims((2**30, 64), (stride, 2))
    at = (0, SLICE_ROWS - (last - first) + row, last, SLICE_ROWS)
    assert all(0 <= i < n for i, n in zip(at, extents, strict=True))
    assert sum(i * s for i, s in zip(at, strides, strict=True)) % 2**64 == (first + row) * stride
    beyond = SLICE_ROWS - (last - first) + (last - first)
    assert beyond >= extents[1]


def test_maps_of_slices_are_such_as_the_driver_takes() -> None:
    tile = TileMap("x", (2, 1, 0), (64, 8, 1), 128, sliced=True)
    extents, strides = tile.dims((16, 1000, 64), (128, 16 * 128, 2))
    assert extents == [64, 2**30, 16, 0x7FFF0000, 0x7FFF0000] and max(extents) <= 2**32
    assert strides == [2, 2048, 128, 2048, 2**34 - 2048]
    assert all(s % 16 == 0 and 0 < s < 2**40 for s in strides[1:])
    assert tile.copied((16, 1000, 64)) == (64, 8, 1, 1, 1)
    _, one = tile.dims((16, 1, 64), (128, -7, 2))  # never used, but has to be legal
    assert one[1] + one[4] == 2**34 and one[1] % 16 == 0 and one[1] > 0


# ---- which views


@kt.kernel(grid=lambda x, y: (kt.cdiv(y.shape[0], 64),))
def rows_times(x, w, y, lo, hi, at, *, turned=False):
    """y = x[lo:hi] @ w from its block `at` of 64 rows on."""
    (i,) = (kt.program_id(),)
    x = (x.T if turned else x)[lo:hi]
    acc = kt.zeros((64, 64), kt.float32)
    for j in kt.range(kt.cdiv(x.shape[1], 64)):
        acc += kt.load(x, (i + at, j), (64, 64)) @ kt.load(w, (j, 0), (64, 64))
    kt.store(y, (i, 0), acc)


@kt.kernel(grid=lambda y: (1,))
def views(x, y, lo, hi, *, view):
    """The product of a tile of a view with itself."""
    tile = kt.load(view(x, lo, hi), (0, 0), (64, 64))
    kt.store(y, (0, 0), tile @ tile)


def columns(x: Any, lo: Any, hi: Any) -> Any:
    return x[0, 0][:, lo:hi]


def heads(x: Any, lo: Any, hi: Any) -> Any:
    return x[0][lo:hi][0]


def twice(x: Any, lo: Any, hi: Any) -> Any:
    return x[0, 0][lo:hi][lo:hi]


def rows(x: Any, lo: Any, hi: Any) -> Any:
    return x[0, 0][lo:hi]


def plan_of(view: Any, rank: int) -> Any:
    x = kt.spec(kt.float16, (2,) * (rank - 2) + (256, 128))

    def of(x: Any, lo: Any, hi: Any) -> Any:
        return view(x if rank == 4 else _Led(x), lo, hi)

    return views.plan("cuda:sm_90a", x, kt.spec(kt.float16, (64, 64)), 3, 99, view=of)


class _Led:
    """A tensor of three axes, indexed as if it had one more."""

    def __init__(self, x: Any):
        self.x = x

    def __getitem__(self, key: Any) -> Any:
        return self.x[key[1:]] if isinstance(key, tuple) else self.x


def test_one_slice_along_rows_is_the_engines() -> None:
    plan = plan_of(rows, 3)
    assert plan.roles is not None and len(plan.roles.rings) == 1


@pytest.mark.parametrize(("view", "rank"), [(columns, 3), (heads, 3), (twice, 3), (rows, 4)])
def test_other_slices_stay_portable(view: Any, rank: int) -> None:
    assert plan_of(view, rank).roles is None


def test_what_lies_within_a_tensor() -> None:
    @kt.kernel(grid=lambda x: (1,))
    def sliced(x, y, lo):
        kt.store(y[: kt.load(lo)], (0, 0), kt.load(x[kt.load(lo) :], (0, 0), (16, 16)))

    spec = kt.spec(kt.float16, (64, 64))
    function = sliced.ir(spec, spec, kt.spec(kt.int32, ()))
    bounds = [v for op in function.body.walk() if op.name == "slice" for v in op.operands[1:]]
    x, y = function.params[:2]
    assert all(within(v, x, 0) or within(v, y, 0) or v.producer.name == "const" for v in bounds)
    assert not any(within(v, x, 1) for v in bounds)
    assert not any(within(op.result, x, 0) for op in function.body.walk() if op.name == "load")


@SIM
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("lo", "hi"), [(0, 200), (37, 170), (5, 6), (64, 64), (90, 30), (-20, 1000), (150, 200), (1000, 2000)]
)
def test_slices_are_cut_as_the_reference_cuts_them(lo: int, hi: int, turned: bool) -> None:
    """Neighbours are NaN; blocks may begin before the slice, or behind it."""
    rng = np.random.default_rng(lo + hi)
    x = np.full((200, 72), np.nan, np.float16)
    first, last = np.clip([lo, hi], 0, 200)
    x[first:last] = rng.integers(-2, 3, (max(last - first, 0), 72))
    w = rng.integers(-2, 3, (72, 64)).astype(np.float16)
    given = np.ascontiguousarray(x.T) if turned else x
    for at in (-1, 0, 2):
        y, wanted = np.full((192, 64), 7, np.float16), np.full((192, 64), 9, np.float16)
        rows_times(given, w, y, lo, hi, at, turned=turned, on=TARGET)
        rows_times(given, w, wanted, lo, hi, at, turned=turned, on="numpy")
        np.testing.assert_array_equal(y, wanted)


def test_rows_that_are_slices_keep_the_engine_whichever_way_they_lie() -> None:
    spec = kt.spec(kt.float16, (200, 72), None)
    turned = kt.spec(kt.float16, (72, 200), None)
    w, y = kt.spec(kt.float16, (72, 64)), kt.spec(kt.float16, (192, 64))
    assert rows_times.plan("cuda:sm_90a", spec, w, y, 1, 9, 0).roles is not None
    # Rows that lie along the contiguous axis: the hardware cannot tell where a slice of them ends.
    assert rows_times.plan("cuda:sm_90a", turned, w, y, 1, 9, 0, turned=True).roles is None


# ---- packed attention

KERNELS = ("attention_varlen_forward", "attention_varlen_backward_kv", "attention_varlen_backward_q")


def packed(name: str, width: int, heads: int = 4, kept: int = 2) -> tuple[Any, ...]:
    """What a kernel of packed attention takes, heads beside each other in a row."""
    q, k = (kt.spec(kt.bfloat16, (h, 4000, width), (width, h * width, 1)) for h in (heads, kept))
    cu, rows = kt.spec(kt.int32, (5,)), kt.spec(kt.float32, (heads, 4000))
    given = (q, k, k, cu, cu, 2000)
    if name.endswith("forward"):
        return (*given, q, rows)
    return (*given, q, rows, rows, *((k, k) if name.endswith("kv") else (q,)))


@pytest.mark.parametrize("right", [None, 0])
@pytest.mark.parametrize("width", [32, 64, 96, 128, 192, 256])
@pytest.mark.parametrize("name", KERNELS)
def test_packed_attention_is_the_engines(name: str, width: int, right: int | None) -> None:
    kernel, given = getattr(kernels, name), packed(name, width)
    plan = kernel.plan("cuda:sm_90a", *given, scale=0.1, right=right)
    if name.endswith("kv") and width > 128:  # as of dense tensors
        assert plan.roles is None
        return
    assert plan.roles is not None
    stored = {
        op for op in plan.function.body.walk() if op.name == "store" and len(op.operands[-1].type.shape) == 2
    }
    assert set(plan.roles.outs) == stored and stored
    _, source = planned(plan.function, plan.machine)
    maps = [p for p in source.parameters if p.kind == "map"]
    assert maps and all(p.map.sliced for p in maps)
    assert "kt_cp_async" not in source.text


@SIM
@pytest.mark.parametrize("kw", MASKS, ids=str)
@pytest.mark.parametrize("heads", [(2, 2), (4, 1)], ids=str)
def test_sequences_are_as_if_each_were_alone(heads: tuple[int, int], kw: dict[str, Any]) -> None:
    """To the bit, beside rows of NaN that belong to nobody."""
    check(F16, *heads, LENGTHS, 48, 40, {**kw, "on": TARGET}, {"BM": 64, "BN": 64}, apart=7)


@SIM
@pytest.mark.parametrize(("width", "bm", "bn"), [(64, 192, 128), (128, 128, 128), (256, 128, 64)])
def test_the_tiles_that_are_shipped(width: int, bm: int, bn: int) -> None:
    kw = {"causal": True, "on": TARGET}
    check(BF16, 2, 1, [(200, 260), (0, 3), (70, 70)], width, width, kw, {"BM": bm, "BN": bn}, 3, False)


@SIM
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), min_size=1, max_size=5), st.integers(1, 3),
    st.one_of(st.none(), st.integers(0, 90)), st.one_of(st.none(), st.integers(0, 90)), st.integers(0, 9),
)  # fmt: skip
def test_random_lengths(
    lengths: list[tuple[int, int]], group: int, left: int | None, right: int | None, apart: int
) -> None:
    kw = {"window": (left, right), "on": TARGET}
    check(F16, group, 1, lengths, 48, 48, kw, {"BM": 64, "BN": 64}, apart)


@SIM
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_in_one_sequence_stays_there(bad: float) -> None:
    q, k, v, do, cu_q, cu_k = inputs(F16, 2, 2, [(70, 75), (40, 50), (100, 66)], 64, 64)
    clean = [x.copy() for x in (q, k, v, do)]
    for x, cu in ((q, cu_q), (k, cu_k), (v, cu_k), (do, cu_q)):
        x[cu[1] : cu[2]] = bad
    outcomes = []
    for *x, y in (clean, (q, k, v, do)):
        with np.errstate(all="ignore"):
            o, lse = ops.attention_varlen(*x, cu_q, cu_k, 100, return_lse=True, on=TARGET)
            grads = ops.attention_varlen_backward(*x, o, lse, y, cu_q, cu_k, 100, 75, on=TARGET)
        outcomes.append((o, *grads))
    for at, cu in enumerate((cu_q, cu_q, cu_k, cu_k)):
        one, other = outcomes[0][at], outcomes[1][at]
        mine = np.r_[0 : cu[1], cu[2] : cu[3]]
        np.testing.assert_array_equal(one[mine], other[mine])
        assert np.isfinite(one[mine].astype(np.float32)).all()
        assert not np.isfinite(other[cu[1] : cu[2]].astype(np.float32)).all()


@pytest.mark.parametrize("name", KERNELS)
def test_programs_without_rows_are_told_to_nobody(name: str) -> None:
    plan = getattr(kernels, name).plan("cuda:sm_90a", *packed(name, 64), scale=0.1, right=0)
    assert plan.roles.turns is not None
    assert plan.roles.idle == [op for op in plan.function.body.walk() if op.name == "store"]
    _, source = planned(plan.function, plan.machine)
    copying, computing = source.text.split("} else {")[:2]
    skip = copying.index("continue;  // it stores nothing")
    assert skip < copying.index("kt_bar_arrive(turn_full);\n        turn_phase")
    assert "continue;" not in computing


def test_programs_with_other_effects_are_told_to_all() -> None:
    @kt.kernel(grid=lambda q, cu: (4, cu.shape[0] - 1))
    def squares(q, cu, y, said, *, also):
        i, b = kt.program_id(order="descending")
        rows = slice(kt.load(cu[b]), kt.load(cu[b + 1]))
        acc = kt.zeros((64, 64), kt.float32)
        for j in kt.range(kt.cdiv(q.shape[1], 64)):
            tile = kt.load(q[rows], (i, j), (64, 64))
            acc += tile @ tile.T
        kt.store(y[rows], (i, 0), acc)
        if also == "store":
            kt.store(said[b], i, kt.zeros((1,), kt.float32))
        elif also == "print":
            kt.device_print("program {}", i)
        elif also == "branch":
            for _ in kt.when(i == 0):
                kt.store(y[rows], (i, 0), acc)

    q, cu = kt.spec(kt.float16, (500, 128)), kt.spec(kt.int32, (4,))
    y, said = kt.spec(kt.float16, (500, 64)), kt.spec(kt.float32, (3, 4))
    found = {}
    for also in ("", "store", "print", "branch"):
        plan = squares.plan("cuda:sm_90a", q, cu, y, said, also=also)
        assert plan.roles is not None and plan.roles.turns is not None, also
        found[also] = len(plan.roles.idle)
    assert found == {"": 1, "store": 0, "print": 0, "branch": 0}


@SIM
def test_many_programs_have_nothing_to_do() -> None:
    """Of 8 sequences one is long; most programs are passed over, the first and the last ones of a block among them."""
    lengths = [(3, 3), (0, 0), (300, 300), (1, 1), (0, 5), (2, 0), (64, 64), (0, 0)]
    for kw in ({}, {"causal": True}):
        check(F16, 2, 2, lengths, 48, 48, {**kw, "on": TARGET}, {"BM": 64, "BN": 64})


# ---- faults


def _made() -> tuple[Artifact, dict[str, Any], tuple[int, ...], np.ndarray, np.ndarray]:
    q, k, v, _, cu_q, cu_k = inputs(F16, 2, 2, [(70, 75), (100, 66)], 64, 64, apart=3)
    o, kernel = np.full(q.shape, 7, F16), kernels.attention_varlen_forward
    t = [x.swapaxes(0, 1) for x in (q, k, v, o)]
    constants = {"scale": 0.125, "left": None, "right": None, "BM": 64, "BN": 64}
    bound, _ = kernel.bind((*t[:3], cu_q, cu_k, 100, t[3]), {"scale": 0.125})
    grid = evaluate_grid(kernel, bound, constants)
    plan, source = planned(kernel.trace(bound, constants, len(grid)), machine("sm_90a"))
    assert plan.roles is not None
    wanted = ops.attention_varlen(q, k, v, cu_q, cu_k, 100, scale=0.125, tune={"BM": 64, "BN": 64}, on=TARGET,
                                  out=np.full(q.shape, 7, F16))  # fmt: skip
    return artifact(plan.function, source, "cuda:sm_90a", b"", {}), bound, grid, o, wanted


ROW = "kt_row_of_slice(kt_position(j, 64), start_4, end_4, 1073741824)"
END = ", end_4, 1073741824);"
FAULTS = {
    "nothing": ("", "", None),
    "rows begin later": (ROW, ROW.replace("start_4", "start_4 + 1"), AssertionError),
    "an end is one too far": (END, ", end_4 + 1, 1073741824);", AssertionError),
    "an end far away": (END, ", end_4 + 100000, 1073741824);", SimulationFault),
    "addresses do not wrap": (END, ", end_4, 1073741823);", SimulationFault),
    "no end is known": (ROW, "kt_position(j, 64)", SimulationFault),
}


@SIM
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name: str) -> None:
    old, new, error = FAULTS[name]
    made, bound, grid, o, wanted = _made()
    assert old in made.source, "the emitted text no longer has what this test changes"
    changed = replace(made, source=made.source.replace(old, new, 1) if old else made.source)

    def run() -> None:
        rerun_simulated(changed, VENDOR, "sm_90a", bound, grid)
        np.testing.assert_array_equal(o, wanted)

    if error is None:
        run()
        return
    with pytest.raises(error) as caught:
        run()
    assert error is AssertionError or caught.value.kind == "global-bounds"


def test_such_kernels_are_saved_and_loaded() -> None:
    name = KERNELS[0]
    plan = kernels.attention_varlen_forward.plan("cuda:sm_90a", *packed(name, 64), scale=0.1)
    _, source = planned(plan.function, plan.machine)
    made = Artifact(name, "cuda:sm_90a", b"", source.text, source.entry, source.parameters)
    assert from_bytes(made.to_bytes()).parameters == made.parameters
