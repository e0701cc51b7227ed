"""The product of matrices: whole or split along K, of operands as they lie or copied to where a target reads them faster."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kittens import kernels, plugins
from kittens.arguments import TensorArg, adopt, spec
from kittens.dtypes import FLOAT8, bfloat16, float8_e8m0fnu, float32, int8, int32, uint8
from kittens.errors import ArgumentError, DTypeError, ShapeError
from kittens.kernels.products import ACCUMULATIONS, MX_BLOCK
from kittens.kernels.stacks import ACTIVATIONS
from kittens.ops import checks, splitting
from kittens.ops.checks import Array, On, Tune
from kittens.opset.product import accumulator
from kittens.recording import empty, launch, operation
from kittens.runtime import choose_target
from kittens.targets import Target

#: Columns of a in a part, at least, where a product is split; and columns from which on that pays.
PART_COLUMNS, SPLIT_COLUMNS = 512, 4096
#: Rows of a product that waits for memory rather than for products.
FEW_ROWS = 64


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
    products = (*checks.FLOATS, *FLOAT8, int8, uint8)
    x, y = checks.described(a, "a", products, least=2), checks.described(b, "b", products, least=2)
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
    checks.vector(bias, "bias", n)
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
        default, dtypes = bfloat16 if x.dtype.is_float8 else x.dtype, (*checks.FLOATS, *FLOAT8)
    elif plain and bias is None and activation == "none":
        default, dtypes = int32, (int32, *checks.FLOATS)
    else:
        default, dtypes = float32, checks.FLOATS
    c = checks.output(out, a, (*batch, m, n), dtype or default, dtypes)
    left, right = a, b
    result = c
    if y.ndim == 2 and x.ndim > 2 and plain:  # one product of all rows
        left, result = checks.stacks(a, c)
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
    parts = empty(a, (splits, *stack), kind) if checks.count(splits, "splits", 1) > 1 else None
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
    if columns < SPLIT_COLUMNS or share * splitting.programs(
        kernels.matmul, whole, finish, target
    ) > splitting.processors(target):
        return 1
    programs = splitting.programs(kernels.matmul_split, pieces, summed, target)
    return splitting.parts(programs, columns, target, PART_COLUMNS, 1)


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
            found.append(None if scale is None else checks.constant(scale, name, -math.inf, math.inf))
            continue
        array = checks.described(scale, name, (float32, float8_e8m0fnu))
        if array.dtype == float8_e8m0fnu:
            blocks.append(name)
            k = a.shape[-1]
            if not a.dtype.is_float8 or k % MX_BLOCK:
                raise DTypeError(
                    f"{name} has block scales, and a is {a.dtype} with {k} columns",
                    hint=f"they go with float8 operands and a K that is a multiple of {MX_BLOCK}",
                )
            shape = (*a.shape[:-1], k // MX_BLOCK) if axis == -2 else (*b.shape[:-2], k // MX_BLOCK, n)
            checks.expect(array, name, shape, f"a block of {MX_BLOCK} elements along K for each scale")
        elif array.ndim == 1:
            checks.expect(array, name, (n,), "one scale for each row of a or column of b")
            scale = scale[:, None] if axis == -2 else scale[None, :]
        elif array.ndim:
            lead = (a if axis == -2 else b).shape[:-2]
            checks.expect(
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
