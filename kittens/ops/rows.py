"""Rows: softmax, norms, losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kittens import kernels
from kittens.dtypes import float32, int32, int64
from kittens.errors import ArgumentError
from kittens.ops import checks
from kittens.ops.checks import Array, On, Tune
from kittens.recording import launch, operation


@operation()
def softmax(x: Array, *, dtype: Any = None, out: Array = None, on: On = None, tune: Tune = None) -> Array:
    """exp(x) / sum(exp(x)) along the last axis of x (..., N); of x's type unless `dtype` is given."""
    array = checks.described(x, "x", least=1)
    y = checks.output(out, x, array.shape, dtype or array.dtype)
    launch(kernels.softmax, *checks.stacks(x, y), on=on, **checks.tiles(array.shape[-1], tune))
    return y


@operation()
def rms_norm(
    x: Array, weight: Array = None, *, eps: float = 1e-6, dtype: Any = None, out: Array = None, on: On = None,
    tune: Tune = None,
) -> Array:  # fmt: skip
    """x / sqrt(mean(x^2) + eps) weight along the last axis of x (..., N); weight (N,) is optional."""
    array = checks.described(x, "x", least=1)
    checks.vector(weight, "weight", array.shape[-1])
    y = checks.output(out, x, array.shape, dtype or array.dtype)
    constants = checks.tiles(array.shape[-1], tune)
    launch(
        kernels.rms_norm,
        *checks.stacks(x, y),
        weight,
        eps=checks.constant(eps, "eps", 0, math.inf),
        on=on,
        **constants,
    )
    return y


@operation()
def layer_norm(
    x: Array, weight: Array = None, bias: Array = None, *, eps: float = 1e-5, dtype: Any = None,
    out: Array = None, on: On = None, tune: Tune = None,
) -> Array:  # fmt: skip
    """(x - mean(x)) / sqrt(var(x) + eps) weight + bias along the last axis of x (..., N); weight and
    bias (N,) are optional, the variance is the biased one.
    """
    array = checks.described(x, "x", least=1)
    checks.vector(weight, "weight", array.shape[-1])
    checks.vector(bias, "bias", array.shape[-1])
    y = checks.output(out, x, array.shape, dtype or array.dtype)
    constants = checks.tiles(array.shape[-1], tune)
    launch(
        kernels.layer_norm,
        *checks.stacks(x, y),
        weight,
        bias,
        eps=checks.constant(eps, "eps", 0, math.inf),
        on=on,
        **constants,
    )
    return y


@operation(scalars=("seed",))
def dropout_residual_layer_norm(
    x: Array, residual: Array, weight: Array = None, bias: Array = None, *, p: float = 0.0, seed: int = 0,
    eps: float = 1e-5, out: Array = None, on: On = None, tune: Tune = None,
) -> tuple[Array, Array]:  # fmt: skip
    """layer_norm(total) and the total itself, dropout(x) + residual; for x and residual (..., N).

    Dropout sets an element to 0 with probability p and divides it by 1 - p else; which ones depends on `seed`
    and the element's row-major number alone. The norm is that of the total before it is rounded to residual's
    type.
    """
    array, other = checks.described(x, "x", least=1), checks.described(residual, "residual", least=1)
    n = array.shape[-1]
    checks.expect(other, "residual", array.shape, f"x of shape {array.shape}")
    checks.vector(weight, "weight", n)
    checks.vector(bias, "bias", n)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ArgumentError(f"seed is an integer, not {seed!r}", hint="pass a Python integer")
    y, total = (
        checks.output(out, x, array.shape, array.dtype),
        checks.output(None, x, array.shape, other.dtype),
    )
    numbers = {"p": checks.constant(p, "p", 0, 1), "eps": checks.constant(eps, "eps", 0, math.inf)}
    constants = {**numbers, **checks.tiles(n, tune, checks.RESIDENT // 2)}  # two rows at once
    launch(
        kernels.dropout_residual_layer_norm,
        *checks.stacks(x, residual, y, total),
        int(seed),
        weight,
        bias,
        on=on,
        **constants,
    )
    return y, total


@operation()
def l2_normalize(
    x: Array, *, eps: float = 1e-12, out: Array = None, on: On = None, tune: Tune = None
) -> Array:
    """x / max(sqrt(sum(x^2)), eps) along the last axis of x (..., N)."""
    array = checks.described(x, "x", least=1)
    y = checks.output(out, x, array.shape, array.dtype)
    constants = checks.tiles(array.shape[-1], tune)
    launch(
        kernels.l2_normalize,
        *checks.stacks(x, y),
        eps=checks.constant(eps, "eps", 0, math.inf),
        on=on,
        **constants,
    )
    return y


@operation()
def cross_entropy(
    logits: Array, labels: Array, *, ignore_index: int = -100, return_lse: bool = False, on: On = None,
    tune: Tune = None,
) -> Any:  # fmt: skip
    """log(sum(exp(logits))) - logits[label] for each row of logits (..., V), in float32; labels (...) int32
    or int64.

    The loss is 0 where the label is ignore_index and NaN where it is no column. return_lse: also return the
    first term.
    """
    array = checks.described(logits, "logits", least=1)
    lead = array.shape[:-1]
    checks.expect(
        checks.described(labels, "labels", (int64, int32)), "labels", lead, f"logits of shape {array.shape}"
    )
    loss = checks.output(None, logits, lead, float32)
    lse = checks.output(None, logits, lead, float32) if return_lse else None
    x, label, loss1 = checks.rows(logits=(logits, 1), labels=(labels, 0), loss=(loss, 0))
    lse1 = checks.rows(lse=(lse, 0))[0] if return_lse else None
    launch(
        kernels.cross_entropy_forward,
        x,
        label,
        loss1,
        lse1,
        ignore_index=int(ignore_index),
        on=on,
        **(tune or {}),
    )
    return (loss, lse) if return_lse else loss


@operation()
def cross_entropy_backward(
    logits: Array, labels: Array, lse: Array, dloss: Array, *, ignore_index: int = -100, out: Array = None,
    on: On = None, tune: Tune = None,
) -> Array:  # fmt: skip
    """The gradient of `cross_entropy` in logits, from its lse and the gradient dloss of each row's loss."""
    array = checks.described(logits, "logits", least=1)
    lead = array.shape[:-1]
    checks.expect(
        checks.described(labels, "labels", (int64, int32)), "labels", lead, f"logits of shape {array.shape}"
    )
    for name, t in (("lse", lse), ("dloss", dloss)):
        checks.expect(checks.described(t, name, (float32,)), name, lead, f"logits of shape {array.shape}")
    dx = checks.output(out, logits, array.shape, array.dtype)
    views = checks.rows(logits=(logits, 1), labels=(labels, 0), lse=(lse, 0), dloss=(dloss, 0), out=(dx, 1))
    launch(kernels.cross_entropy_backward, *views, ignore_index=int(ignore_index), on=on, **(tune or {}))
    return dx
