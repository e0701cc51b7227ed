"""Plans in which one team of groups copies tiles and others compute, for machines whose engine does both beside the threads.

The copying team runs a slice of the program, that which says where tiles lie, as far ahead as the rings allow. The
computing teams start products on tiles that have come, and go on with what does not depend on them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from kittens import layouts as lay
from kittens.codegen.engine import across, as_it_lies, panels, reads_slots, sums_carried, view_of
from kittens.codegen.machine import Engine, Machine
from kittens.codegen.placement import (
    Matrix,
    Placement,
    dealt_vector,
    dtype_of,
    is_tile,
    place,
    related,
    shape,
    sides,
    source_of,
    squeezed,
    turned_products,
)
from kittens.codegen.plan import (
    ENGINE_ALIGN,
    OUT_BYTES,
    Out,
    Plan,
    Relay,
    Ring,
    Roles,
    Staged,
    loads_of_products,
)
from kittens.codegen.relays import added, lined, relay, take_in
from kittens.dtypes import BY_NAME
from kittens.ir import Function, Op, Value, base
from kittens.opset import OPS

#: Bytes of panels that tiles are copied in, the widest first.
_PANELS = (128, 64, 32)
#: Shared memory left for what is not staged: sums over groups, results on their way out.
_SPARE = 2048
_MOST = 8


def assign(function: Function, machine: Machine) -> Plan | None:
    """A plan with roles; None if the engine cannot make the function's products, or copy their operands."""
    engine = machine.engine
    assert engine is not None
    products = [op for op in function.body.walk() if op.name in ("mma", "mma_scaled")]
    teams = _teams(function, products, engine)
    if not teams:
        return None
    vectors = lined(function)
    ways = (vectors, set()) if vectors else (vectors,)
    return next((plan for way in ways if (plan := _assigned(function, machine, products, teams, way))), None)


def _assigned(
    function: Function, machine: Machine, products: list[Op], teams: int, vectors: set[Value]
) -> Plan | None:
    engine = machine.engine
    assert engine is not None
    plan = Plan(function, machine, place(function, machine, teams, vectors))
    loads = loads_of_products(plan)
    top = set(function.body.ops)
    for load, loop in loads:
        tile = _tile(load, machine)
        if tile is None or not (load in top or (loop is not None and loop in top)):
            return None
        plan.staged[load.result] = tile
        tile.loop = loop
    if not plan.staged:
        return None
    rings = _rings(plan, products)
    relays: dict[Op, Relay] = {}
    for loop in {op for op in function.body.ops if op.name == "loop"}:
        found = relay(loop, plan, rings)
        if found is not None and not relays:
            relays[loop] = found
    if vectors and not (relays and all(take_in(found, rings, vectors, plan) for found in relays.values())):
        return None
    whole = {r.whole for r in relays.values()}
    if not all(op in whole or _readable(op, plan, engine) for op in products):
        return None
    told = [load.operands for load, _ in loads] + [
        loop.operands[:3] for loop in {loop for _, loop in loads if loop is not None}
    ]
    if not all(_followed(values, function) for values in told):
        return None
    direct = [
        *function.body.ops,
        *(x for op in function.body.ops if op.name == "loop" for x in op.regions[0].ops),
    ]
    if any(op not in direct for op in products):
        return None
    late: dict[Op, Op] = {}
    ends: dict[Op, list[Op]] = {}
    for loop in {op for op in function.body.ops if op.name == "loop"}:
        last = _late(loop, plan)
        if last is not None:
            late[loop] = last
        elif loop not in relays and (last_ones := _ends(loop, plan)):
            ends[loop] = last_ones
            rings = _together(rings, loop)
    outs = {op: out for op in function.body.ops if (out := _out(op, plan, late)) is not None}
    for ways in (outs, {}):
        plan.roles = Roles(teams, rings, late, ends, dict.fromkeys(_dealt(plan), 0), ways, relays=relays)
        if fit(plan, _SPARE):
            _share(plan, products)
            _cut(plan, products)
            return plan
    return None


#: Columns of a result up to which its block reads as much of the left operand as of the right one, or more.
_NARROW = 64


