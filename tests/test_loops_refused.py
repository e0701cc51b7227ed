"""Loops and branches: what Python would carry and tracing cannot is refused, with the line and a way to say it."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import kittens as kt
from kittens.errors import ControlFlowError

N = 4


def start(x):
    return kt.load(x, 0, N), kt.load(x, 1, N)


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


@dataclasses.dataclass
class State:
    a: object
    b: object


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
