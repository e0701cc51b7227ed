"""The reference backend: runs the kernel function itself, eagerly, on NumPy arrays, one program after
another.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kittens.arguments import TensorArg
from kittens.dtypes import BY_NAME, FLOAT8, DType, as_dtype
from kittens.errors import ArgumentError, DTypeError, UnavailableError
from kittens.opset.elementwise import MATHEMATICAL
from kittens.plugins import hookimpl
from kittens.runtime import Launch, Run
from kittens.targets import Numerics, Target, TargetInfo

TARGET = Target("numpy")


@hookimpl
def kittens_targets() -> list[TargetInfo]:
    return [TargetInfo("numpy", "the reference, eager, on the CPU", can=("execute",))]


@hookimpl
def kittens_adopt(array: Any) -> TensorArg | None:
    if not isinstance(array, np.ndarray):
        return None
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError("kernels know nothing of a mask", hint="pass array.filled(...)")
    try:
        dtype = as_dtype(array.dtype)
    except DTypeError:
        raise DTypeError(
            f"NumPy arrays of {array.dtype} are not for kernels",
            hint=f"convert it to one of {', '.join(BY_NAME)}",
        ) from None
    size = array.itemsize
    if any(s % size for s in array.strides):
        raise ArgumentError(
            f"the strides {array.strides} of an array of {dtype} are no whole elements",
            hint="pass a copy of it",
        )
    bounds = getattr(np.lib, "array_utils", np).byte_bounds  # its place in NumPy 2, and in 1
    low, high = bounds(array)
    address = array.ctypes.data
    alignment = min(16, address & -address) if address else 16
    span = ("cpu", low, high) if array.size else None
    return TensorArg(
        dtype,
        array.shape,
        tuple(s // size for s in array.strides),
        TARGET,
        array,
        array.flags.writeable,
        alignment,
        span,
    )


@hookimpl
def kittens_empty(like: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    return np.empty(shape, dtype.numpy) if isinstance(like, np.ndarray) else None


@hookimpl
def kittens_numerics(target: Target) -> Numerics | None:
    if target.backend != "numpy":
        return None
    return Numerics(dict.fromkeys(MATHEMATICAL, 1.0), float8={d.name: "emulated" for d in FLOAT8}, turns=True)


@hookimpl
def kittens_tunables(target: Target, kernel: str, arguments: dict[str, Any]) -> dict[str, int] | None:
    """Larger tiles for large products: each operation costs Python time, whatever its size."""
    if target.backend != "numpy" or kernel != "matmul":
        return None
    tensors = [a for a in (arguments.get("a"), arguments.get("c")) if isinstance(a, TensorArg)]
    large = len(tensors) == 2 and tensors[0].shape[-1] * math.prod(tensors[1].shape) >= 1 << 24
    return {"BM": 128, "BN": 128, "BK": 256} if large else None


@hookimpl
def kittens_launch(target: Target, launch: Launch) -> Run | None:
    if target.backend != "numpy":
        return None
    if target.index:
        raise UnavailableError(f"there is no device {target.index} of numpy", hint="it has one: say 'numpy'")
    from kittens.backends.numpy.launch import execute

    execute(launch)
    return Run(launch.kernel.name, str(target), "executed", launch.grid, launch.constants)


def __getattr__(name: str) -> Any:
    """`checks`, on first use."""
    if name == "checks":
        from kittens.backends.numpy.launch import checks

        return checks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