def _cut(plan: Plan, products: list[Op]) -> None:
    """Copy no rows of a narrow product's left operand that it does not have: engines take long to fill them with zeros."""
    roles = plan.roles
    assert roles is not None
    if len(products) != 1 or shape(products[0].result)[1] > _NARROW:
        return
    value, _ = source_of(products[0].operands[0])
    for ring in roles.rings:
        for tile in ring.tiles:
            if tile.load.result is value and ring.loop is not None and not tile.flipped and not ring.common:
                roles.cut = tile


#: Elements of a result from which on blocks share copies, of operands of 16 bits: smaller ones belong to grids too small for
#: it to pay. Products of 8 bits take half the time, so that half as many ask as much of memory.
_SHARING = 128 * 256


def _share(plan: Plan, products: list[Op]) -> None:
    """Let neighbouring blocks share the copies of tiles that they have in common: half the traffic, and the power it takes."""
    roles, engine = plan.roles, plan.machine.engine
    assert roles is not None and engine is not None
    ids = [op for op in plan.function.body.walk() if op.name == "program_id"]
    large = max(
        shape(op.result)[0] * shape(op.result)[1] * 16 // BY_NAME[dtype_of(op.operands[0])].bits
        for op in products
    )
    if (
        engine.cluster < 2
        or roles.late
        or roles.turns
        or len(ids) != 1
        or len(ids[0].results) < 2
        or large < _SHARING
    ):
        return
    common = {
        ring: [
            s
            for s in ring.tiles
            if not _follows(s.load.operands, ids[0].results[0]) and _split(s, engine.cluster)
        ]
        for ring in roles.rings
        if ring.loop is not None
    }
    if any(common.values()):
        roles.cluster = engine.cluster
        for ring, tiles in common.items():
            ring.common = tiles


def _follows(values: Sequence[Value], source: Value) -> bool:
    """Whether some of the values are computed from `source`."""
    todo, seen = list(values), set()
    while todo:
        value = todo.pop()
        if value is source:
            return True
        if value not in seen:
            seen.add(value)
            todo += value.producer.operands if value.producer is not None else []
    return False


def _split(staged: Staged, parts: int) -> bool:
    """Whether a tile divides into so many parts: of its panels, or of its rows."""
    rows, cols = staged.shared.shape
    return cols * staged.shared.itemsize // staged.width % parts == 0 or rows % (8 * parts) == 0


#: Registers a lane that sums, products under way and a result that waits to go out may take together.
_WAITING = 200


def _out(op: Op, plan: Plan, late: dict[Op, Op]) -> Out | None:
    """How a store goes out by the engine: a result of 16-bit floats that lies as products leave it."""
    if op.name != "store" or dtype_of(op.operands[-1]) not in ("float16", "bfloat16"):
        return None
    tile = op.operands[-1]
    layout = plan.placement.layouts.get(tile)
    found = panels(op, shape(tile))
    if found is None or found[0] or layout not in results(plan.placement):
        return None
    name = base(op.operands[0]).name
    loads = [x for x in plan.function.body.walk() if x.name == "load" and base(x.operands[0]).name == name]
    stores = [
        x
        for x in plan.function.body.walk()
        if x.name.startswith("store") and base(x.operands[0]).name == name
    ]
    if loads or len(stores) > 1:  # the order of the engine's copies and others is not kept
        return None
    body = plan.function.body.ops
    rings = [x for x in body if x.name == "loop" and any(s.loop is x for s in plan.staged.values())]
    assert layout is not None
    products = [x for loop in rings for x in loop.regions[0].ops if x in plan.placement.products]
    fresh = [x for x in products if reads_slots(x, plan.staged)]
    held = layout.registers * 3 // 2 + sum(plan.placement.products[x].layout.registers for x in fresh)
    waits = (
        len(rings) == 1
        and rings[0] not in late
        and body.index(op) > body.index(rings[0])
        and all(s.loop is not None for s in plan.staged.values())
        and held <= _WAITING
        and _followed(op.operands[:-1], plan.function)
        and not any(
            x.name not in ("cast", "loop") and any(map(is_tile, x.results))
            for x in body[body.index(rings[0]) :]
        )
        and [x for x in body if x.name.startswith("store")] == [op]
        and (fresh == products or all(sums_carried(rings[0], x) for x in products))
    )
    return Out(op, found[1], waits)


