"""What a kernel reads from around its text: globals and closures, of its own function and of helpers that it calls.

A trace holds their values. Run by Python a kernel sees a name bound anew, so a trace may not outlive the binding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from keyword import iskeyword
from types import CodeType, FunctionType, ModuleType
from typing import Any

from kittens.errors import is_internal

_MISSING = object()
#: Containers are compared by what they hold, one level deep: constants are often kept in them.
_CONTAINERS = (list, dict, set)


@dataclass
class Captured:
    """Bindings that a function depends on, as they were: (namespace or cell, name, value, copy of a container)."""

    bindings: list[tuple[Any, str, Any, Any]] = field(default_factory=list)

    @property
    def current(self) -> bool:
        """Whether every name still has its value."""
        for place, name, value, copied in self.bindings:
            if _now(place, name) is not value or (copied is not None and not _same(copied, value)):
                return False
        return True

    def test(self) -> Callable[[], bool]:
        """A function that says what `current` does, in a fraction of the time."""
        home, tests, names = self.tests(())
        lines = [f"def make({', '.join([*names, 'kt_unbound'])}):", "    def test():", "        try:"]
        lines += [f"            return {' and '.join(tests) or True}", "        except kt_unbound:"]
        lines += ["            return False", "    return test"]
        made: dict[str, Any] = {}
        exec("\n".join(lines), made)
        make: FunctionType = FunctionType(made["make"].__code__, home)
        return make(**names, kt_unbound=(NameError, ValueError))

    def tests(self, taken: Iterable[str]) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
        """Expressions that all hold while every name has its value, for a function that has other uses for the names `taken`.

        They read the names as Python code does, so they cost little. Given before them are the globals that the function
        has to have, and after them what they use besides. They raise NameError or ValueError where a name has no value.
        """
        home = next((place for place, *_ in self.bindings if isinstance(place, dict)), {})
        names: dict[str, Any] = {"kt_now": _now, "kt_same": _same}
        tests = []
        for i, (place, name, value, copied) in enumerate(self.bindings):
            names |= {f"kt_held{i}": value, f"kt_place{i}": place, f"kt_copied{i}": copied}
            known = value is not _MISSING
            own = (
                name not in taken
                and not name.startswith("kt_")
                and name.isidentifier()
                and not iskeyword(name)
            )
            if known and own and place is home:
                tests.append(f"{name} is kt_held{i}")
            elif known and not isinstance(place, dict):
                tests.append(f"kt_place{i}.cell_contents is kt_held{i}")
            else:
                tests.append(f"kt_now(kt_place{i}, {name!r}) is kt_held{i}")
            if copied is not None:
                tests.append(f"kt_same(kt_copied{i}, kt_held{i})")
        return home, tests, names


def captured(function: Any) -> Captured:
    """What a function reads from around its text now."""
    found, seen, todo = Captured(), set(), [function]
    while todo:
        f = todo.pop()
        if not isinstance(f, FunctionType) or id(f) in seen:
            continue
        seen.add(id(f))
        for place, name in _names(f):
            value = _now(place, name)
            if isinstance(value, ModuleType):
                continue
            found.bindings.append(
                (place, name, value, list(_flat(value)) if type(value) in _CONTAINERS else None)
            )
            if isinstance(value, FunctionType) and not is_internal(value.__module__ or ""):
                todo.append(value)
    return found


def _names(f: FunctionType) -> Iterator[tuple[Any, str]]:
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        yield cell, name
    for name in _globals(f.__code__):
        if name in f.__globals__:
            yield f.__globals__, name


def _globals(code: CodeType) -> set[str]:
    """Names of globals (and of attributes, which do no harm) in a code object and those nested in it."""
    inner = [_globals(c) for c in code.co_consts if isinstance(c, CodeType)]
    return set(code.co_names).union(*inner)


def _now(place: Any, name: str) -> Any:
    if isinstance(place, dict):
        return place.get(name, _MISSING)
    try:
        return place.cell_contents
    except ValueError:  # a cell that is not set
        return _MISSING


def _flat(value: Any) -> Iterator[Any]:
    for key in value:
        yield key
        if isinstance(value, dict):
            yield value[key]


def _same(copied: list[Any], value: Any) -> bool:
    now = list(_flat(value))
    return len(now) == len(copied) and all(a is b for a, b in zip(copied, now, strict=True))
