"""Launches made ready: everything that stays the same from call to call is found out, laid out and checked once.

What is left for a call is to write the addresses (and the numbers that a kernel takes at run time) into a block of
arguments, to ask for the caller's stream, and to tell the driver.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kittens.arguments import Argument, TensorArg
from kittens.artifact import Artifact, Parameter
from kittens.backends.cuda.counters import counters
from kittens.backends.cuda.maps import mapper
from kittens.errors import CheckError
from kittens.runtime import programs

_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT: a thread's first call to the driver
_SHARED_LIMIT = 48 * 1024  # above which a kernel has to be told that it may have so much
_MAX_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def driver_errors() -> tuple[type[Exception], ...]:
    """The exceptions by which CuPy reports what went wrong on a device."""
    import cupy

    return (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError)


@functools.cache
def devices() -> int:
    """How many devices there are."""
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


@functools.cache
def processors(index: int) -> int:
    """How many multiprocessors a device has."""
    import cupy

    return int(cupy.cuda.Device(index).attributes["MultiProcessorCount"])


@functools.cache
def _zeros(index: int) -> Any:
    import cupy

    with cupy.cuda.Device(index):
        return cupy.zeros(256, cupy.uint8)


def _spare(index: int) -> int:
    """The address of some zeros on a device."""
    return int(_zeros(index).data.ptr)


@functools.lru_cache(1024)
def function(code: bytes, entry: str, index: int, shared: int) -> Any:
    """Compiled code, loaded on a device."""
    import cupy
    from cuda.bindings import driver as cu

    with cupy.cuda.Device(index):
        # Loading is legal while a stream is captured into a graph, if one says that one knows.
        _, mode = cu.cuThreadExchangeStreamCaptureMode(cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            module = cupy.cuda.function.Module()
            module.load(code)
            found = module.get_function(entry)  # holds its module
            if shared > _SHARED_LIMIT:
                cupy.cuda.driver.funcSetAttribute(found.ptr, _MAX_SHARED, shared)
            cupy.cuda.driver.funcGetAttribute(4, found.ptr)  # loads what is loaded lazily
        finally:
            cu.cuThreadExchangeStreamCaptureMode(mode)
        return found


class Layout:
    """How a kernel's arguments lie in memory, 8 bytes for each: those that change come first, as a launch is given them."""

    def __init__(self, artifact: Artifact, arguments: dict[str, Argument], grid: Sequence[int]):
        given = {n: a for n, a in arguments.items() if a is not None}
        numbers = {n: i for i, n in enumerate(given)}
        #: "p" for each address, and the kind ("i", "f") of each scalar
        self.kinds = "".join("p" if isinstance(a, TensorArg) else a.dtype.kind for a in given.values())
        self.maps: list[
            tuple[int, int, Parameter]
        ] = []  # place in the table, number of the tensor, and which map
        self.counter: int | None = None  # the word that holds a counter's address
        places: list[int] = []
        fixed: list[int] = []
        for p in artifact.parameters:
            if p.kind in ("pointer", "scalar"):
                places.append(numbers[p.name])
                continue
            places.append(len(given) + len(fixed))
            if p.kind == "counter":
                self.counter = len(given) + len(fixed)
            if p.kind == "map":
                self.maps.append((len(places) - 1, numbers[p.name], p))
            fixed.append(0 if p.kind in ("map", "counter") else _fixed(p, arguments, grid))
        self.places = tuple(places)
        # A device is little-endian: the first half of such a word is the number in 32 bits.
        self.words = np.array([0] * len(given) + fixed + [0], np.int64).tobytes()


def _fixed(p: Parameter, arguments: dict[str, Argument], grid: Sequence[int]) -> int:
    """The value of a parameter that is the same for all launches like this one."""
    if p.kind == "grid":
        return grid[p.axis]
    argument = arguments[p.name]
    assert isinstance(argument, TensorArg), p
    return argument.shape[p.axis] if p.kind == "extent" else argument.strides[p.axis]


class Block:
    """The arguments of one launch in memory: words, and a table of pointers to them. After the launch it can be used again."""

    __slots__ = ("config", "floats", "table", "tables", "words")

    def __init__(self, layout: Layout, config: Any):
        count = len(layout.words) // 8
        self.words = (ctypes.c_uint64 * count).from_buffer_copy(layout.words)
        self.floats = (ctypes.c_float * (2 * count)).from_buffer(self.words)
        start = ctypes.addressof(self.words)
        self.table = (ctypes.c_uint64 * max(1, len(layout.places)))(*(start + 8 * at for at in layout.places))
        self.tables = ctypes.addressof(self.table)
        self.config = config


@dataclass(frozen=True)
class Stream:
    """How the caller's current stream is got: an expression, and what it uses."""

    text: str
    names: Mapping[str, Any]


