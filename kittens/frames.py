"""What a Python frame holds and does: the little that tracing has to know of CPython.

A loop is traced by running its body with symbolic tiles and comparing the places a program can write to before and
after: local variables, cells of closures, and the contents of the lists, dicts and objects reachable from them.
A place is a `Slot`. Only this module touches frames and bytecode.
"""

from __future__ import annotations

import ctypes
import dis
import inspect
import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

_OPAQUE_MODULES = ("builtins", "kittens", "numpy", "ml_dtypes")


@dataclass(frozen=True)
class Slot:
    """A place that holds one object: a local variable, a cell, or an entry of a list, dict or instance."""

    container: Any
    key: Hashable
    path: str  # how a person would write it: "m", "state[0]", "self.acc"

    @property
    def id(self) -> tuple[int, Hashable]:
        return id(self.container), self.key


def walk(
    frame: FrameType, skip: frozenset[str] = frozenset()
) -> dict[tuple[int, Hashable], tuple[Slot, Any]]:
    """Every slot reachable from a frame's local variables and the globals its code names, with the object in it.

    `skip` names local variables to leave out.
    """
    found: dict[tuple[int, Hashable], tuple[Slot, Any]] = {}
    seen: set[int] = set()

    def put(container: Any, key: Hashable, path: str, value: Any) -> None:
        slot = Slot(container, key, path)
        found[slot.id] = slot, value
        visit(value, path)

    def visit(value: Any, path: str) -> None:
        if isinstance(value, tuple):  # immutable, so its members are part of the slot that holds it
            for i, member in enumerate(value):
                visit(member, f"{path}[{i}]")
            return
        if value is None or isinstance(value, (int, float, str, bytes)) or id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, list):
            for i, member in enumerate(value):
                put(value, i, f"{path}[{i}]", member)
        elif isinstance(value, dict):
            for key, member in list(value.items()):
                put(value, key, f"{path}[{key!r}]", member)
        elif isinstance(value, FunctionType):
            visit_function(value, path)
        elif isinstance(value, MethodType):
            visit(value.__self__, f"{path}.__self__")
            visit(value.__func__, path)
        elif isinstance(getattr(value, "func", None), FunctionType) and hasattr(
            value, "keywords"
        ):  # functools.partial
            visit(value.func, path)
            visit(value.args, path)
            visit(value.keywords, path)
        elif _has_state(value):
            for name, member in list(vars(value).items()):
                put(vars(value), name, f"{path}.{name}", member)

    def visit_function(function: FunctionType, path: str) -> None:
        if _opaque(function.__module__):
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                put(cell, "cell", name, cell.cell_contents)
            except ValueError:  # not yet assigned
                continue
        visit(function.__defaults__ or (), path)
        visit_globals(function.__code__, function.__globals__)

    def visit_globals(code: CodeType, scope: dict[str, Any]) -> None:
        for name in code.co_names:
            if name in scope and not isinstance(scope[name], (ModuleType, type)):
                visit(scope[name], name)

    for name, value in dict(frame.f_locals).items():
        if name not in skip:
            put(frame, name, name, value)
    visit_globals(frame.f_code, frame.f_globals)
    return found


def _opaque(module: str | None) -> bool:
    return (
        module is not None
        and module.split(".")[0] in _OPAQUE_MODULES
        and not module.startswith("kittens.kernels")
    )


def _has_state(value: Any) -> bool:
    """Whether an object is an instance of somebody's class whose attributes a loop may change."""
    kind = type(value)
    return (
        not isinstance(value, (ModuleType, type))
        and isinstance(getattr(value, "__dict__", None), dict)
        and not _opaque(kind.__module__)
        and (kind.__module__ not in sys.stdlib_module_names or kind.__name__ == "SimpleNamespace")
    )


def members(value: Any) -> list[Any] | None:
    """The members of a tuple, list or dict, or None for anything else."""
    if isinstance(value, (tuple, list)):
        return list(value)
    return list(value.values()) if isinstance(value, dict) else None


def alike(a: Any, b: Any) -> bool:
    """Whether two containers have one kind and one set of keys."""
    return type(a) is type(b) and len(a) == len(b) and (not isinstance(a, dict) or list(a) == list(b))


