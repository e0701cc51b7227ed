"""The text of a plan with roles: one team copies tiles through rings, the others compute.

Barriers in shared memory say of each slot of a ring that it is full (its bytes have come) or empty (every group has read
it). A position in a ring is a slot and a phase, which flips each time round. Products are started and waited for later:
`Compute.flights` are those under way, oldest first; an operation that reads a result waits for it, no sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kittens import layouts as lay
from kittens.artifact import Parameter, TileMap
from kittens.codegen import cexpr
from kittens.codegen.emit.loops import carry_over, declare_carried, op_loop, op_program_id
from kittens.codegen.emit.products import _pack
from kittens.codegen.emit.text import added, holders
from kittens.codegen.emit.writer import Reader, Source, Writer, heading
from kittens.codegen.machine import Engine, Instruction
from kittens.codegen.placement import dtype_of, is_tile, related, shape, sides, source_of
from kittens.codegen.plan import OUT_BYTES, Out, Plan, Ring, Roles, Staged
from kittens.codegen.roles import across, as_it_lies, axes_of, dealt_bytes, fit, results, sums_carried
from kittens.codegen.views import cname, extent_text
from kittens.dtypes import BY_NAME
from kittens.errors import InternalError, UnavailableError
from kittens.ir import Op, Region, TensorType, Value, base

Handler = Callable[[Writer, Op], None]

#: Names that the text of roles gives itself: no value of the program may have them.
_OURS = {
    "team",
    "programs",
    "rows",
    "rank",
    "counter",
    "cut_rows",
    "panel",
    "to",
    "turn_0",
    "turn_1",
    "turn_2",
}


@dataclass(eq=False)
class Flight:
    """A product under way: the array that it writes, the values there, and the ring slots to hand back after it.

    again: a ring whose barrier is asked again before it is waited for; else the compiler would wait much sooner.
    """

    op: Op
    sums: str
    values: set[Value]
    slots: list[Ring] = field(default_factory=list)
    again: Ring | None = None


@dataclass(eq=False)
class _Waiting:
    """A result that waits to go out, and the lines that define what it needs."""

    name: str
    lines: list[str] = field(default_factory=list)

    @property
    def flag(self) -> str:
        """Whether there is one."""
        return f"{self.name}_waits"

    @property
    def call(self) -> str:
        """The function that sends it."""
        return f"{self.name}_send"

    @property
    def words(self) -> str:
        """The array that it is in."""
        return f"{self.name}_words"

    @property
    def number(self) -> str:
        """Its program's number."""
        return f"{self.name}_number"


class Compute(Writer):
    """Writes what the computing teams do."""

    def __init__(self, plan: Plan, handlers: Mapping[str, Handler]):
        own = {
            **handlers,
            "mma": _product,
            "load": lambda w, op: _arrived(w, op) if op.result in w.plan.staged else handlers["load"](w, op),
            "loop": _loop,
            "program_id": _program_id,
            "store": lambda w, op: _out(w, op) if op in w.plan.roles.outs else handlers["store"](w, op),
        }
        super().__init__(plan, {name: _settled(handler) for name, handler in own.items()})
        self.taken |= _OURS
        assert plan.roles is not None and plan.machine.engine is not None
        self.roles: Roles = plan.roles
        self.engine: Engine = plan.machine.engine
        self.flights: list[Flight] = []
        self.instructions: dict[Instruction, None] = {}
        self.sizes: dict[int, None] = {}
        self.descriptors: dict[tuple[Value, int, bool], str] = {}
        self.kept: dict[
            Ring, str
        ] = {}  # rings whose slots are handed back a pass later: where the slot's number is
        self.lagging: set[Ring] = (
            set()
        )  # those of them that a late product reads, and others in the pass before
        self.pending: dict[Ring, set[Op]] = {}
        self.plain = handlers
        self.read_here = _read_here(plan)
        self.maps: dict[TileMap, Parameter] = {}
        self.waiting: list[_Waiting] = []
        self.meet = f"kt_barrier_named(1, {plan.threads});"

    def region(self, region: Region) -> None:
        super().region(region)
        if region.ops and region.ops[-1].name == "yield":  # what is carried over is read there
            _land(self, len(self.flights))

    def reader(self, value: Value, layout: lay.Tiled) -> Reader:
        """As a writer's; what is dealt to the lanes of a group they read from each other, and no sooner than they use it."""
        if value.producer in self.roles.dealt and value not in self.held:
            return _dealt(self, value.producer, layout)
        return super().reader(value, layout)


