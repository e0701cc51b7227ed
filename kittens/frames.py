"""What a Python program can reach and change: the little that tracing has to know of CPython.

A loop is traced by running its body with symbolic tiles and comparing the places a program can write to
before and after: local variables, cells of closures, globals that the code names, and the contents of the
lists, dicts and objects reachable from them. A place is a `Slot`. State that can be compared but not written
(iterators, sets, arrays) is a `Mark`. Only this module touches frames and bytecode.
"""

from __future__ import annotations

import array
import collections
import copy
import ctypes
import dis
import functools
import gc
import inspect
import itertools
import operator
import os
import random
import sys
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from kittens.errors import is_internal

#: A slot by identity of its container, and by its key in there.
Key = tuple[int, Hashable]


@dataclass(frozen=True)
class Slot:
    """A place that holds one object: a local variable, a cell, or an entry of a list, dict or instance."""

    container: Any
    key: Hashable
    path: str  # how a person would write it: "m", "state[0]", "self.acc"

    @property
    def id(self) -> Key:
        return id(self.container), self.key


@dataclass(frozen=True)
class Mark:
    """State that can only be compared: `state` lists what an object holds, or where an iterator stands."""

    owner: Any  # kept alive, so that its id stays its own
    path: str
    state: list[Any]

    def same(self, other: Mark) -> bool:
        return len(self.state) == len(other.state) and all(map(unchanged, self.state, other.state))


@dataclass
class Reach:
    """All that a frame can reach: slots with the objects in them, marks, and the containers and code met
    on the way.
    """

    slots: dict[Key, tuple[Slot, Any]] = field(default_factory=dict)
    marks: dict[int, Mark] = field(default_factory=dict)
    containers: dict[int, tuple[str, frozenset[Hashable]]] = field(default_factory=dict)  # path and keys
    codes: set[CodeType] = field(default_factory=set)


