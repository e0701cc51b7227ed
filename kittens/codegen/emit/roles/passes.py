"""Loops that copy: the order in which a pass starts its products, and what is under way from pass to pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kittens.codegen.emit.factors import factors, guarded
from kittens.codegen.emit.loops import carry_over, declare_carried, op_loop
from kittens.codegen.emit.reductions import together
from kittens.codegen.emit.roles.compute import Compute, land, one, settle
from kittens.codegen.emit.roles.edges import watch
from kittens.codegen.emit.roles.products import left_words, start
from kittens.codegen.emit.roles.relays import relayed
from kittens.codegen.emit.roles.rings import advance, ring_of, slot_of
from kittens.codegen.emit.roles.slices import behind, nth
from kittens.codegen.emit.writer import Writer
from kittens.codegen.engine import reads_slots, sums_carried
from kittens.codegen.partial import carried_sums
from kittens.codegen.placement import dtype_of, source_of
from kittens.dtypes import BY_NAME
from kittens.ir import Op, Region, Value
from kittens.opset import OPS


def loop(writer: Writer, op: Op) -> None:
    """A loop. If it copies, the first pass stands apart: nothing is under way then."""
    assert isinstance(writer, Compute)
    rings = [r for r in writer.roles.rings if r.loop is op]
    if not rings:
        op_loop(writer, op)
        return
    if op in writer.roles.relays:
        relayed(writer, op, writer.roles.relays[op])
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
    parts = carried_sums(op, writer.uses)
    writer.partial |= dict.fromkeys(parts, ())
    index, (lo, hi, step) = region.args[0], map(writer.scalar, op.operands[:3])
    name, count, passes = (writer.fresh(stem) for stem in (index.name or "index", "pass", "passes"))
    writer.line(
        f"const int {passes} = kt_passes({lo}, {hi}, {step});  // in 32 bits: alike in all lanes, and known to be"
    )
    writer.open(f"if ({passes} > 0)")
    edges = watch(writer, op, index)
    writer.open()
    writer.names[index] = name
    if (lo, step) == ("kt_i64(0)", "kt_i64(1)"):
        writer.counted.add(index)
    writer.line(f"const kt_i64 {name} = {lo};")
    _pass(writer, region, body, first=True)
    writer.close()
    if late or ends:
        writer.line("KT_ONCE")
    writer.open(f"for (int {count} = 1; {count} < {passes}; ++{count})")
    writer.line(f"const kt_i64 {name} = {nth(lo, count, step)};")
    edges.number = count
    _pass(writer, region, body, first=False)
    writer.edge_test = None
    writer.close()
    if late:
        start(writer, late, names[late.result], {late.result, arguments[late.result]}, words)
    land(writer, len(writer.flights))
    writer.close()
    for reduction, i in parts.items():
        together(writer, op.results[i], writer.partial.pop(reduction))
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
    heads = [
        op
        for op in region.ops
        if op in writer.plan.placement.products and reads_slots(op, writer.plan.staged)
    ]
    # They need staged tiles alone, and are under way while the threads do what stands between. Behind ends that are under
    # way there are registers for one.
    now, then = (heads[:1], heads[1:]) if body.ends else (heads, [])
    writer.turn_due = writer.in_turn and body.late is not None and not first
    for op in now:
        _head(writer, op, body)
    if first and heads:
        _send(writer)
    if body.late and not first:
        start(writer, body.late, body.names[body.late.result], _late_values(body), body.words)
        if writer.in_turn:
            writer.pass_turn()
    ops = _in_order(region, body)
    spared = factors(ops, writer.uses) if body.late and writer.crowded else {}
    inner = {op for before in spared.values() for op in before}
    writer.votes.clear()
    for op in ops:
        if op is body.late or op in heads or op.name == "yield" or op in inner:
            continue
        if op in spared:
            writer.locate(op)
            guarded(writer, op, spared[op], partial(one, writer))
            continue
        if then and any(v is head.result for v in op.operands for head in heads):
            settle(writer, now[0].result)
            for head in then:
                _head(writer, head, body)
            then = []
        if op in body.sums:
            name = body.names[op.result]
            start(writer, op, name, {op.result, body.arguments[op.result]}, again=not first)
            writer.held[op.result] = (name, writer.plan.placement.products[op].layout)
            if first and op is body.sums[-1]:
                _send(writer)
            started = writer.flights[-1]
            land(writer, sum(f in before for f in writer.flights))
            for ring in started.slots:  # what was kept of the pass before has been handed back
                if ring in writer.kept and ring not in writer.lagging:
                    writer.line(f"{writer.kept[ring]} = {slot_of(ring)};")
                    advance(writer, ring)
        elif op not in body.ends:
            one(writer, op)
    writer.votes.clear()
    if body.late:
        settle(writer, body.arguments[body.late.result])
        _prepare(writer, body.late, body)
    others = [c for c in body.carried if c[1] not in body.in_place]
    for _, after, _ in others:
        settle(writer, after)
    carry_over(writer, others)
    for ring in writer.lagging:
        writer.pending.pop(ring, None)
        writer.line(f"{writer.kept[ring]} = {slot_of(ring)};")
        advance(writer, ring)
    for op in body.ends:
        for value in op.operands:
            settle(writer, value)
        start(writer, op, body.names[op.result], {op.result, body.arguments[op.result]})
    under_way = {*body.sums, *body.ends}
    land(writer, max((i + 1 for i, f in enumerate(writer.flights) if f.op not in under_way), default=0))
    if body.ends:  # what they read is handed back a pass later
        for ring, kept in writer.kept.items():
            writer.line(f"{kept} = {slot_of(ring)};")
            advance(writer, ring)


def _in_order(region: Region, body: _Pass) -> list[Op]:
    """The operations of a pass: those first that the late product's sums wait for, if nothing but values is at stake.

    These sums then land, and are scaled, before the threads turn to what takes them longest; meanwhile the other teams' products
    are under way, and this team's next ones wait for nothing but its words.
    """
    ops = region.ops
    if body.late is None or not all(OPS[op.name].pure for op in ops if op.name != "yield"):
        return ops
    first = behind(body.late.operands[2:])
    return [*(op for op in ops if op in first), *(op for op in ops if op not in first)]


def _send(writer: Compute) -> None:
    """Send the results that wait to go out, now that this program's first products are under way."""
    for waiting in writer.waiting:
        writer.open(f"if ({waiting.flag})")
        writer.line(f"{waiting.call}();")
        writer.line(f"{waiting.flag} = false;")
        writer.close()


def _head(writer: Compute, op: Op, body: _Pass) -> None:
    """Start a product that heads a pass."""
    one(writer, op)
    if body.ends:
        rings = [ring_of(writer, source_of(v)[0]) for v in op.operands]
        writer.flights[-1].again = next((r for r in rings if r.loop is not None), None)


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
        settle(writer, late.operands[2])
        read = writer.reader(late.operands[2], layout)
        writer.line(f"KT_EACH(r, {layout.registers}) {sums}[r] = {read('r')};")
    settle(writer, late.operands[0])
    packed = left_words(writer, late)
    count = writer.plan.placement.products[late].a.registers * BY_NAME[dtype_of(late.operands[0])].bits // 32  # type: ignore[union-attr]
    writer.line(f"KT_EACH(word, {count}) {body.words}[word] = {packed}[word];")
