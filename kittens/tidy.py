"""Tidying the traced IR: what is constant becomes a constant, equal work is done once, unused work not at
all.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kittens import opset
from kittens.ir import VIEWS, Function, Op, Region, TensorType, TileType, Value

#: Pure operations that may not be shared: a store may lie between two loads.
_NEVER_SHARED = ("load",)
#: What is worth folding when all operands are constant scalars: index arithmetic.
_FOLDED = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "mod",
    "cdiv",
    "maximum",
    "minimum",
    "cast",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
)


def tidy(function: Function) -> Function:
    """Simplify a function in place; returns it."""
    _retype_views(function)
    _share(function.body, {}, {})
    while _drop_unused(function.body):
        pass
    return function


def _retype_views(function: Function) -> None:
    """Give views what has become known of their tensors' extents."""
    for op in function.body.walk():
        if op.name in VIEWS:
            op.result.type = opset.infer(op.name, [v.type for v in op.operands], op.attrs).results[0]


def _share(region: Region, seen: dict[Any, list[Value]], replace: dict[Value, Value]) -> None:
    """Fold constants, and let operations that are equal to one in scope use its results."""
    kept = []
    for op in region.ops:
        op.operands = [replace.get(v, v) for v in op.operands]
        _fold(op)
        for inner in op.regions:
            _share(inner, dict(seen), replace)
        if opset.OPS[op.name].pure and op.name not in _NEVER_SHARED:
            key = (op.name, tuple(map(id, op.operands)), repr(sorted(op.attrs.items())))
            if key in seen:
                replace.update(zip(op.results, seen[key], strict=True))
                continue
            seen[key] = op.results
        kept.append(op)
    region.ops = kept


def _constant(value: Value) -> Any:
    op = value.producer
    scalar = isinstance(value.type, TileType) and value.type.shape == ()
    return op.attrs["value"] if scalar and op is not None and op.name == "const" else None


def _fold(op: Op) -> None:
    """Turn an operation into a constant in place, where it is one."""
    value = None
    if op.name == "dim":
        tensor = op.operands[0].type
        assert isinstance(tensor, TensorType)
        value = tensor.dims[op.attrs["axis"]].value
    elif op.name in _FOLDED and all(_constant(v) is not None for v in op.operands):
        types = tuple(v.type for v in op.operands)
        result = op.result.type
        if all(isinstance(t, TileType) and t.dtype.kind in "biu" for t in (*types, result)):
            call = opset.Call(types, op.attrs, (result,))
            arrays = [
                opset.evaluate("const", opset.Call((), v.producer.attrs, (v.type,)))[0]
                for v in op.operands
                if v.producer
            ]
            value = opset.evaluate(op.name, call, *arrays)[0].item()
    if value is not None:
        assert isinstance(op.result.type, TileType)
        op.name, op.operands = "const", []
        op.attrs = {"value": value, "dtype": op.result.type.dtype.name, "shape": ()}


def _uses(region: Region) -> Counter[Value]:
    return Counter(v for op in region.walk() for v in op.operands)


def _drop_unused(body: Region) -> bool:
    """Remove operations whose results nobody reads, and carried values that only carry themselves."""
    uses = _uses(body)
    changed = False

    def visit(region: Region) -> None:
        nonlocal changed
        kept = []
        for op in region.ops:
            for inner in op.regions:
                visit(inner)
            if op.name in ("loop", "when"):
                changed |= _drop_carried(op, uses)
            unused = not any(uses[v] for v in op.results)
            if unused and (opset.OPS[op.name].pure or (op.regions and not _effects(op.regions[0]))):
                changed = True
            else:
                kept.append(op)
        region.ops = kept

    visit(body)
    return changed


def _effects(region: Region) -> bool:
    return any(
        not opset.OPS[op.name].pure and op.name not in ("loop", "when", "yield") for op in region.walk()
    )


def _drop_carried(op: Op, uses: Counter[Value]) -> bool:
    (region,) = op.regions
    fixed = len(op.operands) - len(op.results)
    first = len(region.args) - len(op.results)
    dead = [i for i, v in enumerate(op.results) if not uses[v] and not uses[region.args[first + i]]]
    for i in reversed(dead):
        del op.operands[fixed + i], op.results[i], region.args[first + i], region.ops[-1].operands[i]
    return bool(dead)
