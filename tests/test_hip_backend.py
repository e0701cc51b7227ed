"""The AMD backend: what it says of itself, what it plans, and results in the simulator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import kittens as kt
from kittens import ops, plugins
from kittens.arguments import adopt
from kittens.backends.hip.compile import available
from kittens.backends.hip.fragments import LANES
from kittens.backends.hip.machine import PITCH, far, machine, machine_for
from kittens.codegen.pipeline import planned
from kittens.examples import EXAMPLES, library
from kittens.layouts import element_at, element_expressions
from kittens.runtime import evaluate_grid
from kittens.targets import parse

RNG = np.random.default_rng(0)
simulated = [pytest.mark.sim, pytest.mark.skipif(bool(available()), reason=available() or "clang is there")]


def test_targets_say_what_they_can_do():
    said = {t.name: t for t in plugins.targets()}
    for arch in LANES:
        assert said[f"hip:{arch}"].can or said[f"hip:{arch}"].missing
        assert f"hip:{arch}@sim" in said
    assert "execute" not in said["hip:gfx950@sim"].can


def test_float8_is_native_where_the_matrix_instructions_are():
    numerics = {a: plugins.ask("kittens_numerics", parse(f"hip:{a}")).float8 for a in LANES}
    assert numerics["gfx942"]["float8_e4m3fnuz"] == numerics["gfx950"]["float8_e4m3fn"] == "native"
    assert numerics["gfx942"]["float8_e4m3fn"] == numerics["gfx1100"]["float8_e4m3fn"] == "emulated"


def test_linear_copies_look_up_what_belongs_where_they_write():
    example = EXAMPLES["matmul"]
    plan = library("matmul").plan("hip:gfx950", *example.args, BM=256, BN=256, BK=32)
    for staged in plan.staged.values():
        assert staged.linear
        row, col = element_expressions(staged.shared, 16)
        for number in range(0, staged.shared.size // 16, 7):
            names = {"number": number}
            assert (eval(row, names), eval(col, names)) == element_at(staged.shared, number * 16)


def test_attention_needs_no_scratch_between_its_products():
    example = EXAMPLES["attention_forward"]
    plan = library("attention_forward").plan("hip:gfx950", *example.args, **example.constants)
    assert plan.scratch_bytes == 0
    assert "K in another order" in str(plan)


def test_rows_far_apart_are_copied_another_way():
    x = np.zeros((8, 16), ml_dtypes.bfloat16)
    y = np.zeros((16, 16), np.float32)
    kernel = library("matmul")
    arguments, given = kernel.bind((adopt(x, "a"), x.T, y[:8, :8]), {})
    settled = kernel.settle(parse("hip:gfx950"), arguments, given)
    function = kernel.trace(arguments, settled, 3)
    source = planned(function, machine("gfx950"))[1]
    assert "kt_copy_linear" in source.text
    assert not far(source.text, source.parameters, arguments)
    backwards = {**arguments, "a": adopt(x[::-1], "a")}
    assert far(source.text, source.parameters, backwards)
    assert "kt_copy_linear" not in planned(function, machine_for("gfx950", function, backwards))[1].text
    assert PITCH * 256 <= 2**31


def test_numbers_that_take_more_than_32_bits_are_taken_another_way():
    kernel = library("add")
    x = kt.spec("float32", (4, 1 << 30, 2))
    arguments, given = kernel.bind((x, x, x), {})
    settled = kernel.settle(parse("hip:gfx950"), arguments, given)
    function = kernel.trace(arguments, settled, len(evaluate_grid(kernel, arguments, settled)))
    source = planned(function, machine("gfx950"))[1]
    assert {p.ctype for p in source.parameters if p.kind == "extent"} == {"kt_u32"}
    assert not far(source.text, source.parameters, arguments)
    vast = {**arguments, kernel.params[0]: kt.spec("float32", (4, 1 << 32, 2))}
    assert far(source.text, source.parameters, vast)
    wide = planned(function, machine_for("gfx950", function, vast))[1]
    assert {p.ctype for p in wide.parameters if p.kind == "extent"} == {"kt_i64"}
    assert not far(wide.text, wide.parameters, vast)


@pytest.mark.parametrize("arch", LANES)
class TestSimulated:
    pytestmark = simulated

    def test_matmul(self, arch):
        a = RNG.standard_normal((70, 136)).astype(ml_dtypes.bfloat16)
        b = RNG.standard_normal((136, 40)).astype(ml_dtypes.bfloat16)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        for x, y, want in ((a, b, exact), (a[::-1], b, exact[::-1]), (a, b[:, ::-1], exact[:, ::-1])):
            got = ops.matmul(x, y, dtype=kt.float32, on=f"hip:{arch}@sim")
            np.testing.assert_allclose(got, want, atol=1e-4)

    def test_softmax_and_attention(self, arch):
        x = RNG.standard_normal((5, 300)).astype(np.float32)
        np.testing.assert_allclose(
            ops.softmax(x, on=f"hip:{arch}@sim"), ops.softmax(x, on="numpy"), rtol=1e-6, atol=1e-9
        )
        q, k, v = (RNG.standard_normal((1, 1, n, 64)).astype(ml_dtypes.bfloat16) for n in (40, 70, 70))
        got = ops.attention(q, k, v, causal=True, on=f"hip:{arch}@sim").astype(np.float32)
        want = ops.attention(q, k, v, causal=True, on="numpy").astype(np.float32)
        np.testing.assert_allclose(got, want, atol=2e-2)
