"""Masks over positions: compared in 32 bits, and decided for whole tiles by a test that never claims too much."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kittens as kt
from kittens import ops
from kittens.backends.cuda.machine import machine as cuda
from kittens.backends.hip.compile import available
from kittens.codegen.placement import place
from kittens.codegen.positions import compared, everywhere, held_by_groups
from kittens.examples import Example
from kittens.ir import Value
from kittens.kernels import attention_forward
from kittens.layouts import tiled
from kittens.opset import Call, evaluate

COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
ROWS, COLS = 8, 16
#: Four groups of lanes: each with two rows, or with four columns.
LAYOUTS = [
    tiled.blocked((ROWS, COLS), vector=4, lanes=8, groups=4),
    tiled.transpose(tiled.blocked((COLS, ROWS), vector=4, lanes=8, groups=4)),
]


def mask(symbol: str, more: int, both: bool):
    """The condition of a `where` over 8 x 16 elements at blocks i, j: columns + shift against rows + more."""

    @kt.kernel
    def masked(x, y, i, j, shift):
        tile = kt.load(x, (0, 0), (ROWS, COLS))
        rows, cols = kt.rows(i, ROWS) + more, kt.cols(j, COLS) + shift
        seen = COMPARED[symbol](cols, rows)
        if both:
            seen = seen & (cols - rows >= 3 - shift)
        kt.store(y, (0, 0), kt.where(seen, tile, 0.0))

    x = kt.spec("float32", (ROWS, COLS))
    function = masked.ir(x, x, 1, 1, 1)
    where = next(op for op in function.body.walk() if op.name == "where")
    return function, where.operands[0]


def number(value: Value, given: dict[str, int]) -> int:
    """A scalar's value, by the reference."""
    op = value.producer
    if op is None:
        return given[value.name]
    operands = [np.array(number(x, given)) for x in op.operands]
    call = Call(tuple(x.type for x in op.operands), op.attrs, (value.type,))
    return int(evaluate(op.name, call, *operands)[0])


def near(x: int) -> int:
    return max(-(1 << 24), min(x, 1 << 24))


def evaluated(text: str, **names: int) -> bool:
    plain = text.replace("&&", " and ").replace("!", " not ").replace(" not =", "!=").replace("true", "True")
    return bool(eval(plain, {"kt_near": near, "kt_i64": int, "kt_i32": int, **names}))


big = st.one_of(st.integers(-40, 40), st.integers(-(2**40), 2**40))


@given(
    symbol=st.sampled_from(sorted(COMPARED)), more=st.integers(-30, 30), both=st.booleans(), i=st.integers(-9, 9),
    j=st.integers(-9, 9), shift=big, far=big,
)  # fmt: skip
def test_what_is_decided_for_a_tile_holds_for_each_element(symbol, more, both, i, j, shift, far) -> None:
    function, condition = mask(symbol, more, both)
    implicit = place(function, cuda("sm_80")).implicit
    given = {"i": i + far, "j": j + far // 2, "shift": shift}

    def scalar(value: Value) -> str:
        return str(number(value, given))

    cols = (given["j"] * COLS + shift) + np.arange(COLS)[None, :]
    rows = (given["i"] * ROWS + more) + np.arange(ROWS)[:, None]
    want = COMPARED[symbol](cols, rows)
    if both:
        want = want & (cols - rows >= 3 - shift)
    test = everywhere(condition, implicit, scalar)
    if symbol in ("==", "!="):
        assert test is None
    elif evaluated(test):
        assert want.all()
    elif not both:
        assert not want.all(), "a single comparison is decided exactly"
    for layout in LAYOUTS:
        held = held_by_groups(layout, (ROWS, COLS), lambda values, index: f"{list(values)}[{index}]")
        test = everywhere(condition, implicit, scalar, held)
        for group in range(layout.groups if test is not None else 0):
            mine = tiled.elements(layout)[group].reshape(-1)
            if evaluated(test, group=group):
                assert want.reshape(-1)[mine].all(), (test, group)
            elif not both:
                assert not want.reshape(-1)[mine].all(), "decided exactly for what a group holds"
    op = condition.producer
    while op.name in ("broadcast", "bitand"):
        op = op.operands[0].producer
    if not both:
        for r, c in ((0, 0), (ROWS - 1, 0), (0, COLS - 1), (3, 7)):
            text = compared(op, ["row", "col"], implicit, scalar)
            assert evaluated(text, row=r, col=c) == want[r, c], text


def test_attention_masks_no_block_that_no_diagonal_crosses() -> None:
    example = Example.of(attention_forward)
    text = attention_forward.source("cuda:sm_80", *example.args, **example.constants)
    (line,) = [x for x in text.splitlines() if "? s[r] :" in x]
    assert line.strip().startswith("if (!(kt_near(") and "s[r] = (" in line, "in place, behind a scalar test"


def test_a_tile_that_is_read_elsewhere_is_not_changed_in_place() -> None:
    @kt.kernel
    def twice(x, y, z, n):
        tile = kt.load(x, (0, 0), (32, 32)) * 2.0
        kt.store(y, (0, 0), kt.where(kt.cols(0, 32) < n, tile, 0.0))
        kt.store(z, (0, 0), tile)

    x = kt.spec("float32", (32, 32))
    text = twice.source("cuda:sm_80", x, x, x, 5)
    (line,) = [line for line in text.splitlines() if "if (!(kt_near(" in line]
    assert line.split("] = ")[0].split()[-1] != line.split("? ")[1].split(" :")[0]


@pytest.mark.sim
@pytest.mark.skipif(bool(available()), reason=available() or "clang is there")
@pytest.mark.parametrize("target", ["cuda:sm_80@sim", "hip:gfx950@sim", "hip:gfx1201@sim", "metal@sim"])
@pytest.mark.parametrize(("left", "right"), [(None, 0), (33, 0), (20, 7), (None, None)])
def test_masked_attention_is_that_of_the_reference(target, left, right) -> None:
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((1, 2, n, 32)).astype(np.float32) for n in (70, 150, 150))
    more = {"window": (left, right)}
    want = ops.attention(q, k, v, on="numpy", **more)
    np.testing.assert_allclose(ops.attention(q, k, v, on=target, **more), want, atol=2e-5)


@pytest.mark.sim
@pytest.mark.skipif(bool(available()), reason=available() or "clang is there")
@pytest.mark.parametrize("target", ["hip:gfx950@sim", "hip:gfx942@sim", "metal@sim"])
def test_powers_of_whole_tiles_keep_subnormal_results(target) -> None:
    @kt.kernel
    def power(x, y):
        kt.store(y, (0, 0), kt.exp2(kt.load(x, (0, 0), (64, 64))))

    x = np.linspace(-160, 20, 4096, dtype=np.float32).reshape(64, 64)
    x[0, :4] = [-np.inf, np.nan, -126, -126.00001]
    y = np.zeros_like(x)
    power(x, y, on=target)
    want = np.exp2(x.astype(np.float64))
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(y - want) <= 2 * np.spacing(np.abs(want.astype(np.float32)))) & ~np.isnan(want)
    assert np.isnan(y[0, 1]) and y[0, 0] == 0
    assert not wrong[want >= 2.0**-126].any() and (target.startswith("metal") or not wrong.any())
