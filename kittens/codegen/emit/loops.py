"""Loops and branches, and where a program stands in its grid."""

from __future__ import annotations

from kittens.codegen import cexpr
from kittens.codegen.emit import phases
from kittens.codegen.emit.memory import (
    _hold,
    _put_held,
    copies_ahead,
    linear_copies,
    wait_all,
)
from kittens.codegen.emit.text import added
from kittens.codegen.emit.writer import Writer
from kittens.codegen.placement import (
    dtype_of,
    is_tile,
)
from kittens.codegen.plan import Staged
from kittens.ir import Op, Value


def op_program_id(writer: Writer, op: Op) -> None:
    writer.locate(op)
    names = [writer.fresh(v.name or f"program_{i}") for i, v in enumerate(op.results)]
    writer.names.update(zip(op.results, names, strict=False))
    if writer.cluster > 1:
        pairs = writer.fresh("pair")
        _program(writer, op, [pairs, *names[1:]])
        writer.line(f"const kt_i64 {names[0]} = {pairs} * {writer.cluster} + rank;")
    else:
        _program(writer, op, names)


def _program(writer: Writer, op: Op, names: list[str]) -> None:
    """Declare the coordinates of a program."""
    rank, rows = op.attrs["rank"], writer.rows
    # A kernel that asks twice is in one place: the first order holds, with what it says beside.
    attrs = next(x for x in writer.plan.function.body.walk() if x.name == "program_id").attrs
    order = attrs["order"]
    if rank == 1:
        text = f"kt_u32({rows}) - 1u - {writer.program}" if order == "descending" else writer.program
        writer.line(f"const kt_i64 {names[0]} = {text};")
        return
    writer.line(f"{'' if 'program' in writer.taken else 'kt_u32 '}program = {writer.program};")
    writer.taken.add("program")
    # Nor are programs that wait for those before them dealt to parts: a part would wait for all of another.
    if order != "linear" and writer.machine.parts and not writer.plan.function.ordered:
        programs = " * ".join(f"kt_u32({rows if i == 0 else f'grid_{i}'})" for i in range(rank))
        writer.line(f"program = kt_dealt(program, {programs}, {writer.machine.parts}u);")
    if order in ("ascending", "descending"):
        among = min(attrs.get("among", _SORTED), _ALL)
        _sorted(writer, names, among, descending=order == "descending")
        return
    if order == "grouped":
        # Eight rows of programs at a time, column by column, so that neighbours in time share operands.
        width = writer.fresh("width")
        writer.line(
            f"const kt_u32 {width} = 8u * kt_u32(grid_1), first = program % kt_u32({rows} * grid_1) / {width} * 8u;"
        )
        writer.line(f"const kt_u32 tall = kt_u32({rows}) - first < 8u ? kt_u32({rows}) - first : 8u;")
        writer.line(f"const kt_i64 {names[0]} = first + program % kt_u32({rows} * grid_1) % {width} % tall;")
        writer.line(f"const kt_i64 {names[1]} = program % kt_u32({rows} * grid_1) % {width} / tall;")
        if rank == 3:
            writer.line(f"const kt_i64 {names[2]} = program / kt_u32({rows} * grid_1);")
        return
    for i, name in enumerate(names):
        extent = rows if i == 0 else f"grid_{i}"
        writer.line(f"const kt_i64 {name} = program" + (f" % kt_u32({extent});" if i < rank - 1 else ";"))
        if i < rank - 1:
            writer.line(f"program /= kt_u32({extent});")


#: Programs that are sorted at a time: enough to even out, few enough that what they share stays in caches.
_SORTED = 512
#: And at most: with a row more of them, their number is still one of 32 bits.
_ALL = 1 << 31


