"""Attention forward by plans with roles: teams in turn, sums that land early, row sums behind the loop, edges by pass."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kittens as kt
from kittens import kernels
from kittens.backends.cuda.machine import machine
from kittens.backends.cuda.sim import VENDOR
from kittens.codegen.emit.roles.edges import Edges
from kittens.codegen.partial import carried_sums
from kittens.codegen.pipeline import artifact, planned, rerun_simulated
from kittens.codegen.positions import Position
from kittens.conformance import Case, In, InOut, Out, examine
from kittens.dtypes import BY_NAME
from kittens.ir import Op, Region, TileType, Value
from kittens.runtime import evaluate_grid
from kittens.sim import SimulationFault
from kittens.targets import parse

SIM = pytest.mark.sim
KERNEL = kernels.attention_forward
TILES = {64: {"BM": 192, "BN": 128}, 128: {"BM": 128, "BN": 128}, 256: {"BM": 128, "BN": 64}}


def source(width: int, **constants: Any) -> str:
    q, rows = kt.spec(kt.bfloat16, (1, 4, 1024, width)), kt.spec(kt.float32, (1, 4, 1024))
    return str(KERNEL.source("cuda:sm_90a", q, q, q, q, rows, scale=0.1, **TILES[width], **constants))


def passes(text: str) -> str:
    """The text of the computing teams' passes but the first."""
    return text.split("for (int v_pass = 1;")[-1].split("\n        }\n")[0]


@pytest.mark.parametrize(("width", "teams"), [(64, 3), (128, 2), (256, 2)])
def test_a_pass_starts_its_products_in_turn_and_scales_before_it_exponentiates(
    width: int, teams: int
) -> None:
    text = source(width)
    body = passes(text)
    at = [
        body.index(x)
        for x in (
            "kt_bar_wait(k_full",
            "kt_barrier_named(team + 1, 256);",
            "kt_wgmma",
            f"kt_barrier_arrive(team == {teams} ? 2 : team + 2, 256);",
            "kt_any(",
            "kt_engine_wait<0>(acc)",
            "KT_EXP2_ALL(",
        )
    ]
    assert at == sorted(at)
    assert text.count("kt_barrier_named(") == 1 and text.count("kt_barrier_arrive(") == 2
    assert ("kt_bar_again" in body) == (teams == 2)  # three teams hide what one waits for
    assert bool(re.search(r"if \(grown_2\) \{[^}]*kt_exp2", body)) == (teams == 3)


def test_lanes_share_their_row_sums_behind_the_loop_alone() -> None:
    text = source(128)
    body = passes(text)
    sums = r"\+ kt_swap\("
    assert not re.search(sums, body)
    assert len(re.findall(sums, text.split("KT_LOC")[0] + text)) == 2


@pytest.mark.parametrize(("right", "left", "tests"), [(None, None, 1), (0, None, 1), (0, 200, 2)])
def test_a_pass_compares_its_number_with_the_pass_that_meets_an_edge(
    right: Any, left: Any, tests: int
) -> None:
    body = passes(source(128, right=right, left=left))
    assert len(re.findall(r"!\(v_pass (?:<|>=) edge", body)) == tests
    assert not re.search(r"if \(!\(kt_near", body)


def _loop(term: str) -> tuple[Op, dict[Value, list[Op]]]:
    """A loop that carries on l = l * a + x.sum(): of exponentials, or of what they may be."""

    @kt.kernel(grid=(1,))
    def k(x, out):
        l = kt.full((16,), 1.0 if term == "start" else 0.0, kt.float32)
        for j in kt.range(4):
            t = kt.load(x, (0, j), (16, 32))
            p = t if term == "signed" else kt.exp2(t)
            a = t.max(axis=1) if term == "factor" else kt.exp2(t.max(axis=1))
            total = p.sum(axis=1)
            l = l * a + (total if term != "twice" else total * total)
            if term == "read":
                kt.store(out, 0, l)
        kt.store(out, 0, l)

    function = k.ir(kt.spec(kt.float32, (16, 128)), kt.spec(kt.float32, (16,)))
    uses: dict[Value, list[Op]] = {}
    for op in function.body.walk():
        for v in op.operands:
            uses.setdefault(v, []).append(op)
    return next(op for op in function.body.walk() if op.name == "loop"), uses


@pytest.mark.parametrize("term", ["plain", "signed", "factor", "start", "twice", "read"])
def test_only_sums_of_numbers_that_are_not_negative_wait_for_the_end_of_a_loop(term: str) -> None:
    assert len(carried_sums(*_loop(term))) == (term == "plain")


