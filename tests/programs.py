"""Small random kernels as Python text, for the property that tracing means what Python means
(tests/test_loops*.py).

`program(choose)` writes one; `choose(n)` returns an integer below n and is all the randomness there is.
`outcome` runs a program eagerly and traced and says how they compare.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable

import numpy as np

import kittens as kt
from kittens.eager import NumPyArithmetic, interpret
from kittens.errors import ControlFlowError, DTypeError

Choose = Callable[[int], int]

HEADER = """
@kt.kernel(grid=1)
def program(x, o, n0, n1):
    {globals}
    i = kt.program_id()
    v0 = kt.load(x, 0, 4)
    v1 = kt.load(x, 1, 4)
    v2 = v0 * 0.5
    v3 = v1
    w0, w1 = kt.arange(4), kt.full(4, 3, kt.int32)
    c0, c1 = 0, 3
    t0 = (v0, v1)
    l0 = [v1, v2]
    l1 = {l1}
    d0 = {{"a": v0, "b": v2}}
    p0 = Pair(v2, v0)
    s0 = State(v0, v1)
    z0 = kt.scalar(2, kt.int64)
    nest = [(v0, [v1]), {{"k": v2}}]
    tmp, flag, first, fl = v0, False, None, 0.5

    def bump(y):
        nonlocal v0, c1
        v0 = v0 * 0.5 + y
        c1 += 1
        return v0

    def inner(y, n=n1):
        acc = y
        for j in kt.range(n):
            acc, y = acc + y, acc
        return acc

    def each(ys, f):
        return [f(y) for y in ys]

    def into(ys):
        for j in kt.range(n0):
            ys[0] = ys[0] + v1
        return ys[1]

    lam = lambda y: y + v1
    part = functools.partial(inner, n=n0)
"""

FOOTER = """
    out = (v0, v1, v2, v3, *t0, *l0, *l1, d0["a"], d0["b"], p0.a, p0.b, s0.a, s0.b, G["t"], nest[0][0], nest[0][1][0],
           nest[1]["k"])
    for at, tile in enumerate(out):
        kt.store(o, at, tile)
    kt.store(o, len(out), kt.full(4, c0, kt.float32) + c1 + kt.full((), z0, kt.float32) + s0.count)
    kt.store(o, len(out) + 1, (w0 + w1).to(kt.float32))
