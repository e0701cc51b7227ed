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
from kittens.errors import ControlFlowError, KittensError

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


# What cannot be carried is refused.

REFUSED = {}


def refused(words, name=ControlFlowError):
    def note(function):
        REFUSED[function.__name__] = (function, words, name)
        return function

    return note


@refused("left early")
def break_(x, o, n, a, b):
    for _ in kt.range(n):  # error
        a = a + 1.0
        break
    return a


@refused("left early")
def return_from_a_helper(x, o, n, a, b):
    def helper():
        for _ in kt.range(n):  # error
            return b
        return None

    return helper()


@refused("left early")
def swallowed_exception(x, o, n, a, b):
    try:
        for _ in kt.when(n > 0):  # error
            a = a + 1.0
            raise ValueError
    except ValueError:
        pass
    return a


@refused("swallowed")
def swallowed_error_of_ours(x, o, n, a, b):
    acc = None
    for _ in kt.range(n):
        try:
            acc = acc + a  # error
        except TypeError:
            acc = a
        kt.store(o, 1, acc)
    return a


@refused("comprehension")
def in_a_comprehension(x, o, n, a, b):
    return [a for _ in kt.range(n)][0]  # error  # noqa: RUF015


@refused("comprehension or generator")
def in_a_generator(x, o, n, a, b):
    def tiles():
        for _ in kt.range(n):  # error
            yield a

    for t in tiles():
        a = a + t
    return a


@refused("comprehension or generator")
def in_a_generator_expression(x, o, n, a, b):
    return sum((a for _ in kt.range(n)), a)  # error


@refused("other than a `for`")
def in_enumerate(x, o, n, a, b):
    for _, _ in enumerate(kt.range(n)):  # error
        a = a + 1.0
    return a


@refused("other than a `for`")
def in_zip(x, o, n, a, b):
    for _ in zip(kt.range(n), kt.range(n)):  # error  # noqa: B905
        a = a + 1.0
    return a


@refused("other than a `for`")
def in_list(x, o, n, a, b):
    return a + len(list(kt.range(n)))  # error


@refused("other than a `for`")
def in_an_unpacking(x, o, n, a, b):
    i, j = kt.range(2)  # error  # noqa: RUF059
    return a


@refused("other than a `for`")
def in_a_star(x, o, n, a, b):
    return max(*kt.range(2))  # error


@refused("grows")
def append(x, o, n, a, b):
    items = []
    for _ in kt.range(n):  # error
        items.append(a)  # noqa: PERF401
    return sum(items, a)


@refused("grows")
def a_new_key(x, o, n, a, b):
    items = {}
    for _ in kt.range(n):  # error
        items["a"] = a
    return items["a"]


@refused("grows")
def a_new_attribute(x, o, n, a, b):
    state = State(a, b)
    for _ in kt.range(n):  # error
        state.third = a
    return state.third


@refused("disappears")
def pop(x, o, n, a, b):
    items = [a, b]
    for _ in kt.range(n):  # error
        items.pop()
    return items[-1]


@refused("changes in the body")
def an_order(x, o, n, a, b):
    items = {"a": a, "b": b}
    for _ in kt.range(n):  # error
        items["a"] = items.pop("a")
    return next(iter(items.values()))


@refused("first is None before kt.range")
def none_at_first(x, o, n, a, b):
    first = None
    for _ in kt.range(n):
        first = a if first is None else first + a  # error
    return first


@refused("other operations")
def none_at_first_looked_at_only(x, o, n, a, b):
    first = None
    for _ in kt.range(n):  # error
        if first is None:
            a = a + 1.0
            first = True
    return a


@refused("0.5 before kt.range")
def a_float_counter(x, o, n, a, b):
    f = 0.5
    for _ in kt.range(n):
        a = a * f  # error
        f = f + 1.0
    return a


@refused("False before kt.range")
def a_flag(x, o, n, a, b):
    flag = False
    for _ in kt.range(n):
        if flag:  # error
            a = a + 1.0
        flag = True
    return a


@refused("float32[4] before kt.range and a tile float16[4]")
def another_type(x, o, n, a, b):
    for _ in kt.range(n):
        a = (a + 1.0).to(kt.float16)  # error
    return a.to(kt.float32)


@refused("tuple of 2 before kt.range")
def another_length(x, o, n, a, b):
    t = (a, b)
    for _ in kt.range(n):
        t = (*t, a)  # error
    return t[0]


@refused("known only at run time")
def an_index_into_a_list(x, o, n, a, b):
    items, i = [a, b], 0
    for _ in kt.range(n):
        a = a + items[i]  # error
        i = 1 - i
    return a


@refused("known only at run time")
def a_key_of_a_dict(x, o, n, a, b):
    i = 0
    for _ in kt.range(n):
        a = a * {0: 1.0}.get(i, 2.0)  # error
        i = i + 1
    return a


@refused("known only at run time")
def an_integer_in_a_text(x, o, n, a, b):
    i = 0
    for _ in kt.range(n):
        a = a + {"a0": 1.0}.get(f"a{i}", 2.0)  # error
        i = i + 1
    return a


@refused("known only at run time")
def an_integer_and_a_float(x, o, n, a, b):
    i = 0
    for _ in kt.range(n):
        a = a * (i + 0.5)  # error
        i = i + 1
    return a


