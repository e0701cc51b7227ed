"""Placements of tiles: slots, rewriting, vectors, reductions, conversions, chained products."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kittens.backends.cuda import fragments as cuda
from kittens.backends.hip import fragments as hip
from kittens.backends.metal import fragments as metal
from kittens.layouts import (
    Digit,
    Linear,
    Tiled,
    absorb,
    apply,
    apply_exchange,
    blocked,
    conversion,
    coordinates,
    distribute,
    elements,
    every_other,
    exchanges,
    feeds,
    fragment,
    holder,
    linear,
    picture,
    reduction,
    reorder,
    runs,
    same,
    table,
    transpose,
    vector_width,
    with_axes,
)

MMA = cuda.MMA["m16n8k16"]
WGMMA = cuda.WGMMA["m64k16"]
MFMA16 = hip.MFMA["f32_16x16x32"]
MFMA32 = hip.MFMA["f32_32x32x16"]
APPLE = metal.SIMDGROUP_MATRIX


@st.composite
def fragments(draw: st.DrawFn, rows: int = 3, cols: int = 3, lanes: int = 4) -> Linear:
    """A random one-to-one fragment: coordinate bits dealt to lanes and registers, sometimes mixed."""
    words = draw(st.permutations([*(f"r{i}" for i in range(rows)), *(f"c{i}" for i in range(cols))]))
    f = fragment(" ".join(words[lanes:]), " ".join(words[:lanes]))
    columns = list(f.columns)
    pairs = st.tuples(st.integers(0, len(columns) - 1), st.integers(0, len(columns) - 1))
    for i, j in draw(st.lists(pairs, max_size=3)):
        if i != j:
            columns[i] ^= columns[j]
    return Linear(f.inputs, f.outputs, tuple(columns))


digits = st.lists(
    st.builds(
        Digit, st.sampled_from(["register", "group"]), st.sampled_from(["row", "col"]), st.integers(1, 3)
    ),
    max_size=4,
)
layouts = st.builds(lambda f, d: Tiled(f, tuple(d)), fragments(), digits)


# ---------------------------------------------------------------------------------------------
# Slots


@given(layouts)
@settings(max_examples=50, deadline=None)
def test_slots_and_elements_are_one_to_one(t: Tiled) -> None:
    assert sorted(elements(t).ravel().tolist()) == list(range(math.prod(t.shape)))
    row, col = np.ogrid[: t.shape[0], : t.shape[1]]
    group, lane, register = holder(t, row, col)
    found = coordinates(t, group, lane, register)
    assert (found[0] == row).all() and (found[1] == col).all()


@given(layouts)
@settings(max_examples=50, deadline=None)
def test_rewriting_moves_nothing(t: Tiled) -> None:
    assert same(absorb(t), t) and absorb(absorb(t)) == absorb(t)
    assert same(transpose(transpose(t)), t)
    assert np.array_equal(table(transpose(t)), table(t)[..., ::-1])
    assert eval(repr(t)) == t and hash(eval(repr(t))) == hash(t)
    assert with_axes(with_axes(t, "m", "k"), "row", "col") == t


def test_distribute_by_hand() -> None:
    t = distribute(MMA.d, (64, 48), (2, 3))
    assert (t.shape, t.groups, t.registers) == ((64, 48), 6, 4 * 2 * 2)
    # Columns first: registers 4 to 7 are the next fragment to the right; group 1 the next 16 columns.
    assert coordinates(t, 0, 0, 4) == (0, 8) and coordinates(t, 0, 0, 8) == (16, 0)
    assert coordinates(t, 1, 0, 0) == (0, 16) and coordinates(t, 3, 0, 0) == (32, 0)
    assert holder(t, 40, 17) == (4, 0, 3)
    by_rows = distribute(MMA.d, (64, 48), (2, 3), order=("row", "col"), interleave=("row",))
    assert coordinates(by_rows, 1, 0, 0) == (16, 0) and coordinates(by_rows, 0, 0, 4) == (32, 0)
    assert coordinates(by_rows, 2, 0, 0) == (0, 16) and coordinates(by_rows, 0, 0, 8) == (0, 8)
    with pytest.raises(ValueError, match="no multiple of 24"):
        distribute(MMA.d, (16, 32), (1, 3))


def test_wrong_layouts_are_refused() -> None:
    with pytest.raises(ValueError, match="repeats along"):
        Tiled(MMA.d, (Digit("register", "depth", 2),))
    with pytest.raises(ValueError, match="a fragment maps"):
        Tiled(linear.identity((("x", 1),)))


def test_picture() -> None:
    lines = picture(Tiled(APPLE.d)).splitlines()
    assert lines[0].split() == [str(c) for c in range(8)]
    assert lines[1].split() == ["0:", "0:0", "0:1", "1:0", "1:1", "8:0", "8:1", "9:0", "9:1"]
    assert lines[8].split()[1:3] == ["22:0", "22:1"]
    wide = picture(distribute(MMA.d, (32, 32), (2, 1)), rows=2, cols=2)
    assert wide.splitlines()[1].split() == ["0:", "0/0:0", "0/0:1", "..."] and wide.endswith("...")
    assert "0:0=16:0" in picture(Tiled(hip.WMMA["f32_16x16x16_w32"].a))


# ---------------------------------------------------------------------------------------------
# Vectors


def test_vector_widths() -> None:
    assert vector_width(distribute(MMA.d, (64, 64)), "col") == 2
    assert vector_width(distribute(MMA.d, (64, 64)), "row") == 1
    assert vector_width(distribute(MFMA32.d, (64, 64)), "row") == 4
    assert vector_width(distribute(MFMA16.a, (16, 64)), "col") == 8
    assert vector_width(distribute(cuda.MMA["m16n8k32_fp8"].a, (16, 64)), "col") == 4
    assert vector_width(distribute(APPLE.d, (8, 96)), "col") == 2
    assert vector_width(Tiled(hip.WMMA["f32_16x16x16_w32"].a), "col") == 16
    assert runs(Tiled(MMA.d), "col") == ((0, 1), (2, 3))
    assert runs(Tiled(MFMA32.d), "row", 2) == tuple((r, r + 1) for r in range(0, 16, 2))


@given(layouts, st.sampled_from(["row", "col"]))
@settings(max_examples=50, deadline=None)
def test_runs_are_aligned_neighbours(t: Tiled, axis: str) -> None:
    found = runs(t, axis)
    assert sorted(r for run in found for r in run) == list(range(t.registers))
    along = t.axes.index(axis)
    for run in found:
        where = table(t)[:, :, list(run)]
        assert (np.diff(where[..., along], axis=-1) == 1).all()
        assert (np.diff(where[..., 1 - along], axis=-1) == 0).all()
        assert (where[:, :, 0, along] % len(run) == 0).all()


@pytest.mark.parametrize("shape", [(64, 128), (32, 96), (1, 4096), (7, 64), (4096,), (96,), (16, 8), (5, 3)])
@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("groups", [1, 3, 4])
def test_blocked(shape: tuple[int, ...], lanes: int, groups: int) -> None:
    t = blocked(shape, vector=8, lanes=lanes, groups=groups)
    assert (t.shape, t.lanes, t.groups) == (shape, lanes, groups)
    assert set(elements(t).ravel().tolist()) == set(range(math.prod(shape)))
    columns = shape[-1]
    assert vector_width(t, "col") % min(8, columns & -columns) == 0


@pytest.mark.parametrize("rows", [1, 3, 16])
@pytest.mark.parametrize("columns", [2, 16, 96, 256])
@pytest.mark.parametrize("vector", [1, 2, 8])
def test_every_other_element_lies_in_neighbouring_registers(rows: int, columns: int, vector: int) -> None:
    whole = blocked((rows, columns), vector=vector, lanes=32, groups=4)
    if vector == 1:
        with pytest.raises(ValueError, match="neighbouring registers"):
            every_other(whole, "col")
        return
    half = every_other(whole, "col")
    assert half.shape == (rows, columns // 2) and half.registers * 2 == whole.registers
    for odd in (0, 1):
        row, column = np.moveaxis(table(whole)[:, :, odd::2], -1, 0)
        assert (table(half)[..., 0] == row).all() and (table(half)[..., 1] * 2 + odd == column).all()
    with pytest.raises(ValueError, match="neighbouring registers"):
        every_other(whole, "row")


def test_blocked_gives_a_row_to_few_lanes() -> None:
    t = blocked((64, 128), vector=8, lanes=32, groups=4)
    assert reduction(t, "col").lane_masks == (1, 2, 4, 8) and not reduction(t, "col").group_sets
    assert t.registers == 64 * 128 // (32 * 4)


# ---------------------------------------------------------------------------------------------
# Reductions


def carry_out(t: Tiled, axis: str, values: np.ndarray) -> tuple[Tiled, np.ndarray]:
    """Sum ``values`` (the tile) along ``axis`` as the recipe says, with numbers in slots."""
    recipe = reduction(t, axis)
    where = table(t)
    slots = values[tuple(where[..., i] for i in range(where.shape[-1]))]
    result = np.zeros((t.groups, t.lanes, recipe.result.registers), values.dtype)
    for r, target in enumerate(recipe.into):
        result[..., target] += slots[..., r]
    lanes = np.arange(t.lanes)
    for mask in recipe.lane_masks:
        result = result + result[:, lanes ^ mask]
    for members in recipe.group_sets:
        result[list(members)] = result[list(members)].sum(axis=0)
    return recipe.result, result


REDUCED = {
    "mma": (distribute(MMA.d, (64, 96), (4, 1)), {"col": (1, 2), "row": (4, 8, 16)}),
    "wgmma": (distribute(WGMMA.d, (128, 96), (2, 1)), {"col": (1, 2), "row": (4, 8, 16)}),
    "mfma32": (distribute(MFMA32.d, (128, 96), (2, 1)), {"row": (32,), "col": (1, 2, 4, 8, 16)}),
    "mfma16": (distribute(MFMA16.d, (64, 64), (2, 2)), {"row": (16, 32), "col": (1, 2, 4, 8)}),
    "apple": (distribute(APPLE.d, (32, 96), (2, 3)), {"col": (1, 8), "row": (2, 4, 16)}),
    "rdna3": (distribute(hip.WMMA["f32_16x16x16_w32"].d, (64, 32)), {"row": (16,), "col": (1, 2, 4, 8)}),
    "blocked": (blocked((48, 96), vector=4, lanes=32, groups=3), {"col": (1, 2, 4), "row": (8, 16)}),
}


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("axis", ["row", "col"])
def test_reduction_sums_the_tile(name: str, axis: str) -> None:
    t, masks = REDUCED[name]
    assert reduction(t, axis).lane_masks == masks[axis]
    values = np.random.default_rng(1).integers(-99, 99, t.shape)
    result, slots = carry_out(t, axis, values)
    assert result.axes == tuple(a for a in t.axes if a != axis)
    expected = values.sum(axis=t.axes.index(axis))
    assert (slots == expected[table(result)[..., 0]]).all()
    # Broadcast back: register r reads result register into[r].
    kept = table(t)[..., 1 - t.axes.index(axis)]
    assert (table(result)[:, :, list(reduction(t, axis).into), 0] == kept).all()


@given(layouts, st.sampled_from(["row", "col"]))
@settings(max_examples=100, deadline=None)
def test_any_reduction_is_right_or_refused(t: Tiled, axis: str) -> None:
    values = np.random.default_rng(2).integers(-99, 99, t.shape)
    try:
        result, slots = carry_out(t, axis, values)
    except ValueError as refusal:
        if "mixes" not in str(refusal):
            raise
    else:
        assert (slots == values.sum(axis=t.axes.index(axis))[table(result)[..., 0]]).all()


def test_reductions_count_copies_once() -> None:
    operand = distribute(hip.WMMA["f32_16x16x16_w32"].a, (32, 32))
    assert reduction(operand, "col").lane_masks == ()
    values = np.random.default_rng(3).integers(-99, 99, (32, 32))
    result, slots = carry_out(operand, "col", values)
    assert (slots == values.sum(axis=1)[table(result)[..., 0]]).all()
    shared_out = Tiled(MMA.d, (Digit("group", None, 2), Digit("group", "col", 2)))
    assert reduction(shared_out, "col").group_sets == ((0, 2), (1, 3))
    result, slots = carry_out(shared_out, "col", values[:16, :16])
    assert (slots == values[:16, :16].sum(axis=1)[table(result)[..., 0]]).all()


def test_reducing_twice_leaves_one_element_everywhere() -> None:
    t = reduction(distribute(MMA.d, (32, 32)), "row").result
    scalar = reduction(t, "col").result
    assert (scalar.shape, scalar.registers, scalar.lanes) == ((), 1, 32)
    with pytest.raises(ValueError, match="no axis"):
        reduction(t, "row")


# ---------------------------------------------------------------------------------------------
# Conversions


def converts(source: Tiled, target: Tiled) -> str:
    """Plan, carry out, check every slot; the kind."""
    plan = conversion(source, target)
    if plan.kind != "shared":
        assert (apply(plan, elements(source), target.registers) == elements(target)).all()
    return plan.kind


def test_conversions_of_products() -> None:
    acc = distribute(MMA.d, (64, 64), (4, 1))
    assert converts(acc, acc) == "free"
    assert converts(acc, distribute(MMA.a, (64, 64), (4, 1))) == "free"
    assert converts(acc, distribute(MMA.d, (64, 64), (4, 1), order=("row", "col"))) == "free"
    by_rows = distribute(MMA.d, (128, 64), (4, 1), order=("row", "col"))
    assert converts(distribute(MMA.d, (128, 64), (4, 1)), by_rows) == "registers"
    assert converts(distribute(APPLE.d, (32, 32)), distribute(APPLE.a, (32, 32))) == "free"
    assert converts(acc, distribute(MMA.a, (64, 64), (2, 2))) == "shared"
    assert converts(acc, blocked((64, 64), vector=8, lanes=64, groups=2)) == "shared"
    eight = distribute(cuda.MMA["m16n8k32_fp8"].a, (64, 64), (4, 1))
    plan = conversion(acc, eight)
    assert plan.kind == converts(acc, eight) == "shuffle"
    assert plan.shuffles <= acc.registers


@pytest.mark.parametrize("product", [hip.MFMA["f32_16x16x16"], MFMA16, MFMA32, hip.MFMA["f32_32x32x8"]])
def test_cdna_accumulator_into_operand(product: object) -> None:
    """D transposed is B's operand; where a lane holds 4 rows and wants 8, values cross lanes."""
    p = product
    acc, operand = distribute(p.d, (64, 32)), distribute(p.b, (64, 32))  # type: ignore[attr-defined]
    plan = conversion(acc, operand)
    free = "free" if p.shape.k in (8, 16) and p.b.columns[2:3] != (4,) else "shuffle"  # type: ignore[attr-defined]
    wanted = "shuffle" if len(p.b.bits("register")) == 3 else free  # type: ignore[attr-defined]
    assert converts(acc, operand) in (wanted, "registers")
    assert plan.shuffles <= acc.registers


