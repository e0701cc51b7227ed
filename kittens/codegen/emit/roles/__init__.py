"""The text of a plan with roles: one team copies tiles through rings, the others compute.

Barriers in shared memory say of each slot of a ring that it is full (its bytes have come) or empty (every group has read
it).
"""

from __future__ import annotations

from collections.abc import Mapping

from kittens.artifact import Parameter
from kittens.codegen.emit.factors import ask, scale
from kittens.codegen.emit.roles.adding import adding
from kittens.codegen.emit.roles.compute import Compute, hand_back, land, settle
from kittens.codegen.emit.roles.copying import copying, zeros
from kittens.codegen.emit.roles.passes import loop
from kittens.codegen.emit.roles.products import product
from kittens.codegen.emit.roles.programs import programs, told_program_id
from kittens.codegen.emit.roles.results import await_results, out
from kittens.codegen.emit.roles.rings import advance, bar, phase_of, positions, ring_of
from kittens.codegen.emit.roles.slices import behind
from kittens.codegen.emit.writer import Handler, Source, Writer, heading
from kittens.codegen.placement import is_tile
from kittens.codegen.plan import Plan
from kittens.codegen.roles import fit
from kittens.errors import UnavailableError
from kittens.ir import Op, TensorType, Value


def source(plan: Plan, handlers: Mapping[str, Handler]) -> Source:
    """The source of a plan with roles."""
    roles, engine, machine, function = plan.roles, plan.machine.engine, plan.machine, plan.function
    assert roles is not None and engine is not None
    first = engine.team * machine.lanes  # threads that copy
    compute = Compute(plan, _handlers(handlers), handlers, _read_here(plan))
    maps = compute.maps
    copy = copying(plan, handlers, maps)
    adds = adding(plan, handlers, maps) if roles.relays else None

    compute.program, compute.rows, compute.cluster = copy.program, copy.rows, copy.cluster
    compute.indent = "    "
    positions(compute, 0)
    await_results(compute)
    if compute.in_turn:  # the last team gives the first one its first turn
        compute.open(f"if (team == {roles.teams})")
        compute.pass_turn()
        compute.close()
    before, compute.lines = compute.lines, []
    programs(compute)
    compute.region(function.body)
    land(compute, len(compute.flights))
    around = [ring for ring in roles.rings if ring.loop is None]
    for ring in around:
        hand_back(compute, ring)
    for ring in around:
        advance(compute, ring)
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
    threads = first + plan.threads
    entry = f"{function.name}_kernel"
    text = heading(plan)
    text.append(engine.wrappers(list(compute.instructions), list(compute.sizes)))
    text.append(engine.entry(entry, [(p.ctype, p.text) for p in parameters], threads, roles.cluster))
    text.append(f"  KT_SHARED_MEMORY(smem, {shared});")
    handed = [r.handed for r in roles.relays.values()]
    rings = [*roles.rings, *handed, *([roles.turns] if roles.turns else [])]
    for ring in rings:
        text.append(
            f"  const kt_smem {ring.name}_full = smem + {ring.bar}, {ring.name}_empty = smem + {ring.bar + 8 * ring.depth};"
        )
    text.append(
        f"  const int team = kt_uniform(int(kt_thread()) / {first});  // the first copies, the others compute"
    )
    text += ["  if (kt_thread() == 0) {"]
    text += [f"    kt_map_prefetch({p.text});" for p in maps.values()]
    for ring in rings:
        each = f"KT_EACH(i, {ring.depth}) " if ring.depth > 1 else ""
        at = " + i * 8" if ring.depth > 1 else ""
        full, empty = 1, plan.placement.groups * (roles.cluster if ring.common else 1)
        if ring in handed:
            full, empty = empty, full
        elif ring is roles.turns:
            empty += 2 * len(handed)
        text.append(f"    {each}kt_bar_init({ring.name}_full{at}, {full});")
        text.append(f"    {each}kt_bar_init({ring.name}_empty{at}, {empty});")
    meet = "kt_cluster_sync();" if roles.cluster > 1 else "kt_barrier();"
    text += ["    kt_bar_fence();", "  }"]
    text += zeros(plan, threads) if roles.cut is not None else []
    text.append(f"  {meet}")
    text += ["  kt_after_previous();", "  kt_next_may_start();"]
    if roles.cluster > 1:
        text.append("  const int rank = int(kt_cluster_rank());")
        text.append(
            f"  const int rows = (grid_0 + {roles.cluster - 1}) / {roles.cluster};  // of programs of a cluster"
        )
    total = " * ".join(f"kt_u32({copy.rows if i == 0 else f'grid_{i}'})" for i in range(function.grid_rank))
    text.append(f"  const kt_u32 programs = {total};")
    sliced = any(tile.sliced for tile in maps)
    fewer, more = (engine.registers_of_slices if sliced else engine.registers).get(roles.teams, (0, 0))
    text.append("  if (team == 0) {")
    if fewer:
        text.append(f"    kt_registers_fewer<{fewer}>();")
    text.append("    if (kt_thread() == 0) {")
    text += [*copy.lines, "    }"]
    if adds is not None:
        lanes = machine.lanes
        text += [f"    if (kt_thread() == {lanes} || kt_thread() == {2 * lanes}) {{", *adds.lines, "    }"]
    text.append("  } else {")
    if more:
        text.append(f"    kt_registers_more<{more}>();")
    text += ["  " + line for line in compute.definitions(first)]
    text += [*compute.lines, "  }", "}", ""]
    return Source(
        machine.dialect.finish("\n".join(text)), entry, parameters, threads, shared, compute.locations,
        persistent=1, cluster=roles.cluster, early=True, messages=tuple(compute.messages),
    )  # fmt: skip


