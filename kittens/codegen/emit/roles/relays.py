"""Loops in which teams hand a computed tile to each other through shared memory.

With the words of attention's backward pass, what a team does in pass i, where S(i) has been made:

    start dP(i), and dK of pass i-1        behind it, for which dS(i-1) still lies in shared memory
    P(i) from S(i); dS(i) from P(i), dP(i)  the threads, while products run
    put dS(i); hand dQ(i-1) over            behind one fence
    start dV(i); meet the other teams; start dQ(i)
    start S(i+1)
    put dQ(i) in the buffer of sums         while S(i+1) is made

The copying team brings what S needs of one pass more than there are: to start it always needs no branch.
"""

from __future__ import annotations

from kittens import layouts as lay
from kittens.codegen.emit.loops import carry_over, declare_carried
from kittens.codegen.emit.roles.compute import Compute, land, one, settle
from kittens.codegen.emit.roles.products import left_words, start
from kittens.codegen.emit.roles.rings import advance, bar, slot_of
from kittens.codegen.emit.roles.slices import nth
from kittens.codegen.emit.text import added
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
        self.slot = slot_of(relay.ring)

    def write(self) -> None:
        writer, op, relay = self.writer, self.op, self.relay
        writer.locate(op)
        self.carried = declare_carried(writer, op)
        self.names = {after: name for _, after, name in self.carried}
        self.arguments = {after: argument for argument, after, _ in self.carried}
        self.scores = self._array(relay.ahead)
        self.result = self._array(relay.whole)
        self.read = writer.kept[self.ring] = writer.fresh(f"{self.ring.name}_read")
        writer.lagging.add(self.ring)
        writer.line(f"int {self.read} = 0, {self.slot} = 0;")
        index, (lo, hi, step) = self.region.args[0], map(writer.scalar, op.operands[:3])
        name, count, passes = (writer.fresh(stem) for stem in (index.name or "index", "pass", "passes"))
        writer.line(f"const int {passes} = kt_passes({lo}, {hi}, {step});")
        writer.open(f"if ({passes} > 0)")
        self._ahead()
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
        self._pass(first=False)
        writer.close()
        self._hand_over()
        self._late()
        land(writer, len(writer.flights))
        writer.lagging.discard(self.ring)
        del writer.kept[self.ring]
        writer.line(
            f"if (lane == 0) kt_bar_arrive({bar(self.ring, 'empty')});"
        )  # of the pass that there is not
        advance(writer, self.ring)
        writer.line(
            f"kt_bar_wait({bar(relay.handed, 'empty')}, {relay.handed.name}_phase ^ 1);  // others use its bytes"
        )
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
        writer.arrived.clear()
        for op in self.heads:
            one(writer, op)
        if not first:
            self._late()
        skipped = {*self.heads, *self.sums, relay.ahead, relay.whole, relay.add}
        for op in self.region.ops:
            if op in skipped or op.name == "yield":
                continue
            one(writer, op)
            if op.result is relay.value if op.results else False:
                self._relay(first=first)
        others = [c for c in self.carried if c[1] not in {x.result for x in self.sums}]
        for _, after, _ in others:
            settle(writer, after)
        carry_over(writer, others)

    def _relay(self, *, first: bool) -> None:
        writer, relay = self.writer, self.relay
        writer.line(f"{self.slot} ^= 1;")
        self._put()
        if first:
            writer.line("kt_fence_async();")
        else:
            self._hand_over()
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
        writer.line(f"{self.read} = {slot_of(self.ring)};")
        advance(writer, self.ring)
        start(writer, relay.ahead, self.scores, {relay.ahead.result})
        writer.pending.pop(self.ring)
        settle(writer, relay.whole.result)
        self._stage()
        land(writer, len(writer.flights))  # the compiler follows no such result into the next pass

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
            place = f"{at}{steps_to} + smem + {staged.offset} + {self.slot} * {relay.ring.slot_bytes}"
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
        writer.line(f"kt_bar_wait({bar(relay.handed, 'empty')}, {relay.handed.name}_phase ^ 1);")
        for half in (0, 1):
            at = added(row, "(lane >> 2)", 8 * half)
            if nt & (nt - 1):  # a team's first column shares bits with the others
                offset = lay.offset_expression(
                    relay.sums, f"({at})", f"({added(col, 'j * 8', '(lane & 3) * 2')})"
                )
            else:
                to, steps_to = self._places(relay.sums, at, added(col, "(lane & 3) * 2"), "j", 8, nt)
                offset = to + steps_to
            pair = [f"kt_bits({self.result}[j * 4 + {half * 2 + e}])" for e in (0, 1)]
            writer.line(
                f"KT_EACH(j, {nt}) kt_st_shared_b64({offset} + smem + {writer.roles.out}, kt_u32x2{{{', '.join(pair)}}});"
            )

    def _hand_over(self) -> None:
        """Hand what was put before to the thread that adds. The fence is also that of what was put since."""
        writer, handed = self.writer, self.relay.handed
        writer.line("kt_fence_async();")
        writer.line("kt_sync_lanes();")
        writer.line(f"if (lane == 0) kt_bar_arrive({bar(handed, 'full')});")
        advance(writer, handed)
