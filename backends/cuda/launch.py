"""Running compiled kernels on NVIDIA GPUs, through CuPy: arrays in place, on the caller's current stream."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kittens.arguments import Argument, OnDevice, ScalarArg, TensorArg, check_outputs
from kittens.artifact import Artifact
from kittens.backends.cuda.compile import compiled
from kittens.backends.cuda.machine import machine
from kittens.backends.cuda.prepared import Stream, devices, driver_errors, prepare
from kittens.errors import CheckError, UnavailableError
from kittens.ir import Function
from kittens.runtime import Again, Launch
from kittens.targets import Target


@functools.cache
def device_arch(index: int) -> str:
    """The architecture to compile for on a device."""
    import cupy

    capability = cupy.cuda.Device(index).compute_capability  # such as "90"
    major, minor = int(capability[:-1]), int(capability[-1])
    if (major, minor) == (9, 0):
        return "sm_90a"
    if major == 8:  # code for 8.0 runs on all of them
        return "sm_89" if minor == 9 else "sm_80"
    raise UnavailableError(
        f"device {index} has compute capability {major}.{minor}, for which there is no target",
        hint="8.0 to 8.9, and 9.0, have one",
    )


_machine = functools.cache(machine)


def execute(target: Target, launch: Launch, function: Function) -> Again | None:
    """Run a launch of a traced kernel on a GPU; returns the way to run it again, where all arrays live there.

    NumPy arrays are copied there and outputs back; device arrays are used as they are.
    """
    index = _device(target)
    artifact = compiled(function, _machine(target.arch or device_arch(index)))
    return run_artifact(artifact, launch.arguments, launch.grid, index)


def _device(target: Target) -> int:
    index = target.index or 0
    if index >= devices():
        raise UnavailableError(f"no CUDA device {index}: there are {devices()}")
    return index


def run_saved(
    target: Target, artifact: Artifact, arguments: dict[str, Argument], grid: Sequence[int]
) -> None:
    """Run a loaded kernel on a GPU."""
    run_artifact(artifact, arguments, grid, _device(target))


def run_artifact(
    artifact: Artifact, arguments: dict[str, Argument], grid: Sequence[int], index: int
) -> Again | None:
    """Run compiled code on a device, on the caller's current stream; returns how to do so again, if no array was copied."""
    check_outputs(arguments, set(artifact.written))
    given = {n: a for n, a in arguments.items() if a is not None}
    owners = [
        a.data.owner for a in given.values() if isinstance(a, TensorArg) and isinstance(a.data, OnDevice)
    ]
    run = prepare(artifact, arguments, grid, index, stream_of(owners, index))
    if any(isinstance(a, TensorArg) and isinstance(a.data, np.ndarray) for a in given.values()):
        if math.prod(grid):
            _run_copied(run, given, set(artifact.written), index)
        return None
    run(*(a.data.ptr if isinstance(a, TensorArg) else a.value for a in given.values()))
    return Again(run, frozenset(artifact.written))


def _run_copied(
    run: Callable[..., None], given: dict[str, TensorArg | ScalarArg], written: set[str], index: int
) -> None:
    """Run on copies of NumPy arrays, and copy the outputs back."""
    import cupy

    values: list[Any] = []
    copies: list[tuple[Any, Any]] = []
    with cupy.cuda.Device(index):
        for name, a in given.items():
            if isinstance(a, ScalarArg):
                values.append(a.value)
            elif isinstance(a.data, np.ndarray):
                held, address = _to_device(a.data)
                copies.append((a.data if name in written else None, held))
                values.append(address)
            else:
                values.append(a.data.ptr)
        run(*values)
        try:
            cupy.cuda.runtime.deviceSynchronize()
        except driver_errors() as error:
            raise CheckError(f"while the kernel ran on cuda:{index}: {error}") from error
        for host, held in copies:
            if host is not None:
                _from_device(host, held)


def stream_of(owners: Sequence[Any], index: int) -> Stream:
    """What gives the caller's current stream on a device: torch's where an array is torch's, else CuPy's."""
    if any(type(owner).__module__.partition(".")[0] == "torch" for owner in owners):
        import torch

        return Stream("current(index)", {"current": torch._C._cuda_getCurrentRawStream})
    import cupy

    return Stream("current().ptr", {"current": cupy.cuda.get_current_stream})


def _span(array: Any) -> tuple[int, int]:
    """(bytes before the first element, bytes from there to the end) of the memory that an array covers."""
    low = sum(min(0, s * (n - 1)) for s, n in zip(array.strides, array.shape, strict=False))
    high = sum(max(0, s * (n - 1)) for s, n in zip(array.strides, array.shape, strict=False)) + array.itemsize
    return (-low, high) if array.size else (0, 16)


def _bytes_of(array: Any) -> Any:
    before, after = _span(array)
    return np.ndarray(before + after, np.uint8, buffer=_memory(array, before, after))


def _memory(array: Any, before: int, after: int) -> Any:
    import ctypes

    return (ctypes.c_uint8 * (before + after)).from_address(array.ctypes.data - before)


def _to_device(array: Any) -> tuple[Any, int]:
    """A device copy of the memory under a NumPy array, with its strides kept; and the address of its first element."""
    import cupy

    if array.size == 0:
        held = cupy.zeros(16, cupy.uint8)
        return held, held.data.ptr
    before, after = _span(array)
    pad = (array.ctypes.data - before) % 256
    held = cupy.zeros(pad + before + after + 256, cupy.uint8)
    held[pad : pad + before + after].set(_bytes_of(array))
    return held, held.data.ptr + pad + before


def _from_device(array: Any, held: Any) -> None:
    if array.size == 0:
        return
    before, after = _span(array)
    pad = (array.ctypes.data - before) % 256
    raw = held[pad : pad + before + after].get()
    result = np.ndarray(array.shape, array.dtype, raw.data, before, array.strides)
    array[...] = result
