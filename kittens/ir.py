"""The tile IR: values in single assignment, operations, nested regions, functions.

An operation is data: the name of its definition in `kittens.opset`, operands, attributes, results, regions.
`loop` and `when` own one region each; whatever leaves a region does so through its `yield`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kittens.dtypes import DType
from kittens.errors import Location


@dataclass(frozen=True)
class TileType:
    """A tile: element type and constant shape. A scalar is a tile of shape ()."""

    dtype: DType
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]" if self.shape else str(self.dtype)

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n


@dataclass(frozen=True)
class Extent:
    """What is known of a run-time extent or stride: its value, or a power of two that divides it."""

    value: int | None = None
    divisor: int = 1

    def __str__(self) -> str:
        return (
            str(self.value) if self.value is not None else "?" if self.divisor == 1 else f"?%{self.divisor}"
        )


@dataclass(frozen=True)
class TensorType:
    """A tensor in global memory, or a view of one: element type, and for each axis what is known of it.

    `strides` are in elements; an axis whose stride is known to be 1 is contiguous. `alignment` is that of the
    first element of a parameter, in bytes (a power of two up to 16).
    """

    dtype: DType
    dims: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    alignment: int = 16

    @property
    def rank(self) -> int:
        return len(self.dims)

    def __str__(self) -> str:
        dims, strides = (",".join(map(str, x)) for x in (self.dims, self.strides))
        return (
            f"tensor<{self.dtype}[{dims}]:[{strides}]{'' if self.alignment == 16 else f'@{self.alignment}'}>"
        )


Type = TileType | TensorType


@dataclass(eq=False)
class Value:
    """One result of an operation, or one argument of a region or function. `name` is the user's own where
    known.
    """

    type: Type
    name: str = ""
    producer: Op | None = field(default=None, repr=False)


@dataclass(eq=False)
class Region:
    """A sequence of operations with arguments; the last operation of a nested region is its `yield`."""

    args: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    def walk(self) -> Iterator[Op]:
        """Every operation, outer ones before those they contain."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


@dataclass(eq=False)
class Op:
    """One operation. Attributes are plain data: numbers, strings, dtypes, tuples of these."""

    name: str
    operands: list[Value]
    attrs: dict[str, Any]
    results: list[Value]
    regions: list[Region] = field(default_factory=list)
    location: Location | None = field(default=None, repr=False)

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value


@dataclass(eq=False)
class Function:
    """A traced kernel.

    body.args are the parameters in the order of the kernel's positional ones (absent ones left out);
    `constants` are the compile-time values it was traced with; `grid_rank` is the number of program axes.
    """

    name: str
    body: Region
    grid_rank: int
    constants: dict[str, Any] = field(default_factory=dict)
    location: Location | None = None

    @property
    def params(self) -> list[Value]:
        return self.body.args

    def stored(self) -> set[str]:
        """Names of the tensor parameters that the kernel writes."""
        stores = [op for op in self.body.walk() if op.name in ("store", "store_add")]
        counters = [op.operands[-3] for op in stores if op.attrs.get("ordered")]
        return {base(v).name for v in (*(op.operands[0] for op in stores), *counters)}

    def loaded(self) -> set[str]:
        """Names of the tensor parameters that the kernel reads."""
        return {base(op.operands[0]).name for op in self.body.walk() if op.name == "load"}

    @property
    def ordered(self) -> bool:
        """Whether programs wait for ones with lower numbers."""
        return any(op.attrs.get("ordered") for op in self.body.walk())

    def __str__(self) -> str:
        from kittens.text import print_function

        return print_function(self)


VIEWS = ("index", "slice", "permute")


def base(value: Value) -> Value:
    """The parameter that a view (a chain of `index`, `slice`, `permute`) is a view of."""
    while value.producer is not None and value.producer.name in VIEWS:
        value = value.producer.operands[0]
    return value


def same(a: Region, b: Region, pairs: dict[int, Value] | None = None) -> bool:
    """Whether two regions are equal but for the identity and the names of their own values.

    `pairs` maps id(value of a) to the value of b it stands for; values defined outside stand for themselves.
    """
    pairs = {} if pairs is None else pairs

    def match(x: Value, y: Value) -> bool:
        return pairs.get(id(x), x) is y

    def bind(xs: list[Value], ys: list[Value]) -> bool:
        if [x.type for x in xs] != [y.type for y in ys]:
            return False
        pairs.update((id(x), y) for x, y in zip(xs, ys, strict=True))
        return True

    if not bind(a.args, b.args) or len(a.ops) != len(b.ops):
        return False
    for p, q in zip(a.ops, b.ops, strict=True):
        if p.name != q.name or len(p.operands) != len(q.operands) or not same_attrs(p.attrs, q.attrs):
            return False
        if not all(map(match, p.operands, q.operands)) or len(p.regions) != len(q.regions):
            return False
        if not all(same(r, s, pairs) for r, s in zip(p.regions, q.regions, strict=True)) or not bind(
            p.results, q.results
        ):
            return False
    return True


def same_attrs(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Equality of attributes in which NaN equals NaN and 0.0 differs from -0.0."""
    return repr(sorted(a.items())) == repr(sorted(b.items()))
