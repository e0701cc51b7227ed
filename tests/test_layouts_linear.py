"""Maps over bits: the laws of the algebra, and the notation of fragments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kittens.layouts import Linear, compose, fragment, identity, invert, kernel, linear, quotient, spell


def axes(names: str, *, least: int = 0, most: int = 3) -> st.SearchStrategy[linear.Axes]:
    return st.tuples(*(st.tuples(st.just(n), st.integers(least, most)) for n in names))


@st.composite
def maps(draw: st.DrawFn, inputs: linear.Axes | None = None, outputs: linear.Axes | None = None) -> Linear:
    inputs = draw(axes("ab")) if inputs is None else inputs
    outputs = draw(axes("xy")) if outputs is None else outputs
    column = st.integers(0, (1 << linear.width(outputs)) - 1)
    n = linear.width(inputs)
    return Linear(inputs, outputs, tuple(draw(st.lists(column, min_size=n, max_size=n))))


@st.composite
def bijections(draw: st.DrawFn) -> Linear:
    """An invertible map: the identity after random additions of one bit to another."""
    space = draw(axes("ab"))
    n = linear.width(space)
    columns = draw(st.permutations([1 << i for i in range(n)]))
    for i, j in (
        draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=8)) if n else ()
    ):
        if i != j:
            columns[i] ^= columns[j]
    return Linear(space, (("x", n),), tuple(columns))


@given(maps(), st.data())
def test_a_map_is_linear(f: Linear, data: st.DataObject) -> None:
    packed = st.integers(0, (1 << linear.width(f.inputs)) - 1)
    x, y = data.draw(packed), data.draw(packed)
    assert f.packed(x ^ y) == f.packed(x) ^ f.packed(y)
    assert f.packed(0) == 0
    assert f.packed(np.array([x, y])).tolist() == [f.packed(x), f.packed(y)]


@given(maps())
def test_pack_and_call_agree(f: Linear) -> None:
    for x in range(1 << linear.width(f.inputs)):
        named = dict(zip("ab", linear.unpack(f.inputs, x), strict=True))
        assert linear.pack(f.inputs, named) == x
        assert linear.pack(f.outputs, dict(zip("xy", f(**named), strict=True))) == f.packed(x)


@given(st.data())
def test_compose_is_one_after_the_other(data: st.DataObject) -> None:
    inner = data.draw(maps())
    outer = data.draw(maps(inputs=inner.outputs, outputs=(("z", 4),)))
    both = compose(outer, inner)
    for x in range(1 << linear.width(inner.inputs)):
        assert both.packed(x) == outer.packed(inner.packed(x))
    assert compose(inner, identity(inner.inputs)) == inner == compose(identity(inner.outputs), inner)


def test_compose_refuses_different_axes() -> None:
    with pytest.raises(ValueError, match="cannot feed"):
        compose(identity((("a", 2),)), identity((("a", 3),)))


@given(bijections())
def test_inverse_of_a_bijection(f: Linear) -> None:
    assert linear.is_injective(f) and linear.is_surjective(f)
    assert compose(f, invert(f)) == identity(f.outputs)
    assert compose(invert(f), f) == identity(f.inputs)
    assert invert(invert(f)) == f


@given(maps())
def test_inverse_takes_the_smallest_of_copies(f: Linear) -> None:
    if not linear.is_surjective(f):
        with pytest.raises(ValueError, match="not invertible"):
            invert(f)
        return
    back = invert(f)
    for y in range(1 << linear.width(f.outputs)):
        assert back.packed(y) == min(x for x in range(1 << linear.width(f.inputs)) if f.packed(x) == y)


@given(maps())
def test_kernel_is_what_maps_to_zero(f: Linear) -> None:
    spanned = {0}
    for vector in kernel(f):
        spanned |= {x ^ vector for x in spanned}
    assert spanned == {x for x in range(1 << linear.width(f.inputs)) if f.packed(x) == 0}
    assert len(kernel(f)) + linear.rank(f) == linear.width(f.inputs)


@given(st.lists(st.integers(0, 255), max_size=6), st.integers(0, 255))
def test_reduce_by_gives_the_smallest_of_a_coset(vectors: list[int], x: int) -> None:
    coset = {x}
    for vector in vectors:
        coset |= {y ^ vector for y in coset}
    assert linear.reduce_by(linear.echelon(vectors), x) == min(coset)


@given(maps(), maps())
def test_quotient_undoes_product(low: Linear, high: Linear) -> None:
    assert quotient(linear.product(low, high), low) == high


@given(maps(), maps())
def test_product_stands_side_by_side(low: Linear, high: Linear) -> None:
    both = linear.product(low, high)
    a0, b0 = (n for _, n in low.inputs)
    x0, y0 = (n for _, n in low.outputs)
    for a in range(1 << linear.span(both.inputs, "a")[1]):
        for b in range(1 << linear.span(both.inputs, "b")[1]):
            xl, yl = low(a=a % (1 << a0), b=b % (1 << b0))
            xh, yh = high(a=a >> a0, b=b >> b0)
            assert both(a=a, b=b) == (xl | xh << x0, yl | yh << y0)


def test_quotient_refuses_what_does_not_divide() -> None:
    with pytest.raises(ValueError, match="does not divide"):
        quotient(fragment("r0 c0", "c1 r1"), fragment("c0", ""))
    with pytest.raises(ValueError, match="larger than"):
        quotient(fragment("c0", "r0"), fragment("c0 c1", ""))


@given(maps())
def test_project_keeps_named_axes(f: Linear) -> None:
    for x in range(1 << linear.width(f.inputs)):
        a, b = linear.unpack(f.inputs, x)
        assert linear.project(f, ["y", "x"])(a=a, b=b) == f(a=a, b=b)[::-1]


@given(maps())
def test_repr_round_trips(f: Linear) -> None:
    assert eval(repr(f)) == f


def test_fragment_notation() -> None:
    f = fragment("c0 r1", "r0^c1 . c1", "r2")
    assert f.outputs == (("row", 3), ("col", 2))
    assert f(register=1) == (0, 1) and f(register=2) == (2, 0)
    assert f(lane=1) == (1, 2) and f(lane=2) == (0, 0) and f(lane=4) == (0, 2)
    assert f(group=1) == (4, 0)
    assert f(register=3, lane=5, group=1) == (4 | 2 | 1, 1 ^ 2 ^ 2)
    assert spell(f) == {"register": "c0 r1", "lane": "r0^c1 . c1", "group": "r2"}
    assert fragment(**spell(f)) == f
    for wrong in ("x0", "c", "0c"):
        with pytest.raises(ValueError, match="is not a bit"):
            fragment(wrong, "")


def test_wrong_maps_are_refused() -> None:
    with pytest.raises(ValueError, match="columns for"):
        Linear((("a", 2),), (("x", 2),), (1,))
    with pytest.raises(ValueError, match="beyond"):
        Linear((("a", 1),), (("x", 2),), (4,))
    with pytest.raises(ValueError, match="no axis"):
        fragment("c0", "r0")(thread=1)
