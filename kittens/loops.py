"""How a loop or a branch is traced, without its source text.

At the first `next()` of the iterator every place that holds a tile in scope (see `frames`) is given a fresh argument
of the loop's region, and the body runs. At the second `next()` the places are compared: those that hold another tile
now are carried; the rest did not change and get their old values back. A Python integer that changed makes the body run
again with the integer as a carried scalar. Anything else that changed makes it run again with a stand-in in its place
that raises an error when it is read: a mere temporary passes, a variable that Python would carry is refused. At last
the body of a loop runs once more and must give the same IR, so that a body which depends on Python state that tracing
cannot see is refused, never mistraced.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from kittens import frames, opset
from kittens.control import Control, left_early
from kittens.dtypes import DType, int64
from kittens.errors import ControlFlowError, here
from kittens.frames import Slot
from kittens.ir import Op, Region, TileType, Value, same
from kittens.tile import Tile, as_tile, cast

if TYPE_CHECKING:
    from kittens.trace import Trace

#: A slot by identity, and a leaf of its value by number.
Key = tuple[int, Hashable]
_MAX_PASSES = 8


class Stale:
    """Stands in a variable whose Python value changes in a loop and cannot be carried; reading it is an error."""

    def __init__(self, message: str, hint: str):
        self._message = message
        self._hint = hint

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ControlFlowError(self._message, hint=self._hint, location=here())

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        self._refuse()

    __hash__ = object.__hash__


for _name in [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "floordiv",
    "rfloordiv",
    "mod",
    "rmod",
    "matmul",
    "rmatmul",
    "pow",
    "rpow",
    "neg",
    "pos",
    "abs",
    "invert",
    "and",
    "rand",
    "or",
    "ror",
    "xor",
    "rxor",
    "lshift",
    "rlshift",
    "rshift",
    "rrshift",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "bool",
    "index",
    "int",
    "float",
    "len",
    "iter",
    "getitem",
    "setitem",
    "contains",
    "call",
    "str",
    "repr",
    "format",
]:
    setattr(Stale, f"__{_name}__", Stale._refuse)


@dataclass
class Leaf:
    """A tile in a slot that a pass may change: the region's argument for it, what stood there before, and after."""

    argument: Tile
    before: Tile
    after: Tile | None = None


@dataclass
class Pass:
    """One run of the body: its region, the leaves that were given arguments, and what every slot held at the start."""

    region: Region
    leaves: dict[tuple[Key, int], Leaf] = field(default_factory=dict)
    entry: dict[Key, tuple[Slot, Any]] = field(default_factory=dict)


