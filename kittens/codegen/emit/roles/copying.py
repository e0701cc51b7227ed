"""The copying team: one thread runs the slice of the program that says where tiles lie, and starts their copies."""

from __future__ import annotations

from collections.abc import Mapping

from kittens.artifact import Parameter, TileMap
from kittens.codegen.emit.roles.maps import declare_bounds, map_of, order_of, places_of
from kittens.codegen.emit.roles.programs import programs, tell
from kittens.codegen.emit.roles.rings import OURS, advance, bar, phase_of, positions, slot_of
from kittens.codegen.emit.roles.slices import behind, nth, write_scalar
from kittens.codegen.emit.text import added
from kittens.codegen.emit.writer import Handler, Writer
from kittens.codegen.engine import view_of
from kittens.codegen.placement import shape
from kittens.codegen.plan import Plan, Ring, Staged
from kittens.codegen.views import extent_text
from kittens.ir import Op, Region


def copying(plan: Plan, handlers: Mapping[str, Handler], maps: dict[TileMap, Parameter]) -> Writer:
    """What one thread of the copying team does: the slice of the program that says where tiles lie, and their copies."""
    writer = Writer(plan, handlers)
    writer.indent = "      "
    writer.taken |= OURS
    writer.program = writer.fresh("number")
    assert plan.roles is not None
    if plan.roles.cluster > 1:
        writer.rows, writer.cluster = "rows", plan.roles.cluster
    positions(writer, 1)
    end = programs(writer)
    _slice(writer, plan.function.body, _wanted(plan), maps)
    for ring in plan.roles.rings:
        if ring.loop is None:
            advance(writer, ring)
    if end:
        writer.line(end)
    writer.close()
    for ring in plan.roles.rings:
        if ring.common:  # a block stays while others of its cluster may still reach into its memory
            writer.open(f"for (int i = 0; i < {ring.depth}; ++i)")
            writer.line(f"kt_bar_wait({bar(ring, 'empty')}, {phase_of(ring)});")
            advance(writer, ring)
            writer.close()
    return writer


def _wanted(plan: Plan) -> set[Op]:
    """The operations that tell where tiles lie, and how often loops that copy run."""
    assert plan.roles is not None
    loops = {ring.loop for ring in plan.roles.rings if ring.loop is not None}
    todo = [v for value in plan.staged for v in (value.producer.operands if value.producer else ())]
    todo += [v for loop in loops for v in loop.operands[:3]]
    return behind(todo)


def _slice(
    writer: Writer, region: Region, wanted: set[Op], maps: dict[TileMap, Parameter], last: str = ""
) -> None:
    roles = writer.plan.roles
    assert roles is not None
    started: set[Op] = set()
    for op in region.ops:
        if op in started:
            continue
        ring = next((r for r in roles.rings if any(s.load is op for s in r.tiles)), None)
        if ring is not None:
            if not any(s.load in started for s in ring.tiles):
                writer.locate(op)
                writer.line(f"kt_bar_wait({bar(ring, 'empty')}, {phase_of(ring)});")
                writer.line(f"kt_bar_expect({bar(ring, 'full')}, {_bytes(ring, roles.cut)});")
            started.add(op)
            _copy(writer, ring, next(s for s in ring.tiles if s.load is op), maps)
            if all(s.load in started for s in ring.tiles) and ring.loop is not None:
                advance(writer, ring)
                if any(r.ahead in ring.users for r in roles.relays.values()):
                    # The product that heads a pass is started in the one before, even behind the last.
                    writer.line(f"if ({last}) break;")
        elif op.name == "loop" and any(r.loop is op for r in roles.rings):
            last = passes(writer, op, extra=op in roles.relays)
            _slice(writer, op.regions[0], wanted, maps, last)
            writer.close()
        elif roles.turns is not None and op.name == "program_id":
            write_scalar(writer, op)
            started |= _pass_over(writer, region)
            tell(writer, op)
        elif op in wanted:
            _scalar(writer, op)


def _scalar(writer: Writer, op: Op) -> None:
    (declare_bounds if op.name == "slice" else write_scalar)(writer, op)


def _pass_over(writer: Writer, region: Region) -> set[Op]:
    """Go on to the next program where this one stores nothing; returns what has been written to find that out."""
    assert writer.plan.roles is not None
    stores = writer.plan.roles.idle
    if not stores:
        return set()
    behind_them = behind([v for op in stores for v in op.operands[:-1]])
    found = [op for op in region.ops if op in behind_them and op.name != "program_id"]
    for op in found:
        _scalar(writer, op)
    rows: dict[str, None] = {}
    for op in stores:
        view = view_of(op.operands[0])
        assert view is not None and view.slice is not None
        first, end = writer.slices[view.slice.value]
        axis = view.axes[view.slice.axis]
        assert isinstance(axis, int)
        extent = shape(op.operands[-1])[axis]
        rows[f"kt_limit({writer.scalar(op.operands[1 + axis])}, {extent}, {end} - {first})"] = None
    writer.line(f"if (!({' | '.join(rows)})) continue;  // it stores nothing")
    return set(found)


