"""Calls that were made before: found again by what their arguments are, and repeated on other addresses.

What a call does follows from its *pattern* (the classes of its arguments, which of them are given by name, the target) and
its *key* (of each array all but its address, the values of constants). For each pattern a function is written that reads
both in few steps and looks up what was prepared for them; written as text, since calling a function for each argument
would take longer than the launch itself. What is not found, or must not be repeated, the caller does in full. That way
also raises the errors: nothing here judges arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np

from kittens import plugins
from kittens.arguments import Reader
from kittens.captured import Captured
from kittens.dtypes import DType

#: Calls that a pattern remembers, and patterns that a callable does; when there are more, it begins anew.
CALLS, PATTERNS = 4096, 256

#: Classes of constants of which equal values are the same constant.
_PLAIN = (int, bool, str)
#: Classes of run-time scalars.
NUMBERS = (int, float, np.int32, np.int64, np.float32)


def exact(value: Any) -> Any:
    """A stand-in for a constant, equal for the same constant only: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    kind = type(value)
    if kind is tuple or kind is list:
        return (kind, *map(exact, value))
    if kind is float:
        return (kind, value or str(value))
    if isinstance(value, Mapping):
        return (kind, *((exact(k), exact(v)) for k, v in value.items()))
    try:
        hash(value)
    except TypeError:
        return object()  # which is equal to nothing
    return (kind, value)


def is_constant(value: Any) -> bool:
    """Whether a value of this class is a constant wherever it is given."""
    return value is None or isinstance(
        value, (bool, int, float, str, bytes, tuple, Mapping, type, DType, np.generic, np.dtype)
    )


@dataclass(frozen=True)
class Read:
    """How an argument is read, as expressions in its own name `{x}`: its part of the key, and the value that a call passes on.

    Each may be empty. refused: when the call may not be repeated. address: the value is an array's address.
    """

    key: tuple[str, ...] = ()
    value: str = ""
    refused: str = ""
    address: bool = False
    names: Mapping[str, Any] = field(default_factory=dict)


def constant(kind: type) -> Read:
    """How a constant of a class is read."""
    if kind is float:
        return Read(("{x} or str({x})",))
    if kind is DType:
        return Read(("{x}.name",))
    if kind is type(None):
        return Read()
    return Read(("{x}",)) if kind in _PLAIN else Read(("kt_exact({x})",))


def number(kind: type, constant: bool, finite: bool = False) -> Read:
    """How a run-time scalar of a class is read. constant: its value decides what is launched. finite: no other is taken."""
    refused = f"not -{2**63} <= {{x}} < {2**63}" if kind is int else ""
    if finite and kind in (float, np.float32):
        refused = "{x} - {x} != 0"
    key = "{x} or str({x})" if kind in (float, np.float32) else "{x}"
    return Read((key,) if constant else (), "{x}", refused)


def array(x: Any) -> Read | None:
    """How arrays of the class of `x` are read; None if their backend does not say."""
    reader = plugins.manager().hook.kittens_reader(array=x)
    if reader is None:
        return None
    return Read(reader.key, reader.address, address=True, names=reader.names)


def address(reader: Reader, x: Any) -> int:
    """The address of an array's first element."""
    return int(eval(reader.address.format(x="x"), {**reader.names, "x": x}))


#: What parameters hold that were not given.
MISSING: Any = object()

Look = Callable[[tuple[Any, ...], Any, dict[str, Any]], Any]