class LoopTrace:
    """The iterator behind a `for` over kt.range or kt.when while tracing. It yields once for each pass over the body."""

    def __init__(self, trace: Trace, control: Control, frame: FrameType):
        self.trace = trace
        self.control = control
        self.frame = frame
        self.targets: frozenset[str] = frozenset()  # the loop variable
        self.original: dict[Key, tuple[Slot, Any]] = {}
        self.integers: dict[Key, DType] = {}  # slots whose Python integer is carried as a scalar of this type
        self.remade: set[Key] = set()  # slots whose list or dict every pass makes anew
        self.stale: dict[Key, Stale] = {}
        self.aliases: set[Key] = set()  # slots that are the same place as another (a cell and its variable)
        self.now: Pass | None = None
        self.settled: Pass | None = None
        self.passes = 0

    def __iter__(self) -> LoopTrace:
        return self

    def __next__(self) -> Tile | None:
        frame = sys._getframe(1)
        if self.now is None:
            if frame is not self.frame or frames.is_comprehension(frame):
                self._refuse(f"{self.control.spelled} in a comprehension or generator",
                             "write a `for` statement; for a list of tiles make the list first and assign its entries")  # fmt: skip
            self.targets = frozenset({frames.assigned_name(frame)} - {""})
            self.original = self._walk()
            return self._begin()
        if not self.trace.loops or self.trace.loops[-1] is not self:
            raise left_early(self.trace.loops[-1].control if self.trace.loops else self.control)
        return self._end(self.now)

    def _walk(self) -> dict[Key, tuple[Slot, Any]]:
        return frames.walk(self.frame, self.targets)

    def _refuse(self, message: str, hint: str) -> NoReturn:
        raise ControlFlowError(message, hint=hint, location=self.control.location)

    # A pass begins: places that hold tiles are given arguments.

    def _begin(self) -> Tile | None:
        self.passes += 1
        if self.passes > _MAX_PASSES:
            self._refuse(
                "what this loop carries does not settle",
                "give every carried variable its final type before the loop",
            )
        this = self.now = Pass(Region())
        index = None
        if self.control.name == "loop":
            value = self.trace.define(Value(TileType(int64), next(iter(self.targets), "")), this.region)
            this.region.args.append(value)
            index = Tile(TileType(int64), value, self.trace)
        changes = [
            (slot, self._at_start(this, key, slot, value))
            for key, (slot, value) in self.original.items()
            if key not in self.aliases
        ]
        frames.write(changes)
        this.entry = self._walk()
        for slot, new in changes:
            if slot.id in this.entry and this.entry[slot.id][1] is not new:
                self.aliases.add(slot.id)
        for key, number in [k for k in this.leaves if k[0] in self.aliases]:
            this.region.args.remove(this.leaves.pop((key, number)).argument.value)
        self.trace.loops.append(self)
        self.trace.regions.append(this.region)
        return index

    def _at_start(self, this: Pass, key: Key, slot: Slot, value: Any) -> Any:
        """What stands in a slot at the start of a pass: its value, with fresh arguments for tiles that may change."""
        if key in self.stale:
            return self.stale[key]
        number = -1

        def argument(leaf: Any) -> Any:
            nonlocal number
            number += 1
            if self.settled is not None and (key, number) not in self.settled.leaves:
                return leaf
            if key in self.integers and (_is_int(leaf) or isinstance(leaf, Tile)):
                before = cast(as_tile(leaf, self.integers[key]), self.integers[key])
            elif (
                isinstance(leaf, Tile)
                and leaf.executor is self.trace
                and leaf.known is None
                and self.trace.in_scope(leaf.value)
            ):
                before = leaf
            else:
                return leaf
            name = slot.path if slot.path.isidentifier() else before.value.name
            value = self.trace.define(Value(before.type, name), this.region)
            this.region.args.append(value)
            this.leaves[key, number] = Leaf(Tile(before.type, value, self.trace), before)
            return this.leaves[key, number].argument

        return frames.map_leaves(value, argument, self._containers(key))

    def _containers(self, key: Key) -> tuple[type, ...]:
        """What counts as part of a slot's value: tuples, and a list or dict that every pass makes anew."""
        return (tuple, list, dict) if key in self.remade else (tuple,)

    # A pass ends: places are compared.

    def _end(self, this: Pass) -> Tile | None:
        again = self._compare(this, self._walk())
        if not again:
            self._keep_changed(this)
            this.region.ops.append(
                Op(
                    "yield",
                    [_after(x).value for x in this.leaves.values()],
                    {},
                    [],
                    location=self.control.location,
                )
            )
        self.trace.loops.pop()
        self.trace.regions.pop()
        if again:
            self.settled = None
        elif self.settled is None and self.control.name == "loop":
            self.settled = this
        elif self.settled is not None and not same(self.settled.region, this.region):
            self._refuse(
                f"the body of {self.control.spelled} gives other operations when it runs again",
                "it depends on Python state that changes from pass to pass (a counter, an iterator, a global, a random number): "
                "make that a tile, or loop over Python constants",
            )
        else:
            self._emit(this)
            raise StopIteration
        frames.write(list(self.original.values()))
        return self._begin()

    def _compare(self, this: Pass, after: dict[Key, tuple[Slot, Any]]) -> bool:
        """Note what each slot holds after a pass. True if the body has to run again with more known about the slots."""
        again = False
        for key, (slot, value) in this.entry.items():
            if key not in self.original or key in self.stale or key in self.aliases:
                continue
            if key not in after:
                self._refuse(
                    f"{slot.path} disappears in the body of {self.control.spelled}",
                    "tiles in a list or dict can be replaced, not removed or moved",
                )
            if after[key][1] is not value:
                again |= self._changed(this, key, slot, value, after[key][1])
        containers = {
            id(slot.container) for slot, _ in this.entry.values() if slot.container is not self.frame
        }
        for key, (slot, _) in after.items():
            if key not in this.entry and id(slot.container) in containers:
                self._refuse(f"{slot.path} appears in the body of {self.control.spelled}: a list, dict or object grows",
                             "make it before the loop with all its entries, and replace them")  # fmt: skip
        return again

    def _changed(self, this: Pass, key: Key, slot: Slot, value: Any, new: Any) -> bool:
        """Settle one slot whose content changed. True if the body has to run again."""
        where = self.control.spelled
        if isinstance(new, (list, dict)) and key not in self.remade and type(value) is type(new):
            if self._alone(self.original, self.original[key][1]) and self._alone(self._walk(), new):
                self.remade.add(key)
                return True
        if not _same_structure(value, new, self._containers(key)):
            return self._spoil(key, slot, f"{slot.path} is {_describe(value)} before {where} and {_describe(new)} after a pass",
                               "give it the form before the loop that it has after a pass, held by no other variable")  # fmt: skip
        pairs = zip(_leaves(value, self._containers(key)), _leaves(new, self._containers(key)))
        for number, (old, leaf) in enumerate(pairs):
            if old is leaf or _equal_constants(old, leaf):
                continue
            place = this.leaves.get((key, number))
            if place is None and key not in self.integers and _is_integer(old) and _is_integer(leaf):
                self.integers[key] = (
                    leaf.dtype if isinstance(leaf, Tile) else old.dtype if isinstance(old, Tile) else int64
                )
                return True
            if place is None:
                start = (
                    f"kt.full({leaf.shape}, {old!r}, kt.{leaf.dtype})"
                    if isinstance(leaf, Tile) and isinstance(old, (int, float))
                    else "a tile"
                )
                return self._spoil(key, slot, f"{slot.path} is {_describe(old)} before {where} and {_describe(leaf)} after a pass",
                                   f"only tiles and integers are carried from pass to pass: start with {start}")  # fmt: skip
            if _is_int(leaf) and place.before.dtype.is_integer and place.before.shape == ():
                leaf = as_tile(leaf, place.before.dtype)
            if not isinstance(leaf, Tile) or leaf.type != place.before.type:
                return self._spoil(key, slot, f"{slot.path} is {_describe(place.before)} before {where} and {_describe(leaf)} after a pass",
                                   "a carried variable keeps its type: convert with .to(...), or give it that type before the loop")  # fmt: skip
            if not self.trace.in_scope(leaf.value):
                return self._spoil(
                    key,
                    slot,
                    f"{slot.path} holds a tile of an inner loop that has ended",
                    "give the tile a first value before the inner loop",
                )
            place.after = leaf
        return False

    def _alone(self, slots: dict[Key, tuple[Slot, Any]], container: Any) -> bool:
        """Whether one variable alone holds a list or dict, and that holds no lists or dicts itself."""
        holders = sum(_holds(value, container) for _, value in slots.values())
        return holders == 1 and not any(isinstance(x, (list, dict)) for x in frames.members(container) or [])

    def _spoil(self, key: Key, slot: Slot, message: str, hint: str) -> bool:
        """Have the body run again with a stand-in in the slot that refuses to be read."""
        if slot.container is not self.frame:
            self._refuse(message, hint)
        self.stale[key] = Stale(message, hint)
        return True

    def _keep_changed(self, this: Pass) -> None:
        """Turn arguments that the pass did not change back into the values they stand for."""
        replace: dict[Value, Value] = {}
        for key, leaf in list(this.leaves.items()):
            if leaf.after is None:
                value = leaf.argument.value
                replace[value] = leaf.before.value
                this.region.args.remove(value)
                leaf.argument.value = leaf.before.value
                del this.leaves[key]
        if replace:
            for op in this.region.walk():
                op.operands = [replace.get(v, v) for v in op.operands]
            for leaf in this.leaves.values():
                after = _after(leaf)
                leaf.after = Tile(after.type, replace.get(after.value, after.value), self.trace)

    # The result.

    def _emit(self, this: Pass) -> None:
        leaves = this.leaves
        operands = [t.value for t in self.control.operands] + [leaf.before.value for leaf in leaves.values()]
        call = opset.infer(self.control.name, [v.type for v in operands], self.control.attrs)
        op = Op(self.control.name, operands, self.control.attrs, [], [this.region], self.control.location)
        region = self.trace.regions[-1]
        names = [leaf.argument.value.name for leaf in leaves.values()]
        op.results = [self.trace.define(Value(t, name, op), region) for t, name in zip(call.results, names)]
        region.ops.append(op)
        results = {
            key: Tile(leaf.before.type, value, self.trace)
            for (key, leaf), value in zip(leaves.items(), op.results)
        }
        changes = []
        for key, (slot, value) in self.original.items():
            numbers = iter(range(sys.maxsize))
            if key in self.stale:
                changes.append((slot, self.stale[key]))
            elif key not in self.aliases:
                changes.append(
                    (
                        slot,
                        frames.map_leaves(
                            value,
                            lambda x, k=key, n=numbers: results.get((k, next(n)), x),
                            self._containers(key),
                        ),
                    )
                )
        frames.write(changes)


