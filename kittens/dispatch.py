"""Calls that were made before: found again by what their arguments are, and repeated on other addresses.

What a call does follows from its *pattern* (the classes of its arguments, which of them are given by name, the target) and
its *key* (of each array all but its address, the values of constants). For each pattern a function is written that reads
both in few steps and looks up what was prepared for them; written as text, since calling a function for each argument
would take longer than the launch itself. What is not found, or must not be repeated, the caller does in full. That way
also raises the errors: nothing here judges arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kittens import plugins
from kittens.arguments import Reader
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

    Each may be empty. refused: when the call may not be repeated. number: the value is an array's address.
    """

    key: str = ""
    value: str = ""
    refused: str = ""
    address: bool = False
    names: Mapping[str, Any] = field(default_factory=dict)


def constant(kind: type) -> Read:
    """How a constant of a class is read."""
    if kind is float:
        return Read("{x} or str({x})")
    if kind is DType:
        return Read("{x}.name")
    if kind is type(None):
        return Read()
    return Read("{x}") if kind in _PLAIN else Read("exact({x})")


def number(kind: type, constant: bool, finite: bool = False) -> Read:
    """How a run-time scalar of a class is read. constant: its value decides what is launched. finite: no other is taken."""
    refused = f"not -{2**63} <= {{x}} < {2**63}" if kind is int else ""
    if finite and kind in (float, np.float32):
        refused = "{x} - {x} != 0"
    key = ("{x} or str({x})" if kind in (float, np.float32) else "{x}") if constant else ""
    return Read(key, "{x}", refused)


def array(x: Any) -> Read | None:
    """How arrays of the class of `x` are read; None if their backend does not say."""
    reader = plugins.manager().hook.kittens_reader(array=x)
    if reader is None:
        return None
    return Read(reader.key, reader.address, address=True, names=reader.names)


_NONE: tuple[Any, Any] = (None, None)


def address(reader: Reader, x: Any) -> int:
    """The address of an array's first element."""
    return int(eval(reader.address.format(x="x"), {**reader.names, "x": x}))


class Pattern:
    """Calls of one pattern.

    reads: how each argument is read, those in `args` and then those in `named`. tail: the lines that repeat a call, in a
    function in which `found` is what was remembered and `v0`, `v1`, ... are the values passed on.
    """

    def __init__(
        self, kinds: Sequence[type], names: Sequence[str], on: Any, reads: Sequence[Read], tail: Sequence[str]
    ):
        self.calls: dict[Any, Any] = {}
        self.pairs: set[tuple[int, int]] = set()  # of values: addresses of arrays that must not share memory
        listed = [f"a{i}" for i in range(len(kinds) - len(names))]
        given = [*listed, *(f"n{i}" for i in range(len(names)))]
        #: the key of the call found last, and what was found
        self.latest = latest = [_NONE]
        scope: dict[str, Any] = {"exact": exact, "wanted": on, "get": self.calls.get, "latest": latest}
        scope |= {f"{x}_kind": kind for x, kind in zip(given, kinds, strict=True)}
        guard = _unpacked(listed, given[len(listed) :], names, on)
        if given:
            guard += _unless(f"type({x}) is not {x}_kind" for x in given)
        values: list[str] = []
        key: list[str] = []
        refused: list[str] = []
        for x, read in zip(given, reads, strict=True):
            scope |= read.names
            if read.value:
                guard.append(f"v{len(values)} = {read.value.format(x=x)}")
                key += [f"v{len(values)} & 15"] if read.address else []
                values.append(f"v{len(values)}")
            key += [read.key.format(x=x)] if read.key else []
            refused += [read.refused.format(x=x)] if read.refused else []
        guard += _unless(refused) if refused else []
        guard.append(f"key = {_tuple(key)}")
        self.read = _function("read", [*guard, f"return key, {_tuple(values)}"], scope)
        find = [
            "known, found = latest[0]",
            "if key != known:",
            "    found = get(key)",
            "    if found is None:",
        ]
        find += ["        return None", "    latest[0] = (key, found)"]
        self.look = _function("look", [*guard, *find, *tail], scope)

    def remember(self, key: Any, call: Any) -> None:
        """Keep what repeats a call."""
        if len(self.calls) >= CALLS:
            self.calls.clear()
        self.calls[key] = call
        self.latest[0] = _NONE


def _unpacked(listed: Sequence[str], named: Sequence[str], names: Sequence[str], on: Any) -> list[str]:
    """Lines that name the arguments, and return None from a call of another pattern."""
    lines = []
    if listed:
        lines += ["try:", f"    {', '.join(listed)}, = args", "except ValueError:", "    return None"]
    other = [] if listed else ["args"]
    other.append(f"len(named) != {len(names)}" if names else "named")
    other.append("on is not None" if on is None else "on != wanted")
    lines += _unless(other)
    if names:
        taken = [f"    {x} = named[{name!r}]" for x, name in zip(named, names, strict=True)]
        lines += ["try:", *taken, "except KeyError:", "    return None"]
    return lines


def _unless(conditions: Iterable[str]) -> list[str]:
    return [f"if {' or '.join(conditions)}:", "    return None"]


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if parts else ''})"


Look = Callable[[tuple[Any, ...], Any, dict[str, Any]], Any]


def _function(name: str, lines: Sequence[str], scope: Mapping[str, Any]) -> Look:
    """The function of these lines. What they use is bound as defaults of parameters, which are read fastest."""
    used = ", ".join(f"{n}={n}" for n in scope)
    text = "\n    ".join([f"def {name}(args, on, named, {used}):", *lines])
    made: dict[str, Any] = {}
    exec(compile(text, f"<{name}, written by {__name__}>", "exec"), dict(scope), made)
    return made[name]


class Calls:
    """The remembered calls of a kernel or an operation.

    latest: the `look` of the pattern that was of use last. It repeats a call of that pattern, or gives None.
    """

    def __init__(self) -> None:
        self.patterns: dict[Any, Pattern] = {}
        self.latest: Look = _nothing

    def other(self, args: tuple[Any, ...], on: Any, named: dict[str, Any]) -> Any:
        """Do what `latest` could not: repeat a call like one that is remembered; None if there is none, or it must not be."""
        if len(self.patterns) < 2:
            return None
        pattern = self.patterns.get(key(args, on, named))
        if pattern is None or pattern.look is self.latest:
            return None
        self.latest = pattern.look
        return pattern.look(args, on, named)

    def add(self, at: Any, pattern: Pattern) -> Pattern:
        """Remember calls of a pattern too; `at` is what `key` says of them."""
        if len(self.patterns) >= PATTERNS:
            self.clear()
        self.patterns[at] = pattern
        self.latest = pattern.look
        return pattern

    def clear(self) -> None:
        """Forget every call."""
        self.patterns.clear()
        self.latest = _nothing


def key(args: tuple[Any, ...], on: Any, named: Mapping[str, Any]) -> Any:
    """What tells the pattern of a call from others; None if `on` is nothing that can be told from others."""
    try:
        hash(on)
    except TypeError:
        return None
    return (type(on), on, *map(type, args), *named, *map(type, named.values()))


def _nothing(args: tuple[Any, ...], on: Any, named: dict[str, Any]) -> None:
    return None
