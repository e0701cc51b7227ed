"""Loops, branches and what a kernel tells its author. `loop` and `when` own a region; see `kittens.ir`."""

from __future__ import annotations

from collections.abc import Sequence

from kittens.dtypes import bool_
from kittens.errors import DTypeError, ShapeError
from kittens.ir import Type
from kittens.opset import Call, define


def _infer_loop(call: Call) -> Sequence[Type]:
    for i in range(3):
        t = call.tile(i)
        if t.shape != () or not t.dtype.is_integer:
            raise DTypeError(f"bounds of a range are integer scalars, not {t}")
    return call.operands[3:]


#: loop: operands lo, hi, step (> 0), then the carried values' first ones; the region takes (index,
#: carried...).
define("loop", _infer_loop, pure=False)


def _infer_when(call: Call) -> Sequence[Type]:
    t = call.tile(0)
    if t.shape != () or t.dtype != bool_:
        raise DTypeError(
            f"when takes a bool scalar, not {t}",
            hint="reduce with .any() or .all(), or choose per element with kt.where",
        )
    return call.operands[1:]


#: when: operands condition, then the values as they are before; results are the region's `yield` or those.
define("when", _infer_when, pure=False)
define("yield", lambda call: [], pure=False)
define("print", lambda call: [], pure=False)


def _infer_assert(call: Call) -> Sequence[Type]:
    if call.tile(0).dtype != bool_:
        raise ShapeError(f"assert takes a bool tile, not {call.tile(0)}")
    return []


define("assert", _infer_assert, pure=False)
