"""A stand-in for CuPy and for the driver's bindings: arrays in host memory, and launches that are written down.

`install(monkeypatch)` puts it in their place. What a launch was given is decoded by the parameters of the artifact, so a
test sees what a kernel would see.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from kittens.artifact import Artifact
from kittens.dtypes import ALL, as_dtype


@dataclasses.dataclass
class Started:
    """A launch as the driver was told of it."""

    function: int
    blocks: int
    threads: int
    shared: int
    stream: int
    device: int
    parameters: dict[str, Any]
    cluster: int = 1
    early: bool = False


class CUDADriverError(Exception):
    def __init__(self, status: int):
        super().__init__(f"CUDA_ERROR_{status}")
        self.status = status


class CUDARuntimeError(CUDADriverError):
    pass


class Memory:
    def __init__(self, host: np.ndarray, device: int):
        self.host, self.device_id = host, device
        self.ptr = host.ctypes.data if host.size else 0


class ndarray:
    """An array of the fake: of memory of the host, on a device; or, as CuPy makes one, of a shape and a type, not set."""

    def __init__(self, of: np.ndarray | tuple[int, ...], device: Any = 0):
        if isinstance(of, tuple):
            of, device = aligned(of, device, 0xAB), _fakes[-1].device
        self.host = host = of
        self.data = Memory(host, device)
        self.device = types.SimpleNamespace(id=device)

    shape = property(lambda self: self.host.shape)
    strides = property(lambda self: self.host.strides)
    dtype = property(lambda self: self.host.dtype)
    itemsize = property(lambda self: self.host.itemsize)
    size = property(lambda self: self.host.size)
    _c_contiguous = property(lambda self: bool(self.host.flags.c_contiguous))

    def __getitem__(self, index: Any) -> ndarray:
        return ndarray(self.host[index], self.data.device_id)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.host[index] = value

    def reshape(self, shape: Any) -> ndarray:
        view = self.host.view()
        view.shape = shape
        return ndarray(view, self.data.device_id)

    def swapaxes(self, one: int, other: int) -> ndarray:
        return ndarray(self.host.swapaxes(one, other), self.data.device_id)

    def set(self, array: np.ndarray) -> None:
        self.host[...] = array

    def get(self) -> np.ndarray:
        return self.host


ndarray.__module__ = "cupy"
_fakes: list[Fake] = []


class Tensor:
    """A tensor as torch has them, of the fake's memory."""

    def __init__(self, host: np.ndarray, negative: bool = False, cuda: bool = True):
        self.host, self.negative, self.is_cuda = host, negative, cuda
        self.device = types.SimpleNamespace(index=0)

    shape = property(lambda self: self.host.shape)
    dtype = property(lambda self: _torch_dtypes[self.host.dtype.name])

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.host.itemsize for s in self.host.strides)

    def is_contiguous(self) -> bool:
        return bool(self.host.flags.c_contiguous)

    def is_neg(self) -> bool:
        return self.negative

    def data_ptr(self) -> int:
        return self.host.ctypes.data if self.host.size else 0

    def new_empty(self, shape: tuple[int, ...], *, dtype: Any) -> Tensor:
        return Tensor(aligned(shape, as_dtype(str(dtype)[6:]).numpy, 0xAB))

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor(self.host[index], self.negative)

    def reshape(self, shape: Any) -> Tensor:
        view = self.host.view()
        view.shape = shape
        return Tensor(view, self.negative)

    def swapaxes(self, one: int, other: int) -> Tensor:
        return Tensor(self.host.swapaxes(one, other), self.negative)


Tensor.__module__ = "torch"


class _TorchDtype:
    def __init__(self, name: str):
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


_torch_dtypes = {d.name: _TorchDtype(d.name) for d in ALL}


def _torch(fake: Fake) -> Any:
    """The module torch."""
    torch: Any = types.ModuleType("torch")
    torch.empty_like = lambda x: Tensor(aligned(x.host.shape, x.host.dtype, 0xAB))
    torch.version = types.SimpleNamespace(hip=None)
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 1000 + fake.stream)
    torch.empty = lambda shape, *, dtype, device: Tensor(aligned(shape, as_dtype(str(dtype)[6:]).numpy, 0xAB))
    for dtype in _torch_dtypes.values():
        setattr(torch, dtype.name, dtype)
    return torch


