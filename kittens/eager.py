"""Eager execution: the kernel function runs as Python, each operation on data at once.

`Eager` is the executor; what data is and what an operation does to it is an `Arithmetic`: plain NumPy for the
reference, values with error bounds for the judge. `interpret` runs a traced function over the same
arithmetic.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Protocol

import numpy as np

from kittens import memory, opset
from kittens.control import Control, left_early
from kittens.dtypes import Array, convert
from kittens.errors import CheckError, ControlFlowError, here
from kittens.executor import Origins, running
from kittens.frames import is_comprehension
from kittens.ir import Function, Region, TileType, Value
from kittens.tile import Tile


class Arithmetic(Protocol):
    """What data is, and what operations do to it. Tensors are whatever `load` and `view` of the same
    arithmetic take.
    """

    def evaluate(self, name: str, call: opset.Call, operands: Sequence[Any]) -> list[Any]: ...
    def constant(self, value: Any, type: TileType) -> Any: ...
    def view(self, name: str, tensor: Any, operands: Sequence[int], attrs: dict[str, Any]) -> Any: ...
    def load(self, tensor: Any, coordinates: Sequence[int], call: opset.Call) -> Any: ...
    def store(self, tensor: Any, coordinates: Sequence[int], tile: Any, add: bool) -> None: ...
    def take_turn(self, counter: Any, turn: int) -> None: ...
    def integer(self, data: Any) -> int: ...
    def array(self, data: Any) -> Array: ...


class NumPyArithmetic:
    """Data are NumPy arrays of the tile's own dtype and shape; tensors are NumPy arrays, written in place."""

    def evaluate(self, name: str, call: opset.Call, operands: Sequence[Array]) -> list[Array]:
        return opset.evaluate(name, call, *operands)

    def constant(self, value: Any, type: TileType) -> Array:
        return np.array(value, type.dtype.numpy)

    def view(self, name: str, tensor: Any, operands: Sequence[int], attrs: dict[str, Any]) -> Any:
        return memory.view(name, tensor, operands, attrs)

    def load(self, tensor: Any, coordinates: Sequence[int], call: opset.Call) -> Array:
        return memory.load(tensor, coordinates, call.attrs["shape"], pad_value(call))

    def store(self, tensor: Any, coordinates: Sequence[int], tile: Array, add: bool) -> None:
        memory.store(tensor, coordinates, tile, add)

    def take_turn(self, counter: Any, turn: int) -> None:
        memory.take_turn(counter, turn)

    def integer(self, data: Array) -> int:
        return int(data)

    def array(self, data: Array) -> Array:
        return data


def pad_value(call: opset.Call) -> Array:
    """The `pad` of a load, as a 0-d array of the tensor's dtype."""
    dtype, pad = call.result.dtype, call.attrs["pad"]
    return convert(np.array(pad, np.float64), dtype) if dtype.kind in "fs" else np.array(pad, dtype.numpy)


