"""Example arguments for the kernels of the library: what `kittens show` and the benches look at.

Arguments are `kt.spec`s, so nothing is allocated. A new kernel gets one line in `EXAMPLES`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kittens.arguments import TensorArg, spec
from kittens.dtypes import bfloat16, float32, int32, int64
from kittens.errors import ArgumentError
from kittens.kernel import Kernel


@dataclass(frozen=True)
class Example:
    """Arguments and constants with which a kernel can be traced."""

    args: tuple[Any, ...] = ()
    constants: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(kernel: Kernel) -> Example:
        """The example of a kernel of the library; an empty one if there is none."""
        return EXAMPLES.get(kernel.name, Example())


def _x(*shape: int) -> TensorArg:
    return spec(bfloat16, shape)


def _f(*shape: int) -> TensorArg:
    return spec(float32, shape)


def _ints(*shape: int) -> TensorArg:
    return spec(int32, shape)


def _labels(*shape: int) -> TensorArg:
    return spec(int64, shape)


_ROWS = _x(4096, 4096)  # a batch of tokens
_HEADS = _x(2, 16, 2048, 128)  # queries, keys or values
_STATS = _f(2, 16, 2048)  # a number for each query
_SCALE = {"scale": 128**-0.5, "right": 0}  # causal


def _packed(heads: int) -> TensorArg:
    """Packed sequences (8192, heads, 128) as kernels see them, by heads."""
    return spec(bfloat16, (heads, 8192, 128), (128, heads * 128, 1))


_PACKED = (*3 * (_packed(16),), *2 * (_ints(9),))  # q, k and v of eight sequences

EXAMPLES: dict[str, Example] = {
    "activation": Example((_ROWS, _ROWS), {"function": "gelu"}),
    "add": Example((_ROWS, _ROWS, _ROWS)),
    "attention_backward_kv": Example(
        (_HEADS, _HEADS, _HEADS, _HEADS, _STATS, _STATS, _HEADS, _HEADS), _SCALE
    ),
    "attention_backward_q": Example((_HEADS, _HEADS, _HEADS, _HEADS, _STATS, _STATS, _HEADS), _SCALE),
    "attention_combine": Example((_f(8, 4, 32, 1, 128), _f(8, 4, 32, 1), _x(4, 32, 1, 128), _f(4, 32, 1))),
    "attention_delta": Example((_HEADS, _HEADS, _STATS, _STATS, _STATS)),
    "attention_forward": Example((_HEADS, _HEADS, _HEADS, _HEADS, _STATS), _SCALE),
    "attention_split": Example(
        (_x(4, 8, 4, 128), *2 * (_x(4, 8, 8192, 128),), _f(8, 4, 8, 4, 128), _f(8, 4, 8, 4), _ints(4)),
        {"scale": 128**-0.5},
    ),
    "attention_varlen_backward_kv": Example(
        (*_PACKED, 2048, _packed(16), *2 * (_f(16, 8192),), *2 * (_packed(16),)), _SCALE
    ),
    "attention_varlen_backward_q": Example(
        (*_PACKED, 2048, _packed(16), *2 * (_f(16, 8192),), _packed(16)), _SCALE
    ),
    "attention_varlen_forward": Example((*_PACKED, 2048, _packed(16), _f(16, 8192)), _SCALE),
    "copy": Example((_ROWS, _ROWS)),
    "cross_entropy_backward": Example((_x(4096, 32000), _labels(4096), _f(4096), _f(4096), _x(4096, 32000))),
    "cross_entropy_forward": Example((_x(4096, 32000), _labels(4096), _f(4096), _f(4096))),
    "dropout_residual_layer_norm": Example((_ROWS, _ROWS, _ROWS, _ROWS, 1), {"p": 0.1, "eps": 1e-5}),
    "embedding": Example((_x(32000, 4096), _labels(4096), _ROWS)),
    "gated": Example((_ROWS, _ROWS, _ROWS), {"function": "silu"}),
    "l2_normalize": Example((_ROWS, _ROWS), {"eps": 1e-12}),
    "layer_norm": Example((_ROWS, _ROWS, _x(4096), _x(4096)), {"eps": 1e-5}),
    "matmul": Example((_ROWS, _ROWS, _ROWS)),
    "matmul_combine": Example((_f(29, 256, 256), _x(256, 256))),
    "matmul_split": Example((_x(256, 16384), _x(16384, 256), _f(29, 256, 256))),
    "mean_pool": Example((_x(8, 512, 384), _f(8, 512), _x(8, 384))),
    "rms_norm": Example((_ROWS, _ROWS, _x(4096)), {"eps": 1e-6}),
    "rotary": Example((_HEADS, _f(2048, 64), _f(2048, 64), _HEADS)),
    "softmax": Example((_ROWS, _ROWS)),
    "transpose": Example((_ROWS, _ROWS)),
}


def _attention(b: int, h: int, n: int, d: int) -> Example:
    heads = _x(b, h, n, d)
    return Example((heads, heads, heads, heads, _f(b, h, n)), {"scale": d**-0.5, "right": 0})


def _rows(kernel: str) -> Callable[[int, int], Example]:
    """The example of a kernel on rows with other rows, as `kittens.ops` runs it; vectors get the length of a row."""

    def made(m: int, n: int) -> Example:
        from kittens.ops.checks import tiles

        example = EXAMPLES[kernel]
        shapes = {2: (m, n), 1: (n,)}
        args = [spec(a.dtype, shapes[a.ndim]) if isinstance(a, TensorArg) else a for a in example.args]
        held = tiles(n, None) if "resident" in library(kernel).constants else {}
        return Example(tuple(args), {**example.constants, **held})

    return made


#: Kernels whose example can be had in other shapes: the names of the extents, and the example with them.
SHAPED: dict[str, tuple[str, Callable[..., Example]]] = {
    "attention_forward": ("B,H,N,D", _attention),
    "matmul": ("M,N,K", lambda m, n, k: Example((_x(m, k), _x(k, n), _x(m, n)))),
    "matmul_combine": ("S,M,N", lambda s, m, n: Example((_f(s, m, n), _x(m, n)))),
    "matmul_split": ("S,M,N,K", lambda s, m, n, k: Example((_x(m, k), _x(k, n), _f(s, m, n)))),
    **{
        name: ("M,N", _rows(name))
        for name in (
            "activation", "add", "dropout_residual_layer_norm", "gated", "l2_normalize", "layer_norm", "rms_norm",
            "softmax",
        )
    },
}  # fmt: skip


def shaped(kernel: Kernel, extents: Sequence[int]) -> Example:
    """The example of a kernel of the library in another shape. Raises ArgumentError if that is not known of it."""
    if kernel.name not in SHAPED:
        raise ArgumentError(
            f"no shape says what {kernel.name} takes",
            hint="describe its arguments, each with --arg float32[1024,64]",
        )
    names, made = SHAPED[kernel.name]
    if len(extents) != len(names.split(",")) or any(n < 1 for n in extents):
        raise ArgumentError(
            f"{kernel.name} takes a shape of {names}, not {','.join(map(str, extents))}",
            hint="extents are integers of at least 1",
        )
    return made(*extents)


def usual(kernel: Kernel) -> Example:
    """The example of a kernel, as `kittens.ops` runs it where that makes a difference."""
    if kernel.name in SHAPED and SHAPED[kernel.name][0] == "M,N":
        return shaped(kernel, EXAMPLES[kernel.name].args[0].shape)
    return Example.of(kernel)


@functools.cache
def kernels() -> dict[str, Kernel]:
    """The kernels of the library, by name."""
    package = importlib.import_module("kittens.kernels")
    modules = [package]
    modules += [
        importlib.import_module(f"kittens.kernels.{m.name}") for m in pkgutil.iter_modules(package.__path__)
    ]
    return {name: v for m in modules for name, v in sorted(vars(m).items()) if isinstance(v, Kernel)}


def library_names() -> list[str]:
    """Names of the kernels of the library."""
    return sorted(kernels())


def library(name: str) -> Kernel:
    """The kernel of the library called `name`. Raises ArgumentError, with the names, if there is none."""
    if name not in kernels():
        raise ArgumentError(
            f"the library has no kernel {name!r}",
            hint=f"it has {', '.join(library_names())}; others are named module:name or file.py:name",
        )
    return kernels()[name]
