"""Loops in which teams hand a computed tile to each other through shared memory.

With the words of attention's backward pass, what a team does in pass i, where S(i) has been made:

    start dP(i), and dK of pass i-1         behind it, for which dS(i-1) still lies in shared memory
    P(i) from S(i); dS(i) from P(i), dP(i)  the threads, while products run
    put dS(i); start dV(i)
    meet the other teams; start dQ(i), S(i+1)
    put dQ(i) in the buffer of sums         while S(i+1) is made
    hand it over                            with nothing under way, which fences wait for

The copying team brings what S needs of one pass more than there are: to start it always needs no branch.
"""

from __future__ import annotations

from kittens import layouts as lay
from kittens.codegen.emit.loops import carry_over, declare_carried
from kittens.codegen.emit.roles.compute import Compute, land, one, settle
from kittens.codegen.emit.roles.edges import watch
from kittens.codegen.emit.roles.products import left_words, start
from kittens.codegen.emit.roles.rings import advance, bar, phase_of, slot_before, slot_of
from kittens.codegen.emit.roles.slices import nth
from kittens.codegen.emit.roles.vectors import columns
from kittens.codegen.emit.text import added
from kittens.codegen.emit.writer import Reader
from kittens.codegen.placement import shape
from kittens.codegen.plan import Relay, Ring
from kittens.ir import Op


def relayed(writer: Compute, op: Op, relay: Relay) -> None:
    """Write a loop with a relay."""
    _Relayed(writer, op, relay).write()


