"""The kernel library. `kittens.ops` calls these on arrays; each can also be called, shown and compiled by itself."""

from __future__ import annotations

from kittens.kernels.attention import attention_forward
from kittens.kernels.products import matmul
from kittens.kernels.softmaxes import softmax

__all__ = ["attention_forward", "matmul", "softmax"]
