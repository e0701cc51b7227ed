"""The judge: runs a kernel with values and error bounds in place of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kittens import memory
from kittens.arguments import Argument, ScalarArg
from kittens.conformance.judge import product, random, reduction  # noqa: F401  (they enter their rules)
from kittens.conformance.judge import shape as _shape  # noqa: F401
from kittens.conformance.judge.bounded import SIGN, Bounded, Unjudgeable, exactly
from kittens.conformance.judge.elementwise import RULES
from kittens.conformance.judge.formats import decode, nearest
from kittens.conformance.judge.rounding import Rules, gamma
from kittens.dtypes import Array, DType
from kittens.eager import Eager, interpret
from kittens.executor import running
from kittens.ir import Function, TileType
from kittens.kernel import Kernel, tensor_parameter
from kittens.opset import Call
from kittens.tile import Tile


@dataclass
class Memory:
    """A tensor, or a view of one: values, bounds, and which elements have been stored to.

    `mass` and `count` keep the magnitudes and the number of the terms that store_add brought.
    """

    dtype: DType
    v: Array
    e: Array
    written: Array
    mass: Array
    count: Array
    readable: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.v.shape

    def mapped(self, f: Any) -> Memory:
        """The same step taken in every array."""
        v, e, written, mass, count = (f(x) for x in (self.v, self.e, self.written, self.mass, self.count))
        return Memory(self.dtype, v, e, written, mass, count, self.readable)

    def bounded(self) -> Bounded:
        """The contents, with what a sum in any order may err (any float order; integers are exact)."""
        if self.dtype.kind != "f" or not self.count.any():
            return Bounded(self.dtype, self.v, self.e)
        with np.errstate(all="ignore"):
            e = self.e + gamma(self.count, self.dtype) * (self.mass + self.e)
            e = np.where(self.mass > self.dtype.max, np.inf, e)
        added = self.count > 0
        e = np.where(added & (self.v == 0) & (e == 0), SIGN, e)
        return Bounded(
            self.dtype,
            self.v,
            np.where(added & ~np.isfinite(self.v) & np.isfinite(e), 0.0, np.where(added, e, self.e)),
        )


def memory_of(array: Array, dtype: DType, *, readable: bool = True) -> Memory:
    """Memory that holds an array. Unless `readable`, loading what nothing stored is the case's mistake."""
    v = np.array(decode(array, dtype))
    shape = v.shape
    return Memory(
        dtype, v, np.zeros(shape), np.zeros(shape, bool), np.zeros(shape), np.zeros(shape, np.int64), readable
    )


@dataclass
class Judge:
    """Arithmetic (see `kittens.eager.Arithmetic`) on `Bounded` tiles and `Memory` tensors."""

    rules: Rules
    uses: set[str] = field(default_factory=set)

    def evaluate(self, name: str, call: Call, operands: Sequence[Bounded]) -> list[Bounded]:
        self.uses.add(name)
        if name not in RULES:
            raise Unjudgeable(
                f"the judge has no error rule for {name}", hint="write one in kittens.conformance.judge"
            )
        out = RULES[name](self.rules, call, *operands)
        return list(out) if isinstance(out, tuple) else [out]

    def constant(self, value: Any, type: TileType) -> Bounded:
        return exactly(type.dtype, decode(np.array(value, type.dtype.numpy), type.dtype))

    def view(self, name: str, tensor: Memory, operands: Sequence[int], attrs: dict[str, Any]) -> Memory:
        return tensor.mapped(lambda x: memory.view(name, x, operands, attrs))

    def load(self, tensor: Memory, coordinates: Sequence[int], call: Call) -> Bounded:
        dtype, tile = tensor.dtype, call.attrs["shape"]
        pad = call.attrs["pad"]
        filler = (
            nearest(dtype, np.array(pad, np.float64)) if dtype.kind in "fs" else np.array(pad, dtype.numpy)
        )
        if not tensor.readable and not memory.load(tensor.written, coordinates, tile, np.array(True)).all():
            raise Unjudgeable("the kernel loads elements of an output that nothing has stored")
        if memory.load(tensor.count, coordinates, tile, np.array(0)).any():
            raise Unjudgeable("the kernel loads what store_add has changed, which no order determines")
        v = memory.load(tensor.v, coordinates, tile, filler)
        e = memory.load(tensor.e, coordinates, tile, np.array(0.0))
        return Bounded(dtype, v, e)

    def store(self, tensor: Memory, coordinates: Sequence[int], tile: Bounded, add: bool) -> None:
        memory.store(tensor.written, coordinates, np.ones(tile.v.shape, bool))
        if not add:
            memory.store(tensor.v, coordinates, np.asarray(tile.v))
            memory.store(tensor.e, coordinates, np.asarray(tile.e))
            return
        start = np.abs(memory.load(tensor.v, coordinates, tile.v.shape, np.zeros((), tensor.v.dtype)))
        fresh = memory.load(tensor.count, coordinates, tile.v.shape, np.array(0)) == 0
        with np.errstate(all="ignore"):
            mass = (
                np.where(fresh, start, 0) + np.abs(tile.v)
                if tensor.dtype.kind == "f"
                else np.zeros(tile.v.shape)
            )
            memory.store(tensor.mass, coordinates, np.asarray(mass, np.float64), add=True)
            memory.store(tensor.count, coordinates, np.ones(tile.v.shape, np.int64), add=True)
            memory.store(tensor.v, coordinates, np.asarray(tile.v), add=True)
            memory.store(tensor.e, coordinates, np.where(tile.e == SIGN, 0.0, tile.e), add=True)

    def take_turn(self, counter: Memory, turn: int) -> None:
        memory.take_turn(counter.v, turn)
        counter.written[()] = True

    def integer(self, data: Bounded) -> int:
        if not data.exact:
            raise Unjudgeable("a loop bound, branch, coordinate or index depends on rounding errors")
        return int(data.v)

    def array(self, data: Any) -> Array:
        return data.v


def judge(
    kernel: Kernel,
    tensors: dict[str, Memory],
    arguments: dict[str, Argument],
    constants: dict[str, Any],
    grid: Sequence[int],
    rules: Rules,
) -> set[str]:
    """Run every program of a kernel on `tensors`, in place. Returns the names of the operations it used.

    A product added to a tile counts as one accumulation, whose bound covers both ways of doing it.
    """
    arithmetic = Judge(rules)
    for program in itertools.product(*map(range, grid)):
        machine = Eager(arithmetic, grid, program, fuses_products=True)
        with running(machine):
            values = [_parameter(machine, name, argument, tensors) for name, argument in arguments.items()]
            kernel.function(*values, **constants)
            machine.finish()
    return arithmetic.uses


def judge_ir(
    function: Function,
    tensors: dict[str, Memory],
    arguments: dict[str, Argument],
    grid: Sequence[int],
    rules: Rules,
) -> None:
    """The same by way of a traced function."""
    arithmetic = Judge(rules)
    values = []
    for parameter in function.params:
        argument = arguments[parameter.name]
        values.append(
            arithmetic.constant(argument.value, argument.type)
            if isinstance(argument, ScalarArg)
            else tensors[parameter.name]
        )
    for program in itertools.product(*map(range, grid)):
        interpret(function, arithmetic, values, grid, program)


def _parameter(machine: Eager, name: str, argument: Argument, tensors: dict[str, Memory]) -> Any:
    if argument is None:
        return None
    if isinstance(argument, ScalarArg):
        return Tile(argument.type, machine.arithmetic.constant(argument.value, argument.type), machine)
    return tensor_parameter(machine, name, argument, tensors[name])
