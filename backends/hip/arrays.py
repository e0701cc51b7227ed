"""Arrays of libraries built for AMD GPUs, taken where they lie: torch's and CuPy's, which both call the device "cuda"."""

from __future__ import annotations

import sys
from typing import Any

from kittens.arguments import TensorArg, on_device
from kittens.dtypes import DType, as_dtype
from kittens.targets import Target


def _library(array: Any) -> str:
    """The library of an array, if it was built for AMD GPUs; else an empty string."""
    name = type(array).__module__.partition(".")[0]
    module = sys.modules.get(name)
    if module is None or name not in ("torch", "cupy"):
        return ""
    ours = module.version.hip if name == "torch" else getattr(module.cuda.runtime, "is_hip", False)
    return name if ours else ""


def adopt(array: Any) -> TensorArg | None:
    """Describe an array that lives on an AMD GPU; None for any other."""
    library = _library(array)
    if library == "torch" and array.is_cuda:
        dtype, index = as_dtype(str(array.dtype)[6:]), array.device.index or 0  # without "torch."
        shape, strides = tuple(array.shape), tuple(array.stride())
        return on_device(array, _target(index), dtype, shape, strides, array.data_ptr())
    if library == "cupy":
        strides = tuple(s // array.itemsize for s in array.strides)
        dtype, index = as_dtype(array.dtype), array.device.id
        return on_device(array, _target(index), dtype, tuple(array.shape), strides, array.data.ptr)
    return None


def _target(index: int) -> Target:
    return Target("hip", index=index or None)


def empty(like: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """A new array of the library and on the device of `like`; None if that is not ours."""
    described = adopt(like)
    if described is None or described.target is None:
        return None
    module = sys.modules[_library(like)]
    if module.__name__ == "torch":
        return module.empty(shape, dtype=getattr(module, dtype.name), device=like.device)
    with module.cuda.Device(described.target.index or 0):
        return module.empty(shape, dtype.numpy)
