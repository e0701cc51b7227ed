"""Results that the engine copies out, through two buffers a group; some only while the next program is under way."""

from __future__ import annotations

from kittens import layouts as lay
from kittens.artifact import TileMap
from kittens.codegen.emit.products import _pack
from kittens.codegen.emit.roles.compute import Compute, Waiting
from kittens.codegen.emit.roles.maps import map_of, order_of, places_of
from kittens.codegen.emit.roles.slices import behind, write_scalar
from kittens.codegen.emit.text import added
from kittens.codegen.emit.writer import Writer
from kittens.codegen.engine import View, view_of
from kittens.codegen.placement import shape
from kittens.codegen.plan import OUT_BYTES, Out
from kittens.codegen.roles import results
from kittens.codegen.views import cname
from kittens.ir import Op, base


def out(writer: Writer, op: Op) -> None:
    """A store by the engine: 16 rows of a group at a time, a panel of columns through one of the group's two buffers."""
    assert isinstance(writer, Compute)
    writer.locate(op)
    way, tile = writer.roles.outs[op], op.operands[-1]
    layout = writer.plan.placement.layouts[tile]
    if tile not in writer.held:
        writer.hold(tile, layout)
    words = _pack(writer, tile, range(layout.registers), 16)
    if not way.late:
        writer.open()
        send(writer, writer, way, words)
        writer.close()
        return
    (waiting,) = writer.waiting
    writer.line(f"if ({waiting.flag}) {waiting.call}();  // where the loop had no pass")
    writer.line(f"KT_EACH(word, {layout.registers // 2}) {waiting.words}[word] = {words}[word];")
    writer.line(f"{waiting.number} = {writer.program};")
    writer.line(f"{waiting.flag} = true;")


def _out_map(writer: Compute, out: Out) -> tuple[str, View, tuple[int, ...]]:
    """The map by which a result goes out, 16 rows of a panel at a time, the view, and the order of its tensor's axes there."""
    view = view_of(out.store.operands[0])
    assert view is not None
    order = order_of(view.axes, 1, 0)
    box = (out.panel // 2, 16, *(1 for _ in order[2:]))
    tile = TileMap(view.parameter.name, order, box, out.panel, sliced=view.slice is not None)
    return map_of(writer, writer.maps, tile), view, order


def await_results(writer: Compute) -> None:
    """Define what results that go out late need: where they wait, and a function that sends them."""
    for op, out in writer.roles.outs.items():
        if not out.late:
            continue
        waiting = Waiting(f"{cname(base(op.operands[0]).name)}_late")
        count = writer.plan.placement.layouts[op.operands[-1]].registers // 2
        lines, writer.lines = writer.lines, []
        writer.line(
            f"kt_u32 {waiting.words}[{count}];  // a result goes out while the next program's first products are under way"
        )
        writer.line(f"kt_u32 {waiting.number} = 0;")
        writer.line(f"bool {waiting.flag} = false;")
        writer.open(f"auto {waiting.call} = [&]() KT_INLINE")
        places = Writer(writer.plan, writer.plain)
        places.lines, places.indent, places.program = writer.lines, writer.indent, waiting.number
        places.taken = writer.taken - {"program"}
        places.rows, places.cluster = writer.rows, writer.cluster
        wanted = behind(op.operands[:-1])
        for other in writer.plan.function.body.ops:
            if other in wanted:
                write_scalar(places, other)
        send(writer, places, out, waiting.words)
        writer.close()
        writer.lines[-1] += ";"
        waiting.lines, writer.lines = writer.lines, lines
        writer.waiting.append(waiting)


def send(writer: Compute, scalars: Writer, out: Out, words: str) -> None:
    """Copy words of a result out: those of fragments along a row of them follow each other. `scalars` knows where it belongs."""
    tile = out.store.operands[-1]
    map, view, order = _out_map(writer, out)
    places = places_of(scalars, out.store, shape(tile), view, order)
    matrix = results(writer.plan.placement)[writer.plan.placement.layouts[tile]]
    assert matrix.team is not None
    rows, columns = lay.Tiled(matrix.team.d).shape[0], out.panel // 2
    mt, nt, _ = matrix.tiles
    pieces = columns // 16
    panel = lay.panels((16, columns), 2, panel_bytes=out.panel, xors=writer.machine.swizzles[out.panel])
    offset = lay.offset_expression(panel, "(lane & 15)", "(piece * 16 + (lane >> 4) * 8)")
    first = f"(group >> 2) * {mt * rows} + (group & 3) * 16" if mt > 1 else "group * 16"
    buffer = writer.fresh("out")
    writer.line(f"const kt_smem {buffer} = smem + {writer.roles.out} + group * {2 * OUT_BYTES};")
    at = [scalars.fresh("at") for _ in places]
    writer.line(
        f"const int {', '.join(f'{name} = {place}' for name, place in zip(at, places, strict=True))};"
    )
    many = shape(tile)[1] // columns
    # Of an odd number of panels the last one goes through the buffer that the next ones, or the next store, begin with.
    odd = any(shape(o.store.operands[-1])[1] // (o.panel // 2) % 2 for o in writer.roles.outs.values())
    for i in range(mt):
        writer.open(f"KT_EACH(panel, {many})")
        writer.line(f"const kt_smem to = {buffer} + panel % 2 * {OUT_BYTES};")
        writer.line(f"if (lane == 0) kt_tile_wait_read<{0 if odd else 1}>();")
        writer.line("kt_sync_lanes();")
        base = added(f"panel * {pieces * 4} + piece * 4", i * nt * 2)
        put = writer.engine.put(f"to + ({offset})", [f"{words}[{added(base, w)}]" for w in range(4)])
        writer.line(f"KT_EACH(piece, {pieces}) {put}")
        writer.line("kt_fence_async();")
        writer.line("kt_sync_lanes();")
        where = [f"{at[0]} + panel * {columns}", added(at[1], first, i * rows), *at[2:]]
        # The engine takes no negative places, where nothing of the tile is inside. Copies are counted, made or not.
        writer.open("if (lane == 0)")
        writer.line(f"if (({' | '.join(at)}) >= 0) kt_tile_store({map}, to, {', '.join(where)});")
        writer.line("kt_tile_commit();")
        writer.close()
        writer.close()
