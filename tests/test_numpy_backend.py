"""The reference backend: Python runs the kernel, on NumPy arrays of every layout, and checks what it is asked
to.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import kittens as kt
from kittens.backends.numpy import checks
from kittens.errors import ArgumentError, CheckError, ControlFlowError


@kt.kernel(grid=lambda x, B: (kt.cdiv(x.shape[0], B), kt.cdiv(x.shape[1], B)))
def copy(x, o, *, B=4, pad=0):
    at = kt.program_id()
    kt.store(o, at, kt.load(x, at, (B, B), pad=pad))


def array(*shape, dtype=np.float32):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def test_what_a_run_says():
    x = array(8, 8)
    run = copy(x, np.zeros_like(x))
    assert (run.kernel, run.target, run.how, run.grid) == ("copy", "numpy", "executed", (2, 2))
    assert run.constants == {"B": 4, "pad": 0}
    assert "kernel copy(x, o)" in repr(copy)


def test_the_reference_is_one_device():
    x = array(8, 8)
    assert copy(x, np.zeros_like(x), on="numpy:0").target == "numpy:0"
    with pytest.raises(kt.UnavailableError, match="no device 1 of numpy"):
        copy(x, np.zeros_like(x), on="numpy:1")


@pytest.mark.parametrize("shape", [(8, 8), (7, 5), (1, 9), (0, 4), (4, 0), (3, 3)])
def test_ragged_and_empty(shape):
    x = array(*shape)
    out = np.full_like(x, -1)
    copy(x, out)
    assert (out == x).all()


VIEWS = {
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-1],
    "strided": lambda a: a[::2, 1::3],
    "fortran": np.asfortranarray,
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
}


@pytest.mark.parametrize("view", VIEWS)
def test_layouts(view):
    x = VIEWS[view](array(9, 10))
    out = np.zeros_like(x)
    copy(x, out)
    assert (out == x).all()
    if view != "broadcast":
        whole = np.zeros((9, 10), np.float32)
        part = VIEWS[view](whole)
        copy(x, part)
        assert (part == x).all()
        assert view == "fortran" or np.count_nonzero(whole) == np.count_nonzero(x)


def test_outside_reads_are_pad_and_outside_writes_are_dropped():
    @kt.kernel
    def k(x, o):
        kt.store(o, 0, kt.load(x, 0, 4, pad=-kt.inf))
        kt.store(o, 1, kt.load(x, 9, 4, pad=7))
        kt.store(o, 2, kt.load(x, -1, 4, pad=8))
        kt.store(o, -1, kt.zeros(4, kt.float32))
        kt.store(o, 99, kt.zeros(4, kt.float32))

    out = np.full(12, 5.0, np.float32)
    k(array(2), out)
    assert out.tolist() == [0, 1, -np.inf, -np.inf, 7, 7, 7, 7, 8, 8, 8, 8]


def test_views_of_tensors():
    @kt.kernel
    def k(x, o, n):
        rows = [
            kt.load(x[0, 1], 0, 4),
            kt.load(x[-1, n], 0, 4),
            kt.load(x[1, :, -1], 0, 4),
            kt.load(x[..., 0][1], 0, 4),
            kt.load(x.permute(2, 0, 1)[3, 0], 0, 4),
            kt.load(x[1, 0, 1:-1], 0, 4),
            kt.load(x[1, 0, n:], 0, 4),
            kt.load(x[7, 0], 0, 4),
            kt.load(x[0, 0, 3:1], 0, 4),
            kt.full(4, kt.load(x[1, 2, 3], ()), kt.float32),
            kt.full(4, kt.load(x[1, 2, n + 9], ()), kt.float32),
            kt.load(x.T[3].T[1], 0, 4),
        ]
        for i, row in enumerate(rows):
            kt.store(o, i, row)
        kt.store(o[47], (), kt.load(x[0, 0, n], ()))

    x = array(2, 3, 4)
    out = np.zeros(48, np.float32)
    k(x, out, 1)
    p = lambda a: [*a, *[0] * (4 - len(a))]  # noqa: E731
    expected = [
        x[0, 1],
        x[-1, 1],
        p(x[1, :, -1]),
        p(x[1, :, 0]),
        p(x[0, :, 3]),
        p(x[1, 0, 1:-1]),
        p(x[1, 0, 1:]),
        p([]),
        p([]),
        [x[1, 2, 3]] * 4,
        [0] * 4,
        p(x[1, :, 3]),
    ]
    flat = np.array(expected, np.float32).ravel()
    flat[47] = x[0, 0, 1]
    assert out.tolist() == flat.tolist()
    assert k.ir(x, out, 1).loaded() == {"x"}


def test_scalars_and_tensors_of_no_axes():
    @kt.kernel
    def k(x, o, n, f, nothing=None):
        assert nothing is None
        kt.store(o, (), kt.load(x) * f + kt.full((), n, kt.float32))

    out = np.zeros((), np.float32)
    k(np.array(3.0, np.float32), out, 2, 0.5)
    assert out == 3.5
    k(np.array(3.0, np.float32), out, np.int32(2), np.float32(1), None)
    assert out == 5.0


def test_one_program_each_in_order():
    seen = []

    @kt.kernel(grid=(2, 1, 3))
    def k(x):
        seen.append(tuple(int(i.numpy()) for i in kt.program_id()))
        assert [int(i.numpy()) for i in kt.num_programs()] == [2, 1, 3]
        assert int(kt.program_id(2).numpy()) == seen[-1][2] and int(kt.num_programs(0).numpy()) == 2

    k(array(1))
    assert seen == [(i, 0, j) for i in range(2) for j in range(3)]


def test_no_programs():
    @kt.kernel(grid=0)
    def k(x):
        raise AssertionError

    assert k(array(1)).grid == (0,)


def test_looking_at_values(capsys, monkeypatch):
    stopped = []
    monkeypatch.setattr("sys.breakpointhook", lambda: stopped.append(1))

    @kt.kernel(grid=2)
    def k(x):
        i = kt.program_id()
        a = kt.load(x, i, 4)
        print(a, i, f"{a.max(axis=0)}", x)
        breakpoint()  # noqa: T100
        assert a.numpy().sum() > 0 and a.numpy() is not a.value
        kt.device_print("i = {}, a = {}", i, a)

    k(array(8))
    said = capsys.readouterr().out
    assert "<tile float32[4]>\n[0. 1. 2. 3.]" in said and "int64(1)" in said and "float32(7.0)" in said
    assert "(0,): i = 0, a = [0. 1. 2. 3.]" in said and "(1,): i = 1, a = [4. 5. 6. 7.]" in said
    assert len(stopped) == 2
    with pytest.raises(ControlFlowError, match="no elements yet"):
        k.ir(array(8))


@pytest.mark.parametrize(
    "dtype",
    [
        ml_dtypes.bfloat16,
        np.float16,
        np.int8,
        np.uint64,
        np.bool_,
        ml_dtypes.float8_e5m2,
        np.float64,
        ml_dtypes.float8_e8m0fnu,
    ],
)
def test_every_kind_of_dtype_moves(dtype):
    x = array(6, 6).astype(dtype)
    out = np.zeros_like(x)
    copy(x, out, pad=1)
    assert out.tobytes() == x.tobytes()


def test_stores_convert():
    @kt.kernel
    def k(x, o):
        kt.store(o, 0, kt.load(x, 0, 4) * 1.1)

    for dtype in (ml_dtypes.bfloat16, np.float64, ml_dtypes.float8_e4m3fn):
        out = np.zeros(4, dtype)
        k(array(4), out)
        assert out.tolist() == (array(4) * np.float32(1.1)).astype(dtype).tolist()

    @kt.kernel
    def widens(x, o):
        kt.store(o, 0, kt.load(x, 0, 4))

    out = np.zeros(4, np.int64)
    widens(array(4, dtype=np.int8), out)
    assert out.tolist() == [0, 1, 2, 3]


def test_store_add():
    @kt.kernel(grid=3)
    def k(x, o):
        kt.store_add(o, 0, kt.load(x, kt.program_id(), 4))
        kt.store_add(o[5], (), kt.load(x[0], ()))

    out = np.zeros(6, np.int32)
    k(array(12, dtype=np.int32), out)
    assert out.tolist() == [12, 15, 18, 21, 0, 0]
    with checks():
        k(array(12, dtype=np.int32), out)


# Checks.


def test_conflicting_stores():
    @kt.kernel(grid=2)
    def k(o):
        kt.store(o, 0, kt.zeros(4, kt.float32))

    out = np.ones(4, np.float32)
    with (
        checks(),
        pytest.raises(
            CheckError, match="program 1 stores to elements of 'o' that program 0 stored"
        ) as caught,
    ):
        k(out)
    assert caught.value.hint and caught.value.location.function == "k"
    assert out.tolist() == [1] * 4
    k(out)
    assert out.tolist() == [0] * 4


def test_a_store_where_another_loads_and_the_reverse():
    @kt.kernel(grid=3)
    def stores_last(o):
        i = kt.program_id()
        a = kt.load(o, 0, 4)
        for _ in kt.when(i == 2):
            kt.store(o, 0, a)

    with checks(), pytest.raises(CheckError, match="other programs loaded"):
        stores_last(np.ones(4, np.float32))

    @kt.kernel(grid=2)
    def loads_last(o):
        i = kt.program_id()
        for _ in kt.when(i == 0):
            kt.store(o, 0, kt.zeros(4, kt.float32))
        kt.store(o, 1, kt.load(o, 0, 4)) if False else kt.load(o, 0, 4)

    with checks(), pytest.raises(CheckError, match="loads from 'o' what program 0 stored"):
        loads_last(np.ones(8, np.float32))
    with checks(conflicts=False):
        loads_last(np.ones(8, np.float32))


def test_uninitialised():
    @kt.kernel
    def k(o, p):
        kt.store(o, 0, kt.zeros(4, kt.float32))
        kt.load(o, 0, 4)
        kt.load(o[1:], 0, 4) if False else None
        kt.store(p, 0, kt.load(o, 0, 8))

    out = np.ones(8, np.float32)
    with checks(uninitialised=["o"]), pytest.raises(CheckError, match="'o' that nothing has stored"):
        k(out, np.zeros(8, np.float32))
    with checks(uninitialised=["p"]):
        k(out, np.zeros(8, np.float32))


def test_own_elements_are_no_conflict():
    with checks(uninitialised=("o",)):
        copy(array(8, 8), np.zeros((8, 8), np.float32))


# Outputs that cannot be.


def test_views_that_cannot_be_written():
    x = array(4, 4)
    for out, words in (
        (np.lib.stride_tricks.as_strided(np.zeros(16, np.float32), (4, 4), (0, 4)), "share memory"),
        (x[:], "overlaps 'x'"),
        (x.T, "overlaps 'x'"),
    ):
        before = out.copy()
        with pytest.raises(ArgumentError, match=words):
            copy(x, out)
        assert (out == before).all()


def test_elements_of_a_view_that_overlap_in_part():
    windows = np.lib.stride_tricks.sliding_window_view(np.zeros(8, np.float32), 4, writeable=True)
    with pytest.raises(ArgumentError, match="share memory"):
        copy(array(5, 4), windows)


def test_neighbours_in_one_array_are_no_overlap():
    whole = array(4, 8)
    copy(whole[:2], whole[2:])
    assert (whole[:2] == whole[2:]).all()


def test_strides_that_are_no_whole_elements():
    odd = np.zeros(4, dtype=[("a", np.int8), ("b", np.float32)])["b"]
    with pytest.raises(ArgumentError, match="whole elements"):
        copy(odd.reshape(2, 2), np.zeros((2, 2), np.float32))


def test_byte_order():
    with pytest.raises(TypeError, match="kernels"):
        copy(np.zeros((2, 2), ">f4"), np.zeros((2, 2), np.float32))


def test_a_kernel_within_a_kernel():
    """A kernel called while another runs is a run of its own."""
    inner_out = np.zeros((4, 4), np.float32)

    @kt.kernel
    def outer(x, o):
        copy(array(4, 4), inner_out)
        kt.store(o, (0, 0), kt.load(x, (0, 0), (4, 4)))

    out = np.zeros((4, 4), np.float32)
    outer(array(4, 4), out)
    assert (out == inner_out).all()


def test_numerics_and_targets():
    from kittens import plugins
    from kittens.targets import Target

    numerics = plugins.ask("kittens_numerics", Target("numpy"))
    assert numerics.ulp["exp2"] <= 1 and not numerics.flushes
    assert plugins.manager().hook.kittens_numerics(target=Target("nowhere")) is None
    with pytest.raises(AttributeError):
        __import__("kittens.backends.numpy").backends.numpy.nothing


def test_a_masked_array_is_refused():
    with pytest.raises(ArgumentError, match="nothing of a mask"):
        copy(np.ma.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32))