def prepare(
    artifact: Artifact, arguments: dict[str, Argument], grid: Sequence[int], index: int, stream: Stream
) -> Callable[..., None]:
    """A function that launches compiled code on a device: it takes an address for each tensor, and each scalar, in order.

    arguments: those of the launch, or any like them. Raises CheckError for what the driver reports, now or when called.
    """
    count = programs(grid)
    if not count:
        return lambda *values: None
    import cupy

    blocks = artifact.blocks(count, processors(index) if artifact.persistent else 0)
    said = (
        f"{artifact.kernel} on cuda:{index}, grid {tuple(grid)} ({blocks} blocks of {artifact.threads} threads,"
        f" {artifact.shared_bytes} bytes of shared memory)"
    )
    errors = driver_errors()
    try:
        kernel = function(artifact.code, artifact.entry, index, artifact.shared_bytes)
    except errors as error:
        raise CheckError(f"{said}: the code could not be loaded: {error}") from error
    layout = Layout(artifact, arguments, grid)
    finders = []
    for _, _, p in layout.maps:
        tensor = arguments[p.name]
        assert isinstance(tensor, TensorArg) and p.map is not None, p
        finders.append(mapper(p.map, tensor, functools.partial(_spare, index)))
    configured = artifact.cluster > 1 or artifact.early
    pool: list[Block] = []  # threads may launch at once: each takes a block, and lists are safe to take from

    start: Callable[..., None] = _start_configured if configured else cupy.cuda.driver.launchKernel

    def new() -> Block:
        return Block(layout, _configuration(blocks, artifact) if configured else None)

    def recover(error: Exception, *start_with: Any) -> None:
        """Start again where a thread's first call to the driver found no context; else say what went wrong."""
        if getattr(error, "status", 0) == _NO_CONTEXT:
            cupy.cuda.runtime.setDevice(index)
            try:
                return start(*start_with)
            except errors as other:
                error = other
        raise CheckError(f"{said}: {error}") from error

    def elsewhere(*values: Any) -> None:
        with cupy.cuda.Device(index):
            launch(*values)

    names = {
        **stream.names, "pop": pool.pop, "push": pool.append, "new": new, "errors": errors, "recover": recover,
        "elsewhere": elsewhere, "device": cupy.cuda.runtime.getDevice, "index": index, "kernel": kernel,
        "pointer": kernel.ptr, "blocks": blocks, "threads": artifact.threads, "shared": artifact.shared_bytes,
        "counter": counters(index) if layout.counter is not None else None,
        "start": start,
        **{f"find{n}": find for n, find in enumerate(finders)},
    }  # fmt: skip
    places = tuple((place, number) for place, number, _ in layout.maps)
    launch: Callable[..., None] = _text(
        layout.kinds, places, layout.counter, stream.text, configured, devices() > 1, tuple(names)
    )(**names)
    return launch


@functools.lru_cache(1024)
def _text(
    kinds: str,
    maps: tuple[tuple[int, int], ...],
    counter: int | None,
    stream: str,
    configured: bool,
    several: bool,
    names: tuple[str, ...],
) -> Callable[..., Callable[..., None]]:
    """The maker of a launch's function, which is written out: a loop over a few arguments takes as long as a launch."""
    values = ", ".join(f"v{i}" for i in range(len(kinds)))
    lines = [f"if device() != index: return elsewhere({values})"] if several else []
    lines += ["try: block = pop()", "except IndexError: block = new()", "words = block.words"]
    for i, kind in enumerate(kinds):
        written = {
            "p": f"words[{i}] = v{i}",
            "f": f"block.floats[{2 * i}] = v{i}",
            "i": f"words[{i}] = int(v{i})",
        }
        lines.append(written[kind])
    for n, (place, number) in enumerate(maps):
        lines += [f"map{n} = find{n}(v{number})", f"block.table[{place}] = map{n}[1]"]
    given = "pointer, blocks, 1, 1, threads, 1, 1, shared, stream, block.tables, 0"
    if configured:
        given = "block.config, pointer, stream, block.tables"
    lines += [
        f"stream = {stream}",
        *([f"words[{counter}] = counter(stream)"] if counter is not None else []),
        f"try: start({given})",
        f"except errors as error: recover(error, {given})",
    ]
    lines += ["push(block)"]
    text = "\n".join(
        [
            f"def make({', '.join(names)}):",
            f"  def launch({values}):",
            *(f"    {line}" for line in lines),
            "  return launch",
        ]
    )
    made: dict[str, Any] = {}
    exec(compile(text, f"<launch, written by {__name__}>", "exec"), made)
    return made["make"]


def _start_configured(config: Any, pointer: int, stream: int, tables: int) -> None:
    """Start a kernel with more to say than how many blocks of how many threads."""
    import cupy
    from cuda.bindings import driver as cu

    config.hStream = stream
    (error,) = cu.cuLaunchKernelEx(config, pointer, tables, 0)
    if int(error):
        raise cupy.cuda.driver.CUDADriverError(int(error))


def _configuration(blocks: int, artifact: Artifact) -> Any:
    """The configuration of a launch in clusters, or of one that may start early; but for its stream."""
    from cuda.bindings import driver as cu

    attributes = []
    if artifact.cluster > 1:
        attributes.append(cu.CUlaunchAttribute())
        attributes[-1].id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = attributes[-1].value.clusterDim
        size.x, size.y, size.z = artifact.cluster, 1, 1
    if artifact.early:
        attributes.append(cu.CUlaunchAttribute())
        attributes[-1].id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attributes[-1].value.programmaticStreamSerializationAllowed = 1
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = artifact.threads, 1, 1
    config.sharedMemBytes = artifact.shared_bytes
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config
