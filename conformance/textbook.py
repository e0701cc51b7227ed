"""What the kernels of the library should compute, by the formulas of the books, in float64, with no tiles and
no loops.

Each function takes the arguments of a kernel by name, arrays as float64 (integers as they are), and gives its
outputs by name. They share nothing with the kernels but those names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kittens.conformance.judge.random import block
from kittens.dtypes import Array

_erf = np.vectorize(math.erf, otypes=[np.float64])

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda x: x,
    "relu": lambda x: np.where(np.isnan(x), x, np.maximum(x, 0)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "gelu": lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2))) if x.size else x,
    "gelu_tanh": lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}

Outputs = dict[str, Array]


def matmul(
    a: Array,
    b: Array,
    a_scale: Any = None,
    b_scale: Any = None,
    bias: Any = None,
    activation: str = "none",
    **_: Any,
) -> Outputs:
    mx = a_scale is not None and np.ndim(a_scale) >= 2 and a_scale.shape[-1] * 32 == a.shape[-1]
    if mx:
        a, b = a * np.repeat(a_scale, 32, -1), b * np.repeat(b_scale, 32, -2)
    y = a.astype(np.float64) @ b.astype(np.float64)
    if not mx:
        y = y * (1 if a_scale is None else a_scale) * (1 if b_scale is None else b_scale)
    y = ACTIVATIONS[activation](y + (0 if bias is None else bias))
    return {"c": y}


def matmul_integers(a: Array, b: Array, **_: Any) -> Outputs:
    return {"c": (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)}


def matmul_split(
    a: Array, b: Array, a_scale: Any = None, b_scale: Any = None, BK: int = 64, parts: int = 1, **_: Any
) -> Outputs:
    """The product of each part of K by itself: whole blocks of BK, as many in each part."""
    if a_scale is not None:
        a, b = a * np.repeat(a_scale, 32, -1), b * np.repeat(b_scale, 32, -2)
    wide = np.float64 if a.dtype.kind == "f" else np.int64
    a, b, blocks = a.astype(wide), b.astype(wide), -(-a.shape[-1] // BK)
    share = -(-blocks // parts) * BK
    here = [slice(s * share, (s + 1) * share) for s in range(parts)]
    return {"parts": np.stack([a[..., k] @ b[..., k, :] for k in here])}


def matmul_combine(
    parts: Array,
    a_scale: Any = None,
    b_scale: Any = None,
    bias: Any = None,
    activation: str = "none",
    **_: Any,
) -> Outputs:
    y = parts.sum(0) * (1 if a_scale is None else a_scale) * (1 if b_scale is None else b_scale)
    return {"c": ACTIVATIONS[activation](y + (0 if bias is None else bias))}


def matmul_integer_sums(parts: Array, **_: Any) -> Outputs:
    return {"c": parts.astype(np.int64).sum(0).astype(np.int32)}


def softmax(x: Array, **_: Any) -> Outputs:
    p = np.exp(x - x.max(-1, keepdims=True))
    return {"y": p / p.sum(-1, keepdims=True)}


def _log_sum_exp(x: Array) -> Array:
    top = x.max(-1, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return shift + np.log(np.exp(x - shift[..., None]).sum(-1))


def cross_entropy_forward(x: Array, label: Array, ignore_index: int = -100, **_: Any) -> Outputs:
    lse = _log_sum_exp(x)
    inside = (label >= 0) & (label < x.shape[1])
    picked = np.take_along_axis(x, np.where(inside, label, 0)[:, None].astype(np.int64), 1)[:, 0]
    loss = np.where(label == ignore_index, 0.0, np.where(inside, lse - picked, np.nan))
    return {"loss": loss, "lse": lse}


def cross_entropy_backward(
    x: Array, label: Array, lse: Array, dloss: Array, ignore_index: int = -100, **_: Any
) -> Outputs:
    one = np.arange(x.shape[1])[None, :] == label[:, None]
    dx = (np.exp(x - lse[:, None]) - one) * dloss[:, None]
    return {"dx": np.where((label == ignore_index)[:, None], 0.0, dx)}


def rms_norm(x: Array, weight: Any = None, eps: float = 0.0, **_: Any) -> Outputs:
    y = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
    return {"y": y if weight is None else y * weight}


def layer_norm(x: Array, weight: Any = None, bias: Any = None, eps: float = 0.0, **_: Any) -> Outputs:
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return {"y": y * (1 if weight is None else weight) + (0 if bias is None else bias)}


def uniform(seed: int, numbers: Array) -> Array:
    """Philox-4x32-10 as fractions of 2^24: word n mod 4 of block n div 4."""
    group = (numbers // 4).astype(np.uint64)
    zero = np.zeros_like(group)
    key = int(seed) % 2**64
    words = block(np.stack([group % 2**32, group >> np.uint64(32), zero, zero]), (key % 2**32, key >> 32))
    word = np.choose(numbers % 4, words)
    return (word >> np.uint64(8)).astype(np.float64) / 2**24


def dropout_residual_layer_norm(
    x: Array,
    residual: Array,
    seed: int,
    weight: Any = None,
    bias: Any = None,
    p: float = 0.0,
    eps: float = 0.0,
    **_: Any,
) -> Outputs:
    kept = uniform(seed, np.arange(x.size).reshape(x.shape)) >= p
    total = (np.where(kept, x / (1 - p), 0.0) if p < 1 else 0.0) + residual
    return {"total": total, **layer_norm(total, weight, bias, eps)}


def l2_normalize(x: Array, eps: float = 0.0, **_: Any) -> Outputs:
    return {"y": x / np.maximum(np.sqrt((x**2).sum(-1, keepdims=True)), eps)}


def rotary(
    x: Array, cos: Array, sin: Array, interleaved: bool = False, inverse: bool = False, **_: Any
) -> Outputs:
    """Pairs as complex numbers, turned by multiplication."""
    n = cos.shape[-1]
    turn = cos - 1j * sin if inverse else cos + 1j * sin
    pairs = (slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if interleaved else (slice(0, n), slice(n, 2 * n))
    z = (x[..., pairs[0]] + 1j * x[..., pairs[1]]) * turn
    y = x.copy()
    y[..., pairs[0]], y[..., pairs[1]] = z.real, z.imag
    return {"y": y}


def _scores(q: Array, k: Array, scale: float, left: int | None, right: int | None) -> Array:
    """(B, H, Nq, Nk), -inf where a query does not see a key; the last query stands at the last key."""
    k = np.repeat(k, q.shape[1] // k.shape[1], 1)
    s = scale * np.einsum("bhqd,bhkd->bhqk", q, k)
    nq, nk = s.shape[-2:]
    apart = np.arange(nk)[None, :] - (np.arange(nq)[:, None] + nk - nq)
    seen = np.ones((nq, nk), bool)
    if left is not None:
        seen &= apart >= -left
    if right is not None:
        seen &= apart <= right
    return np.where(seen, s, -np.inf)


def attention_forward(
    q: Array,
    k: Array,
    v: Array,
    scale: float = 1.0,
    left: int | None = None,
    right: int | None = None,
    **_: Any,
) -> Outputs:
    s = _scores(q, k, scale, left, right)
    lse = _log_sum_exp(s)
    p = np.exp(s - np.where(np.isfinite(lse), lse, 0.0)[..., None])
    return {"o": np.einsum("bhqk,bhkd->bhqd", p, np.repeat(v, q.shape[1] // v.shape[1], 1)), "lse": lse}


def attention_delta(o: Array, do: Array, lse: Array, dlse: Any = None, **_: Any) -> Outputs:
    l2 = np.where(np.isneginf(lse), np.inf, lse) * np.log2(np.e)
    return {"delta": (o * do).sum(-1) - (0 if dlse is None else dlse), "l2": l2}


def attention_split(
    q: Array, k: Array, v: Array, lengths: Any = None, table: Any = None, scale: float = 1.0, queries: int = 1,
    left: int | None = None, right: int | None = None, BN: int = 64, parts: int = 1, **_: Any,
) -> Outputs:  # fmt: skip
    """Each part by itself: whole blocks of BN keys, from the first that a query sees, as many in each part."""
    b, hk, rows, _ = q.shape
    o, lse = np.zeros((parts, b, hk, rows, v.shape[-1])), np.full((parts, b, hk, rows), -np.inf)
    for i in range(b):
        if table is None:
            n = k.shape[2] if lengths is None else int(lengths[i])
            keys, values = k[i, :, :n], v[i, :, :n]
        else:
            n, page = int(lengths[i]), k.shape[1]
            used = [int(x) for x in table[i, : -(-n // page)]]
            keys, values = (x[used].reshape(-1, *x.shape[2:])[:n].swapaxes(0, 1) for x in (k, v))
        position = (np.arange(rows) % queries)[:, None] + n - queries
        first = 0 if left is None else max(n - queries - left, 0) // BN
        share = -(-(-(-n // BN) - first) // parts)
        for part in range(parts):
            here = slice((first + part * share) * BN, (first + (part + 1) * share) * BN)
            key = np.arange(n)[here]
            seen = np.ones((rows, len(key)), bool)
            seen &= key >= position - left if left is not None else True
            seen &= key <= position + right if right is not None else True
            s = np.where(seen, scale * np.einsum("hrd,hkd->hrk", q[i], keys[:, here]), -np.inf)
            lse[part, i] = _log_sum_exp(s)
            p = np.exp(s - np.where(np.isfinite(lse[part, i]), lse[part, i], 0.0)[..., None])
            o[part, i] = p @ values[:, here]
    return {"parts": o, "lse": lse}


def attention_combine(parts: Array, part_lse: Array, **_: Any) -> Outputs:
    lse = _log_sum_exp(np.moveaxis(part_lse, 0, -1))
    weight = np.exp(part_lse - np.where(np.isfinite(lse), lse, 0.0))
    return {"o": (weight[..., None] * parts).sum(0), "lse": lse}


def _gradients(
    q: Array,
    k: Array,
    v: Array,
    do: Array,
    l2: Array,
    delta: Array,
    scale: float,
    left: int | None,
    right: int | None,
) -> Outputs:
    group = q.shape[1] // k.shape[1]
    kh, vh = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = _scores(q, k, scale, left, right)
    p = np.where(np.isfinite(s), np.exp(np.where(np.isfinite(s), s, 0.0) - l2[..., None] * np.log(2)), 0.0)
    ds = p * (np.einsum("bhqd,bhkd->bhqk", do, vh) - delta[..., None])
    dk, dv = scale * np.einsum("bhqk,bhqd->bhkd", ds, q), np.einsum("bhqk,bhqd->bhkd", p, do)

    def grouped(x: Array) -> Array:
        return x.reshape(x.shape[0], k.shape[1], group, *x.shape[2:]).sum(2)

    return {"dq": scale * np.einsum("bhqk,bhkd->bhqd", ds, kh), "dk": grouped(dk), "dv": grouped(dv)}


def attention_backward_kv(
    q: Array, k: Array, v: Array, do: Array, l2: Array, delta: Array,
    dq: Any = None, scale: float = 1.0, left: int | None = None, right: int | None = None, **_: Any,
) -> Outputs:  # fmt: skip
    out = _gradients(q, k, v, do, l2, delta, scale, left, right)
    sums = {} if dq is None else {"dq": dq + out["dq"] / scale}
    return {"dk": out["dk"], "dv": out["dv"], **sums}


def attention_backward_q(
    q: Array, k: Array, v: Array, do: Array, l2: Array, delta: Array,
    scale: float = 1.0, left: int | None = None, right: int | None = None, **_: Any,
) -> Outputs:  # fmt: skip
    return {"dq": _gradients(q, k, v, do, l2, delta, scale, left, right)["dq"]}


#: Tensors of packed sequences whose rows are those of keys; the others' are those of queries.
_OF_KEYS = frozenset(("k", "v", "dk", "dv"))


def _packed(
    book: Any, cu_q: Array, cu_k: Array, tensors: dict[str, Array], window: dict[str, Any]
) -> Outputs:
    """A formula of (1, H, N, ...) applied to each sequence of packed tensors (H, T, ...), results packed likewise."""
    found: dict[str, list[Array]] = {}
    for b in range(len(cu_q) - 1):
        rows = {name: slice(*map(int, (cu_k if name in _OF_KEYS else cu_q)[b : b + 2])) for name in tensors}
        for name, x in book(**{n: x[None, :, rows[n]] for n, x in tensors.items()}, **window).items():
            found.setdefault(name, []).append(x[0])
    return {name: np.concatenate(parts, 1) for name, parts in found.items()}


def attention_varlen_forward(
    q: Array, k: Array, v: Array, cu_q: Array, cu_k: Array, most_q: int, **window: Any
) -> Outputs:
    return _packed(attention_forward, cu_q, cu_k, {"q": q, "k": k, "v": v}, window)


def attention_varlen_backward_kv(cu_q: Array, cu_k: Array, most_k: int, **given: Any) -> Outputs:
    return _packed_gradients(attention_backward_kv, cu_q, cu_k, given)


def attention_varlen_backward_q(cu_q: Array, cu_k: Array, most_q: int, **given: Any) -> Outputs:
    return _packed_gradients(attention_backward_q, cu_q, cu_k, given)


def _packed_gradients(book: Any, cu_q: Array, cu_k: Array, given: dict[str, Any]) -> Outputs:
    tensors = {n: given.pop(n) for n in ("q", "k", "v", "do", "l2", "delta")}
    return _packed(book, cu_q, cu_k, tensors, given)


def activation(x: Array, function: str = "none", **_: Any) -> Outputs:
    return {"y": ACTIVATIONS[function](x)}


def gated(gate: Array, up: Array, function: str = "none", **_: Any) -> Outputs:
    return {"y": ACTIVATIONS[function](gate) * up}


def copy(x: Array, wider: int = 0, **_: Any) -> Outputs:
    return {"y": np.concatenate([x, np.zeros((*x.shape[:-1], wider))], -1)}


def transpose(x: Array, wider: int = 0, **_: Any) -> Outputs:
    return copy(np.swapaxes(x, -1, -2), wider)


def add(a: Array, b: Array, **_: Any) -> Outputs:
    return {"y": a + b}


def embedding(table: Array, ids: Array, **_: Any) -> Outputs:
    inside = (ids >= 0) & (ids < table.shape[0])
    return {"y": np.where(inside[..., None], table[np.where(inside, ids, 0)], 0.0)}


def mean_pool(x: Array, mask: Array, **_: Any) -> Outputs:
    w = mask.astype(np.float64)
    return {"y": (x * w[..., None]).sum(1) / np.maximum(w.sum(1), 1e-9)[:, None]}
