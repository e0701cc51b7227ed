"""Splitting and joining halves of an axis."""

from __future__ import annotations

from collections.abc import Callable

from kittens import layouts as lay
from kittens.codegen import cexpr
from kittens.codegen.emit.text import paren, row_major
from kittens.codegen.emit.writer import Writer
from kittens.codegen.placement import (
    dtype_of,
    is_tile,
    shape,
)
from kittens.dtypes import BY_NAME
from kittens.ir import Op, Value
from kittens.layouts import Tiled


def _own_pairs(op: Op, whole: Tiled, half: Tiled) -> bool:
    """Whether each lane holds the pairs of which it holds halves, in neighbouring registers."""
    if not op.attrs["pairs"] or "col" not in whole.axes:
        return False
    try:
        return lay.same(lay.every_other(whole, "col"), half)
    except ValueError:
        return False


def op_split(writer: Writer, op: Op) -> None:
    writer.locate(op)
    (x,) = op.operands
    extents, axis, pairs = shape(x), op.attrs["axis"] % len(shape(x)), op.attrs["pairs"]
    if is_tile(x) and axis == len(extents) - 1 and all(map(is_tile, op.results)):
        whole = writer.held[x][1] if x in writer.held else writer.layout_of(x)
        if all(_own_pairs(op, whole, writer.layout_of(v)) for v in op.results):
            read = writer.reader(x, whole)
            for half, result in enumerate(op.results):
                if result in writer.uses:
                    layout = writer.layout_of(result)
                    _named(writer, result, layout, read(f"2 * r + {half}" if half else "2 * r"))
            return
    for half, result in enumerate(op.results):
        if result not in writer.uses:
            continue
        layout = writer.layout_of(result)

        def number(r: str, half: int = half, layout: Tiled = layout, result: Value = result) -> str:
            index = writer.indices(layout, shape(result), r)
            i = paren(index[axis])
            index[axis] = f"{i} * 2 + {half}" if pairs else f"{i} + {half * (extents[axis] // 2)}"
            return row_major(index, extents)

        _from_scratch(writer, x, result, layout, number)


def _named(writer: Writer, value: Value, layout: Tiled, text: str) -> None:
    """Hold a tile, made of an expression in its register r."""
    name, c = writer.fresh(value.name or "t"), cexpr.ctype(dtype_of(value))
    writer.line(f"{c} {name}[{layout.registers}];")
    writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {text};")
    writer.held[value] = (name, layout)


def _from_scratch(
    writer: Writer, x: Value, result: Value, layout: Tiled, number: Callable[[str], str]
) -> None:
    if not is_tile(result):
        layout = lay.blocked((1,), vector=1, lanes=writer.machine.lanes, groups=writer.groups)
    read = writer.through_scratch(x, layout, number)
    name = read("r")[:-3]
    if is_tile(result):
        writer.held[result] = (name, layout)
    else:
        writer.names[result] = f"{name}[0]"


def op_join(writer: Writer, op: Op) -> None:
    writer.locate(op)
    result = op.result
    extents, axis, pairs = shape(result), op.attrs["axis"] % len(shape(result)), op.attrs["pairs"]
    dtype = dtype_of(result)
    size, c = BY_NAME[dtype].bytes, cexpr.ctype(dtype)
    if axis == len(extents) - 1 and all(map(is_tile, op.operands)):
        whole, other = writer.layout_of(result), writer.layout_of(op.operands[0])
        if _own_pairs(op, whole, other):
            even, odd = (writer.reader(x, other) for x in op.operands)
            _named(writer, result, whole, f"r % 2 ? {odd('r / 2')} : {even('r / 2')}")
            return
    total = 1
    for n in extents:
        total *= n
    for x in op.operands:
        if is_tile(x) and x not in writer.held and x not in writer.plan.placement.implicit:
            writer.hold(x, writer.layout_of(x))
    at = writer.before_scratch(total * size)
    for half, x in enumerate(op.operands):

        def address(r: str, half: int = half, x: Value = x) -> str:
            layout = writer.held[x][1] if x in writer.held else writer.layout_of(x)
            index = writer.indices(layout, shape(x), r) if is_tile(x) else ["0"] * len(shape(x))
            i = paren(index[axis])
            index[axis] = f"{i} * 2 + {half}" if pairs else f"{i} + {half * (extents[axis] // 2)}"
            return f"{at} + ({row_major(index, extents)}) * {size}"

        if is_tile(x):
            writer.put_all(x, address)
        else:
            writer.line(f"if (tid == 0) kt_put({address('0')}, {c}({writer.scalar(x)}));")
    writer.barrier()
    layout = writer.layout_of(result)
    name = writer.fresh(result.name or "t")
    writer.line(f"{c} {name}[{layout.registers}];")
    writer.line(
        f"KT_EACH(r, {layout.registers}) {name}[r] = kt_get<{c}>({at} + ({writer.linear(layout, 'r')}) * {size});"
    )
    writer.held[result] = (name, layout)