def unchanged(a: Any, b: Any) -> bool:
    """Whether two objects are one, or equal and immutable, so that one may stand for the other."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is float:
        return a.hex() == b.hex()
    return type(a) in (int, str, bytes, bool) and a == b


def walk(frame: FrameType, skip: frozenset[str] = frozenset()) -> Reach:
    """Everything reachable from a frame's local variables and the globals its code names.

    `skip` names local variables to leave out.
    """
    walker = _Walker(frame)
    scope = frame.f_locals
    whole = frame if frame.f_code.co_flags & inspect.CO_OPTIMIZED else scope
    for name, value in list(scope.items()):
        if name not in skip and not name.startswith("."):
            walker.put(whole, name, name, value)
    walker.globals_of(frame.f_code, frame.f_globals)
    return walker.reach


class _Walker:
    def __init__(self, frame: FrameType):
        self.frame = frame
        self.package = _root(frame.f_globals.get("__name__"))
        self.cells = {*frame.f_code.co_cellvars, *frame.f_code.co_freevars}
        self.reach = Reach()
        self.seen: set[int] = set()

    def put(self, container: Any, key: Hashable, path: str, value: Any) -> None:
        slot = Slot(container, key, path)
        self.reach.slots[slot.id] = slot, value
        self.visit(value, path)

    def visit(self, value: Any, path: str) -> None:
        handle = _handler(_kind(value))
        if handle is None:
            return
        if handle is not _Walker.walk_tuple:
            if id(value) in self.seen:
                return
            self.seen.add(id(value))
        handle(self, value, path)

    def mark(self, value: Any, path: str, state: Iterable[Any]) -> None:
        self.reach.marks[id(value)] = Mark(value, path, list(state))

    def walk_tuple(self, value: Any, path: str) -> None:
        for i, member in enumerate(value):  # immutable, so its members are part of the slot that holds it
            self.visit(member, f"{path}[{i}]")

    def contains(self, container: Any, path: str, keys: Iterable[Hashable]) -> None:
        self.reach.containers[id(container)] = path, frozenset(keys)

    def walk_list(self, value: Any, path: str) -> None:
        self.contains(value, path, range(len(value)))
        for i, member in enumerate(value):
            self.put(value, i, f"{path}[{i}]", member)
        self.attributes(value, path)

    def walk_dict(self, value: Any, path: str) -> None:
        self.contains(value, path, dict.keys(value))
        self.mark(value, path, dict.keys(value))  # the order counts
        for key, member in list(dict.items(value)):
            self.put(value, key, f"{path}[{key!r}]", member)
        self.attributes(value, path)

    def walk_object(self, value: Any, path: str) -> None:
        self.attributes(value, path)
        self.visit(type(value), type(value).__name__)

    def attributes(self, value: Any, path: str) -> None:
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self.contains(own, path, own)
            for name, member in list(own.items()):
                self.put(own, name, f"{path}.{name}", member)
        named = {n: m for n in _slot_names(_kind(value)) if (m := _attribute(value, n)) is not _MISSING}
        if named:
            self.contains(value, path, named)
        for name, member in named.items():
            self.put(value, name, f"{path}.{name}", member)

    def walk_type(self, value: Any, path: str) -> None:
        self.contains(value, path, vars(value))
        for name, member in list(vars(value).items()):
            if type(member) in (staticmethod, classmethod):
                member = member.__func__
            if type(member) is FunctionType:
                if _root(member.__module__) == self.package:
                    self.visit(member, f"{path}.{name}")
            elif type(member) is property:
                self.visit((member.fget, member.fset), f"{path}.{name}")
            elif not (name.startswith("__") or hasattr(type(member), "__get__")):
                self.put(value, name, f"{path}.{name}", member)
        self.visit(value.__bases__, path)

    def function(self, value: FunctionType, path: str) -> None:
        if _opaque(value.__module__):
            return
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            self.cell(name, cell)
        self.visit(value.__defaults__ or (), path)
        self.visit(value.__kwdefaults__ or (), path)
        if value.__dict__:
            self.attributes(value, path)
        if _root(value.__module__) == self.package:
            self.globals_of(value.__code__, value.__globals__)

    def cell(self, name: str, cell: CellType) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # not yet assigned
            return
        if name in self.cells and self._is_local(name, cell, value):
            self.visit(value, name)
        else:
            self.put(cell, "cell", name, value)

    def _is_local(self, name: str, cell: CellType, value: Any) -> bool:
        """Whether a cell is that of a local variable of the frame, and so in the frame's slots."""
        if self.frame.f_locals.get(name) is not value:
            return False
        probe = object()
        cell.cell_contents = probe
        same = self.frame.f_locals.get(name) is probe
        cell.cell_contents = value
        if sys.version_info < (3, 13):
            _ = self.frame.f_locals  # refreshes the snapshot
        return same

    def method(self, value: Any, path: str) -> None:
        self.visit(value.__self__, path)
        self.visit(getattr(value, "__func__", None), path)

    def partial(self, value: Any, path: str) -> None:
        self.visit((value.func, value.args, value.keywords), path)

    def wrapper(self, value: Any, path: str) -> None:
        self.attributes(value, path)  # lru_cache and other wrappers: __wrapped__

    def globals_of(self, code: CodeType, scope: dict[str, Any]) -> None:
        if code in self.reach.codes:
            return
        self.reach.codes.add(code)
        self.contains(scope, "the module's globals", scope)
        for name in _names(code):
            if name not in scope:
                continue
            value = scope[name]
            if value is random:
                self.visit(random._inst, name)
            elif type(value) is not ModuleType:
                self.put(scope, name, name, value)
            elif _root(value.__name__) == self.package:
                for inner in _names(code):
                    if inner in vars(value):
                        self.put(vars(value), inner, f"{name}.{inner}", vars(value)[inner])

    def members(self, value: Any, path: str) -> None:
        self.mark(value, path, sorted(map(id, value)))

    def walk_bytes(self, value: Any, path: str) -> None:
        state = bytes(value)
        if type(value) is np.ndarray:
            state = b"%r" % [value.shape, value.dtype.str] + state
        self.mark(value, path, [state])

    def objects(self, value: Any, path: str) -> None:
        self.mark(value, path, value.flat)

    def walk_random(self, value: Any, path: str) -> None:
        state = value.getstate() if isinstance(value, random.Random) else value.bit_generator.state
        self.mark(value, path, [repr(state)])

    def generator(self, value: GeneratorType[Any, Any, Any], path: str) -> None:
        inner = value.gi_frame
        if inner is None:
            self.mark(value, path, [])
            return
        self.mark(value, path, [inner.f_lasti, *inner.f_locals.values()])
        self.visit(tuple(inner.f_locals.values()), path)

    def iterator(self, value: Any, path: str) -> None:
        text = repr(value)
        within = [x for x in gc.get_referents(value) if not isinstance(x, type)]
        counts = [len(x) if isinstance(x, (list, tuple)) else 0 for x in within]
        self.mark(
            value, path, ["" if " at 0x" in text else text, operator.length_hint(value, -1), *within, *counts]
        )
        self.visit(tuple(x for x in within if hasattr(x, "__next__")), path)


