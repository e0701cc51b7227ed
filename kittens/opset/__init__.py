"""The operations of the language: one definition each, found by name in `OPS`.

A definition says what operand types an operation takes and what it gives (`infer`) and what it computes, in
NumPy (`reference`). Everything else that handles tiles (tracing, the eager reference, the IR interpreter, the
judge's error arithmetic, the backends) starts from these. docs/semantics.md is the same in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kittens.dtypes import Array
from kittens.ir import TensorType, TileType, Type


@dataclass(frozen=True)
class Call:
    """What an operation is applied to, but for the data: operand types, attributes and, once inferred,
    result types.
    """

    operands: tuple[Type, ...]
    attrs: dict[str, Any]
    results: tuple[Type, ...] = ()

    def tile(self, i: int) -> TileType:
        """Type of operand i, which is a tile."""
        t = self.operands[i]
        assert isinstance(t, TileType), t
        return t

    def tensor(self, i: int) -> TensorType:
        """Type of operand i, which is a tensor."""
        t = self.operands[i]
        assert isinstance(t, TensorType), t
        return t

    @property
    def result(self) -> TileType:
        """Type of the only result, a tile."""
        (t,) = self.results
        assert isinstance(t, TileType), t
        return t


Infer = Callable[[Call], Sequence[Type]]
Reference = Callable[
    ..., Any
]  # (call, *arrays) -> one array a result; arrays may have leading axes beyond the tile's


@dataclass(frozen=True)
class OpDef:
    """The definition of an operation.

    pure: without effect, so that an unused one may be dropped. exact: any two implementations agree bit for
    bit (the error rules of the judge are told apart by this and by the name).
    """

    name: str
    infer: Infer
    reference: Reference | None = None
    pure: bool = True
    exact: bool = True


OPS: dict[str, OpDef] = {}


def define(
    name: str, infer: Infer, reference: Reference | None = None, *, pure: bool = True, exact: bool = True
) -> OpDef:
    """Enter a definition into `OPS`."""
    assert name not in OPS, f"operation {name} is defined twice"
    OPS[name] = OpDef(name, infer, reference, pure, exact)
    return OPS[name]


def infer(name: str, operands: Sequence[Type], attrs: dict[str, Any]) -> Call:
    """Check operand types and attributes; returns the call with its result types.

    Raises DTypeError, ShapeError or ArgumentError that says what was expected and what came.
    """
    call = Call(tuple(operands), attrs)
    return Call(call.operands, attrs, tuple(OPS[name].infer(call)))


def evaluate(name: str, call: Call, *arrays: Array) -> list[Array]:
    """The reference results of a pure operation."""
    reference = OPS[name].reference
    assert reference is not None, name
    out = reference(call, *arrays)
    return list(out) if len(call.results) != 1 else [out]


# The definitions enter themselves.
from kittens.opset import control, elementwise, memory, product, random, reduction, shape  # noqa: E402, F401
