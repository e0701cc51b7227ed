"""Arrays of other libraries, taken where they lie: CuPy's, torch's, and any that speak one of the two common protocols."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from typing import Any

from kittens.arguments import Reader, TensorArg, contiguous, on_device
from kittens.dtypes import DType, as_dtype
from kittens.errors import ArgumentError
from kittens.targets import Target

_DLPACK_DEVICES = (2, 13)  # kDLCUDA and kDLCUDAManaged


def adopt(array: Any) -> TensorArg | None:
    """Describe an array that lives on an NVIDIA GPU; None for any other."""
    library = type(array).__module__.partition(".")[0]
    if _elsewhere(library):
        return None
    if library == "torch":
        return _adopt_torch(array)
    if library == "cupy":
        strides = tuple(s // array.itemsize for s in array.strides)
        dtype, device = as_dtype(array.dtype), array.device.id
        return _describe(dtype, array.shape, strides, array.data.ptr, device, array, True)
    if library == "numpy":
        return None
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _adopt_interface(array, interface)
    where = getattr(array, "__dlpack_device__", None)
    if where is None or where()[0] not in _DLPACK_DEVICES:
        return None
    import cupy

    return adopt(cupy.from_dlpack(array))


def _elsewhere(library: str) -> bool:
    """Whether a library, which is in use, was built for GPUs of another vendor: its arrays look the same."""
    module = sys.modules.get(library)
    if library == "torch":
        return bool(getattr(module.version, "hip", None)) if module is not None else False
    return library == "cupy" and module is not None and bool(getattr(module.cuda.runtime, "is_hip", False))


def _adopt_torch(tensor: Any) -> TensorArg | None:
    if not getattr(tensor, "is_cuda", False):
        return None
    if tensor.is_neg():
        raise ArgumentError(
            "a tensor whose elements stand for their negatives (part of a conjugated one) is not for kernels",
            hint="pass tensor.resolve_neg()",
        )
    dtype = as_dtype(str(tensor.dtype)[6:])  # without "torch."
    shape, device = tuple(tensor.shape), tensor.device.index or 0
    return _describe(dtype, shape, tensor.stride(), tensor.data_ptr(), device, tensor, True)


def _adopt_interface(array: Any, interface: dict[str, Any]) -> TensorArg:
    dtype, shape = as_dtype(interface["typestr"]), tuple(interface["shape"])
    given = interface.get("strides")
    strides = contiguous(shape) if given is None else tuple(s // dtype.bytes for s in given)
    if interface.get("mask") is not None:
        raise ArgumentError("kernels know nothing of a mask", hint="pass an array without one")
    address, read_only = interface["data"]
    _follow(interface)
    return _describe(dtype, shape, strides, address or 0, _device_of(address), array, not read_only)


def _follow(interface: dict[str, Any]) -> None:
    """Let the current stream wait for what an array's owner has queued on another one."""
    stream = interface.get("stream")
    if stream is None:
        return
    import cupy

    current = cupy.cuda.get_current_stream()
    # 1 and 2 stand for the default streams; 0 is no stream of the protocol.
    if stream != (current.ptr or 1):
        current.wait_event(cupy.cuda.ExternalStream(stream).record())


def _device_of(address: int) -> int:
    """The device on which an address lies."""
    if not address or _single():
        return 0
    import cupy

    return int(cupy.cuda.runtime.pointerGetAttributes(address).device)


@functools.cache
def _single() -> bool:
    """Whether there is no second device that an array could live on."""
    from kittens.backends.cuda import missing
    from kittens.backends.cuda.prepared import devices

    return "execute" in missing() or devices() < 2


def _describe(
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    address: int,
    device: int,
    owner: Any,
    writable: bool,
) -> TensorArg:
    return on_device(owner, _target(device), dtype, shape, strides, address, writable)


@functools.cache
def _target(device: int) -> Target:
    return Target("cuda") if device == 0 else Target("cuda", index=device)


def reader(array: Any) -> Reader | None:
    """How arrays of the class of this one are read quickly."""
    kind = type(array)
    if _elsewhere(kind.__module__.partition(".")[0]):
        return None
    name = f"{kind.__module__}.{kind.__name__}"
    if name in ("torch.Tensor", "torch.nn.parameter.Parameter"):
        # Where elements lie follows from the shape if they are contiguous. Only the imaginary parts of complex numbers can
        # stand for their negatives, and those are not aligned.
        strides, negative = "{x}.is_contiguous() or {x}.stride()", "{odd} and {x}.is_neg()"
        device = "{x}.is_cuda" if _single() else "{x}.device"
        key = "{x}.shape", strides, "{x}.dtype", device, negative
        return Reader(key, "{x}.data_ptr()", empty=_torch_maker)
    if name == "cupy.ndarray":
        strides = "{x}._c_contiguous or {x}.strides" if hasattr(array, "_c_contiguous") else "{x}.strides"
        devices = () if _single() else ("{x}.data.device_id",)
        return Reader(("{x}.shape", strides, "{x}.dtype", *devices), "{x}.data.ptr", empty=_cupy_maker)
    if name.partition(".")[0] in ("torch", "cupy") or not hasattr(array, "__cuda_array_interface__"):
        return None
    address = "{x}.__cuda_array_interface__['data'][0] or 0"
    return Reader(("cuda_interface({x})",), address, {"cuda_interface": _key}, _cupy_maker)


def _torch_maker(shape: tuple[int, ...], dtype: DType, like: Any) -> Callable[[Any], Any]:
    import torch

    wanted = getattr(torch, dtype.name)
    if like.shape == shape and like.dtype is wanted and like.is_contiguous():
        return torch.empty_like
    return operator.methodcaller("new_empty", shape, dtype=wanted)


def _cupy_maker(shape: tuple[int, ...], dtype: DType, like: Any) -> Callable[[Any], Any]:
    import cupy

    described = adopt(like)
    assert described is not None and described.target is not None
    index, numpy = described.target.index or 0, dtype.numpy
    if _single():
        return lambda x: cupy.ndarray(shape, numpy)

    def make(x: Any) -> Any:
        with cupy.cuda.Device(index):
            return cupy.ndarray(shape, numpy)

    return make


def _key(array: Any) -> Any:
    """What a launch depends on of an array with __cuda_array_interface__."""
    interface = array.__cuda_array_interface__
    _follow(interface)
    address, read_only = interface["data"]
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    masked = interface.get("mask") is not None
    return interface["typestr"], shape, strides, read_only, masked, _device_of(address)


def empty(like: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """A new array on the device where `like` lives, torch's if that is torch's and else CuPy's; None if it lives on none."""
    library = type(like).__module__.partition(".")[0]
    if _elsewhere(library):
        return None
    if library == "torch":
        if not like.is_cuda:
            return None
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=like.device)
    described = adopt(like)
    if described is None or described.target is None:
        return None
    import cupy

    with cupy.cuda.Device(described.target.index or 0):
        return cupy.empty(shape, dtype.numpy)