"""
OUTPUTS = 4 * 24


class State:
    """Attributes that loops change."""

    def __init__(self, a, b, count=0):
        self.a = a
        self.b = b
        self.count = count

    def step(self, y):
        self.a, self.b = self.b, self.a + y
        self.count += 1
        return self.a


class Slotted:
    """The same with slots."""

    __slots__ = ("a", "b", "count")
    __init__ = State.__init__
    step = State.step


class Holder:
    """A global with slots."""

    __slots__ = ("n", "x")


Pair = collections.namedtuple("Pair", "a b")


class _Writer:
    def __init__(self, choose: Choose, bad: bool):
        self.choose = choose
        self.bad = bad  # whether constructs that may be refused are written
        self.lines: list[str] = []
        self.indices: list[str] = []
        self.names = itertools.count()
        self.risky: list[str] = []

    def pick(self, options):
        return options[self.choose(len(options))]

    def tile(self, depth: int = 2) -> str:
        leaf = self.pick(
            [
                "v0",
                "v1",
                "v2",
                "v3",
                "t0[0]",
                "t0[1]",
                "l0[0]",
                "l0[1]",
                "d0['a']",
                "d0['b']",
                "p0.a",
                "p0.b",
                "s0.a",
                "s0.b",
                "l1[0]",
                "G['t']",
                "nest[0][0]",
                "nest[0][1][0]",
                "nest[1]['k']",
            ]
        )
        if depth == 0 or self.choose(3) == 0:
            return leaf
        a, b = leaf, self.tile(depth - 1)
        number = self.pick(
            [
                "c0",
                "c1",
                "s0.count",
                "2",
                *[f"{k}.to(kt.float32)" for k in self.indices],
                "kt.full((), z0, kt.float32)",
            ]
        )
        return self.pick(
            [
                f"({a} + {b})",
                f"({a} - {b})",
                f"kt.maximum({a}, {b})",
                f"({a} * 0.5 + {b})",
                f"({a} + {number})",
                f"kt.where({a} < {b}, {a}, {b})",
                f"({a} * {number})",
                f"kt.where(w0 > {self.number()}, {a}, {b})",
            ]
        )

    def number(self) -> str:
        return self.pick(["c0", "c1", "2", "s0.count"])

    def condition(self) -> str:
        return self.pick(
            [
                "n0 > 1",
                "n1 == 0",
                "z0 > 3",
                "(v0 < v1).any(axis=0)",
                "(v2 > 0).all(axis=0)",
                "n0 + c0 > 2",
                *[f"{k} == 1" for k in self.indices],
                *[f"{k} > 0" for k in self.indices],
            ]
        )

    def body(self, indent: str, depth: int, count: int) -> None:
        for _ in range(count):
            self.statement(indent, depth)

    def statement(self, indent: str, depth: int) -> None:
        t = self.tile
        put = lambda line: self.lines.append(indent + line)  # noqa: E731
        v, u = self.pick(["v0", "v1", "v2", "v3"]), self.pick(["v0", "v1", "v2", "v3"])
        kind = self.choose(44 if depth else 36)
        if kind >= 36:
            return self.block(indent, depth)
        if self.bad and self.choose(8) == 0:
            return self.risk(indent)
        simple = [
            f"{v} = {t()}",
            f"{v} = {t()}",
            f"{v} += {t()}",
            f"{v} *= 0.5",
            f"{v} = {u}",
            f"{v}, {u} = {u}, {v}",
            "v0, v1, v2 = v2, v0, v1",
            f"t0 = ({t()}, {t()})",
            "t0 = t0[::-1]",
            f"{v}, {u} = t0",
            f"l0[0] = {t()}",
            "l0[0], l0[1] = l0[1], l0[0]",
            "l0 = [y + 1.0 for y in l0]",
            f"l0 = each(l0, {self.pick(['lam', 'inner', 'part'])})",
            f"d0['a'] = {t()}",
            "d0 = {k: y * 0.5 for k, y in d0.items()}",
            f"p0 = p0._replace(a={t()})",
            "p0 = Pair(p0.b, p0.a)",
            f"s0.a = {t()}",
            f"s0.step({t()})",
            f"{v} = s0.step({u})",
            f"bump({t()})",
            f"{v} = inner({t()})",
            f"{v} = part({t()})",
            f"{v} = lam({u})",
            f"c0 += {1 + self.choose(3)}",
            "c0 = (c0 * 3 + 1) % 17",
            "c0, c1 = c1, c0",
            "c1 = c0 - c1 // 2",
            f"z0 = z0 + {self.pick(['1', 'c0', *self.indices])}",
            f"G['t'] = {t()}",
            f"tmp = {t()}; {v} = tmp + {u}",
            f"w0 = w0 {self.pick('+-*')} {self.number()}",
            "w0, w1 = w1, w0 + 1",
            f"{v} = into(l0)",
            f"nest[0][1][0] = {t()}; nest[1]['k'] = nest[0][0]",
        ]
        line = simple[kind]
        if line.startswith("tmp = ") and self.choose(2):
            name = f"q{next(self.names) % 3}"
            line = line.replace("tmp", name)
        for part in line.split("; "):
            put(part)
        return None

    def block(self, indent: str, depth: int) -> None:
        put = lambda line: self.lines.append(indent + line)  # noqa: E731
        kind, count = self.choose(6), 1 + self.choose(4)
        inside = indent + "    "
        if kind < 4:
            name = self.pick(["k", "m", f"k{depth}"])
            bounds = self.pick(["n0", "n1", "2", "1, n0 + 1", "0, 5, 2", "n0, n1 + n0"])
            put(f"for {name} in kt.range({bounds}):")
            self.indices.append(name)
            self.body(inside, depth - 1, count)
            while name in self.indices:
                self.indices.remove(name)
            if self.choose(8) == 0:
                put("else:")
                self.body(inside, 0, 1)
        elif kind == 4:
            put(f"for _ in kt.when({self.condition()}):")
            self.body(inside, depth - 1, count)
        else:
            name = f"s{depth}"
            put(f"for {name} in range(2):")
            self.body(inside, depth - 1, count)

    def risk(self, indent: str) -> None:
        v = self.pick(["v0", "v1", "v2"])
        lines = self.pick(
            [
                f"first = {v} if first is None else first + {v}",
                f"if first is None: {v} = {v} + 1.0; first = True",
                "fl = fl + 1.0",
                f"{v} = {v} + fl",
                "l0.append(v0); l0.pop()",
                "flag = not flag",
                f"if flag: {v} = {v} + 1.0",
                "l0 = l1",
                "l1 = l0",
                f"{v} = {v} + q0",
                f"{v} = {v} + q1",
                f"if v0 is v1: {v} = {v} * 2.0",
                "s0 = State(v0, v1, s0.count)",
                "s0.a, s0 = v2, State(s0.b, v0, c0)",
                "d0['c'] = v0; d0.pop('c')",
                "next(IT)",
                f"{v} = {v} + next(IT)",
                "SET.add(len(SET))",
                f"{v} = {v} + len(SET)",
                "ARR[0] += 1.0",
                f"{v} = {v} * float(ARR[0])",
                "c0 = z0",
                "c1 = z0 + c1",
                "z0 = c0",
                f"tmp = c0; {v} = {v} + tmp",
                "t0 = (*t0, v0)[1:]",
                "t0 = (*t0, v0)",
                "H.x = H.x + 1.0",
                f"H.x = {v}",
                f"{v} = H.x + 1.0",
                "H.n = H.n + 1",
                f"{v} = {v} + H.n",
                "K.total += 1",
                f"{v} = {v} + K.total",
                f"if isinstance(c0, int): {v} = {v} + 1.0",
                f"{v} = {v} + {{0: 1.0}}.get(c0, 2.0)",
                f"try: {v} = {v} + first\n{indent}except TypeError: {v} = {v} + 1.0; first = v1",
                "break",
                f"lam = lambda y: y - {v}",
                "globals()['GT'] = v0",
                "l0.reverse()",
                "del tmp",
                "tmp = v1",
                "x2 = x[4:]",
                "n0 = n0 + 0",
                "z0 = k",
            ]
        )
        self.risky.append(lines)
        self.lines.extend(
            indent + line for line in lines.split("; ")
        ) if ":" not in lines else self.lines.append(indent + lines)


def program(choose: Choose, bad: bool = False, depth: int = 3) -> tuple[str, list[str]]:
    """The text of a kernel, and the lines in it that may be refused."""
    writer = _Writer(choose, bad)
    writer.body("    ", depth, 2 + choose(4))
    aliased = choose(4) == 0
    if aliased:
        writer.risky.append("l1 = l0")
    head = HEADER.format(globals="pass", l1="l0" if aliased else "[v3]")
    return head + "\n".join(writer.lines) + FOOTER, writer.risky


def build(text: str, slotted: bool = False):
    """The kernel that a text defines, without source to be had, with fresh global state."""

    def state():
        return {
            "G": {"t": None},
            "IT": itertools.count(),
            "SET": set(),
            "ARR": np.zeros(1),
            "H": Holder(),
            "K": type("K", (), {"total": 0}),
        }

    scope = {
        "kt": kt,
        "Pair": Pair,
        "State": Slotted if slotted else State,
        "functools": functools,
        "__name__": "programs",
    }
    exec(
        compile(
            text.replace("    c0, c1 = 0, 3\n", "    c0, c1 = 0, 3\n    G['t'] = v2; H.x = v0; H.n = 0\n", 1),
            "<program>",
            "exec",
        ),
        scope,
    )
    kernel = scope["program"]

    def fresh():
        scope.update(state())
        return kernel

    return fresh


TRIPS = ((0, 0), (1, 2), (2, 1), (3, 0), (0, 3))


def outcome(text: str, slotted: bool = False, trips=TRIPS) -> str:
    """ "equal", "loud" (but for a NameError in Python), "refused: why" or "invalid" (Python cannot run it
    either); raises AssertionError on a difference.
    """
    try:
        fresh = build(text, slotted)
    except SyntaxError:  # a break outside a loop
        return "invalid"
    x = np.array([0.5, -1.25, 3.0, 0.0, 2.0, 1.0, -0.5, 8.0], np.float32)
    eager = {}
    for n0, n1 in trips:
        out = np.zeros(OUTPUTS, np.float32)
        try:
            with np.errstate(all="ignore"):
                fresh()(x, out, n0, n1)
            eager[n0, n1] = out
        except Exception as error:
            eager[n0, n1] = error
    try:
        function = fresh().ir(x, np.zeros(OUTPUTS, np.float32), 1, 1)
    except (ControlFlowError, DTypeError, NameError) as error:
        return f"refused: {getattr(error, 'message', error)}"
    except Exception as error:
        if any(isinstance(e, Exception) for e in eager.values()):
            return "invalid"
        raise AssertionError(f"tracing fails with {error!r}\n{text}") from error
    if all(isinstance(e, Exception) and not isinstance(e, NameError) for e in eager.values()):
        raise AssertionError(f"traces, but Python says {eager[trips[0]]!r}\n{text}\n{function}")
    loud = False
    for (n0, n1), expected in eager.items():
        if isinstance(expected, NameError):
            loud = True
            continue
        if isinstance(expected, Exception):
            raise AssertionError(f"traces, but Python says {expected!r} for {n0, n1}\n{text}\n{function}")
        out = np.zeros(OUTPUTS, np.float32)
        with np.errstate(all="ignore"):
            interpret(function, NumPyArithmetic(), [x, out, np.int64(n0), np.int64(n1)], (1,), (0,))
        if out.tobytes() != expected.tobytes():
            where = np.flatnonzero(out.view(np.int32) != expected.view(np.int32)) // 4
            raise AssertionError(
                f"differs for {n0, n1} in outputs {sorted(set(where.tolist()))}\n{text}\n{function}"
            )
    return "loud" if loud else "equal"


__all__ = ["build", "outcome", "program"]
