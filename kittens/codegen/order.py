"""Accesses whose order only a barrier keeps: a program's loads and stores of one tensor are in order, whichever threads make them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from kittens.codegen.known import constant
from kittens.codegen.placement import shape
from kittens.codegen.plan import Plan, owners
from kittens.ir import Op, TensorType, Value, base

#: Operations whose results may be held in another layout than the one that placement gave them.
_MOVED = frozenset([
    "mma", "mma_scaled", "sum", "cumsum", "max", "min", "argmax", "any", "all", "loop", "when", "split", "join",
])  # fmt: skip


@dataclass(frozen=True)
class _Span:
    """What a store reaches along an axis of its tensor, as far as constants tell: from lo to below hi.

    role: the tile's axis that it is, or None. starts: where the slices begin that the view is made of.
    """

    lo: int = 0
    hi: float = math.inf
    role: int | None = None
    starts: tuple[int | Value, ...] = ()  # zeros left out


def meetings(plan: Plan) -> set[Op]:
    """The stores before which a program's threads have to meet.

    Those to a tensor that is loaded as well: another thread may not have read yet what is overwritten. And those that may
    write what another thread has: where tiles of one shape lie alike, each element is always the same thread's.
    """
    body, loaded = plan.function.body, plan.function.loaded()
    owner = owners(body)
    stores: dict[Value, list[Op]] = {}
    for op in body.walk():
        if op.name in ("store", "store_add"):
            stores.setdefault(base(op.operands[0]), []).append(op)
    found: set[Op] = set()
    for tensor, ops in stores.items():
        if tensor.name in loaded:
            found.update(ops)
            continue
        spans = {op: _spans(op) for op in ops}
        for a, b in itertools.combinations_with_replacement(ops, 2):
            if a is b and owner.get(a) is None:
                continue
            adding = a.name == b.name == "store_add"
            if not (adding or _apart(spans[a], spans[b]) or _alike(plan, a, b, spans, owner)):
                found.update((a, b))
    return found


def _spans(store: Op) -> list[_Span]:
    """What a store reaches along each axis of its parameter."""
    chain: list[Op] = []
    view = store.operands[0]
    while (op := view.producer) is not None:
        chain.append(op)
        view = op.operands[0]
    assert isinstance(view.type, TensorType)
    spans = [_Span()] * view.type.rank
    axes = list(range(view.type.rank))  # of the parameter, by axis of the view
    for op in reversed(chain):
        if op.name == "permute":
            axes = [axes[i] for i in op.attrs["perm"]]
            continue
        at = axes[op.attrs["axis"]]
        known = [_bound(v) for v in op.operands[1:]]
        if op.name == "index":
            axes.remove(at)
            spans[at] = _within(spans[at], known[0], None if known[0] is None else known[0] + 1)
        else:
            start = op.operands[1] if known[0] is None else known[0]
            spans[at] = _within(spans[at], known[0], known[1], start)
    tile = shape(store.operands[-1])
    for role, (at, n) in enumerate(zip(axes, tile, strict=True)):
        number = constant(store.operands[1 + role])
        lo, hi = (None, None) if number is None else (number * n, (number + 1) * n)
        inner = _within(spans[at], lo, hi)
        spans[at] = _Span(inner.lo, inner.hi, role, spans[at].starts)
    return spans


def _bound(value: Value) -> int | None:
    """A bound of a slice, if it is known but for being cut to the axis: where it is cut, the slice ends, or is empty."""
    op = value.producer
    if op is not None and op.name == "minimum":
        first, second = op.operands
        for number, extent in ((first, second), (second, first)):
            if extent.producer is not None and extent.producer.name == "dim":
                return constant(number)
    return constant(value)


def _within(span: _Span, lo: int | None, hi: int | None, start: int | Value | None = None) -> _Span:
    """A part of a span, from lo to below hi of its positions; None for bounds that are not known."""
    starts = span.starts if start in (None, 0) else (*span.starts, start)
    exact = not any(isinstance(s, Value) for s in span.starts)
    first = span.lo + max(lo or 0, 0)
    end = min(span.hi, span.lo + hi) if exact and hi is not None else span.hi
    return _Span(first, end, span.role, starts)


def _apart(a: list[_Span], b: list[_Span]) -> bool:
    """Whether two stores reach no element in common."""
    return any(x.hi <= y.lo or y.hi <= x.lo for x, y in zip(a, b, strict=True))


def _alike(plan: Plan, a: Op, b: Op, spans: Mapping[Op, list[_Span]], owner: Mapping[Op, Op]) -> bool:
    """Whether each element that both stores reach is written by the same thread."""
    tiles = a.operands[-1], b.operands[-1]
    if shape(tiles[0]) != shape(tiles[1]):
        return False
    if a is not b and shape(tiles[0]):
        layouts = plan.placement.layouts
        if any(t.producer is None or t.producer.name in _MOVED for t in tiles):
            return False
        if tiles[0] not in layouts or layouts[tiles[0]] != layouts.get(tiles[1]):
            return False
    return all(
        x.role == y.role and (x.role is None or (x.starts == y.starts and _still(plan, x.starts, owner)))
        for x, y in zip(spans[a], spans[b], strict=True)
    )


def _still(plan: Plan, starts: tuple[int | Value, ...], owner: Mapping[Op, Op]) -> bool:
    """Whether a slice begins at the same place in every pass of every loop."""
    return all(
        v in plan.function.params if v.producer is None else v.producer not in owner
        for v in starts
        if isinstance(v, Value)
    )