class Eager:
    """The executor of one program of a grid. `program` and `grid` are its coordinates and the grid's
    extents.
    """

    def __init__(
        self,
        arithmetic: Arithmetic,
        grid: Sequence[int],
        program: Sequence[int],
        *,
        fuses_products: bool = False,
    ):
        self.arithmetic = arithmetic
        self.grid = tuple(grid)
        self.program = tuple(program)
        self.grid_rank = len(self.grid)
        self.fuses_products = fuses_products
        self.open: list[Control] = []

    def apply(self, name: str, call: opset.Call, operands: Sequence[Any]) -> list[Any]:
        arithmetic = self.arithmetic
        if name in ("load", "store", "store_add"):
            ordered = call.attrs.get("ordered", False)
            last = len(operands) - (3 if ordered else name != "load")
            coordinates = [arithmetic.integer(x) for x in operands[1:last]]
            if name == "load":
                return [arithmetic.load(operands[0], coordinates, call)]
            if ordered:
                arithmetic.take_turn(operands[-3], arithmetic.integer(operands[-2]))
            arithmetic.store(operands[0], coordinates, operands[-1], name == "store_add")
            return []
        if name in ("index", "slice", "permute"):
            return [
                arithmetic.view(name, operands[0], [arithmetic.integer(x) for x in operands[1:]], call.attrs)
            ]
        if name in ("program_id", "num_programs"):
            where = self.program if name == "program_id" else self.grid
            return [
                arithmetic.constant(n, t)
                for n, t in zip(where, call.results, strict=True)
                if isinstance(t, TileType)
            ]
        if name == "dim":
            return [arithmetic.constant(arithmetic.array(operands[0]).shape[call.attrs["axis"]], call.result)]
        if name == "print":
            shown = [
                np.array2string(arithmetic.array(x))
                if np.ndim(arithmetic.array(x))
                else str(arithmetic.array(x))
                for x in operands
            ]
            print(f"{self.program}: {call.attrs['text'].format(*shown)}")
            return []
        if name == "assert":
            if not arithmetic.array(operands[0]).all():
                raise CheckError(f"program {self.program}: {call.attrs['message']}", location=here())
            return []
        return arithmetic.evaluate(name, call, operands)

    def iterate(self, control: Control, frame: FrameType) -> Iterator[Tile | None]:
        caller = sys._getframe(1)
        if caller is not frame or is_comprehension(caller):
            raise ControlFlowError(
                f"{control.spelled} in a comprehension or generator",
                hint="write a `for` statement",
                location=control.location,
            )
        self.open.append(control)
        first = self.arithmetic.integer(control.operands[0].value)
        if control.name == "when":
            if first:
                yield None
        else:
            type = control.operands[0].type
            stop, step = (self.arithmetic.integer(x.value) for x in control.operands[1:])
            for k in range(first, stop, step):
                yield Tile(type, self.arithmetic.constant(k, type), self)
                if self.open[-1] is not control:
                    raise left_early(self.open[-1])
        if self.open.pop() is not control:
            raise left_early(control)

    def specialise(self, origins: Origins) -> None:
        pass

    def fuses(self, product: Tile) -> bool:
        return self.fuses_products

    def show(self, tile: Tile) -> str:
        return (
            f"<tile {tile.type}>\n{self.arithmetic.array(tile.value)}"
            if tile.shape
            else f"{tile.type}({self.arithmetic.array(tile.value)})"
        )

    def finish(self) -> None:
        """Raises ControlFlowError if a loop was left early."""
        if self.open:
            raise left_early(self.open[-1])


def interpret(
    function: Function,
    arithmetic: Arithmetic,
    arguments: Sequence[Any],
    grid: Sequence[int],
    program: Sequence[int],
) -> None:
    """Run one program of a traced function. `arguments` are tensors and scalars of the arithmetic, one a
    parameter.
    """
    machine = Eager(arithmetic, grid, program)
    env: dict[Value, Any] = dict(zip(function.params, arguments, strict=True))
    with running(machine):
        _run(machine, function.body, env)


def _run(machine: Eager, region: Region, env: dict[Value, Any]) -> list[Any]:
    integer = machine.arithmetic.integer
    for op in region.ops:
        operands = [env[v] for v in op.operands]
        if op.name == "yield":
            return operands
        if op.name == "loop":
            lo, hi, step = map(integer, operands[:3])
            (inner,), carried = op.regions, operands[3:]
            index_type = inner.args[0].type
            assert isinstance(index_type, TileType)
            for k in range(lo, hi, step):
                env.update(
                    zip(inner.args, [machine.arithmetic.constant(k, index_type), *carried], strict=True)
                )
                carried = _run(machine, inner, env)
            results = carried
        elif op.name == "when":
            (inner,), results = op.regions, operands[1:]
            if integer(operands[0]):
                env.update(zip(inner.args, results, strict=True))
                results = _run(machine, inner, env)
        else:
            call = opset.Call(tuple(v.type for v in op.operands), op.attrs, tuple(v.type for v in op.results))
            results = machine.apply(op.name, call, operands)
        env.update(zip(op.results, results, strict=True))
    return []
