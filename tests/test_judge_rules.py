"""The error rules are sound (no honest implementation is refused) and not slack (bounds stay near what is
observed).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from cut_products import cut_product
from hypothesis import given, settings
from hypothesis import strategies as st

from kittens import opset
from kittens.conformance import Case, all_cases, select
from kittens.conformance.examine import prepare
from kittens.conformance.judge import RULES, SIGN, Bounded, Rules, exactly, judge, judge_ir
from kittens.conformance.judge.formats import decode, nearest
from kittens.conformance.verdict import compare
from kittens.dtypes import BY_NAME, DType
from kittens.ir import TileType
from kittens.opset import OPS, Call
from kittens.opset.elementwise import MATHEMATICAL
from kittens.targets import Numerics, parse

few = settings(deadline=None, max_examples=25)

F16, BF16, F32, F64 = (BY_NAME[n] for n in ("float16", "bfloat16", "float32", "float64"))
NUMERICS = Numerics(dict.fromkeys(MATHEMATICAL, 1.0))
RULE = Rules(NUMERICS)

#: Operations on memory, control and the grid: `kittens.conformance.judge.oracle` and `kittens.eager` see to
#: them.
WITHOUT_RULE = {
    "load", "store", "store_add", "index", "slice", "permute", "dim", "program_id", "num_programs",
    "loop", "when", "yield", "print", "assert",
}  # fmt: skip


def test_every_operation_has_a_rule() -> None:
    assert set(OPS) == set(RULES) | WITHOUT_RULE
    assert not set(RULES) & WITHOUT_RULE


def test_every_operation_with_a_rule_occurs_in_a_case() -> None:
    """The suite exercises all of the language."""
    used: set[str] = set()
    for pattern in (
        "*/special*",
        "control/*",
        "tiles/*/*",
        "memory/padded/float32/*",
        "conversions/*",
        "products/scaled/*",
        "products/float16/*",
    ):
        for case in select(all_cases().values(), pattern)[::3]:
            used |= operations(case)
        if set(RULES) <= used:
            break
    assert set(RULES) <= used, set(RULES) - used


def operations(case: Case) -> set[str]:
    ready = prepare(case, parse("numpy"))
    function = case.kernel.trace(ready.described, ready.constants, len(ready.grid))
    return {op.name for op in function.body.walk()}


def call(name: str, *types: TileType, **attrs: Any) -> Call:
    return opset.infer(name, types, attrs)


def evaluate(name: str, *xs: Bounded, rules: Rules = RULE, **attrs: Any) -> Bounded:
    types = [TileType(x.dtype, x.v.shape) for x in xs]
    return RULES[name](rules, call(name, *types, **attrs), *xs)  # type: ignore[no-any-return]


def within(x: Bounded, got: np.ndarray) -> bool:
    return not compare("x", x, got, np.ones(got.shape, bool)).message


finite = st.floats(-1e4, 1e4, width=32)
#: Errors of every relative size, none included.
errors = st.one_of(st.just(0.0), st.floats(2.0**-40, 2.0**-2))
UNIT = st.floats(-1, 1)


@st.composite
def uncertain(
    draw: st.DrawFn, dtype: DType = F32, n: int = 6, positive: bool = False
) -> tuple[Bounded, np.ndarray]:
    """Bounded elements, and what an implementation might hold in their place."""
    values = np.array(draw(st.lists(finite, min_size=n, max_size=n)))
    values = np.abs(values) + 1e-3 if positive else values
    v = nearest(dtype, values)
    relative = np.array(draw(st.lists(errors, min_size=n, max_size=n)))
    e = np.abs(v) * relative
    unit = np.array(draw(st.lists(UNIT, min_size=n, max_size=n)))
    moved = nearest(dtype, v + unit * e)
    held = np.where((e > 0) & (np.abs(moved - v) <= e), moved, v)
    return Bounded(dtype, v, e), held


ELEMENTWISE = ["add", "sub", "mul", "div", "maximum", "minimum"]
DTYPES = [F16, BF16, F32, F64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ELEMENTWISE)
@few
@given(data=st.data())
def test_arithmetic_on_perturbed_operands_stays_within_bounds(
    name: str, dtype: DType, data: st.DataObject
) -> None:
    (a, x), (b, y) = data.draw(uncertain(dtype)), data.draw(uncertain(dtype))
    reference = opset.evaluate(
        name,
        call(name, TileType(dtype, (6,)), TileType(dtype, (6,))),
        x.astype(dtype.numpy),
        y.astype(dtype.numpy),
    )
    assert within(evaluate(name, a, b), decode(reference[0], dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(data=st.data())
def test_fma_on_perturbed_operands(dtype: DType, data: st.DataObject) -> None:
    drawn = [data.draw(uncertain(dtype)) for _ in range(3)]
    t = TileType(dtype, (6,))
    reference = opset.evaluate("fma", call("fma", t, t, t), *(x.astype(dtype.numpy) for _, x in drawn))
    assert within(evaluate("fma", *(b for b, _ in drawn)), decode(reference[0], dtype))


@pytest.mark.parametrize(
    "name", ["neg", "abs", "floor", "ceil", "trunc", "round", "reciprocal", "sqrt", *MATHEMATICAL]
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(data=st.data())
def test_functions_of_perturbed_operands(name: str, dtype: DType, data: st.DataObject) -> None:
    a, x = data.draw(uncertain(dtype, positive=name in ("sqrt", "log", "log2", "rsqrt", "reciprocal")))
    reference = opset.evaluate(name, call(name, TileType(dtype, (6,))), x.astype(dtype.numpy))
    assert within(evaluate(name, a), decode(reference[0], dtype))


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
@few
@given(data=st.data())
def test_comparisons_are_certain_only_where_they_are(name: str, data: st.DataObject) -> None:
    (a, x), (b, y) = data.draw(uncertain()), data.draw(uncertain())
    t = TileType(F32, (6,))
    got = opset.evaluate(name, call(name, t, t), x.astype(np.float32), y.astype(np.float32))[0]
    result = evaluate(name, a, b)
    assert ((got == result.v) | (result.e > 0)).all()


@few
@given(data=st.data(), flags=st.lists(st.booleans(), min_size=12, max_size=12))
def test_where_covers_both_branches_of_an_uncertain_condition(data: st.DataObject, flags: list[bool]) -> None:
    (a, x), (b, y) = data.draw(uncertain()), data.draw(uncertain())
    value, open_ = np.array(flags[:6]), np.array(flags[6:])
    c = Bounded(BY_NAME["bool"], value, open_.astype(float))
    result = evaluate("where", c, a, b)
    for chosen in (value, value ^ open_):
        assert within(result, np.where(chosen, x, y))


@pytest.mark.parametrize("to", [d for d in BY_NAME.values() if d.kind in "fi"], ids=str)
@few
@given(data=st.data())
def test_conversions_of_perturbed_operands(to: DType, data: st.DataObject) -> None:
    from kittens.dtypes import convert

    source = F64 if to == F32 else F32
    a, x = data.draw(uncertain(source))
    got = convert(x.astype(source.numpy), to)
    assert within(evaluate("cast", a, dtype=to.name), decode(got, to))


# Sums and products, in every order.


def sum_in_some_order(rng: np.random.Generator, x: np.ndarray) -> np.float32:
    """float32 sum over a random binary tree."""
    terms = [np.float32(t) for t in x]
    while len(terms) > 1:
        i, j = rng.choice(len(terms), 2, replace=False)
        total = terms[i] + terms[j]
        terms = [t for k, t in enumerate(terms) if k not in (i, j)] + [total]
    return terms[0]


@few
@given(seed=st.integers(0, 2**32), n=st.integers(1, 40), spread=st.floats(0, 12))
def test_sums_in_any_order_stay_within_bounds(seed: int, n: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(n) * 2.0 ** rng.uniform(-spread, spread, n)).astype(np.float32)
    e = np.abs(x.astype(float)) * rng.choice([0, 2.0**-20], n)
    moved = (x + e * rng.uniform(-1, 1, n)).astype(np.float32)
    held = np.where((e > 0) & (np.abs(moved.astype(float) - x) <= e), moved, x)
    result = evaluate("sum", Bounded(F32, x.astype(np.float64), e), axis=-1)
    assert within(result, np.float64(sum_in_some_order(rng, held)).reshape(()))
    running = evaluate("cumsum", Bounded(F32, x.astype(np.float64), e), axis=-1)
    got = np.array([sum_in_some_order(rng, held[: i + 1]) for i in range(n)], np.float64)
    assert within(running, got)


@few
@given(
    seed=st.integers(0, 2**32),
    k=st.integers(1, 24),
    dtype=st.sampled_from([F16, BF16, F32]),
    accumulate=st.booleans(),
)
def test_products_in_any_order_stay_within_bounds(seed: int, k: int, dtype: DType, accumulate: bool) -> None:
    rng = np.random.default_rng(seed)
    a, b = (nearest(dtype, rng.standard_normal(s) * 4) for s in ((2, k), (k, 3)))
    c = nearest(F32, rng.standard_normal((2, 3))) if accumulate else None
    operands = [exactly(dtype, a), exactly(dtype, b)] + ([exactly(F32, c)] if c is not None else [])
    result = evaluate("mma", *operands)
    got = np.empty((2, 3))
    for i in range(2):
        for j in range(3):
            terms = (a[i].astype(np.float32) * b[:, j].astype(np.float32)).astype(np.float32)
            got[i, j] = sum_in_some_order(rng, terms if c is None else np.append(terms, c[i, j]))
    assert within(result, got)


@few
@given(
    seed=st.integers(0, 2**32),
    k=st.integers(1, 100),
    names=st.tuples(*[st.sampled_from(["float8_e4m3fn", "float8_e5m2"])] * 2),
    scales=st.tuples(*[st.sampled_from([2.0**-16, 2.0**-6, 1.0, 64.0])] * 2),
    group=st.sampled_from([16, 32]),
    accumulate=st.booleans(),
    positive=st.booleans(),
)
def test_fast_products_as_hardware_cuts_them_stay_within_bounds(
    seed: int,
    k: int,
    names: tuple[str, str],
    scales: tuple[float, float],
    group: int,
    accumulate: bool,
    positive: bool,
) -> None:
    rng = np.random.default_rng(seed)
    dtypes = BY_NAME[names[0]], BY_NAME[names[1]]
    a, b = (
        nearest(d, rng.standard_normal(s) * np.exp2(rng.integers(-6, 4, s)) * scale)
        for d, s, scale in zip(dtypes, ((2, k), (k, 3)), scales, strict=True)
    )
    a, b = (np.clip(np.abs(x) if positive else x, -d.max, d.max) for x, d in zip((a, b), dtypes, strict=True))
    c = nearest(F32, rng.standard_normal((2, 3)) * np.exp2(rng.integers(-40, 20))) if accumulate else None
    operands = [exactly(d, x) for d, x in zip(dtypes, (a, b), strict=True)]
    result = evaluate("mma", *operands, *([] if c is None else [exactly(F32, c)]), accumulate="fast")
    assert within(result, cut_product(a, b, c, dtypes, bits=13, group=group))


@few
@given(seed=st.integers(0, 2**32))
def test_uncertain_operands_of_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (nearest(F32, rng.standard_normal(s)) for s in ((3, 8), (8, 3)))
    ea, eb = (np.abs(x) * rng.choice([0, 2.0**-12], x.shape) for x in (a, b))
    x, y = (
        np.trunc(v) + (v - np.trunc(v)) + e * rng.choice([-1, 1], e.shape) * 0.999
        for v, e in ((a, ea), (b, eb))
    )
    assert within(
        evaluate("mma", Bounded(F32, a, ea), Bounded(F32, b, eb)),
        (x @ y).astype(np.float32).astype(np.float64),
    )


@few
@given(data=st.data())
def test_argmax_allows_only_what_errors_can_reorder(data: st.DataObject) -> None:
    a, x = data.draw(uncertain(n=9))
    result = evaluate("argmax", a, axis=-1)
    assert abs(int(np.argmax(x)) - int(result.v)) <= result.e
    assert evaluate("argmax", exactly(F32, a.v), axis=-1).e == 0


@pytest.mark.parametrize("name", ["max", "min"])
@few
@given(data=st.data())
def test_extremes_of_perturbed_operands(name: str, data: st.DataObject) -> None:
    a, x = data.draw(uncertain(n=9))
    got = np.float64(x.max() if name == "max" else x.min()).reshape(())
    assert within(evaluate(name, a, axis=-1), got)


# What must be exact is.


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_known_operands_give_known_results(name: str, dtype: DType) -> None:
    rng = np.random.default_rng(1)
    a, b = (exactly(dtype, nearest(dtype, rng.standard_normal(100))) for _ in range(2))
    assert evaluate(name, a, b).exact


def test_a_sum_of_one_term_is_exact_and_zeros_have_no_sign() -> None:
    one = evaluate("sum", exactly(F32, np.array([[0.1, 0.0], [0.0, 0.0]])), axis=-1)
    assert one.e[0] == 0 and one.e[1] == SIGN


def test_an_underflow_of_uncertain_numbers_is_allowed_its_subnormal() -> None:
    x = Bounded(F32, np.array([2.0**-100]), np.array([2.0**-120]))
    assert evaluate("mul", x, x).e[0] >= F32.smallest / 2


def test_overflow_within_the_bound_allows_both() -> None:
    edge = Bounded(F32, np.array([F32.max * (1 - 2.0**-24)]), np.array([F32.max * 2.0**-20]))
    for got in (np.inf, F32.max):
        assert within(edge, np.array([got]))
    assert not within(edge, np.array([-np.inf])) and not within(edge, np.array([np.nan]))


def test_a_sum_that_may_overflow_on_the_way_cannot_be_judged() -> None:
    result = evaluate("sum", exactly(F32, np.array([3e38, 3e38, -3e38])), axis=-1)
    assert np.isinf(result.e)


@pytest.mark.parametrize("got", [np.nan, np.inf, 1.5])
def test_infinities_and_nan_must_be_where_they_belong(got: float) -> None:
    assert within(exactly(F32, np.array([got])), np.array([got]))
    assert not within(exactly(F32, np.array([got])), np.array([-got if got == got else 0.0]))
    assert not within(Bounded(F32, np.array([1.0]), np.array([0.1])), np.array([np.nan]))


def test_flushing_targets_are_allowed_zeros_for_subnormals() -> None:
    small = exactly(F32, np.array([2.0**-130]))
    one = exactly(F32, np.array([1.0]))
    assert not within(evaluate("mul", small, one), np.array([0.0]))
    assert within(
        evaluate("mul", small, one, rules=Rules(Numerics(NUMERICS.ulp, flushes=True))), np.array([0.0])
    )


def test_the_figure_of_the_target_counts() -> None:
    x = exactly(F32, np.array([0.7]))
    tight, loose = (
        evaluate("exp", x, rules=Rules(dataclasses.replace(NUMERICS, ulp={**NUMERICS.ulp, "exp": u}))).e[0]
        for u in (1.0, 3.0)
    )
    assert loose == pytest.approx(3 * tight, rel=1e-5)
    assert tight == pytest.approx(2.0**-22, rel=1e-5)


# Bounds near what is observed: a bound a thousand times too wide would hide mistakes.


@pytest.mark.parametrize(
    ("name", "slack"), [("add", 4), ("mul", 4), ("div", 4), ("exp", 8), ("log", 8), ("tanh", 8), ("rsqrt", 8)]
)
def test_bounds_are_tight_for_uncertain_operands(name: str, slack: float) -> None:
    rng = np.random.default_rng(7)
    v = nearest(F32, rng.uniform(0.5, 2.0, 4000))
    e = v * 2.0**-16
    x, y = (nearest(F32, v + rng.uniform(-0.99, 0.99, v.shape) * e) for _ in range(2))
    operands, held = [Bounded(F32, v, e)], [x]
    if name in ELEMENTWISE:
        operands, held = operands * 2, [x, y]
    t = TileType(F32, v.shape)
    got = opset.evaluate(name, call(name, *[t] * len(held)), *(y.astype(np.float32) for y in held))[0]
    result = evaluate(name, *operands)
    observed = np.abs(got.astype(float) - result.v)
    ratio = (observed / result.e).max()
    assert 1 / slack < ratio <= 1


@pytest.mark.parametrize("n", [4, 32, 256])
def test_bounds_of_sums_are_within_a_small_factor_of_n(n: int) -> None:
    """gamma_n is a worst case: of random rounding errors about sqrt(n) of n come to pass."""
    rng = np.random.default_rng(n)
    x = nearest(F32, rng.uniform(0, 1, (2000, n)))
    result = evaluate("sum", exactly(F32, x), axis=-1)
    got = np.zeros(2000, np.float32)
    for i in range(n):
        got = got + x[:, i].astype(np.float32)
    worst = (np.abs(got.astype(float) - result.v) / result.e).max()
    assert (1 / 50 if n < 100 else 1 / 500) < worst <= 1


# The traced IR is judged like the text.


TRACED = [
    "control/online_softmax_terms/13x50",
    "products/float16/tn/45x37x51",
    "library/attention_forward/float16/1x2x1x100x100",
]


@pytest.mark.parametrize("pattern", [*TRACED, "library/rms_norm/float32/5x100"])
def test_the_traced_kernel_has_the_same_value_and_bound(pattern: str) -> None:
    case = select(all_cases().values(), pattern)[0]
    ready, found = prepare(case, parse("numpy")), []
    for way in ("text", "ir"):
        tensors = ready.memory()
        if way == "text":
            judge(case.kernel, tensors, ready.described, ready.constants, ready.grid, RULE)
        else:
            function = case.kernel.trace(ready.described, ready.constants, len(ready.grid))
            judge_ir(function, tensors, ready.described, ready.grid, RULE)
        found.append(tensors)
    for name in found[0]:
        np.testing.assert_array_equal(found[0][name].v, found[1][name].v)
        np.testing.assert_array_equal(found[0][name].e, found[1][name].e)
        np.testing.assert_array_equal(found[0][name].written, found[1][name].written)
