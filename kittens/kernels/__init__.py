"""The kernel library: what `kittens.ops` runs. Each can be called, shown and compiled by itself too."""

from __future__ import annotations

from kittens.kernels.attention import attention_forward
from kittens.kernels.attention_backward import attention_backward_kv, attention_backward_q, attention_delta
from kittens.kernels.attention_decode import attention_combine, attention_split
from kittens.kernels.attention_varlen import (
    attention_varlen_backward_kv,
    attention_varlen_backward_q,
    attention_varlen_forward,
)
from kittens.kernels.norms import dropout_residual_layer_norm, l2_normalize, layer_norm, rms_norm
from kittens.kernels.pointwise import activation, add, copy, gated, transpose
from kittens.kernels.products import matmul, matmul_combine, matmul_split
from kittens.kernels.rotations import rotary
from kittens.kernels.sequences import embedding, mean_pool
from kittens.kernels.softmaxes import cross_entropy_backward, cross_entropy_forward, softmax

__all__ = [
    "activation", "add", "attention_backward_kv", "attention_backward_q", "attention_combine", "attention_delta",
    "attention_forward", "attention_split", "attention_varlen_backward_kv", "attention_varlen_backward_q",
    "attention_varlen_forward", "copy", "cross_entropy_backward", "cross_entropy_forward",
    "dropout_residual_layer_norm", "embedding", "gated", "l2_normalize", "layer_norm", "matmul",
    "matmul_combine", "matmul_split", "mean_pool", "rms_norm", "rotary", "softmax", "transpose",
]  # fmt: skip
