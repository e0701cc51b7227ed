"""Sums that a loop carries on, and whose lanes need not share their parts before it has ended.

In l = l * a + p.sum(axis=1), as in attention, every lane can carry on the sum of its own part of p: that takes the moves
between lanes out of the loop. Nothing is lost by it where no term is negative, since sums of such numbers are as exact in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kittens.codegen.known import same_number
from kittens.codegen.placement import dtype_of
from kittens.ir import Op, Value


def carried_sums(loop: Op, uses: Mapping[Value, Sequence[Op]]) -> dict[Op, int]:
    """The reductions of a loop whose parts may be put together behind it, and which of its results each adds to."""
    (region,) = loop.regions
    n = len(loop.results)
    if not n:
        return {}
    found: dict[Op, int] = {}
    arguments, starts, after = region.args[-n:], loop.operands[-n:], region.ops[-1].operands
    for i, (argument, start, value) in enumerate(zip(arguments, starts, after, strict=True)):
        add = value.producer
        if (
            add is None
            or add.name != "add"
            or dtype_of(value) != "float32"
            or same_number(start) != 0.0
            or len(uses.get(value, ())) != 1
            or len(uses.get(argument, ())) != 1
        ):
            continue
        for carried, term in (add.operands, add.operands[::-1]):
            total = term.producer
            if (
                total is not None
                and total.name == "sum"
                and len(uses[term]) == 1
                and total in region.ops
                and _is_carried(carried, argument, uses)
                and not_negative(total.operands[0])
            ):
                found[total] = i
    return found


def _is_carried(value: Value, argument: Value, uses: Mapping[Value, Sequence[Op]]) -> bool:
    """Whether a value is the carried argument, or it times a factor that is not negative, and read once."""
    if value is argument:
        return True
    op = value.producer
    if op is None or op.name != "mul" or argument not in op.operands or len(uses[value]) != 1:
        return False
    return all(v is argument or not_negative(v) for v in op.operands)


def not_negative(value: Value) -> bool:
    """Whether no element of a value is below 0, as far as its text tells; it may be NaN."""
    op = value.producer
    if op is None:
        return False
    if op.name in ("exp", "exp2", "abs", "sigmoid"):
        return True
    if op.name == "const":
        return bool(op.attrs["value"] >= 0)
    if op.name in ("broadcast", "reshape", "transpose", "cast"):
        return not_negative(op.operands[0])
    if op.name == "where":
        return all(map(not_negative, op.operands[1:]))
    return op.name in ("add", "mul", "minimum") and all(map(not_negative, op.operands))
