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

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kittens import kernels, plugins
from kittens.arguments import TensorArg, adopt, spec
from kittens.dtypes import (
    ALL,
    FLOAT8,
    DType,
    as_dtype,
    bfloat16,
    bool_,
    float8_e8m0fnu,
    float16,
    float32,
    int8,
    int32,
    int64,
    uint8,
)
from kittens.errors import ArgumentError, DTypeError, ShapeError, UnavailableError
from kittens.kernel import Kernel
from kittens.kernels.attention_backward import LEAST
from kittens.kernels.products import ACCUMULATIONS, MX_BLOCK
from kittens.kernels.stacks import ACTIVATIONS
from kittens.opset.product import accumulator
from kittens.recording import empty, launch, operation
from kittens.runtime import choose_target, evaluate_grid
from kittens.targets import Target

Array = Any  # of any library
On = str | Target | None
Tune = Mapping[str, int] | None
Window = int | tuple[int | None, int | None] | None

FLOATS = (float32, float16, bfloat16)
INTEGERS = tuple(d for d in ALL if d.is_integer)
ATTENDED = (*FLOATS, *FLOAT8)  # what attention takes
INDICES = (int32,)  # of lengths, bounds of sequences and pages
#: Keys of a part, at least, where attention splits them among programs; and parts, at most.
PART_KEYS, PARTS = 256, 128
#: Columns of a in a part, at least, where a product is split; and columns from which on that pays.
PART_COLUMNS, SPLIT_COLUMNS = 512, 4096
#: What the number of parts reckons with: bytes of shared memory that a program takes, and its queries.
PROGRAM_BYTES, TILE_ROWS = 65536, 64
#: Rows of a product that waits for memory rather than for products.
FEW_ROWS = 64
#: Keys of a page are a multiple of this.
PAGE_STEP = 16
#: Rows of up to this many elements are held in one tile.
RESIDENT = 16384
#: Rows of a multiple of this many elements get a tile of exactly their length.
ROW_STEP = 256

__all__ = [
    "add", "attention", "attention_backward", "attention_decode", "attention_varlen",
    "attention_varlen_backward", "cross_entropy", "cross_entropy_backward",
    "dropout_residual_layer_norm", "embedding", "gelu", "gelu_and_mul", "l2_normalize", "layer_norm",
    "matmul", "mean_pool", "relu", "rms_norm", "rotary", "silu", "silu_and_mul", "softmax",
]  # fmt: skip


# Checks and outputs.


def _array(
    x: Array, name: str, dtypes: Sequence[DType] = FLOATS, *, ndim: int | None = None, least: int = 0
) -> TensorArg:
    """An array argument, described; raises if it is none, or not of these dtypes and of this rank."""
    array = adopt(x, name)
    if not isinstance(array, TensorArg):
        raise ArgumentError(f"{name} is {type(x).__name__}, not an array", hint="make an array of it first")
    if array.dtype not in dtypes:
        wanted = ", ".join(d.name for d in dtypes)
        raise DTypeError(
            f"{name} is {array.dtype}; it has to be {wanted}",
            hint="convert it first: no operation converts its inputs",
        )
    if ndim is not None and array.ndim != ndim:
        raise ShapeError(
            f"{name} has {array.ndim} axes (shape {array.shape}); it has to have {ndim}",
            hint="index or reshape it",
        )
    if array.ndim < least:
        raise ShapeError(
            f"{name} has {array.ndim} axes (shape {array.shape}); it has to have {least} at least",
            hint=f"{name}[None] has one more",
        )
    return array


def _expect(array: TensorArg, name: str, shape: tuple[int, ...], why: str) -> TensorArg:
    """`array`; raises ShapeError if it has another shape."""
    if array.shape != shape:
        raise ShapeError(
            f"{name} has shape {array.shape}; {why} asks for {shape}", hint=f"pass {name} with that shape"
        )
    return array


def _repeats(own: tuple[int, ...], lead: tuple[int, ...]) -> bool:
    """Whether leading axes `own` broadcast to `lead`."""
    pairs = zip(reversed(lead), reversed(own), strict=False)
    return len(own) <= len(lead) and all(b in (1, a) for a, b in pairs)


def _vector(x: Array, name: str, n: int) -> None:
    """Check an optional vector along the last axis."""
    if x is not None:
        _expect(_array(x, name, ndim=1), name, (n,), f"a last axis of {n}")


def _output(
    out: Array,
    like: Array,
    shape: tuple[int, ...],
    dtype: Any,
    dtypes: Sequence[DType] = FLOATS,
    name: str = "out",
) -> Array:
    """`out`, checked; or a new array, not set, of the library and on the device of `like`."""
    if out is not None:
        _expect(_array(out, name, dtypes), name, shape, "the result")
        return out
    wanted = as_dtype(dtype)
    if wanted not in dtypes:
        raise DTypeError(
            f"no result in {wanted}", hint=f"the choices are {', '.join(d.name for d in dtypes)}"
        )
    made = empty(like, shape, wanted)
    if made is None:
        kind = f"{type(like).__module__}.{type(like).__name__}"
        raise UnavailableError(
            f"no backend makes new arrays like a {kind}", hint="pass the result's memory with out="
        )
    return made


def _constant(value: float, name: str, low: float, high: float, *, open_low: bool = False) -> float:
    """A number between bounds, as a Python float."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ArgumentError(
            f"{name} is a number, not {value!r}", hint="it is a constant of the kernel: pass a Python float"
        )
    if not (low < value or (low == value and not open_low)) or not value <= high or math.isinf(value):
        bounds = f"above {low:g}" if open_low else f"at least {low:g}"
        raise ArgumentError(
            f"{name} is {value!r}",
            hint=f"it has to be {bounds}{'' if math.isinf(high) else f' and at most {high:g}'}, and finite",
        )
    return float(value)


def _count(n: Any, name: str, least: int) -> int:
    """A number of things, as a Python integer."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < least:
        raise ArgumentError(f"{name} is {n!r}", hint=f"it is a Python integer of at least {least}")
    return int(n)


