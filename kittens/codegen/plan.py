"""A plan: everything decided about a kernel on a target before its text is written. Data, to be read and printed."""

from __future__ import annotations

from dataclasses import dataclass, field

from kittens import layouts as lay
from kittens.codegen.edges import loops_by_index, tested
from kittens.codegen.known import divisor
from kittens.codegen.machine import Machine
from kittens.codegen.placement import Placement, dtype_of, is_tile, place, shape, source_of
from kittens.codegen.reads import tile
from kittens.codegen.schedule import Schedule, faults, ping_pong
from kittens.codegen.views import Resolved, resolve
from kittens.dtypes import BY_NAME
from kittens.errors import InternalError, UnavailableError
from kittens.ir import Function, Op, Region, TensorType, TileType, Value, base
from kittens.layouts import Cost, Shared, Tiled, transpose

ALIGN = 128
#: Tiles that the engine copies begin at multiples of it: what its widest swizzle repeats after.
ENGINE_ALIGN = 1024
#: Shared memory of a buffer through which 16 rows of a result pass.
OUT_BYTES = 2048


@dataclass
class Staged:
    """A load that goes to shared memory, from which a product's operands are read.

    `shared` is the tile there, its columns along the tensor's contiguous axis; `flipped` if that is the tile's first axis.
    `loop` is the loop whose ring of `depth` slots it is in (None: loaded once). `width`: bytes of one copy, 0 if element
    by element. `offset`: of the first slot in shared memory, in bytes. `linear`: copied lane after lane, the swizzle
    applied to the source. `whole`: a buffer that knows its range can be copied from. `cost`: of its reads in bank cycles, where the machine tells.
    """

    load: Op
    shared: Shared
    flipped: bool
    width: int
    loop: Op | None = None
    depth: int = 1
    offset: int = 0
    linear: bool = False
    whole: bool = False
    cost: Cost | None = None

    @property
    def slot_bytes(self) -> int:
        return -(-self.shared.size // ALIGN) * ALIGN


@dataclass(eq=False)
class Ring:
    """Slots in shared memory through which tiles go from the threads that copy to those that compute.

    tiles: copied together; those in `common` are the same for all blocks of a cluster, each of which copies a part to all. users: the products that read them; a slot is free when all have. bar: where the barriers are in
    shared memory (for each slot that it is full, then for each that it is empty). beside: a ring of as many slots that goes
    on at the same moments, so that one place serves both.
    """

    name: str
    tiles: list[Staged]
    users: tuple[Op, ...]
    loop: Op | None
    depth: int = 1
    bar: int = 0
    common: list[Staged] = field(default_factory=list)
    beside: Ring | None = None

    @property
    def slot_bytes(self) -> int:
        return sum(-(-s.shared.size // ENGINE_ALIGN) * ENGINE_ALIGN for s in self.tiles)

    @property
    def bytes(self) -> int:
        """Of data in a slot."""
        return sum(s.shared.size for s in self.tiles)


@dataclass(eq=False)
class Out:
    """A result that goes to memory through shared memory, copied by the engine in panels of so many bytes.

    late: only while the next program's first products are under way.
    """

    store: Op
    panel: int
    late: bool = False


@dataclass(eq=False)
class Relay:
    """A tile of a loop that the teams compute and hand to each other through shared memory: a product reads all of it.

    ring: where it lies, in two slots, one for each of two passes. ahead: the product that heads a pass, started in the pass
    before; late: the one that adds the tile's product to a carried sum, a pass after its own. whole: the one that reads what
    all teams have written; what it makes goes to a buffer (sums, in panels of so many bytes), from which two more threads, in
    turn, have the engine add it to memory (add). handed: the barriers of that buffer, one pair for each of the threads.
    """

    ring: Ring
    ahead: Op
    late: Op
    whole: Op
    add: Op
    sums: Shared
    panel: int
    handed: Ring

    @property
    def value(self) -> Value:
        return self.ring.tiles[0].load.result


@dataclass
class Roles:
    """One team of groups copies tiles, `teams` compute; blocks take one program after another.

    late: of a loop, the product that ends a pass and is started in the next one, behind those that head it. ends: of a loop,
    the products of computed operands that add to carried sums, which are under way when the next pass begins. dealt: the
    broadcasts of vectors that lanes of a group read from each other, and where in shared memory. out: where in
    shared memory results pass, two buffers a group. cluster: blocks whose programs are neighbours along the grid's first axis.
    cut: a tile of which no rows are copied that its tensor does not have: there the slots are zeros from the start.
    turns: through which the copying team tells the others which programs it has drawn, if blocks draw them. idle: the stores,
    all of them to slices, of programs that have no other effect: those where no slice has rows are drawn and told to nobody.
    relays: by loop.
    """

    teams: int
    rings: list[Ring]
    late: dict[Op, Op]
    ends: dict[Op, list[Op]] = field(default_factory=dict)
    dealt: dict[Op, int] = field(default_factory=dict)
    outs: dict[Op, Out] = field(default_factory=dict)
    out: int = 0
    cluster: int = 1
    cut: Staged | None = None
    turns: Ring | None = None
    idle: list[Op] = field(default_factory=list)
    end: int = 0  # of slots and barriers in shared memory
    relays: dict[Op, Relay] = field(default_factory=dict)


@dataclass
class Plan:
    """How a function is mapped to a machine."""

    function: Function
    machine: Machine
    placement: Placement
    staged: dict[Value, Staged] = field(default_factory=dict)
    streamed: set[Value] = field(
        default_factory=set
    )  # loads whose elements products read where they lie, step by step
    buffer_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    scratch_bytes: int = 0  # this and the next are known once the text is written
    kept_words: int = 0  # registers of operands that are kept over loops
    roles: Roles | None = None
    schedules: dict[Op, Schedule] = field(default_factory=dict)  # of loops whose groups run phases apart

    @property
    def tiles(self) -> dict[Value, Staged]:
        """What products read from shared memory: copied there, or computed."""
        relays = self.roles.relays.values() if self.roles is not None else ()
        return {**self.staged, **{r.value: r.ring.tiles[0] for r in relays}}

    @property
    def mapped(self) -> set[str]:
        """The tensors that an engine is told of: their extents are below 2^32, or the launch is refused."""
        if self.roles is None:
            return set()
        stores = [*self.roles.outs, *(r.add for r in self.roles.relays.values())]
        return {base(op.operands[0]).name for op in (*(s.load for s in self.staged.values()), *stores)}

    @property
    def threads(self) -> int:
        return self.placement.groups * self.machine.lanes

    @property
    def shared_bytes(self) -> int:
        return self.buffer_bytes + self.scratch_bytes

    def __str__(self) -> str:
        f, m, p = self.function, self.machine, self.placement
        rows = [
            f"plan of {f.name} on {m.target}: {self.threads} threads in {p.groups} groups of {m.lanes}, {self.buffer_bytes} bytes of shared tiles"
        ]
        for op, matrix in p.products.items():
            a, b = (shape(v) for v in (op.operands[0], op.operands[2 if op.name == "mma_scaled" else 1]))
            how = (
                f"{matrix.op.product.name}, {'x'.join(map(str, matrix.tiles))} a group"
                if matrix.op
                else matrix.reason
            )
            how += f"; {matrix.reason}" if matrix.op and matrix.reason else ""
            rows.append(f"  product {op.result.name or ''} {a} @ {b} of {dtype_of(op.operands[0])}: {how}")
        for value, s in self.staged.items():
            ring = f"ring of {s.depth}" if s.loop is not None else "loaded once"
            copies = (
                f"{s.width}-byte {'linear ' if s.linear else ''}copies" if s.width else "element by element"
            )
            copies += f", reads at {s.cost.factor:.2f} of the fewest bank cycles" if s.cost else ""
            rows.append(
                f"  staged {value.name or base(s.load.operands[0]).name} {shape(value)} of {dtype_of(value)}: {ring}, {copies}, {s.slot_bytes} bytes a slot"
            )
        for schedule in self.schedules.values():
            first, *rest = schedule.told(
                {v: v.name or base(s.load.operands[0]).name for v, s in self.staged.items()}, p.groups
            )
            rows += [f"  schedule: {first}", *(f"  {text}" for text in rest)]
        rows += [f"  streamed {v.name or '-'} {v.type}: read by products step by step" for v in self.streamed]
        seen = set()
        for value, layout in p.layouts.items():
            if (
                value in self.staged
                or value in self.streamed
                or value in p.implicit
                or (value.name, value.type) in seen
            ):
                continue
            seen.add((value.name, value.type))
            rows.append(
                f"  held {value.name or '-'} {value.type}: {layout.registers} registers a lane; {p.reasons[value]}"
            )
        rows += [f"  {text}" for text in (*self.accesses(), *self.edges())]
        rows.append(f"  predicted: {self.predicted_registers()} registers of {m.registers} a lane")
        rows += [f"  note: {n}" for n in self.notes]
        return "\n".join(rows) + "\n"

    def predicted_registers(self) -> int:
        """32-bit registers of a lane at the worst moment, as far as tiles and operands tell."""
        from kittens.codegen.pressure import registers

        return registers(self)

    def edges(self) -> list[str]:
        """What loads and stores of tiles test at edges, one line for each that differs."""
        loops = loops_by_index(self.function.body)
        lines: dict[str, None] = {}
        for op in self.function.body.walk():
            if op.name in ("load", "store", "store_add"):
                tile = op.result if op.name == "load" else op.operands[-1]
                told = " and ".join(tested(op, shape(tile), loops))
                lines[f"{op.name} of {base(op.operands[0]).name} {shape(tile)}: tests {told} at edges"] = None
        return list(lines)

    def accesses(self) -> list[str]:
        """How well the loads and stores of held tiles use global memory's transactions, one line each."""
        lines = []
        for op in self.function.body.walk():
            if op.name not in ("load", "store"):
                continue
            tile = op.result if op.name == "load" else op.operands[-1]
            layout, tensor = self.placement.layouts.get(tile), op.operands[0].type
            assert isinstance(tensor, TensorType)
            if (
                tile in self.staged
                or tile in self.streamed
                or layout is None
                or not tensor.strides
                or 1 not in {s.value for s in tensor.strides}
            ):
                continue
            if tensor.strides[-1].value != 1:
                layout = lay.transpose(layout)
            if layout.shape[-1] != [n for n in shape(tile) if n > 1][-1] and len(layout.axes) == 1:
                continue
            pitch = 1 << 20  # rows far apart
            cost = lay.global_cost(layout, tensor.dtype.bytes, pitch, segment=self.machine.segment)
            lines.append(
                f"{op.name} of {base(op.operands[0]).name}: {cost.factor:.2f} of the fewest {self.machine.segment}-byte transactions"
            )
        return lines


#: Elements of a tile from which on it is not even planned: a processor's registers hold a sixteenth.
_MOST_ELEMENTS = 1 << 20


def make_plan(function: Function, machine: Machine) -> Plan:
    """Plan a function for a machine. Raises UnavailableError with advice where it does not fit."""
    _check(function, machine)
    if machine.engine is None:
        return _made(function, machine)
    from kittens.codegen.roles import assign, hindrances

    found = assign(function, machine)
    if found is None:
        found = _made(function, machine)
        found.notes += hindrances(function, machine.engine)
    return found


def _check(function: Function, machine: Machine) -> None:
    for op in function.body.walk():
        for value in (*op.operands, *op.results):
            if dtype_of(value) == "float64":
                raise UnavailableError(
                    f"{machine.target} has no float64: it exists on the reference only",
                    hint="convert with .to(kt.float32), or run on numpy",
                    location=op.location,
                )
            if isinstance(value.type, TileType) and value.type.size > _MOST_ELEMENTS:
                raise UnavailableError(
                    f"a tile {value.type} is too large for {machine.target}",
                    hint=f"no program holds {_MOST_ELEMENTS} elements: use smaller tiles (the kernel's tunables)",
                    location=op.location,
                )
        if op.name == "store_add" and dtype_of(op.operands[-1]) not in machine.atomics:
            raise UnavailableError(
                f"{machine.target} does not add {dtype_of(op.operands[-1])} in memory",
                hint=f"kt.store_add there takes {', '.join(machine.atomics)}",
                location=op.location,
            )
        if op.attrs.get("ordered") and not machine.turns:
            raise UnavailableError(
                f"programs do not wait for each other on {machine.target}, which does not promise that the others go on",
                hint="leave out turn= of kt.store_add, or sum in one program",
                location=op.location,
            )


def _made(function: Function, machine: Machine) -> Plan:
    plan = Plan(function, machine, place(function, machine))
    for load, loop in loads_of_products(plan):
        staged = plan.staged[load.result] = _shared_tile(plan, load)
        if loop is not None:
            products = sum(inner.name in ("mma", "mma_scaled") for inner in loop.regions[0].walk())
            staged.loop, staged.depth = (
                loop,
                (products > 1 and machine.long_stages) or machine.stages,
            )
    _fit(plan)
    _schedule(plan)
    return plan


def _schedule(plan: Plan) -> None:
    """Let groups that share a part of the processor run loops a phase apart, where there are two of each and it can be said.

    That is loops with one product by instruction, of tiles in rings that are copied in the background, and nothing else
    that takes time. Raises InternalError for a schedule with faults.
    """
    if not plan.machine.paired or plan.placement.groups != plan.machine.paired:
        return
    for loop in plan.function.body.walk():
        tiles = {v: s for v, s in plan.staged.items() if s.loop is loop and s.depth > 2}
        product = _only_product(plan, loop, tiles) if tiles else None
        if product is not None:
            pieces = {v: s.shared.size // s.width // plan.threads for v, s in tiles.items()}
            schedule = ping_pong(min(s.depth for s in tiles.values()), pieces, product)
            if schedule.left > MOST_COUNTED:
                continue
            if found := faults(schedule):
                raise InternalError(f"the schedule of {plan.function.name} is wrong: {'; '.join(found)}")
            plan.schedules[loop] = schedule


#: Pieces under way that a wait can leave: vmcnt has six bits, and others have no fewer.
MOST_COUNTED = 63


def _only_product(plan: Plan, loop: Op, tiles: dict[Value, Staged]) -> Op | None:
    """A loop's product, if that and the copies of its operands, `tiles`, are all that it does."""
    ops = loop.regions[0].ops
    products = [op for op in ops if op.name == "mma"]
    if len(products) != 1 or not all(s.linear for s in tiles.values()):
        return None
    matrix = plan.placement.products[products[0]]
    operands = {source_of(v)[0] for v in products[0].operands[:2]}
    plain = ("load", "mma", "transpose", "yield", *PURE_SCALARS, "index", "slice", "permute", "dim")
    if (
        matrix.op is None
        or matrix.op.through
        or operands != set(tiles)
        or any(op.name not in plain for op in ops)
        or any(op.name == "load" and op.result not in tiles for op in ops)
        or any(op.name in PURE_SCALARS and is_tile(op.result) for op in ops)
    ):
        return None
    return products[0]


def _uses(function: Function) -> dict[Value, list[Op]]:
    uses: dict[Value, list[Op]] = {}
    for op in function.body.walk():
        for v in op.operands:
            uses.setdefault(v, []).append(op)
    return uses


def loads_of_products(plan: Plan) -> list[tuple[Op, Op | None]]:
    """The loads that only products read, which go to shared memory; each with the loop whose later passes can be loaded ahead."""
    found: list[tuple[Op, Op | None]] = []
    uses = _uses(plan.function)
    stored = plan.function.stored()
    owner = owners(plan.function.body)

    def only_products(value: Value) -> bool:
        for op in uses.get(value, ()):
            if op.name == "transpose":
                if not only_products(op.result):
                    return False
            elif (
                op.name not in ("mma", "mma_scaled")
                or value
                not in (
                    op.operands[0],
                    op.operands[1 if op.name == "mma" else 2],
                )
                or (len(op.operands) in (3, 5) and op.operands[-1] is value)
                or ((instruction := plan.placement.products[op].op) is not None and instruction.through)
            ):
                return False
        return True

    for op in plan.function.body.walk():
        if (
            op.name != "load"
            or len(shape(op.result)) != 2
            or op.attrs["pad"] != 0
            or base(op.operands[0]).name in stored
        ):
            continue
        if (
            op.result in plan.placement.direct
            or not uses.get(op.result)
            or not only_products(op.result)
            or BY_NAME[dtype_of(op.result)].bits > 32
        ):
            continue
        loop = owner.get(op)
        ahead = loop is not None and loop.name == "loop" and _ahead(op, loop, stored)
        found.append((op, loop if ahead else None))
    return found


def owners(region: Region, owner: Op | None = None) -> dict[Op, Op]:
    """The loop or branch that each operation stands in directly."""
    found: dict[Op, Op] = {}
    for op in region.ops:
        if owner is not None:
            found[op] = owner
        for inner in op.regions:
            found |= owners(inner, op)
    return found


PURE_SCALARS = ("add", "sub", "mul", "floordiv", "mod", "cdiv", "maximum", "minimum", "cast", "const")


def _ahead(load: Op, loop: Op, stored: set[str]) -> bool:
    """Whether the address of a load can be computed for a later pass: it follows from the index, from what lies outside, and
    from numbers in memory that nobody stores to.
    """
    region = loop.regions[0]
    inside = {v for op in region.walk() for v in op.results} | set(region.args[1:])

    def known(value: Value) -> bool:
        if value not in inside:
            return True
        op = value.producer
        return (
            op is not None
            and op in region.ops
            and (
                op.name in (*PURE_SCALARS, "index", "slice", "permute")
                or (op.name == "load" and not shape(op.result) and base(op.operands[0]).name not in stored)
            )
            and all(map(known, op.operands))
        )

    return all(map(known, load.operands))


def _shared_tile(plan: Plan, op: Op) -> Staged:
    tensor = op.operands[0].type
    assert isinstance(tensor, TensorType)
    rows, cols = shape(op.result)
    flipped = tensor.strides[1].value != 1 and tensor.strides[0].value == 1
    if flipped:
        rows, cols = cols, rows
    itemsize = tensor.dtype.bytes
    row_bytes = cols * itemsize
    shared, cost = tile(plan.machine, (rows, cols), itemsize, _reads(plan, op.result, flipped))
    width = _copy_width(plan, op, flipped, row_bytes)
    whole = _whole(plan, op, shared, flipped, width)
    linear = whole and width in plan.machine.linear
    return Staged(op, shared, flipped, width, cost=cost, whole=whole, linear=linear)


def _reads(plan: Plan, value: Value, flipped: bool) -> list[tuple[Tiled, int]]:
    """The layouts in which products read a staged tile, turned as it lies, with their steps along K."""
    found = []
    for op, matrix in plan.placement.products.items():
        for position, layout in enumerate((matrix.a, matrix.b)):
            root, turned = source_of(op.operands[position])
            if root is value and layout is not None:
                found.append((transpose(layout) if turned != flipped else layout, matrix.tiles[2]))
    return found


def _whole(plan: Plan, op: Op, shared: Shared, flipped: bool, width: int) -> bool:
    """Whether pieces, of a width that buffers have, are inside or outside as wholes; all threads have as many."""
    if width not in (*plan.machine.linear, *plan.machine.buffers) or shared.pad[0]:
        return False
    view = resolve(op.operands[0], lambda v: "x")
    contiguous = view.axes[0 if flipped else 1]
    pieces = shared.shape[0] * shared.shape[1] * shared.itemsize // width
    return pieces % plan.threads == 0 and divisor(contiguous.known_extent) * shared.itemsize % width == 0


def _copy_width(plan: Plan, op: Op, flipped: bool, row_bytes: int) -> int:
    """Bytes that one copy may move: what the tensor's alignment and the machine allow."""
    view = resolve(
        op.operands[0],
        lambda v: "0" if v.producer is not None and v.producer.attrs.get("value") == 0 else "x",
    )
    assert isinstance(view.parameter.type, TensorType)
    size = view.parameter.type.dtype.bytes
    contiguous, other = view.axes[::-1] if not flipped else view.axes
    if contiguous.known_stride.value != 1:
        return 0
    aligned = min(
        view.aligned * size,
        view.parameter.type.alignment,
        divisor(other.known_stride) * size,
        row_bytes & -row_bytes,
    )
    return next((w for w in plan.machine.copies if aligned % w == 0 and w >= size), 0)


def _fit(plan: Plan) -> None:
    """Give buffers their place; rings get shallower until all fit."""
    budget = (
        plan.machine.shared_bytes - 16384
        if plan.machine.shared_bytes > 65536
        else plan.machine.shared_bytes * 3 // 4
    )
    while True:
        total = _lay_out(plan)
        if total <= budget or not any(s.depth > 1 for s in plan.staged.values()):
            break
        deepest = max(s.depth for s in plan.staged.values())
        for staged in plan.staged.values():
            staged.depth = min(staged.depth, deepest - 1)
        plan.notes.append(f"rings of {deepest - 1}: {deepest} would take {total} bytes of shared memory")
    while total > plan.machine.shared_bytes and plan.machine.direct and _stream_one(plan):
        total = _lay_out(plan)
    if total > plan.machine.shared_bytes:
        raise UnavailableError(
            f"{plan.function.name} needs {total} bytes of shared memory, {plan.machine.target} has {plan.machine.shared_bytes}",
            hint="use smaller tiles (the kernel's tunables)",
        )
    plan.buffer_bytes = total


def _lay_out(plan: Plan) -> int:
    """Give each buffer its place; the bytes that all take."""
    total = 0
    for staged in plan.staged.values():
        staged.offset = total
        total += staged.depth * staged.slot_bytes
    return total


def _stream_one(plan: Plan) -> bool:
    """Leave a tile where it lies, of those that are read least often the largest; False if there is none."""
    uses = _uses(plan.function)

    def reads(value: Value) -> int:
        return sum(reads(op.result) if op.name == "transpose" else 1 for op in uses.get(value, ()))

    def by_instruction(value: Value) -> bool:
        return all(
            by_instruction(op.result)
            if op.name == "transpose"
            else plan.placement.products[op].op is not None
            for op in uses.get(value, ())
        )

    possible = [v for v in plan.staged if by_instruction(v)]
    if not possible:
        return False
    chosen = min(possible, key=lambda v: (reads(v), -plan.staged[v].slot_bytes))
    plan.notes.append(f"{chosen.name or 'a tile'} is not staged: no shared memory is left for it")
    del plan.staged[chosen]
    plan.streamed.add(chosen)
    return True


__all__ = ["Plan", "Resolved", "Staged", "make_plan", "source_of"]