def results(placement: Placement) -> dict[lay.Tiled, Matrix]:
    """The layouts that products leave results in whose rows are the engine's."""
    return {m.layout: m for m in reversed(placement.products.values()) if not m.swapped}


def _teams(function: Function, products: list[Op], engine: Engine) -> int:
    """How many teams share the products; 0 if the engine cannot make them."""
    turned = turned_products(function)
    for op in products:
        a, b = (dtype_of(x) for x in op.operands[:2])
        if op.name != "mma" or a not in engine.products or dtype_of(op.result) != "float32":
            return 0
        if engine.products.get(b) is not engine.products[a]:
            return 0
        if engine.coarse & {a, b} and op.attrs.get("accumulate") != "fast":
            return 0
        k, (m, n) = shape(op.operands[0])[1], _extents(op, turned)
        rows, depth = lay.Tiled(engine.products[a].d).shape[0], lay.Tiled(engine.products[a].a).shape[1]
        if m % rows or n % engine.step or (n > engine.most and n % engine.most) or k % depth or n < 16:
            return 0
    beside = added(function)

    def shared(op: Op, n: int) -> bool:
        """Whether so many teams can share a product."""
        (m, columns), rows = (
            _extents(op, turned),
            lay.Tiled(engine.products[dtype_of(op.operands[0])].d).shape[0],
        )
        if m == rows and op in beside:  # a team's columns begin where a panel of the right operand does
            size = BY_NAME[dtype_of(op.operands[1])].bytes
            return columns * size % (n * _PANELS[0]) == 0
        return m // rows % n == 0 and m // rows // n <= 2

    wide = max((_extents(op, turned)[1] for op in products), default=0)
    # Three teams have fewer registers each: only where the sums are narrow.
    return next(
        (n for n in ((3, 2, 1) if wide <= 128 else (2, 1)) if all(shared(op, n) for op in products)),
        0,
    )


def _extents(op: Op, turned: set[Op]) -> tuple[int, int]:
    """Rows and columns of what the engine makes of a product."""
    rows, cols = shape(op.result)
    return (cols, rows) if op in turned else (rows, cols)


def _tile(load: Op, machine: Machine) -> Staged | None:
    """The tile in shared memory that the engine copies a load to; None if it cannot."""
    engine, found = machine.engine, panels(load, shape(load.result))
    assert engine is not None
    if found is None:
        return None
    flipped, panel = found
    rows, cols = shape(load.result)[::-1] if flipped else shape(load.result)
    if rows % 8 or rows > engine.box:
        return None
    size = BY_NAME[dtype_of(load.result)].bytes
    shared = lay.panels((rows, cols), size, panel_bytes=panel, xors=machine.swizzles[panel])
    return Staged(load, shared, flipped, panel)


def _readable(op: Op, plan: Plan, engine: Engine) -> bool:
    """Whether the engine can read both operands of a product."""
    matrix = plan.placement.products[op]
    dtype = dtype_of(op.operands[0])
    for position, (root, flipped) in enumerate(sides(op, swapped=matrix.swapped)):
        if root in plan.staged:
            if across(plan.staged[root], flipped, position) and dtype in engine.along:
                return False
        elif position or as_it_lies(plan.placement.layouts.get(root), flipped, matrix) is None:
            return False
    return True


def hindrances(function: Function, engine: Engine) -> list[str]:
    """What keeps the engine from products of types that it multiplies, where that is their mode or how operands lie."""
    found: dict[str, None] = {}
    for op in function.body.walk():
        if op.name != "mma":
            continue
        a, b = (dtype_of(x) for x in op.operands[:2])
        if a not in engine.products or engine.products.get(b) is not engine.products[a]:
            continue
        if engine.coarse & {a, b} and op.attrs.get("accumulate") != "fast":
            found[f"the engine adds {a} in less than float32: it makes fast products of it alone"] = None
        elif a in engine.along:
            for position, (root, flipped) in enumerate(map(source_of, op.operands[:2])):
                load = root.producer
                lies = panels(load, shape(root)) if load is not None and load.name == "load" else None
                if load is not None and lies is not None and (flipped != lies[0]) != (position == 1):
                    name, axis = base(load.operands[0]).name, "MN"[position]
                    found[f"{name} lies along {axis}: the engine takes {a} along K alone"] = None
    return list(found)


