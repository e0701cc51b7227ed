"""The text of a plan: C-like source over the functions of the device headers, written for people to read.

A tile that is held in registers is an array, one element a register; KT_EACH(r, n) is an unrolled loop over them. Index
arithmetic and constants are written where they are used.
"""

from __future__ import annotations

from kittens.artifact import Parameter
from kittens.codegen.emit import (
    elementwise,
    factors,
    halves,
    loops,
    memory,
    messages,
    products,
    reductions,
    roles,
)
from kittens.codegen.emit.text import fit
from kittens.codegen.emit.writer import Source, Writer, parameters
from kittens.codegen.plan import Plan

_MODULES = (elementwise, factors, halves, loops, memory, messages, products, reductions)
#: What writes each operation, by its name; "elementwise" writes all that have no function of their own.
HANDLERS = {name[3:]: f for module in _MODULES for name, f in vars(module).items() if name.startswith("op_")}
HANDLERS["elementwise"] = elementwise.elementwise


def emit(plan: Plan) -> Source:
    """Write the source of a plan."""
    if plan.roles is not None:
        return roles.source(plan, HANDLERS)
    return Writer(plan, HANDLERS).source()


__all__ = ["Parameter", "Source", "emit", "fit", "parameters"]
