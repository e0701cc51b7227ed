"""Factors of 1, by which groups need not multiply."""

from __future__ import annotations

from kittens.codegen.emit.elementwise import elementwise
from kittens.codegen.emit.writer import Writer
from kittens.codegen.placement import dtype_of, is_tile, related, slice_of
from kittens.ir import Op, Value
from kittens.layouts import Tiled, same

#: Registers a lane from which on a branch is cheaper than the products.
_MANY = 8


def op_mul(writer: Writer, op: Op) -> None:
    """x * where(c, y, 1), y of each row or column: a group in which c is nowhere true keeps x.

    So c has to lie as x does: each group asks for the rows that it holds.
    """
    layout = writer.layout_of(op.result) if is_tile(op.result) else None
    for x, factor in (op.operands, op.operands[::-1]):
        if layout is None or layout.registers < _MANY or dtype_of(x) != "float32":
            continue
        choice = _choice(writer, factor, layout)
        if choice is None:
            continue
        writer.locate(op)
        condition, held = choice
        name, any_ = writer.fresh(op.result.name or "t"), writer.fresh("any")
        kept, scale, chosen = (
            writer.reader(x, layout),
            writer.reader(factor, layout),
            writer.reader(condition, held),
        )
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


def _choice(writer: Writer, value: Value, layout: Tiled) -> tuple[Value, Tiled] | None:
    """The condition of a held vector where(condition, ..., 1) behind a broadcast, and its layout: that of the rows or columns
    of `layout`. None for anything else.
    """
    lies: Tiled | None = None
    while value.producer is not None and value.producer.name in ("broadcast", "reshape"):
        relation = related(value.producer)
        if relation is not None and len(layout.axes) == 2:
            try:
                lies = slice_of(layout, relation[2])
            except ValueError:
                return None
        value = value.producer.operands[0]
    op = value.producer
    if op is None or op.name != "where" or value not in writer.held or not _one(op.operands[2]):
        return None
    one = op.operands[2]
    while one.producer is not None and one.producer.name == "broadcast":
        one = one.producer.operands[0]
    if one.producer is None or one.producer.name != "const" or one.producer.attrs["value"] != 1.0:
        return None
    held = writer.held[value][1]
    if lies is None or held.shape != lies.shape or not same(held, lies):
        return None
    return op.operands[0], held


def _one(value: Value) -> bool:
    """Whether all elements of a value are one and the same."""
    while is_tile(value) and value.producer is not None and value.producer.name == "broadcast":
        value = value.producer.operands[0]
    return not is_tile(value) or (value.producer is not None and value.producer.name == "const")
