"""What a kernel tells its author."""

from __future__ import annotations

from collections.abc import Sequence

from kittens.codegen import cexpr
from kittens.codegen.emit.text import quoted
from kittens.codegen.emit.writer import LOG, Writer
from kittens.codegen.placement import dtype_of, is_tile, shape
from kittens.dtypes import BY_NAME
from kittens.ir import Op, Value

#: Elements of a tile that are printed in a line at most.
_IN_A_LINE = 8

#: A value that is printed: the format, and the value; that of "%s" is a bool.
_Shown = tuple[str, str]


def op_print(writer: Writer, op: Op) -> None:
    """Print by one thread. Scalars stand in the text; tiles follow it, a few elements a line, as lines alone stay whole."""
    writer.locate(op)
    where, program = _program(writer)
    parts = op.attrs["text"].split("{}")
    text, values, tiles = _format(parts[0]), list(program), []
    for x, part in zip(op.operands, parts[1:], strict=True):
        if is_tile(x):
            tiles.append(x)
            text += _format(f"<{x.type}>")
        else:
            value = _element(writer.scalar(x), dtype_of(x))
            text += value[0]
            values.append(value)
        text += _format(part)
    writer.line(f"if (tid == 0) {_print(writer, f'{where}: {text}', values)}")
    for x in tiles:
        _tile(writer, x, where, program)


def _tile(writer: Writer, x: Value, where: str, program: Sequence[_Shown]) -> None:
    """Print a tile, by way of shared memory."""
    extents, dtype = shape(x), dtype_of(x)
    size, total = BY_NAME[dtype].bytes, 1
    for n in extents:
        total *= n
    if x not in writer.held and x not in writer.plan.placement.implicit:
        writer.hold(x, writer.layout_of(x))
    layout = writer.held[x][1] if x in writer.held else writer.layout_of(x)
    at = writer.before_scratch(total * size)
    writer.put_all(x, lambda r: f"{at} + ({writer.linear(layout, r)}) * {size}", layout)
    writer.line("kt_barrier();")
    count = next(n for n in range(min(_IN_A_LINE, extents[-1]), 0, -1) if extents[-1] % n == 0)
    index, below = [], 1
    for n in reversed(extents):
        index.append(("%d", f"element / {below} % {n}"))
        below *= n
    values = [
        _element(f"kt_get<{cexpr.ctype(dtype)}>({at} + (element + {i}) * {size})", dtype)
        for i in range(count)
    ]
    place = ", ".join(["%d"] * len(extents))
    text = f"{where}: {_format(x.name or 'tile')}[{place}..]: {' '.join(form for form, _ in values)}"
    writer.open(f"if (tid == 0) for (int element = 0; element < {total}; element += {count})")
    writer.line(_print(writer, text, [*program, *index[::-1], *values]))
    writer.close()


def _program(writer: Writer) -> tuple[str, list[_Shown]]:
    """The format of a program's coordinates, and these."""
    function = writer.plan.function
    made = next(
        (o for o in function.body.ops if o.name == "program_id" and o.results[0] in writer.names), None
    )
    rank = function.grid_rank
    if made is not None:
        coordinates = [writer.names[v] for v in made.results]
    else:
        coordinates, below = [], ""
        for i in range(rank):
            text = f"{writer.program}{below}"
            coordinates.append(f"{text} % kt_u32(grid_{i})" if i < rank - 1 else text)
            below += f" / kt_u32(grid_{i})"
    where = ", ".join(["%lld"] * rank) + ("," if rank == 1 else "")
    return f"({where})", [("%lld", f"kt_i64({c})") for c in coordinates]


def _element(text: str, dtype: str) -> _Shown:
    kind = BY_NAME[dtype]
    if kind.kind in "fs":
        return "%.9g", cexpr.widen(text, dtype)
    if kind.kind == "b":
        return "%s", text
    return ("%llu", f"kt_u64({text})") if kind.kind == "u" else ("%lld", f"kt_i64({text})")


def _format(text: str) -> str:
    return text.replace("%", "%%")


def _print(writer: Writer, text: str, values: Sequence[_Shown]) -> str:
    """The statement that prints a line: by the device's printf, or into the log."""
    if not writer.machine.logs:
        shown = [f'({x} ? "True" : "False")' if form == "%s" else x for form, x in values]
        line = f'{quoted(text)[:-1]}\\n"'
        return f"KT_PRINT({', '.join([line, *shown])});"
    text = text.replace("\n", " ")
    if text not in writer.messages:
        writer.messages.append(text)
    bits = [f"kt_u64(kt_bits({x}))" if form == "%.9g" else f"kt_u64({x})" for form, x in values]
    return f"KT_RECORD({LOG}, {', '.join([str(writer.messages.index(text) + 1), *bits])});"


def op_assert(writer: Writer, op: Op) -> None:
    writer.locate(op)
    x = op.operands[0]
    if not is_tile(x):
        writer.line(f"KT_ASSERT({writer.scalar(x)}, {quoted(op.attrs['message'])});")
        return
    layout = writer.held[x][1] if x in writer.held else writer.layout_of(x)
    read = writer.reader(x, layout)
    writer.line(f"KT_EACH(r, {layout.registers}) KT_ASSERT({read('r')}, {quoted(op.attrs['message'])});")
