"""Vectors along the engine's columns: dealt to the lanes of each group, which read them from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kittens import layouts as lay
from kittens.codegen import cexpr
from kittens.codegen.emit.roles.rings import ring_of, slot_of
from kittens.codegen.emit.text import holders, paren
from kittens.codegen.emit.writer import Reader, Writer
from kittens.codegen.placement import dtype_of, related
from kittens.codegen.plan import Staged
from kittens.codegen.roles import dealt_bytes
from kittens.dtypes import BY_NAME
from kittens.errors import InternalError
from kittens.ir import Op


def columns(writer: Writer, staged: Staged, layout: lay.Tiled) -> Reader:
    """How to read a vector from its slot, each lane its columns, two at a time: where they are used, for the sake of registers."""
    ring = ring_of(writer, staged.load.result)
    offsets = lay.register_offsets(layout, "col")
    if offsets is None or any(run != (run[0], run[0] + 1) for run in lay.runs(layout, "col", 2)):
        raise InternalError(f"registers of {layout} are no pairs of neighbours")
    first, at = writer.fresh("slot"), f"smem + {staged.offset} + {slot_of(ring)} * {ring.slot_bytes}"
    writer.line(f"const kt_smem {first} = kt_base_here({at} + {writer.coords(layout)['col']} * 4);")
    pairs = [offsets[r - r % 2] * 4 for r in range(layout.registers)]
    return lambda r: f"kt_ld_shared_of_two({first} + ({writer.table(pairs, r)}), {paren(r)} % 2)"


def _read_floats(writer: Writer, name: str, first: str, layout: lay.Tiled, offsets: Sequence[int]) -> None:
    """Fill an array with the floats that a lane's registers stand for, two at a time where they are neighbours."""
    if all(run == (run[0], run[0] + 1) for run in lay.runs(layout, "col", 2)):
        place = writer.table([o * 4 for o in offsets[::2]], "two")
        writer.line(
            f"KT_EACH(two, {layout.registers // 2}) KT_LOAD_FLOATS(2, {name}, two * 2, {first} + ({place}));"
        )
    else:
        place = writer.table([o * 4 for o in offsets], "r")
        writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = kt_get<float>({first} + ({place}));")


def dealt(writer: Writer, op: Op, layout: lay.Tiled) -> Reader:
    """How to read a broadcast of a vector that is dealt to the lanes of each group: through shared memory of the group."""
    vector, relation = op.operands[0], related(op)
    assert relation is not None and writer.plan.roles is not None
    have, dtype = writer.layout_of(vector), dtype_of(vector)
    read, c, size = writer.reader(vector, have), cexpr.ctype(dtype), BY_NAME[dtype].bytes
    reduced = lay.reduction(layout, relation[2])
    want = lay.with_axes(reduced.result, "col")
    offsets = lay.register_offsets(want, "col")
    if offsets is None:
        raise InternalError(f"registers of {want} do not add to a coordinate")
    at = f"smem + {writer.plan.roles.dealt[op]} + group * {dealt_bytes(vector)}"
    writer.line("kt_sync_lanes();  // all have read what was here before")
    to = writer.fresh("to")
    writer.line(f"const kt_smem {to} = {at};")
    keep, condition = holders(replace(have, digits=have.digits[:-1]))  # of one group
    for each, r in writer.each(keep, have.registers):
        text = f"{each}kt_put({to} + ({writer.coordinate(have, 'col', r)}) * {size}, {c}({read(r)}));"
        writer.line(f"if ({condition}) {text}" if condition else text)
    writer.line("kt_sync_lanes();")
    name, first = writer.fresh(f"{vector.name or 'vector'}_columns"), writer.fresh("dealt")
    writer.line(f"const kt_smem {first} = kt_base({at} + {writer.coords(want)['col']} * {size});")
    writer.line(f"{c} {name}[{want.registers}];")
    if dtype == "float32":
        _read_floats(writer, name, first, want, offsets)
    else:
        place = writer.table([o * size for o in offsets], "r")
        writer.line(f"KT_EACH(r, {want.registers}) {name}[r] = kt_get<{c}>({first} + ({place}));")
    return lambda r: f"{name}[{writer.table(reduced.into, r)}]"
