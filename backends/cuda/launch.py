"""Running compiled kernels on NVIDIA GPUs, through CuPy: arrays in place, on the caller's current stream."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kittens.arguments import TensorArg, check_outputs
from kittens.backends.cuda.compile import Compiled, compile_source
from kittens.backends.cuda.machine import machine
from kittens.codegen.pipeline import planned
from kittens.codegen.simulate import values
from kittens.errors import CheckError, UnavailableError
from kittens.ir import Function
from kittens.runtime import Launch
from kittens.targets import Target


@functools.cache
def device_arch(index: int) -> str:
    """The architecture to compile for on a device."""
    import cupy

    major, minor = cupy.cuda.Device(index).compute_capability[:-1], cupy.cuda.Device(index).compute_capability[-1]
    if (major, minor) == ("9", "0"):
        return "sm_90a"
    if int(major) >= 8:
        return "sm_80" if major == "8" and minor == "0" else "sm_89" if (major, minor) == ("8", "9") else "sm_80"
    raise UnavailableError(f"compute capability {major}.{minor} is too old: 8.0 at least")


@functools.lru_cache(1024)
def _module(code: bytes, entry: str, index: int, shared: int) -> Any:
    import cupy

    with cupy.cuda.Device(index):
        loaded = cupy.cuda.function.Module()
        loaded.load(code)
        function = loaded.get_function(entry)
        if shared > 48 * 1024:
            cupy.cuda.driver.funcSetAttribute(function.ptr, 8, shared)  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        return loaded, function


_compiled: dict[tuple[Function, str], Compiled] = {}


def compiled(function: Function, arch: str) -> Compiled:
    """A function compiled for an architecture, made once in this process."""
    key = (function, arch)
    if key not in _compiled:
        _compiled[key] = compile_source(planned(function, machine(arch))[1], arch)
    return _compiled[key]


def execute(target: Target, launch: Launch) -> None:
    """Run a launch on a GPU. NumPy arrays are copied there and outputs back; device arrays are used as they are."""
    import cupy

    index = target.index or 0
    if index >= cupy.cuda.runtime.getDeviceCount():
        raise UnavailableError(f"no CUDA device {index}: there are {cupy.cuda.runtime.getDeviceCount()}")
    arch = target.arch or device_arch(index)
    function = launch.kernel.trace(launch.arguments, launch.constants, len(launch.grid))
    stored = function.stored()
    check_outputs(launch.arguments, stored)
    programs = 1
    for n in launch.grid:
        programs *= n
    if programs == 0:
        return
    if programs >= 2**31:
        raise UnavailableError(f"a grid of {programs} programs: 2^31 - 1 at most")
    ready = compiled(function, arch)
    with cupy.cuda.Device(index):
        copies: list[tuple[Any, Any]] = []

        def pointer(name: str, argument: TensorArg) -> Any:
            data = argument.data
            if isinstance(data, np.ndarray):
                held, address = _to_device(data)
                copies.append((data if name in stored else None, held))
                return np.uint64(address)
            return np.uint64(data.ptr if hasattr(data, "ptr") else data)

        arguments = values(ready.source.parameters, launch, pointer)
        _, kernel = _module(ready.code, ready.source.entry, index, ready.source.shared_bytes)
        try:
            kernel((programs,), (ready.source.threads,), tuple(arguments), shared_mem=ready.source.shared_bytes)
            if copies:
                cupy.cuda.runtime.deviceSynchronize()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise CheckError(f"{launch.kernel.name} on {target}, grid {launch.grid}: {error}") from error
        except cupy.cuda.driver.CUDADriverError as error:
            raise CheckError(f"{launch.kernel.name} on {target}, grid {launch.grid}: {error}") from error
        for host, held in copies:
            if host is not None:
                _from_device(host, held)


def _span(array: Any) -> tuple[int, int]:
    """(bytes before the first element, bytes from there to the end) of the memory that an array covers."""
    low = sum(min(0, s * (n - 1)) for s, n in zip(array.strides, array.shape))
    high = sum(max(0, s * (n - 1)) for s, n in zip(array.strides, array.shape)) + array.itemsize
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
