"""Loops and branches: what is carried, empty and nested loops, run-time bounds, scalar parameters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import kittens as kt
from kittens.conformance.case import Case, In, Out, seeded
from kittens.conformance.cases.inputs import normal
from kittens.dtypes import BY_NAME

F32, I64 = BY_NAME["float32"], BY_NAME["int64"]


@kt.kernel(grid=1)
def fibonacci(n, out):
    """Two values that exchange roles each pass."""
    a, b = kt.scalar(0, kt.int64), kt.scalar(1, kt.int64)
    for _ in kt.range(n):
        a, b = b, a + b
    kt.store(out[0], (), a)
    kt.store(out[1], (), b)


@kt.kernel(grid=1)
def bounds(lo, hi, step, out):
    """Run-time bounds: the number of passes and the sum and last of the indices."""
    count, total, last = kt.scalar(0, kt.int64), kt.scalar(0, kt.int64), kt.scalar(-99, kt.int64)
    for k in kt.range(lo, hi, step):
        count, total, last = count + 1, total + k, k
    for i, x in enumerate((count, total, last)):
        kt.store(out[i], (), x)


@kt.kernel(grid=lambda x: x.shape[0])
def triangle(x, out, *, B=16):
    """An inner loop whose bound is the outer index, and lists and dictionaries of tiles."""
    i = kt.program_id()
    state = {"sum": kt.zeros(B, kt.float32), "parts": [kt.zeros(B, kt.float32), kt.zeros(B, kt.float32)]}
    for j in kt.range(i + 1):
        for k in kt.range(j):
            state["sum"] = state["sum"] + kt.load(x[k], 0, B)
        state["parts"][0], state["parts"][1] = state["parts"][1] + 1.0, state["parts"][0]
    kt.store(out[i], 0, state["sum"] - state["parts"][0] * state["parts"][1])


@kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
def branches(x, out, *, B=16):
    """A branch on data; what it assigns keeps its old value where it is not taken."""
    i = kt.program_id()
    t = kt.load(x, i, B)
    scale = kt.scalar(1.0, kt.float32)
    for _ in kt.when(i % 2 == 1):
        t = t * 2
        for _ in kt.when(i > 2):
            scale = scale + 1
    for _ in kt.when((t > 100).any(0)):
        t = -t
    kt.store(out, i, t * scale)


@kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
def store_when(x, out, *, B=16):
    """A branch that only stores."""
    i = kt.program_id()
    for _ in kt.when(i % 3 != 0):
        kt.store(out, i, kt.load(x, i, B))


@kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
def scalars(x, n, m, s, out, *, B=32):
    """int32, int64 and float32 parameters in arithmetic with tiles."""
    i = kt.program_id()
    t = kt.load(x, i, B)
    big = m // 3 + kt.cdiv(m, 7) - m % 5
    kt.store(out, i, t * s + n.to(kt.float32) - big.to(kt.float32) + kt.full(B, s, kt.float32))


@kt.kernel(grid=lambda x, BM: kt.cdiv(x.shape[0], BM))
def unrolled(x, out, *, unroll, BM=16, BN=16):
    i = kt.program_id()
    acc = kt.zeros((BM, BN), kt.float32)
    for j in kt.range(kt.cdiv(x.shape[1], BN), unroll=unroll):
        acc = kt.maximum(acc, kt.load(x, (i, j), (BM, BN), pad=-kt.inf))
    kt.store(out, (i, 0), acc)


@kt.kernel(grid=1)
def newton(x, out, *, B, passes):
    """Iteration with a static and a run-time loop that rebind the same name."""
    y = kt.load(x, 0, B)
    guess = kt.full(B, 1.0, kt.float32)
    for _ in range(passes):
        guess = 0.5 * (guess + y / guess)
    for _ in kt.range(2):
        guess = 0.5 * (guess + y / guess)
    kt.store(out, 0, guess)


@kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
def online_softmax_terms(x, out, *, B=8, C=16):
    """The running maximum and sum of softmax, carried together."""
    i = kt.program_id()
    m, l = kt.full(B, -kt.inf, kt.float32), kt.zeros(B, kt.float32)
    for j in kt.range(kt.cdiv(x.shape[1], C)):
        s = kt.load(x, (i, j), (B, C), pad=-kt.inf)
        new = kt.maximum(m, s.max(1))
        safe = kt.where(new == -kt.inf, 0.0, new)
        l = l * kt.exp(m - safe) + kt.exp(s - safe[:, None]).sum(1)
        m = new
    kt.store(out, (0, i), kt.join(m[None, :], l[None, :], 0))


def _vector(name: str, n: int, scale: float = 1.0) -> In:
    return In(normal(seeded(name), (n,), F32, scale))


def _matrix(name: str, shape: tuple[int, int]) -> In:
    return In(normal(seeded(name), shape, F32))


def _case(kernel, detail, cost: float, make, **constants) -> Case:
    """A case whose arguments `make` gives, from the case's name."""
    name = f"control/{kernel.name}/{detail}"
    return Case(name, kernel, partial(make, name), constants, cost)


