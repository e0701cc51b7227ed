"""The functions a kernel is written with, beyond operators on tiles. Re-exported as `kt.load`, `kt.exp2`,
...
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from kittens.dtypes import bool_, float32, int32, int64
from kittens.errors import ArgumentError, DTypeError, ShapeError
from kittens.executor import current
from kittens.tensor import Tensor
from kittens.tile import (
    Tile,
    apply,
    as_tile,
    axis_of,
    binary,
    broadcast,
    cast,
    constant,
    element_type,
    extent,
    fail,
    integer,
    is_number,
    matmul,
    operation,
    reshape,
    shape_of,
    static,
    unary,
    unify,
)

inf = math.inf
nan = math.nan
Number = int | float
Like = Tile | int | float

# Making tiles.


def zeros(shape: Any, dtype: Any) -> Tile:
    """A tile of zeros."""
    return full(shape, 0, dtype)


def full(shape: Any, value: Like, dtype: Any) -> Tile:
    """A tile of `shape` filled with a number or a scalar tile, converted to `dtype`."""
    to, extents = element_type(dtype), shape_of(shape)
    if isinstance(value, Tile):
        if value.shape != ():
            fail(
                ShapeError,
                f"kt.full takes a scalar, not a tile of shape {value.shape}",
                "broadcasting is automatic in arithmetic",
            )
        return broadcast(cast(value, to), extents)
    return constant(value, to, extents)


def scalar(value: Number, dtype: Any) -> Tile:
    """A scalar tile, for what a loop carries: kt.scalar(0.5, kt.float32)."""
    return full((), value, dtype)


def arange(size: Any, dtype: Any = int32) -> Tile:
    """The tile [0, 1, ..., size - 1]; `size` is a constant."""
    to = element_type(dtype)
    if not to.is_integer:
        fail(DTypeError, f"kt.arange counts in integers, not {to}", "convert with .to(...)")
    return operation("arange", (), {"size": extent(size, "the size of kt.arange"), "dtype": to.name})


def indices(coordinate: Like, size: Any) -> Tile:
    """Positions along one axis of the tile at a tile coordinate: coordinate * size + arange(size), in
    int64.
    """
    n = extent(size)
    return binary("add", binary("mul", cast(integer(coordinate, "a tile coordinate"), int64), n), arange(n))


def rows(coordinate: Like, size: Any) -> Tile:
    """Row positions of a tile, as a column to compare and broadcast with: kt.indices(...)[:, None]."""
    return indices(coordinate, size)[:, None]


def cols(coordinate: Like, size: Any) -> Tile:
    """Column positions of a tile, as a row to compare and broadcast with: kt.indices(...)[None, :]."""
    return indices(coordinate, size)[None, :]


#: Orders in which programs can be started.
SORTED = ("ascending", "descending")
ORDERS = ("linear", "grouped", *SORTED)


def program_id(axis: int | None = None, *, order: str = "linear", among: int | None = None) -> Any:
    """The coordinates of this program in the grid: int64 scalars, a tuple of them for a grid of several axes.

    `axis` picks one. order="grouped" lets the target choose which coordinates run near each other in time and
    place (for its caches or chiplets). "ascending" and "descending" start programs with smaller, or larger, first coordinates
    earlier, for a few neighbours along the other axes at a time: say where the most work is. Of them at least `among`
    programs are sorted together, if it is given: fewer where each takes long. Every coordinate still occurs exactly once.
    """
    if order not in ORDERS:
        fail(ArgumentError, f"no program order {order!r}", f"the orders are {', '.join(map(repr, ORDERS))}")
    if among is not None and (type(among) is not int or among < 1):
        fail(ArgumentError, f"among is {among!r}", "a Python integer of at least 1, or leave it out")
    if among is not None and order not in SORTED:
        fail(
            ArgumentError,
            f"among is {among}, and programs in {order} order are not sorted",
            f"leave it out, or sort them: order={' or '.join(map(repr, SORTED))}",
        )
    return _grid("program_id", axis, {"order": order} if among is None else {"order": order, "among": among})


def num_programs(axis: int | None = None) -> Any:
    """The extents of the grid, like `program_id`."""
    return _grid("num_programs", axis, {})


def _grid(name: str, axis: int | None, attrs: dict[str, Any]) -> Any:
    rank = current().grid_rank
    if axis is not None and not 0 <= axis < rank:
        fail(ShapeError, f"no axis {axis} in a grid of {rank} axes")
    ids = apply(name, (), {"rank": rank, **attrs})
    return ids[axis] if axis is not None else ids[0] if rank == 1 else tuple(ids)


# Memory.


def load(
    tensor: Tensor | str | os.PathLike[str], coordinates: Any = (), shape: Any = (), *, pad: Number = 0
) -> Any:
    """The tile of `shape` at tile coordinates (multiples of its extents) of a tensor with as many axes (0, 1
    or 2).

    Elements outside the tensor are `pad`. With no coordinates, the one element of a fully indexed tensor.
    Outside kernels, kt.load(path) reads a compiled kernel that `kernel.compile(...).save(path)` wrote.
    """
    if isinstance(tensor, (str, os.PathLike)):
        from kittens.artifact import load as load_artifact

        return load_artifact(tensor)
    view = _tensor(tensor, "kt.load")
    if type(pad) not in (bool, int, float) and not isinstance(pad, np.generic):
        fail(
            ArgumentError,
            f"pad is a Python number, not {pad!r}",
            "choose at run time with kt.where on the loaded tile",
        )
    constant(pad, view.dtype)  # refuses what the dtype cannot hold
    (result,) = apply("load", (view, *_coordinates(coordinates)), {"shape": shape_of(shape), "pad": pad})
    return result


def store(tensor: Tensor, coordinates: Any, value: Tile) -> None:
    """Write a tile at tile coordinates of a tensor; elements outside are dropped. Floats are rounded to
    its dtype.
    """
    view = _tensor(tensor, "kt.store")
    apply("store", (view, *_coordinates(coordinates), _stored(view, value, "kt.store")), {})


def store_add(tensor: Tensor, coordinates: Any, value: Tile, *, turn: Any = None) -> None:
    """Add a tile to a tensor in memory, atomically for each element.

    The order in which programs add is not determined, so a float result may differ from run to run; integers
    do not. With turn=(counter, n) it is: the tile is added once `counter`, an element of an int32 tensor such as
    turns[i], is n, and then the counter is n + 1. Give each tile of memory a counter of its own, 0 at first, and let no
    program wait for one with a higher number, in the order that program_id names. (On a device that does not promise that
    others go on meanwhile, such programs run one after another.)
    """
    view = _tensor(tensor, "kt.store_add")
    where: tuple[Tile | Tensor, ...] = (view, *_coordinates(coordinates))
    if turn is None:
        apply("store_add", (*where, _stored(view, value, "kt.store_add")), {})
        return
    if not isinstance(turn, (tuple, list)) or len(turn) != 2:
        fail(ArgumentError, f"turn of kt.store_add is {turn!r}", "a pair: turn=(turns[i], n)")
    counter, n = turn
    counted = (_tensor(counter, "turn of kt.store_add"), integer(n, "the turn of kt.store_add"))
    apply("store_add", (*where, *counted, _stored(view, value, "kt.store_add")), {"ordered": True})


def _tensor(x: Any, what: str) -> Tensor:
    if not isinstance(x, Tensor):
        fail(DTypeError, f"{what} takes a tensor first, not "
                          f"{f'a tile {x.type}' if isinstance(x, Tile) else repr(x)}",
              "tensors are the positional parameters of a kernel that were given arrays")  # fmt: skip
    return x


def _coordinates(coordinates: Any) -> list[Tile]:
    items = coordinates if isinstance(coordinates, (tuple, list)) else (coordinates,)
    return [integer(c, "a tile coordinate") for c in items]


def _stored(view: Tensor, value: Any, what: str) -> Tile:
    if not isinstance(value, Tile):
        as_tile(value) if not is_number(value) else None
        fail(
            DTypeError,
            f"{what} takes a tile, not the number {value!r}",
            "kt.full(shape, value, dtype) makes one",
        )
    have, want = value.dtype, view.dtype
    if have == want:
        return value
    widens = have.kind == want.kind and have.kind in "iu" and have.bits < want.bits
    if (
        not (have.is_float and (want.is_float or want.kind == "s"))
        and not (have.kind == "s" and want.is_float)
        and not widens
    ):
        fail(
            DTypeError,
            f"{what}: a tile of {have} into a tensor of {want}",
            f"only floats convert by themselves; say .to(kt.{want})",
        )
    return cast(value, want)


# Element by element.


def exp(x: Tile) -> Tile:
    """e to the power x."""
    return unary("exp", x)


def exp2(x: Tile) -> Tile:
    """2 to the power x."""
    return unary("exp2", x)


def log(x: Tile) -> Tile:
    """Natural logarithm; -inf at 0, NaN below."""
    return unary("log", x)


def log2(x: Tile) -> Tile:
    """Logarithm to base 2; -inf at 0, NaN below."""
    return unary("log2", x)


def sqrt(x: Tile) -> Tile:
    """Square root, correctly rounded; NaN below 0."""
    return unary("sqrt", x)


def rsqrt(x: Tile) -> Tile:
    """1 / sqrt(x); inf at 0."""
    return unary("rsqrt", x)


def reciprocal(x: Tile) -> Tile:
    """1 / x, correctly rounded."""
    return unary("reciprocal", x)


def sin(x: Tile) -> Tile:
    """Sine of x in radians."""
    return unary("sin", x)


def cos(x: Tile) -> Tile:
    """Cosine of x in radians."""
    return unary("cos", x)


def tanh(x: Tile) -> Tile:
    """Hyperbolic tangent."""
    return unary("tanh", x)


def erf(x: Tile) -> Tile:
    """Error function."""
    return unary("erf", x)


def floor(x: Tile) -> Tile:
    """Largest whole number not above x."""
    return unary("floor", x)


def ceil(x: Tile) -> Tile:
    """Smallest whole number not below x."""
    return unary("ceil", x)


def trunc(x: Tile) -> Tile:
    """x without its fraction."""
    return unary("trunc", x)


def round(x: Tile) -> Tile:
    """The nearest whole number, halves to even."""
    return unary("round", x)


def abs(x: Tile) -> Tile:
    """Absolute value."""
    return unary("abs", x)


def neg(x: Tile) -> Tile:
    """-x: the sign bit flipped, for floats."""
    return unary("neg", x)


def maximum(a: Like, b: Like) -> Tile:
    """The larger, element by element; NaN if either is. Which zero is larger is not defined."""
    return binary("maximum", a, b)


def minimum(a: Like, b: Like) -> Tile:
    """The smaller, element by element; NaN if either is. Which zero is smaller is not defined."""
    return binary("minimum", a, b)


def clamp(x: Tile, low: Like, high: Like) -> Tile:
    """minimum(maximum(x, low), high); NaN stays NaN."""
    return minimum(maximum(x, low), high)


def fma(a: Like, b: Like, c: Like) -> Tile:
    """a * b + c rounded once."""
    (result,) = apply("fma", unify("kt.fma", a, b, c), {})
    return result


def where(condition: Tile | Any, a: Like, b: Like) -> Tile:
    """`a` where the bool tile holds, else `b`; the three broadcast together."""
    if not isinstance(condition, Tile) or condition.dtype != bool_:
        came = condition.type if isinstance(condition, Tile) else repr(condition)
        fail(
            DTypeError,
            f"kt.where takes a bool tile first, not {came}",
            "compare, as in x != 0; on a Python bool use `a if condition else b`",
        )
    x, y = unify("kt.where", a, b)
    try:
        shape = np.broadcast_shapes(condition.shape, x.shape)
    except ValueError:
        fail(
            ShapeError,
            f"kt.where: shapes {condition.shape} and {x.shape} do not broadcast",
            "add an axis with x[:, None] or x[None, :]",
        )
    (result,) = apply("where", [broadcast(t, shape) for t in (condition, x, y)], {})
    return result


def isnan(x: Tile) -> Tile:
    """Whether each element is NaN."""
    return binary("ne", x, x)


def relu(x: Tile) -> Tile:
    """maximum(x, 0)."""
    return maximum(x, 0)


def sigmoid(x: Tile) -> Tile:
    """1 / (1 + exp(-x)), in float32 for 16-bit floats."""
    y = _in_float32(x)
    return cast(reciprocal(1.0 + exp(-y)), x.dtype)


def silu(x: Tile) -> Tile:
    """x / (1 + exp(-x)), in float32 for 16-bit floats."""
    y = _in_float32(x)
    return cast(y / (1.0 + exp(-y)), x.dtype)


def gelu(x: Tile, approximate: str = "none") -> Tile:
    """0.5 x (1 + erf(x / sqrt 2)), or with approximate="tanh" 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715
    x^3))).

    Computed in float32 for 16-bit floats.
    """
    y = _in_float32(x)
    if approximate == "none":
        inner = erf(y * math.sqrt(0.5))
    elif approximate == "tanh":
        inner = tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * (y * y * y)))
    else:
        fail(ArgumentError, f"no approximation {approximate!r} of gelu", "the choices are 'none' and 'tanh'")
    return cast(0.5 * y * (1.0 + inner), x.dtype)


def _in_float32(x: Tile) -> Tile:
    if not isinstance(x, Tile):
        unary("exp", x)
    return cast(x, float32) if x.dtype.is_float and x.dtype.computes and x.dtype.bits < 32 else x


def cdiv(a: Any, b: Any) -> Any:
    """a / b rounded up: of Python integers, or of integer tiles."""
    if not isinstance(a, Tile) and not isinstance(b, Tile):
        return -(-a // b)
    return binary("cdiv", a, b)


def round_up(n: Any, multiple: int) -> int:
    """The least multiple of `multiple` not below a constant `n` (an extent is made constant); for tile
    shapes.
    """
    return -(-static(n, "the first argument of kt.round_up") // multiple) * multiple


# Products, shapes, random numbers.


def mma(a: Tile, b: Tile, acc: Tile | None = None, *, accumulate: str = "full") -> Tile:
    """acc + a @ b in one accumulation: float32 for floats, int32 for 8-bit integers. The order of
    summation is free.

    accumulate: "full", or "fast" for float8 operands: sums may then be cut to 14 bits of significand whenever something is
    added to them (docs/semantics.md, Products), which some targets do faster. The result is float32.
    `acc + kt.mma(a, b, accumulate="fast")` adds in float32 what a and b give; kt.mma(a, b, acc, accumulate="fast") does not.
    """
    return matmul(a, b, acc, accumulate)


def mma_scaled(a: Tile, a_scale: Tile, b: Tile, b_scale: Tile, acc: Tile | None = None) -> Tile:
    """acc + a @ b of float8 tiles with one float8_e8m0fnu scale for each 32 elements along K (OCP MX).

    Shapes: a (M, K), a_scale (M, K/32), b (K, N), b_scale (K/32, N); result float32 (M, N).
    """
    operands = [as_tile(x) for x in (a, a_scale, b, b_scale)] + ([as_tile(acc)] if acc is not None else [])
    (result,) = apply("mma_scaled", operands, {})
    return result


def split(x: Tile, axis: int = -1, *, pairs: bool = False) -> tuple[Tile, Tile]:
    """The two halves of an axis, or with pairs=True its even and its odd elements."""
    first, second = apply("split", (as_tile(x),), {"axis": axis_of(x, axis, "kt.split"), "pairs": pairs})
    return first, second


def join(a: Tile, b: Tile, axis: int = -1, *, pairs: bool = False) -> Tile:
    """The inverse of `split`."""
    (result,) = apply("join", (as_tile(a), as_tile(b)), {"axis": axis_of(a, axis, "kt.join"), "pairs": pairs})
    return result


def expand_dims(x: Tile, axis: int | Any) -> Tile:
    """The tile with a new axis of extent 1 at position `axis`."""
    if not isinstance(axis, int) or not -x.ndim - 1 <= axis <= x.ndim:
        fail(ShapeError, f"no place {axis!r} for a new axis in a tile of shape {x.shape}")
    at = axis + x.ndim + 1 if axis < 0 else axis
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def cumsum(x: Tile, axis: int) -> Tile:
    """Running sums along an axis."""
    return x.cumsum(axis)


def random_bits(seed: Like, counter: Tile) -> Tile:
    """32 random bits (uint32) for each integer of `counter`: Philox-4x32-10 under the key `seed`.

    Element c is word c mod 4 of the block numbered c div 4, so neighbouring counters share the work.
    """
    (result,) = apply("random_bits", (integer(seed, "the seed"), as_tile(counter)), {})
    return result


def random_uniform(seed: Like, counter: Tile) -> Tile:
    """Uniform float32 in [0, 1), multiples of 2^-24, one for each integer of `counter`; see `random_bits`."""
    bits = binary("shr", random_bits(seed, counter), 8)
    return cast(bits, float32) * 2.0**-24


# Telling the author.


def device_print(text: str | Any, *values: Tile) -> None:
    """Print a text with `{}` in it for each value, once for each program, with the program's coordinates.

    On GPUs and simulators, elements of tiles follow in lines of their own. Lines of different programs come in any order. On
    devices without printf they come when the launch has ended, which is waited for: $KITTENS_PRINT_BYTES of them, or 1 MiB (a
    line takes 8 bytes and 8 for each number in it); then how many lines more did not fit.
    """
    if not isinstance(text, str) or text.count("{}") != len(values):
        fail(ArgumentError, f"{text!r} has not one {{}} for each of {len(values)} values")
    apply("print", [as_tile(v) for v in values], {"text": text})


def device_assert(condition: Tile | Any, message: str = "assertion failed") -> None:
    """Stop with an error that names the program if any element of a bool tile is false (where the target
    checks).
    """
    if not isinstance(condition, Tile) or condition.dtype != bool_:
        fail(
            DTypeError,
            f"kt.device_assert takes a bool tile, not {condition!r}",
            "use `assert` on Python values",
        )
    apply("assert", (condition,), {"message": str(message)})
