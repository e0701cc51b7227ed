"""The threads that add: they hand the engine what the computing teams have put in a buffer, and know where it belongs.

Two take passes in turn: from one's wait for the order of programs until its additions are done takes longer than a pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from kittens.artifact import Parameter, TileMap
from kittens.codegen.emit.memory import turn
from kittens.codegen.emit.roles.copying import passes
from kittens.codegen.emit.roles.maps import map_of, order_of, places_of
from kittens.codegen.emit.roles.programs import programs, told_program_id
from kittens.codegen.emit.roles.rings import OURS, advance, bar, phase_of, positions, slot_of
from kittens.codegen.emit.roles.slices import behind, write_scalar
from kittens.codegen.emit.text import added
from kittens.codegen.emit.writer import Handler, Writer
from kittens.codegen.engine import view_of
from kittens.codegen.placement import shape
from kittens.codegen.plan import Plan, Relay


def adding(plan: Plan, handlers: Mapping[str, Handler], maps: dict[TileMap, Parameter]) -> Writer:
    """What the adding threads do: the slice of the program that says where sums belong, and their additions."""
    assert plan.roles is not None
    ((loop, relay),) = plan.roles.relays.items()
    writer = Writer(plan, {**handlers, "program_id": told_program_id})
    writer.indent = "      "
    writer.taken |= OURS
    writer.program = writer.fresh("number")
    writer.line(f"const int me = int(kt_thread()) / {plan.machine.lanes} - 1;")
    positions(writer, 0, relay.handed)
    programs(writer, told=True)
    wanted = behind([*relay.add.operands[:-1], *loop.operands[:3]])
    for op in plan.function.body.ops:
        if op is loop:
            passes(writer, loop, extra=False)
            for inner in loop.regions[0].ops:
                if inner is relay.add:
                    _add(writer, relay, maps)
                elif inner in wanted:
                    write_scalar(writer, inner)
            writer.close()
        elif op in wanted or op.name == "program_id":
            write_scalar(writer, op)
    writer.close()
    return writer


def _add(writer: Writer, relay: Relay, maps: dict[TileMap, Parameter]) -> None:
    """Add what is in the buffer, a panel of columns at a time, and hand the buffer back once it has been read."""
    writer.open(f"if ({slot_of(relay.handed)} == me)")
    op, roles, panel = relay.add, writer.plan.roles, relay.panel
    view = view_of(op.operands[0])
    assert view is not None and roles is not None
    order = order_of(view.axes, 1, 0)
    rows, columns = relay.sums.shape
    box, sliced = (panel // 4, rows, *(1 for _ in order[2:])), view.slice is not None
    map = map_of(writer, maps, TileMap(view.parameter.name, order, box, panel, sliced=sliced))
    places = places_of(writer, op, shape(op.operands[-1]), view, order)
    names = [writer.fresh("at") for _ in places]
    writer.line(
        f"const int {', '.join(f'{name} = {place}' for name, place in zip(names, places, strict=True))};"
    )
    counted = turn(writer, op) if op.attrs.get("ordered") else ""
    if counted:  # before the data: it takes as long to come
        writer.line(f"kt_turn_wait({counted});")
        writer.line("kt_fence_async_all();")
    writer.line(f"kt_bar_wait({bar(relay.handed, 'full')}, {phase_of(relay.handed)});")
    # The engine takes no negative places, where nothing of the tile is inside.
    writer.open(f"if (({' | '.join(names)}) >= 0)")
    at = [added(names[0], f"panel * {panel // 4}"), *names[1:]]
    many = columns * 4 // panel
    writer.line(
        f"KT_EACH(panel, {many}) kt_tile_reduce_add({map}, smem + {roles.out} + panel * {rows * panel}, {', '.join(at)});"
    )
    writer.close()
    writer.line("kt_tile_commit();")
    writer.line("kt_tile_wait_read<0>();")
    writer.line(f"kt_bar_arrive({bar(relay.handed, 'empty')});")
    if counted:
        writer.line("kt_tile_wait<0>();")
        writer.line("kt_fence_async_all();")
        writer.line(f"kt_turn_pass({counted});")
    writer.close()
    advance(writer, relay.handed)


__all__ = ["adding"]
