"""Additions in turn: kt.store_add(..., turn=(counter, n))."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kittens as kt
from kittens.backends.cuda.machine import machine
from kittens.codegen import make_plan
from kittens.text import parse

TARGETS = [
    f"{t}@sim"
    for t in ("cuda:sm_80", "cuda:sm_90a", "hip:gfx942", "hip:gfx950", "hip:gfx1100", "hip:gfx1201", "metal")
]


@kt.kernel(grid=lambda x: (kt.cdiv(x.shape[0], 16), 2))
def added(x: Any, out: Any, turns: Any) -> None:
    """Each program adds its rows to the same tile, those of a column of programs in the order of rows."""
    i, z = kt.program_id()
    kt.store_add(out, (0, z), kt.load(x, (i, z), (16, 32)), turn=(turns[z], i))


def arrays(rows: int) -> tuple[Any, ...]:
    x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
    return x, np.zeros((16, 64), np.float32), np.zeros(2, np.int32)


@pytest.mark.sim
@settings(max_examples=24, deadline=None)
@given(st.integers(1, 150), st.sampled_from(TARGETS))
def test_sums_are_those_of_the_reference_bit_for_bit(rows: int, target: str) -> None:
    x, want, counts = arrays(rows)
    added(x, want, counts, on="numpy")
    assert (counts == -(-rows // 16)).all()
    _, have, again = arrays(rows)
    added(x, have, again, on=target)
    np.testing.assert_array_equal(have, want)
    np.testing.assert_array_equal(again, counts)


def test_it_is_text_that_parses_and_counters_are_written() -> None:
    function = added.ir(*arrays(40))
    assert "{ordered=True}" in str(function) and str(parse(str(function))) == str(function)
    assert function.stored() == {"out", "turns"}


def test_a_compiled_kernel_knows(tmp_path: Any) -> None:
    from kittens.backends.cuda.compile import available

    if available():
        pytest.skip(available())
    made = added.compile("cuda:sm_90a", *arrays(40))
    made.save(tmp_path / "added")
    assert kt.load(tmp_path / "added").unordered == made.unordered == ()


@pytest.mark.sim
@pytest.mark.parametrize("target", ["numpy", *TARGETS])
def test_single_numbers_are_added_in_turn(target: str) -> None:
    """The turn of an addition of a single number was left out, and its counter stayed as it was."""

    @kt.kernel(grid=lambda n: n)
    def numbers(out: Any, turns: Any, n: Any) -> None:
        i = kt.program_id()
        kt.store_add(out[0], (), i.to(kt.float32) * 0.1, turn=(turns[0], i))

    out, turns = np.zeros(1, np.float32), np.zeros(1, np.int32)
    numbers(out, turns, 7, on=target)
    want = np.float32(0)
    for i in range(7):
        want += np.float32(i) * np.float32(0.1)
    assert out[0] == want and turns[0] == 7


@pytest.mark.sim
@pytest.mark.parametrize("order", ["linear", "grouped"])
def test_parts_of_a_product_are_added_in_turn(order: str) -> None:
    """The engine's blocks took programs in steps of their number, and waited for those of blocks that had not begun. Where
    programs cannot be drawn, since the kernel asks in two ways which it is, the threads make the product.
    """

    @kt.kernel(grid=lambda c, parts: (kt.cdiv(c.shape[0], 64), kt.cdiv(c.shape[1], 64), parts))
    def split(a: Any, b: Any, c: Any, turns: Any, parts: Any) -> None:
        (i, j, _), z = kt.program_id(), kt.program_id(2, order=order)
        acc = kt.zeros((64, 64), kt.float32)
        for k in kt.range(z, kt.cdiv(a.shape[1], 64), parts):
            acc += kt.load(a, (i, k), (64, 64)) @ kt.load(b, (k, j), (64, 64))
        kt.store_add(c, (i, j), acc, turn=(turns[i, j], z))

    n, parts = 128, 6  # more programs than blocks
    a = np.random.default_rng(0).standard_normal((n, 64 * parts)).astype(np.float16)
    b = np.random.default_rng(1).standard_normal((64 * parts, n)).astype(np.float16)
    c, turns = np.zeros((n, n), np.float32), np.zeros((2, 2), np.int32)
    assert (split.plan("cuda:sm_90a", a, b, c, turns, parts).roles is not None) == (order == "linear")
    split(a, b, c, turns, parts, on="cuda:sm_90a@sim")
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)
    assert (turns == parts).all()


def test_machines_whose_programs_do_not_wait_refuse() -> None:
    with pytest.raises(kt.UnavailableError, match="do not wait for each other"):
        make_plan(added.ir(*arrays(40)), dataclasses.replace(machine("sm_80"), turns=False))


@pytest.mark.sim
def test_a_program_that_waits_for_a_later_one_is_found() -> None:
    @kt.kernel(grid=lambda x: kt.cdiv(x.shape[0], 16))
    def backwards(x: Any, out: Any, turns: Any) -> None:
        i = kt.program_id()
        kt.store_add(
            out, (0, 0), kt.load(x, (i, 0), (16, 32)), turn=(turns[0], kt.cdiv(x.shape[0], 16) - 1 - i)
        )

    x, out, turns = arrays(40)
    with pytest.raises(kt.CheckError, match="has turn 2, and 0 were made"):
        backwards(x, out, turns)
    assert not out.any() and not turns.any()


@pytest.mark.parametrize(
    ("turn", "error", "text"),
    [
        (lambda t: (t, 0), kt.DTypeError, "counts turns in tensor"),
        (lambda t: t[0], kt.ArgumentError, "a pair"),
        (lambda t: (t[0], 1.5), kt.DTypeError, "an integer, not 1.5"),
        (lambda t: (3, 0), kt.DTypeError, "takes a tensor first"),
        (lambda t: (t[5], 0), kt.CheckError, "outside its tensor"),
        (lambda t: (t[0], 3), kt.CheckError, "has turn 3, and 0 were made"),
    ],
)
def test_what_is_no_turn(turn: Any, error: type[Exception], text: str) -> None:
    @kt.kernel(grid=1)
    def wrong(x: Any, out: Any, turns: Any) -> None:
        kt.store_add(out, (0, 0), kt.load(x, (0, 0), (16, 32)), turn=turn(turns))

    x, out, turns = arrays(16)
    with pytest.raises(error, match=text):
        wrong(x, out, turns)
    assert not out.any() and not turns.any()


@pytest.mark.parametrize("among", [0, -1, 1.5, True, "8"])
def test_among_is_a_number_of_programs(among: Any) -> None:
    @kt.kernel(grid=4)
    def wrong(x: Any) -> None:
        kt.store(x[kt.program_id(order="ascending", among=among)], (), 1.0)

    with pytest.raises(kt.ArgumentError, match="at least 1"):
        wrong(np.zeros(4, np.float32))


@pytest.mark.sim
@pytest.mark.parametrize("among", [1, 3, 2**31 + 1, 2**32, 2**70])
def test_programs_sorted_among_any_number_occur_once(among: int) -> None:
    """A kernel that asks again, without saying among how many, is in the place that it was told first. Numbers of more than 32
    bits divided by zero.
    """

    @kt.kernel(grid=lambda x: (x.shape[0], x.shape[1]))
    def twice(x: Any) -> None:
        i, j = kt.program_id(0, order="ascending", among=among), kt.program_id(1)
        kt.store_add(x[i, j], (), kt.scalar(1, kt.int32))

    x = np.zeros((4, 6), np.int32)
    twice(x, on="cuda:sm_80@sim")
    assert (x == 1).all()


@pytest.mark.parametrize("order", ["linear", "grouped"])
def test_among_is_of_programs_that_are_sorted(order: str) -> None:
    @kt.kernel(grid=4)
    def wrong(x: Any) -> None:
        kt.store(x[kt.program_id(order=order, among=2)], (), kt.scalar(1.0, kt.float32))

    with pytest.raises(kt.ArgumentError, match="are not sorted"):
        wrong(np.zeros(4, np.float32))


@pytest.mark.sim
@pytest.mark.parametrize("target", ["numpy", *TARGETS])
@pytest.mark.parametrize("n", [2**40, 2**31, -1 - 2**33])
def test_a_turn_is_compared_wholly(target: str, n: int) -> None:
    """2^40 ran as turn 0."""

    @kt.kernel(grid=lambda n: 1)
    def wrong(out: Any, turns: Any, n: Any) -> None:
        kt.store_add(out[0], (), kt.scalar(1.0, kt.float32), turn=(turns[0], n))

    out, turns = np.zeros(1, np.float32), np.zeros(1, np.int32)
    with pytest.raises(kt.CheckError, match=f"turn {n}"):
        wrong(out, turns, n, on=target)
    assert not out.any() and not turns.any()


@pytest.mark.sim
@pytest.mark.parametrize("order", ["linear", "grouped", "ascending", "descending"])
@pytest.mark.parametrize("target", ["cuda:sm_80", "hip:gfx942", "hip:gfx1201"])
def test_programs_that_wait_are_drawn(target: str, order: str, monkeypatch: Any) -> None:
    """Devices do not promise to begin blocks in the order of their numbers. The simulator begins with the last in one of its
    orders: with one thread, a program that waited for one which has not begun would wait for ever.
    """

    @kt.kernel(grid=lambda x, parts: (parts, x.shape[1] // 32))
    def split(x: Any, out: Any, turns: Any, parts: Any) -> None:
        i, z = kt.program_id(order=order)
        number = parts - 1 - i if order == "descending" else i
        kt.store_add(out, (0, z), kt.load(x, (i, z), (16, 32)), turn=(turns[z], number))

    rows, n = 20, 16 * 32
    x = np.random.default_rng(1).standard_normal((16 * rows, n)).astype(np.float32)
    out, turns = np.zeros((16, n), np.float32), np.zeros(n // 32, np.int32)
    want = out.copy()
    for i in range(rows)[:: -1 if order == "descending" else 1]:
        want += x[16 * i : 16 * i + 16]
    monkeypatch.setenv("KITTENS_SIM_WORKERS", "1")
    split(x, out, turns, rows, on=f"{target}@sim")
    np.testing.assert_array_equal(out, want)
