"""Emitted index arithmetic, evaluated back: the text says what the map says, for every slot."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kittens.backends.cuda import fragments as cuda
from kittens.backends.hip import fragments as hip
from kittens.backends.metal import fragments as metal
from kittens.layouts import (
    Digit,
    LaneForm,
    Linear,
    Shared,
    Tiled,
    base_expression,
    bits_expression,
    blocked,
    coordinate_expression,
    distribute,
    fragment,
    lane_expression,
    linear,
    offset,
    offset_expression,
    panels,
    register_offsets,
    shared_tile,
    table,
)


def evaluate(text: str, **names: object) -> object:
    """C's integer expression: the operators mean and bind as in Python, but for division."""
    assert re.fullmatch(r"[\w\s()+*/%&^<>]+", text), text
    return eval(text.replace("/", "//"), {}, names)


@given(st.lists(st.integers(0, 255), max_size=6), st.integers(0, 3))
def test_bits(columns: list[int], more: int) -> None:
    text = bits_expression(columns, "x", len(columns) + more)
    for x in range(1 << len(columns) + more):
        low = x & (1 << len(columns)) - 1
        assert evaluate(text, x=x) == linear.xor_columns(columns, low)


def test_bits_are_simplified() -> None:
    assert bits_expression([1, 2, 4], "x") == "x"
    assert bits_expression([1, 2, 4], "x", 5) == "x & 7"
    assert bits_expression([4, 8], "x") == "x << 2"
    assert bits_expression([0, 0, 1, 2], "x") == "x >> 2"
    assert bits_expression([0, 1, 2, 0], "x") == "(x >> 1) & 3"
    assert bits_expression([0, 0], "x") == "0"
    assert bits_expression([1, 3], "x") == "x ^ (x >> 1)"


@given(st.integers(0, 31), st.lists(st.integers(0, 31), min_size=4, max_size=4))
def test_lane_forms(constant: int, columns: list[int]) -> None:
    form = LaneForm(constant, tuple(columns))
    for lane in range(16):
        assert evaluate(lane_expression(form), lane=lane) == form(lane)


def check(t: Tiled) -> None:
    group, lane = np.ogrid[: t.groups, : t.lanes]
    for i, axis in enumerate(t.axes):
        base = evaluate(base_expression(t, axis), lane=lane, group=group)
        offsets = register_offsets(t, axis)
        for r in range(t.registers):
            text = coordinate_expression(t, axis, r)
            wanted = table(t)[:, :, r, i]
            assert (evaluate(text, lane=lane, group=group) + np.zeros_like(wanted) == wanted).all(), text
            if offsets is not None:
                assert (base + offsets[r] + np.zeros_like(wanted) == wanted).all()


LAYOUTS = {
    "mma": distribute(cuda.MMA["m16n8k16"].d, (64, 48), (2, 3)),
    "wgmma": distribute(cuda.WGMMA["m64k16"].d, (192, 96), (3, 1)),
    "mfma": distribute(hip.MFMA["f32_32x32x16"].d, (192, 64), (3, 2), order=("row", "col")),
    "fp8": distribute(hip.MFMA["f32_16x16x128_f8f6f4_8bit"].a, (32, 256), (2, 1)),
    "apple": distribute(metal.SIMDGROUP_MATRIX.d, (32, 24), (4, 1), interleave=("row",)),
    "blocked": blocked((12, 96), vector=8, lanes=32, groups=3),
    "vector": blocked((4096,), vector=4, lanes=64, groups=4),
    "twisted": Tiled(
        fragment("c0 r0^c1", "c1 r1^c0 r0"), (Digit("group", "row", 3), Digit("group", None, 2))
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_coordinates(name: str) -> None:
    check(LAYOUTS[name])


@st.composite
def layouts(draw: st.DrawFn) -> Tiled:
    columns = draw(st.lists(st.integers(0, 63), min_size=7, max_size=7))
    f = Linear((("register", 2), ("lane", 4), ("group", 1)), (("row", 3), ("col", 3)), tuple(columns))
    digit = st.builds(
        Digit,
        st.sampled_from(["register", "group"]),
        st.sampled_from(["row", "col", None]),
        st.integers(1, 4),
    )
    return Tiled(f, tuple(draw(st.lists(digit, max_size=4))))


@given(layouts())
@settings(max_examples=60, deadline=None)
def test_any_coordinates(t: Tiled) -> None:
    check(t)


def test_coordinates_read_well() -> None:
    t = distribute(cuda.MMA["m16n8k16"].d, (64, 64), (4, 1))
    assert base_expression(t, "row") == "(lane >> 2) + (group << 4)"
    assert base_expression(t, "col") == "(lane & 3) << 1"
    assert coordinate_expression(t, "row", 2) == "(lane >> 2) + (group << 4) + 8"
    assert register_offsets(t, "col") == tuple(8 * (r // 4) + r % 2 for r in range(32))
    d = hip.MFMA["f32_32x32x16"].d
    assert base_expression(Tiled(d), "row", "l") == "(l >> 3) & 4"
    assert base_expression(Tiled(d), "col", "l") == "l & 31"


SHARED = {
    "panels": panels((128, 128), 2, panel_bytes=128, xors=cuda.SWIZZLES[128]),
    "odd panels": panels((96, 192), 2, panel_bytes=128, xors=cuda.SWIZZLES[128]),
    "64": panels((64, 96), 2, panel_bytes=64, xors=cuda.SWIZZLES[64]),
    "32": panels((24, 48), 2, panel_bytes=32, xors=()),
    "padded": shared_tile((96, 96), 2, pad=16),
    "padded 64": shared_tile((64, 64), 4, pad=16),
    "padded panels": shared_tile((32, 64), 2, subtile=(32, 32), order=("row", "col"), pad=16),
    **{
        name: shared_tile((2 * r, 3 * c), 1 if "8-bit" in name else 2, subtile=(r, c), xors=xors)
        for name, ((r, c), xors) in hip.SUBTILES.items()
    },
}


@pytest.mark.parametrize("name", SHARED)
def test_offsets(name: str) -> None:
    tile = SHARED[name]
    row, col = np.ogrid[: tile.shape[0], : tile.shape[1]]
    text = offset_expression(tile)
    assert (evaluate(text, row=row, col=col) == offset(tile, row, col)).all(), text
    assert evaluate(offset_expression(tile, "row + 1", "2 * k"), row=2, k=3) == offset(tile, 3, 6)


def test_offsets_read_well() -> None:
    assert offset_expression(shared_tile((64, 64), 2)) == "(row << 7) + (col << 1)"
    assert offset_expression(SHARED["padded"]) == "(col << 1) + (row * 192) + (row * 16)"
    swizzled = shared_tile((64, 64), 2, xors=cuda.SWIZZLES[128])
    assert offset_expression(swizzled, "r", "c") == "(r << 7) + (((r & 7) << 4) ^ (c << 1))"


def test_shared_repr_round_trips() -> None:
    for tile in SHARED.values():
        assert eval(repr(tile), {"Shared": Shared, "Linear": Linear}) == tile
