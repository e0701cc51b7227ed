"""Work that whole tiles or groups can do without: masks of edges and diagonals, and factors of 1."""

from __future__ import annotations

import functools

from kittens import layouts as lay
from kittens.codegen import cexpr
from kittens.codegen.emit.elementwise import elementwise
from kittens.codegen.emit.writer import Writer
from kittens.codegen.placement import dtype_of, is_tile, shape
from kittens.ir import Op, Value
from kittens.layouts import Tiled
from kittens.opset.elementwise import COMPARISONS

#: Registers a lane from which on a branch is cheaper than the mask.
_MANY = 8


def op_where(writer: Writer, op: Op) -> None:
    """where(positions compare, x, scalar): x as it is, unless some position in the tile fails."""
    condition, kept, other = op.operands
    layout = writer.layout_of(op.result) if is_tile(op.result) else None
    whole = _all(writer, condition, layout) if layout is not None and layout.registers >= _MANY else None
    if layout is None or whole is None or not _one(other) or kept in writer.plan.placement.implicit:
        elementwise(writer, op)
        return
    writer.locate(op)
    c = cexpr.ctype(dtype_of(op.result))
    where, x, y = (writer.reader(v, layout) for v in op.operands)
    name = writer.fresh(op.result.name or "t")
    writer.line(f"{c} {name}[{layout.registers}];")
    writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {x('r')};")
    writer.open(f"if (!({whole}))")
    text = cexpr.expression("where", op.attrs, [dtype_of(v) for v in op.operands], dtype_of(op.result), [where("r"), f"{name}[r]", y("r")])  # fmt: skip
    writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {text};")
    writer.close()
    writer.held[op.result] = (name, layout)


def op_mul(writer: Writer, op: Op) -> None:
    """x * where(c, y, 1), y of each row or column: a group in which c is nowhere true keeps x."""
    layout = writer.layout_of(op.result) if is_tile(op.result) else None
    for x, factor in (op.operands, op.operands[::-1]):
        choice = _choice(writer, factor)
        if layout is None or layout.registers < _MANY or choice is None or dtype_of(x) != "float32":
            continue
        writer.locate(op)
        condition, held = choice
        name, any_ = writer.fresh(op.result.name or "t"), writer.fresh("any")
        kept, scale, chosen = writer.reader(x, layout), writer.reader(factor, layout), writer.reader(condition, held)
        writer.line(f"float {name}[{layout.registers}];")
        writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {kept('r')};")
        writer.line(f"bool {any_} = false;")
        writer.line(f"KT_EACH(r, {held.registers}) {any_} = {any_} || {chosen('r')};")
        writer.open(f"if (kt_any({any_}))")
        writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {name}[r] * {scale('r')};")
        writer.close()
        writer.held[op.result] = (name, layout)
        return
    elementwise(writer, op)


def _choice(writer: Writer, value: Value) -> tuple[Value, Tiled] | None:
    """The condition of a held vector where(condition, ..., 1) behind a broadcast, and its layout."""
    while value.producer is not None and value.producer.name in ("broadcast", "reshape"):
        value = value.producer.operands[0]
    op = value.producer
    if op is None or op.name != "where" or value not in writer.held or not _one(op.operands[2]):
        return None
    one = op.operands[2]
    while one.producer is not None and one.producer.name == "broadcast":
        one = one.producer.operands[0]
    if one.producer is None or one.producer.name != "const" or one.producer.attrs["value"] != 1.0:
        return None
    return op.operands[0], writer.held[value][1]


def _one(value: Value) -> bool:
    """Whether all elements of a value are one and the same."""
    while is_tile(value) and value.producer is not None and value.producer.name == "broadcast":
        value = value.producer.operands[0]
    return not is_tile(value) or (value.producer is not None and value.producer.name == "const")


def _all(writer: Writer, condition: Value, layout: Tiled) -> str | None:
    """A condition, alike in a group's lanes, under which a comparison of positions holds for all of them; None if there is none."""
    while condition.producer is not None and condition.producer.name in ("broadcast", "reshape"):
        condition = condition.producer.operands[0]
    op = condition.producer
    if op is None or op.name not in COMPARISONS or op.name in ("eq", "ne") or dtype_of(op.operands[0]) != "int64":
        return None
    left, right = (_span(writer, v, layout, len(layout.axes) - 1) for v in op.operands)
    if left is None or right is None or not (left[0] or right[0]):
        return None
    scalars = " - ".join(f"({' + '.join(s) or '0'})" for s in (left[0], right[0]))
    # The worst pair of positions: the largest on the left for < and <=, the smallest for > and >=.
    worst = left[2] - right[1] if op.name in ("lt", "le") else left[1] - right[2]
    return f"kt_near({scalars}) + {worst} {cexpr.COMPARE[op.name]} 0"


def _span(writer: Writer, value: Value, layout: Tiled, axis: int) -> tuple[list[str], int, int] | None:
    """An implicit integer as scalars and the least and largest of the positions added to them, in a group of lanes.

    axis: of the layout, along which the value runs if it has one. None if it is no such sum.
    """
    if not is_tile(value):
        return [writer.scalar(value)], 0, 0
    op = value.producer
    if op is None or value not in writer.plan.placement.implicit:
        return None
    if op.name == "arange":
        return _reach(writer, shape(value)[0], layout, axis)
    if op.name == "const":
        return [], int(op.attrs["value"]), int(op.attrs["value"])
    if op.name in ("broadcast", "reshape"):
        (operand,) = op.operands
        if len(shape(value)) == 2 and is_tile(operand) and len(layout.axes) == 2:
            column = shape(value if op.name == "reshape" else operand)  # (n, 1), if it runs along rows
            if column != shape(value) or op.name == "reshape":
                if len(column) == 2 and 1 not in column:
                    return None
                axis = 0 if len(column) == 2 and column[1] == 1 else 1
        return _span(writer, operand, layout, axis)
    if op.name == "cast" and op.attrs["dtype"] == "int64" and dtype_of(op.operands[0]) in ("int32", "int64"):
        return _span(writer, op.operands[0], layout, axis)
    if op.name == "add" and dtype_of(value) == "int64":
        parts = [_span(writer, v, layout, axis) for v in op.operands]
        if parts[0] is not None and parts[1] is not None:
            return parts[0][0] + parts[1][0], parts[0][1] + parts[1][1], parts[0][2] + parts[1][2]
    return None


def _reach(writer: Writer, extent: int, layout: Tiled, axis: int) -> tuple[list[str], int, int]:
    """The positions along an axis that the lanes of a group hold: from the group's first one on."""
    firsts, widths = _held(layout, axis)
    if layout.shape[axis] != extent or len(set(widths)) > 1:
        return [], 0, extent - 1
    first = writer.table(firsts, "group" if len(firsts) > 1 else "0")
    return ([f"({first})"] if first != "0" else []), 0, widths[0]


@functools.lru_cache(256)
def _held(layout: Tiled, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each group, the least coordinate along an axis that it holds, and how far the others go beyond."""
    held = lay.table(layout)[..., axis].reshape(layout.groups, -1)
    least, most = held.min(axis=1), held.max(axis=1)
    return tuple(int(x) for x in least), tuple(int(x) for x in most - least)