def source(plan: Plan, handlers: Mapping[str, Handler]) -> Source:
    """The source of a plan with roles."""
    roles, engine, machine, function = plan.roles, plan.machine.engine, plan.machine, plan.function
    assert roles is not None and engine is not None
    copying = engine.team * machine.lanes
    compute = Compute(plan, handlers)
    maps = compute.maps
    copy = _copying(plan, handlers, maps)

    compute.program, compute.rows, compute.cluster = copy.program, copy.rows, copy.cluster
    compute.indent = "    "
    _positions(compute, 0)
    _await(compute)
    before, compute.lines = compute.lines, []
    _programs(compute)
    compute.region(function.body)
    _land(compute, len(compute.flights))
    for ring in roles.rings:
        if ring.loop is None:
            _hand_back(compute, ring)
    compute.close()
    for waiting in compute.waiting:
        compute.line(f"if ({waiting.flag}) {waiting.call}();")
    if roles.outs:
        compute.line("if (lane == 0) kt_tile_wait_read<0>();")
    compute.lines = [
        *before,
        *(line for waiting in compute.waiting for line in waiting.lines),
        *compute.lines,
    ]

    plan.scratch_bytes = compute.scratch_bytes
    shared = roles.end + compute.scratch_bytes
    if shared > machine.shared_bytes:
        if fit(plan, compute.scratch_bytes):  # with fewer slots
            return source(plan, handlers)
        raise UnavailableError(
            f"{function.name} needs {shared} bytes of shared memory, {machine.target} has {machine.shared_bytes}",
            hint="use smaller tiles (the kernel's tunables)",
            location=function.location,
        )
    parameters = (*maps.values(), *compute.parameters)
    if roles.turns:
        parameters += (Parameter("counter", "", 0, "kt_out", "counter"),)
    threads = copying + plan.threads
    entry = f"{function.name}_kernel"
    text = heading(plan)
    text.append(engine.wrappers(list(compute.instructions), list(compute.sizes)))
    text.append(engine.entry(entry, [(p.ctype, p.text) for p in parameters], threads, roles.cluster))
    text.append(f"  KT_SHARED_MEMORY(smem, {shared});")
    rings = [*roles.rings, *([roles.turns] if roles.turns else [])]
    for ring in rings:
        text.append(
            f"  const kt_smem {ring.name}_full = smem + {ring.bar}, {ring.name}_empty = smem + {ring.bar + 8 * ring.depth};"
        )
    text.append(
        f"  const int team = kt_uniform(int(kt_thread()) / {copying});  // the first copies, the others compute"
    )
    text += ["  if (kt_thread() == 0) {"]
    text += [f"    kt_map_prefetch({p.text});" for p in maps.values()]
    for ring in rings:
        each = f"KT_EACH(i, {ring.depth}) " if ring.depth > 1 else ""
        at = " + i * 8" if ring.depth > 1 else ""
        text.append(f"    {each}kt_bar_init({ring.name}_full{at}, 1);")
        text.append(
            f"    {each}kt_bar_init({ring.name}_empty{at}, {plan.placement.groups * (roles.cluster if ring.common else 1)});"
        )
    meet = "kt_cluster_sync();" if roles.cluster > 1 else "kt_barrier();"
    text += ["    kt_bar_fence();", "  }"]
    text += _zeros(plan, threads) if roles.cut is not None else []
    text.append(f"  {meet}")
    text += ["  kt_after_previous();", "  kt_next_may_start();"]
    if roles.cluster > 1:
        text.append("  const int rank = int(kt_cluster_rank());")
        text.append(
            f"  const int rows = (grid_0 + {roles.cluster - 1}) / {roles.cluster};  // of programs of a cluster"
        )
    total = " * ".join(f"kt_u32({copy.rows if i == 0 else f'grid_{i}'})" for i in range(function.grid_rank))
    text.append(f"  const kt_u32 programs = {total};")
    fewer, more = engine.registers.get(roles.teams, (0, 0))
    text.append("  if (team == 0) {")
    if fewer:
        text.append(f"    kt_registers_fewer<{fewer}>();")
    text.append("    if (kt_thread() == 0) {")
    text += [*copy.lines, "    }", "  } else {"]
    if more:
        text.append(f"    kt_registers_more<{more}>();")
    text += ["  " + line for line in compute.definitions(copying)]
    text += [*compute.lines, "  }", "}", ""]
    return Source(
        machine.dialect.finish("\n".join(text)), entry, parameters, threads, shared, compute.locations,
        persistent=1, cluster=roles.cluster, early=True,
    )  # fmt: skip


def _positions(writer: Writer, phase: int) -> None:
    """Declare where a role stands in each ring: those who copy find all slots empty, those who compute find none full."""
    assert writer.plan.roles is not None
    turns = writer.plan.roles.turns
    for ring in (*writer.plan.roles.rings, *([turns] if turns else [])):
        slot = f"int {ring.name}_slot = 0; " if ring.depth > 1 else ""
        writer.line(f"{slot}kt_u32 {ring.name}_phase = {phase};")
        writer.taken |= {f"{ring.name}_{x}" for x in ("full", "empty", "slot", "phase")}


def _programs(writer: Writer) -> None:
    """Open the loop over the programs that this block takes, of those who compute, or of those who copy and draw them."""
    number, cluster = writer.program, writer.cluster
    assert writer.plan.roles is not None
    turns = writer.plan.roles.turns
    if turns is None:
        first, step = (f"{x} / {cluster}u" if cluster > 1 else x for x in ("kt_program_x()", "kt_blocks()"))
        writer.open(f"for (kt_u32 {number} = {first}; {number} < programs; {number} += {step})")
        return
    at = f"smem + {turns.bar + 16}"
    if isinstance(writer, Compute):
        writer.open("for (;;)")
        writer.line(f"kt_bar_wait({_bar(turns, 'full')}, turn_phase);")
        for i in range(writer.plan.function.grid_rank):
            writer.line(f"const int turn_{i} = kt_uniform(int(kt_ld_shared_b32({added(at, 4 * i)})));")
        writer.line("kt_sync_lanes();")
        writer.line(f"if (lane == 0) kt_bar_arrive({_bar(turns, 'empty')});")
        _advance(writer, turns)
        writer.line("if (turn_0 < 0) break;")
        return
    drawn = writer.fresh("drawn")
    writer.line(f"kt_u32 {drawn} = kt_program_x();")
    writer.open("for (;;)")
    writer.line(f"const kt_u32 {number} = {drawn};")
    writer.line(f"kt_bar_wait({_bar(turns, 'empty')}, turn_phase);")
    writer.open(f"if ({number} >= programs)")
    writer.line(f"kt_st_shared_b32({at}, ~0u);")
    writer.line(f"kt_bar_arrive({_bar(turns, 'full')});")
    writer.line("break;")
    writer.close()
    writer.line(
        f"{drawn} = kt_blocks() + kt_draw(counter, programs);  // the next program, needed behind this one's copies"
    )