def cases() -> Iterator[Case]:
    for n in (0, 1, 2, 10, 95):
        for kind in (np.int32, np.int64):
            yield _fibonacci(kind(n))
    for lo, hi, step in ((0, 0, 1), (0, 1, 1), (3, 20, 4), (5, 2, 1), (-7, 8, 3), (10, 11, 100), (-3, -3, 2)):
        yield _bounds(lo, hi, step)
    yield _bounds(2**40, 2**40 + 5, 2)
    for n in (1, 2, 7):
        yield _triangle(n)
    for n in (1, 16, 100):
        yield _branches(n, 1.0)
        yield _branches(n, 60.0)
        yield _store_when(n + 40)
    for n, m, x in ((0, 0, 0.0), (5, -17, 0.1), (-(2**31), 2**50 + 1, -3.5), (2**31 - 1, -(2**40), 1e-3)):
        yield _scalars(n, m, x)
    for unroll in (1, 2, 4, 7):
        yield _unrolled(unroll, 16)
        yield _unrolled(unroll, 100)
    for passes in (0, 1, 3):
        yield _newton(passes)
    for shape in ((8, 16), (13, 50), (1, 1), (3, 200)):
        yield _online(shape)


def _fibonacci(n) -> Case:
    return _case(fibonacci, f"{n}/{n.dtype}", float(n), lambda name: {"n": n, "out": Out(I64, (2,))})


def _bounds(lo: int, hi: int, step: int) -> Case:
    args = {"lo": lo, "hi": hi, "step": step, "out": Out(I64, (3,))}
    return _case(bounds, f"{lo}:{hi}:{step}", 10.0, lambda name: args)


def _triangle(n: int) -> Case:
    return _case(triangle, n, 500.0, lambda name: {"x": _matrix(name, (n, 16)), "out": Out(F32, (n, 16))})


def _branches(n: int, scale: float) -> Case:
    def make(name):
        return {"x": _vector(name, n, scale), "out": Out(F32, (n,))}

    return _case(branches, f"{n}/{scale}", 300.0, make)


def _store_when(n: int) -> Case:
    return _case(store_when, n, 100.0, lambda name: {"x": _vector(name, n), "out": Out(F32, (n,))})


def _scalars(n: int, m: int, s: float) -> Case:
    def make(name):
        return {"x": _vector(name, 70), "n": np.int32(n), "m": m, "s": s, "out": Out(F32, (70,))}

    return _case(scalars, f"{n}/{m}", 500.0, make)


def _unrolled(unroll: int, width: int) -> Case:
    def make(name):
        return {"x": _matrix(name, (20, width)), "out": Out(F32, (20, 16))}

    return _case(unrolled, f"{unroll}/{width}", 2000.0, make, unroll=unroll)


def _newton(passes: int) -> Case:
    def make(name):
        return {"x": In(np.abs(_vector(name, 32).data) + 0.5), "out": Out(F32, (32,))}

    return _case(newton, passes, 500.0, make, B=32, passes=passes)


def _online(shape: tuple[int, int]) -> Case:
    def make(name):
        return {"x": _matrix(name, shape), "out": Out(F32, (2, shape[0]))}

    detail = f"{shape[0]}x{shape[1]}"
    return _case(online_softmax_terms, detail, 8.0 * shape[0] * shape[1], make)