class Pattern:
    """Calls of one pattern.

    kinds: classes of the arguments, those in `args` and then those in `named`. reads: how each is read. tail: the lines
    that repeat a call, in a function in which `kt_found` is what was remembered, `kt_v0`, `kt_v1`, ... are the values passed
    on, and `a0`, ..., `n0`, ... the arguments.
    """

    def __init__(
        self, kinds: Sequence[type], names: Sequence[str], on: Any, reads: Sequence[Read], tail: Sequence[str]
    ):
        self.kinds, self.names, self.on, self.reads, self.tail = kinds, names, on, reads, tail
        self.calls: dict[Any, Any] = {}
        self.pairs: set[tuple[int, int]] = set()  # of values: addresses of arrays that must not share memory
        self.direct: Callable[..., Any] | None = None
        listed = [f"a{i}" for i in range(len(kinds) - len(names))]
        given = [*listed, *(f"n{i}" for i in range(len(names)))]
        lines, key, values = self._lines(given)
        self._nothing = (*(MISSING for _ in key), None)
        #: the key of the call found last, and what was found
        self.latest = [self._nothing]
        guard = _unpacked(listed, given[len(listed) :], names, on)
        guard += _unless([f"type({x}) is not kt_kind{i}" for i, x in enumerate(given)], "None")
        refused = _unless(self._refused(given), "None")
        scope = self._scope()
        header = ["def {}(args, on, named):"]
        read = [*header, *guard, *lines, *refused, f"return {_tuple(key)}, {_tuple(values)}"]
        self.read: Look = _function("read", read, scope)
        look = [*header, *guard, *lines, *refused, *_find(key, "None"), *tail]
        self.look: Look = _function("look", look, scope)

    def remember(self, key: Any, call: Any) -> None:
        """Keep what repeats a call."""
        if len(self.calls) >= CALLS:
            self.calls.clear()
        self.calls[key] = call
        self.latest[0] = self._nothing

    def write_direct(
        self, positional: int, constants: Sequence[str], captured: Captured, whole: Callable[..., Any]
    ) -> None:
        """Write `direct`: a function that is called with the arguments themselves, of which up to `positional` are given by
        place, and that also looks whether all that was captured is what it was. What it cannot do, it leaves to `whole`.
        """
        named = set(self.names)
        if not named <= set(constants) or any(n.startswith("kt_") or not n.isidentifier() for n in constants):
            return
        count = len(self.kinds) - len(self.names)
        listed = [f"kt_a{i}" for i in range(positional)]
        given = [*listed[:count], *self.names]
        places = {f"a{i}": f"kt_a{i}" for i in range(count)} | {f"n{i}": n for i, n in enumerate(self.names)}
        lines, key, _ = self._lines(given)
        # Only what this pattern has is a parameter of its own: what is not given takes time to fill in.
        chosen = [*self.names, *(["on"] if self.on is not None else [])]
        other = (
            f"kt_other({_tuple(listed)}, kt_rest, {{{', '.join(f'{c!r}: {c}' for c in chosen)}}}, kt_named)"
        )
        tests = [f"type({x}) is not kt_kind{i}" for i, x in enumerate(given)]
        tests += [f"{x} is not kt_missing" for x in listed[count:]]
        tests += ["kt_rest", "kt_named", *(["on != kt_on"] if self.on is not None else [])]
        home, unchanged, names = captured.tests({*constants, "on", "type"})
        guard = _unless(tests, other)
        if unchanged:
            guard += ["try:", f"    kt_changed = not ({' and '.join(unchanged)})"]
            guard += ["except kt_unbound:", "    kt_changed = True", *_unless(["kt_changed"], other)]
        parameters = [*(f"{x}=kt_missing" for x in listed), *(["/"] if listed else []), "*kt_rest"]
        parameters += [*(f"{c}=kt_missing" for c in chosen), "**kt_named"]
        refused = _unless(self._refused(given), other)
        lines = [f"def {{}}({', '.join(parameters)}):", *guard, *lines, *refused, *_find(key, other)]
        lines += [_renamed(line, places).replace("return None", f"return {other}") for line in self.tail]

        def rest(
            given: Sequence[Any], more: Sequence[Any], chosen: dict[str, Any], named: dict[str, Any]
        ) -> Any:
            chosen = {n: v for n, v in chosen.items() if v is not MISSING}
            return whole(*(x for x in given if x is not MISSING), *more, **chosen, **named)

        scope = {**self._scope(), **names, "kt_other": rest, "kt_unbound": (NameError, ValueError)}
        self.direct = _function("direct", lines, scope, home)

    def _lines(self, given: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
        """The lines that read the arguments, and the names of the parts of the key and of the values that they set."""
        lines: list[str] = []
        key: list[str] = []
        values = [f"kt_v{i}" for i in range(sum(bool(r.value) for r in self.reads))]
        places = iter(values)
        listed = [(x, r, next(places) if r.value else "") for x, r in zip(given, self.reads, strict=True)]
        lines += [f"{place} = {r.value.format(x=x)}" for x, r, place in listed if r.value]
        addresses = [place for _, r, place in listed if r.address]
        if addresses:  # how far each is aligned, and nothing if all are as far as matters
            lines.append(f"kt_k0 = ({' | '.join(addresses)}) & 15 and ({' & 15, '.join(addresses)} & 15,)")
            key.append("kt_k0")
        for x, r, _ in listed:
            for part in r.key:
                lines.append(f"kt_k{len(key)} = {part.format(x=x, odd='kt_k0')}")
                key.append(f"kt_k{len(key)}")
        return lines, key, values

    def _refused(self, given: Sequence[str]) -> list[str]:
        return [r.refused.format(x=x) for x, r in zip(given, self.reads, strict=True) if r.refused]

    def _scope(self) -> dict[str, Any]:
        """What the functions use."""
        kinds = {f"kt_kind{i}": kind for i, kind in enumerate(self.kinds)}
        names = {n: v for r in self.reads for n, v in r.names.items()}
        own = {"kt_exact": exact, "kt_on": self.on, "kt_get": self.calls.get, "kt_latest": self.latest}
        return {**names, **kinds, **own, "kt_missing": MISSING, "type": type}


def _unpacked(listed: Sequence[str], named: Sequence[str], names: Sequence[str], on: Any) -> list[str]:
    """Lines that name the arguments, and return None from a call of another pattern."""
    lines = []
    if listed:
        lines += ["try:", f"    {', '.join(listed)}, = args", "except ValueError:", "    return None"]
    other = [] if listed else ["args"]
    other.append(f"len(named) != {len(names)}" if names else "named")
    other.append("on is not None" if on is None else "on != kt_on")
    lines += _unless(other, "None")
    if names:
        taken = [f"    {x} = named[{name!r}]" for x, name in zip(named, names, strict=True)]
        lines += ["try:", *taken, "except KeyError:", "    return None"]
    return lines


def _find(key: Sequence[str], other: str) -> list[str]:
    """Lines that set kt_found to what is remembered for a key; looked for only if the key is not that of the call before."""
    if not key:
        return ["kt_found = kt_get(())", *_unless(["kt_found is None"], other)]
    known = [f"kt_j{i}" for i in range(len(key))]
    differs = " or ".join(f"({k} is not {j} and {k} != {j})" for k, j in zip(key, known, strict=True))
    missing = [f"    {line}" for line in _unless(["kt_found is None"], other)]
    lines = [
        f"{', '.join(known)}, kt_found = kt_latest[0]",
        f"if {differs}:",
        f"    kt_found = kt_get({_tuple(key)})",
    ]
    return [*lines, *missing, f"    kt_latest[0] = ({', '.join(key)}, kt_found)"]


def _unless(conditions: Sequence[str], other: str) -> list[str]:
    return [f"if {' or '.join(conditions)}:", f"    return {other}"] if conditions else []


def _renamed(line: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\b[an]\d+\b", lambda found: names.get(found[0], found[0]), line)


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if parts else ''})"


