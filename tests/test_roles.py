"""Plans with roles: which kernels get one, that their text is right in the simulator, and that faults in it are found there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kittens as kt
from kittens.backends.cuda.compile import available
from kittens.backends.cuda.machine import machine
from kittens.backends.cuda.sim import VENDOR
from kittens.codegen.pipeline import artifact, planned, rerun_simulated
from kittens.codegen.placement import place
from kittens.dtypes import BY_NAME
from kittens.kernels import attention_backward_q, attention_forward, matmul
from kittens.runtime import evaluate_grid
from kittens.sim import SimulationFault

SIM = pytest.mark.sim
TARGET = "cuda:sm_90a@sim"


def small(rng: Any, *shape: int) -> Any:
    """Whole numbers so small that sums of products of them are exact, in float16 too."""
    return rng.integers(-2, 3, shape).astype(np.float16)


def plan_of(*args: Any, kernel: Any = matmul, on: str = "cuda:sm_90a", **constants: Any) -> Any:
    return kernel.plan(on, *args, **constants)


def half(*shape: int, strides: Any = None) -> Any:
    return kt.spec(kt.float16, shape, strides)


def test_a_product_of_aligned_halves_is_the_engines() -> None:
    plan = plan_of(half(512, 512), half(512, 512), half(512, 512), BM=128, BN=256, BK=64)
    assert plan.roles is not None and plan.roles.teams == 2 and plan.roles.cluster == 2
    (ring,) = plan.roles.rings
    assert ring.depth == 4 and ring.slot_bytes == 49152 and len(ring.common) == 1
    (out,) = plan.roles.outs.values()
    assert out.late
    assert plan.shared_bytes <= machine("sm_90a").shared_bytes


@pytest.mark.parametrize(
    ("args", "constants"),
    [
        ((half(512, 500, strides=(501, 1)), half(500, 512), half(512, 512)), {}),  # rows at odd addresses
        ((kt.spec(kt.float32, (512, 512)),) * 3, {}),
        ((half(512, 512), half(512, 512), half(512, 512)), {"BM": 32}),  # fewer rows than a team has
    ],
)
def test_what_the_engine_cannot_copy_or_make_stays_portable(args: Any, constants: Any) -> None:
    assert plan_of(*args, **{"BM": 64, "BN": 64, "BK": 64, **constants}).roles is None


def float8s(a: str, b: str, m: int = 512, n: int = 512, k: int = 512, *, turned: bool = True) -> Any:
    right = kt.spec(b, (k, n), (1, k) if turned else (n, 1))
    return kt.spec(a, (m, k)), right, kt.spec(kt.bfloat16, (m, n))


@pytest.mark.parametrize("b", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("a", ["float8_e4m3fn", "float8_e5m2"])
def test_fast_products_of_float8_are_the_engines(a: str, b: str) -> None:
    tiles = {"BM": 128, "BN": 256, "BK": 128}
    plan = plan_of(*float8s(a, b), accumulate="fast", **tiles)
    assert plan.roles is not None and plan.roles.teams == 2 and plan.roles.cluster == 2
    assert [ring.depth for ring in plan.roles.rings] == [4] and not plan.notes
    assert all(out.late for out in plan.roles.outs.values())
    full = plan_of(*float8s(a, b), **tiles)
    assert full.roles is None and full.notes[0].startswith(f"the engine adds {a} in less than float32")
    text = str(matmul.source("cuda:sm_90a", *float8s(a, b), accumulate="fast", **tiles))
    short = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
    assert f"wgmma.mma_async.sync.aligned.m64n256k32.f32.{short[a]}.{short[b]} " in text


def test_promoted_sums_are_added_beside_the_engines() -> None:
    """The result of the program before goes out while the first product is under way."""
    plan = plan_of(*float8s("float8_e4m3fn", "float8_e4m3fn"), accumulate="promoted", BM=128, BN=128, BK=128)
    assert plan.roles is not None and plan.roles.teams == 2 and plan.roles.cluster == 2
    assert all(out.late for out in plan.roles.outs.values())


def test_float8_that_lies_along_n_stays_portable_and_the_plan_says_so() -> None:
    args = float8s("float8_e4m3fn", "float8_e5m2", turned=False)
    plan = plan_of(*args, accumulate="fast", BM=128, BN=128, BK=128)
    assert plan.roles is None
    assert plan.notes == ["b lies along N: the engine takes float8_e4m3fn along K alone"]
    assert "note: b lies along N" in str(plan)


def test_ada_adds_float8_in_less_than_float32_and_makes_fast_products_alone() -> None:
    args = float8s("float8_e4m3fn", "float8_e4m3fn")
    for accumulate, wanted in (("fast", "m16n8k32_fp8"), ("full", None)):
        named = {"activation": "none", "accumulate": accumulate, "BM": 64, "BN": 64, "BK": 64}
        function = matmul.ir(*args, None, None, None, **named)
        (found,) = place(function, machine("sm_89")).products.values()
        assert (found.op.product.name if found.op else None) == wanted
        (found,) = place(function, machine("sm_90a")).products.values()
        assert found.op is not None


def test_other_architectures_have_no_roles() -> None:
    assert plan_of(half(512, 512), half(512, 512), half(512, 512), on="cuda:sm_80").roles is None


def test_attention_starts_its_second_product_late_and_draws_programs() -> None:
    q, lse = half(2, 4, 512, 64), kt.spec(kt.float32, (2, 4, 512))
    plan = plan_of(q, q, q, q, lse, kernel=attention_forward, scale=0.125, right=0, BM=192, BN=128)
    assert plan.roles.teams == 3 and len(plan.roles.late) == 1 and plan.roles.turns is not None
    assert [ring.name for ring in plan.roles.rings] == ["q_tile", "k", "v"]


@SIM
@pytest.mark.parametrize("turned", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(
    ("m", "n", "k", "tiles"),
    [
        (128, 128, 64, (64, 64, 64)),
        (200, 328, 72, (128, 64, 32)),  # ragged along all axes; more programs than blocks
        (72, 40, 200, (64, 128, 64)),
        (264, 520, 64, (128, 256, 64)),  # clusters, of which the last has one row of programs too many
        (64, 64, 0, (64, 64, 64)),  # a loop without a pass: the result that waits is not lost
    ],
)
def test_products_are_exact(turned: str, m: int, n: int, k: int, tiles: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(m + n + k)
    a = small(rng, m, k) if turned[0] == "N" else small(rng, k, m).T
    b = small(rng, k, n) if turned[1] == "N" else small(rng, n, k).T
    c = np.full((m, n), np.nan, np.float16)
    matmul(a, b, c, **dict(zip(("BM", "BN", "BK"), tiles, strict=True)), on=TARGET)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


@SIM
@pytest.mark.parametrize(
    ("accumulate", "a", "b", "m", "n", "k", "tiles"),
    [
        ("fast", "float8_e4m3fn", "float8_e4m3fn", 264, 520, 272, (128, 256, 128)),  # ragged along all axes
        ("fast", "float8_e5m2", "float8_e4m3fn", 72, 40, 208, (64, 64, 128)),
        (
            "promoted",
            "float8_e4m3fn",
            "float8_e5m2",
            264,
            392,
            272,
            (128, 128, 128),
        ),  # more programs than blocks
        ("promoted", "float8_e5m2", "float8_e5m2", 130, 200, 80, (128, 96, 64)),
        ("promoted", "float8_e4m3fn", "float8_e4m3fn", 64, 64, 0, (64, 64, 128)),
    ],
)
def test_products_of_float8_are_exact_where_14_bits_hold_them(
    accumulate: str, a: str, b: str, m: int, n: int, k: int, tiles: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(m + n + k)
    x, y = small(rng, m, k).astype(BY_NAME[a].numpy), small(rng, n, k).astype(BY_NAME[b].numpy).T
    c = np.full((m, n), np.nan, np.float16)
    named = dict(zip(("BM", "BN", "BK"), tiles, strict=True))
    assert k == 0 or plan_of(x, y, c, accumulate=accumulate, **named).roles is not None
    matmul(x, y, c, accumulate=accumulate, **named, on=TARGET)
    np.testing.assert_array_equal(c, x.astype(np.float32) @ y.astype(np.float32))


@pytest.mark.parametrize("scales", ["", "tensor", "rows"])
@pytest.mark.parametrize("accumulate", ["fast", "promoted"])
def test_shipped_tiles_of_float8_compile_without_spills(accumulate: str, scales: str) -> None:
    if available():
        pytest.skip(available())
    shapes: Any = {"": ((), ()), "tensor": ((), ()), "rows": ((4096, 1), (1, 4096))}[scales]
    factors = [kt.spec(kt.float32, s) if scales else None for s in shapes]
    args = float8s("float8_e4m3fn", "float8_e4m3fn", 4096, 4096, 4096)
    found = matmul.resources("cuda:sm_90a", *args, *factors, accumulate=accumulate)
    assert found["spilled_bytes"] == 0
    assert matmul.plan("cuda:sm_90a", *args, *factors, accumulate=accumulate).roles is not None


#: What a product is stored as, how its rows lie, what is made of it before, and its tile: all that takes registers.
ENDS = [
    (4096, "bfloat16", "rows", "none", False, (128, 256)),
    (8192, "bfloat16", "rows", "none", False, (128, 256)),
    (4096, "bfloat16", "rows", "gelu_tanh", True, (128, 128)),
    (4096, "bfloat16", "rows", "silu", False, (128, 128)),
    (4096, "bfloat16", "rows", "relu", True, (128, 256)),
    (8192, "bfloat16", "columns", "none", False, (128, 128)),
    (4096, "float32", "rows", "none", False, (128, 256)),
    (4096, "float32", "rows", "gelu", True, (128, 64)),
    (4096, "float32", "columns", "none", True, (128, 64)),
    (4096, "float8_e4m3fn", "odd", "silu", True, (128, 64)),
]


@pytest.mark.parametrize(("n", "dtype", "lies", "activation", "scaled", "tile"), ENDS)
def test_shipped_tiles_compile_without_spills_whatever_is_made_of_the_sums(
    n: int, dtype: str, lies: str, activation: str, scaled: bool, tile: tuple[int, int]
) -> None:
    if available():
        pytest.skip(available())
    a, strides = kt.spec(kt.bfloat16, (n, n)), {"rows": (n, 1), "columns": (1, n), "odd": (n + 1, 1)}[lies]
    more = (
        [kt.spec(kt.float32, (n, 1)), kt.spec(kt.float32, (1, n)), kt.spec(kt.bfloat16, (n,))]
        if scaled
        else []
    )
    made = matmul.compile(
        "cuda:sm_90a", a, a, kt.spec(BY_NAME[dtype], (n, n), strides), *more, activation=activation
    )
    assert made.resources["spilled_bytes"] == 0
    assert f"BM={tile[0]}, BN={tile[1]}," in made.source


@SIM
def test_batches_and_views_are_copied_by_their_own_axes() -> None:
    rng = np.random.default_rng(0)
    a, b = small(rng, 3, 2, 72, 64), small(rng, 2, 64, 64)
    c = np.zeros((3, 2, 72, 64), np.float16)
    matmul(a, b, c, BM=64, BN=64, BK=32, on=TARGET)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


@SIM
@pytest.mark.parametrize("right", [None, 0])
def test_attention_agrees_with_the_reference(right: int | None) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (
        rng.normal(size=s).astype(np.float16) for s in ((1, 4, 136, 64), (1, 2, 200, 64), (1, 2, 200, 64))
    )
    results = {}
    for on in ("numpy", TARGET):
        o, lse = np.full(q.shape, np.nan, np.float16), np.full(q.shape[:3], np.nan, np.float32)
        attention_forward(q, k, v, o, lse, scale=0.125, right=right, BM=64, BN=64, on=on)
        results[on] = o.astype(np.float32), lse
    np.testing.assert_allclose(results[TARGET][0], results["numpy"][0], atol=4e-3)
    np.testing.assert_allclose(results[TARGET][1], results["numpy"][1], atol=1e-5)


@SIM
def test_a_tile_that_is_read_early_and_late_is_handed_back_once_it_is_not_needed() -> None:
    """dq reads each block of keys twice: for the scores, and a pass later for the sum."""
    rng = np.random.default_rng(2)
    q, k, v, do = (rng.normal(size=(1, 2, n, 64)).astype(np.float16) for n in (72, 264, 264, 72))
    lse, delta = rng.normal(size=(2, 1, 2, 72)).astype(np.float32) + 5
    results = {}
    for on in ("numpy", TARGET):
        dq = np.full(q.shape, np.nan, np.float16)
        attention_backward_q(q, k, v, do, lse, delta, dq, scale=0.125, BM=64, BN=64, on=on)
        results[on] = dq.astype(np.float32)
    np.testing.assert_allclose(results[TARGET], results["numpy"], atol=0.05, rtol=0.02)


# What people write: each against the reference, which has no roles.


def tiles(c: Any) -> tuple[int, int]:
    return kt.cdiv(c.shape[0], 64), kt.cdiv(c.shape[1], 64)


@kt.kernel(grid=tiles)
def two_loops(a: Any, b: Any, n: Any, c: Any) -> None:
    """Rings of the same tensors, bounds that are loaded, steps, loops without a pass."""
    i, j = kt.program_id()
    x = kt.zeros((64, 64), kt.float32)
    for k in kt.range(kt.load(n[0]), kt.load(n[1]), 2):
        x += kt.load(a, (i, k), (64, 32)) @ kt.load(b, (k, j), (32, 64))
    x = x * 2
    for k in kt.range(kt.load(n[1]), kt.load(n[0])):
        x += kt.load(a, (i, k), (64, 32)) @ kt.load(b, (k, j), (32, 64))
    for k in kt.range(-3, kt.load(n[i]), 3):
        x += kt.load(a, (i, k), (64, 32)) @ kt.load(b, (k, j), (32, 64))
    kt.store(c, (i, j), x)


@kt.kernel(grid=tiles)
def loop_of_tiles_outside(a: Any, b: Any, n: Any, c: Any) -> None:
    """A loop that copies nothing, whose products are carried over."""
    i, j = kt.program_id()
    left, right = kt.load(a, (i, 0), (64, 64)), kt.load(b, (0, j), (64, 64))
    x = kt.zeros((64, 64), kt.float32)
    for _ in kt.range(kt.load(n[1])):
        x += left @ right
    y = kt.zeros((64, 64), kt.float32)
    for k in kt.range(kt.load(n[1])):
        y = left @ right + k.to(kt.float32)
    kt.store(c, (i, j), x + y)


@kt.kernel(grid=tiles)
def sums_around_another(a: Any, b: Any, n: Any, c: Any) -> None:
    """Two sums under way from pass to pass, between them a product that is read at once."""
    i, j = kt.program_id()
    x, y = kt.zeros((64, 64), kt.float32), kt.zeros((64, 64), kt.float32)
    most = kt.zeros(64, kt.float32)
    for k in kt.range(kt.cdiv(a.shape[1], 64)):
        x += kt.load(a, (i, k), (64, 64)) @ kt.load(b, (k, j), (64, 64))
        early = kt.load(a, (i, k), (64, 64)) @ kt.load(b, (k, 0), (64, 64))
        most = kt.maximum(most, ((early > 0).to(kt.float16) @ kt.load(b, (k, 1), (64, 64))).max(1))
        y += kt.load(a, (0, k), (64, 64)) @ kt.load(b, (k, j), (64, 64))
    kt.store(c, (i, j), x - y + most[:, None])


@kt.kernel(grid=tiles)
def descending(a: Any, b: Any, n: Any, c: Any) -> None:
    """Programs that are drawn, and a result that goes out by the engine."""
    i, j = kt.program_id(order="descending")
    x = kt.zeros((64, 64), kt.float32)
    for k in kt.range(i + 1):
        x += kt.load(a, (i, k), (64, 32)) @ kt.load(b, (k, j), (32, 64))
    kt.store(c, (i, j), x)


@kt.kernel(grid=lambda c: (kt.cdiv(c.shape[0], 192), kt.cdiv(c.shape[1], 64)))
def turned_on_its_way_out(a: Any, b: Any, n: Any, c: Any) -> None:
    """A store that needs shared memory itself, more than rings leave that take what they can."""
    i, j = kt.program_id()
    x = kt.zeros((192, 64), kt.float32)
    for k in kt.range(kt.cdiv(a.shape[1], 64)):
        x += kt.load(a, (i, k), (192, 64)) @ kt.load(b, (k, j), (64, 64))
    kt.store(c.T, (j, i), x.T)


@kt.kernel(grid=tiles)
def whole_numbers_out(a: Any, b: Any, n: Any, c: Any) -> None:
    """Results of 16 bits that are no floats."""
    i, j = kt.program_id()
    x = kt.zeros((64, 64), kt.float32)
    for k in kt.range(kt.cdiv(a.shape[1], 64)):
        x += kt.load(a, (i, k), (64, 64)) @ kt.load(b, (k, j), (64, 64))
    kt.store(c, (i, j), x.to(c.dtype))


@kt.kernel(grid=lambda c: (1, kt.cdiv(c.shape[1], 128)))
def stores_of_one_panel_and_two(a: Any, b: Any, n: Any, c: Any, d: Any) -> None:
    i, j = kt.program_id()
    narrow = kt.load(a, (0, 0), (64, 64)) @ kt.load(b, (0, j), (64, 64))
    wide = kt.load(a, (0, 1), (64, 64)) @ kt.load(b, (1, j), (64, 128))
    kt.store(d, (i, j), narrow)
    kt.store(c, (i, j), wide)


@kt.kernel(grid=lambda c: (kt.cdiv(c.shape[0], 64) + 1,))
def store_before_the_first_row(a: Any, b: Any, c: Any) -> None:
    i = kt.program_id(order="descending")
    kt.store(c, (i - 1, 0), kt.load(a, (i, 0), (64, 64)) @ kt.load(b, (0, 0), (64, 128)))


@SIM
def test_a_store_that_is_outside_counts_as_one() -> None:
    rng = np.random.default_rng(6)
    a, b, c = small(rng, 1024, 64), small(rng, 64, 128), np.zeros((960, 128), np.float16)
    assert len(store_before_the_first_row.plan("cuda:sm_90a", a, b, c).roles.outs) == 1
    store_before_the_first_row(a, b, c, on=TARGET)
    np.testing.assert_array_equal(c, a[64:].astype(np.float32) @ b)


@SIM
def test_a_store_waits_for_the_buffers_of_the_one_before() -> None:
    rng = np.random.default_rng(5)
    a, b = small(rng, 64, 128), small(rng, 128, 384)
    c, d = np.zeros((64, 384), np.float16), np.zeros((64, 192), np.float16)
    assert len(stores_of_one_panel_and_two.plan("cuda:sm_90a", a, b, a, c, d).roles.outs) == 2
    stores_of_one_panel_and_two(a, b, a, c, d, on=TARGET)
    np.testing.assert_array_equal(d, a[:, :64].astype(np.float32) @ b[:64, :192])
    np.testing.assert_array_equal(c, a[:, 64:].astype(np.float32) @ b[64:])


@kt.kernel(grid=lambda team: (kt.cdiv(team.shape[0], 128), kt.cdiv(team.shape[1], 256)))
def named_like_the_text(rows: Any, rank: Any, a_full: Any, team: Any) -> None:
    panel, programs = kt.program_id()
    to = kt.zeros((128, 256), kt.float32)
    for turn in kt.range(kt.cdiv(rows.shape[1], 32)):
        a, counter = kt.load(rows, (panel, turn), (128, 32)), kt.load(rank, (turn, programs), (32, 256))
        to += a @ counter
    kt.store(team, (panel, programs), to + kt.load(a_full[0]).to(kt.float32))


@SIM
@pytest.mark.parametrize(
    "kernel",
    [
        two_loops,
        loop_of_tiles_outside,
        sums_around_another,
        descending,
        turned_on_its_way_out,
        whole_numbers_out,
        named_like_the_text,
    ],
)
def test_programs_of_many_shapes_are_exact(kernel: Any) -> None:
    rng = np.random.default_rng(4)
    n, c = np.array([1, 5, 3, 4], np.int32), np.full((200, 136), 7, np.float16)
    args = small(rng, 200, 160), small(rng, 160, 136), n
    assert kernel.plan("cuda:sm_90a", *args, c).roles is not None
    want = c.copy()
    if kernel is whole_numbers_out:
        c, want = c.astype(np.int16), want.astype(np.int16)
    kernel(*args, want, on="numpy")
    kernel(*args, c, on=TARGET)
    np.testing.assert_array_equal(c, want)


@kt.kernel(grid=tiles)
def bound_by_a_tile(a: Any, b: Any, n: Any, c: Any) -> None:
    i, j = kt.program_id()
    x = kt.zeros((64, 64), kt.float32)
    for k in kt.range(kt.load(n, 0, 64).max(0)):
        x += kt.load(a, (i, k), (64, 32)) @ kt.load(b, (k, j), (32, 64))
    kt.store(c, (i, j), x)


@kt.kernel(grid=tiles)
def bound_by_what_it_stored(a: Any, b: Any, n: Any, c: Any) -> None:
    i, j = kt.program_id()
    kt.store(n[i], (), i.to(kt.int32))
    x = kt.zeros((64, 64), kt.float32)
    for k in kt.range(kt.load(n[i])):
        x += kt.load(a, (i, k), (64, 32)) @ kt.load(b, (k, j), (32, 64))
    kt.store(c, (i, j), x)


@pytest.mark.parametrize("kernel", [bound_by_a_tile, bound_by_what_it_stored])
def test_loops_that_the_copying_team_cannot_follow_stay_portable(kernel: Any) -> None:
    assert (
        kernel.plan(
            "cuda:sm_90a", half(200, 160), half(160, 136), kt.spec(kt.int32, (4,)), half(200, 136)
        ).roles
        is None
    )


@kt.kernel(grid=lambda c: c.shape[0])
def asks_twice(c: Any) -> None:
    kt.store(c[kt.program_id(order="descending")], (), kt.program_id().to(kt.int32))


@SIM
def test_a_program_that_asks_twice_is_in_one_place() -> None:
    c = np.zeros(5, np.int32)
    asks_twice(c, on=TARGET)
    np.testing.assert_array_equal(c, np.arange(5))


# Faults planted in emitted text: each is found.


def _ran(old: str, new: str) -> None:
    rng = np.random.default_rng(3)
    a, b, c = small(rng, 256, 192), small(rng, 192, 128), np.zeros((256, 128), np.float16)
    bound, _ = matmul.bind((a, b, c), {})
    constants = {"activation": "none", "BM": 64, "BN": 64, "BK": 32}
    grid = evaluate_grid(matmul, bound, constants)
    plan, source = planned(matmul.trace(bound, constants, len(grid)), machine("sm_90a"))
    assert old in source.text, "the emitted text no longer has what this test changes"
    made = artifact(plan.function, source, "cuda:sm_90a", b"", {})
    changed = replace(made, source=source.text.replace(old, new, 1))
    rerun_simulated(changed, VENDOR, "sm_90a", bound, grid)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


FAULTS = {
    "a slot is not handed back": ("if (lane == 0) kt_bar_arrive(a_empty + a_read * 8);", ""),
    "a slot is handed back before its products have ended": ("kt_engine_wait<1>(acc);", ""),
    "a slot is read before it is full": ("kt_bar_wait(a_full + a_slot * 8, a_phase);", ""),
    "a slot is filled while it is read": ("kt_bar_wait(a_empty + a_slot * 8, a_phase);", ""),
    "the phase does not flip": ("a_slot = 0; a_phase ^= 1;", "a_slot = 0;"),
    "fewer bytes are announced than come": (
        "kt_bar_expect(a_full + a_slot * 8, cut_rows * 64 + 4096);",
        "kt_bar_expect(a_full + a_slot * 8, cut_rows * 64);",
    ),
    "the copies see no plain writes": ("kt_fence_async();\n        kt_sync_lanes();", "kt_sync_lanes();"),
    "a descriptor's stride is wrong": (", 16, 512, 64)", ", 16, 1024, 64)"),
    "a step along K is wrong": ("kt_desc(kk * 2)", "kt_desc(kk * 4)"),
    "results are read while sums are under way": ("kt_engine_wait<0>(acc);", ""),
}


@SIM
@pytest.mark.parametrize("name", FAULTS)
def test_faults_in_the_text_are_found(name: str) -> None:
    with pytest.raises((SimulationFault, AssertionError, kt.KittensError)) as found:
        _ran(*FAULTS[name])
    assert "no longer has" not in str(found.value)


@SIM
def test_the_text_without_a_fault_is_right() -> None:
    _ran("kt_bar_fence();", "kt_bar_fence();")