def aligned(shape: Any, dtype: Any, fill: int = 0) -> np.ndarray:
    """Host memory that begins at a multiple of 256, as a device's would."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.full(size + 256, fill, np.uint8)
    at = -raw.ctypes.data % 256
    return raw[at : at + size].view(dtype).reshape(shape)


class Fake:
    """The state of the stand-in. fail: statuses that the next launches give. artifacts: by the address of their function."""

    def __init__(self, count: int):
        _fakes.append(self)
        self.count = count
        self.started: list[Started] = []
        self.fail: list[int] = []
        self.artifacts: dict[int, Artifact] = {}
        self.local = threading.local()
        self.stream = 0
        self.capability = "90"
        self.context_of_threads = False  # whether a thread needs setDevice before it may launch
        self.encoded: list[dict[str, Any]] = []
        self.waits: list[Any] = []

    @property
    def device(self) -> int:
        return getattr(self.local, "device", 0)

    def set_device(self, index: int) -> None:
        self.local.device = index
        self.local.context = True

    def launch(
        self, function: int, blocks: int, threads: int, shared: int, stream: int, table: int, cluster: int
    ) -> None:
        if self.context_of_threads and not getattr(self.local, "context", False):
            raise CUDADriverError(201)
        if self.fail:
            raise CUDADriverError(self.fail.pop(0))
        seen: dict[str, Any] = {}
        parameters = self.artifacts[function].parameters
        pointers = (ctypes.c_uint64 * len(parameters)).from_address(table)
        for p, at in zip(parameters, pointers, strict=True):
            if p.kind == "map":
                seen[p.text] = ctypes.string_at(at, 128)
                continue
            ctype = {"kt_i64": ctypes.c_int64, "kt_i32": ctypes.c_int32, "float": ctypes.c_float}
            seen[p.text] = ctype.get(p.ctype, ctypes.c_uint64).from_address(at).value
        self.started.append(Started(function, blocks, threads, shared, stream, self.device, seen, cluster))


def install(monkeypatch: Any, count: int = 1) -> Iterator[Fake]:
    """Put the stand-in in the place of CuPy and of the driver, on a machine of `count` devices; a generator, for a fixture."""
    from kittens.backends.cuda import arrays, launch, prepared

    fake = Fake(count)
    cupy: Any = types.ModuleType("cupy")

    class Device:
        def __init__(self, index: int):
            self.index, self.before = index, 0
            self.compute_capability = fake.capability
            self.attributes = {"MultiProcessorCount": 4}

        def __enter__(self) -> None:
            self.before = fake.device
            fake.set_device(self.index)

        def __exit__(self, *_: Any) -> None:
            fake.set_device(self.before)

    class Module:
        def load(self, code: bytes) -> None:
            self.code = code

        def get_function(self, entry: str) -> Any:
            found = next(a for a in launched if a.entry == entry and a.code == self.code)
            address = 1000 + len(fake.artifacts)
            fake.artifacts[address] = found
            return types.SimpleNamespace(ptr=address, module=self)

    class Stream:
        def __init__(self, ptr: int):
            self.ptr = ptr

        def record(self) -> tuple[str, int]:
            return ("event", self.ptr)

        def wait_event(self, event: Any) -> None:
            fake.waits.append((self.ptr, event))

    def launch_kernel(f, gx, gy, gz, bx, by, bz, shared, stream, table, extra):  # type: ignore[no-untyped-def]
        assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0)
        fake.launch(f, gx, bx, shared, stream, table, 1)

    cupy.ndarray, cupy.uint8 = ndarray, np.uint8
    cupy.zeros = lambda shape, dtype: ndarray(aligned(shape, dtype), fake.device)
    cupy.empty = lambda shape, dtype: ndarray(aligned(shape, dtype, 0xAB), fake.device)
    cupy.cuda = types.SimpleNamespace(
        Device=Device,
        ExternalStream=Stream,
        get_current_stream=lambda: Stream(fake.stream),
        driver=types.SimpleNamespace(
            CUDADriverError=CUDADriverError,
            launchKernel=launch_kernel,
            funcSetAttribute=lambda *_: None,
            funcGetAttribute=lambda *_: 0,
        ),
        runtime=types.SimpleNamespace(
            streamIsCapturing=lambda stream: False,
            CUDARuntimeError=CUDARuntimeError,
            getDeviceCount=lambda: fake.count,
            getDevice=lambda: fake.device,
            setDevice=fake.set_device,
            deviceSynchronize=lambda: None,
            pointerGetAttributes=lambda address: types.SimpleNamespace(device=fake.count - 1),
        ),
        function=types.SimpleNamespace(Module=Module),
    )

    class Map:
        def __init__(self, said: dict[str, Any]):
            self.bytes = ctypes.create_string_buffer(
                f"map {len(fake.encoded)} at {said['address']:#x}".encode(), 128
            )

        def getPtr(self) -> int:
            return ctypes.addressof(self.bytes)

    def encode(kind, rank, address, extents, strides, box, steps, interleave, swizzle, promotion, fill):  # type: ignore[no-untyped-def]
        said = {"kind": kind, "rank": rank, "address": address, "extents": extents, "strides": strides, "box": box,
                "swizzle": swizzle, "promotion": promotion}  # fmt: skip
        fake.encoded.append(said)
        return 0, Map(said)

    def launch_clusters(config, function, table, extra):  # type: ignore[no-untyped-def]
        said = {a.id: a.value for a in config.attrs}
        assert config.numAttrs == len(said) > 0
        cluster = said["CLUSTER_DIMENSION"].clusterDim.x if "CLUSTER_DIMENSION" in said else 1
        early = said.get("PROGRAMMATIC_STREAM_SERIALIZATION")
        try:
            fake.launch(
                function,
                config.gridDimX,
                config.blockDimX,
                config.sharedMemBytes,
                config.hStream,
                table,
                cluster,
            )
            fake.started[-1].early = early is not None and early.programmaticStreamSerializationAllowed == 1
        except CUDADriverError as error:
            return (error.status,)
        return (0,)

    class Names:
        """Names of an enumeration, without their common beginning."""

        def __init__(self, beginning: str):
            self.beginning = beginning

        def __getattr__(self, name: str) -> str:
            return name.removeprefix(self.beginning)

    driver: Any = types.ModuleType("cuda.bindings.driver")
    driver.cuTensorMapEncodeTiled, driver.cuLaunchKernelEx = encode, launch_clusters
    driver.cuuint64_t = driver.cuuint32_t = int
    driver.CUtensorMapDataType = Names("CU_TENSOR_MAP_DATA_TYPE_")
    driver.CUtensorMapInterleave = Names("CU_TENSOR_MAP_INTERLEAVE_")
    driver.CUtensorMapSwizzle = Names("CU_TENSOR_MAP_SWIZZLE_")
    driver.CUtensorMapL2promotion = Names("CU_TENSOR_MAP_L2_PROMOTION_")
    driver.CUtensorMapFloatOOBfill = Names("CU_TENSOR_MAP_FLOAT_OOB_FILL_")
    driver.CUlaunchAttributeID = Names("CU_LAUNCH_ATTRIBUTE_")
    driver.CUstreamCaptureMode = Names("CU_STREAM_CAPTURE_MODE_")
    driver.cuThreadExchangeStreamCaptureMode = lambda mode: (0, mode)
    driver.CUlaunchAttribute = lambda: types.SimpleNamespace(
        value=types.SimpleNamespace(clusterDim=types.SimpleNamespace())
    )
    driver.CUlaunchConfig = types.SimpleNamespace
    bindings: Any = types.ModuleType("cuda.bindings")
    bindings.driver = driver

    launched: list[Artifact] = []
    compiled = launch.compiled

    def uncompiled(function: Any, machine: Any) -> Artifact:
        """What the compiler would give, but for the code."""
        from kittens.codegen.pipeline import artifact, planned

        made = artifact(function, planned(function, machine)[1], machine.target, str(function).encode(), {})
        launched.append(made)
        return made

    assert compiled is not uncompiled
    monkeypatch.setattr(launch, "compiled", uncompiled)
    monkeypatch.setattr("kittens.backends.cuda.missing", dict)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "torch", _torch(fake))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    caches = (
        arrays._single,
        launch.device_arch,
        prepared.devices,
        prepared.processors,
        prepared.function,
        prepared._zeros,
    )
    for cache in caches:
        cache.cache_clear()
    fake.launched = launched  # type: ignore[attr-defined]
    yield fake
    for cache in caches:
        cache.cache_clear()