def _function(
    name: str, lines: Sequence[str], scope: Mapping[str, Any], home: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """The function of these lines, the first of which is its header. It reads names in `scope`, and others in `home`."""
    text = "\n    ".join(
        [f"def make({', '.join(scope)}):", *[lines[0].format(name), *(f"  {line}" for line in lines[1:])]]
    )
    made: dict[str, Any] = {}
    exec(compile(f"{text}\n    return {name}", f"<{name}, written by {__name__}>", "exec"), made)
    make: FunctionType = made["make"]
    if home is not None:
        make = FunctionType(make.__code__, home)
    return make(**scope)


class Calls:
    """The remembered calls of a kernel or an operation.

    latest: the `look` of the pattern that was of use last. It repeats a call of that pattern, or gives None. direct: the
    pattern's own `direct`.
    """

    def __init__(self) -> None:
        self.patterns: dict[Any, Pattern] = {}
        self.latest: Look = _nothing
        self.direct: Callable[..., Any] | None = None

    def other(self, args: tuple[Any, ...], on: Any, named: dict[str, Any]) -> Any:
        """Do what `latest` could not: repeat a call like one that is remembered; None if there is none, or it must not be."""
        if len(self.patterns) < 2:
            return None
        pattern = self.patterns.get(key(args, on, named))
        if pattern is None or pattern.look is self.latest:
            return None
        self._use(pattern)
        return pattern.look(args, on, named)

    def add(self, at: Any, pattern: Pattern) -> Pattern:
        """Remember calls of a pattern too; `at` is what `key` says of them."""
        if at not in self.patterns and len(self.patterns) >= PATTERNS:
            self.clear()
        self.patterns[at] = pattern
        self._use(pattern)
        return pattern

    def _use(self, pattern: Pattern) -> None:
        self.latest, self.direct = pattern.look, pattern.direct

    def clear(self) -> None:
        """Forget every call."""
        self.patterns.clear()
        self.latest, self.direct = _nothing, None


def key(args: tuple[Any, ...], on: Any, named: Mapping[str, Any]) -> Any:
    """What tells the pattern of a call from others; None if `on` is nothing that can be told from others."""
    try:
        hash(on)
    except TypeError:
        return None
    return (type(on), on, *map(type, args), *named, *map(type, named.values()))


def _nothing(args: tuple[Any, ...], on: Any, named: dict[str, Any]) -> None:
    return None