def _sorted(writer: Writer, names: list[str], among: int, *, descending: bool) -> None:
    """Coordinates of a program among those sorted by their first one, for a few of the other coordinates at a time."""
    rows = writer.rows
    others = " * ".join(f"kt_u32(grid_{i})" for i in range(1, len(names)))
    some, first, here, place = (writer.fresh(stem) for stem in ("some", "first", "here", "place"))
    writer.line(
        f"const kt_u32 {some} = {among - 1}u / kt_u32({rows}) + 1u;  // of the other coordinates together"
    )
    writer.line(f"const kt_u32 {first} = program / ({some} * kt_u32({rows})) * {some};")
    writer.line(f"const kt_u32 {here} = {others} - {first} < {some} ? {others} - {first} : {some};")
    writer.line(f"program -= {first} * kt_u32({rows});")
    writer.line(f"const kt_u32 {place} = program / {here};")
    writer.line(f"program = {first} + program - {place} * {here};")
    writer.line(f"const kt_i64 {names[0]} = {f'kt_u32({rows}) - 1u - {place}' if descending else place};")
    if len(names) == 2:
        writer.line(f"const kt_i64 {names[1]} = program;")
    else:
        writer.line(f"const kt_i64 {names[1]} = program % kt_u32(grid_1);")
        writer.line(f"const kt_i64 {names[2]} = program / kt_u32(grid_1);")


def op_num_programs(writer: Writer, op: Op) -> None:
    for i, v in enumerate(op.results):
        writer.names[v] = f"kt_i64(grid_{i})"


def declare_carried(writer: Writer, op: Op) -> list[tuple[Value, Value, str]]:
    """Declare the carried values of a loop or branch, with their first values: (argument, yielded, name)."""
    (region,) = op.regions
    n = len(op.results)
    arguments, inits = region.args[len(region.args) - n :], op.operands[len(op.operands) - n :]
    out = []
    for argument, init, result, after in zip(
        arguments, inits, op.results, region.ops[-1].operands, strict=False
    ):
        c = cexpr.ctype(dtype_of(result))
        name = writer.fresh(argument.name or result.name or "carried")
        if is_tile(result):
            layout = writer.layout_of(result)
            read = writer.reader(init, layout)
            writer.line(f"{c} {name}[{layout.registers}];")
            writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {read('r')};")
            writer.held[argument] = writer.held[result] = (name, layout)
        else:
            writer.line(f"{c} {name} = {writer.scalar(init)};")
            writer.names[argument] = writer.names[result] = name
        out.append((argument, after, name))
    return out


def carry_over(writer: Writer, carried: list[tuple[Value, Value, str]]) -> None:
    """Give the carried values what a pass yields, as if all at once."""
    own = {argument: name for argument, _, name in carried}
    staged = []
    for argument, after, name in carried:
        if after is argument:
            continue
        if is_tile(argument):
            layout = writer.held[argument][1]
            read = writer.reader(after, layout)
            if after in own or after not in writer.held:
                copy = writer.fresh(f"{name}_next")
                writer.line(f"{cexpr.ctype(dtype_of(argument))} {copy}[{layout.registers}];")
                writer.line(f"KT_EACH(r, {layout.registers}) {copy}[r] = {read('r')};")
                staged.append(f"KT_EACH(r, {layout.registers}) {name}[r] = {copy}[r];")
            else:
                staged.append(f"KT_EACH(r, {layout.registers}) {name}[r] = {read('r')};")
        else:
            text = writer.scalar(after)
            if after in own:
                copy = writer.fresh(f"{name}_next")
                writer.line(f"const {cexpr.ctype(dtype_of(argument))} {copy} = {text};")
                text = copy
            staged.append(f"{name} = {text};")
    for text in staged:
        writer.line(text)


def op_when(writer: Writer, op: Op) -> None:
    writer.locate(op)
    carried = declare_carried(writer, op)
    writer.open(f"if ({writer.scalar(op.operands[0])})")
    writer.region(op.regions[0])
    carry_over(writer, carried)
    writer.close()
    writer.scratch_busy = True