def _bytes(ring: Ring, cut: Staged | None) -> str:
    """The bytes that come to a slot."""
    if cut is None or cut not in ring.tiles:
        return str(ring.bytes)
    row = cut.shared.shape[1] * cut.shared.itemsize
    return added(f"cut_rows * {row}", ring.bytes - cut.shared.shape[0] * row)


def zeros(plan: Plan, threads: int) -> list[str]:
    """The lines that fill rows with zeros, in all slots, which no copy will."""
    assert plan.roles is not None and plan.roles.cut is not None
    tile = plan.roles.cut
    (ring,) = (r for r in plan.roles.rings if tile in r.tiles)
    view = view_of(tile.load.operands[0])
    assert view is not None
    extent = extent_text(view.parameter, view.axes.index(0))
    (rows, columns), width = tile.shared.shape, tile.width
    panels = columns * tile.shared.itemsize // width
    to = added(
        f"smem + cut_rows * {width} + slot * {ring.slot_bytes} + panel * {rows * width} + i * 16", tile.offset
    )
    return [
        f"  const int cut_rows = kt_cut_rows({extent}, {rows});  // that are copied of a tile: the others are zeros",
        f"  for (int slot = 0; slot < {ring.depth}; ++slot)",
        f"    for (int panel = 0; panel < {panels}; ++panel)",
        f"      for (int i = int(kt_thread()); i < ({rows} - cut_rows) * {width // 16}; i += {threads})",
        f"        kt_st_shared_b128({to}, kt_u32x4{{0, 0, 0, 0}});",
        "  kt_fence_async();",
    ]


def passes(writer: Writer, op: Op, *, extra: bool) -> str:
    """Open a loop that copies, with a pass more if it is `extra` and there are any; returns what tells that one.

    Passes are counted in 32 bits: the compiler then knows the count to be alike in all lanes.
    """
    lo, hi, step = map(writer.scalar, op.operands[:3])
    index = op.regions[0].args[0]
    name, count, many = (writer.fresh(stem) for stem in (index.name or "index", "pass", "passes"))
    writer.line(f"const int {many} = kt_passes({lo}, {hi}, {step});")
    writer.line("KT_ONCE")
    writer.open(f"for (int {count} = 0; {f'{many} > 0' if extra else f'{count} < {many}'}; ++{count})")
    writer.line(f"const kt_i64 {name} = {nth(lo, count, step)};")
    writer.names[index] = name
    if (lo, step) == ("kt_i64(0)", "kt_i64(1)"):
        writer.counted.add(index)
    return f"{count} == {many}"


def _copy(writer: Writer, ring: Ring, staged: Staged, maps: dict[TileMap, Parameter]) -> None:
    """Start the copy of one tile, a panel of columns at a time."""
    op, size = staged.load, staged.shared.itemsize
    if len(shape(op.result)) == 1:
        _copy_vector(writer, ring, staged, maps)
        return
    rows, cols = staged.shared.shape
    columns = staged.width // size
    view, roles = view_of(op.operands[0]), writer.plan.roles
    assert view is not None and roles is not None
    order = order_of(view.axes, int(not staged.flipped), int(staged.flipped))
    box = (columns, rows, *(1 for _ in order[2:]))
    places = places_of(writer, op, shape(op.result), view, order)
    parts = writer.cluster if staged in ring.common else 1
    panels = cols // columns
    by_rows = parts > 1 and panels % parts != 0
    if by_rows:
        box = (columns, rows // parts, *box[2:])
    cut, sliced = staged is roles.cut, view.slice is not None
    map = map_of(writer, maps, TileMap(view.parameter.name, order, box, staged.width, cut, sliced))
    at = f"smem + {staged.offset}" if staged.offset else "smem"
    if ring.depth > 1:
        at += f" + {slot_of(ring)} * {ring.slot_bytes}"
    if by_rows:
        at += f" + rank * {rows // parts * staged.width}"
        places[1] = added(places[1], f"rank * {rows // parts}")
    many = panels if by_rows else panels // parts
    panel = "panel" if many > 1 else ""
    if parts > 1 and not by_rows:
        panel = f"(rank * {many}" + (" + panel)" if panel else ")")
    if panel:
        at += f" + {panel} * {rows * staged.width}"
        places[0] = added(places[0], f"{panel} * {columns}")
    call, blocks = ("kt_tile_load_to", [f"{(1 << parts) - 1}"]) if parts > 1 else ("kt_tile_load", [])
    each = f"KT_EACH(panel, {many}) " if many > 1 else ""
    writer.line(f"{each}{call}({', '.join([at, map, bar(ring, 'full'), *places, *blocks])});")


def _copy_vector(writer: Writer, ring: Ring, staged: Staged, maps: dict[TileMap, Parameter]) -> None:
    """Start the copy of a vector."""
    op = staged.load
    view = view_of(op.operands[0])
    assert view is not None
    first = view.axes.index(0)
    order = (first, *(i for i in reversed(range(len(view.axes))) if i != first))
    places = places_of(writer, op, shape(op.result), view, order)
    box = (shape(op.result)[0], *(1 for _ in order[1:]))
    map = map_of(writer, maps, TileMap(view.parameter.name, order, box, 0))
    at = f"smem + {staged.offset} + {slot_of(ring)} * {ring.slot_bytes}"
    writer.line(f"kt_tile_load({', '.join([at, map, bar(ring, 'full'), *places])});")