def _after(leaf: Leaf) -> Tile:
    assert leaf.after is not None
    return leaf.after


def _leaves(value: Any, containers: tuple[type, ...]) -> list[Any]:
    out: list[Any] = []
    frames.map_leaves(value, lambda leaf: (out.append(leaf), leaf)[1], containers)
    return out


def _same_structure(a: Any, b: Any, containers: tuple[type, ...]) -> bool:
    if not isinstance(a, (tuple, list, dict)) and not isinstance(b, (tuple, list, dict)):
        return True
    if not isinstance(a, containers) or not frames.alike(a, b):
        return False
    return all(
        _same_structure(x, y, containers) for x, y in zip(frames.members(a) or [], frames.members(b) or [])
    )


def _holds(value: Any, container: Any) -> bool:
    return value is container or (isinstance(value, tuple) and any(_holds(x, container) for x in value))


def _is_int(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _is_integer(x: Any) -> bool:
    return _is_int(x) or (isinstance(x, Tile) and x.shape == () and x.dtype.is_integer)


def _equal_constants(a: Any, b: Any) -> bool:
    """Whether two Python values are equal and immutable, so that one may stand for the other."""
    immutable = (int, float, str, bytes, bool, type(None), type)
    return type(a) is type(b) and isinstance(a, immutable) and (a == b or (a != a and b != b))


def _describe(x: Any) -> str:
    if isinstance(x, Tile):
        return f"a tile {x.type}" if x.shape else f"a run-time {x.dtype}"
    if isinstance(x, (int, float, bool, str)):
        return f"the Python {type(x).__name__} {x!r}"
    return (
        "None"
        if x is None
        else f"a {type(x).__name__}" + (f" of {len(x)}" if isinstance(x, (tuple, list, dict)) else "")
    )