def op_loop(writer: Writer, op: Op) -> None:
    writer.locate(op)
    (region,) = op.regions
    carried = declare_carried(writer, op)
    lo, hi, step = map(writer.scalar, op.operands[:3])
    index = region.args[0]
    name = writer.names[index] = writer.fresh(index.name or "pass")
    rings = [s for s in writer.plan.staged.values() if s.loop is op and s.depth > 1]
    depth = rings[0].depth if rings else 1
    slot = writer.fresh("slot") if rings else ""
    if rings:
        writer.barrier()
        writer.line(f"// Tiles are loaded {depth - 1} passes ahead, into a ring of {depth}.")
        writer.open(f"for (int stage = 0; stage < {depth - 1}; ++stage)")
        ahead = writer.fresh("ahead")
        writer.line(f"const kt_i64 {ahead} = {lo} + stage * {step};")
        copies_ahead(writer, rings, "stage", index, ahead, f"{ahead} < {hi}")
        writer.close()
    schedule = writer.plan.schedules.get(op)
    if schedule is not None:
        phases.enter(writer, schedule)
    counter = writer.machine.dialect.counter
    short = sum(inner.name in ("mma", "mma_scaled") for inner in region.walk()) == 1
    unrolled = bool(rings) and short and writer.machine.unrolled and counter != "kt_i64"
    last = count = into = ""
    held: list[tuple[Staged, str]] = []
    if rings and not unrolled:
        writer.line(f"int {slot} = 0;")
    if counter == "kt_i64":
        writer.open(f"for (kt_i64 {name} = {lo}; {name} < {hi}; {name} += {step})")
    else:  # passes are counted in fewer bits than the index has
        count, passes = writer.fresh("count"), writer.fresh("passes")
        writer.line(f"const {counter} {passes} = kt_passes({lo}, {hi}, {step});")
        writer.open(f"for ({counter} {count} = 0; {count} < {passes};{'' if unrolled else f' ++{count}'})")
        last = f"{count} + {depth - 1} < {passes}"
        if unrolled:  # a slot's addresses are constants then
            writer.open(f"KT_UNROLL for (int {slot} = 0; {slot} < {depth}; ++{slot})")
            writer.line(f"if ({count} >= {passes}) break;")
        writer.line(
            f"const kt_i64 {name} = {added('' if lo == 'kt_i64(0)' else lo, count if step == 'kt_i64(1)' else f'{count} * {step}')};"
        )
    if schedule is not None:
        ahead = f"({name} + {depth - 1} * {step})"
        phases.one_pass(writer, op, schedule, slot, ahead, last)
    elif rings:
        # Batches under way: they are made in every pass, empty ones too, so that counting them tells.
        counted = linear_copies(writer, rings)
        writer.line(
            f"kt_wait_loads<{min((depth - 2) * counted, 63)}>();"
            if counted
            else f"kt_cp_async_wait<{depth - 2}>();"
        )
        writer.barrier()
        ahead = writer.fresh("ahead")
        writer.line(f"const kt_i64 {ahead} = {name} + {depth - 1} * {step};")
        into = writer.fresh("into")
        writer.line(f"const int {into} = {slot} == 0 ? {depth - 1} : {slot} - 1;")
        late = [s for s in rings if writer.machine.late and short and not s.linear and s.width]
        alive = last or f"{ahead} < {hi}"
        held = [(s, _hold(writer, s, {index: ahead}, alive)) for s in late]
        copies_ahead(writer, [s for s in rings if s not in late], into, index, ahead, alive)
        writer.slots.update({staged.load.result: slot for staged in rings})
    writer.scratch_busy = True
    if schedule is None:
        writer.region(region)
    carry_over(writer, carried)
    for staged, array in held:
        _put_held(writer, staged, into, array)
    if unrolled:
        writer.line(f"++{count};")
        writer.close()
    elif rings:
        writer.line(f"{slot} = {slot} == {depth - 1} ? 0 : {slot} + 1;")
    writer.close()
    if schedule is not None:
        phases.leave(writer, schedule)
    if rings:
        wait_all(writer, rings)
        writer.barrier()
    writer.scratch_busy = True
