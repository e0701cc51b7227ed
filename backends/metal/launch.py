"""Running kernels on Apple GPUs through PyObjC. NumPy arrays are copied to buffers and outputs back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kittens.arguments import Argument, TensorArg, check_outputs
from kittens.artifact import Artifact
from kittens.backends.metal.compile import build_pipeline, device, emitted
from kittens.backends.metal.machine import machine
from kittens.codegen.launches import launches, values
from kittens.codegen.pipeline import planned
from kittens.codegen.printing import new_log, show
from kittens.errors import CheckError, UnavailableError
from kittens.ir import Function
from kittens.runtime import Launch, programs
from kittens.targets import Target

_pipelines: dict[tuple[int, str], Any] = {}
_queues: dict[int, Any] = {}


def device_arch(index: int) -> str:
    """The newest of the families that we know that a GPU says it is of; else the oldest."""
    gpu = device(index)
    return next((f"apple{n}" for n in (9, 8) if gpu.supportsFamily_(1000 + n)), "apple7")


def execute(target: Target, launch: Launch, function: Function) -> None:
    """Run a launch of a traced kernel and wait for it."""
    arch = target.arch or device_arch(target.index or 0)
    run_saved(target, emitted(*planned(function, machine(arch))), launch.arguments, launch.grid)


def run_saved(target: Target, kernel: Artifact, arguments: dict[str, Argument], grid: Sequence[int]) -> None:
    """Run a kernel, compiled when it is first seen in this process, and wait for it."""
    import Metal

    index = target.index or 0
    gpu = device(index)
    check_outputs(arguments, set(kernel.written))
    count = programs(grid)
    if count == 0:
        return
    held: list[tuple[Any, Any, int]] = []
    log = new_log(kernel.messages)

    def pointer(name: str, argument: TensorArg) -> Any:
        data = argument.data
        if not isinstance(data, np.ndarray):
            raise UnavailableError(
                f"{name} is a {type(data).__name__}: only NumPy arrays run on {target} yet"
            )
        return copied(data, name in kernel.written)

    def copied(data: Any, back: bool) -> Any:
        buffer, offset = _buffer(gpu, data)
        held.append((data if back else None, buffer, offset))
        return buffer, offset

    printed = copied(log, True) if kernel.messages else None
    found = values(kernel.parameters, arguments, grid, pointer, log=printed)
    if (index, kernel.source) not in _pipelines:
        _pipelines[index, kernel.source] = build_pipeline(gpu, kernel)
    if index not in _queues:
        _queues[index] = gpu.newCommandQueue()
    commands = _queues[index].commandBuffer()
    encoder = commands.computeCommandEncoder()
    encoder.setComputePipelineState_(_pipelines[index, kernel.source])
    for blocks, given in launches(kernel, found, count):  # each sees what those before it wrote
        for i, argument in enumerate(given):
            if isinstance(argument, bytes):
                encoder.setBytes_length_atIndex_(argument, len(argument), i)
            else:
                encoder.setBuffer_offset_atIndex_(*argument, i)
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(
            Metal.MTLSizeMake(blocks, 1, 1), Metal.MTLSizeMake(kernel.threads, 1, 1)
        )
    encoder.endEncoding()
    commands.commit()
    commands.waitUntilCompleted()
    if commands.error() is not None:
        raise CheckError(
            f"{kernel.kernel} on {target}, grid {tuple(grid)}: {commands.error().localizedDescription()}"
        )
    for array, buffer, offset in held:
        if array is not None and array.size:
            raw = buffer.contents().as_buffer(buffer.length())
            array[...] = np.ndarray(array.shape, array.dtype, raw, offset, array.strides)
    show(log, kernel.messages)


def _buffer(gpu: Any, array: Any) -> tuple[Any, int]:
    """A buffer with the memory that an array covers, and the bytes before its first element."""
    if array.size == 0:
        return gpu.newBufferWithLength_options_(16, 0), 0
    reach = [s * (n - 1) for s, n in zip(array.strides, array.shape, strict=True)]
    before = -sum(min(0, r) for r in reach)
    after = sum(max(0, r) for r in reach) + array.itemsize
    flat = np.zeros(before + after, np.uint8)  # bytes between the elements are not read
    np.ndarray(array.shape, array.dtype, flat.data, before, array.strides)[...] = array
    return gpu.newBufferWithBytes_length_options_(flat.tobytes(), flat.nbytes, 0), before
