"""From which pass on a loop meets an edge or a diagonal: found before the loop, so that a pass compares its number with it.

Positions go on evenly from pass to pass, so a comparison of them turns from true to false, or back, once at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from kittens.codegen.emit.writer import Writer
from kittens.codegen.known import constant
from kittens.codegen.positions import Position, near_test, total
from kittens.ir import Op, Value
from kittens.opset import OPS


@dataclass
class Edges:
    """The tests of one loop: its index, which grows by `step` a pass, and the text that numbers passes, from 0 on.

    indent: of the lines of a pass. at: where among the lines the numbers of turning passes are declared. known: these, by
    what is tested.
    """

    loop: Op
    index: Value
    step: int
    indent: str
    at: int
    number: str = "0"
    known: dict[tuple[object, ...], str] = field(default_factory=dict)

    def test(self, writer: Writer, found: Position, more: str, symbol: str, bound: int) -> str:
        """A test of the pass's number that a sum of scalars, and more terms of it, compares so with a bound."""
        if writer.indent != self.indent:  # not where every pass comes by
            return near_test(writer.scalar)(found, more, symbol, bound)
        slopes = [slope(v, self.index, self.loop, writer.owner) for _, v in found.scalars]
        if None in slopes:
            return near_test(writer.scalar)(found, more, symbol, bound)
        growth = self.step * sum(s * k for (s, _), k in zip(found.scalars, slopes, strict=True) if k)
        key = (found.scalars, more, symbol, bound)
        if not growth:  # one answer for all passes
            if key not in self.known:
                name = self.known[key] = writer.fresh("inside")
                writer.lines.insert(self.at, f"{self.indent[:-2]}bool {name} = false;")
                writer.line(f"{name} = {near_test(writer.scalar)(found, more, symbol, bound)};")
            return self.known[key]
        rises = growth > 0
        if key not in self.known:
            # x + growth n < bound as long as n < (bound - x) / growth, x - decline n > bound as long as n < (x - bound) / decline;
            # a test of the other kind turns where its opposite does.
            name = self.known[key] = writer.fresh("edge")
            writer.lines.insert(self.at, f"{self.indent[:-2]}int {name} = 0;  // a pass, from 0 on")
            here = total(found, writer.scalar, more)
            distance = f"{bound} - ({here})" if rises else f"({here}) - {bound}"
            also = " + 1" if symbol in (("<=", ">") if rises else (">=", "<")) else ""
            writer.line(f"{name} = kt_uniform(kt_turning({distance}{also}, kt_i64({abs(growth)})));")
        return f"({self.number} {'<' if (symbol in ('<', '<=')) == rises else '>='} {self.known[key]})"


def watch(writer: Writer, loop: Op, index: Value) -> Edges:
    """Have a loop's tests made so, before the block of its first pass is opened."""
    edges = Edges(loop, index, constant(loop.operands[2]) or 0, f"{writer.indent}  ", len(writer.lines))
    writer.edge_test = partial(edges.test, writer)
    return edges


def slope(value: Value, index: Value, loop: Op, owner: Mapping[Op, Op]) -> int | None:
    """By how much a scalar of a loop grows where its index grows by 1; None if it does not grow evenly, or is not known to."""
    if value is index:
        return 1
    op = value.producer
    if op is None:
        return None if value in loop.regions[0].args else 0
    if owner.get(op) is not loop:
        return 0
    # Nor does what a load, a branch or a loop within this one gives follow from its operands.
    if op.name == "load" or not OPS[op.name].pure:
        return None
    slopes = [slope(v, index, loop, owner) for v in op.operands]
    if all(s == 0 for s in slopes):
        return 0
    if op.name in ("add", "sub") and None not in slopes:
        a, b = (s or 0 for s in slopes)
        return a + b if op.name == "add" else a - b
    if op.name == "floordiv" and constant(op.operands[1]) == 1:
        return slopes[0]
    if op.name == "mul":
        for grows, factor in ((0, 1), (1, 0)):
            times = constant(op.operands[factor])
            if times is not None and slopes[grows] is not None:
                return times * (slopes[grows] or 0)
    return None