_HANDLERS: dict[type, Callable[[_Walker, Any, str], None]] = {
    FunctionType: _Walker.function,
    MethodType: _Walker.method,
    BuiltinFunctionType: _Walker.method,
    functools.partial: _Walker.partial,
    GeneratorType: _Walker.generator,
    bytearray: _Walker.walk_bytes,
    array.array: _Walker.walk_bytes,
    np.ndarray: lambda w, x, path: w.objects(x, path) if x.dtype.hasobject else w.walk_bytes(x, path),
    np.random.Generator: _Walker.walk_random,
    np.random.RandomState: lambda w, x, path: w.mark(x, path, [repr(x.get_state(legacy=False))]),
    type(functools.cache(len)): _Walker.wrapper,
}
_ATOMS = (type(None), int, float, complex, str, bytes, bool, range, slice, frozenset, ModuleType, CodeType)
#: Modules of the standard library whose instances hold what a program puts into them.
_HOLDERS = ("collections", "types", "argparse", "functools")


def _kind(value: Any) -> Any:
    """type(value), which mypy does not take for hashable."""
    return type(value)


@functools.cache
def _handler(kind: Any) -> Callable[[_Walker, Any, str], None] | None:
    """How to walk instances of a class; None for what holds no state that a program changes."""
    module = getattr(kind, "__module__", None)
    if kind in _ATOMS or is_internal(module or ""):
        return None
    if kind in _HANDLERS:
        return _HANDLERS[kind]
    for base, handle in (
        (tuple, _Walker.walk_tuple),
        (list, _Walker.walk_list),
        (collections.deque, _Walker.walk_list),
        (dict, _Walker.walk_dict),
        (set, _Walker.members),
        (random.Random, _Walker.walk_random),
    ):
        if issubclass(kind, base):
            return handle
    if issubclass(kind, type):
        return lambda walker, value, path: (
            None if _foreign(value.__module__) else walker.walk_type(value, path)
        )
    if hasattr(kind, "__next__") and _foreign(module):
        return _Walker.iterator
    if _opaque(module) or (_foreign(module) and _root(module) not in _HOLDERS):
        return None
    return _Walker.walk_object


@functools.cache
def _slot_names(kind: Any) -> tuple[str, ...]:
    """The names in the `__slots__` of a class and its bases."""
    names: list[str] = []
    for base in kind.__mro__:
        given = vars(base).get("__slots__", ()) if not _foreign(base.__module__) else ()
        for name in (given,) if isinstance(given, str) else given:
            private = name.startswith("__") and not name.endswith("__")
            names.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return tuple(n for n in names if n not in ("__dict__", "__weakref__"))


@functools.cache
def _names(code: CodeType) -> tuple[str, ...]:
    """The names of globals and attributes in a code object and those nested in it."""
    inner = [name for c in code.co_consts if isinstance(c, CodeType) for name in _names(c)]
    return tuple(dict.fromkeys((*code.co_names, *inner)))


_MISSING = object()
_STDLIB = os.path.dirname(dis.__file__)


