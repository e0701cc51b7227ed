"""Loops in which teams hand a computed tile to each other, since one product reads all of it, and others a part transposed.

That is attention's backward pass in one kernel: dS^T is computed where the rows of S^T are, dK += dS^T Q reads a team's own
part of it, and dQ = dS K all.
"""

from __future__ import annotations

from collections.abc import Collection

from kittens import layouts as lay
from kittens.codegen.engine import as_it_lies, panels, reads_slots, sums_carried, view_of
from kittens.codegen.known import divisor
from kittens.codegen.placement import dtype_of, shape, source_of
from kittens.codegen.plan import Plan, Relay, Ring, Staged
from kittens.dtypes import BY_NAME
from kittens.ir import Function, Op, TensorType, Value, base
from kittens.layouts import Shared


def added(function: Function) -> set[Op]:
    """The products whose results are added to memory and used nowhere else."""
    ops = list(function.body.walk())
    found = set()
    for op in ops:
        made = op.operands[-1].producer if op.name == "store_add" else None
        if made is not None and made.name == "mma" and sum(made.result in x.operands for x in ops) == 1:
            found.add(made)
    return found


def relay(loop: Op, plan: Plan, rings: list[Ring]) -> Relay | None:
    """What a loop's teams hand to each other; None if there is nothing, or the loop is not of the kind."""
    (region,) = loop.regions
    products = [op for op in region.ops if op in plan.placement.products]
    adds = [op for op in region.ops if op.name == "store_add"]
    wholes = [op for op in products if op in added(plan.function)]
    if len(adds) != 1 or len(wholes) != 1 or adds[0].operands[-1] is not wholes[0].result:
        return None
    (whole,), (add,) = wholes, adds
    if _seen(add, plan.function):
        return None
    value, flipped = source_of(whole.operands[0])
    right, _ = source_of(whole.operands[1])
    heads = [op for op in products if op is not whole and reads_slots(op, plan.staged)]
    sums = [
        op for op in products if sums_carried(loop, op) and source_of(op.operands[0])[0] not in plan.staged
    ]
    late = [op for op in sums if source_of(op.operands[0]) == (value, not flipped)]
    outside = plan.staged.get(right)
    if len(heads) + len(sums) + 1 != len(products) or not heads or len(late) != 1 or flipped:
        return None
    if (
        value in plan.staged
        or outside is None
        or outside.loop is not None
        or value.producer not in region.ops
    ):
        return None
    # What is read a pass before and a pass after its own shares its slots with nothing else, and is copied first.
    inside = [r for r in rings if r.loop is loop]
    if len(inside) != 2 or set(inside[0].users) != {heads[0], late[0]}:
        return None
    if as_it_lies(plan.placement.layouts.get(value), True, plan.placement.products[late[0]]) is None:
        return None
    sent = _sums(add, whole, plan)
    tile = _tile(value, loop, plan)
    if sent is None or tile is None:
        return None
    passed = Ring(f"{value.name or 'relay'}_relay", [tile], (whole, late[0]), loop, depth=2)
    return Relay(passed, heads[0], late[0], whole, add, *sent, Ring("sums", [], (), loop, depth=2))


def _seen(add: Op, function: Function) -> bool:
    """Whether the program touches what is added to, or the counter of turns, elsewhere: the order of the engine's additions
    and others is not kept.
    """
    added_to = {base(v).name for v in add.operands if isinstance(v.type, TensorType)}
    others = [x for x in function.body.walk() if x.name in ("load", "store", "store_add") and x is not add]
    return any(base(v).name in added_to for x in others for v in x.operands if isinstance(v.type, TensorType))


def lined(function: Function) -> set[Value]:
    """The vectors of a loop with a relay that the engine copies too: loaded, and at most negated before they meet a matrix."""
    uses: dict[Value, list[Op]] = {}
    for op in function.body.walk():
        for value in op.operands:
            uses.setdefault(value, []).append(op)

    def direct(value: Value) -> bool:
        return all(
            op.name == "broadcast" or (op.name in ("neg", "reshape") and direct(op.result))
            for op in uses.get(value, ())
        )

    found = set()
    for loop in function.body.ops:
        for op in loop.regions[0].ops if loop.name == "loop" and added(function) else ():
            if (
                op.name == "load"
                and len(shape(op.result)) == 1
                and direct(op.result)
                and _vector(op) is not None
            ):
                found.add(op.result)
    return found


def _vector(op: Op) -> Staged | None:
    """The part of a slot that a vector is copied to; None if the engine cannot copy it."""
    view, (extent,) = view_of(op.operands[0]), shape(op.result)
    if (
        view is None
        or view.slice is not None
        or dtype_of(op.result) != "float32"
        or op.attrs["pad"] != 0
        or extent % 4
        or extent > 256
    ):
        return None
    axes, tensor = view.axes, view.parameter.type
    assert isinstance(tensor, TensorType)
    steps = [s for s, axis in zip(tensor.strides, axes, strict=True) if axis != 0]
    if not 2 <= tensor.rank <= 5 or tensor.alignment < 16 or tensor.strides[axes.index(0)].value != 1:
        return None
    if any(s.value == 1 or divisor(s) % 4 or (s.value is not None and s.value <= 0) for s in steps):
        return None
    return Staged(op, lay.panels((1, extent), 4, panel_bytes=extent * 4), False, 0)


def take_in(found: Relay, rings: list[Ring], vectors: Collection[Value], plan: Plan) -> bool:
    """Have vectors copied with what heads a pass; False if one comes after the copies of other rings."""
    ring = next(r for r in rings if found.ahead in r.users and r.loop is not None)
    other = {s.load for r in rings if r is not ring for s in r.tiles}
    assert ring.loop is not None
    ops = ring.loop.regions[0].ops
    before = ops[: next((i for i, op in enumerate(ops) if op in other), len(ops))]
    for op in before:
        tile = _vector(op) if op.results and op.result in vectors else None
        if tile is not None:
            tile.loop = ring.loop
            plan.staged[op.result] = tile
            ring.tiles.append(tile)
    return all(v in plan.staged for v in vectors)


def _tile(value: Value, loop: Op, plan: Plan) -> Staged | None:
    """The computed tile in shared memory, transposed: its rows are those that the teams share."""
    size = BY_NAME[dtype_of(value)].bytes
    cols, rows = shape(value)
    width = next((p for p in (128, 64, 32) if cols * size % p == 0), 0)
    if size != 2 or not width or value.producer is None:
        return None
    shared = lay.panels((rows, cols), size, panel_bytes=width, xors=plan.machine.swizzles[width])
    return Staged(value.producer, shared, True, width, loop)


def _sums(add: Op, whole: Op, plan: Plan) -> tuple[Shared, int] | None:
    """The buffer through which the engine adds a result to memory, and the bytes of its panels; None if it cannot."""
    matrix, found = plan.placement.products[whole], panels(add, shape(whole.result))
    assert plan.machine.engine is not None
    rows, columns = shape(whole.result)
    if found is None or found[0] or matrix.swapped or matrix.tiles[0] != 1:
        return None
    width = (
        matrix.tiles[1] * 8
    )  # of a team; rows that meet in banks change places with others 16 columns apart
    if width % 32 or width & (width - 1):
        return None
    if dtype_of(whole.result) != "float32" or rows > plan.machine.engine.box:
        return None
    _, panel = found
    return lay.panels((rows, columns), 4, panel_bytes=panel, xors=plan.machine.swizzles[panel]), panel