def _program_id(writer: Writer, op: Op) -> None:
    """Where a drawn program is in the grid: found out by the copying team, which tells the others."""
    assert writer.plan.roles is not None
    turns = writer.plan.roles.turns
    if turns is None or isinstance(writer, Compute):
        if turns is None:
            op_program_id(writer, op)
        else:
            writer.names.update((v, f"kt_i64(turn_{i})") for i, v in enumerate(op.results))
        return
    op_program_id(writer, op)
    for i, value in enumerate(op.results):
        writer.line(
            f"kt_st_shared_b32({added(f'smem + {turns.bar + 16}', 4 * i)}, kt_u32({writer.names[value]}));"
        )
    writer.line(f"kt_bar_arrive({_bar(turns, 'full')});")
    _advance(writer, turns)


def _slot(ring: Ring) -> str:
    return f"{ring.name}_slot" if ring.depth > 1 else "0"


def _bar(ring: Ring, which: str, slot: str = "") -> str:
    slot = slot or _slot(ring)
    return f"{ring.name}_{which}" + (f" + {slot} * 8" if slot != "0" else "")


def _advance(writer: Writer, ring: Ring) -> None:
    flip = f"{ring.name}_phase ^= 1;"
    if ring.depth > 1:
        writer.line(f"if (++{ring.name}_slot == {ring.depth}) {{ {ring.name}_slot = 0; {flip} }}")
    else:
        writer.line(flip)


# The copying team.


def _copying(plan: Plan, handlers: Mapping[str, Handler], maps: dict[TileMap, Parameter]) -> Writer:
    """What one thread of the copying team does: the slice of the program that says where tiles lie, and their copies."""
    writer = Writer(plan, {**handlers, "program_id": _program_id})
    writer.indent = "      "
    writer.taken |= _OURS
    writer.program = writer.fresh("number")
    assert plan.roles is not None
    if plan.roles.cluster > 1:
        writer.rows, writer.cluster = "rows", plan.roles.cluster
    _positions(writer, 1)
    _programs(writer)
    _slice(writer, plan.function.body, _wanted(plan), maps)
    writer.close()
    for ring in plan.roles.rings:
        if ring.common:  # a block stays while others of its cluster may still reach into its memory
            writer.open(f"for (int i = 0; i < {ring.depth}; ++i)")
            writer.line(f"kt_bar_wait({_bar(ring, 'empty')}, {ring.name}_phase);")
            _advance(writer, ring)
            writer.close()
    return writer


def _wanted(plan: Plan) -> set[Op]:
    """The operations that tell where tiles lie, and how often loops that copy run."""
    assert plan.roles is not None
    loops = {ring.loop for ring in plan.roles.rings if ring.loop is not None}
    todo = [v for value in plan.staged for v in (value.producer.operands if value.producer else ())]
    todo += [v for loop in loops for v in loop.operands[:3]]
    return _behind(todo)


def _behind(values: Sequence[Value], stop: Collection[Value] = ()) -> set[Op]:
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


def _write(writer: Writer, op: Op) -> None:
    """Write an operation on scalars."""
    if op.name not in ("const", "dim", "index", "slice", "permute"):
        (writer.handlers.get(op.name) or writer.handlers["elementwise"])(writer, op)


def _slice(writer: Writer, region: Region, wanted: set[Op], maps: dict[TileMap, Parameter]) -> None:
    roles = writer.plan.roles
    assert roles is not None
    started: set[Op] = set()
    for op in region.ops:
        ring = next((r for r in roles.rings if any(s.load is op for s in r.tiles)), None)
        if ring is not None:
            if not any(s.load in started for s in ring.tiles):
                writer.locate(op)
                writer.line(f"kt_bar_wait({_bar(ring, 'empty')}, {ring.name}_phase);")
                writer.line(f"kt_bar_expect({_bar(ring, 'full')}, {_bytes(ring, roles.cut)});")
            started.add(op)
            _copy(writer, ring, next(s for s in ring.tiles if s.load is op), maps)
            if all(s.load in started for s in ring.tiles):
                _advance(writer, ring)
        elif op.name == "loop" and any(r.loop is op for r in roles.rings):
            _passes(writer, op)
            _slice(writer, op.regions[0], wanted, maps)
            writer.close()
        elif op in wanted or (roles.turns is not None and op.name == "program_id"):
            _write(writer, op)


def _bytes(ring: Ring, cut: Staged | None) -> str:
    """The bytes that come to a slot."""
    if cut is None or cut not in ring.tiles:
        return str(ring.bytes)
    row = cut.shared.shape[1] * cut.shared.itemsize
    return added(f"cut_rows * {row}", ring.bytes - cut.shared.shape[0] * row)


