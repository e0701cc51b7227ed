"""Running an emitted kernel on the CPU simulator."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kittens.arguments import Argument, TensorArg, check_outputs
from kittens.artifact import Artifact, TileMap
from kittens.codegen.launches import launches, values
from kittens.codegen.printing import new_log, show
from kittens.errors import CheckError
from kittens.runtime import programs
from kittens.sim.maps import MappedArray

if TYPE_CHECKING:
    from kittens.sim import Program, Vendor

#: Orders in which threads run; every simulated launch runs in each, and results must agree to the bit.
ORDERS = ("forward", "reverse")


#: Processors of the simulated device: few, so that the blocks of a persistent kernel run several programs each.
PROCESSORS = 3


def simulate(
    artifact: Artifact,
    vendor: Vendor,
    arch: str,
    arguments: dict[str, Argument],
    grid: Sequence[int],
    locations: dict[int, tuple[str, int]] | None = None,
) -> None:
    """Run an emitted kernel on NumPy arrays; outputs change when every order has ended well and all agree.

    Raises SimulationFault for what the simulator finds, CheckError when the orders give different results.
    """
    check_outputs(arguments, set(artifact.written))
    count = programs(grid)
    if count == 0:
        return
    program = _program(vendor, arch, artifact.entry, artifact.source, tuple((locations or {}).items()))
    blocks = artifact.blocks(count, PROCESSORS)
    results: list[dict[str, Any]] = []
    for order in ORDERS:
        outputs: dict[str, Any] = {}

        def pointer(name: str, argument: TensorArg, outputs: dict[str, Any] = outputs) -> Any:
            if name not in artifact.written:
                return argument.data
            if name not in outputs:
                outputs[name] = _copy(argument.data)
            return outputs[name]

        def mapped(map: TileMap, argument: TensorArg, pointer: Any = pointer) -> Any:
            array, box = pointer(map.tensor, argument), map.copied(argument.shape)
            dims = map.dims(array.shape, array.strides)
            return MappedArray(array, map.axes, box, map.swizzle, dims)

        log = new_log(artifact.messages)
        found = values(artifact.parameters, arguments, grid, pointer, mapped, log=log)
        try:
            for many, given in launches(artifact, found, blocks):
                program.run(
                    many,
                    artifact.threads,
                    given,
                    shared_bytes=artifact.shared_bytes,
                    order=order,
                    cluster=artifact.cluster,
                )
        finally:  # what was printed before a fault is told too
            if order == ORDERS[0]:
                show(log, artifact.messages)
        results.append(outputs)
    for name, first in results[0].items():
        for order, other in zip(ORDERS[1:], results[1:], strict=False):
            if name not in artifact.unordered and first.tobytes() != other[name].tobytes():
                raise CheckError(
                    f"{artifact.kernel} gives another {name!r} when threads run in {order} order: a race"
                )
    for name, first in results[0].items():
        argument = arguments[name]
        assert isinstance(argument, TensorArg)
        argument.data[...] = first


@functools.lru_cache(256)
def _program(
    vendor: Vendor, arch: str, entry: str, text: str, locations: tuple[tuple[int, tuple[str, int]], ...]
) -> Program:
    """A source built for the simulator, once in this process."""
    from kittens import sim

    return sim.build(text, vendor, entry, arch, locations=dict(locations))


def _copy(array: Any) -> Any:
    """A copy with the same strides, in memory of its own."""
    if array.size == 0:
        return array.copy()
    low = sum(min(0, s * (n - 1)) for s, n in zip(array.strides, array.shape, strict=False))
    span = sum(abs(s) * (n - 1) for s, n in zip(array.strides, array.shape, strict=False)) + array.itemsize
    memory = np.zeros(span, np.uint8)
    out = np.ndarray(array.shape, array.dtype, memory, -low, array.strides)
    out[...] = array
    return out
