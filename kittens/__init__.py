"""kittens: one Python tile language for GPUs of every vendor.

    import kittens as kt

    @kt.kernel(grid=lambda x, BLOCK: kt.cdiv(x.shape[0], BLOCK))
    def double(x, y, *, BLOCK=kt.tunable(256)):
        i = kt.program_id()
        kt.store(y, i, kt.load(x, i, BLOCK) * 2)

Call `double(x, y)` on arrays, or look at `double.ir(x, y)`. The names below are the language; `kittens.ops` has ready
operations on arrays.
"""

from __future__ import annotations

from typing import Any

from kittens.arguments import spec
from kittens.control import range_ as range
from kittens.control import when
from kittens.dtypes import (
    bfloat16,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from kittens.dtypes import bool_ as bool
from kittens.errors import (
    ArgumentError,
    CheckError,
    ControlFlowError,
    DTypeError,
    InternalError,
    KittensError,
    ScopeError,
    ShapeError,
    TargetError,
    UnavailableError,
)  # fmt: skip
from kittens.kernel import Kernel, kernel, tunable
from kittens.language import (
    abs,
    arange,
    cdiv,
    ceil,
    clamp,
    cols,
    cos,
    cumsum,
    device_assert,
    device_print,
    erf,
    exp,
    exp2,
    expand_dims,
    floor,
    fma,
    full,
    gelu,
    indices,
    inf,
    isnan,
    join,
    load,
    log,
    log2,
    maximum,
    minimum,
    mma,
    mma_scaled,
    nan,
    neg,
    num_programs,
    program_id,
    random_bits,
    random_uniform,
    reciprocal,
    relu,
    round,
    round_up,
    rows,
    rsqrt,
    scalar,
    sigmoid,
    silu,
    sin,
    split,
    sqrt,
    store,
    store_add,
    tanh,
    trunc,
    where,
    zeros,
)  # fmt: skip
from kittens.tensor import Tensor
from kittens.tile import Tile, static, transpose

__all__ = [
    "ArgumentError",
    "CheckError",
    "ControlFlowError",
    "DTypeError",
    "InternalError",
    "Kernel",
    "KittensError",
    "ScopeError",
    "ShapeError",
    "TargetError",
    "Tensor",
    "Tile",
    "UnavailableError",
    "abs",
    "arange",
    "bfloat16",
    "bool",
    "cdiv",
    "ceil",
    "clamp",
    "cols",
    "cos",
    "cumsum",
    "device_assert",
    "device_print",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "float64",
    "floor",
    "fma",
    "full",
    "gelu",
    "indices",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "isnan",
    "join",
    "kernel",
    "load",
    "log",
    "log2",
    "maximum",
    "minimum",
    "mma",
    "mma_scaled",
    "nan",
    "neg",
    "num_programs",
    "program_id",
    "random_bits",
    "random_uniform",
    "range",
    "reciprocal",
    "relu",
    "round",
    "round_up",
    "rows",
    "rsqrt",
    "scalar",
    "sigmoid",
    "silu",
    "sin",
    "spec",
    "split",
    "sqrt",
    "static",
    "store",
    "store_add",
    "tanh",
    "transpose",
    "trunc",
    "tunable",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "when",
    "where",
    "zeros",
]


def __getattr__(name: str) -> Any:
    """`kittens.ops`, `kittens.kernels` and the version, on first use."""
    import importlib

    if name in ("ops", "kernels"):
        return importlib.import_module(f"kittens.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("kittens-gpu")
    raise AttributeError(f"module 'kittens' has no attribute {name!r}")
