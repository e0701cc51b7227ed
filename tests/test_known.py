"""What is known of integers before a kernel runs, and what emission makes of it: wide accesses, one comparison a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kittens as kt
from kittens.backends.cuda.machine import machine
from kittens.codegen import emit, make_plan
from kittens.codegen.known import ENDLESS, Along, alike, along, power_of_two_in
from kittens.codegen.rows import whole_rows
from kittens.ir import Function, Op
from kittens.kernels import dropout_residual_layer_norm, layer_norm, rotary, softmax
from kittens.opset.elementwise import COMPARISONS

WIDTH = 64


def source(kernel: Any, *args: Any, **constants: Any) -> str:
    return str(emit(make_plan(kernel.ir(*args, **constants), machine("sm_80"))))


def bf16(*shape: int) -> Any:
    return kt.spec("bfloat16", shape)


def traced(expression: Callable[[Any, Any], Any], n: int) -> Function:
    @kt.kernel
    def one(x, out):
        holds = expression(kt.indices(0, WIDTH), x.shape[0])
        kt.store(out, 0, kt.where(holds, kt.full((WIDTH,), 1, kt.int32), 0))

    return one.ir(kt.spec("int32", (n,)), kt.spec("int32", (WIDTH,)))


EXPRESSIONS: list[Callable[[Any, Any], Any]] = [
    lambda c, n: c < n,
    lambda c, n: c >= n,
    lambda c, n: n > c,
    lambda c, n: n <= c,
    lambda c, n: c <= n,
    lambda c, n: n < c,
    lambda c, n: c == n,
    lambda c, n: c != n,
    lambda c, n: c + 8 < n,
    lambda c, n: c + 3 < n,
    lambda c, n: c - n < -16,
    lambda c, n: c * 2 < n,
    lambda c, n: 40 - c < n,
    lambda c, n: c < n * 3,
    lambda c, n: c < n - 20,
    lambda c, n: c + n < n + 24,
    lambda c, n: n * n < n,
]


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)))
def test_a_comparison_said_to_be_alike_is(number: int) -> None:
    expression, agreed = EXPRESSIONS[number], []
    for n in (8, 16, 40, 36, 37):
        step = power_of_two_in(n)
        compare = next(op for op in traced(expression, n).body.walk() if op.name in COMPARISONS)
        for width in (2, 4, 8, 16):
            said = alike(compare, 0, width)
            agreed.append(said)
            for value in range(step, 200, step):  # every extent that this trace serves
                answers = np.broadcast_to(expression(np.arange(WIDTH), value), WIDTH).reshape(-1, width)
                assert not said or (answers == answers[:, :1]).all(), (number, n, width, value)
    if number in (0, 1, 2, 3, 8, 10, 13, 15, 16):
        assert any(agreed)
    if number in (6, 7, 11, 12):
        assert not any(agreed)


def counter(function: Function) -> Op:
    return next(op for op in function.body.walk() if op.name == "random_bits")


def test_divisors_of_positions() -> None:
    function = dropout_residual_layer_norm.ir(
        *[bf16(5, 1028)] * 4, 1, p=0.5, eps=1e-5, resident=True, BN=2048, BM=1
    )
    assert along(counter(function).operands[1], 1, 8) == Along(1, 4)
    assert power_of_two_in(0) == ENDLESS
    assert power_of_two_in(-24) == 8


@pytest.mark.parametrize(("columns", "blocks"), [(1024, True), (1028, True), (1026, False), (1023, False)])
def test_neighbours_share_a_block_of_random_bits(columns: int, blocks: bool) -> None:
    text = source(
        dropout_residual_layer_norm,
        *[bf16(5, columns)] * 4,
        1,
        p=0.5,
        eps=1e-5,
        resident=True,
        BN=2048,
    )
    assert ("KT_RANDOM_BLOCK(" in text) == blocks
    assert ("kt_random_bits(" in text) != blocks


def test_rows_that_fill_their_tile_are_compared_with_nothing() -> None:
    x, w = bf16(64, 768), bf16(768)
    text = source(layer_norm, x, x, w, w, eps=1e-5, resident=True, whole=True, BN=768)
    assert "kt_near(" not in text
    text = source(layer_norm, x, x, w, w, eps=1e-5, resident=True, BN=1024)
    assert "(r / 8 * 8)" in text  # one comparison for a vector of eight


def test_halves_of_rows_are_loaded_and_stored_in_sixteen_bytes() -> None:
    x, angles = bf16(4, 64, 128), kt.spec("float32", (64, 64))
    text = source(rotary, x, angles, angles, x)
    assert text.count("KT_FETCH_VECTOR(kt_u16, 8,") == 2
    assert text.count("KT_STORE_VECTOR(kt_u16, 8,") == 2
    assert "kt_get_global<kt_u16>" not in text
    assert "kt_limit_if(" in text and "? kt_limit(" not in text  # no branch between the loads


def test_pairs_of_columns_are_turned_in_registers() -> None:
    x, angles = bf16(4, 64, 128), kt.spec("float32", (64, 64))
    text = source(rotary, x, angles, angles, x, interleaved=True)
    assert "smem" not in text and text.count("KT_FETCH_VECTOR(kt_u16, 8,") == 1


def test_a_tensor_that_the_kernel_writes_is_not_fetched_as_if_nobody_did() -> None:
    @kt.kernel
    def twice(x):
        kt.store(x, 0, kt.load(x, 0, 256) + kt.load(x, 0, 256))

    text = source(twice, kt.spec("float32", (256,)))
    assert "KT_LOAD_VECTOR(" in text and "KT_FETCH_VECTOR(" not in text


@kt.kernel(grid=lambda out: out.shape[0])
def shared_out(x, out):
    """Numbers of programs, divided by an extent."""
    i = kt.program_id()
    twice = i * 2 + 1
    kt.store(out[i, 0], (), twice // x.shape[0])
    kt.store(out[i, 1], (), twice % x.shape[0])
    kt.store(out[i, 2], (), (i * -1) // x.shape[0])


@pytest.mark.sim
@pytest.mark.parametrize("target", ["cuda:sm_80@sim", "hip:gfx950@sim", "metal@sim"])
@pytest.mark.parametrize("n", [0, 1, 3, 64])
def test_numbers_of_programs_are_divided_in_32_bits(target: str, n: int) -> None:
    x, expected, got = np.zeros(n, np.float32), np.full((40, 3), -7, np.int64), np.full((40, 3), -7, np.int64)
    shared_out(x, expected)
    shared_out(x, got, on=target)
    np.testing.assert_array_equal(got, expected)
    text = source(shared_out, kt.spec("float32", (n,)), kt.spec("int64", (40, 3)))
    assert text.count("kt_quotient(") == 1 and text.count("kt_remainder(") == 1
    assert "kt_floordiv<kt_i64>(" in text  # of what may be negative


@pytest.mark.parametrize(
    ("columns", "groups"), [(256, 8), (768, 8), (4096, 8), (5120, 4), (7680, 2), (8192, 8), (16384, 16)]
)
def test_groups_share_out_whole_rows(columns: int, groups: int) -> None:
    x = bf16(64, columns)
    rows = whole_rows("softmax", {"x": x, "resident": True})["BM"]
    plan = make_plan(softmax.ir(x, x, resident=True, whole=True, BN=columns, BM=rows), machine("sm_90a"))
    assert plan.placement.groups == groups
    for layout in plan.placement.layouts.values():
        if len(layout.axes) == 2 or columns in layout.shape:  # nobody holds a copy
            assert layout.registers * layout.lanes * layout.groups == np.prod(layout.shape)


def test_rows_that_are_swept_keep_the_kernels_own_tiles() -> None:
    x = bf16(64, 4096)
    assert whole_rows("softmax", {"x": x, "resident": False}) == {}
    assert whole_rows("matmul", {"a": x}) == {}
    assert whole_rows("softmax", {"x": bf16(64, 0), "resident": True}) == {"BM": 32}
