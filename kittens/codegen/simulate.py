"""Running an emitted kernel on the CPU simulator, and the arguments that an emitted kernel takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kittens.arguments import Argument, ScalarArg, TensorArg, check_outputs
from kittens.artifact import Artifact, Parameter, TileMap
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


def values(
    parameters: Sequence[Parameter],
    arguments: dict[str, Argument],
    grid: Sequence[int],
    pointer: Callable[[str, TensorArg], Any],
    mapped: Callable[[TileMap, TensorArg], Any] | None = None,
    counter: Callable[[], Any] = lambda: np.zeros(1, np.uint32),
    log: Any = None,
) -> list[Any]:
    """The value of every parameter of an emitted kernel.

    pointer(name, tensor) gives those of tensors, mapped(map, tensor) those of maps, which some targets do not have,
    counter() that of a counter; log is that of the log that a kernel prints into, if it does.
    """
    out: list[Any] = []
    for p in parameters:
        if p.kind == "grid":
            out.append(np.int32(grid[p.axis]))
            continue
        if p.kind == "counter":
            out.append(counter())
            continue
        if p.kind == "first":
            out.append(np.uint32(0))
            continue
        if p.kind == "log":
            assert log is not None, p
            out.append(log)
            continue
        argument = arguments[p.name]
        if isinstance(argument, ScalarArg):
            out.append(np.array(argument.value, argument.dtype.numpy)[()])
            continue
        assert isinstance(argument, TensorArg)
        if p.kind == "pointer":
            out.append(pointer(p.name, argument))
        elif p.kind == "map":
            assert p.map is not None and mapped is not None, p
            out.append(mapped(p.map, argument))
        else:
            number = argument.shape[p.axis] if p.kind == "extent" else argument.strides[p.axis]
            out.append(np.uint32(number) if p.ctype == "kt_u32" else np.int64(number))
    return out


def packed(parameters: Sequence[Parameter], given: Sequence[Any]) -> list[Any]:
    """The same values, pointers first, for a kernel that takes all others as one structure, laid out as C does."""
    pointers = [v for p, v in zip(parameters, given, strict=False) if p.kind in ("pointer", "log")]
    rest = [v for p, v in zip(parameters, given, strict=False) if p.kind not in ("pointer", "log")]
    if not rest:
        return pointers
    layout = np.dtype([(f"f{i}", v.dtype) for i, v in enumerate(rest)], align=True)
    return [*pointers, np.array(tuple(rest), layout).tobytes()]


def launches(artifact: Artifact, found: list[Any], blocks: int) -> Iterator[tuple[int, list[Any]]]:
    """What to launch, one after another, with the values of all parameters: how many blocks, and the arguments. All at once; or,
    of a kernel whose programs are started one by one, a block each.
    """
    first = next((i for i, p in enumerate(artifact.parameters) if p.kind == "first"), None)
    for number in range(1 if first is None else blocks):
        if first is not None:
            found[first] = np.uint32(number)
        given = packed(artifact.parameters, found) if artifact.packed else found
        yield (blocks if first is None else 1), given


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
