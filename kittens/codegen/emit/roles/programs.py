"""Which programs a block takes: as many steps on as there are blocks, or drawn from a counter by the copying team."""

from __future__ import annotations

from kittens.codegen.emit.loops import op_program_id
from kittens.codegen.emit.roles.compute import Compute
from kittens.codegen.emit.roles.rings import advance, bar
from kittens.codegen.emit.text import added
from kittens.codegen.emit.writer import Writer
from kittens.ir import Op


def programs(writer: Writer, *, told: bool = False) -> str:
    """Open the loop over the programs that this block takes: of those who compute, of the thread that copies and draws them,
    or of one that is told which (`told`). Returns what ends a program.

    Where programs wait for those before them, one is drawn no sooner than it can begin: blocks that are ahead then take the
    lower numbers.
    """
    number, cluster = writer.program, writer.cluster
    assert writer.plan.roles is not None
    turns = writer.plan.roles.turns
    if turns is None:
        first, step = (f"{x} / {cluster}u" if cluster > 1 else x for x in ("kt_program_x()", "kt_blocks()"))
        writer.open(f"for (kt_u32 {number} = {first}; {number} < programs; {number} += {step})")
        return ""
    at = f"smem + {turns.bar + 16}"
    if isinstance(writer, Compute) or told:
        writer.open("for (;;)")
        writer.line(f"kt_bar_wait({bar(turns, 'full')}, turn_phase);")
        for i in range(writer.plan.function.grid_rank):
            read = f"int(kt_ld_shared_b32({added(at, 4 * i)}))"
            if not told:  # who reads it, arrives: others have it from that lane
                read = f"kt_uniform(lane == 0 ? {read} : 0)"
            writer.line(f"const int turn_{i} = {read};")
        writer.line(f"{'' if told else 'if (lane == 0) '}kt_bar_arrive({bar(turns, 'empty')});")
        advance(writer, turns)
        writer.line("if (turn_0 < 0) break;")
        return ""
    drawn = writer.fresh("drawn")
    waiting = writer.plan.function.ordered
    first, draw = "kt_program_x()", "kt_blocks() + kt_draw(counter, programs)"
    if waiting:  # the first one too: nobody waits for a program of a block that may not have begun
        first = draw = "kt_draw(counter, programs + kt_blocks())"
    writer.line(f"kt_u32 {drawn} = {first};")
    writer.open("for (;;)")
    writer.line(f"const kt_u32 {number} = {drawn};")
    heard = f"kt_bar_wait({bar(turns, 'empty')}, turn_phase);"
    idle = bool(writer.plan.roles.idle)  # then it is not known yet whether anything will be told
    if not idle:
        writer.line(heard)
    writer.open(f"if ({number} >= programs)")
    if idle:
        writer.line(heard)
    for i in range(writer.plan.function.grid_rank if waiting or idle else 1):  # others read all of them
        writer.line(f"kt_st_shared_b32({added(at, 4 * i)}, ~0u);")
    writer.line(f"kt_bar_arrive({bar(turns, 'full')});")
    writer.line("break;")
    writer.close()
    if waiting:
        return f"{drawn} = {draw};"
    writer.line(f"{drawn} = {draw};  // the next program, needed behind this one's copies")
    return ""


def told_program_id(writer: Writer, op: Op) -> None:
    """Where a program is in the grid, for those who are told."""
    assert writer.plan.roles is not None
    if writer.plan.roles.turns is None:
        op_program_id(writer, op)
    else:
        writer.names.update((v, f"kt_i64(turn_{i})") for i, v in enumerate(op.results))


def tell(writer: Writer, op: Op) -> None:
    """Tell the others where the program that the copying team has drawn is in the grid."""
    assert writer.plan.roles is not None and writer.plan.roles.turns is not None
    turns = writer.plan.roles.turns
    if writer.plan.roles.idle:
        writer.line(f"kt_bar_wait({bar(turns, 'empty')}, turn_phase);")
    for i, value in enumerate(op.results):
        writer.line(
            f"kt_st_shared_b32({added(f'smem + {turns.bar + 16}', 4 * i)}, kt_u32({writer.names[value]}));"
        )
    writer.line(f"kt_bar_arrive({bar(turns, 'full')});")
    advance(writer, turns)