def _handlers(plain: Mapping[str, Handler]) -> dict[str, Handler]:
    """What writes each operation for the computing teams."""

    def load(writer: Writer, op: Op) -> None:
        (_arrived if op.result in writer.plan.staged else plain["load"])(writer, op)

    def store(writer: Writer, op: Op) -> None:
        assert writer.plan.roles is not None
        (out if op in writer.plan.roles.outs else plain["store"])(writer, op)

    def store_add(writer: Writer, op: Op) -> None:
        assert writer.plan.roles is not None
        if all(op is not r.add for r in writer.plan.roles.relays.values()):
            plain["store_add"](writer, op)

    own = {
        "store_add": store_add,
        "mma": product,
        "load": load,
        "loop": loop,
        "program_id": told_program_id,
        "store": store,
    }
    settled = {name: _settled(handler) for name, handler in {**plain, **own}.items()}

    def mul(writer: Writer, op: Op) -> None:
        asked = ask(writer, op)  # before the product is waited for whose sums it scales
        if asked is None:
            settled["mul"](writer, op)
            return
        assert isinstance(writer, Compute)
        for value in op.operands:
            settle(writer, value)
        scale(writer, op, asked)

    return {**settled, "mul": mul}


def _read_here(plan: Plan) -> set[Op]:
    """The operations that matter to the computing teams: not those which only say where tiles lie that the engine copies."""
    assert plan.roles is not None
    found: set[Op] = set()
    for op in plan.function.body.walk():
        way = plan.roles.outs.get(op)
        if any(v in plan.staged for v in op.results):
            continue
        if op.regions or not op.results or not all(map(_is_scalar, op.results)):
            found |= behind(op.operands[-1:] if way is not None and way.late else op.operands, plan.staged)
    return found


def _is_scalar(value: Value) -> bool:
    return isinstance(value.type, TensorType) or not is_tile(value)


def _settled(handler: Handler) -> Handler:
    """A handler that first waits for the products whose results its operation reads."""

    def run(writer: Writer, op: Op) -> None:
        assert isinstance(writer, Compute)
        if op.results and not op.regions and all(map(_is_scalar, op.results)) and op not in writer.read_here:
            return
        if op.regions:
            land(writer, len(writer.flights))
        for value in op.operands:
            settle(writer, value)
        handler(writer, op)

    return run


def _arrived(writer: Writer, op: Op) -> None:
    """A load that was staged: outside loops it is waited for where it stands, in loops by the first product that reads it."""
    assert isinstance(writer, Compute)
    ring = ring_of(writer, op.result)
    if ring.loop is None and ring.tiles[-1].load is op:
        writer.locate(op)
        writer.line(f"kt_bar_wait({bar(ring, 'full')}, {phase_of(ring)});")


__all__ = ["source"]
