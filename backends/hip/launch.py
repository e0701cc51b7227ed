"""Running compiled kernels on AMD GPUs, through hip-python: arrays in place, NumPy arrays by way of copies.

Arguments are packed by the offsets that the code object states: hip-python's own packing misplaces structs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from kittens.arguments import Argument, TensorArg, check_outputs
from kittens.artifact import Artifact
from kittens.backends.hip.codeobject import metadata
from kittens.backends.hip.compile import compiled
from kittens.backends.hip.machine import far, machine, wide_machine
from kittens.codegen.launches import values
from kittens.codegen.printing import new_log, show
from kittens.errors import CheckError, UnavailableError
from kittens.ir import Function
from kittens.runtime import Launch, programs
from kittens.targets import Target


def call(name: str, *arguments: Any) -> Any:
    """Call a function of HIP and give its result. Raises CheckError with HIP's name for what went wrong."""
    from hip import hip

    try:
        error, *results = getattr(hip, name)(*arguments)
    except RuntimeError as missing:  # the library is opened at the first call
        raise UnavailableError(f"HIP could not be loaded: {missing}", hint="install ROCm") from missing
    if int(error):
        raise CheckError(f"{name}: {error.name}")
    return results[0] if len(results) == 1 else tuple(results)


@functools.cache
def device_arch(index: int) -> str:
    """The architecture to compile for on a device."""
    count = call("hipGetDeviceCount")
    if index >= count:
        raise UnavailableError(f"no AMD device {index}: there are {count}")
    arch = str(call("hipGetDeviceProperties", index).gcnArchName)  # such as gfx950:sramecc+:xnack-
    return arch.split(":")[0]


@functools.lru_cache(1024)
def _function(code: bytes, entry: str, index: int) -> tuple[Any, Any]:
    module = call("hipModuleLoadData", code)
    return module, call("hipModuleGetFunction", module, entry.encode())


def packed(code: bytes, arguments: Sequence[Any]) -> bytes:
    """The arguments as the kernel reads them."""
    listed = [a for a in metadata(code)[".args"] if not a[".value_kind"].startswith("hidden")]
    out = bytearray(metadata(code)[".kernarg_segment_size"])
    for place, value in zip(listed, arguments, strict=True):
        data = np.asarray(value).tobytes()
        assert len(data) == place[".size"], place
        out[place[".offset"] : place[".offset"] + len(data)] = data
    return bytes(out)


def execute(target: Target, launch: Launch, function: Function) -> None:
    """Run a launch of a traced kernel on a GPU. NumPy arrays are copied there and back; device arrays are used as they are."""
    index = target.index or 0
    arch = target.arch or device_arch(index)
    made = compiled(function, machine(arch))
    if far(made.source, made.parameters, launch.arguments):
        made = compiled(function, wide_machine(arch))
    run_artifact(made, launch.arguments, launch.grid, index)


def run_saved(
    target: Target, artifact: Artifact, arguments: dict[str, Argument], grid: Sequence[int]
) -> None:
    """Run a loaded kernel on a GPU."""
    run_artifact(artifact, arguments, grid, target.index or 0)


def run_artifact(artifact: Artifact, arguments: dict[str, Argument], grid: Sequence[int], index: int) -> None:
    """Run compiled code on a device."""
    check_outputs(arguments, set(artifact.written))
    count = programs(grid)
    if count == 0:
        return
    call("hipSetDevice", index)
    copies: list[tuple[Any, int, int, Any]] = []
    log = new_log(artifact.messages)

    def pointer(name: str, argument: TensorArg) -> Any:
        if not isinstance(argument.data, np.ndarray):
            return np.uint64(argument.data.ptr)
        return copied(argument.data, name in artifact.written)

    def copied(data: Any, back: bool) -> Any:
        low, size = _span(data)
        held = call("hipMalloc", size + 512)
        shift = (data.ctypes.data + low) % 256  # alignment is kept
        copies.append((data if back else None, low, shift, held))
        memory = (ctypes.c_uint8 * size).from_address(data.ctypes.data + low) if data.size else b"\0" * 16
        call("hipMemcpy", int(held) + shift, memory, size, _kind("HostToDevice"))
        return np.uint64(int(held) + shift - low)

    stream = _stream()
    try:
        given = values(
            artifact.parameters, arguments, grid, pointer,
            counter=lambda: _counter(index, int(stream or 0)),
            log=copied(log, True) if artifact.messages else None,
        )  # fmt: skip
        data = packed(artifact.code, given)
        _, kernel = _function(artifact.code, artifact.entry, index)
        _start(kernel, count, artifact.threads, data, stream)
        if copies:
            call("hipDeviceSynchronize")
        for host, low, shift, held in copies:
            if host is not None and host.size:
                size = _span(host)[1]
                raw = np.empty(size, np.uint8)
                call("hipMemcpy", raw, int(held) + shift, size, _kind("DeviceToHost"))
                host[...] = np.ndarray(host.shape, host.dtype, raw.data, -low, host.strides)
    finally:
        for *_, held in copies:
            call("hipFree", held)
    show(log, artifact.messages)


def _start(kernel: Any, count: int, threads: int, data: bytes, stream: Any) -> None:
    buffer, size = ctypes.create_string_buffer(data, len(data)), ctypes.c_size_t(len(data))
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 3)
    call("hipModuleLaunchKernel", kernel, count, 1, 1, threads, 1, 1, 0, stream, None, extra)


@functools.cache
def _counter(index: int, stream: int) -> np.uint64:
    """The address of zeros from which the programs of a launch are drawn; the launch leaves them at zero.

    Launches on one stream of a device run one after another, and share them.
    """
    held = call("hipMalloc", 16)
    call("hipMemcpy", int(held), b"\0" * 16, 16, _kind("HostToDevice"))
    _COUNTERS.append(held)
    return np.uint64(int(held))


#: Memory of counters, which is never given back.
_COUNTERS: list[Any] = []


def _stream() -> Any:
    """PyTorch's current stream if PyTorch is in use, else the default one."""
    import sys

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and getattr(torch.version, "hip", None):
        return torch.cuda.current_stream().cuda_stream
    return None


def _kind(name: str) -> Any:
    from hip import hip

    return getattr(hip.hipMemcpyKind, f"hipMemcpy{name}")


def _span(array: Any) -> tuple[int, int]:
    """(offset of the lowest byte, number of bytes) of the memory that an array covers."""
    if not array.size:
        return 0, 16
    steps = [s * (n - 1) for s, n in zip(array.strides, array.shape, strict=True)]
    low = sum(min(0, s) for s in steps)
    return low, sum(max(0, s) for s in steps) + array.itemsize - low
