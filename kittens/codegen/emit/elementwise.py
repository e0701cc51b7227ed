"""Operations element by element."""

from __future__ import annotations

from kittens.codegen import cexpr
from kittens.codegen.emit.writer import Writer
from kittens.codegen.known import along, natural
from kittens.codegen.placement import (
    dtype_of,
    is_tile,
    shape,
)
from kittens.codegen.positions import everywhere, held_by_groups
from kittens.ir import Op
from kittens.layouts import Tiled

#: Registers of a tile from which on a scalar branch may spare more than it costs.
_WORTH_A_BRANCH = 4

#: Words of one block of the random number generator.
BLOCK = 4


def op_reshape(writer: Writer, op: Op) -> None:
    pass


def elementwise(writer: Writer, op: Op) -> None:
    types = [dtype_of(x) for x in op.operands]
    result = op.result
    to = dtype_of(result)
    writer.locate(op)
    state = []
    if op.name == "random_bits":
        state = [writer.fresh("random")]
        writer.line(f"kt_random_state {state[0]} = {{}};")
    if not is_tile(result):
        texts = [writer.scalar(x) for x in op.operands] + state
        writer.names[result] = writer.fresh(result.name or "t")
        writer.line(
            f"const {cexpr.ctype(to)} {writer.names[result]} = {cexpr.expression(op.name, op.attrs, types, to, texts)};"
        )
        return
    layout = writer.layout_of(result)
    readers = [writer.reader(x, layout) for x in op.operands]
    text = cexpr.expression(op.name, op.attrs, types, to, [f("r") for f in readers] + state)
    test = _mask(writer, op, layout)
    if test and _own(writer, op, layout):
        name = writer.held[op.operands[1]][0]
    else:
        name = writer.fresh(result.name or "t")
        writer.line(f"{cexpr.ctype(to)} {name}[{layout.registers}];")
        if test:
            writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {readers[1]('r')};")
    if op.name == "exp2" and to == "float32" and layout.registers >= _WORTH_A_BRANCH:
        writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {readers[0]('r')};")
        writer.line(f"KT_EXP2_ALL({layout.registers}, {name});")
        writer.held[result] = (name, layout)
        return
    sparing = f"if (!{test}) " if test else ""  # a whole tile that nothing is masked of stays as it is
    writer.line(f"{sparing}KT_EACH(r, {layout.registers}) {name}[r] = {text};")
    writer.held[result] = (name, layout)


def op_random_bits(writer: Writer, op: Op) -> None:
    """Four neighbours whose counters are one block of the generator's are made at once."""
    result, (seed, counter) = op.result, op.operands
    if is_tile(result):
        layout = writer.layout_of(result)
        axis, width = writer.vector(layout, shape(result))
        run = along(counter, axis, width) if width >= BLOCK else None
        if run is not None and run.step == 1 and run.divisor % BLOCK == 0:
            writer.locate(op)
            key, read = writer.scalar(seed), writer.reader(counter, layout)
            name = writer.fresh(result.name or "t")
            writer.line(f"kt_u32 {name}[{layout.registers}];")
            writer.line(
                f"KT_EACH(r, {layout.registers // BLOCK}) KT_RANDOM_BLOCK({name}, r * {BLOCK}, kt_i64({key}), kt_i64({read(f'r * {BLOCK}')}));"
            )
            writer.held[result] = (name, layout)
            return
    elementwise(writer, op)


def _mask(writer: Writer, op: Op, layout: Tiled) -> str | None:
    """A test, alike in a group, that a `where` gives its first choice for all that the group holds, if one is worth its branch."""
    if op.name != "where" or not is_tile(op.operands[0]) or layout.registers < _WORTH_A_BRANCH:
        return None
    held = held_by_groups(layout, shape(op.operands[0]), writer.table)
    return everywhere(op.operands[0], writer.plan.placement.implicit, writer.scalar, held, writer.edge_test)


def _own(writer: Writer, op: Op, layout: Tiled) -> bool:
    """Whether the first choice of a `where` lies as the result does, and nobody else reads it: it may be changed in place."""
    value = op.operands[1]
    made = value.producer
    return (
        made is not None
        and writer.uses[value] == [op]
        and writer.owner.get(made) is writer.owner.get(op)
        and value in writer.held
        and writer.held[value][1] == layout
        and made.name not in ("loop", "when")
    )


def op_floordiv(writer: Writer, op: Op) -> None:
    """Numbers of programs are divided in 32 bits: no device has an instruction for 64."""
    result, (a, b) = op.result, op.operands
    largest = None if is_tile(result) or dtype_of(result) != "int64" else writer.most(a)
    if largest is None or largest >= 2**32 or not natural(b):
        elementwise(writer, op)
        return
    writer.locate(op)
    name = writer.names[result] = writer.fresh(result.name or "t")
    function = {"floordiv": "kt_quotient", "mod": "kt_remainder"}[op.name]
    writer.line(f"const kt_i64 {name} = {function}({writer.scalar(a)}, {writer.scalar(b)});")


op_mod = op_floordiv


def op_arange(writer: Writer, op: Op) -> None:  # of one element
    writer.names[op.result] = "0"


def op_cast(writer: Writer, op: Op) -> None:
    elementwise(writer, op)