def _merges(array: TensorArg, keep: int) -> bool:
    """Whether the axes before the `keep` last ones can be viewed as one."""
    axes = list(zip(array.shape, array.strides, strict=True))[: array.ndim - keep]
    lead = [(n, s) for n, s in axes if n != 1]
    return 0 in array.shape or all(s == s2 * n2 for (_, s), (n2, s2) in itertools.pairwise(lead))


def _merged(x: Array, array: TensorArg, keep: int) -> Array:
    """The view of an array with one axis before its `keep` last ones."""
    if array.ndim == keep:
        return x[None]
    lead = math.prod(array.shape[: array.ndim - keep])
    return x if array.ndim == keep + 1 else x.reshape((lead, *array.shape[array.ndim - keep :]))


def _rows(**arrays: tuple[Array, int]) -> list[Array]:
    """Views of arrays with one axis for all their rows; given are, by name, the array and how many axes a row
    has.

    Raises ArgumentError for an array whose rows are not evenly spaced in memory.
    """
    views = []
    for name, (x, keep) in arrays.items():
        array = adopt(x, name)
        assert isinstance(array, TensorArg)
        if not _merges(array, keep):
            raise ArgumentError(f"the rows of {name} (strides {array.strides}) are not evenly spaced",
                                hint=f"pass a contiguous copy of {name}")  # fmt: skip
        views.append(_merged(x, array, keep))
    return views


def _stacks(*arrays: Array, keep: int = 1) -> list[Array]:
    """The arrays, of equal leading axes, as stacks of matrices: one matrix each if their leading axes
    can be merged.
    """
    described = [adopt(x, "an array") for x in arrays]
    if all(isinstance(a, TensorArg) and _merges(a, keep) for a in described):
        pairs = zip(arrays, described, strict=True)
        return [_merged(x, a, keep) for x, a in pairs if isinstance(a, TensorArg)]
    return list(arrays)


def _tiles(n: int, tune: Tune, most: int = RESIDENT) -> dict[str, Any]:
    """Constants for a kernel on rows of n: whether one tile holds a row, how wide it is, and whether the row fills it.

    A kernel is specialised on rows that fill their tile: those whose length lanes share out evenly.
    """
    given = dict(tune or {})
    width = given.get("BN", n if n and n % ROW_STEP == 0 else max(16, 1 << max(n - 1, 0).bit_length()))
    return {**given, "resident": True, "whole": n == width, "BN": width} if n <= min(width, most) else given


# Products.


@operation(scalars=("a_scale", "b_scale"))
def matmul(
    a: Array, b: Array, *, bias: Array = None, activation: str = "none", a_scale: Array = None,
    b_scale: Array = None, accumulate: str = "full", splits: int | None = None, dtype: Any = None, out: Array = None,
    on: On = None, tune: Tune = None,
) -> Array:  # fmt: skip
    """activation(a_scale (a @ b) b_scale + bias), for a (..., M, K) and b (..., K, N), leading axes
    broadcasting.

    a and b are of one float type, of one family of float8, or int8 or uint8. bias is a float vector (N,).
    activation: "none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh". Scales are float32: a number,
    an array of rank 0, or one for each row of a, (M,) or (..., M, 1), and column of b, (N,) or (..., 1, N).
    Two arrays of float8_e8m0fnu, (..., M, K/32) and (..., K/32, N), are the block scales of MXFP8. The result
    is of `dtype`: by default that of a, bfloat16 for float8, and for integers int32, or float32 if there are
    scales, bias or activation.

    accumulate: how precisely float8 operands without block scales are summed (docs/semantics.md, Products). "full": in
    float32. "fast": coarser sums are allowed, which some targets make much faster. "promoted": such sums over a block along
    K (the tunable BK, 128 elements at most), added in float32; between the two in speed and error.

    Some targets read large operands much faster if rows begin at multiples of some bytes (16 on NVIDIA's Hopper, where
    2^27 multiplications make a product large, of 16-bit floats, or of float8 that is not summed in full), and of float8 if
    they lie along K. An operand whose rows do not is copied first, to new memory of its size and at most that many bytes a
    row more. The result is the same.

    K is split into `splits` parts for programs of their own, whose sums (float32, or int32 for integers) are then added in
    order. Unless given, that is 1, but where K is long and the result has so few tiles that half of the target's processors
    or more would have nothing to do: then as many as keep them busy, at most 128. The number follows from shapes, types and
    target, so results repeat. Where no backend makes an array for the sums it is 1. tune= is for the product, in parts or not.
    """
    products = (*FLOATS, *FLOAT8, int8, uint8)
    x, y = _array(a, "a", products, least=2), _array(b, "b", products, least=2)
    accumulator(x.dtype, y.dtype)
    (m, k), n = x.shape[-2:], y.shape[-1]
    if y.shape[-2] != k:
        raise ShapeError(
            f"a {x.shape} has {k} columns, b {y.shape} has {y.shape[-2]} rows",
            hint="transpose an operand: a.T is taken without a copy",
        )
    try:
        batch = tuple(np.broadcast_shapes(x.shape[:-2], y.shape[:-2]))
    except ValueError:
        raise ShapeError(
            f"the leading axes of a {x.shape} and b {y.shape} do not broadcast",
            hint="they are equal or 1, counted from the right",
        ) from None
    if activation not in ACTIVATIONS:
        raise ArgumentError(
            f"no activation {activation!r}", hint=f"the activations are {', '.join(ACTIVATIONS)}"
        )
    _vector(bias, "bias", n)
    a_scale, b_scale = _scales(a_scale, b_scale, x, y)
    if accumulate not in ACCUMULATIONS:
        raise ArgumentError(
            f"products do not accumulate {accumulate!r}", hint=f"the modes are {', '.join(ACCUMULATIONS)}"
        )
    scale = adopt(a_scale, "a_scale")
    blocks = isinstance(scale, TensorArg) and scale.dtype == float8_e8m0fnu
    if accumulate != "full" and (not x.dtype.is_float8 or blocks):
        raise DTypeError(
            f"{accumulate} accumulation of {x.dtype}{' with block scales' if blocks else ''}",
            hint="it is that of float8 operands without block scales: leave out accumulate=",
        )
    plain = a_scale is None and b_scale is None
    if x.dtype.is_float:
        default, dtypes = bfloat16 if x.dtype.is_float8 else x.dtype, (*FLOATS, *FLOAT8)
    elif plain and bias is None and activation == "none":
        default, dtypes = int32, (int32, *FLOATS)
    else:
        default, dtypes = float32, FLOATS
    c = _output(out, a, (*batch, m, n), dtype or default, dtypes)
    left, right = a, b
    result = c
    if y.ndim == 2 and x.ndim > 2 and plain:  # one product of all rows
        left, result = _stacks(a, c)
    left, right = _spaced(left, right, result, accumulate, on)
    summed: dict[str, Any] = {"accumulate": accumulate, **(tune or {})}
    inner, outer = (a_scale, b_scale), (None, None)
    if not blocks:  # scales of blocks go with the sums, others with what is made of these
        inner, outer = outer, inner
    whole = (left, right, result, a_scale, b_scale, bias)
    kind = float32 if x.dtype.is_float else int32
    stack = adopt(result, "c").shape  # type: ignore[union-attr]
    if splits is None:
        target = choose_target({"a": adopt(left, "a"), "b": adopt(right, "b")}, on)
        pieces = (left, right, spec(kind, (1, *stack)), *inner)
        splits = _product_parts(whole, {"activation": activation, **summed}, pieces, summed, k, target)
    parts = empty(a, (splits, *stack), kind) if _count(splits, "splits", 1) > 1 else None
    if parts is None:
        launch(kernels.matmul, *whole, activation=activation, on=on, **summed)
        return c
    launch(kernels.matmul_split, left, right, parts, *inner, on=on, **summed)
    launch(kernels.matmul_combine, parts, result, *outer, bias, activation=activation, on=on)
    return c


