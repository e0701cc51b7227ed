"""Tracing: run a kernel function once with symbolic tiles and get its tile IR."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import FrameType

from kittens import frames, loops, opset
from kittens.control import Control, left_early
from kittens.errors import ScopeError, here, locate, user_frame
from kittens.executor import Origins
from kittens.ir import Op, Region, Value
from kittens.tile import Tile


class Trace:
    """The executor that writes down operations instead of carrying them out.

    `regions` are the open regions, outermost first; `loops` the loops and branches whose bodies are being
    traced. `specialised` collects the extents, as (parameter, axis), whose values the trace depends on.
    """

    def __init__(self, grid_rank: int):
        self.grid_rank = grid_rank
        self.body = Region()
        self.regions: list[Region] = [self.body]
        self.loops: list[loops.LoopTrace] = []
        self.specialised: set[tuple[str, int]] = set()
        self._home: dict[Value, Region] = {}

    def define(self, value: Value, region: Region) -> Value:
        """Make `value` belong to `region`: it can be used there and further in."""
        self._home[value] = region
        return value

    def in_scope(self, value: Value) -> bool:
        """Whether `value` can be used where the trace now stands."""
        return self._home.get(value) in self.regions

    def apply(self, name: str, call: opset.Call, operands: Sequence[Value]) -> list[Value]:
        frame = user_frame()
        for value in operands:
            if not self.in_scope(value):
                raise _out_of_scope(value)
        hint = frames.assigned_name(frame) if frame is not None else ""
        op = Op(name, list(operands), call.attrs, [], location=locate(frame) if frame is not None else None)
        region = self.regions[-1]
        op.results = [self.define(Value(t, hint, op), region) for t in call.results]
        region.ops.append(op)
        return op.results

    def iterate(self, control: Control, frame: FrameType) -> loops.LoopTrace:
        return loops.LoopTrace(self, control, frame)

    def specialise(self, origins: Origins) -> None:
        self.specialised |= origins

    def fuses(self, product: Tile) -> bool:
        """Whether a sum with a product is one operation: not where the product was made outside a loop."""
        return self._home.get(product.value) is self.regions[-1]

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        """After an error, objects that outlive the kernel get back what they held before its loops."""
        if kind is not None:
            for loop in reversed(self.loops):
                with contextlib.suppress(Exception):
                    loop.restore()

    def show(self, tile: Tile) -> str:
        name = f" %{tile.value.name}" if tile.value.name else ""
        return f"<tile {tile.type}{name}, being traced>"

    def finish(self) -> Region:
        """The traced body. Raises ControlFlowError if a loop was left early."""
        if self.loops:
            raise left_early(self.loops[-1].control)
        return self.body


def _out_of_scope(value: Value) -> ScopeError:
    name = f" {value.name!r}" if value.name else ""
    return ScopeError(
        f"the tile{name} ({value.type}) belongs to a loop or branch that has ended, or to an earlier pass "
        "of it",
        hint="only variables that exist before a loop are carried by it: give it a first value there, "
        "such as kt.zeros(...)",
        location=here(),
    )
