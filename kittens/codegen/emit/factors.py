"""Factors of 1, by which groups need not multiply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kittens.codegen.emit.elementwise import elementwise
from kittens.codegen.emit.writer import Writer
from kittens.codegen.known import same_number
from kittens.codegen.placement import ELEMENTWISE, dtype_of, is_tile, related, shape, slice_of, squeezed
from kittens.ir import Op, Value
from kittens.layouts import Tiled, same

#: Registers a lane from which on a branch is cheaper than the products.
_MANY = 8


@dataclass(frozen=True)
class Asked:
    """A product with a factor that is mostly 1: what it multiplies, by what, and the text that says whether a group has to."""

    x: Value
    factor: Value
    layout: Tiled
    answer: str


def op_mul(writer: Writer, op: Op) -> None:
    """x * where(c, y, 1), y of each row or column: a group in which c is nowhere true keeps x.

    So c has to lie as x does: each group asks for the rows that it holds.
    """
    found = ask(writer, op)
    if found is None:
        elementwise(writer, op)
    else:
        scale(writer, op, found)


def ask(writer: Writer, op: Op) -> Asked | None:
    """Ask a group's lanes whether they have to multiply; None if the product is no such one. x is not read yet."""
    layout = writer.layout_of(op.result) if is_tile(op.result) else None
    for x, factor in (op.operands, op.operands[::-1]):
        if layout is None or layout.registers < _MANY or dtype_of(x) != "float32":
            continue
        choice = _choice(writer, factor, layout)
        if choice is None:
            continue
        writer.locate(op)
        return Asked(x, factor, layout, writer.votes.get(choice[0]) or _vote(writer, *choice))
    return None


def _vote(writer: Writer, condition: Value, held: Tiled) -> str:
    """Ask whether a condition is true for any row of a group."""
    any_, answer = writer.fresh("any"), writer.fresh("grown")
    chosen = writer.reader(condition, held)
    writer.line(f"bool {any_} = false;")
    writer.line(f"KT_EACH(r, {held.registers}) {any_} = {any_} || {chosen('r')};")
    writer.line(f"const bool {answer} = kt_any({any_});")
    return answer


def guarded(writer: Writer, op: Op, before: Sequence[Op], write: Callable[[Op], None]) -> None:
    """where(c, y, 1) of rows: a group in which c is nowhere true does not compute y. `before`: what y alone needs.

    Where an operand would first be moved to the lanes that need it, for which all groups meet, none is spared anything.
    """
    condition, layout = op.operands[0], writer.layout_of(op.result)
    read = {v for x in (*before, op) for v in x.operands} - {v for x in before for v in x.results}
    if not all(_lies(writer, v, layout) for v in read):
        for other in (*before, op):
            write(other)
        return
    answer = writer.votes[condition] = _vote(writer, condition, layout)
    chosen, name = writer.reader(condition, layout), writer.fresh(op.result.name or "t")
    writer.line(f"float {name}[{layout.registers}];")
    writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = 1.0f;")
    writer.open(f"if ({answer})")
    for other in before:
        write(other)
    y = writer.reader(op.operands[1], layout)
    writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {chosen('r')} ? {y('r')} : 1.0f;")
    writer.close()
    writer.held[op.result] = (name, layout)


def _lies(writer: Writer, value: Value, layout: Tiled) -> bool:
    """Whether lanes hold what they need of a value, if an operation of this layout reads it."""
    if not is_tile(value) or value in writer.plan.placement.implicit:
        return True
    if value in writer.held:
        have = writer.held[value][1]
        return have.shape == layout.shape and same(have, layout)
    op = value.producer
    if op is None or op.name not in ("broadcast", "reshape"):
        return False
    (operand,) = op.operands
    alike = not is_tile(operand) or squeezed(shape(operand)) == squeezed(shape(value))
    return alike and _lies(writer, operand, layout)


def factors(ops: Sequence[Op], uses: Mapping[Value, Sequence[Op]]) -> dict[Op, list[Op]]:
    """The vectors where(c, y, 1) among operations, with those of the operations that y alone needs: what each lane computes of
    its own rows. (For other operations groups may meet, or wait for what is under way; and loads have an order.)
    """
    found: dict[Op, list[Op]] = {}
    for op in ops:
        if op.name != "where" or not is_tile(op.result) or len(squeezed(shape(op.result))) != 1:
            continue
        if dtype_of(op.result) != "float32" or same_number(op.operands[2]) != 1.0:
            continue
        alone: set[Op] = set()
        for other in reversed(ops[: ops.index(op)]):
            users = [u for v in other.results for u in uses.get(v, ())]
            if (
                other.name in (*ELEMENTWISE, "broadcast", "const")
                and all(squeezed(shape(v)) in ((), squeezed(shape(op.result))) for v in other.results)
                and users
                and all(u in alone or u is op for u in users)
                and op.operands[0].producer is not other
            ):
                alone.add(other)
        found[op] = [x for x in ops if x in alone]
    return found


def scale(writer: Writer, op: Op, asked: Asked) -> None:
    """Multiply where a group has to."""
    name, registers = writer.fresh(op.result.name or "t"), asked.layout.registers
    kept, factor = writer.reader(asked.x, asked.layout), writer.reader(asked.factor, asked.layout)
    writer.line(f"float {name}[{registers}];")
    writer.line(f"KT_EACH(r, {registers}) {name}[r] = {kept('r')};")
    writer.line(f"if ({asked.answer}) KT_EACH(r, {registers}) {name}[r] = {name}[r] * {factor('r')};")
    writer.held[op.result] = (name, asked.layout)


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
    if op is None or op.name != "where" or value not in writer.held or same_number(op.operands[2]) != 1.0:
        return None
    held = writer.held[value][1]
    if lies is None or held.shape != lies.shape or not same(held, lies):
        return None
    return op.operands[0], held