def _zeros(plan: Plan, threads: int) -> list[str]:
    """The lines that fill rows with zeros, in all slots, which no copy will."""
    assert plan.roles is not None and plan.roles.cut is not None
    tile = plan.roles.cut
    (ring,) = (r for r in plan.roles.rings if tile in r.tiles)
    found = axes_of(tile.load.operands[0])
    assert found is not None
    parameter, axes = found
    extent = extent_text(parameter, axes.index(0))
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


def _passes(writer: Writer, op: Op) -> None:
    """Open a loop that copies. Passes are counted in 32 bits: the compiler then knows the count to be alike in all lanes."""
    lo, hi, step = map(writer.scalar, op.operands[:3])
    index = op.regions[0].args[0]
    name, count, passes = (writer.fresh(stem) for stem in (index.name or "index", "pass", "passes"))
    writer.line(f"const int {passes} = kt_passes({lo}, {hi}, {step});")
    writer.line("KT_ONCE")
    writer.open(f"for (int {count} = 0; {count} < {passes}; ++{count})")
    writer.line(f"const kt_i64 {name} = {_index(lo, count, step)};")
    writer.names[index] = name


def _index(lo: str, count: str, step: str) -> str:
    return added("" if lo == "kt_i64(0)" else lo, count if step == "kt_i64(1)" else f"{count} * {step}")