def rebuild(like: Any, new: list[Any]) -> Any:
    """A container of the kind of `like` with other members."""
    if isinstance(like, dict):
        return dict(zip(like, new))
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(*new)
    return type(like)(new)


def write(changes: list[tuple[Slot, Any]]) -> None:
    """Put objects into slots."""
    frames: dict[int, tuple[FrameType, dict[str, Any]]] = {}
    for slot, value in changes:
        container = slot.container
        if isinstance(container, FrameType):
            frames.setdefault(id(container), (container, {}))[1][str(slot.key)] = value
        elif isinstance(container, CellType):
            container.cell_contents = value
        else:
            container[slot.key] = value
    for frame, values in frames.values():
        _write_locals(frame, values)


def _write_locals(frame: FrameType, values: dict[str, Any]) -> None:
    scope = frame.f_locals
    scope.update(values)
    if sys.version_info < (3, 13):  # from 3.13 on, f_locals writes through (PEP 667)
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


@dataclass(frozen=True)
class CodeFacts:
    """What the bytecode of a code object says, by byte offset of an instruction.

    stores: the variable that the result of the instruction is assigned to, where it goes straight into one.
    iterates: offsets at which a `for` statement or comprehension calls iter().
    collects: offsets of FOR_ITER that belong to a comprehension (its results would be lost).
    """

    stores: dict[int, str]
    iterates: frozenset[int]
    collects: frozenset[int]


_facts: dict[CodeType, CodeFacts] = {}


def code_facts(code: CodeType) -> CodeFacts:
    """The `CodeFacts` of a code object, computed once."""
    facts = _facts.get(code)
    if facts is None:
        facts = _facts[code] = _read(code)
    return facts


def _read(code: CodeType) -> CodeFacts:
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG", "NOP")]
    stores: dict[int, str] = {}
    iterates: set[int] = set()
    collects: set[int] = set()
    for this, following in zip(instructions, instructions[1:]):
        if following.opname.startswith("STORE_") and following.opname not in (
            "STORE_SUBSCR",
            "STORE_ATTR",
            "STORE_SLICE",
        ):
            name = following.argval[0] if isinstance(following.argval, tuple) else following.argval
            # A call to a Python function leaves the frame at the last inline cache of the CALL.
            stores.update(dict.fromkeys(range(this.offset, following.offset, 2), str(name)))
        if this.opname == "GET_ITER":
            iterates.add(this.offset)
    loops = [(i.offset, i.argval) for i in instructions if i.opname == "FOR_ITER"]
    for i in instructions:
        if i.opname in ("LIST_APPEND", "SET_ADD", "MAP_ADD"):
            # The operand counts what lies on the stack above the collection: one iterator for each loop in between.
            depth = (i.arg or 1) - 1
            around = [start for start, end in loops if start < i.offset < end]
            collects.update(around[-depth:] if depth else [])
    return CodeFacts(stores, frozenset(iterates), frozenset(collects))


def assigned_name(frame: FrameType) -> str:
    """The variable that the expression being evaluated by `frame` will be assigned to, or an empty string."""
    return code_facts(frame.f_code).stores.get(frame.f_lasti, "")


def is_for_statement(frame: FrameType) -> bool:
    """Whether `frame` is now at the iter() of a `for`."""
    return frame.f_lasti in code_facts(frame.f_code).iterates


def is_comprehension(frame: FrameType) -> bool:
    """Whether the FOR_ITER that `frame` is at belongs to a comprehension or a generator."""
    code = frame.f_code
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return True
    return (
        code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>")
        or frame.f_lasti in code_facts(code).collects
    )


def leaves(value: Any) -> Iterator[Any]:
    """The leaves of nested tuples, lists and dicts."""
    inner = members(value)
    if inner is None:
        yield value
    else:
        for member in inner:
            yield from leaves(member)


def map_leaves(value: Any, f: Callable[[Any], Any], containers: tuple[type, ...] = (tuple,)) -> Any:
    """`value` with its leaves replaced; the same object if none changed. Only `containers` are looked into."""
    inner = members(value) if isinstance(value, containers) else None
    if inner is None:
        return f(value)
    new = [map_leaves(member, f, containers) for member in inner]
    return value if all(a is b for a, b in zip(inner, new)) else rebuild(value, new)
