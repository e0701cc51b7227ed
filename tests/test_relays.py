"""Attention backward in one kernel: teams hand dS to each other, the engine adds dq, in turn or in no order."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kittens as kt
from kittens import kernels, ops
from kittens.backends.cuda import tunables
from kittens.backends.cuda.compile import available
from kittens.backends.cuda.machine import machine
from kittens.backends.cuda.sim import VENDOR
from kittens.codegen.pipeline import artifact, planned, rerun_simulated
from kittens.codegen.plan import Plan, make_plan
from kittens.runtime import evaluate_grid
from kittens.sim import SimulationFault
from kittens.targets import Target

SIM = pytest.mark.sim
TARGET = "cuda:sm_90a@sim"
KERNEL = kernels.attention_backward_kv
WIDTHS = (32, 64, 128)
SPANS = ({}, {"right": 0}, {"left": 511, "right": 0})
NAMES = ("q", "k", "v", "do", "l2", "delta", "dk", "dv", "dq", "turns")


def described(width: int, *, turns: bool, queries: int = 1000, heads: int = 4, kept: int = 2) -> list[Any]:
    """What the kernel takes, of 2 sequences."""
    q, k = (kt.spec(kt.bfloat16, (2, h, n, width)) for h, n in ((heads, queries), (kept, 1100)))
    rows = kt.spec(kt.float32, (2, heads, queries))
    counts = [kt.spec(kt.int32, (2, heads, 32))] if turns else []
    return [q, k, k, q, rows, rows, k, k, kt.spec(kt.float32, q.shape), *counts]


def tiles(arguments: list[Any], left: int | None = None) -> dict[str, int]:
    bound = {**dict(zip(NAMES, arguments, strict=False)), "left": left}
    return tunables.shipped(Target("cuda", arch="sm_90a"), KERNEL.name, bound)


def plan(width: int, *, turns: bool = False, queries: int = 1000, **span: Any) -> Plan:
    arguments = described(width, turns=turns, queries=queries)
    function = KERNEL.ir(*arguments, scale=0.1, **span, **tiles(arguments))
    return make_plan(function, machine("sm_90a"))


@pytest.mark.parametrize("width", WIDTHS)
def test_five_products_in_one_loop(width: int) -> None:
    made = plan(width)
    assert made.roles is not None and made.roles.teams == 2
    ((loop, relay),) = made.roles.relays.items()
    products = [op for op in loop.regions[0].ops if op in made.placement.products]
    assert len(products) == 5 and {relay.ahead, relay.late, relay.whole} < set(products)
    assert made.placement.products[relay.ahead].swapped and not made.placement.products[relay.whole].swapped
    # What heads a pass is asked for a pass before, and read a pass after: one slot more. The others go together.
    depths = sorted(ring.depth for ring in made.roles.rings if ring.loop is loop)
    assert depths == [2, 3] and relay.ring.depth == 2
    # Rows of numbers come with the queries, not through registers of one lane after another.
    assert not made.roles.dealt and sum(len(r.tiles) for r in made.roles.rings if r.loop is loop) == 4


@SIM
@pytest.mark.parametrize("read", [False, True])
def test_what_a_program_reads_back_is_not_added_by_the_engine(read: bool) -> None:
    """The thread that adds is passes behind: the program read what had not been added yet."""

    @kt.kernel(grid=1)
    def gradients(q: Any, k: Any, v: Any, do: Any, dk: Any, dv: Any, dq: Any, seen: Any) -> None:
        k_tile, v_tile = kt.load(k, (0, 0), (128, 64)), kt.load(v, (0, 0), (128, 64))
        dk_acc, dv_acc = kt.zeros((128, 64), kt.float32), kt.zeros((128, 64), kt.float32)
        for i in kt.range(kt.cdiv(q.shape[0], 128)):
            q_tile, do_tile = kt.load(q, (i, 0), (128, 64)), kt.load(do, (i, 0), (128, 64))
            p = kt.exp2(q_tile @ k_tile.T)
            dv_acc += p.to(do.dtype).T @ do_tile
            ds = (p * (do_tile @ v_tile.T)).to(q.dtype)
            dk_acc += ds.T @ q_tile
            kt.store_add(dq, (i, 0), ds @ k_tile)
            if read:
                kt.store(seen, (i, 0), kt.load(dq, (i, 0), (128, 64)))
        kt.store(dk, (0, 0), dk_acc)
        kt.store(dv, (0, 0), dv_acc)

    rng = np.random.default_rng(0)
    q, k, v, do = (rng.standard_normal((n, 64)).astype(np.float16) / 8 for n in (256, 128, 128, 256))
    dk, dv, dq, seen = np.zeros_like(k), np.zeros_like(v), *np.zeros((2, 256, 64), np.float32)
    roles = gradients.plan("cuda:sm_90a", q, k, v, do, dk, dv, dq, seen).roles
    assert bool(roles is not None and roles.relays) != read
    gradients(q, k, v, do, dk, dv, dq, seen, on=TARGET)
    assert dq.any() and (not read or (seen == dq).all())


def test_a_narrow_product_is_shared_by_its_columns() -> None:
    made = plan(128)
    assert made.roles is not None
    (relay,) = made.roles.relays.values()
    assert made.placement.products[relay.whole].split == (1, 2)
    made = plan(64)
    assert made.roles is not None
    (relay,) = made.roles.relays.values()
    assert made.placement.products[relay.whole].split == (2, 1)


def test_columns_begin_where_the_engine_can_read_them() -> None:
    """A share of 32 columns would begin inside a row of the swizzle, where an H200 reads others: one team does all."""
    arguments = described(64, turns=False)
    function = KERNEL.ir(*arguments, scale=0.1, BM=64, BN=128)
    made = make_plan(function, machine("sm_90a"))
    assert made.roles is not None and made.roles.teams == 1


def test_rows_that_are_not_aligned_are_dealt() -> None:
    made = plan(128, queries=1001)
    assert made.roles is not None and made.roles.relays and len(made.roles.dealt) == 2


def test_programs_that_wait_are_drawn_when_they_begin() -> None:
    arguments = described(128, turns=True)
    text = str(KERNEL.source("cuda:sm_90a", *arguments, scale=0.1, **tiles(arguments)))
    copying = text[text.index("if (team == 0)") : text.index("int me =")]
    draws = [m.start() for m in re.finditer(r"kt_draw\(counter, programs \+ kt_blocks\(\)\)", copying)]
    assert len(draws) == 2 and draws[1] > copying.index("kt_tile_load")
    assert text.count("kt_turn_wait(") == text.count("kt_turn_pass(") == 1


@pytest.mark.parametrize("turns", [False, True], ids=["adds", "turns"])
@pytest.mark.parametrize("span", SPANS, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_shipped_tiles_compile_without_spills_and_products_run_beside_the_threads(
    width: int, span: dict, turns: bool
) -> None:
    if available():
        pytest.skip(available())
    if width == 64 and "left" in span:
        assert tiles(described(width, turns=turns), left=511).get("BM") != 128  # it would spill
        return
    arguments = described(width, turns=turns)
    found = KERNEL.resources("cuda:sm_90a", *arguments, scale=0.1, **span, **tiles(arguments))
    assert found["spilled_bytes"] == 0


def given_arrays(
    rng: Any, b: int, h: int, hk: int, nq: int, nk: int, width: int, causal: bool
) -> tuple[Any, ...]:
    import ml_dtypes

    q, k, v, do = (
        rng.standard_normal(s).astype(ml_dtypes.bfloat16)
        for s in ((b, h, nq, width), (b, hk, nk, width), (b, hk, nk, width), (b, h, nq, width))
    )
    o, lse = ops.attention(q, k, v, causal=causal, return_lse=True)
    return q, k, v, o, lse, do


@SIM
@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 2), st.sampled_from([(1, 1), (2, 1), (4, 2)]), st.integers(1, 300), st.integers(1, 300),
    st.sampled_from(WIDTHS), st.booleans(), st.booleans(),
)  # fmt: skip
def test_gradients_are_those_of_the_reference(
    b: int, heads: tuple[int, int], nq: int, nk: int, width: int, causal: bool, deterministic: bool
) -> None:
    arrays = given_arrays(np.random.default_rng(nq * 301 + nk), b, *heads, nq, nk, width, causal)
    want = ops.attention_backward(*arrays, causal=causal)
    have = ops.attention_backward(*arrays, causal=causal, deterministic=deterministic, on=TARGET)
    for x, y in zip(have, want, strict=True):
        x, y = x.astype(np.float32), y.astype(np.float32)
        np.testing.assert_allclose(x, y, rtol=0.02, atol=0.02 * max(1.0, float(np.abs(y).max())))


def _ran(old: str, new: str, *, turns: bool) -> None:
    rng = np.random.default_rng(3)
    q, k, v, o, lse, do = given_arrays(rng, 1, 2, 1, 260, 260, 64, False)
    delta, l2 = np.zeros((2, 1, 2, 260), np.float32)
    kernels.attention_delta(o, do, lse, delta, l2)
    dk, dv, dq = np.zeros_like(k), np.zeros_like(v), np.zeros(q.shape, np.float32)
    want = [np.zeros_like(k), np.zeros_like(v), np.zeros(q.shape, np.float32)]
    constants = {"scale": 0.125, "BM": 128, "BN": 128}
    KERNEL(q, k, v, do, l2, delta, *want, on="numpy", **constants)
    counters = [np.zeros((1, 2, 3), np.int32)] if turns else []
    bound, _ = KERNEL.bind((q, k, v, do, l2, delta, dk, dv, dq, *counters), {})
    constants |= {"left": None, "right": None}
    grid = evaluate_grid(KERNEL, bound, constants)
    made, source = planned(KERNEL.trace(bound, constants, len(grid)), machine("sm_90a"))
    assert made.roles is not None and made.roles.relays
    assert old in source.text, "the emitted text no longer has what this test changes"
    changed = replace(
        artifact(made.function, source, "cuda:sm_90a", b"", {}), source=source.text.replace(old, new)
    )
    rerun_simulated(changed, VENDOR, "sm_90a", bound, grid)
    for x, y in zip((dk, dv, dq), want, strict=True):
        x, y = x.astype(np.float32), y.astype(np.float32)
        np.testing.assert_allclose(x, y, atol=0.02 * float(np.abs(y).max()))


FAULTS = {
    "teams do not meet": ("kt_barrier_named(1, 256);", ""),
    "products see no plain writes": ("kt_fence_async();", ""),
    "sums are written before those before have been read": (
        "kt_bar_wait(sums_empty + do_tile_slot * 8, do_tile_phase ^ 1);",
        "",
    ),
    "sums are not handed over": ("if (lane == 0) kt_bar_arrive(sums_full + (do_tile_slot ^ 1) * 8);", ""),
    "sums are added before they are there": ("kt_bar_wait(sums_full + sums_slot * 8, sums_phase);", ""),
    "the buffer is handed back while it is read": ("kt_tile_wait_read<0>();", ""),
    "the late product reads the other slot": ("kt_desc((do_tile_slot ^ 1))", "kt_desc(do_tile_slot)"),
    "a slot of queries is handed back too early": (
        "kt_bar_arrive(q_empty + (q_slot ? q_slot - 1 : 2) * 8)",
        "kt_bar_arrive(q_empty + q_slot * 8)",
    ),
    "the pass that there is not is not copied": (
        "if (v_pass == passes) break;",
        "if (v_pass + 1 == passes) break;",
    ),
    "turns are not passed on": ("kt_turn_pass(turn_of, ", "if (0) kt_turn_pass(turn_of, "),
}


@SIM
@pytest.mark.parametrize("name", FAULTS)
def test_faults_in_the_text_are_found(name: str) -> None:
    with pytest.raises((SimulationFault, AssertionError, kt.KittensError)) as found:
        _ran(*FAULTS[name], turns="turns" in name)
    assert "no longer has" not in str(found.value)


@SIM
@pytest.mark.parametrize("turns", [False, True])
def test_the_text_without_a_fault_is_right(turns: bool) -> None:
    _ran("kt_bar_fence();", "kt_bar_fence();", turns=turns)