def _followed(operands: Sequence[Value], function: Function) -> bool:
    """Whether it can be found out elsewhere where a tile lies: by scalar arithmetic, loops' indices and scalar loads."""
    seen: set[Value] = set()
    todo = list(operands)
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        op = value.producer
        if op is None:
            continue
        if (
            op.regions
            or is_tile(value)
            or (op.name == "load" and base(op.operands[0]).name in function.stored())
        ):
            return False
        todo += op.operands
    return True


def _rings(plan: Plan, products: list[Op]) -> list[Ring]:
    """Tiles that the same products read go together."""
    users: dict[Value, list[Op]] = {v: [] for v in plan.staged}
    for op in products:
        for operand in op.operands[:2]:
            root, _ = source_of(operand)
            if root in users and op not in users[root]:
                users[root].append(op)
    rings: dict[tuple[Op | None, tuple[Op, ...]], Ring] = {}
    taken = {"turn_full", *(p.name for p in plan.function.params)}
    for value, staged in plan.staged.items():
        key = (staged.loop, tuple(users[value]))
        if key not in rings:
            name = _named(value.name or base(staged.load.operands[0]).name, taken)
            rings[key] = Ring(name, [], key[1], staged.loop)
        rings[key].tiles.append(staged)
    return list(rings.values())


def _named(stem: str, taken: set[str]) -> str:
    """A name for a ring: what the text calls its barriers and places by is then no other ring's, and no parameter's."""
    stem = re.sub(r"\W", "_", stem)
    name, n = stem, 1
    while any(f"{name}{x}" in taken for x in ("_full", "_empty", "_slot", "_phase")):
        n += 1
        name = f"{stem}_{n}"
    taken.add(f"{name}_full")
    return name


def _together(rings: list[Ring], loop: Op) -> list[Ring]:
    """Let the tiles of a loop go in one ring, and those from before it in another: fewer places and phases to keep."""
    found: dict[Op | None, Ring] = {}
    for ring in rings:
        if ring.loop not in (None, loop):
            return rings
        first = found.setdefault(ring.loop, Ring(ring.name, [], (), ring.loop))
        first.tiles += ring.tiles
        first.users = tuple(dict.fromkeys((*first.users, *ring.users)))
    return list(found.values())


def _late(loop: Op, plan: Plan) -> Op | None:
    """The product that can be put off to the next pass: the last one, added to a carried sum, of a computed operand."""
    region = loop.regions[0]
    products = [op for op in region.ops if op in plan.placement.products]
    if len(products) < 2:
        return None
    last = products[-1]
    head = products[:-1]
    computed, _ = source_of(last.operands[0])
    yielded = region.ops[-1].operands
    if computed in plan.staged or len(last.operands) != 3 or yielded.count(last.result) != 1:
        return None
    at = yielded.index(last.result)
    argument = region.args[len(region.args) - len(loop.results) + at]
    if argument in yielded:
        return None
    if any(v is last.result for op in region.ops[:-1] for v in op.operands):
        return None
    # What heads a pass depends on staged tiles alone, so it can be started before the last pass has ended.
    if any(source_of(v)[0] not in plan.staged for op in head for v in op.operands[:2]) or any(
        len(op.operands) == 3 for op in head
    ):
        return None
    return last


def _ends(loop: Op, plan: Plan) -> list[Op]:
    """The products of a loop that add computed operands to carried sums, if all others need staged tiles alone."""
    products = [op for op in loop.regions[0].ops if op in plan.placement.products]
    heads = [op for op in products if reads_slots(op, plan.staged)]
    ends = [
        op for op in products if sums_carried(loop, op) and source_of(op.operands[0])[0] not in plan.staged
    ]
    return ends if heads and len(heads) + len(ends) == len(products) else []


def _dealt(plan: Plan) -> list[Op]:
    """The broadcasts, to what the engine makes transposed, of vectors that are dealt to the lanes of each group."""
    found = []
    for op in plan.function.body.walk():
        relation = related(op) if op.name == "broadcast" else None
        if relation is not None and op.operands[0] in plan.placement.layouts and relation[2] == "col":
            (extent,) = squeezed(shape(op.operands[0]))
            layout = plan.placement.layouts[op.operands[0]]
            if layout == dealt_vector(extent, plan.machine.lanes, plan.placement.groups):
                found.append(op)
    return found


