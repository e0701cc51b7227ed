"""How a loop or a branch is traced, without its source text.

The body is run with symbolic tiles, and every place that a program can write to (see `frames`) is compared
before and after. The first pass runs as Python would run it: with whatever the places hold. For kt.when that
is all; what changed becomes a result. For kt.range the body runs again with what changed replaced:

- a tile by an argument of the loop's region: it is carried;
- a Python integer by a `Counter`, a carried scalar that goes on behaving as an integer;
- a list, dict or object that every pass makes anew, by one with such members;
- anything else by a `Stale`, which refuses to be read: a mere temporary passes, a variable that Python
  would carry is refused.

That goes on until no more is found to change. Then two passes, one of them with everything as it was before
the loop, must have given the same IR: a body that looks at what tracing cannot see (whether a variable is
None, a random number, the state of an iterator) is refused, never mistraced.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from kittens import frames, opset
from kittens.control import Control, left_early
from kittens.dtypes import DType, int64
from kittens.errors import ControlFlowError, here
from kittens.frames import Key, Reach, Slot, unchanged
from kittens.ir import Op, Region, TileType, Value, same
from kittens.tile import Counter, Tile, as_tile, cast

if TYPE_CHECKING:
    from kittens.trace import Trace

#: A slot, and a leaf of its value by number.
Leaf = tuple[Key, int]
_MAX_PASSES = 10


class Stale:
    """Stands in a variable whose Python value changes in a loop and cannot be carried; reading it is an
    error.
    """

    def __init__(self, message: str, hint: str):
        object.__setattr__(self, "_said", (message, hint))

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        message, hint = object.__getattribute__(self, "_said")
        raise ControlFlowError(message, hint=hint, location=here())

    def __getattribute__(self, name: str) -> Any:
        if name != "_refuse":
            Stale._refuse(self)
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        return f"<not to be read: {object.__getattribute__(self, '_said')[0]}>"


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
    "next",
    "getitem",
    "setitem",
    "delitem",
    "contains",
    "call",
    "str",
    "format",
    "hash",
    "setattr",
    "enter",
    "exit",
]:
    setattr(Stale, f"__{_name}__", Stale._refuse)


@dataclass
class Carried:
    """A leaf that a loop or branch carries: its type, and whether Python has an integer there.

    integer: "" if it is a tile before and after, "counter" if it is a Python integer before and after,
    "loose" if it is one on one side only.
    """

    type: TileType
    integer: str = ""

    def stand_in(self, tile: Tile) -> Any:
        """What a kernel sees in the place while the loop runs, and after it."""
        if self.integer == "counter":
            return Counter(tile)
        tile.loose = self.integer == "loose"
        return tile


@dataclass
class Pass:
    """One run of the body: its region, the arguments of carried leaves, and what every place held at its
    start.
    """

    region: Region
    entry: Reach
    arguments: dict[Leaf, Tile] = field(default_factory=dict)
    after: dict[Leaf, Any] = field(default_factory=dict)


class LoopTrace:
    """The iterator behind a `for` over kt.range or kt.when while tracing. It yields once for each pass
    over the body.
    """

    def __init__(self, trace: Trace, control: Control, frame: FrameType):
        self.trace = trace
        self.control = control
        self.frame = frame
        self.targets: frozenset[str] = frozenset()  # the loop variable
        self.original = Reach()
        self.carried: dict[Leaf, Carried] = {}
        self.remade: set[Key] = set()  # slots whose list, dict or object every pass makes anew
        self.stale: dict[Key, Stale] = {}
        self.first: Pass | None = None  # the pass to which the last one must be equal
        self.now: Pass | None = None
        self.passes = 0

    def __iter__(self) -> LoopTrace:
        return self

    def __next__(self) -> Tile | None:
        frame = sys._getframe(1)
        if self.now is None:
            if frame is not self.frame or frames.is_comprehension(frame):
                self._refuse(
                    f"{self.control.spelled} in a comprehension or generator",
                    "write a `for` statement; for a list of tiles make the list first and assign its entries",
                )
            self.targets = frozenset({frames.assigned_name(frame)} - {""})
            self.original = self._walk()
            return self._begin_first()
        if not self.trace.loops or self.trace.loops[-1] is not self:
            raise left_early(self.trace.loops[-1].control if self.trace.loops else self.control)
        return self._end(self.now)

    def _walk(self) -> Reach:
        return frames.walk(self.frame, self.targets)

    def _refuse(self, message: str, hint: str) -> NoReturn:
        raise ControlFlowError(message, hint=hint, location=self.control.location)

    # A pass begins.

    def _begin_first(self) -> Tile | None:
        """The first pass sees what Python sees, but for tiles held in several places: each gets a Tile of its
        own.

        So a place is known to change even if it takes the value of a place that held the same tile.
        """
        met: set[int] = set()
        changes = []
        for slot, value in self.original.slots.values():

            def alone(leaf: Any) -> Any:
                if type(leaf) is not Tile or id(leaf) not in met:
                    met.add(id(leaf))
                    return leaf
                return _again(leaf)

            new = frames.map_leaves(value, alone)
            if new is not value:
                changes.append((slot, new))
        frames.write(changes)
        return self._open(Pass(Region(), self._walk() if changes else self.original))

    def _begin(self) -> Tile | None:
        """A further pass sees arguments for what is carried, and stand-ins for what cannot be.

        The pass to which the last one must be equal has neither, or at least no stand-ins.
        """
        self.passes += 1
        if self.passes > _MAX_PASSES:
            self._refuse(
                "what this loop carries does not settle",
                "give every carried variable its final type before the loop",
            )
        this = Pass(Region(), Reach())
        changes = []
        for key, (slot, value) in self.original.slots.items():
            if self.first is not None and key in self.stale:
                changes.append((slot, self.stale[key]))
                continue
            numbers = itertools.count()

            def argument(
                leaf: Any, key: Key = key, slot: Slot = slot, numbers: Iterator[int] = numbers
            ) -> Any:
                at = key, next(numbers)
                carried = self.carried.get(at)
                if carried is None:
                    return leaf
                name = (
                    slot.path if slot.path.isidentifier() else leaf.value.name if type(leaf) is Tile else ""
                )
                value = self.trace.define(Value(carried.type, name), this.region)
                this.region.args.append(value)
                this.arguments[at] = Tile(carried.type, value, self.trace)
                return carried.stand_in(this.arguments[at])

            new = frames.map_leaves(value, argument, key in self.remade)
            if new is not value:
                changes.append((slot, new))
        frames.write(changes)
        this.entry = self._walk()
        return self._open(this)

    def _open(self, this: Pass) -> Tile | None:
        index = None
        if self.control.name == "loop":
            value = self.trace.define(Value(TileType(int64), next(iter(self.targets), "")), this.region)
            this.region.args.insert(0, value)
            index = Tile(TileType(int64), value, self.trace)
        self.now = this
        self.trace.loops.append(self)
        self.trace.regions.append(this.region)
        return index

    # A pass ends: places are compared.

    def _end(self, this: Pass) -> Tile | None:
        after = self._walk()
        _put_back(this.entry, after)
        more = self._compare(this, after)
        self._check_identity()
        single = self.control.name == "when"
        if single or (this.arguments and not more):
            self._yield(this)
        self.trace.loops.pop()
        self.trace.regions.pop()
        if not single:
            integers = any(c.integer for c in self.carried.values())
            if self.passes == 0:
                self.first = None if integers else this
                return self._again(this)
            if more:
                self.first = None if integers else self.first
                return self._again(this)
            if self.first is None:
                self.first = this
                return self._again(this)
            if not self._equal(self.first, this):
                self._refuse(
                    f"the body of {self.control.spelled} gives other operations when it runs again",
                    "it depends on Python state that changes from pass to pass (an iterator, a random "
                    "number, "
                    "whether a variable is None): make that a tile, or loop over Python constants",
                )
            if not this.arguments:
                this.region.ops.append(Op("yield", [], {}, [], location=self.control.location))
        self._emit(this)
        raise StopIteration

    def _again(self, this: Pass) -> Tile | None:
        _put_back(self.original, this.entry)
        return self._begin()

    def restore(self) -> None:
        """Put back what every place held before the loop."""
        _put_back(self.original, self._walk())

    def _equal(self, first: Pass, this: Pass) -> bool:
        """Whether two passes gave the same IR. In a first pass, tiles from before the loop stand for
        arguments.
        """
        if first.arguments:
            return first.arguments.keys() == this.arguments.keys() and same(first.region, this.region)
        before = {at: self._leaf(at).value for at in this.arguments}
        pairs = {id(this.arguments[at].value): before[at] for at in before}
        index = [v for v in this.region.args if id(v) not in pairs]
        carried = [first.after[at].value if at in first.after else before[at] for at in before]
        ops = [*first.region.ops, Op("yield", carried, {}, [])] if before else first.region.ops
        return same(Region(index, this.region.ops), Region(first.region.args, ops), pairs)

    def _leaf(self, at: Leaf) -> Any:
        """What a leaf was before the loop."""
        key, number = at
        return _leaves(self.original.slots[key][1], key in self.remade)[number]

    def _compare(self, this: Pass, after: Reach) -> bool:
        """Note what each place holds after a pass. True if more turned out to change than was known."""
        for owner, (path, keys) in this.entry.containers.items():
            for key in after.containers.get(owner, ("", frozenset()))[1] - keys:
                self._refuse(
                    f"{path} grows in the body of {self.control.spelled}: {key!r} appears",
                    "make it before the loop with all its entries, and replace them",
                )
        for mark in this.entry.marks.values():
            now = after.marks.get(id(mark.owner))
            if now is not None and not mark.same(now):
                self._refuse(
                    f"{mark.path} (a {type(mark.owner).__name__}) changes in the body of "
                    f"{self.control.spelled}",
                    "Python state that changes from pass to pass cannot be carried: only tiles, integers and "
                    "lists, dicts and objects of them, of constant size",
                )
        more = False
        for key, (slot, value) in this.entry.slots.items():
            if key not in self.original.slots or key in self.stale:
                continue
            if key not in after.slots:
                if slot.container is self.frame:
                    self._refuse(
                        f"{slot.path} is deleted in the body of {self.control.spelled}",
                        "a variable from before the loop can be assigned, not deleted: the next pass has none",
                    )
                elif id(slot.container) in after.containers:
                    self._refuse(
                        f"{slot.path} disappears in the body of {self.control.spelled}",
                        "tiles in a list, dict or object can be replaced, not removed",
                    )
                continue
            new = after.slots[key][1]
            if (
                new is not value
                or key in self.remade
                or type(value) in (Tile, Counter)
                or issubclass(type(value), tuple)
            ):
                more |= self._changed(this, after, key, slot, value, new)
        return more

    def _changed(self, this: Pass, after: Reach, key: Key, slot: Slot, value: Any, new: Any) -> bool:
        """Settle one slot. True if more turned out to change than was known."""
        where = self.control.spelled
        if (
            key not in self.remade
            and new is not value
            and frames.is_container(new)
            and type(new) is type(value)
        ):
            if (
                not issubclass(type(new), tuple)
                and _alone(self.original, self.original.slots[key][1])
                and _alone(after, new)
            ):
                self.remade.add(key)
        deep = key in self.remade
        if not _same_structure(value, new, deep):
            return self._spoil(
                key,
                slot,
                f"{slot.path} is {_describe(value)} before {where} and {_describe(new)} after a pass",
                "give it the form before the loop that it has after a pass, held by no other variable",
            )
        more = False
        leaves = zip(_leaves(value, deep), _leaves(new, deep), strict=True)
        for number, (old, leaf) in enumerate(leaves):
            at = key, number
            if at not in self.carried and unchanged(old, leaf):
                continue
            kind = self._kind(at, leaf)
            if kind is None:
                before = self._leaf(at)
                start = ""
                if type(leaf) is Tile and type(before) in (int, float):
                    start = f": start with kt.full({leaf.shape}, {before!r}, kt.{leaf.dtype})"
                return self._spoil(
                    key,
                    slot,
                    f"{slot.path} is {_describe(before)} before {where} and {_describe(leaf)} after a pass",
                    f"only tiles and integers are carried, and each keeps its type{start}",
                )
            if type(leaf) is Tile and not self.trace.in_scope(leaf.value):
                return self._spoil(
                    key,
                    slot,
                    f"{slot.path} holds a tile of an inner loop that has ended",
                    "give the tile a first value before the inner loop",
                )
            if self.carried.get(at) != kind:
                self.carried[at] = kind
                more = True
            this.after[at] = leaf
        return more

    def _kind(self, at: Leaf, leaf: Any) -> Carried | None:
        """How a leaf is carried that is now `leaf`; None if it cannot be."""
        before = self._leaf(at)
        tiles = [x for x in (before, leaf) if type(x) is Tile]
        if not all(type(x) in (Tile, int, Counter) for x in (before, leaf)):
            return None
        if any(t.executor is not self.trace for t in tiles):
            return None
        if len(tiles) == 2:
            loose = before.loose or leaf.loose
            return Carried(before.type, "loose" if loose else "") if before.type == leaf.type else None
        known = self.carried.get(at)
        if not tiles:
            return (
                known
                if known is not None and known.integer == "loose"
                else Carried(TileType(int64), "counter")
            )
        (tile,) = tiles
        if known is not None and known.integer == "loose" and known.type != tile.type:
            return None
        return Carried(tile.type, "loose") if tile.shape == () and tile.dtype.is_integer else None

    def _spoil(self, key: Key, slot: Slot, message: str, hint: str) -> bool:
        """Have the body run again with a stand-in in the slot that refuses to be read."""
        if slot.container is not self.frame:
            self._refuse(message, hint)
        before = self.original.slots[key][1]
        self.stale[key] = before if type(before) is Stale else Stale(message, hint)
        for at in [at for at in self.carried if at[0] == key]:
            del self.carried[at]
        return True

    def _check_identity(self) -> None:
        """Refuse `a is b` on what is carried: whether two places hold one tile may differ from pass to
        pass.
        """
        for key, _ in self.carried:
            slot = self.original.slots[key][0]
            for code in self.original.codes:
                names = frames.compared_names(code)
                if names and (code is not self.frame.f_code or names & {slot.key, "*"}):
                    self._refuse(
                        f"{slot.path} is carried by this loop, and {code.co_name} compares variables by "
                        "identity (`is`, `id`)",
                        "whether two variables hold one tile is not known while tracing",
                    )

    # The result.

    def _yield(self, this: Pass) -> None:
        values = [
            _as(this.after[at] if at in this.after else self._leaf(at), carried.type.dtype).value
            for at, carried in self.carried.items()
        ]
        # the order of `carried` is that in which changes were found; the arguments of a pass follow the slots
        order = list(self.carried)
        by = dict(zip(order, values, strict=True))
        this.region.ops.append(
            Op("yield", [by[at] for at in this.arguments or order], {}, [], location=self.control.location)
        )

    def _emit(self, this: Pass) -> None:
        region = self.trace.regions[-1]
        order = list(this.arguments or self.carried)
        before = {at: _as(self._leaf(at), self.carried[at].type.dtype) for at in order}
        if not this.arguments:  # a branch: its body has used the values from before it
            for at in order:
                name = self.original.slots[at[0]][0].path
                value = Value(self.carried[at].type, name if name.isidentifier() else "")
                this.region.args.append(self.trace.define(value, this.region))
        operands = [t.value for t in self.control.operands] + [before[at].value for at in order]
        call = opset.infer(self.control.name, [v.type for v in operands], self.control.attrs)
        op = Op(self.control.name, operands, self.control.attrs, [], [this.region], self.control.location)
        names = [v.name for v in this.region.args[len(this.region.args) - len(order) :]]
        op.results = [
            self.trace.define(Value(t, name, op), region) for t, name in zip(call.results, names, strict=True)
        ]
        region.ops.append(op)
        results = {
            at: self.carried[at].stand_in(Tile(self.carried[at].type, value, self.trace))
            for at, value in zip(order, op.results, strict=True)
        }
        changes: list[tuple[Slot, Any]] = []
        for key, (slot, value) in self.original.slots.items():
            numbers = itertools.count()

            def result(leaf: Any, key: Key = key, numbers: Iterator[int] = numbers) -> Any:
                return results.get((key, next(numbers)), leaf)

            if key in self.stale:
                new: Any = self.stale[key]
            else:
                deep = key in self.remade
                new = frames.map_leaves(value, result, deep)
            if this.entry.slots.get(key, _NOTHING)[1] is not new:
                changes.append((slot, new))
        changes += self._end_temporaries()
        frames.write(changes)

    def _end_temporaries(self) -> list[tuple[Slot, Any]]:
        """The loop variable, and variables that only the body assigns, have no value if no pass is made."""
        known = {slot.key for slot, _ in self.original.slots.values() if slot.container is self.frame}
        changes: list[tuple[Slot, Any]] = []
        for name in frames.local_names(self.frame):
            if name not in known:
                what = "the variable" if name in self.targets else "assigned only in the body"
                message = f"{name} is {what} of {self.control.spelled}, and read after it"
                hint = "a body that does not run leaves it without a value: give another variable one before"
                changes.append((Slot(self.frame, name, name), Stale(message, hint)))
        return changes


_NOTHING = (None, object())


def _put_back(then: Reach, now: Reach) -> None:
    """Give every place what it held then, knowing what it holds now."""
    frames.write(
        [(slot, v) for key, (slot, v) in then.slots.items() if now.slots.get(key, _NOTHING)[1] is not v]
    )


def _again(tile: Tile) -> Tile:
    """Another Tile of the same value."""
    other = Tile(tile.type, tile.value, tile.executor, tile.known)
    other.product, other.loose = tile.product, tile.loose
    return other


def _as(leaf: Any, dtype: DType) -> Tile:
    """A leaf as a tile that can be carried."""
    return leaf if type(leaf) is Tile else cast(as_tile(leaf, dtype), dtype)


def _leaves(value: Any, deep: bool) -> list[Any]:
    out: list[Any] = []

    def note(leaf: Any) -> Any:
        out.append(leaf)
        return leaf

    frames.map_leaves(value, note, deep)
    return out


def _same_structure(a: Any, b: Any, deep: bool) -> bool:
    if not (deep or issubclass(type(a), tuple) or issubclass(type(b), tuple)):
        return True
    if not (frames.is_container(a) or frames.is_container(b)):
        return True
    if not frames.alike(a, b):
        return False
    return all(
        _same_structure(x, y, False) for x, y in zip(frames.members(a), frames.members(b), strict=True)
    )


def _alone(reach: Reach, container: Any) -> bool:
    """Whether one variable alone holds a list, dict or object, and that holds no others itself."""
    holders = sum(_holds(value, container) for _, value in reach.slots.values())
    return holders == 1 and not any(_mutable(x) for x in frames.members(container))


def _holds(value: Any, container: Any) -> bool:
    return value is container or (issubclass(type(value), tuple) and any(_holds(x, container) for x in value))


def _mutable(value: Any) -> bool:
    if issubclass(type(value), tuple):
        return any(map(_mutable, value))
    return frames.is_container(value)


def _describe(x: Any) -> str:
    kind = type(x)
    if kind is Tile:
        return f"a tile {x.type}" if x.shape else f"a run-time {x.dtype}"
    if kind is Counter:
        return "a Python integer"
    if kind is Stale:
        return "a value that may not be read"
    if kind in (int, float, bool, str):
        return f"the Python {kind.__name__} {x!r}"
    size = f" of {len(x)}" if issubclass(kind, (tuple, list, dict)) else ""
    return "None" if x is None else f"a {kind.__name__}{size}"
