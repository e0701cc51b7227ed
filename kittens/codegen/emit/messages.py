"""What a kernel tells its author."""

from __future__ import annotations

from kittens.codegen.emit.text import quoted
from kittens.codegen.emit.writer import Writer
from kittens.codegen.placement import (
    is_tile,
)
from kittens.ir import Op


def op_print(writer: Writer, op: Op) -> None:
    writer.locate(op)
    writer.line(f"// kt.device_print({op.attrs['text']!r}): on the reference only")


def op_assert(writer: Writer, op: Op) -> None:
    writer.locate(op)
    x = op.operands[0]
    if not is_tile(x):
        writer.line(f"KT_ASSERT({writer.scalar(x)}, {quoted(op.attrs['message'])});")
        return
    layout = writer.held[x][1] if x in writer.held else writer.layout_of(x)
    read = writer.reader(x, layout)
    writer.line(f"KT_EACH(r, {layout.registers}) KT_ASSERT({read('r')}, {quoted(op.attrs['message'])});")
