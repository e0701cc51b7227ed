"""What a launch of an emitted kernel is given: on a device, and in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kittens.arguments import Argument, ScalarArg, TensorArg
from kittens.artifact import Artifact, Parameter, TileMap


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
