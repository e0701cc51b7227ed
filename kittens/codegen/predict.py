"""What a plan predicts of its kernel: registers, shared memory, and a cost by which candidates for its tiles are ranked.

The cost is the time that a usual device could not do without, from the bytes and operations of the tiles and from how
many programs run at once. It ranks; it is no time that anything would take, and is never shown as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kittens import opset
from kittens.arguments import Argument, ScalarArg, TensorArg
from kittens.codegen.plan import Plan
from kittens.ir import Op, Region, TensorType, TileType, Value
from kittens.targets import Rates

#: Programs whose work is counted: of the first, the middle and the last, which differ where a mask skips blocks.
_SAMPLED = 3


@dataclass
class Work:
    """What one program does: bytes of loads and stores, operations of products by bits of their operands, of all else."""

    bytes: float = 0.0
    products: dict[int, float] = field(default_factory=dict)
    vector: float = 0.0

    def add(self, other: Work, times: float) -> None:
        """As many times the work of another."""
        self.bytes += times * other.bytes
        self.vector += times * other.vector
        for bits, operations in other.products.items():
            self.products[bits] = self.products.get(bits, 0.0) + times * operations


@dataclass(frozen=True)
class Prediction:
    """registers and shared_bytes: of a lane and of a program. at_once: programs that one processor holds. cost: see above."""

    registers: int
    limit: int
    shared_bytes: int
    threads: int
    at_once: int
    cost: float

    @property
    def spills(self) -> bool:
        """Whether a lane has fewer registers than are predicted."""
        return self.registers > self.limit


def predict(plan: Plan, arguments: dict[str, Argument], grid: Sequence[int], rates: Rates) -> Prediction:
    """What a plan predicts for these arguments on a device with such rates."""
    registers, limit = plan.predicted_registers(), plan.machine.registers
    at_once = max(
        1,
        min(
            rates.threads // plan.threads,
            rates.shared_bytes // max(plan.shared_bytes, 1),
            rates.registers // max(plan.threads * min(registers, limit), 1),
        ),
    )
    programs = math.prod(grid)
    total = Work()
    numbers = sorted({0, programs // 2, max(programs - 1, 0)})[:_SAMPLED]
    for number in numbers:
        total.add(work(plan, arguments, grid, _coordinates(number, grid)), programs / len(numbers))
    busiest = math.ceil(programs / rates.processors)
    used = (
        programs / (busiest * rates.processors) if programs else 1.0
    )  # of all processors, until the last is done
    fallback = rates.products.get(16, rates.vector)
    computing = sum(
        n / rates.products.get(bits, rates.vector if bits > 16 else fallback)
        for bits, n in total.products.items()
    )
    seconds = max(
        computing + total.vector / rates.vector, total.bytes / rates.cache, _once(arguments) / rates.bandwidth
    )
    return Prediction(registers, limit, plan.shared_bytes, plan.threads, at_once, seconds / used)


def _once(arguments: dict[str, Argument]) -> float:
    """Bytes of all tensors."""
    return float(
        sum(math.prod(a.shape) * a.dtype.bytes for a in arguments.values() if isinstance(a, TensorArg))
    )


def _coordinates(number: int, grid: Sequence[int]) -> tuple[int, ...]:
    found = []
    for extent in grid:
        found.append(number % max(extent, 1))
        number //= max(extent, 1)
    return tuple(found)


def work(plan: Plan, arguments: dict[str, Argument], grid: Sequence[int], program: Sequence[int]) -> Work:
    """The work of one program: a loop counts as often as it runs, if that is known beforehand, else once."""
    return _Counter(plan, arguments, grid, program).count(plan.function.body)


class _Counter:
    """Follows the scalars of one program, as far as they are known, and counts what is done to tiles."""

    def __init__(
        self, plan: Plan, arguments: dict[str, Argument], grid: Sequence[int], program: Sequence[int]
    ):
        self.arguments = arguments
        self.grid, self.program = grid, program
        self.known: dict[Value, Any] = {}
        for value in plan.function.params:
            argument = arguments[value.name]
            if isinstance(argument, ScalarArg):
                self.known[value] = argument.dtype.numpy.type(argument.value)

    def count(self, region: Region) -> Work:
        total = Work()
        for op in region.ops:
            if op.name == "loop":
                total.add(*self._loop(op))
            elif op.name == "when":
                taken = self.known.get(op.operands[0])
                total.add(self.count(op.regions[0]), 1.0 if taken is None else float(bool(taken)))
            else:
                self._scalar(op)
                self._operation(op, total)
        return total

    def _loop(self, op: Op) -> tuple[Work, float]:
        bounds = [self.known.get(v) for v in op.operands[:3]]
        index = op.regions[0].args[0]
        if any(b is None for b in bounds):
            return self.count(op.regions[0]), 1.0
        lo, hi, step = (int(b) for b in bounds)  # type: ignore[arg-type]
        times = max(0, math.ceil((hi - lo) / step)) if step else 0
        self.known[index] = lo + step * (times // 2)
        return self.count(op.regions[0]), float(times)

    def _operation(self, op: Op, total: Work) -> None:
        if op.name in ("load", "store", "store_add"):
            type = op.result.type if op.name == "load" else op.operands[-1].type
            assert isinstance(type, TileType)
            total.bytes += type.size * type.dtype.bytes
        elif op.name in ("mma", "mma_scaled"):
            a, b = op.operands[0].type, op.operands[1 if op.name == "mma" else 2].type
            assert isinstance(a, TileType) and isinstance(b, TileType)
            bits = a.dtype.bits
            total.products[bits] = total.products.get(bits, 0.0) + 2.0 * a.size * b.shape[-1]
        elif op.results and isinstance(op.results[0].type, TileType):
            total.vector += sum(r.type.size for r in op.results if isinstance(r.type, TileType))

    def _scalar(self, op: Op) -> None:
        """Compute what an operation gives, where that is a scalar that follows from known ones."""
        if op.name in ("program_id", "num_programs"):
            where = self.program if op.name == "program_id" else self.grid
            self.known.update(zip(op.results, where, strict=False))
            return
        if op.name == "dim":
            argument = self.arguments.get(op.operands[0].name)
            if isinstance(argument, TensorArg) and op.operands[0].producer is None:
                self.known[op.result] = argument.shape[op.attrs["axis"]]
            return
        types = [v.type for v in (*op.operands, *op.results)]
        if not op.results or any(isinstance(t, TensorType) or t.shape for t in types):
            return
        definition = opset.OPS.get(op.name)
        if (
            definition is None
            or definition.reference is None
            or any(v not in self.known for v in op.operands)
        ):
            return
        call = opset.Call(tuple(v.type for v in op.operands), op.attrs, tuple(v.type for v in op.results))
        values = [_array(self.known[v], v.type) for v in op.operands]
        self.known.update(zip(op.results, opset.evaluate(op.name, call, *values), strict=True))


def _array(value: Any, type: Any) -> Any:
    import numpy as np

    return np.asarray(value, type.dtype.numpy)
