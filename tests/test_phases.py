"""Loops of two teams a phase apart: planned where they fit, right in the simulator, and planted bugs are found there."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from kittens.arguments import spec
from kittens.artifact import Artifact
from kittens.backends.hip.machine import machine
from kittens.codegen import make_plan
from kittens.codegen.pipeline import artifact, planned
from kittens.codegen.schedule import faults
from kittens.examples import library
from kittens.sim import SimulationFault

RNG = np.random.default_rng(0)
TILES = {"BM": 256, "BN": 256, "BK": 32}
MATMUL = library("matmul")


def bf16(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(ml_dtypes.bfloat16)


def shapes(m: int, n: int, k: int, dtype: str = "bfloat16") -> list:
    return [spec(dtype, (m, k)), spec(dtype, (k, n)), spec("float32", (m, n))]


def test_the_plan_says_it() -> None:
    plan = MATMUL.plan("hip:gfx950", *shapes(4096, 4096, 4096), **TILES)
    (schedule,) = plan.schedules.values()
    assert faults(schedule) == []
    assert (schedule.teams, schedule.depth, schedule.left) == (2, 4, 8)
    text = str(plan)
    assert "2 teams of 4 groups run 2 phases a pass, team 1 1 phase behind" in text
    assert "phase 0: reads a, reads y, starts a 3 passes ahead, starts y 3 passes ahead; at most 8" in text
    assert "phase 1 at priority 1: multiplies a and y; tie" in text


@pytest.mark.parametrize(
    ("target", "tiles", "k"),
    [
        ("hip:gfx950", {"BM": 128, "BN": 128, "BK": 32}, 4096),  # four groups: one for each SIMD
        ("hip:gfx950", {"BM": 256, "BN": 256, "BK": 64}, 4096),  # two slots: nothing can be under way
        ("hip:gfx950", TILES, 4095),  # rows that cannot be copied in the background
        ("hip:gfx942", TILES, 4096),
    ],
)
def test_other_loops_run_in_step(target: str, tiles: dict[str, int], k: int) -> None:
    assert not MATMUL.plan(target, *shapes(256, 256, k), **tiles).schedules


def test_a_machine_can_do_without() -> None:
    a, b, c = shapes(256, 256, 256)
    function = MATMUL.ir(a, b, c, **TILES)
    assert make_plan(function, machine("gfx950")).schedules
    assert not make_plan(function, replace(machine("gfx950"), paired=0)).schedules


@pytest.mark.sim
@pytest.mark.parametrize(
    ("m", "n", "k"), [(256, 256, 256), (304, 272, 136), (256, 512, 32), (40, 24, 168), (256, 256, 0)]
)
@pytest.mark.parametrize("order", ["nn", "nt", "tt"])
def test_simulated_in_both_orders(m: int, n: int, k: int, order: str) -> None:
    a = bf16(m, k) if order[0] == "n" else bf16(k, m).T
    b = bf16(k, n) if order[1] == "n" else bf16(n, k).T
    c = np.full((m, n), np.nan, np.float32)
    assert k == 0 or MATMUL.plan("hip:gfx950", a, b, c, **TILES).schedules
    MATMUL(a, b, c, on="hip:gfx950@sim", **TILES)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


# ---- planted bugs


def run(change: tuple[str, str] | None) -> None:
    """Simulate a product with a change of its text: a pair of texts of which the second stands for the first."""
    a, b, c = bf16(256, 256), bf16(256, 256), np.zeros((256, 256), np.float32)
    function = MATMUL.ir(a, b, c, **TILES)
    text = planned(function, machine("gfx950"))[1]
    made: Artifact = artifact(function, text, "hip:gfx950", b"", {})
    if change is not None:
        assert made.source.count(change[0]), change
        made = replace(made, source=made.source.replace(*change))
    made(a, b, c, grid=(1, 1, 1), on="hip:gfx950@sim")
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


BEFORE, AFTER = "if (group / 4 == 1) kt_tie();", "if (group / 4 == 0) kt_tie();"
PHASE = "kt_tie();\n      // phase 1"


BUGS = {
    "a looser wait": (
        "kt_wait_loads<8>();\n      kt_wait_shared",
        "kt_wait_loads<9>();\n      kt_wait_shared",
    ),
    "a looser first wait": ("kt_wait_loads<8>();\n  kt_tie", "kt_wait_loads<9>();\n  kt_tie"),
    "no last tie": (AFTER, ""),
    "no first tie": (BEFORE, ""),
    "a tie too many": (AFTER, AFTER + AFTER),
    "phases joined": (PHASE, "// phase 1"),
    "a slot too few": ("slot == 0 ? 3 : slot - 1", "slot"),
}


@pytest.mark.sim
@pytest.mark.parametrize("change", BUGS.values(), ids=BUGS)
def test_planted_bugs_are_found(change: tuple[str, str]) -> None:
    with pytest.raises(SimulationFault):
        run(change)


@pytest.mark.sim
def test_without_a_bug_nothing_is_found() -> None:
    run(None)
