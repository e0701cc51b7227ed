"""Running an emitted kernel on the CPU simulator, and the arguments that an emitted kernel takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kittens.arguments import ScalarArg, TensorArg, check_outputs
from kittens.codegen.emit import Parameter, Source
from kittens.runtime import Launch

if TYPE_CHECKING:
    from kittens.sim import Vendor

#: Orders in which threads run; every simulated launch runs in each, and results must agree to the bit.
ORDERS = ("forward", "reverse")


def values(parameters: Sequence[Parameter], launch: Launch, pointer: Any) -> list[Any]:
    """The value of every parameter of an emitted kernel; pointer(name, tensor) gives those of tensors."""
    out: list[Any] = []
    for p in parameters:
        if p.kind == "grid":
            out.append(np.int32(launch.grid[p.axis]))
            continue
        argument = launch.arguments[p.name]
        if isinstance(argument, ScalarArg):
            out.append(np.array(argument.value, argument.dtype.numpy)[()])
            continue
        assert isinstance(argument, TensorArg)
        if p.kind == "pointer":
            out.append(pointer(p.name, argument))
        else:
            out.append(np.int64(argument.shape[p.axis] if p.kind == "extent" else argument.strides[p.axis]))
    return out


def packed(parameters: Sequence[Parameter], given: Sequence[Any]) -> list[Any]:
    """The same values, pointers first, for a kernel that takes all others as one structure, laid out as C does."""
    pointers = [v for p, v in zip(parameters, given) if p.kind == "pointer"]
    rest = [v for p, v in zip(parameters, given) if p.kind != "pointer"]
    if not rest:
        return pointers
    layout = np.dtype([(f"f{i}", v.dtype) for i, v in enumerate(rest)], align=True)
    return [*pointers, np.array(tuple(rest), layout).tobytes()]


def simulate(source: Source, vendor: Vendor, arch: str, launch: Launch, written: set[str]) -> None:
    """Run a launch on NumPy arrays; outputs change when every order has ended well and all agree."""
    from kittens import sim

    check_outputs(launch.arguments, written)
    programs = 1
    for n in launch.grid:
        programs *= n
    if programs == 0:
        return
    program = sim.build(source.text, vendor, source.entry, arch, locations=source.locations)
    results: list[dict[str, Any]] = []
    for order in ORDERS:
        outputs: dict[str, Any] = {}

        def pointer(name: str, argument: TensorArg, outputs: dict[str, Any] = outputs) -> Any:
            if name not in written:
                return argument.data
            outputs[name] = _copy(argument.data)
            return outputs[name]

        arguments = values(source.parameters, launch, pointer)
        if source.packed:
            arguments = packed(source.parameters, arguments)
        program.run(programs, source.threads, arguments, shared_bytes=source.shared_bytes, order=order)
        results.append(outputs)
    for name, first in results[0].items():
        for order, other in zip(ORDERS[1:], results[1:]):
            if first.tobytes() != other[name].tobytes():
                from kittens.errors import CheckError

                raise CheckError(f"{launch.kernel.name} gives another {name!r} when threads run in {order} order: a race", location=launch.kernel.location)
    for name, first in results[0].items():
        argument = launch.arguments[name]
        assert isinstance(argument, TensorArg)
        argument.data[...] = first


def _copy(array: Any) -> Any:
    """A copy with the same strides, in memory of its own."""
    if array.size == 0:
        return array.copy()
    low = sum(min(0, s * (n - 1)) for s, n in zip(array.strides, array.shape))
    span = sum(abs(s) * (n - 1) for s, n in zip(array.strides, array.shape)) + array.itemsize
    memory = np.zeros(span, np.uint8)
    out = np.ndarray(array.shape, array.dtype, memory, -low, array.strides)
    out[...] = array
    return out