def _attribute(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return _MISSING


def _root(module: str | None) -> str:
    return (module or "").split(".")[0]


def _opaque(module: str | None) -> bool:
    return _root(module) in ("builtins", "numpy", "ml_dtypes") or is_internal(module or "")


def _foreign(module: str | None) -> bool:
    return _opaque(module) or (_root(module) in sys.stdlib_module_names and module != "__main__")


def is_object(value: Any) -> bool:
    """Whether a value is an instance of somebody's class, with attributes."""
    return _handler(_kind(value)) is _Walker.walk_object


def is_container(value: Any) -> bool:
    """Whether a value has members: a tuple, list, dict or object."""
    return issubclass(type(value), (tuple, list, dict)) or is_object(value)


def members(value: Any) -> list[Any]:
    """The members of a container."""
    kind = type(value)
    if issubclass(kind, (tuple, list)):
        return list(value)
    if issubclass(kind, dict):
        return list(dict.values(value))
    return [getattr(value, name, None) for name in _attribute_names(value)]


def alike(a: Any, b: Any) -> bool:
    """Whether two containers have one kind and one set of keys."""
    if type(a) is not type(b):
        return False
    if issubclass(type(a), (tuple, list)):
        return len(a) == len(b)
    if issubclass(type(a), dict):
        return list(a) == list(b)
    return _attribute_names(a) == _attribute_names(b)


def rebuild(like: Any, new: list[Any]) -> Any:
    """A container of the kind of `like` with other members."""
    kind = type(like)
    if issubclass(kind, tuple):
        return tuple.__new__(kind, new)
    out = copy.copy(like)
    if issubclass(kind, list):
        out[:] = new
    elif issubclass(kind, dict):
        for key, value in zip(like, new, strict=True):
            dict.__setitem__(out, key, value)
    else:
        for name, value in zip(_attribute_names(like), new, strict=True):
            object.__setattr__(out, name, value)
    return out


def _attribute_names(value: Any) -> list[str]:
    return [*getattr(value, "__dict__", ()), *_slot_names(_kind(value))]


def write(changes: list[tuple[Slot, Any]]) -> None:
    """Put objects into slots."""
    frames: dict[int, tuple[FrameType, dict[str, Any]]] = {}
    for slot, value in changes:
        container, key = slot.container, slot.key
        if isinstance(container, FrameType):
            frames.setdefault(id(container), (container, {}))[1][str(key)] = value
        elif isinstance(container, CellType):
            container.cell_contents = value
        elif isinstance(container, dict):
            dict.__setitem__(container, key, value)
        elif isinstance(container, (list, collections.deque)) and isinstance(key, int):
            if key < len(container):  # else the list has shrunk, which is refused elsewhere
                container[key] = value
        elif isinstance(container, type):
            type.__setattr__(container, str(key), value)
        else:
            object.__setattr__(container, str(key), value)
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
    for this, following in itertools.pairwise(instructions):
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
            # The operand counts what lies on the stack above the collection: one iterator for each loop in
            # between.
            depth = (i.arg or 1) - 1
            around = [start for start, end in loops if start < i.offset < end]
            collects.update(around[-depth:] if depth else [])
    return CodeFacts(stores, frozenset(iterates), frozenset(collects))


def assigned_name(frame: FrameType) -> str:
    """The variable that the expression being evaluated by `frame` will be assigned to, or an empty string.

    Also where it is none that a person named, such as those that pytest makes of an `assert`.
    """
    name = code_facts(frame.f_code).stores.get(frame.f_lasti, "")
    return name if name.isidentifier() else ""


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


def local_names(frame: FrameType) -> list[str]:
    """The local variables of a function's frame that have a value."""
    optimized = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    return [name for name in frame.f_locals if not name.startswith(".")] if optimized else []


@functools.cache
def compared_names(code: CodeType) -> frozenset[str]:
    """Variables that a code object compares with other variables by `is`; "*" for what is no plain
    variable, and for `id`.
    """
    names: set[str] = set()
    code_list = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG", "NOP")]
    for at, this in enumerate(code_list):
        if this.opname in ("LOAD_GLOBAL", "LOAD_NAME") and this.argval == "id":
            if os.path.dirname(code.co_filename) != _STDLIB:  # the repr of a dataclass asks too
                names.add("*")  # the identity of a tile as a number
        if this.opname != "IS_OP" or (code.co_name.startswith("__") and code.co_name != "__call__"):
            continue
        left, right = code_list[max(0, at - 2)], code_list[at - 1]
        if right.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_NAME")):
            if not left.opname.startswith(("CALL", "PRECALL")):  # not `type(x) is y`
                for i in (left, right):
                    plain = i.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_NAME"))
                    names.update(
                        (i.argval if isinstance(i.argval, tuple) else (str(i.argval),)) if plain else "*"
                    )
        elif right.opname.startswith("BINARY_") or (
            right.opname == "LOAD_ATTR" and right.argval != "dtype" and not str(right.argval).startswith("__")
        ):
            names.add("*")
    return frozenset(names)


def map_leaves(value: Any, f: Callable[[Any], Any], deep: bool = False) -> Any:
    """`value` with its leaves replaced; the same object if none changed.

    The members of tuples are looked into, and with `deep` those of the list, dict or object that `value` is.
    """
    if not (issubclass(type(value), tuple) or (deep and is_container(value))):
        return f(value)
    old = members(value)
    new = [map_leaves(member, f) for member in old]
    return value if all(map(operator.is_, old, new)) else rebuild(value, new)