def fit(plan: Plan, spare: int) -> bool:
    """Give slots and barriers their places, with as many slots as fit beside `spare` bytes; False if two a loop do not."""
    roles = plan.roles
    assert roles is not None
    dealt = sum(plan.placement.groups * dealt_bytes(op.operands[0]) for op in roles.dealt)
    room = plan.machine.shared_bytes - spare - dealt

    # Results of programs and of passes go out through the same bytes, one after the other.
    out = max(
        [
            2 * OUT_BYTES * plan.placement.groups if roles.outs else 0,
            *(r.sums.size for r in roles.relays.values()),
        ]
    )
    between = sum(r.ring.depth * r.ring.slot_bytes for r in roles.relays.values())
    early = {ring for ring in roles.rings if any(r.ahead in ring.users for r in roles.relays.values())}

    def depth(ring: Ring, deep: int, outside: int) -> int:
        """One slot more where a tile is waited for while the one before is still read."""
        return outside if ring.loop is None else deep + 1 if ring in early else deep

    def total(deep: int, outside: int) -> int:
        return out + between + sum(depth(r, deep, outside) * (r.slot_bytes + 16) for r in roles.rings)

    # Two slots outside loops: the next program's tiles come while this one's are read.
    most = 2 if roles.relays else _MOST  # the slots of the relay go with those of the loop
    ways = [(deep, outside) for outside in (2, 1) for deep in range(most, 1, -1)]
    fitting = next((w for w in ways if total(*w) <= room), None)
    if fitting is None:
        return False
    at = 0
    around = [ring for ring in roles.rings if ring.loop is None]
    for ring in roles.rings:
        ring.depth = depth(ring, *fitting)
        ring.beside = around[0] if ring in around[1:] else None
        for staged in ring.tiles:  # of the first slot
            staged.offset, staged.depth = at, ring.depth
            at += -(-staged.shared.size // ENGINE_ALIGN) * ENGINE_ALIGN
        at += (ring.depth - 1) * ring.slot_bytes
    for found in roles.relays.values():
        (staged,) = found.ring.tiles
        staged.offset, staged.depth = at, found.ring.depth
        at += found.ring.depth * found.ring.slot_bytes
    roles.out = at
    at += out
    ids = [op for op in plan.function.body.walk() if op.name == "program_id"]
    waiting = plan.function.ordered  # only for programs drawn before
    uneven = ids and (roles.late or waiting or ids[0].attrs["order"] in ("ascending", "descending"))
    told = len(ids) == 1 and ids[0] in plan.function.body.ops
    if waiting and ids and not told:
        return False
    if uneven and told:
        roles.turns = Ring("turn", [], (), None)
        roles.idle = _idle(plan.function)
        for way in roles.outs.values():  # where a program before was is not known any more
            way.late = False
    for ring in (
        *roles.rings,
        *(r.handed for r in roles.relays.values()),
        *([roles.turns] if roles.turns else []),
    ):
        ring.bar = at
        at += 16 * ring.depth
    at += 16 if roles.turns else 0  # where the program is in the grid, behind the barriers: or -1 for the end
    for op in roles.dealt:
        roles.dealt[op] = at = -(-at // 16) * 16
        at += plan.placement.groups * dealt_bytes(op.operands[0])
    roles.end = plan.buffer_bytes = -(-at // 128) * 128
    return True


def _idle(function: Function) -> list[Op]:
    """The stores of a program that are its only effect, if all go to slices, and the bounds of these are found out elsewhere."""
    found = []
    for op in function.body.walk():
        if OPS[op.name].pure or op.name in ("loop", "yield"):
            continue
        view = view_of(op.operands[0]) if op.name == "store" and op in function.body.ops else None
        if view is None or view.slice is None or not isinstance(view.axes[view.slice.axis], int):
            return []
        if not _followed(op.operands[:-1], function):
            return []
        found.append(op)
    return found


def dealt_bytes(vector: Value) -> int:
    """Shared memory through which the lanes of one group read a vector that is dealt to them."""
    return -(-math.prod(shape(vector)) * BY_NAME[dtype_of(vector)].bytes // 16) * 16


__all__ = ["assign", "dealt_bytes", "fit", "hindrances", "results"]
