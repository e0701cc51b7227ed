"""Running a grid of programs eagerly, so that a kernel that fails changes nothing."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kittens import memory, opset
from kittens.arguments import Argument, ScalarArg, TensorArg, check_outputs
from kittens.dtypes import Array
from kittens.eager import Eager, NumPyArithmetic, pad_value
from kittens.errors import CheckError, here
from kittens.executor import running
from kittens.kernel import check_returned, tensor_parameter
from kittens.runtime import Launch
from kittens.tile import Tile


@dataclass(frozen=True)
class Checks:
    """What to look for while running (see `checks`)."""

    conflicts: bool = False
    uninitialised: frozenset[str] = frozenset()


_checks = Checks()


@contextlib.contextmanager
def checks(*, conflicts: bool = True, uninitialised: Collection[str] = ()) -> Iterator[None]:
    """Have kernels on `numpy` checked, at the price of time, within a `with` block.

    conflicts: no two programs store to one element, and none loads what another stores. uninitialised: names
    of tensor parameters whose elements may not be loaded before they are stored. A breach raises CheckError.
    """
    global _checks
    before, _checks = _checks, Checks(conflicts, frozenset(uninitialised))
    try:
        yield
    finally:
        _checks = before


@dataclass(frozen=True)
class View:
    """A view of a parameter, by name and the steps that lead to it, so that it can be taken of any array
    of its shape.
    """

    name: str
    steps: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...] = ()

    def of(self, array: Array) -> Array:
        for name, operands, attrs in self.steps:
            array = memory.view(name, array, operands, attrs)
        return array


@dataclass
class _Arithmetic(NumPyArithmetic):
    """NumPy arithmetic whose tensors are `View`s, stored into copies of the outputs made at the first
    store.
    """

    arguments: dict[str, Argument]
    checks: Checks
    shadows: dict[str, Array] = field(default_factory=dict)
    writers: dict[str, Array] = field(
        default_factory=dict
    )  # for each element, the program that stored it, or -1
    readers: dict[str, Array] = field(
        default_factory=dict
    )  # the program that loaded it, -1 for none, -2 for several
    program: int = 0

    def view(self, name: str, tensor: View, operands: Sequence[int], attrs: dict[str, Any]) -> View:
        return View(tensor.name, (*tensor.steps, (name, tuple(operands), attrs)))

    def load(self, tensor: View, coordinates: Sequence[int], call: opset.Call) -> Array:
        if self.checks.conflicts or tensor.name in self.checks.uninitialised:
            self._check_load(tensor, coordinates, call)
        return memory.load(
            tensor.of(self._array(tensor.name)), coordinates, call.attrs["shape"], pad_value(call)
        )

    def store(self, tensor: View, coordinates: Sequence[int], tile: Array, add: bool) -> None:
        if tensor.name not in self.shadows:
            check_outputs(self.arguments, {tensor.name})
            self.shadows[tensor.name] = self._argument(tensor.name).data.copy()
        if self.checks.conflicts or tensor.name in self.checks.uninitialised:
            self._check_store(tensor, coordinates, tile, add)
        memory.store(tensor.of(self.shadows[tensor.name]), coordinates, tile, add)

    def take_turn(self, counter: View, turn: int) -> None:
        if counter.name not in self.shadows:
            check_outputs(self.arguments, {counter.name})
            self.shadows[counter.name] = self._argument(counter.name).data.copy()
        memory.take_turn(counter.of(self.shadows[counter.name]), turn)

    def array(self, data: Any) -> Array:
        return data.of(self._array(data.name)) if isinstance(data, View) else data

    def _array(self, name: str) -> Array:
        return self.shadows[name] if name in self.shadows else self._argument(name).data

    def _argument(self, name: str) -> TensorArg:
        argument = self.arguments[name]
        assert isinstance(argument, TensorArg)
        return argument

    def _part(
        self, who: dict[str, Array], tensor: View, coordinates: Sequence[int], shape: Sequence[int]
    ) -> Array:
        """The part of a bookkeeping array that a tile covers, as a view."""
        if tensor.name not in who:
            who[tensor.name] = np.full(self._argument(tensor.name).shape, -1, np.int64)
        view = tensor.of(who[tensor.name])
        return view[memory.window(view, coordinates, shape)[0]] if len(shape) else view

    def _check_load(self, tensor: View, coordinates: Sequence[int], call: opset.Call) -> None:
        shape = call.attrs["shape"]
        writers = self._part(self.writers, tensor, coordinates, shape)
        if tensor.name in self.checks.uninitialised and (writers == -1).any():
            raise CheckError(
                f"program {self.program} loads elements of {tensor.name!r} that nothing has stored",
                location=here(),
            )
        others = writers[(writers != -1) & (writers != self.program)]
        if self.checks.conflicts and others.size:
            raise CheckError(
                f"program {self.program} loads from {tensor.name!r} what program {others.flat[0]} stored",
                location=here(),
            )
        readers = self._part(self.readers, tensor, coordinates, shape)
        readers[...] = np.where((readers == -1) | (readers == self.program), self.program, -2)

    def _check_store(self, tensor: View, coordinates: Sequence[int], tile: Array, add: bool) -> None:
        writers = self._part(self.writers, tensor, coordinates, tile.shape)
        readers = self._part(self.readers, tensor, coordinates, tile.shape)
        for who, did in ((writers, "stored"), (readers, "loaded")):
            others = who[(who != -1) & (who != self.program)]
            if self.checks.conflicts and not add and others.size:
                other = f"program {others.flat[0]}" if others.flat[0] >= 0 else "other programs"
                raise CheckError(
                    f"program {self.program} stores to elements of {tensor.name!r} that {other} {did}",
                    hint="programs run in no order: give each its own elements, or use kt.store_add",
                    location=here(),
                )
        writers[...] = self.program


def execute(launch: Launch) -> None:
    """Run every program. Outputs are written when all have ended well; an error leaves them as they were."""
    arithmetic = _Arithmetic(launch.arguments, _checks)
    for number, program in enumerate(itertools.product(*map(range, launch.grid))):
        arithmetic.program = number
        machine = Eager(arithmetic, launch.grid, program)
        with running(machine):
            values = [_parameter(machine, name, argument) for name, argument in launch.arguments.items()]
            check_returned(launch.kernel, launch.kernel.function(*values, **launch.constants))
            machine.finish()
    for name, shadow in arithmetic.shadows.items():
        argument = launch.arguments[name]
        assert isinstance(argument, TensorArg)
        argument.data[...] = shadow


def _parameter(machine: Eager, name: str, argument: Argument) -> Any:
    if argument is None:
        return None
    if isinstance(argument, ScalarArg):
        return Tile(argument.type, np.array(argument.value, argument.dtype.numpy), machine)
    return tensor_parameter(machine, name, argument, View(name))
