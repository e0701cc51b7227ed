"""A program's loads and stores of one tensor keep their order, whichever threads make them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kittens as kt
from kittens.backends.hip.compile import available
from kittens.codegen.order import meetings
from kittens.conformance import Case, In, Out, examine
from kittens.dtypes import BY_NAME
from kittens.examples import Example, kernels
from kittens.targets import parse

TARGETS = ("cuda:sm_80@sim", "hip:gfx950@sim", "metal@sim")
SIMULATED = [pytest.mark.sim, pytest.mark.skipif(bool(available()), reason=available() or "clang is there")]


@kt.kernel(grid=(1,))
def one(x, o):
    n = kt.load(x[0, 0])
    kt.store(x[0, 0], (), n + 1.0)
    kt.store(o, (0, 0), kt.full((16, 64), n, kt.float32))


@kt.kernel(grid=(1,))
def one_in_a_loop(x, o):
    acc = kt.zeros((16, 64), kt.float32)
    for _ in kt.range(3):
        n = kt.load(x[0, 0])
        kt.store(x[0, 0], (), n + 1.0)
        acc = acc * 2.0 + n
    kt.store(o, (0, 0), acc)


@kt.kernel(grid=(1,))
def turned(x, o):
    t = kt.load(x, (0, 0), (16, 16))
    kt.store(x.T, (0, 0), t + 1.0)
    kt.store(o, (0, 0), t)


@kt.kernel(grid=(1,))
def held_by_many(x, o):
    row = kt.load(x[0], 0, 16)
    kt.store(x[0], 0, row + 1.0)
    kt.store(o, (0, 0), kt.zeros((16, 64), kt.float32) + row[:, None])


@kt.kernel(grid=(1,))
def shifted(x, o):
    row = kt.load(x[1], 0, 64)
    kt.store(x[1][1:], 0, row + 1.0)
    kt.store(o[0], 0, row)


@kt.kernel(grid=(1,))
def twice(x, o):
    t = kt.load(x, (0, 0), (16, 16))
    kt.store(o, (0, 0), t)
    kt.store(o.T, (0, 0), t * 2.0)


@kt.kernel(grid=(1,))
def along(x, o):
    row = kt.load(x[0], 0, 32)
    for j in kt.range(4):
        kt.store(o[0][j:], 0, row + j.to(kt.float32))


@kt.kernel(grid=(1,))
def then_added(x, o):
    kt.store(o, (0, 0), kt.load(x, (0, 0), (16, 32)))
    kt.store_add(o[:, 3:], (0, 0), kt.load(x, (0, 0), (16, 16)))


KERNELS = (one, one_in_a_loop, turned, held_by_many, shifted, twice, along, then_added)


@pytest.mark.parametrize("target", [pytest.param(t, marks=SIMULATED) for t in TARGETS])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_what_a_program_reads_and_writes_is_in_order(kernel: Any, target: str) -> None:
    given = np.random.default_rng(1).integers(0, 9, (16, 64)).astype(np.float32)
    results = []
    for on in ("numpy", target):
        x, o = given.copy(), np.full((16, 64), -7, np.float32)
        kernel(x, o, on=on)
        results.append((x, o))
    for want, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_threads_meet_before_what_another_may_have_read_or_written(kernel: Any) -> None:
    x = kt.spec("float32", (16, 64))
    plan = kernel.plan("cuda:sm_80", x, x)
    assert meetings(plan)
    text = kernel.source("cuda:sm_80", x, x)
    last = max(text.rfind("kt_put_global"), text.rfind("KT_STORE_VECTOR"))
    assert re.search(r"kt_barrier\(\);", text[:last])


def test_no_kernel_of_the_library_meets_for_it() -> None:
    """None reads what it writes, and those that write twice write apart."""
    checked = 0
    for name, kernel in kernels().items():
        example = Example.of(kernel)
        if example.args:
            assert not meetings(kernel.plan("cuda:sm_80", *example.args, **example.constants)), name
            checked += 1
    assert checked > 10


def test_stores_that_no_other_thread_meets() -> None:
    @kt.kernel(grid=(1,))
    def apart(x, o):
        t = kt.load(x, (0, 0), (16, 16))
        for j in kt.range(4):
            kt.store(o, (0, j), t)
        kt.store(o[:, :16], (0, 0), t * 2.0)
        kt.store(o.T[16:32], (0, 0), t)
        kt.store(o[3], 2, kt.load(x[0], 0, 16))

    x = kt.spec("float32", (16, 64))
    plan = apart.plan("cuda:sm_80", x, x)
    stores = [op for op in plan.function.body.walk() if op.name == "store"]
    together = meetings(plan)
    assert [op in together for op in stores] == [True, False, True, True], "the loop's may be anywhere"


@kt.kernel(grid=(1,))
def lazily(x, o, n):
    t = kt.load(x, (0, 0), (32, 16))
    acc = kt.zeros((32, 16), kt.float32)
    for _ in kt.when(n > 2):
        acc = acc + t.T.reshape(32, 16)
    for _ in kt.range(n):
        acc = acc + t.T.reshape(32, 16)
    kt.store(o, (0, 0), acc + kt.exp(t.T.reshape(32, 16)))


@pytest.mark.parametrize("target", [pytest.param(t, marks=SIMULATED) for t in TARGETS])
@pytest.mark.parametrize("n", [0, 3])
def test_what_is_moved_in_a_block_is_moved_again_behind_it(target: str, n: int) -> None:
    x = np.random.default_rng(1).normal(size=(32, 16)).astype(np.float32)
    case = Case("lazily", lazily, lambda: {"x": In(x), "o": Out(BY_NAME["float32"], x.shape), "n": n})
    row = examine(case, parse(target))
    assert row.verdict == "passed" and row.judged == x.size, row.message