def _copy(writer: Writer, ring: Ring, staged: Staged, maps: dict[TileMap, Parameter]) -> None:
    """Start the copy of one tile, a panel of columns at a time."""
    op, size = staged.load, staged.shared.itemsize
    rows, cols = staged.shared.shape
    columns = staged.width // size
    found, roles = axes_of(op.operands[0]), writer.plan.roles
    assert found is not None and roles is not None
    parameter, axes = found
    assert isinstance(parameter.type, TensorType)
    order = _order(axes, int(not staged.flipped), int(staged.flipped))
    box = (columns, rows, *(1 for _ in order[2:]))
    places = _places(writer, op, shape(op.result), [axes[i] for i in order])
    parts = writer.cluster if staged in ring.common else 1
    panels = cols // columns
    by_rows = parts > 1 and panels % parts != 0
    if by_rows:
        box = (columns, rows // parts, *box[2:])
    map = _map(writer, maps, TileMap(parameter.name, order, box, staged.width, staged is roles.cut))
    at = f"smem + {staged.offset}" if staged.offset else "smem"
    if ring.depth > 1:
        at += f" + {_slot(ring)} * {ring.slot_bytes}"
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
    writer.line(f"{each}{call}({', '.join([at, map, _bar(ring, 'full'), *places, *blocks])});")


def _map(writer: Writer, maps: dict[TileMap, Parameter], tile: TileMap) -> str:
    """The name of the parameter that is a map."""
    if tile not in maps:
        taken = {p.text for p in maps.values()} | writer.taken
        name = f"{cname(tile.tensor)}_map"
        while name in taken:
            name += "_"
        maps[tile] = Parameter("map", tile.tensor, 0, "kt_map", name, tile)
    return maps[tile].text


def _places(writer: Writer, op: Op, extents: Sequence[int], axes: Sequence[int | Value]) -> list[str]:
    """Where the tile of a load or store begins along axes of its tensor: each one of the tile's, or at an index."""
    places = []
    for axis in axes:
        if isinstance(axis, int):
            text = writer.scalar(op.operands[1 + axis])
            places.append(f"kt_position({text}, {extents[axis]})" if text != "kt_i64(0)" else "0")
        else:
            places.append(f"kt_position({writer.scalar(axis)}, 1)")
    return places


# The computing teams.


def _read_here(plan: Plan) -> set[Op]:
    """The operations that matter to the computing teams: not those which only say where tiles lie that the engine copies."""
    assert plan.roles is not None
    found: set[Op] = set()
    for op in plan.function.body.walk():
        out = plan.roles.outs.get(op)
        if any(v in plan.staged for v in op.results):
            continue
        if op.regions or not op.results or not all(map(_scalar, op.results)):
            found |= _behind(op.operands[-1:] if out is not None and out.late else op.operands, plan.staged)
    return found


def _scalar(value: Value) -> bool:
    return isinstance(value.type, TensorType) or not is_tile(value)


def _settled(handler: Handler) -> Handler:
    """A handler that first waits for the products whose results its operation reads."""

    def run(writer: Writer, op: Op) -> None:
        assert isinstance(writer, Compute)
        if op.results and not op.regions and all(map(_scalar, op.results)) and op not in writer.read_here:
            return
        if op.regions:
            _land(writer, len(writer.flights))
        for value in op.operands:
            _settle(writer, value)
        handler(writer, op)

    return run


def _settle(writer: Compute, value: Value) -> None:
    while value.producer is not None and value.producer.name in ("broadcast", "transpose", "reshape"):
        value = value.producer.operands[0]
    for i, flight in enumerate(writer.flights):
        if value in flight.values:
            _land(writer, i + 1)
            return


def _land(writer: Compute, count: int) -> None:
    """Wait until only the products behind the oldest `count` are under way, and hand back the slots that they read."""
    if not count:
        return
    landed, writer.flights = writer.flights[:count], writer.flights[count:]
    first, *others = dict.fromkeys(f.sums for f in landed)
    slots = [r for r in landed[-1].slots if r not in writer.lagging]
    again = slots[0] if landed[-1].op in writer.roles.late.values() and slots else landed[-1].again
    if again is not None:
        writer.line(f"kt_bar_again({_bar(again, 'full')}, {again.name}_phase);")
    writer.line(f"kt_engine_wait<{len(writer.flights)}>({first});")
    for sums in others:
        writer.line(f"kt_engine_pin({sums});")
    for flight in landed:
        for ring in flight.slots:
            _hand_back(writer, ring)


def _hand_back(writer: Compute, ring: Ring) -> None:
    """Tell the copying team that this group has read a slot."""
    kept = writer.kept.get(ring)
    bar = _bar(ring, "empty", kept or "")
    if ring.common:
        writer.line(f"if (lane < {writer.cluster}) kt_bar_arrive_at({bar}, lane);")
    else:
        writer.line(f"if (lane == 0) kt_bar_arrive({bar});")
    if kept is None:
        _advance(writer, ring)


def _arrived(writer: Writer, op: Op) -> None:
    """A load that was staged: outside loops it is waited for where it stands, in loops by the first product that reads it."""
    assert isinstance(writer, Compute)
    ring = _ring(writer, op.result)
    if ring.loop is None and ring.tiles[-1].load is op:
        writer.locate(op)
        writer.line(f"kt_bar_wait({_bar(ring, 'full')}, {ring.name}_phase);")


def _ring(writer: Compute, value: Value) -> Ring:
    return next(r for r in writer.roles.rings if any(s.load.result is value for s in r.tiles))


def _product(writer: Writer, op: Op) -> None:
    """A product outside loops, or in one that carries nothing of it under way."""
    assert isinstance(writer, Compute)
    layout = writer.plan.placement.products[op].layout
    sums = writer.fresh(op.result.name or "product")
    writer.line(f"float {sums}[{layout.registers}];")
    if len(op.operands) == 3:
        read = writer.reader(op.operands[2], layout)
        writer.line(f"KT_EACH(r, {layout.registers}) {sums}[r] = {read('r')};")
    _start(writer, op, sums, {op.result})
    writer.held[op.result] = (sums, layout)


def _start(
    writer: Compute, op: Op, sums: str, values: set[Value], words: str = "", *, again: bool = False
) -> None:
    """Start a product. `again`: the one before of the same sums may still be under way. `words`: its left operand, if packed."""
    writer.locate(op)
    matrix, engine = writer.plan.placement.products[op], writer.engine
    dtype = dtype_of(op.operands[0])
    size = BY_NAME[dtype].bytes
    rings: list[Ring] = []
    for operand in op.operands[:2]:
        root, _ = source_of(operand)
        if root in writer.plan.staged:
            ring = _ring(writer, root)
            if ring.loop is None or ring in rings:
                continue
            rings.append(ring)
            if ring not in writer.pending and not (
                ring in writer.lagging and op in writer.roles.late.values()
            ):
                writer.line(f"kt_bar_wait({_bar(ring, 'full')}, {ring.name}_phase);")
                writer.pending[ring] = set(ring.users)
    both = sides(op, swapped=matrix.swapped)
    if both[0][0] not in writer.plan.staged and not words:
        words = _words(writer, op)
    lies = [root in writer.plan.staged and across(writer.plan.staged[root], flipped, i)
            for i, (root, flipped) in enumerate(both)]  # fmt: skip
    mt, nt, steps = matrix.tiles
    n = nt * 8
    columns = min(n, engine.most)
    assert matrix.team is not None
    rows, depth = lay.Tiled(matrix.team.d).shape[0], lay.Tiled(matrix.team.a).shape[1]
    instruction = Instruction(dtype, columns, depth, bool(words), (lies[0], lies[1]))
    writer.instructions[instruction] = None
    writer.sizes[matrix.layout.registers] = None
    writer.open()
    lag = op in writer.roles.late.values()
    b = _described(writer, op, 1, lies[1], "b_at", lag)
    a = "" if words else _described(writer, op, 0, lies[0], "a_at")
    if not again:
        writer.line(f"kt_engine_pin({sums});")
    writer.line("kt_engine_fence();")
    for i in range(mt):
        for j in range(n // columns):
            first = (i * nt + j * (columns // 8)) * 4
            right = _stepped(writer, op, 1, lies[1], j * columns, steps, depth * size)
            if words:
                per = depth * size // 8  # 32-bit words of one step
                text = ", ".join(f"{words}[{_word(i, steps, per, w)}]" for w in range(per))
            else:
                text = a + _stepped(writer, op, 0, lies[0], i * rows, steps, depth * size)
            add = "true" if len(op.operands) == 3 else "kk > 0" if steps > 1 else "false"
            each = f"KT_EACH(kk, {steps}) " if steps > 1 else ""
            writer.line(each + engine.call(instruction, sums, first, text, b + right, add))
    writer.line("kt_engine_commit();")
    writer.close()
    flight = Flight(op, sums, values)
    writer.flights.append(flight)
    for ring in rings:
        if ring in writer.lagging:
            flight.slots += [ring] if lag else []
            continue
        writer.pending[ring].discard(op)
        if not writer.pending[ring]:
            del writer.pending[ring]
            flight.slots.append(ring)


def _word(row: int, steps: int, per: int, w: int) -> str:
    """The word of step kk of a row of fragments."""
    first = row * steps * per + w
    return f"kk * {per} + {first}" if steps > 1 and first else f"kk * {per}" if steps > 1 else str(first)


def _words(writer: Compute, op: Op) -> str:
    """A computed left operand as words, fragment after fragment along K."""
    matrix = writer.plan.placement.products[op]
    assert matrix.a is not None
    value, flipped = sides(op, swapped=matrix.swapped)[0]
    if value not in writer.held:
        writer.hold(value, writer.layout_of(value))
    registers = as_it_lies(writer.held[value][1], flipped, matrix)
    if registers is None:
        raise InternalError(f"{value.name} does not lie as the engine takes it")
    return _pack(
        writer, value, _by_rows(registers, matrix.tiles[0], matrix.tiles[2]), BY_NAME[dtype_of(value)].bits
    )


def _dealt(writer: Compute, op: Op, layout: lay.Tiled) -> Reader:
    """How to read a broadcast of a vector that is dealt to the lanes of each group: through shared memory of the group."""
    vector, relation = op.operands[0], related(op)
    assert relation is not None
    have, dtype = writer.layout_of(vector), dtype_of(vector)
    read, c, size = writer.reader(vector, have), cexpr.ctype(dtype), BY_NAME[dtype].bytes
    reduced = lay.reduction(layout, relation[2])
    want = lay.with_axes(reduced.result, "col")
    offsets = lay.register_offsets(want, "col")
    if offsets is None:
        raise InternalError(f"registers of {want} do not add to a coordinate")
    at = f"smem + {writer.roles.dealt[op]} + group * {dealt_bytes(vector)}"
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
    if dtype == "float32" and all(run == (run[0], run[0] + 1) for run in lay.runs(want, "col", 2)):
        place = writer.table([o * size for o in offsets[::2]], "two")
        writer.line(
            f"KT_EACH(two, {want.registers // 2}) KT_LOAD_FLOATS(2, {name}, two * 2, {first} + ({place}));"
        )
    else:
        place = writer.table([o * size for o in offsets], "r")
        writer.line(f"KT_EACH(r, {want.registers}) {name}[r] = kt_get<{c}>({first} + ({place}));")
    return lambda r: f"{name}[{writer.table(reduced.into, r)}]"


def _by_rows(registers: tuple[int, ...], mt: int, kt: int) -> list[int]:
    """Registers of a left operand, K outermost, with rows of fragments outermost instead."""
    each = len(registers) // (mt * kt)
    return [registers[(k * mt + m) * each + e] for m in range(mt) for k in range(kt) for e in range(each)]


def _described(writer: Compute, op: Op, position: int, lies: bool, name: str, lag: bool = False) -> str:
    """Name the descriptor of an operand in the slot of this pass, or of the one before."""
    matrix = writer.plan.placement.products[op]
    root, _ = sides(op, swapped=matrix.swapped)[position]
    staged, ring = writer.plan.staged[root], _ring(writer, root)
    key = (root, position, lies)
    if key not in writer.descriptors:
        base = writer.descriptors[key] = writer.fresh(f"{root.name or 'tile'}_{'ab'[position]}")
        at = f"smem + {staged.offset}" if staged.offset else "smem"
        assert matrix.team is not None
        if position == 0 and writer.roles.teams > 1:
            step = _along(staged, lies, matrix.tiles[0] * lay.Tiled(matrix.team.d).shape[0])
            at += f" + (team - 1) * {step}"
        leading = staged.shared.shape[0] * staged.width if lies else 16
        writer.prelude.append(
            f"  const kt_desc {base} = kt_matrix_desc({at}, {leading}, {8 * staged.width}, {staged.width});"
        )
    base = writer.descriptors[key]
    if ring.depth == 1:
        return base
    name = writer.fresh(name)
    slot = writer.kept[ring] if lag and ring in writer.lagging else _slot(ring)
    writer.line(f"const kt_desc {name} = {base} + kt_desc({slot}) * {ring.slot_bytes // 16};")
    return name


def _along(staged: Staged, lies: bool, elements: int) -> int:
    """Bytes from an operand's first row (of M or N) to a later one."""
    size = staged.shared.itemsize
    return (
        elements * size // staged.width * staged.shared.shape[0] * staged.width
        if lies
        else elements * staged.width
    )


def _stepped(writer: Compute, op: Op, position: int, lies: bool, first: int, steps: int, bytes: int) -> str:
    """What to add to a descriptor for step kk along K, from row (or column) `first` of the operand on."""
    root, _ = sides(op, swapped=writer.plan.placement.products[op].swapped)[position]
    staged = writer.plan.staged[root]
    rows, size = staged.shared.shape[0], staged.shared.itemsize
    start = _along(staged, lies, first)
    offsets = []
    for k in range(steps):
        if lies:  # a row of a panel is one of K
            offsets.append((start + k * (bytes // size) * staged.width) // 16)
        else:
            panel, inside = divmod(k * bytes, staged.width)
            offsets.append((start + panel * rows * staged.width + inside) // 16)
    text = writer.table(offsets, "kk" if steps > 1 else "0")
    return f" + kt_desc({text})" if text != "0" else ""


def _loop(writer: Writer, op: Op) -> None:
    """A loop. If it copies, the first pass stands apart: nothing is under way then."""
    assert isinstance(writer, Compute)
    rings = [r for r in writer.roles.rings if r.loop is op]
    if not rings:
        op_loop(writer, op)
        return
    writer.locate(op)
    (region,) = op.regions
    carried = declare_carried(writer, op)
    names = {after: name for _, after, name in carried}
    arguments = {after: argument for argument, after, _ in carried}
    late = writer.roles.late.get(op)
    sums = _carried_sums(writer, op)
    ends = writer.roles.ends.get(op, [])
    in_place = {x.result for x in (*sums, *ends, *([late] if late else []))}
    for ring in rings:  # slots that are handed back a pass later
        if late in ring.users and len(ring.users) > 1:
            writer.lagging.add(ring)
        if set(ring.users) <= set(sums) or ring in writer.lagging or set(ring.users) & set(ends):
            writer.kept[ring] = writer.fresh(f"{ring.name}_read")
            writer.line(f"int {writer.kept[ring]} = 0;")
    words = _late_words(writer, late) if late else ""
    body = _Pass(late, sums, ends, in_place, names, arguments, words, carried)
    index, (lo, hi, step) = region.args[0], map(writer.scalar, op.operands[:3])
    name, count, passes = (writer.fresh(stem) for stem in (index.name or "index", "pass", "passes"))
    writer.line(
        f"const int {passes} = kt_passes({lo}, {hi}, {step});  // in 32 bits: alike in all lanes, and known to be"
    )
    writer.open(f"if ({passes} > 0)")
    writer.open()
    writer.names[index] = name
    writer.line(f"const kt_i64 {name} = {lo};")
    _pass(writer, region, body, first=True)
    writer.close()
    if late or ends:
        writer.line("KT_ONCE")
    writer.open(f"for (int {count} = 1; {count} < {passes}; ++{count})")
    writer.line(f"const kt_i64 {name} = {_index(lo, count, step)};")
    _pass(writer, region, body, first=False)
    writer.close()
    if late:
        _start(writer, late, names[late.result], {late.result, arguments[late.result]}, words)
    _land(writer, len(writer.flights))
    writer.close()
    for ring in rings:
        writer.kept.pop(ring, None)
        writer.lagging.discard(ring)
    writer.scratch_busy = True


def _carried_sums(writer: Compute, loop: Op) -> list[Op]:
    """The products of a loop that may be under way from pass to pass: on carried sums, of operands in slots that no other reads."""
    staged = writer.plan.staged
    found = [
        op
        for op in loop.regions[0].ops
        if op in writer.plan.placement.products
        and sums_carried(loop, op)
        and all(source_of(v)[0] in staged for v in op.operands[:2])
    ]
    while True:
        rings = [r for r in writer.roles.rings if r.loop is loop and not set(r.users) <= set(found)]
        kept = [op for op in found if not any(op in r.users for r in rings)]
        if kept == found:
            return found
        found = kept


def _order(axes: Sequence[int | Value], inner: int, outer: int) -> tuple[int, ...]:
    """A tensor's axes as a map lists them: the two of the tile, then the others."""
    first = (axes.index(inner), axes.index(outer))
    return (*first, *(i for i in reversed(range(len(axes))) if i not in first))


def _out_map(writer: Compute, out: Out) -> tuple[str, list[int | Value]]:
    """The map by which a result goes out, 16 rows of a panel at a time, and what its axes are."""
    found = axes_of(out.store.operands[0])
    assert found is not None
    parameter, axes = found
    order = _order(axes, 1, 0)
    box = (out.panel // 2, 16, *(1 for _ in order[2:]))
    return _map(writer, writer.maps, TileMap(parameter.name, order, box, out.panel)), [axes[i] for i in order]


def _out(writer: Writer, op: Op) -> None:
    """A store by the engine: 16 rows of a group at a time, a panel of columns through one of the group's two buffers."""
    assert isinstance(writer, Compute)
    writer.locate(op)
    out, tile = writer.roles.outs[op], op.operands[-1]
    layout = writer.plan.placement.layouts[tile]
    if tile not in writer.held:
        writer.hold(tile, layout)
    words = _pack(writer, tile, range(layout.registers), 16)
    if not out.late:
        writer.open()
        _send(writer, writer, out, words)
        writer.close()
        return
    (waiting,) = writer.waiting
    writer.line(f"if ({waiting.flag}) {waiting.call}();  // where the loop had no pass")
    writer.line(f"KT_EACH(word, {layout.registers // 2}) {waiting.words}[word] = {words}[word];")
    writer.line(f"{waiting.number} = {writer.program};")
    writer.line(f"{waiting.flag} = true;")


def _await(writer: Compute) -> None:
    """Define what results that go out late need: where they wait, and a function that sends them."""
    for op, out in writer.roles.outs.items():
        if not out.late:
            continue
        waiting = _Waiting(f"{cname(base(op.operands[0]).name)}_late")
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
        wanted = _behind(op.operands[:-1])
        for other in writer.plan.function.body.ops:
            if other in wanted:
                _write(places, other)
        _send(writer, places, out, waiting.words)
        writer.close()
        writer.lines[-1] += ";"
        waiting.lines, writer.lines = writer.lines, lines
        writer.waiting.append(waiting)


def _send(writer: Compute, scalars: Writer, out: Out, words: str) -> None:
    """Copy words of a result out: those of fragments along a row of them follow each other. `scalars` knows where it belongs."""
    tile = out.store.operands[-1]
    map, axes = _out_map(writer, out)
    places = _places(scalars, out.store, shape(tile), axes)
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


@dataclass
class _Pass:
    """What passes of a loop share: products started late, on carried sums or at the end, and where carried values are."""

    late: Op | None
    sums: list[Op]
    ends: list[Op]
    in_place: set[Value]
    names: dict[Value, str]
    arguments: dict[Value, Value]
    words: str
    carried: list[tuple[Value, Value, str]]


def _pass(writer: Compute, region: Region, body: _Pass, *, first: bool) -> None:
    before = set(writer.flights)
    heads = [op for op in region.ops if op in writer.plan.placement.products and _heads(writer, op)]
    # They need staged tiles alone, and are under way while the threads do what stands between. Behind ends that are under
    # way there are registers for one.
    now, then = (heads[:1], heads[1:]) if body.ends else (heads, [])
    for op in now:
        _head(writer, op, body)
    if body.late and not first:
        _start(writer, body.late, body.names[body.late.result], _late_values(body), body.words)
    for op in region.ops:
        if op is body.late or op in heads or op.name == "yield":
            continue
        if then and any(v is head.result for v in op.operands for head in heads):
            _settle(writer, now[0].result)
            for head in then:
                _head(writer, head, body)
            then = []
        if op in body.sums:
            name = body.names[op.result]
            _start(writer, op, name, {op.result, body.arguments[op.result]}, again=not first)
            writer.held[op.result] = (name, writer.plan.placement.products[op].layout)
            if op is body.sums[-1]:
                for waiting in writer.waiting if first else ():
                    writer.open(f"if ({waiting.flag})")
                    writer.line(f"{waiting.call}();")
                    writer.line(f"{waiting.flag} = false;")
                    writer.close()
            started = writer.flights[-1]
            _land(writer, sum(f in before for f in writer.flights))
            for ring in started.slots:  # what was kept of the pass before has been handed back
                if ring in writer.kept and ring not in writer.lagging:
                    writer.line(f"{writer.kept[ring]} = {_slot(ring)};")
                    _advance(writer, ring)
        elif op not in body.ends:
            _one(writer, op)
    if body.late:
        _settle(writer, body.arguments[body.late.result])
        _prepare(writer, body.late, body)
    others = [c for c in body.carried if c[1] not in body.in_place]
    for _, after, _ in others:
        _settle(writer, after)
    carry_over(writer, others)
    for ring in writer.lagging:
        writer.pending.pop(ring, None)
        writer.line(f"{writer.kept[ring]} = {_slot(ring)};")
        _advance(writer, ring)
    for op in body.ends:
        for value in op.operands:
            _settle(writer, value)
        _start(writer, op, body.names[op.result], {op.result, body.arguments[op.result]})
    under_way = {*body.sums, *body.ends}
    _land(writer, max((i + 1 for i, f in enumerate(writer.flights) if f.op not in under_way), default=0))
    if body.ends:  # what they read is handed back a pass later
        for ring, kept in writer.kept.items():
            writer.line(f"{kept} = {_slot(ring)};")
            _advance(writer, ring)


def _head(writer: Compute, op: Op, body: _Pass) -> None:
    """Start a product that heads a pass."""
    _one(writer, op)
    if body.ends:
        rings = [_ring(writer, source_of(v)[0]) for v in op.operands]
        writer.flights[-1].again = next((r for r in rings if r.loop is not None), None)


def _heads(writer: Compute, op: Op) -> bool:
    """Whether a product reads staged tiles alone."""
    return len(op.operands) == 2 and all(source_of(v)[0] in writer.plan.staged for v in op.operands)


def _late_values(body: _Pass) -> set[Value]:
    assert body.late is not None
    return {body.late.result, body.arguments[body.late.result]}


def _late_words(writer: Compute, late: Op) -> str:
    """Declare the words of a late product's left operand, which outlive a pass."""
    matrix = writer.plan.placement.products[late]
    assert matrix.a is not None
    value = late.operands[0]
    words = writer.fresh(f"{value.name or 'left'}_words")
    writer.line(f"kt_u32 {words}[{matrix.a.registers * BY_NAME[dtype_of(value)].bits // 32}];")
    return words


def _prepare(writer: Compute, late: Op, body: _Pass) -> None:
    """At the end of a pass: put the late product's sums and left operand where the next pass starts it from."""
    sums, layout = body.names[late.result], writer.plan.placement.products[late].layout
    if late.operands[2] is not body.arguments[late.result]:
        _settle(writer, late.operands[2])
        read = writer.reader(late.operands[2], layout)
        writer.line(f"KT_EACH(r, {layout.registers}) {sums}[r] = {read('r')};")
    _settle(writer, late.operands[0])
    packed = _words(writer, late)
    count = writer.plan.placement.products[late].a.registers * BY_NAME[dtype_of(late.operands[0])].bits // 32  # type: ignore[union-attr]
    writer.line(f"KT_EACH(word, {count}) {body.words}[word] = {packed}[word];")


def _one(writer: Compute, op: Op) -> None:
    """Write one operation, as a region would."""
    writer.region(Region([], [op]))


__all__ = ["source"]
