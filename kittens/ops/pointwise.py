"""Element by element, and whole rows picked or averaged."""

from __future__ import annotations

from kittens import kernels
from kittens.dtypes import ALL, bool_
from kittens.errors import ArgumentError, ShapeError
from kittens.ops import checks
from kittens.ops.checks import Array, On, Tune
from kittens.recording import launch, operation


@operation()
def rotary(
    x: Array, cos: Array, sin: Array, *, interleaved: bool = False, inverse: bool = False, out: Array = None,
    on: On = None, tune: Tune = None,
) -> Array:  # fmt: skip
    """Rotate pairs of columns of x (..., N, D) by the angles whose cosines and sines are cos, sin (..., N,
    R/2).

    Pair f is columns f and f + R/2, or 2f and 2f + 1 if interleaved; columns from R on stay. Row n of the
    tables belongs to row n of x; their leading axes, if any, broadcast to those of x. inverse: turn back.
    """
    array, c, s = (
        checks.described(x, "x", least=2),
        checks.described(cos, "cos", least=2),
        checks.described(sin, "sin", least=2),
    )
    checks.expect(s, "sin", c.shape, f"cos of shape {c.shape}")
    n, d, pairs = array.shape[-2], array.shape[-1], c.shape[-1]
    if c.shape[-2] != n or not 1 <= pairs <= d // 2:
        raise ShapeError(
            f"cos and sin have shape {c.shape}, x has shape {array.shape}",
            hint=f"they hold {n} rows of 1 to {d // 2} pairs; take part of a longer table with cos[:{n}]",
        )
    lead, own = array.shape[:-2], c.shape[:-2]
    if not checks.repeats(own, lead):
        raise ShapeError(
            f"the leading axes of cos {c.shape} do not broadcast to those of x {array.shape}",
            hint="they are equal or 1, counted from the right",
        )
    y = checks.output(out, x, array.shape, array.dtype)
    x3, y3 = checks.stacks(x, y, keep=2) if len(own) == 0 else (x, y)
    launch(
        kernels.rotary,
        x3,
        cos,
        sin,
        y3,
        interleaved=bool(interleaved),
        inverse=bool(inverse),
        on=on,
        **(tune or {}),
    )
    return y


@operation()
def add(a: Array, b: Array, *, out: Array = None, on: On = None, tune: Tune = None) -> Array:
    """a + b, of a's type. b is a vector (N,) along the last axis, or has a's two last extents and
    leading ones that broadcast.
    """
    x, y = checks.described(a, "a", least=1), checks.described(b, "b", least=1)
    lead, own = x.shape[:-2], y.shape[:-2]
    fits = y.shape[-2:] == x.shape[-2:] and checks.repeats(own, lead)
    if not fits and y.shape != x.shape[-1:]:
        raise ShapeError(
            f"b of shape {y.shape} is not added to a of shape {x.shape}",
            hint="b is one row, or has a's last two extents and leading ones that broadcast",
        )
    c = checks.output(out, a, x.shape, x.dtype)
    if y.ndim == 1:
        a2, c2 = checks.stacks(a, c)
        launch(kernels.add, a2, b, c2, on=on, **(tune or {}))
    else:
        views = checks.stacks(a, b, c) if x.shape == y.shape else [a, b, c]
        launch(kernels.add, *views, on=on, **(tune or {}))
    return c


@operation()
def relu(x: Array, *, out: Array = None, on: On = None, tune: Tune = None) -> Array:
    """max(x, 0)."""
    return _activation(x, "relu", out, on, tune)


@operation()
def silu(x: Array, *, out: Array = None, on: On = None, tune: Tune = None) -> Array:
    """x / (1 + exp(-x))."""
    return _activation(x, "silu", out, on, tune)


@operation()
def gelu(
    x: Array, *, approximate: str = "none", out: Array = None, on: On = None, tune: Tune = None
) -> Array:
    """0.5 x (1 + erf(x / sqrt 2)), or with approximate="tanh" 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715
    x^3))).
    """
    return _activation(x, _gelu(approximate), out, on, tune)


@operation()
def silu_and_mul(x: Array, up: Array = None, *, out: Array = None, on: On = None, tune: Tune = None) -> Array:
    """silu(x) up; without `up`, x (..., 2 N) holds both, one after the other, and the result is (..., N)."""
    return _gated(x, up, "silu", out, on, tune)


@operation()
def gelu_and_mul(
    x: Array,
    up: Array = None,
    *,
    approximate: str = "none",
    out: Array = None,
    on: On = None,
    tune: Tune = None,
) -> Array:
    """gelu(x) up; without `up`, x (..., 2 N) holds both, one after the other, and the result is (..., N)."""
    return _gated(x, up, _gelu(approximate), out, on, tune)


def _gelu(approximate: str) -> str:
    if approximate not in ("none", "tanh"):
        raise ArgumentError(
            f"no approximation {approximate!r} of gelu", hint="the choices are 'none' and 'tanh'"
        )
    return "gelu" if approximate == "none" else "gelu_tanh"


def _activation(x: Array, function: str, out: Array, on: On, tune: Tune) -> Array:
    array = checks.described(x, "x", least=1)
    y = checks.output(out, x, array.shape, array.dtype)
    launch(kernels.activation, *checks.stacks(x, y), function=function, on=on, **(tune or {}))
    return y


def _gated(x: Array, up: Array, function: str, out: Array, on: On, tune: Tune) -> Array:
    array = checks.described(x, "x", least=1)
    gate, shape = x, array.shape
    if up is None:
        n = shape[-1] // 2
        if shape[-1] % 2:
            raise ShapeError(
                f"x has shape {shape}: its last axis does not divide into a gate and what it gates",
                hint="pass the two halves separately",
            )
        gate, up, shape = x[..., :n], x[..., n:], (*shape[:-1], n)
    else:
        checks.expect(checks.described(up, "up", least=1), "up", shape, f"x of shape {shape}")
    y = checks.output(out, x, shape, array.dtype)
    launch(kernels.gated, *checks.stacks(gate, up, y), function=function, on=on, **(tune or {}))
    return y


@operation()
def embedding(table: Array, ids: Array, *, out: Array = None, on: On = None, tune: Tune = None) -> Array:
    """Rows of table (V, N) by integer ids (...): (..., N). An id that is no row gives zeros."""
    rows, index = checks.described(table, "table", ALL, ndim=2), checks.described(ids, "ids", checks.INTEGERS)
    y = checks.output(out, table, (*index.shape, rows.shape[1]), rows.dtype, (rows.dtype,))
    launch(kernels.embedding, table, *checks.stacks(ids, keep=0), *checks.stacks(y), on=on, **(tune or {}))
    return y


@operation()
def mean_pool(x: Array, mask: Array, *, out: Array = None, on: On = None, tune: Tune = None) -> Array:
    """The mean of x (B, M, N) over its M positions, weighted by mask (B, M): (B, N). 0 where the mask
    is all 0.
    """
    array = checks.described(x, "x", ndim=3)
    checks.expect(
        checks.described(mask, "mask", (bool_, *checks.INTEGERS, *checks.FLOATS)),
        "mask",
        array.shape[:2],
        f"x of shape {array.shape}",
    )
    y = checks.output(out, x, (array.shape[0], array.shape[2]), array.dtype)
    launch(kernels.mean_pool, x, mask, y, on=on, **(tune or {}))
    return y
