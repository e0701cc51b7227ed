"""Sums of products that are cut short, as tensor cores of Ada and Hopper do of float8: a model that shares nothing with ours.

Source: Xie, Wang, Yang and Yang, "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores" (2025): terms are
aligned to the largest exponent, where a product's is the sum of its factors' and a subnormal number has that of the smallest
normal one; what lies beyond so many bits is dropped, and so is what a result has beyond as many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kittens.dtypes import DType


def exponents(x: np.ndarray, tiny: float) -> np.ndarray:
    """The exponent of each element as a format with this smallest normal number stores it; of zeros a very small one."""
    found = np.frexp(np.maximum(np.abs(x), tiny))[1] - 1
    return np.where(x == 0, -1000, found)


def cut_product(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None, dtypes: tuple[DType, DType], *, bits: int, group: int
) -> Any:
    """c + a @ b of finite values, `group` products at a time; terms keep `bits` behind the largest one's leading bit."""
    total = np.zeros((a.shape[0], b.shape[1])) if c is None else c.astype(np.float64)
    for k in range(0, a.shape[1], group):
        x, y = a[:, k : k + group, None].astype(np.float64), b[None, k : k + group].astype(np.float64)
        ex, ey = (exponents(v, d.tiny) for v, d in zip((x, y), dtypes, strict=True))
        terms = np.concatenate([x * y, total[:, None]], axis=1)
        e = np.concatenate([ex + ey, exponents(total, 2.0**-126)[:, None]], axis=1)
        unit = np.exp2(np.maximum(e.max(axis=1, keepdims=True), -900.0) - bits)
        total = (np.trunc(terms / unit) * unit).sum(axis=1)
        unit = np.exp2(np.maximum(exponents(total, 2.0**-126), -900.0) - bits)
        total = np.trunc(total / unit) * unit
    return total