class _Relayed:
    """What the passes of such a loop share: names of arrays, slots and places."""

    def __init__(self, writer: Compute, op: Op, relay: Relay):
        self.writer, self.op, self.relay = writer, op, relay
        (self.region,) = op.regions
        products = [x for x in self.region.ops if x in writer.plan.placement.products]
        self.sums = [x for x in products if len(x.operands) == 3]
        self.heads = [x for x in products if x not in (*self.sums, relay.whole, relay.ahead)]
        self.ring: Ring = next(r for r in writer.roles.rings if r.loop is op and relay.ahead in r.users)
        (self.other,) = {r for r in writer.roles.rings if r.loop is op} - {self.ring}
        self.vectors = [s.load.result for s in self.ring.tiles if len(shape(s.load.result)) == 1]

    def write(self) -> None:
        writer, op, relay = self.writer, self.op, self.relay
        writer.locate(op)
        self.carried = declare_carried(writer, op)
        self.names = {after: name for _, after, name in self.carried}
        self.arguments = {after: argument for argument, after, _ in self.carried}
        self.scores = self._array(relay.ahead)
        self.result = self._array(relay.whole)
        relay.ring.beside = self.other
        for ring in (self.ring, relay.ring):
            writer.kept[ring] = slot_before(ring)
            writer.lagging.add(ring)
        index, (lo, hi, step) = self.region.args[0], map(writer.scalar, op.operands[:3])
        name, count, passes = (writer.fresh(stem) for stem in (index.name or "index", "pass", "passes"))
        writer.line(f"const int {passes} = kt_passes({lo}, {hi}, {step});")
        writer.open(f"if ({passes} > 0)")
        self._ahead()
        edges = watch(writer, op, index)
        writer.open()
        writer.names[index] = name
        if (lo, step) == ("kt_i64(0)", "kt_i64(1)"):
            writer.counted.add(index)
        writer.line(f"const kt_i64 {name} = {lo};")
        self._pass(first=True)
        writer.close()
        writer.line("KT_ONCE")
        writer.open(f"for (int {count} = 1; {count} < {passes}; ++{count})")
        writer.line(f"const kt_i64 {name} = {nth(lo, count, step)};")
        edges.number = count
        self._pass(first=False)
        writer.edge_test = None
        writer.close()
        self._late()
        land(writer, len(writer.flights))
        for ring in (self.ring, relay.ring):
            writer.lagging.discard(ring)
            del writer.kept[ring]
        # Of the pass that there is not.
        writer.line(f"if (lane == 0) kt_bar_arrive({bar(self.ring, 'empty')});")
        advance(writer, self.ring)
        # Results go through the same bytes.
        empty = bar(relay.handed, "empty", slot_before(self.other))
        writer.line(f"kt_bar_wait({empty}, {phase_of(self.other)} ^ {slot_of(self.other)} ^ 1);")
        writer.close()
        writer.scratch_busy = True

    def _array(self, op: Op) -> str:
        """Declare the array of a product's results, which outlives passes."""
        writer, layout = self.writer, self.writer.plan.placement.products[op].layout
        name = writer.fresh(op.result.name or "product")
        writer.line(f"float {name}[{layout.registers}];")
        writer.held[op.result] = (name, layout)
        return name

    def _ahead(self) -> None:
        """Start the product that heads a pass, and wait for it where nothing else is to be done."""
        start(self.writer, self.relay.ahead, self.scores, {self.relay.ahead.result})
        self.writer.pending.pop(self.ring)
        land(self.writer, len(self.writer.flights))

    def _late(self) -> None:
        """Start the product of the pass before."""
        late = self.relay.late
        start(self.writer, late, self.names[late.result], {late.result, self.arguments[late.result]})

    def _pass(self, *, first: bool) -> None:
        writer, relay = self.writer, self.relay
        for op in self.heads:
            one(writer, op)
        if not first:
            self._late()
        skipped = {*self.heads, *self.sums, relay.ahead, relay.whole, relay.add}
        for op in self.region.ops:
            if op in skipped or op.name == "yield":
                continue
            if op.results and op.result in self.vectors:
                made = writer.plan.staged[op.result]
                writer.columns[op.result] = columns(writer, made, writer.layout_of(op.result))
                continue
            if op.name in ("neg", "reshape") and op.operands[0] in writer.columns:
                read = writer.columns[op.operands[0]]
                writer.columns[op.result] = _negated(read) if op.name == "neg" else read
                continue
            one(writer, op)
            if relay.value in op.results:
                self._relay(first=first)
        others = [c for c in self.carried if c[1] not in {x.result for x in self.sums}]
        for _, after, _ in others:
            settle(writer, after)
        carry_over(writer, others)

    def _relay(self, *, first: bool) -> None:
        writer, relay = self.writer, self.relay
        self._put()
        writer.line("kt_fence_async();")
        for op in self.sums:
            if op is not relay.late:
                start(writer, op, self.names[op.result], {op.result, self.arguments[op.result]})
        settle(writer, relay.late.result)
        if first and writer.roles.outs:  # these go through the same bytes
            writer.line("if (lane == 0) kt_tile_wait_read<0>();")
        writer.line(writer.meet)
        start(writer, relay.whole, self.result, {relay.whole.result})
        for op in self.sums:
            if op is not relay.late:
                settle(writer, op.result)
        advance(writer, self.ring)
        start(writer, relay.ahead, self.scores, {relay.ahead.result})
        writer.pending.pop(self.ring)
        settle(writer, relay.whole.result)
        self._stage()
        land(writer, len(writer.flights))  # the compiler follows no such result into the next pass
        self._hand_over()

    def _put(self) -> None:
        """Put this group's part of the computed tile in shared memory, as the late product takes it."""
        writer, relay = self.writer, self.relay
        matrix = writer.plan.placement.products[relay.late]
        words = left_words(writer, relay.late)
        (staged,) = relay.ring.tiles
        mt, _, steps = matrix.tiles
        rows = lay.Tiled(matrix.team.d).shape[0]  # type: ignore[union-attr]
        for i in range(mt):
            row = added("(group & 3) * 16", f"(group >> 2) * {mt * rows}", i * rows, "(lane & 15)")
            at, steps_to = self._places(staged.shared, row, "(lane >> 4) * 8", "kk", 16, steps)
            place = (
                f"{at}{steps_to} + smem + {staged.offset} + {slot_of(relay.ring)} * {relay.ring.slot_bytes}"
            )
            put = writer.engine.put(
                place, [f"{words}[{added('kk * 4', i * steps * 4 + w)}]" for w in range(4)]
            )
            writer.line(f"KT_EACH(kk, {steps}) {put}")

    def _places(
        self, shared: lay.Shared, row: str, col: str, index: str, step: int, count: int
    ) -> tuple[str, str]:
        """Where elements lie that are so many columns apart, in bytes: for the lane, and what to change that by for each.

        Bits of columns of steps and of lanes are apart, so that the places of both are combined by exclusive or.
        """
        name = self.writer.fresh("to")
        here = lay.offset_expression(shared, f"({row})", f"({col})")
        self.writer.line(f"const kt_smem {name} = kt_base_here({here});")
        apart = self.writer.table([int(lay.offset(shared, 0, i * step)) for i in range(count)], index)
        return f"({name}", f" ^ ({apart}))"

    def _stage(self) -> None:
        """Put a result in the buffer for the thread that adds."""
        writer, relay = self.writer, self.relay
        matrix = writer.plan.placement.products[relay.whole]
        nt = matrix.tiles[1]
        row = "(group & 3) * 16" if matrix.split[1] > 1 else "group * 16"
        col = f"(group >> 2) * {nt * 8}" if matrix.split[1] > 1 else ""
        # The buffer is handed over once a pass, to one thread and the other. The ring beside it has gone on, so its slot is
        # that of the pass before, and its phase the one after.
        empty = bar(relay.handed, "empty", slot_of(self.other))
        writer.line(f"kt_bar_wait({empty}, {phase_of(self.other)} ^ 1);")
        # Rows that meet in banks go to other columns: odd ones two steps further, or back.
        col = added(col, "(lane & 3) * 2", "(lane & 4) * 4")
        for half in (0, 1):
            at = added(row, "(lane >> 2)", 8 * half)
            to, apart = self._places(relay.sums, at, col, "j", 8, nt)
            d = [f"{self.result}[{{}} * 4 + {half * 2 + e}]" for e in (0, 1)]
            pair = ", ".join(f"kt_bits(lane & 4 ? {x.format('(j ^ 2)')} : {x.format('j')})" for x in d)
            writer.line(
                f"KT_EACH(j, {nt}) kt_st_shared_b64({to}{apart} + smem + {writer.roles.out}, kt_u32x2{{{pair}}});"
            )

    def _hand_over(self) -> None:
        """Hand what was put to the thread that adds."""
        writer, full = self.writer, bar(self.relay.handed, "full", slot_before(self.other))
        writer.line("kt_fence_async();")
        writer.line("kt_sync_lanes();")
        writer.line(f"if (lane == 0) kt_bar_arrive({full});")


def _negated(read: Reader) -> Reader:
    return lambda r: f"kt_neg({read(r)})"
