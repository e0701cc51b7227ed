"""Products of operands whose rows begin at odd places, and of few rows, on targets with an engine that copies tiles."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import kittens as kt
from kittens import ops
from kittens.artifact import TileMap
from kittens.backends.cuda import tunables
from kittens.backends.cuda.compile import available
from kittens.ir import base
from kittens.kernels import copy, matmul, transpose
from kittens.ops import products
from kittens.recording import launch
from kittens.targets import Rows

BF16 = ml_dtypes.bfloat16
ON = "cuda:sm_90a@sim"
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(BF16)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """The kernels that operations launch, and the strides in bytes of the first array of each; all products count as large."""
    seen: list[tuple[str, tuple[int, ...]]] = []

    def noted(kernel, *args, **constants):  # type: ignore[no-untyped-def]
        seen.append((kernel.name, args[0].strides))
        launch(kernel, *args, **constants)

    monkeypatch.setattr(products, "launch", noted)
    monkeypatch.setattr(tunables, "_WORTH_COPIES", 1)
    return seen


def near(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c.astype(np.float64), exact, rtol=2**-7, atol=1e-3 * a.shape[-1] ** 0.5)


def spaced(x: np.ndarray) -> np.ndarray:
    """A copy whose rows begin at multiples of 16 bytes."""
    room = np.zeros((x.shape[0], -(-x.shape[1] // 8) * 8), BF16)
    room[:, : x.shape[1]] = x
    return room[:, : x.shape[1]]


@pytest.mark.parametrize("turned", [False, True])
def test_operands_with_odd_rows_are_copied_and_the_result_is_the_same(launched, turned: bool) -> None:
    a, b = normal(67, 93), normal(93, 95)
    a, b = (np.asfortranarray(x) if turned else x for x in (a, b))
    c = ops.matmul(a, b, on=ON)
    assert [name for name, _ in launched] == ["copy", "copy", "matmul"]
    assert all(s == 2 or s % 16 == 0 for s in launched[-1][1])
    near(c, a, b)
    assert (ops.matmul(*(spaced(x.T).T if turned else spaced(x) for x in (a, b)), on=ON) == c).all()
    assert len(launched) == 4


def test_operands_that_serve_as_they_lie_are_not_copied(launched) -> None:
    a, b = normal(2, 16, 24), normal(24, 32)
    repeated = np.broadcast_to(normal(1, 9, 7), (2, 9, 7))
    for x, y, names in (
        (a, b, ["matmul"]),
        (a, np.asfortranarray(b), ["matmul"]),
        (a, normal(24, 31), ["copy", "matmul"]),
        (repeated, normal(2, 7, 16), ["matmul"]),
    ):
        launched.clear()
        near(ops.matmul(x, y, on=ON), x, y)
        assert [name for name, _ in launched] == names
    launched.clear()
    ops.matmul(normal(67, 93), normal(93, 95), on="numpy")
    ops.matmul(normal(67, 93).astype(np.float32), normal(93, 95).astype(np.float32), on=ON)
    assert [name for name, _ in launched] == ["matmul", "matmul"]


def test_small_products_take_operands_as_they_lie() -> None:
    def asked(dtype: str, extra: int, accumulate: str = "full", on: str = ON) -> Rows | None:
        a, b = kt.spec(dtype, (64 + extra, 63 + extra)), kt.spec(dtype, (63 + extra, 66 + extra))
        return tunables.rows(kt.targets.parse(on), "matmul", {"a": a, "b": b, "accumulate": accumulate})

    assert asked("bfloat16", 448) == Rows(16)
    assert asked("bfloat16", 0) is None
    assert asked("bfloat16", 448, on="cuda:sm_80@sim") is None
    assert (
        asked("float8_e4m3fn", 448, "fast") == asked("float8_e5m2", 448, "promoted") == Rows(16, along=True)
    )
    assert asked("float8_e4m3fn", 448) is None and asked("float8_e4m3fn", 0, "fast") is None


E4M3 = ml_dtypes.float8_e4m3fn


@pytest.mark.parametrize("accumulate", ["fast", "promoted"])
@pytest.mark.parametrize("k", [96, 93])
def test_float8_that_lies_across_k_is_copied_along_it_and_the_result_is_the_same(
    launched, accumulate, k
) -> None:
    """Each operand by itself, both, none; with rows that begin at odd places, and with scales."""
    a, b = RNG.standard_normal((70, k)).astype(E4M3), RNG.standard_normal((k, 40)).astype(E4M3)
    scale = RNG.uniform(0.5, 2, 70).astype(np.float32)
    wanted = ops.matmul(a, np.asfortranarray(b), accumulate=accumulate, a_scale=scale, on=ON)
    exact = (a.astype(np.float64) @ b.astype(np.float64)) * scale.astype(np.float64)[:, None]
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) * scale[:, None]
    assert (np.abs(wanted.astype(np.float64) - exact) <= 2**-7 * size).all()
    odd = ["copy"] * (k % 16 != 0)
    for x, y, copies in (
        (a, b, [*odd, "transpose"]),
        (np.asfortranarray(a), np.asfortranarray(b), ["transpose", *odd]),
        (np.asfortranarray(a), b, ["transpose", "transpose"]),
        (a, np.asfortranarray(b), odd * 2),
    ):
        launched.clear()
        assert (ops.matmul(x, y, accumulate=accumulate, a_scale=scale, on=ON) == wanted).all()
        assert [name for name, _ in launched] == [*copies, "matmul"]
    launched.clear()
    ops.matmul(a, b, on=ON)
    assert [name for name, _ in launched] == ["matmul"]


@pytest.mark.parametrize("on", ["numpy", "cuda:sm_80@sim", "hip:gfx942@sim", "metal@sim"])
@pytest.mark.parametrize("dtype", [E4M3, BF16, np.float32])
def test_transposing(on: str, dtype: type) -> None:
    x, y = RNG.standard_normal((2, 70, 35)).astype(dtype), np.full((2, 36, 80), 1, dtype)
    transpose(x, y, on=on)
    assert (y[:, :35, :70] == x.swapaxes(1, 2)).all() and not y[:, 35:].any() and not y[:, :, 70:].any()


def plan(m: int, n: int, k: int, **tiles: int):  # type: ignore[no-untyped-def]
    shapes = ((m, k), (k, n), (m, n))
    return matmul.plan("cuda:sm_90a", *(kt.spec("bfloat16", s) for s in shapes), **tiles)


@pytest.mark.parametrize("columns", [192, 136])
def test_few_rows_by_an_odd_number_of_blocks(columns: int) -> None:
    for m in (16, 100):
        a, b = normal(m, 264), normal(264, columns)
        near(ops.matmul(a, b, on=ON), a, b)


@pytest.mark.parametrize("turned", [False, True])
def test_no_rows_are_copied_that_the_left_operand_does_not_have(turned: bool) -> None:
    """Beyond the copied ones a slot holds zeros: rows of the result that only it has are what they would be."""
    a, b, c = normal(20, 300), normal(300, 72), np.full((50, 72), np.nan, BF16)
    matmul(np.asfortranarray(a) if turned else a, b, c, None, None, None, on=ON)
    near(c[:20], a, b)
    assert not c[20:].any()
    roles = plan(20, 72, 304).roles
    assert roles.cut is not None and base(roles.cut.load.operands[0]).name == "a"
    assert plan(4096, 4096, 4096).roles.cut is None
    tile = TileMap("a", (1, 0), (64, 64), 128, cut=True)
    assert [tile.copied((n, 304))[1] for n in (0, 1, 8, 9, 63, 64, 100)] == [8, 8, 8, 16, 64, 64, 64]


def test_a_copy_fills_up_with_zeros() -> None:
    x, y = normal(2, 5, 7), np.full((2, 6, 16), np.nan, BF16)
    copy(x, y, on="numpy")
    assert (y[:, :5, :7] == x).all() and not y[:, 5:].any() and not y[:, :, 7:].any()


def test_what_is_stored_two_bytes_at_a_time_leaves_registers_for_what_is_computed_before() -> None:
    if available():
        pytest.skip(available())
    a, b, c = (kt.spec("bfloat16", s) for s in ((4097, 4096), (4096, 4096), (4097, 4096)))
    bias, odd = kt.spec("bfloat16", (4095,)), kt.spec("bfloat16", (4097, 4095))
    columns = kt.spec("bfloat16", (4096, 4095), (1, 4096))
    scales = kt.spec("float32", (4097, 1)), kt.spec("float32", (1, 4095))
    for more in ((None, None), scales):
        found = matmul.resources("cuda:sm_90a", a, columns, odd, *more, bias, activation="gelu")
        assert found["spilled_bytes"] == 0
    target = kt.targets.parse("cuda:sm_90a")
    told = {
        "a": a,
        "a_scale": None,
        "b_scale": None,
        "bias": bias,
        "activation": "gelu",
        "accumulate": "full",
    }
    assert tunables.shipped(target, "matmul", {**told, "b": columns, "c": odd})["BN"] == 64
    assert tunables.shipped(target, "matmul", {**told, "b": b, "c": c})["BN"] == 128
    relu = {**told, "b": b, "c": c, "activation": "relu"}
    assert tunables.shipped(target, "matmul", relu)["BN"] == 256
