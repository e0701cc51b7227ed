"""Loops and branches mean what Python means: traced and interpreted, a kernel gives what Python gives, bit
for bit.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import sys

import numpy as np
import pytest

import kittens as kt
from kittens.eager import NumPyArithmetic, interpret
from kittens.errors import KittensError

N = 4


def both(function, *scalars, trips=((0,), (1,), (2,), (5,))):
    """Run function(x, o, n) eagerly and traced, for several trip counts, and check that outputs agree."""
    kernel = kt.kernel(function, grid=1)
    x = np.array([0.5, -1.25, 3.0, 2.0, 1.0, -0.5, 8.0, 0.25], np.float32)
    outs = []
    ir = kernel.ir(x, np.zeros(4 * N, np.float32), *(1 for _ in trips[0]))
    for trip in trips:
        eager, traced = np.zeros((2, 4 * N), np.float32)
        kernel(x, eager, *trip)
        interpret(ir, NumPyArithmetic(), [x, traced, *map(np.int64, trip)], (1,), (0,))
        assert traced.tobytes() == eager.tobytes(), f"{trip}: {traced} is not {eager}\n{ir}"
        outs.append(eager)
    assert len({o.tobytes() for o in outs}) > 1, "the trip count makes no difference"
    return ir


def start(x):
    return kt.load(x, 0, N), kt.load(x, 1, N)


def test_rebinding_and_in_place():
    def k(x, o, n):
        a, b = start(x)
        for _ in kt.range(n):
            b_new = b + a
            a *= 0.5
            b = b_new
        kt.store(o, 0, a)
        kt.store(o, 1, b)

    both(k)


def test_swap_rotate_and_alias():
    def k(x, o, n):
        a, b = start(x)
        c = a
        d = a
        for _ in kt.range(n):
            a, b = b, a
            c, d = d + 1.0, c
        for i, t in enumerate((a, b, c, d)):
            kt.store(o, i, t)

    both(k)


def test_three_deep_nests():
    def k(x, o, n):
        a, b = start(x)
        count = 0
        for i in kt.range(n):
            for j in kt.range(i + 1):
                for m in kt.range(j, n):  # noqa: B007
                    a, b = b + 1.0, a * 0.5
                    count += 1
                a = a + b
            b = b + kt.full((), j if False else i, kt.float32)
        kt.store(o, 0, a + count)
        kt.store(o, 1, b)

    both(k)


def test_lists_tuples_dicts():
    def k(x, o, n):
        a, b = start(x)
        items, pair, table = [a, b], (a, b), {"a": a, "b": [b]}
        other = items
        for _ in kt.range(n):
            items[0], items[1] = items[1], items[0] + 1.0
            pair = (pair[1], pair[0] + items[0])
            table["a"] += pair[0]
            table["b"][0] = table["a"] * 0.5
        kt.store(o, 0, other[0] + items[1])
        kt.store(o, 1, pair[0])
        kt.store(o, 2, table["a"] + pair[1])
        kt.store(o, 3, table["b"][0])

    both(k)


def test_lists_and_dicts_made_anew():
    def k(x, o, n):
        items = list(start(x))
        table = dict(zip("ab", items))  # noqa: B905
        for _ in kt.range(n):
            items = [y + i for i, y in enumerate(items, 1)]
            table = {key: y * 0.5 for key, y in table.items()}
        kt.store(o, 0, items[0])
        kt.store(o, 1, items[1])
        kt.store(o, 2, table["a"] + table["b"])

    both(k)


def test_an_item_is_replaced_before_its_list_is():
    def k(x, o, n):
        items = list(start(x))
        for _ in kt.when(n > 1):
            items[0], items[1] = items[1], items[0]
            items = [y + 1.0 for y in items]
        kt.store(o, 0, items[0])
        kt.store(o, 1, items[1])

    both(k)


Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class State:
    first: object
    second: object
    count: int = 0

    def step(self, y):
        self.first, self.second = self.second, self.first + y
        self.count += 1


class Slotted:
    __slots__ = ("__hidden", "first")

    def __init__(self, first):
        self.first = first
        self.__hidden = first

    def step(self):
        self.__hidden = self.__hidden + self.first
        return self.__hidden


@dataclasses.dataclass(frozen=True)
class Frozen:
    first: object
    second: object


def test_namedtuples_dataclasses_objects_and_slots():
    def k(x, o, n):
        a, b = start(x)
        pair, state, slotted, frozen = Pair(a, b), State(a, b), Slotted(a), Frozen(a, b)
        for _ in kt.range(n):
            pair = pair._replace(first=pair.second, second=pair.first * 0.5)
            state.step(pair.first)
            slotted.step()
            frozen = dataclasses.replace(frozen, second=frozen.second + frozen.first)
        kt.store(o, 0, pair.first)
        kt.store(o, 1, state.first + state.count)
        kt.store(o, 2, slotted.step())
        kt.store(o, 3, frozen.second)

    both(k)


def test_methods_and_self():
    class Kernel:
        def __init__(self):
            self.total = None

        def run(self, x, o, n):
            self.total, b = start(x)
            for _ in kt.range(n):
                self.add(b)
            kt.store(o, 0, self.total)

        def add(self, y):
            self.total = self.total + y

    made = Kernel()
    both(lambda x, o, n: made.run(x, o, n))


def test_helpers_closures_lambdas_partials():
    def helper(y, n, f):
        for _ in kt.range(n):
            y = f(y)
            for _ in kt.range(2):
                y = y * 0.5
        return y

    def k(x, o, n):
        a, b = start(x)
        total = a

        def add(y):
            nonlocal total
            total = total + y
            return total

        twice = functools.partial(helper, f=lambda y: y + b)
        for _ in kt.range(n):
            a = helper(a, 2, add)
            b = twice(b, n)
        kt.store(o, 0, a)
        kt.store(o, 1, b)
        kt.store(o, 2, total)

    both(k)


def test_a_loop_in_a_closure_that_writes_outwards():
    def k(x, o, n):
        a, b = start(x)

        def inner():
            nonlocal a, b
            for _ in kt.range(n):
                a, b = b, a + 1.0

        for _ in kt.range(2):
            inner()
        kt.store(o, 0, a)
        kt.store(o, 1, b)

    both(k)


def test_comprehensions_and_static_loops_inside():
    def k(x, o, n):
        parts = list(start(x))
        for j in kt.range(n):  # noqa: B007
            sums = [p + q for p, q in itertools.product(parts, parts)]
            for i in range(2):
                parts[i] = parts[i] * 0.5 + sums[i + 1]
            best = max(range(3))
            parts[0] = parts[0] + best
        kt.store(o, 0, parts[0])
        kt.store(o, 1, parts[1])

    both(k)


def test_temporaries_of_other_types_and_reused_loop_variables():
    def k(x, o, n):
        a, b = start(x)
        for k in kt.range(n):  # noqa: B007
            t = a + 1.0
            a = t * 0.5
        for k in kt.range(n):
            t = (b, k)
            b = t[0] + 1.0
        for t in kt.range(n):
            a = a + kt.full((), t, kt.float32)
        for k in range(2):  # noqa: B007
            t = "text"
        kt.store(o, 0, a)
        kt.store(o, 1, b)

    both(k)


def test_integers_stay_integers():
    def k(x, o, n):
        a, b = start(x)
        wide = kt.full(N, 2**31 - 3, kt.int32)
        count, step, other = 0, 1, 7
        for _ in kt.range(n):
            a = a + count
            wide = wide + count  # in int32, as an integer, wrapping
            b = b + kt.load(x, count % 2, N)
            count, step, other = count + step, step * 2 % 5, -other // 2
            assert isinstance(count, int)
        kt.store(o, 0, a)
        kt.store(o, 1, wide.to(kt.float32))
        kt.store(o, 2, b + count + step)
        kt.store(o, 3, b * other + kt.cdiv(count, 2) + (count & 3) + abs(~count) + (1 << step))

    both(k)


def test_negative_integers_count_from_the_end():
    def k(x, o, n):
        a, at = kt.load(x, 0, N), -1
        rows = x
        for _ in kt.range(n):
            a = a + kt.load(rows[at], ()) + kt.load(rows[at:], 0, N)
            at -= 1
        kt.store(o, 0, a)

    both(k)


def test_an_integer_that_becomes_a_run_time_value():
    def k(x, o, n):
        total, last = 0, 0
        for i in kt.range(n):
            total = total + i
            for _ in kt.when(i > 1):
                last = i * 2
        kt.store(o, 0, kt.full(N, total + last, kt.float32))

    both(k)


def test_when_carries_and_nests():
    def k(x, o, n):
        a, b = start(x)
        items = [a]
        for i in kt.range(n):
            for _ in kt.when(i == 1):
                a, b = b, a
                items[0] = items[0] + b
                for _ in kt.when((b < a).any(axis=0)):
                    b = b + 1.0
                    for j in kt.range(n):  # noqa: B007
                        items[0] = items[0] * 0.5
        for _ in kt.when(n > 3):
            a = b
        kt.store(o, 0, a)
        kt.store(o, 1, b)
        kt.store(o, 2, items[0])

    both(k)


def test_continue_else_and_one_range_twice():
    def k(x, o, n):
        a, b = start(x)
        passes = kt.range(n)
        for _ in passes:
            a = a + 1.0
            if N == 4:
                continue
            a = a * 0.0
        else:
            b = b + a
        for _ in passes:
            b = b * 0.5
        kt.store(o, 0, a)
        kt.store(o, 1, b)

    both(k)


def test_bounds_and_steps():
    def k(x, o, n, m):
        a, _ = start(x)
        for i in kt.range(1, n, 2):
            a = a + kt.full((), i, kt.float32)
        for i in kt.range(n, m, unroll=2):  # noqa: B007
            a = a * 0.5
        for i in kt.range(0, n, m + 1):  # noqa: B007
            a = a - 1.0
        kt.store(o, 0, a)

    both(k, trips=((0, 0), (5, 2), (2, 5), (-3, 4)))


def test_no_source_text():
    scope = {"kt": kt, "N": N}
    exec(
        "def k(x, o, n):\n"
        "    a = kt.load(x, 0, N); b = a\n"
        "    for i in kt.range(n): a, b = b, a + 1.0\n"
        "    kt.store(o, 0, a); kt.store(o, 1, b)\n",
        scope,
    )
    both(scope["k"])


GLOBAL = None


def test_globals_are_carried():
    def k(x, o, n):
        global GLOBAL
        GLOBAL = kt.load(x, 0, N)
        for _ in kt.range(n):
            GLOBAL = GLOBAL + 1.0
        kt.store(o, 0, GLOBAL)

    both(k)


def test_class_attributes_and_function_attributes_are_carried():
    class Holder:
        total = None

    def helper(y):
        helper.calls = helper.calls + y

    def k(x, o, n):
        Holder.total, helper.calls = start(x)
        for _ in kt.range(n):
            Holder.total = Holder.total * 0.5
            helper(Holder.total)
        kt.store(o, 0, Holder.total)
        kt.store(o, 1, helper.calls)

    both(k)


def test_many_locals_and_long_bodies():
    """EXTENDED_ARG in the bytecode, and jumps over more than 255 instructions."""
    body = "".join(f"        v{i} = v{i} + v{(i + 1) % 300}\n" for i in range(300))
    text = (
        "def k(x, o, n):\n    t = kt.load(x, 0, 4)\n"
        + "".join(f"    v{i} = t\n" for i in range(300))
        + "    for j in kt.range(n):\n"
        + body
        + "    kt.store(o, 0, v0 + v299)\n"
    )
    scope = {"kt": kt}
    exec(text, scope)
    both(scope["k"], trips=((0,), (2,)))


def test_tracing_under_a_trace_function():
    """A debugger or coverage in Python makes CPython copy locals to and fro."""
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: sys.gettrace())
    try:
        test_helpers_closures_lambdas_partials()
        test_swap_rotate_and_alias()
        test_integers_stay_integers()
    finally:
        sys.settrace(before)


def test_a_failed_trace_gives_objects_back():
    state = State(1, 2, 3)

    @kt.kernel(grid=1)
    def k(x, o, n):
        for _ in kt.range(n):
            state.count += 1
            kt.load(x, (0, 0), (N, N))

    with pytest.raises(KittensError):
        k.ir(np.zeros(4, np.float32), np.zeros(4, np.float32), 2)
    assert state == State(1, 2, 3)


def test_a_global_that_counts():
    scope = {"kt": kt, "count": 0}
    exec(
        "def k(x, o, n):\n"
        "    global count\n"
        "    a = kt.load(x, 0, 4)\n"
        "    for i in kt.range(n):\n"
        "        a = a + count\n"
        "        count += 1\n"
        "    kt.store(o, 0, a)\n"
        "    count = 0\n",
        scope,
    )
    both(scope["k"])