def _turning(distance: int, growth: int) -> int:
    """kt_turning of kt_ops.h."""
    return min((distance - 1) // growth + 1 if distance > 0 else 0, 2**31 - 1)


numbers = st.integers(-(2**40), 2**40) | st.integers(-300, 300)


@given(
    start=numbers,
    times=st.integers(-200, 200).filter(bool),
    step=st.integers(1, 3),
    sign=st.sampled_from([1, -1]),
    symbol=st.sampled_from(["<", "<=", ">", ">="]),
    bound=st.integers(-255, 255),
    at=st.integers(0, 2**31 - 2) | st.integers(0, 9),
    near=st.integers(-3, 3),
)
def test_a_comparison_turns_at_the_pass_that_is_found_before_the_loop(
    start: int, times: int, step: int, sign: int, symbol: str, bound: int, at: int, near: int
) -> None:
    """sign * (start + times * step * pass) against a bound, in any pass and around the one where it turns."""
    number = TileType(kt.int64, ())
    index, first = Value(number, "j"), Value(number, "start")
    region = Region([index], [])
    loop = Op("loop", [], [], {}, [region], None)
    position = Position(((sign, first), (sign, index)))
    writer = SimpleNamespace(
        indent="    ",
        lines=[],
        owner={},
        fresh=lambda s: s,
        scalar=lambda v: v.name or "",
        line=lambda t: written.append(t),
    )
    written: list[str] = []
    edges = Edges(loop, index, step * times, "    ", 0)
    edges.test(writer, position, "", symbol, bound)  # type: ignore[arg-type]
    edges.number = "n"
    text = edges.test(writer, position, "", symbol, bound)  # type: ignore[arg-type]
    (line,) = written
    formula = line.split(" = ")[1].rstrip(";").replace("kt_i64", "")
    edge = eval(formula, {"kt_turning": _turning, "kt_uniform": int, "start": start, "j": 0})
    for n in (at, max(edge + near, 0)):
        if n < 2**31 - 1:
            value = sign * (start + times * step * n)
            assert eval(text, {"n": n, "edge": edge}) == eval(f"{value} {symbol} {bound}")


def _ran(old: str, new: str, width: int) -> None:
    """Run attention's text with a change in it, and hold the result against softmax(q k^T) v."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(1, 2, 400, width)).astype(ml_dtypes.bfloat16) for _ in range(3))
    o, lse = np.full_like(q, np.nan), np.full(q.shape[:3], np.nan, np.float32)
    arguments, given_ = KERNEL.bind((q, k, v, o, lse), {"scale": 0.1, "right": 0, **TILES[width]})
    constants = KERNEL.settle(parse("cuda:sm_90a"), arguments, given_)
    grid = evaluate_grid(KERNEL, arguments, constants)
    made, emitted = planned(KERNEL.trace(arguments, constants, len(grid)), machine("sm_90a"))
    assert made.roles is not None and made.roles.late
    assert old in emitted.text, "the emitted text no longer has what this test changes"
    changed = replace(
        artifact(made.function, emitted, "cuda:sm_90a", b"", {}), source=emitted.text.replace(old, new)
    )
    rerun_simulated(changed, VENDOR, "sm_90a", arguments, grid)
    s = np.where(
        np.tril(np.ones((400, 400), bool)),
        0.1 * q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3),
        -np.inf,
    )
    p = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(lse, np.log(p.sum(-1)) + s.max(-1), atol=1e-4)
    np.testing.assert_allclose(
        o.astype(np.float64), p / p.sum(-1, keepdims=True) @ v.astype(np.float64), atol=0.03
    )


FAULTS = {
    "no team passes its turn on": ("kt_barrier_arrive(team == {teams} ? 2 : team + 2, 256);", ""),
    "a turn is passed on to the same team": ("? 2 : team + 2", "? 2 : team + 1"),
    "row sums are not put together": ("= l[r] + kt_swap(l[r], 2u)", "= l[r] + l[r]"),
    "an edge is met a pass late": ("v_pass < edge", "v_pass <= edge"),
    "sums are scaled before they have landed": ("kt_engine_wait<0>(acc);\n", "\n"),
}


@SIM
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("name", FAULTS)
def test_faults_in_the_text_are_found(name: str, width: int) -> None:
    old, new = (x.replace("{teams}", str({64: 3, 128: 2}[width])) for x in FAULTS[name])
    with pytest.raises((SimulationFault, AssertionError, kt.KittensError)) as found:
        _ran(old, new, width)
    assert "no longer has" not in str(found.value)


@SIM
@pytest.mark.parametrize("width", [64, 128])
def test_the_text_without_a_fault_is_right(width: int) -> None:
    _ran("kt_bar_fence();", "kt_bar_fence();", width)


# ---- loops like attention's whose masks and factors are made of other things


def _attending(masked: Any, factor: Any, rows: int) -> Any:
    """A kernel with a mask that `masked(j, t, n)` bounds, and sums scaled by `factor(c, f, s, j, i)`."""

    @kt.kernel(grid=lambda q, o: (kt.cdiv(q.shape[0], rows),))
    def attending(q, k, v, o, f, t, n):
        i = kt.program_id()
        q_tile = kt.load(q, (i, 0), (rows, 64))
        acc = kt.zeros((rows, 64), kt.float32)
        for j in kt.range(n):
            s = q_tile @ kt.load(k, (j, 0), (64, 64)).T
            if masked is not None:
                s = kt.where(kt.cols(j, 64) >= masked(i, j, t, n), s, 0.0)
            if factor is not None:
                acc = acc * factor(kt.load(f[2], i, rows) > 0.5, f, s, i, j, q_tile, k)[:, None]
            acc += s.to(q.dtype) @ kt.load(v, (j, 0), (64, 64))
        kt.store(o, (i, 0), acc)

    return attending


def _judged(kernel: Any, rows: int) -> None:
    """Run on the simulated engine, and judge by the bounds that follow from the meaning."""
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=(n, 64)).astype(ml_dtypes.bfloat16) for n in (2 * rows, 320, 320))
    f = rng.uniform(size=(3, 2 * rows)).astype(np.float32)
    t = np.array([10, 77, 200, 20, 300], np.int64)
    plan = kernel.plan("cuda:sm_90a", q, k, v, np.zeros((2 * rows, 64), np.float32), f, t, 5)
    assert plan.roles is not None and plan.roles.late
    stored = plan.function.stored()

    def given() -> dict[str, Any]:
        more = {name: (InOut if name in stored else In)(x) for name, x in (("f", f), ("t", t))}
        o = Out(BY_NAME["float32"], (2 * rows, 64))
        return {"q": In(q), "k": In(k), "v": In(v), "o": o, **more, "n": 5}

    row = examine(Case("attending", kernel, given), parse("cuda:sm_90a@sim"))
    assert row.verdict == "passed" and row.judged >= 2 * rows * 64, row.message


def _in_branch(i: Any, j: Any, t: Any, n: Any) -> Any:
    bound = kt.scalar(0, kt.int64)
    for _ in kt.when(n > 3):
        bound = j * 100
    return bound


def _in_loop(i: Any, j: Any, t: Any, n: Any) -> Any:
    bound = kt.scalar(0, kt.int64)
    for _ in kt.range(3):
        bound = bound + j * 30
    return bound


def _stored(i: Any, j: Any, t: Any, n: Any) -> Any:
    bound = kt.load(t[i])
    kt.store(t[i], (), bound + 100)
    return bound


BOUNDS = {
    "a branch": _in_branch,
    "a loop": _in_loop,
    "memory that is written": _stored,
    "memory": lambda i, j, t, n: kt.load(t[j]),
    "a choice": lambda i, j, t, n: kt.where(j == 2, j + 150, j * 70),
    "a square": lambda i, j, t, n: j * j * 30,
    "a quotient": lambda i, j, t, n: j * 200 // 3,
    "what falls": lambda i, j, t, n: 200 - j * 30,
    "an outer scalar": lambda i, j, t, n: i * 40 + n,
}


@SIM
@pytest.mark.parametrize("bound", BOUNDS)
def test_edges_that_do_not_go_on_evenly_are_tested_where_they_stand(bound: str) -> None:
    """What a branch, a loop within a loop or a load gives may change from pass to pass, whatever its operands do."""
    _judged(_attending(BOUNDS[bound], None, 128), 128)


def _loaded(c: Any, f: Any, s: Any, i: Any, j: Any, q: Any, k: Any) -> Any:
    y = kt.load(f[1], i, 192)
    kt.store(f[1], i, kt.load(f[0], i, 192) * (j + 2).to(kt.float32))
    return kt.where(c, y, 1.0)


FACTORS = {
    "a load, before a store": _loaded,
    "a product": lambda c, f, s, i, j, q, k: kt.where(
        c, (q @ kt.load(k, (j + 1, 0), (64, 64)).T).max(axis=1) * 0.1, 1.0
    ),
    "a reduction": lambda c, f, s, i, j, q, k: kt.where(c, s.max(axis=1) * 0.1, 1.0),
    "what lies elsewhere": lambda c, f, s, i, j, q, k: kt.where(
        c, kt.exp2(kt.load(f[0], i, 192)[None, :].T.reshape(192)), 1.0
    ),
    "arithmetic": lambda c, f, s, i, j, q, k: kt.where(
        c, kt.exp2(kt.load(f[0], i, 192) * 0.5 - j.to(kt.float32)), 1.0
    ),
}


@SIM
@pytest.mark.parametrize("factor", FACTORS)
def test_factors_of_three_teams_may_need_anything(factor: str) -> None:
    """A group that need not multiply is spared what lanes compute by themselves, and nothing else."""
    _judged(_attending(None, FACTORS[factor], 192), 192)