@given(fragments(), fragments())
@settings(max_examples=150, deadline=None)
def test_any_conversion_puts_each_element_in_place(a: Linear, b: Linear) -> None:
    repeat = (Digit("register", "col", 3), Digit("group", "row", 2))
    source, target = Tiled(a, repeat), Tiled(b, repeat)
    assert converts(source, target) != "shared"


@given(fragments(lanes=3), fragments(lanes=4), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_conversions_between_copies(a: Linear, b: Linear, bit: int) -> None:
    """One side holds every element in two lanes: the lane bit that holds copies stands anywhere."""

    def copied(f: Linear) -> Linear:
        columns = list(f.columns)
        columns.insert(linear.span(f.inputs, "register")[1] + bit, 0)
        return Linear((f.inputs[0], ("lane", 4), f.inputs[2]), f.outputs, tuple(columns))

    source, target = Tiled(copied(a)), Tiled(b)
    assert converts(source, target) != "shared"
    converts(target, source)
    assert converts(source, source) == "free"


def test_conversion_refuses_other_tiles() -> None:
    with pytest.raises(ValueError, match="cannot become"):
        conversion(Tiled(MMA.d), Tiled(MMA.a))
    with pytest.raises(ValueError, match="no recipe"):
        apply(conversion(Tiled(MMA.d), Tiled(MMA.d, (Digit("group", None, 2),))), elements(Tiled(MMA.d)), 4)


def test_shuffle_steps_are_readable() -> None:
    """Exchanging one register bit with one lane bit: half the values cross, by a mask."""
    source, target = Tiled(fragment("c0", "c1 r0")), Tiled(fragment("c1", "c0 r0"))
    plan = conversion(source, target)
    assert [step.take.xor_mask for step in plan.steps] == [0, 1]
    assert plan.shuffles == 1 and converts(source, target) == "shuffle"


def traded(source: Tiled, target: Tiled) -> int:
    """Convert by exchanges, check every slot; how many."""
    plan = exchanges(source, target)
    assert plan is not None
    values = elements(source)
    for step in plan[0]:
        values = apply_exchange(step, values)
    assert (values[..., list(plan[1])] == elements(target)).all()
    return len(plan[0])


def test_exchanges_of_cdna4() -> None:
    """Pairs of 16x16 accumulators into a 16x32 operand: 2 swaps a pair of registers; 32x32: one."""
    acc = distribute(MFMA16.d, (64, 16), order=("row", "col"))
    assert traded(acc, distribute(MFMA16.b, (64, 16), order=("row", "col"))) == 2
    acc = distribute(MFMA32.d, (96, 32), order=("row", "col"))
    assert traded(acc, distribute(MFMA32.b, (96, 32), order=("row", "col"))) == 1
    assert traded(acc, acc) == 0
    assert traded(acc, distribute(MFMA32.a, (96, 32))) > 4  # a transposition
    assert exchanges(acc, distribute(MFMA32.d, (96, 32), (3, 1))) is None
    assert exchanges(Tiled(fragment("c0", "r0")), Tiled(fragment("c0^r0", "r0"))) is None


@given(st.permutations([f"{a}{i}" for a in "rc" for i in range(3)]), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_any_order_of_bits_can_be_exchanged(words: list[str], lanes: int) -> None:
    source = Tiled(fragment("r0 r1 r2 c0 c1 c2"[3 * lanes :], "r0 r1 r2 c0 c1 c2"[: 3 * lanes]))
    assert traded(source, Tiled(fragment(" ".join(words[lanes:]), " ".join(words[:lanes])))) <= 2 * lanes


# ---------------------------------------------------------------------------------------------
# Chained products


def chained(acc: Tiled, operand: Tiled, inner: str) -> tuple[int, ...]:
    """Multiply with the accumulator's registers as the operand; the bits of the order of the axis."""
    order = feeds(acc, operand, inner)
    assert order is not None
    p = np.random.default_rng(4).integers(-9, 9, acc.shape)
    size = acc.extent(inner)
    other = np.random.default_rng(5).integers(-9, 9, (size, 16))
    have, want = table(acc), table(operand)
    slots = p[have[..., 0], have[..., 1]][:, :, list(order.registers)]
    seen = np.zeros(acc.shape, p.dtype)  # the matrix that the product believes it was given
    seen[want[..., 0], want[..., 1]] = slots
    read = other[list(order.order)]  # the other operand, read in the same order
    if inner == "col":
        assert (seen @ read == p @ other).all()
    else:
        assert (seen.T @ read == p.T @ other).all()
    return order.columns


def test_accumulators_feed_operands() -> None:
    # NVIDIA 16-bit, and Apple: as usual.
    assert chained(distribute(MMA.d, (64, 96), (4, 1)), distribute(MMA.a, (64, 96), (4, 1)), "col") == ()
    assert chained(distribute(WGMMA.d, (64, 64)), distribute(WGMMA.a, (64, 64)), "col") == ()
    assert chained(distribute(APPLE.d, (8, 32)), distribute(APPLE.a, (8, 32)), "col") == ()
    # 8-bit: pairs of columns become fours.
    assert chained(
        distribute(WGMMA.d, (64, 64)), distribute(cuda.WGMMA["m64k32_fp8"].a, (64, 64)), "col"
    ) == (1, 8, 2, 4)
    # CDNA3: 4 rows are K's 4.
    p = hip.MFMA["f32_16x16x16"]
    assert chained(distribute(p.d, (64, 16), order=("row", "col")), distribute(p.b, (64, 16)), "row") == ()


def test_cdna4_reads_v_in_the_order_of_p() -> None:
    """The trial kernel's: kv = 8 (e / 4) + 4 half + e % 4, for each 16 of K, e = 0..7."""
    acc = distribute(MFMA32.d, (64, 32), order=("row", "col"))
    operand = distribute(MFMA32.b, (64, 32), order=("row", "col"))
    assert chained(acc, operand, "row") == (1, 2, 8, 4)
    order = feeds(acc, operand, "row")
    assert order is not None and order.block == 16 and not order.is_identity
    v = reorder(distribute(MFMA32.a, (32, 64)), "col", order)
    for lane in range(64):
        for step in range(4):
            for e in range(8):
                kv = 16 * step + 8 * (e // 4) + 4 * (lane // 32) + e % 4
                assert coordinates(v, 0, lane, 8 * step + e) == (lane % 32, kv)


def test_reorder_reads_at_order() -> None:
    acc = distribute(MFMA32.d, (64, 32), order=("row", "col"))
    order = feeds(acc, distribute(MFMA32.b, (64, 32), order=("row", "col")), "row")
    assert order is not None
    plain = distribute(MFMA32.a, (96, 64), (3, 1))
    moved = reorder(plain, "col", order)
    assert (table(moved)[..., 1] == np.array(order.order)[table(plain)[..., 1]]).all()
    assert (table(moved)[..., 0] == table(plain)[..., 0]).all()
    with pytest.raises(ValueError, match="smaller than 16"):
        reorder(distribute(APPLE.a, (8, 24)), "col", order)


def test_what_cannot_feed() -> None:
    acc = distribute(MMA.d, (64, 64), (4, 1))
    assert feeds(acc, distribute(MMA.a, (64, 64), (2, 2))) is None
    assert feeds(acc, transpose(acc)) is None
    assert feeds(distribute(MFMA32.d, (32, 32)), distribute(MFMA32.a, (32, 32)), "col") is None
