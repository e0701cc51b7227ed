"""Operations for a vendor's sanitizer to watch, most of them with more programs than a device has processors:

    compute-sanitizer --tool racecheck python -m kittens.conformance.sanitize cuda attention packed

The suite's cases are small. Here programs follow each other on the same processor, so that what one leaves behind meets what
the next one does. Results are not judged, but each has to be finite and the same in a second run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from kittens import ops, plugins
from kittens.targets import Target, parse

Made = Sequence[Any]


def _normal(*shape: int, dtype: Any = ml_dtypes.bfloat16, seed: int = 0) -> Any:
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype(dtype)


def _heads(*shape: int) -> list[Any]:
    return [_normal(*shape, seed=seed) for seed in range(4)]


def attention(on: Target, size: int) -> Made:
    found: list[Any] = []
    for width in (64, 128):
        q, k, v, do = _heads(2, 4 * size, 64 * size, width)
        o, lse = ops.attention(q, k, v, causal=True, return_lse=True, on=on)
        found += [o, lse, *ops.attention_backward(q, k, v, o, lse, do, causal=True, on=on)]
    return found


def unordered(on: Target, size: int) -> Made:
    """Gradients that are added in no fixed order; those in k and v alone are the same each time."""
    q, k, v, do = _heads(2, 4 * size, 64 * size, 128)
    o, lse = ops.attention(q, k, v, causal=True, return_lse=True, on=on)
    return ops.attention_backward(q, k, v, o, lse, do, causal=True, deterministic=False, on=on)[1:]


def packed(on: Target, size: int) -> Made:
    found: list[Any] = []
    total = 128 * size
    bounds = np.array([0, total // 3, total // 3, total - 7], np.int32)
    for width in (64, 128):
        q, k, v, do = _heads(total, 4 * size, width)
        given = bounds, bounds, total
        o, lse = ops.attention_varlen(q, k, v, *given, causal=True, return_lse=True, on=on)
        grads = ops.attention_varlen_backward(q, k, v, o, lse, do, *given, total, causal=True, on=on)
        found += [x[: total - 7] for x in (o, *grads)]
    return found


def decoding(on: Target, size: int) -> Made:
    q, (k, v) = _normal(2, 4 * size, 1, 128), _heads(2, size, 256 * size, 128)[:2]
    return [ops.attention_decode(q, k, v, on=on)]


def products(on: Target, size: int) -> Made:
    n, float8 = 288 * size, ml_dtypes.float8_e4m3fn
    a, along = _normal(n, 512), _normal(n, 512, seed=1).T
    found = [ops.matmul(a, along, bias=_normal(n), activation="gelu", on=on)]
    found += [ops.matmul(a, along.copy(), on=on), ops.matmul(a[:64], along[:, :64], splits=4, on=on)]
    a8, b8 = a.astype(float8), along.T.astype(float8).T
    return found + [ops.matmul(a8, b8, accumulate=mode, on=on) for mode in ("full", "fast", "promoted")]


def rows(on: Target, size: int) -> Made:
    n = 64 * size
    x, y, w, labels = _normal(n, 4096), _normal(n, 4096, seed=1), _normal(4096), np.arange(n, dtype=np.int32)
    found = [ops.softmax(x, on=on), ops.rms_norm(x, w, on=on), ops.layer_norm(x, w, w, on=on)]
    found += ops.dropout_residual_layer_norm(x, y, w, w, p=0.1, seed=3, on=on)
    loss, lse = ops.cross_entropy(x, labels, return_lse=True, on=on)
    found += [loss, lse, ops.cross_entropy_backward(x, labels, lse, loss, on=on)]
    table = _normal(n, 64, dtype=np.float32)
    return [*found, ops.rotary(_normal(2, 4, n, 128), table, table, on=on)]


NAMES: dict[str, Callable[[Target, int], Made]] = {
    f.__name__: f for f in (attention, unordered, packed, decoding, products, rows)
}


def watch(target: str, names: Sequence[str], size: int = 8) -> None:
    """Run operations twice on a target, at `size` times the least extents. Raises AssertionError for results that are not
    finite or differ, and KeyError for a name that is none.
    """
    on = plugins.check(parse(target))
    for name in names or NAMES:
        first, second = NAMES[name](on, size), NAMES[name](on, size)
        for x, y in zip(first, second, strict=True):
            assert np.isfinite(x.astype(np.float32)).all(), f"{name}: a result is not finite"
            assert x.tobytes() == y.tobytes(), f"{name}: two runs differ"
        print(name, "done", flush=True)


if __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2:])
