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


def op_split(writer: Writer, op: Op) -> None:
    writer.locate(op)
    (x,) = op.operands
    extents, axis, pairs = shape(x), op.attrs["axis"] % len(shape(x)), op.attrs["pairs"]
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
