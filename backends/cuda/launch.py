"""Running compiled kernels on NVIDIA GPUs, through CuPy: arrays in place, on the caller's current stream."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kittens.arguments import Argument, check_outputs
from kittens.artifact import Artifact
from kittens.backends.cuda.compile import compiled
from kittens.backends.cuda.machine import machine
from kittens.codegen.simulate import values
from kittens.errors import CheckError, UnavailableError
from kittens.runtime import Launch
from kittens.targets import Target


@functools.cache
def device_arch(index: int) -> str:
    """The architecture to compile for on a device."""
    import cupy

    major, minor = (
        cupy.cuda.Device(index).compute_capability[:-1],
        cupy.cuda.Device(index).compute_capability[-1],
    )
    if (major, minor) == ("9", "0"):
        return "sm_90a"
    if int(major) >= 8:
        return (
            "sm_80" if major == "8" and minor == "0" else "sm_89" if (major, minor) == ("8", "9") else "sm_80"
        )
    raise UnavailableError(f"compute capability {major}.{minor} is too old: 8.0 at least")


@functools.lru_cache(1024)
def _module(code: bytes, entry: str, index: int, shared: int) -> Any:
    import cupy

    with cupy.cuda.Device(index):
        loaded = cupy.cuda.function.Module()
        loaded.load(code)
        function = loaded.get_function(entry)
        if shared > 48 * 1024:
            cupy.cuda.driver.funcSetAttribute(
                function.ptr, 8, shared
            )  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        return loaded, function


def execute(target: Target, launch: Launch) -> Callable[[dict[str, Argument]], None]:
    """Run a launch on a GPU; returns the way to run it again on other arguments of the same kind.

    NumPy arrays are copied there and outputs back; device arrays are used as they are.
    """
    index = _device(target)
    function = launch.kernel.trace(launch.arguments, launch.constants, len(launch.grid))
    made = compiled(function, machine(target.arch or device_arch(index)))
    ready = Prepared(made, launch.arguments, launch.grid, index)
    ready(launch.arguments)
    return ready


def _device(target: Target) -> int:
    import cupy

    index = target.index or 0
    if index >= cupy.cuda.runtime.getDeviceCount():
        raise UnavailableError(f"no CUDA device {index}: there are {cupy.cuda.runtime.getDeviceCount()}")
    return index


def run_saved(
    target: Target, artifact: Artifact, arguments: dict[str, Argument], grid: Sequence[int]
) -> None:
    """Run a loaded kernel on a GPU."""
    run_artifact(artifact, arguments, grid, _device(target))


def run_artifact(artifact: Artifact, arguments: dict[str, Argument], grid: Sequence[int], index: int) -> None:
    """Run compiled code on a device, on its current stream."""
    Prepared(artifact, arguments, grid, index)(arguments)


class Prepared:
    """Compiled code with all that stays the same from call to call: call it with arguments that differ in addresses alone."""

    def __init__(self, artifact: Artifact, arguments: dict[str, Argument], grid: Sequence[int], index: int):
        self.artifact = artifact
        self.grid = tuple(grid)
        self.index = index
        self.written = set(artifact.written)
        self.programs = math.prod(grid)
        if self.programs >= 2**31:
            raise UnavailableError(f"a grid of {self.programs} programs: 2^31 - 1 at most")
        self.values = values(artifact.parameters, arguments, grid, lambda name, argument: None)
        self.pointers = [(i, p.name) for i, p in enumerate(artifact.parameters) if p.kind == "pointer"]
        if self.programs:
            _, self.kernel = _module(artifact.code, artifact.entry, index, artifact.shared_bytes)

    def __call__(self, arguments: dict[str, Argument]) -> None:
        """Run on the device's current stream. Raises CheckError for what the driver reports."""
        import cupy

        check_outputs(arguments, self.written)
        if not self.programs:
            return
        given = list(self.values)
        copies: list[tuple[Any, Any]] = []
        with cupy.cuda.Device(self.index):
            for i, name in self.pointers:
                data = arguments[name].data  # type: ignore[union-attr]
                if isinstance(data, np.ndarray):
                    held, address = _to_device(data)
                    copies.append((data if name in self.written else None, held))
                else:
                    address = data.ptr
                given[i] = np.uint64(address)
            try:
                with _stream(arguments, self.pointers):
                    self.kernel(
                        (self.programs,),
                        (self.artifact.threads,),
                        tuple(given),
                        shared_mem=self.artifact.shared_bytes,
                    )
                if copies:
                    cupy.cuda.runtime.deviceSynchronize()
            except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
                raise CheckError(
                    f"{self.artifact.kernel} on cuda:{self.index}, grid {self.grid}: {error}"
                ) from error
            for host, held in copies:
                if host is not None:
                    _from_device(host, held)


def _stream(arguments: dict[str, Argument], pointers: Sequence[tuple[int, str]]) -> Any:
    """The caller's current stream: torch's where the arrays are torch's, else CuPy's."""
    for _, name in pointers:
        owner: Any = getattr(arguments[name].data, "owner", None)  # type: ignore[union-attr]
        if type(owner).__module__.partition(".")[0] == "torch":
            import cupy
            import torch

            return cupy.cuda.ExternalStream(torch.cuda.current_stream(owner.device).cuda_stream)
    return contextlib.nullcontext()


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