def _product_parts(
    whole: tuple[Array, ...], finish: dict[str, Any], pieces: tuple[Array, ...], summed: dict[str, Any], columns: int,
    target: Target,
) -> int:  # fmt: skip
    """Into how many parts to split the `columns` of K: 1 where these are few, or where enough processors have a tile of the
    whole product: every second one, or every third where few rows wait for memory. whole, finish: what `matmul` would be given;
    pieces, summed: what `matmul_split` is given.
    """
    share = 3 if whole[0].shape[-2] <= FEW_ROWS else 2
    if columns < SPLIT_COLUMNS or share * _programs(kernels.matmul, whole, finish, target) > _processors(
        target
    ):
        return 1
    programs = _programs(kernels.matmul_split, pieces, summed, target)
    return _parts(programs, columns, target, PART_COLUMNS, 1)


def _programs(kernel: Kernel, args: tuple[Array, ...], constants: dict[str, Any], target: Target) -> int:
    """How many programs a kernel has on a target."""
    arguments, given = kernel.bind(args, constants)
    return math.prod(evaluate_grid(kernel, arguments, kernel.settle(target, arguments, given)))


def _processors(target: Target) -> int:
    """How many processors a target has; 1 where it does not tell."""
    rates = plugins.manager().hook.kittens_rates(target=target)
    return rates.processors if rates else 1


def _spaced(a: Array, b: Array, c: Array, accumulate: str, on: On) -> tuple[Array, Array]:
    """The operands of a product, or copies of those whose rows lie where the target had better not read them."""
    arguments = {"a": adopt(a, "a"), "b": adopt(b, "b"), "c": adopt(c, "c")}
    rows = plugins.manager().hook.kittens_rows(
        target=choose_target(arguments, on),
        kernel=kernels.matmul.name,
        arguments={**arguments, "accumulate": accumulate},
    )
    if rows is None:
        return a, b
    axes = (-1, -2) if rows.along else (None, None)
    return _respaced(a, rows.step, axes[0], on), _respaced(b, rows.step, axes[1], on)


