"""Parts of a program: what values follow from, and scalars written apart from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kittens.codegen.emit.text import added
from kittens.codegen.emit.writer import Writer
from kittens.ir import Op, Value


def behind(values: Sequence[Value], stop: Collection[Value] = ()) -> set[Op]:
    """The operations that values follow from, not looking behind those in `stop`."""
    found: set[Op] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        op = value.producer
        if op is not None and op not in found and value not in stop:
            found.add(op)
            todo += op.operands
    return found


def write_scalar(writer: Writer, op: Op) -> None:
    """Write an operation on scalars."""
    if op.name not in ("const", "dim", "index", "slice", "permute"):
        (writer.handlers.get(op.name) or writer.handlers["elementwise"])(writer, op)


def nth(lo: str, count: str, step: str) -> str:
    return added("" if lo == "kt_i64(0)" else lo, count if step == "kt_i64(1)" else f"{count} * {step}")