@refused("Python integer if its loop or branch does not run")
def an_integer_or_a_tile_with_another(x, o, n, a, b):
    i = 0
    for j in kt.range(n):
        i = i + j
    return a + (kt.arange(N) + i).to(kt.float32)  # error


@refused("changes in the body")
def an_iterator(x, o, n, a, b):
    numbers = itertools.count(1)
    for _ in kt.range(n):  # error
        next(numbers)
    return a + next(numbers)


@refused("changes in the body")
def an_iterator_of_a_list(x, o, n, a, b):
    tiles = iter([a, b, a])
    for _ in kt.when(n > 0):  # error
        next(tiles)
    return next(tiles)


@refused("changes in the body")
def a_generator_under_way(x, o, n, a, b):
    tiles = (t for t in [a, b, a])
    for _ in kt.when(n > 0):  # error
        next(tiles)
    return next(tiles)


@refused("changes in the body")
def a_set(x, o, n, a, b):
    seen = set()
    for _ in kt.range(n):  # error
        seen.add(len(seen))
    return a + len(seen)


@refused("changes in the body")
def a_numpy_array(x, o, n, a, b):
    table = np.zeros(2)
    for _ in kt.when(n > 1):  # error
        table[0] += 1.0
    return a + float(table[0])


@refused("changes in the body")
def a_bytearray(x, o, n, a, b):
    table = bytearray(2)
    for _ in kt.range(n):  # error
        table[0] += 1
    return a + table[0]


@refused("other operations")
def a_random_number(x, o, n, a, b):
    for _ in kt.range(n):  # error
        a = a + float(np.random.default_rng().random()) + float(np.random.random())  # noqa: NPY002
    return a


@refused("changes in the body")
def a_random_generator(x, o, n, a, b):
    rng = np.random.default_rng(1)
    for _ in kt.when(n > 1):  # error
        rng.random()
    return a + rng.random()


@refused("not known while tracing")
def identity(x, o, n, a, b):
    c = a
    for _ in kt.range(n):  # error
        if c is a:
            b = b + 1.0
        c = a
        a = a + 1.0
    return b


@refused("not known while tracing")
def identity_as_a_number(x, o, n, a, b):
    c = a
    for _ in kt.range(n):  # error
        a = a + (1.0 if id(a) == id(c) else 2.0)
    return a


@refused("b is deleted in the body")
def a_variable_deleted(x, o, n, a, b):
    for _ in kt.range(n):  # error
        a = a + 1.0
        try:
            del b
        except NameError:
            a = a + 100.0
    return a


@refused("key of a dict")
def a_tile_as_key(x, o, n, a, b):
    return {a: b}[a]  # error


@refused("assigned only in the body")
def used_after(x, o, n, a, b):
    for _ in kt.range(n):
        t = a + 1.0
    return t * 1.0  # error


@refused("assigned only in the body")
def used_after_though_from_outside(x, o, n, a, b):
    for _ in kt.when(n > 0):
        t = a
    return a + t  # error


@refused("the variable of kt.range")
def the_loop_variable_after(x, o, n, a, b):
    for i in kt.range(n):  # noqa: B007
        a = a + 1.0
    return a + i  # error


@refused("run-time value")
def if_(x, o, n, a, b):
    if n > 1:  # error
        a = a + 1.0
    return a


@refused("run-time value")
def while_(x, o, n, a, b):
    while n > 1:  # error
        a = a + 1.0
    return a


@refused("run-time value")
def python_range(x, o, n, a, b):
    for _ in range(n):  # error
        a = a + 1.0
    return a


@refused("is not how it is used")
def if_when(x, o, n, a, b):
    if kt.when(n > 1):  # error
        a = a + 1.0
    return a


@refused("is not how it is used")
def with_when(x, o, n, a, b):
    with kt.when(n > 1):  # error
        return a + 1.0


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    body, words, kind = REFUSED[name]

    def k(x, o, n):
        a, b = start(x)
        kt.store(o, 0, kt.full(N, 0.0, kt.float32) + body(x, o, n, a, b))

    x = np.ones(8, np.float32)
    with pytest.raises(kind) as caught:
        kt.kernel(k, grid=1).ir(x, x.copy(), 2)
    message = str(caught.value)
    assert words in message
    assert "hint: " in message
    lines = open(__file__, encoding="utf-8").read().splitlines()  # noqa: SIM115
    marked = [
        i
        for i in range(body.__code__.co_firstlineno, len(lines))
        if lines[i - 1].split("  # noqa")[0].endswith("# error")
    ]
    assert caught.value.location.line == marked[0], message
    assert lines[marked[0] - 1].strip() in message


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


def test_stand_ins_refuse_everything_but_repr():
    from kittens.loops import Stale

    stale = Stale("the message", "the hint")
    assert "the message" in repr(stale)
    for use in (
        bool,
        len,
        iter,
        str,
        hash,
        float,
        lambda s: s + 1,
        lambda s: s.shape,
        lambda s: isinstance(s, int),
        lambda s: s[0],
        lambda s: s(),
    ):
        with pytest.raises(ControlFlowError, match="the message"):
            use(stale)
