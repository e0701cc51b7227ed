"""Ready operations on arrays: `kittens.ops.matmul(a, b)`. Each checks its arguments, makes its output, runs a
kernel.

Arrays are whatever an installed backend takes (NumPy arrays always). Outputs are new arrays of the library
and device of the first input, unless `out=` names one. Inputs are never converted: strides, such as those of
the view `a.T`, are passed on, and what a kernel cannot take is refused. Nor are they copied, but by `matmul` in
the case that it describes. `on=` names a target; the default is where the arrays live. `tune=` sets tunables
of the kernel, as in tune={"BM": 128}.

Floats are float32, float16 and bfloat16, unless said otherwise. Arithmetic is in float32, results are rounded
once.
"""

from __future__ import annotations

from kittens.ops.heads import (
    attention,
    attention_backward,
    attention_decode,
    attention_varlen,
    attention_varlen_backward,
)
from kittens.ops.pointwise import (
    add,
    embedding,
    gelu,
    gelu_and_mul,
    mean_pool,
    relu,
    rotary,
    silu,
    silu_and_mul,
)
from kittens.ops.products import matmul
from kittens.ops.rows import (
    cross_entropy,
    cross_entropy_backward,
    dropout_residual_layer_norm,
    l2_normalize,
    layer_norm,
    rms_norm,
    softmax,
)

__all__ = [
    "add", "attention", "attention_backward", "attention_decode", "attention_varlen",
    "attention_varlen_backward", "cross_entropy", "cross_entropy_backward",
    "dropout_residual_layer_norm", "embedding", "gelu", "gelu_and_mul", "l2_normalize", "layer_norm",
    "matmul", "mean_pool", "relu", "rms_norm", "rotary", "silu", "silu_and_mul", "softmax",
]  # fmt: skip