def _respaced(x: Array, step: int, along: int | None, on: On) -> Array:
    """An array of at least two axes, or a copy of it whose rows begin at multiples of `step` bytes. along: the axis, -1 or -2,
    that rows go along; None: the last one, or the one before if that alone is contiguous. Arrays that repeat elements are not
    copied, nor those that no backend makes.
    """
    array = adopt(x, "an array")
    assert isinstance(array, TensorArg)
    size = array.dtype.bytes
    lie = -2 if array.strides[-1] != 1 == array.strides[-2] else -1
    along = along or lie
    apart = [s for n, s in zip(array.shape, array.strides, strict=True) if s != 1 and n > 1]
    whole = array.strides[along] == 1 or array.shape[along] == 1
    if 0 in array.shape or 0 in apart or (
        whole and array.alignment >= step and all(s * size % step == 0 for s in apart)
    ):  # fmt: skip
        return x
    *lead, rows, n = array.shape if along == -1 else (*array.shape[:-2], array.shape[-1], array.shape[-2])
    room = empty(x, (*lead, rows, -(-n * size // step) * step // size), array.dtype)
    if room is None:
        return x
    if along == lie:
        launch(kernels.copy, x if along == -1 else x.swapaxes(-1, -2), room, on=on)
    else:
        launch(kernels.transpose, x if along == -2 else x.swapaxes(-1, -2), room, on=on)
    made = room[..., :n]
    return made if along == -1 else made.swapaxes(-1, -2)


def _scales(a_scale: Array, b_scale: Array, a: TensorArg, b: TensorArg) -> tuple[Array, Array]:
    """The scales of a product, checked, each a number, of rank 0, or of rank 2 at least."""
    blocks = []
    found: list[Array] = []
    for name, scale, axis, n in (
        ("a_scale", a_scale, -2, a.shape[-2]),
        ("b_scale", b_scale, -1, b.shape[-1]),
    ):
        if scale is None or isinstance(scale, (int, float)):
            found.append(None if scale is None else _constant(scale, name, -math.inf, math.inf))
            continue
        array = _array(scale, name, (float32, float8_e8m0fnu))
        if array.dtype == float8_e8m0fnu:
            blocks.append(name)
            k = a.shape[-1]
            if not a.dtype.is_float8 or k % MX_BLOCK:
                raise DTypeError(
                    f"{name} has block scales, and a is {a.dtype} with {k} columns",
                    hint=f"they go with float8 operands and a K that is a multiple of {MX_BLOCK}",
                )
            shape = (*a.shape[:-1], k // MX_BLOCK) if axis == -2 else (*b.shape[:-2], k // MX_BLOCK, n)
            _expect(array, name, shape, f"a block of {MX_BLOCK} elements along K for each scale")
        elif array.ndim == 1:
            _expect(array, name, (n,), "one scale for each row of a or column of b")
            scale = scale[:, None] if axis == -2 else scale[None, :]
        elif array.ndim:
            lead = (a if axis == -2 else b).shape[:-2]
            _expect(
                array,
                name,
                (*lead, n, 1) if axis == -2 else (*lead, 1, n),
                "one scale for each row of a or column of b",
            )
        found.append(scale)
    if len(blocks) == 1:
        raise ArgumentError(
            f"only {blocks[0]} has block scales",
            hint="block scales (float8_e8m0fnu) are given for both operands",
        )
    return found[0], found[1]


# Attention.


@operation()
def attention(
    q: Array, k: Array, v: Array, *, causal: bool = False, window: Window = None, scale: float | None = None,
    return_lse: bool = False, dtype: Any = None, out: Array = None, on: On = None, tune: Tune = None,
) -> Any:  # fmt: skip
    """softmax(scale q k^T) v for q (B, H, Nq, D), k (B, Hk, Nk, D), v (B, Hk, Nk, Dv); B, or B and H, may be
    absent.

    Hk divides H; query head h reads key head h // (H / Hk). Head dimensions are at most 256. causal: query i
    sees keys up to i + Nk - Nq, so that the last query sees all. window: w keys up to the query's own
    position (as many after it, if not causal), or (left, right), how many keys before and after it are seen,
    None for all. scale is 1 / sqrt(D) unless given. Queries that see nothing give 0. return_lse: also return
    log(sum(exp(scale q k^T))) in float32, (B, H, Nq), -inf for those. Floats and float8; the result is of
    `dtype`, by default that of q, bfloat16 for float8.
    """
    x, y = heads(q, k, v, ATTENDED)
    left, right = span(causal, window)
    o = _output(
        out,
        q,
        (*x.shape[:-1], y.shape[-1]),
        dtype or (bfloat16 if x.dtype.is_float8 else x.dtype),
        (*FLOATS, *FLOAT8),
    )
    lse = _output(None, q, x.shape[:-1], float32) if return_lse else None
    views = [_raised(t, 4 - x.ndim) for t in (q, k, v, o, lse)]
    launch(
        kernels.attention_forward,
        *views,
        scale=_scale(scale, x),
        left=left,
        right=right,
        on=on,
        **(tune or {}),
    )
    return (o, lse) if return_lse else o


@operation()
def attention_backward(
    q: Array, k: Array, v: Array, o: Array, lse: Array, do: Array, *, dlse: Array = None,
    causal: bool = False, window: Window = None, scale: float | None = None, deterministic: bool = True,
    on: On = None, tune: Tune = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The gradients dq, dk, dv of `attention`, from its results o and lse and the gradients do (and dlse) of
    these.

    The other arguments are those of `attention`; floats only. Results are equal from run to run. deterministic=False lets dq
    be summed in no fixed order where that is faster: its bits may differ from run to run.
    """
    x, y = heads(q, k, v, FLOATS)
    left, right = span(causal, window)
    for name, t in (("o", o), ("do", do)):
        _expect(_array(t, name, (x.dtype,)), name, (*x.shape[:-1], y.shape[-1]), "the result of attention")
    for name, t in (("lse", lse), ("dlse", dlse)):
        if t is not None or name == "lse":
            _expect(_array(t, name, (float32,)), name, x.shape[:-1], "the log-sum-exp of attention")
    shapes = [adopt(t, "q").shape for t in (q, k, v)]  # type: ignore[union-attr]
    grads = [_output(None, q, shape, x.dtype) for shape in shapes]
    # Rows of numbers begin at multiples of 16 bytes, so that engines can copy them.
    nq = x.shape[-2]
    delta, l2 = (_output(None, q, (*x.shape[:-2], -(-nq // 4) * 4), float32)[..., :nq] for _ in range(2))
    up = 4 - x.ndim
    q4, k4, v4, o4, do4, lse4, dlse4, delta4, l24 = (
        _raised(t, up) for t in (q, k, v, o, do, lse, dlse, delta, l2)
    )
    dq, dk, dv = (_raised(t, up) for t in grads)
    constants: dict[str, Any] = {
        "scale": _scale(scale, x),
        "left": left,
        "right": right,
        "on": on,
        **(tune or {}),
    }
    given = dict(zip(("q", "k", "v", "do"), (adopt(x, "q") for x in (q4, k4, v4, do4)), strict=True))
    one = plugins.manager().hook.kittens_adds(
        target=choose_target(given, on),
        kernel=kernels.attention_backward_kv.name,
        arguments={**given, "left": left},
    )
    if not one or (tune or {}).get("BM", LEAST) < LEAST:
        launch(kernels.attention_delta, o4, do4, lse4, delta4, l24, dlse4, on=on)
        launch(kernels.attention_backward_kv, q4, k4, v4, do4, l24, delta4, dk, dv, **constants)
        launch(kernels.attention_backward_q, q4, k4, v4, do4, l24, delta4, dq, **constants)
    else:
        sums, turns = _raised(_output(None, q, shapes[0], float32), up), None
        shared = right is not None and x.shape[-3:-2] != y.shape[-3:-2]  # heads: then in turn is faster
        if deterministic or shared:
            blocks = (*x.shape[:-2], -(-nq // LEAST))
            turns = _raised(_output(None, q, blocks, int32, (int32,)), up)
        launch(kernels.attention_delta, o4, do4, lse4, delta4, l24, dlse4, sums, turns, on=on)
        launch(kernels.attention_backward_kv, q4, k4, v4, do4, l24, delta4, dk, dv, sums, turns, **constants)
        launch(kernels.copy, sums, dq, scale=constants["scale"], on=on)
    return grads[0], grads[1], grads[2]


@operation()
def attention_decode(
    q: Array, k: Array, v: Array, *, lengths: Array = None, table: Array = None, causal: bool = False,
    window: Window = None, scale: float | None = None, splits: int | None = None, return_lse: bool = False,
    dtype: Any = None, out: Array = None, on: On = None, tune: Tune = None,
) -> Any:  # fmt: skip
    """`attention` of few queries over many keys, as in decoding: q (B, H, Nq, D), k (B, Hk, N, D), v (B, Hk, N, Dv).

    lengths (B,), int32: how many keys each sequence has (its queries' own included), at most N; all unless given. With a
    table (B, most), int32, keys lie in pages: k (P, page, Hk, D), v (P, page, Hk, Dv), and row b names the pages of
    sequence b in their order; lengths are at most most * page, and page is a multiple of 16. What lies beyond a length is
    never read, nor are its entries of the table. Values of lengths and table are not checked: a length outside its range is
    cut to it, a page that there is not holds zeros.

    Keys are split into `splits` parts for programs of their own, unless given as many as keep the target's processors busy,
    at most 128, and the results of these are combined. The number follows from shapes and target, so results repeat. All
    heads of a group and their queries read keys and values once. If they are not evenly spaced in q, that is copied first.
    The other arguments, and the results, are those of `attention`.
    """
    x, hk, keys, dv = decoded(q, k, v, lengths, table)
    left, right = span(causal, window)
    b, h, nq, _ = x.shape
    o = _output(
        out, q, (b, h, nq, dv), dtype or (bfloat16 if x.dtype.is_float8 else x.dtype), (*FLOATS, *FLOAT8)
    )
    lse = _output(None, q, (b, h, nq), float32) if return_lse else None
    group = h // max(hk, 1)
    grouped = (b, hk, group * nq)
    if splits is not None:
        splits = _count(splits, "splits", 1)
    else:
        splits = _parts(b * hk * -(-grouped[2] // TILE_ROWS), keys, choose_target({"q": x}, on))
    rows = q
    if not _rows_merge(x, group):
        rows = empty(q, x.shape, x.dtype)
        if rows is None:
            raise ArgumentError(f"the queries of a group (strides {x.strides}) are not evenly spaced",
                                hint="pass a contiguous copy of q")  # fmt: skip
        launch(kernels.copy, q, rows, on=on)
    out_array = adopt(o, "out")
    assert isinstance(out_array, TensorArg)
    whole = splits == 1 and _rows_merge(out_array, group)
    parts = o if whole else _output(None, q, (splits, b, h, nq, dv), float32)
    part_lse = lse if whole else _output(None, q, (splits, b, h, nq), float32)
    constants: dict[str, Any] = {
        "scale": _scale(scale, x),
        "queries": nq,
        "left": left,
        "right": right,
        **(tune or {}),
    }
    launch(
        kernels.attention_split,
        rows.reshape((*grouped, x.shape[3])),
        k,
        v,
        parts.reshape((splits, *grouped, dv)),
        None if part_lse is None else part_lse.reshape((splits, *grouped)),
        lengths,
        table,
        on=on,
        **constants,
    )
    if not whole:
        launch(kernels.attention_combine, parts, part_lse, o, lse, on=on)
    return (o, lse) if return_lse else o


def decoded(q: Array, k: Array, v: Array, lengths: Array, table: Array) -> tuple[TensorArg, int, int, int]:
    """q described, how many key heads there are and keys of a sequence at most, and the width of v, once all fit together."""
    x = _array(q, "q", ATTENDED, ndim=4)
    b = x.shape[0]
    if lengths is not None:
        _expect(_array(lengths, "lengths", INDICES, ndim=1), "lengths", (b,), f"q of shape {x.shape}")
    if table is None:
        _, y = heads(q, k, v, ATTENDED)
        return x, y.shape[1], y.shape[2], y.shape[3]
    if lengths is None:
        raise ArgumentError("table is given and lengths is not", hint="say how many keys each sequence has")
    pages = _array(table, "table", INDICES, ndim=2)
    _expect(pages, "table", (b, pages.shape[1]), f"a batch of {b}")
    y, z = _array(k, "k", (x.dtype,), ndim=4), _array(v, "v", (x.dtype,), ndim=4)
    _expect(z, "v", (*y.shape[:-1], z.shape[-1]), f"k of shape {y.shape}")
    _widths(x, y, z)
    _groups(x.shape[1], y.shape[2])
    if y.shape[1] % PAGE_STEP or not y.shape[1]:
        raise ShapeError(
            f"pages of {y.shape[1]} keys (k has shape {y.shape})",
            hint=f"they have a multiple of {PAGE_STEP}, and k is (pages, page, heads, width)",
        )
    return x, y.shape[2], y.shape[1] * pages.shape[1], z.shape[3]


def _rows_merge(x: TensorArg, group: int) -> bool:
    """Whether the queries (axis 2) of the heads of a group (of axis 1) can be viewed as one axis."""
    return group == 1 or x.shape[2] == 1 or 0 in x.shape or x.strides[1] == x.shape[2] * x.strides[2]


def _parts(
    programs: int, length: int, target: Target, least: int = PART_KEYS, resident: int | None = None
) -> int:
    """Into how many parts to split keys, or what else programs go through one by one: the fewest with which processors are as
    busy as they can be, less a tenth.

    programs: how many there are for each part, of which a processor holds `resident`, or as many as fit its shared memory, 2 at
    least. least: the length of a part.
    """
    rates = plugins.manager().hook.kittens_rates(target=target)
    if resident is None:
        resident = max(2, rates.shared_bytes // PROGRAM_BYTES) if rates else 2
    slots = resident * (rates.processors if rates else 1)

    def busy(parts: int) -> float:
        return programs * parts / (-(-programs * parts // slots) * slots) if programs else 1.0

    choices = range(1, max(1, min(length // least, PARTS)) + 1)
    return next(n for n in choices if busy(n) >= 0.9 * max(map(busy, choices)))


@operation()
def attention_varlen(
    q: Array, k: Array, v: Array, cu_q: Array, cu_k: Array, max_q: int, *, causal: bool = False,
    window: Window = None, scale: float | None = None, return_lse: bool = False, dtype: Any = None,
    out: Array = None, on: On = None, tune: Tune = None,
) -> Any:  # fmt: skip
    """`attention` of B sequences of different lengths, packed: q (Tq, H, D), k (Tk, Hk, D), v (Tk, Hk, Dv).

    Sequence b has the queries from cu_q[b] to cu_q[b + 1] and the keys from cu_k[b] to cu_k[b + 1]; cu_q and cu_k are
    (B + 1,), int32, and a sequence may be empty. max_q: how many queries one has at most. The result is (Tq, H, Dv), the
    log-sum-exp (H, Tq); both are left as they are where no sequence has a query, nor are such rows read.

    Whether the numbers in cu_q and cu_k go up, and max_q is no less than a length, is not checked, as they may lie on a
    device: bounds are cut to what there is, rows of a sequence beyond its first max_q (up to whole tiles) are not computed.
    The other arguments are those of `attention`.
    """
    x, y = packed(ATTENDED, q, k, v, cu_q, cu_k, max_q=max_q)
    left, right = span(causal, window)
    kind = dtype or (bfloat16 if x.dtype.is_float8 else x.dtype)
    o = _output(out, q, (*x.shape[:-1], y.shape[-1]), kind, (*FLOATS, *FLOAT8))
    lse = _output(None, q, (x.shape[1], x.shape[0]), float32) if return_lse else None
    q3, k3, v3, o3 = (t.swapaxes(0, 1) for t in (q, k, v, o))
    constants: dict[str, Any] = {"scale": _scale(scale, x), "left": left, "right": right, **(tune or {})}
    most_q = min(max_q, x.shape[0])
    launch(kernels.attention_varlen_forward, q3, k3, v3, cu_q, cu_k, most_q, o3, lse, on=on, **constants)
    return (o, lse) if return_lse else o


@operation()
def attention_varlen_backward(
    q: Array, k: Array, v: Array, o: Array, lse: Array, do: Array, cu_q: Array, cu_k: Array, max_q: int, max_k: int, *,
    dlse: Array = None, causal: bool = False, window: Window = None, scale: float | None = None, on: On = None,
    tune: Tune = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The gradients dq, dk, dv of `attention_varlen`, from its results o and lse and the gradients do (and dlse) of these.

    max_k: how many keys a sequence has at most. The other arguments are those of `attention_varlen`; floats only. Results
    are equal from run to run, and not set where there is no sequence.
    """
    x, y = packed(FLOATS, q, k, v, cu_q, cu_k, max_q=max_q, max_k=max_k)
    left, right = span(causal, window)
    for name, t in (("o", o), ("do", do)):
        wanted = (*x.shape[:-1], y.shape[-1])
        _expect(_array(t, name, (x.dtype,)), name, wanted, "the result of attention_varlen")
    for name, t in (("lse", lse), ("dlse", dlse)):
        if t is not None or name == "lse":
            wanted = (x.shape[1], x.shape[0])
            _expect(_array(t, name, (float32,)), name, wanted, "the log-sum-exp of attention_varlen")
    shapes = [adopt(t, "q").shape for t in (q, k, v)]  # type: ignore[union-attr]
    grads = [_output(None, q, shape, x.dtype) for shape in shapes]
    delta, l2 = (_output(None, q, (x.shape[1], x.shape[0]), float32) for _ in range(2))
    q3, k3, v3, o3, do3, dq, dk, dv = (t.swapaxes(0, 1) for t in (q, k, v, o, do, *grads))
    constants: dict[str, Any] = {"scale": _scale(scale, x), "left": left, "right": right, **(tune or {})}
    rows = (x[None] for x in (o3, do3, lse, delta, l2))
    launch(kernels.attention_delta, *rows, _raised(dlse, 1), on=on)
    given, most_q, most_k = (q3, k3, v3, cu_q, cu_k), min(max_q, x.shape[0]), min(max_k, y.shape[0])
    launch(kernels.attention_varlen_backward_kv, *given, most_k, do3, l2, delta, dk, dv, on=on, **constants)
    launch(kernels.attention_varlen_backward_q, *given, most_q, do3, l2, delta, dq, on=on, **constants)
    return grads[0], grads[1], grads[2]


def packed(
    dtypes: Sequence[DType], q: Array, k: Array, v: Array, cu_q: Array, cu_k: Array, **most: Any
) -> tuple[TensorArg, TensorArg]:
    """q and v described, once all that makes packed sequences fits together."""
    x = _array(q, "q", dtypes, ndim=3)
    y, z = _array(k, "k", (x.dtype,), ndim=3), _array(v, "v", (x.dtype,), ndim=3)
    _widths(x, y, z)
    _expect(z, "v", (*y.shape[:-1], z.shape[-1]), f"k of shape {y.shape}")
    _groups(x.shape[1], y.shape[1])
    bounds = _array(cu_q, "cu_q", INDICES, ndim=1)
    if not bounds.shape[0]:
        raise ShapeError("cu_q is empty", hint="it has one number more than there are sequences, the first 0")
    _expect(_array(cu_k, "cu_k", INDICES, ndim=1), "cu_k", bounds.shape, f"cu_q of shape {bounds.shape}")
    for name, n in most.items():
        _count(n, name, 0)
    return x, z


def heads(q: Array, k: Array, v: Array, dtypes: Sequence[DType]) -> tuple[TensorArg, TensorArg]:
    """q and v described, once q, k and v fit together."""
    x = _array(q, "q", dtypes, least=2)
    if x.ndim > 4:
        raise ShapeError(
            f"q has {x.ndim} axes (shape {x.shape}); attention takes (B, H, N, D)",
            hint="reshape the leading axes into one",
        )
    y, z = _array(k, "k", (x.dtype,), ndim=x.ndim), _array(v, "v", (x.dtype,), ndim=x.ndim)
    _widths(x, y, z)
    _expect(z, "v", (*y.shape[:-1], z.shape[-1]), f"k of shape {y.shape}")
    if x.shape[:-3] != y.shape[:-3]:
        raise ShapeError(
            f"q has a batch of {x.shape[:-3]}, k and v of {y.shape[:-3]}", hint="they have to be equal"
        )
    if x.ndim > 2:
        _groups(x.shape[-3], y.shape[-3])
    return x, z


def _widths(q: TensorArg, k: TensorArg, v: TensorArg) -> None:
    """Check the last axes of what attention is given."""
    d, dv = q.shape[-1], v.shape[-1]
    if k.shape[-1] != d:
        raise ShapeError(
            f"the head dimension of q is {d} (shape {q.shape}), that of k is {k.shape[-1]} (shape {k.shape})",
            hint="they have to be equal",
        )
    if not 1 <= d <= 256 or not 1 <= dv <= 256:
        raise ShapeError(f"head dimensions of {d} and {dv}", hint="they are from 1 to 256")


def _groups(queries: int, keys: int) -> None:
    """Check numbers of heads."""
    if queries % keys if keys else queries:
        raise ShapeError(
            f"{queries} query heads on {keys} key heads",
            hint="the number of query heads is a multiple of that of key heads",
        )


def span(causal: bool, window: Any) -> tuple[int | None, int | None]:
    """How many keys before and after its own position a query sees; None for all."""
    if window is None:
        return None, 0 if causal else None
    if isinstance(window, tuple) and len(window) == 2:
        left, right = window
        if any(w is not None and (not isinstance(w, int) or isinstance(w, bool) or w < 0) for w in window):
            raise ArgumentError(
                f"window is {window!r}", hint="(left, right) are integers of at least 0, or None for all keys"
            )
        return left, 0 if causal else right
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        raise ArgumentError(
            f"window is {window!r}", hint="it is a number of keys, at least 1, or a pair (left, right)"
        )
    return window - 1, 0 if causal else window - 1


def _scale(scale: float | None, q: TensorArg) -> float:
    return (
        1 / math.sqrt(q.shape[-1]) if scale is None else _constant(scale, "scale", 0, math.inf, open_low=True)
    )


def _raised(x: Array, axes: int) -> Array:
    """The view of an array with `axes` more axes of extent 1 in front; None stays None."""
    for _ in range(axes if x is not None else 0):
        x = x[None]
    return x


# Rows.


@operation()
def softmax(x: Array, *, dtype: Any = None, out: Array = None, on: On = None, tune: Tune = None) -> Array:
    """exp(x) / sum(exp(x)) along the last axis of x (..., N); of x's type unless `dtype` is given."""
    array = _array(x, "x", least=1)
    y = _output(out, x, array.shape, dtype or array.dtype)
    launch(kernels.softmax, *_stacks(x, y), on=on, **_tiles(array.shape[-1], tune))
    return y


@operation()
def rms_norm(
    x: Array, weight: Array = None, *, eps: float = 1e-6, dtype: Any = None, out: Array = None, on: On = None,
    tune: Tune = None,
) -> Array:  # fmt: skip
    """x / sqrt(mean(x^2) + eps) weight along the last axis of x (..., N); weight (N,) is optional."""
    array = _array(x, "x", least=1)
    _vector(weight, "weight", array.shape[-1])
    y = _output(out, x, array.shape, dtype or array.dtype)
    constants = _tiles(array.shape[-1], tune)
    launch(
        kernels.rms_norm, *_stacks(x, y), weight, eps=_constant(eps, "eps", 0, math.inf), on=on, **constants
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
    array = _array(x, "x", least=1)
    _vector(weight, "weight", array.shape[-1])
    _vector(bias, "bias", array.shape[-1])
    y = _output(out, x, array.shape, dtype or array.dtype)
    constants = _tiles(array.shape[-1], tune)
    launch(
        kernels.layer_norm,
        *_stacks(x, y),
        weight,
        bias,
        eps=_constant(eps, "eps", 0, math.inf),
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
    array, other = _array(x, "x", least=1), _array(residual, "residual", least=1)
    n = array.shape[-1]
    _expect(other, "residual", array.shape, f"x of shape {array.shape}")
    _vector(weight, "weight", n)
    _vector(bias, "bias", n)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ArgumentError(f"seed is an integer, not {seed!r}", hint="pass a Python integer")
    y, total = _output(out, x, array.shape, array.dtype), _output(None, x, array.shape, other.dtype)
    numbers = {"p": _constant(p, "p", 0, 1), "eps": _constant(eps, "eps", 0, math.inf)}
    constants = {**numbers, **_tiles(n, tune, RESIDENT // 2)}  # two rows at once
    launch(
        kernels.dropout_residual_layer_norm,
        *_stacks(x, residual, y, total),
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
    array = _array(x, "x", least=1)
    y = _output(out, x, array.shape, array.dtype)
    constants = _tiles(array.shape[-1], tune)
    launch(kernels.l2_normalize, *_stacks(x, y), eps=_constant(eps, "eps", 0, math.inf), on=on, **constants)
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
    array = _array(logits, "logits", least=1)
    lead = array.shape[:-1]
    _expect(_array(labels, "labels", (int64, int32)), "labels", lead, f"logits of shape {array.shape}")
    loss = _output(None, logits, lead, float32)
    lse = _output(None, logits, lead, float32) if return_lse else None
    x, label, loss1 = _rows(logits=(logits, 1), labels=(labels, 0), loss=(loss, 0))
    lse1 = _rows(lse=(lse, 0))[0] if return_lse else None
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
    array = _array(logits, "logits", least=1)
    lead = array.shape[:-1]
    _expect(_array(labels, "labels", (int64, int32)), "labels", lead, f"logits of shape {array.shape}")
    for name, t in (("lse", lse), ("dloss", dloss)):
        _expect(_array(t, name, (float32,)), name, lead, f"logits of shape {array.shape}")
    dx = _output(out, logits, array.shape, array.dtype)
    views = _rows(logits=(logits, 1), labels=(labels, 0), lse=(lse, 0), dloss=(dloss, 0), out=(dx, 1))
    launch(kernels.cross_entropy_backward, *views, ignore_index=int(ignore_index), on=on, **(tune or {}))
    return dx


# Element by element.


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
    array, c, s = _array(x, "x", least=2), _array(cos, "cos", least=2), _array(sin, "sin", least=2)
    _expect(s, "sin", c.shape, f"cos of shape {c.shape}")
    n, d, pairs = array.shape[-2], array.shape[-1], c.shape[-1]
    if c.shape[-2] != n or not 1 <= pairs <= d // 2:
        raise ShapeError(
            f"cos and sin have shape {c.shape}, x has shape {array.shape}",
            hint=f"they hold {n} rows of 1 to {d // 2} pairs; take part of a longer table with cos[:{n}]",
        )
    lead, own = array.shape[:-2], c.shape[:-2]
    if not _repeats(own, lead):
        raise ShapeError(
            f"the leading axes of cos {c.shape} do not broadcast to those of x {array.shape}",
            hint="they are equal or 1, counted from the right",
        )
    y = _output(out, x, array.shape, array.dtype)
    x3, y3 = _stacks(x, y, keep=2) if len(own) == 0 else (x, y)
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
    x, y = _array(a, "a", least=1), _array(b, "b", least=1)
    lead, own = x.shape[:-2], y.shape[:-2]
    fits = y.shape[-2:] == x.shape[-2:] and _repeats(own, lead)
    if not fits and y.shape != x.shape[-1:]:
        raise ShapeError(
            f"b of shape {y.shape} is not added to a of shape {x.shape}",
            hint="b is one row, or has a's last two extents and leading ones that broadcast",
        )
    c = _output(out, a, x.shape, x.dtype)
    if y.ndim == 1:
        a2, c2 = _stacks(a, c)
        launch(kernels.add, a2, b, c2, on=on, **(tune or {}))
    else:
        views = _stacks(a, b, c) if x.shape == y.shape else [a, b, c]
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
    array = _array(x, "x", least=1)
    y = _output(out, x, array.shape, array.dtype)
    launch(kernels.activation, *_stacks(x, y), function=function, on=on, **(tune or {}))
    return y


def _gated(x: Array, up: Array, function: str, out: Array, on: On, tune: Tune) -> Array:
    array = _array(x, "x", least=1)
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
        _expect(_array(up, "up", least=1), "up", shape, f"x of shape {shape}")
    y = _output(out, x, shape, array.dtype)
    launch(kernels.gated, *_stacks(gate, up, y), function=function, on=on, **(tune or {}))
    return y


# Sequences.


@operation()
def embedding(table: Array, ids: Array, *, out: Array = None, on: On = None, tune: Tune = None) -> Array:
    """Rows of table (V, N) by integer ids (...): (..., N). An id that is no row gives zeros."""
    rows, index = _array(table, "table", ALL, ndim=2), _array(ids, "ids", INTEGERS)
    y = _output(out, table, (*index.shape, rows.shape[1]), rows.dtype, (rows.dtype,))
    launch(kernels.embedding, table, *_stacks(ids, keep=0), *_stacks(y), on=on, **(tune or {}))
    return y


@operation()
def mean_pool(x: Array, mask: Array, *, out: Array = None, on: On = None, tune: Tune = None) -> Array:
    """The mean of x (B, M, N) over its M positions, weighted by mask (B, M): (B, N). 0 where the mask
    is all 0.
    """
    array = _array(x, "x", ndim=3)
    _expect(
        _array(mask, "mask", (bool_, *INTEGERS, *FLOATS)),
        "mask",
        array.shape[:2],
        f"x of shape {array.shape}",
    )
    y = _output(out, x, (array.shape[0], array.shape[2]), array.dtype)
    launch(kernels.mean_pool, x, mask, y, on=on, **(tune or {}))
    return y
