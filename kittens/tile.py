"""Tiles as a kernel sees them, and `apply`, the one door through which every operation goes.

A `Tile` is a type and a value whose meaning belongs to the executor at work: an IR value while tracing, an
array while running eagerly. Types are checked here, before any executor sees the operation, so an error is
the same everywhere.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from kittens import errors, opset
from kittens.dtypes import DType, as_dtype, bool_, convert, float32, int64, promote
from kittens.errors import ArgumentError, ControlFlowError, DTypeError, KittensError, ScopeError, ShapeError
from kittens.executor import Executor, Origins, current
from kittens.ir import TensorType, TileType, Type

if TYPE_CHECKING:
    from kittens.tensor import Tensor

#: Most axes that a tile may have.
MAX_RANK = 3

#: What a tile on the right is asked for NumPy's functions behind the operators of a NumPy scalar on the left.
_REFLECTED = {
    "add": "__radd__",
    "subtract": "__rsub__",
    "multiply": "__rmul__",
    "divide": "__rtruediv__",
    "true_divide": "__rtruediv__",
    "floor_divide": "__rfloordiv__",
    "remainder": "__rmod__",
    "matmul": "__rmatmul__",
    "bitwise_and": "__rand__",
    "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__",
    "left_shift": "__rlshift__",
    "right_shift": "__rrshift__",
    "less": "__gt__",
    "less_equal": "__ge__",
    "greater": "__lt__",
    "greater_equal": "__le__",
    "equal": "__eq__",
    "not_equal": "__ne__",
}
#: Functions of NumPy that kittens has, under its name for them.
_FROM_NUMPY = {
    **{
        n: n
        for n in ("exp", "exp2", "log", "log2", "sqrt", "reciprocal", "sin", "cos", "tanh", "floor", "ceil")
    },
    **{n: n for n in ("trunc", "maximum", "minimum", "isnan")},
    "absolute": "abs",
    "negative": "neg",
    "rint": "round",
}


class Tile:
    """A block of elements, used as a value: NumPy operators, broadcasting, named axes.

    Attributes: `dtype`, `shape` (constant), `ndim`. `known` is set on scalars computed from tensor extents
    alone: the value in this call and the extents it comes from, so that it can be used as a constant at the
    price of specialising. `loose` marks a scalar that is a Python integer where a loop makes no pass, and may
    not be told from one.
    """

    __slots__ = ("executor", "known", "loose", "product", "type", "value")

    def __init__(
        self, type: TileType, value: Any, executor: Executor, known: tuple[int, Origins] | None = None
    ):
        self.type = type
        self.value = value
        self.executor = executor
        self.known = known
        self.product: tuple[Tile, Tile] | None = None
        self.loose = False

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, as Python integers."""
        return self.type.shape

    @property
    def ndim(self) -> int:
        """Number of axes; 0 for a scalar."""
        return len(self.type.shape)

    def __repr__(self) -> str:
        return self.executor.show(self)

    # Arithmetic.
    def __add__(self, other: Any) -> Tile:
        return _add(self, other)

    def __radd__(self, other: Any) -> Tile:
        return _add(other, self)

    def __sub__(self, other: Any) -> Tile:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Tile:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Tile:
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> Tile:
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> Tile:
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Tile:
        return binary("div", other, self)

    def __floordiv__(self, other: Any) -> Tile:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Tile:
        return binary("floordiv", other, self)

    def __mod__(self, other: Any) -> Tile:
        return binary("mod", self, other)

    def __rmod__(self, other: Any) -> Tile:
        return binary("mod", other, self)

    def __matmul__(self, other: Any) -> Tile:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tile:
        return matmul(other, self)

    def __pow__(self, exponent: Any) -> Tile:
        if exponent != 2 or not isinstance(exponent, (int, float)):
            fail(
                ArgumentError,
                "a tile can only be raised to the power 2",
                "say x * x * x, kt.exp2(y * kt.log2(x)), kt.sqrt(x) or kt.rsqrt(x)",
            )
        return self * self

    def __neg__(self) -> Tile:
        return unary("neg", self)

    def __pos__(self) -> Tile:
        return self

    def __abs__(self) -> Tile:
        return unary("abs", self)

    # Bits and logic.
    def __invert__(self) -> Tile:
        return unary("bitnot", self)

    def __and__(self, other: Any) -> Tile:
        return binary("bitand", self, other)

    def __rand__(self, other: Any) -> Tile:
        return binary("bitand", other, self)

    def __or__(self, other: Any) -> Tile:
        return binary("bitor", self, other)

    def __ror__(self, other: Any) -> Tile:
        return binary("bitor", other, self)

    def __xor__(self, other: Any) -> Tile:
        return binary("bitxor", self, other)

    def __rxor__(self, other: Any) -> Tile:
        return binary("bitxor", other, self)

    def __lshift__(self, other: Any) -> Tile:
        return binary("shl", self, other)

    def __rlshift__(self, other: Any) -> Tile:
        return binary("shl", other, self)

    def __rshift__(self, other: Any) -> Tile:
        return binary("shr", self, other)

    def __rrshift__(self, other: Any) -> Tile:
        return binary("shr", other, self)

    # Comparison, element by element.
    def __lt__(self, other: Any) -> Tile:
        return binary("lt", self, other)

    def __le__(self, other: Any) -> Tile:
        return binary("le", self, other)

    def __gt__(self, other: Any) -> Tile:
        return binary("gt", self, other)

    def __ge__(self, other: Any) -> Tile:
        return binary("ge", self, other)

    def __eq__(self, other: Any) -> Tile:  # type: ignore[override]
        return binary("eq", self, other)

    def __ne__(self, other: Any) -> Tile:  # type: ignore[override]
        return binary("ne", self, other)

    def __hash__(self) -> NoReturn:
        fail(
            ControlFlowError,
            "a tile is used as a key of a dict or set",
            "key by a name or a Python integer; which variables hold one tile is not known while tracing",
        )

    # What a run-time value cannot be in Python.
    def __bool__(self) -> NoReturn:
        fail(
            ControlFlowError,
            f"the truth of a run-time value ({self.type}) decides Python control flow (if, while, and, "
            "or, not, in)",
            "branch with `for _ in kt.when(condition):`, choose with kt.where(condition, a, b), combine "
            "with & | ~; "
            "an extent becomes a constant with kt.static(x.shape[0])",
        )

    def __index__(self) -> NoReturn:
        fail(
            ControlFlowError,
            f"a run-time value ({self.type}) is used where Python needs an integer (range(), an index, a "
            "slice)",
            "loop with kt.range(...); an extent becomes a constant with kt.static(x.shape[0])",
        )

    __int__ = __index__

    def __float__(self) -> NoReturn:
        fail(
            ControlFlowError,
            f"a run-time value ({self.type}) has no Python number",
            "convert with .to(kt.float32) and go on computing with the tile",
        )

    def __len__(self) -> NoReturn:
        fail(ControlFlowError, "a tile has no len()", "its extents are the Python integers in .shape")

    def __iter__(self) -> NoReturn:
        fail(
            ControlFlowError,
            "a tile cannot be iterated over or unpacked",
            "take halves with kt.split, reduce along an axis, or load smaller tiles in kt.range",
        )

    def __contains__(self, item: object) -> NoReturn:
        fail(ControlFlowError, "`in` needs the run-time contents of a tile", "say (tile == x).any(axis=0)")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        fail(
            ControlFlowError,
            "a tile is not a NumPy array",
            "use the functions of kittens on it; .numpy() shows the elements where there are any",
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """A NumPy scalar on the left leaves the operation to us; NumPy's functions are refused."""
        reflected, left = _REFLECTED.get(ufunc.__name__), inputs[0]
        if not (reflected and method == "__call__" and isinstance(left, (np.generic, np.ndarray))):
            fail(
                DTypeError,
                f"np.{ufunc.__name__} does not work on tiles",
                f"the functions of kittens do, such as kt.{_FROM_NUMPY.get(ufunc.__name__, 'exp')}",
            )
        if isinstance(left, np.ndarray) and left.ndim == 0:  # a scalar that NumPy made one to compare it
            left = left[()]
        return getattr(self, reflected)(left)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        fail(
            DTypeError,
            f"np.{function.__name__} does not work on tiles",
            "tiles have methods such as x.sum(axis=1) and x.max(axis=1), and kt.where, kt.maximum, ...",
        )

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        fail(
            ControlFlowError,
            "tiles are values and cannot be assigned into",
            "make a new one with kt.where(mask, new, old)",
        )

    def __getitem__(self, key: Any) -> Tile:
        """New axes and nothing else: x[:, None], x[None, :], x[...]."""
        keys = key if isinstance(key, tuple) else (key,)
        given = [k for k in keys if k is not None and k is not Ellipsis]
        if (
            any(not (isinstance(k, slice) and k == slice(None)) for k in given)
            or len(given) > self.ndim
            or keys.count(Ellipsis) > 1
        ):
            fail(
                ShapeError,
                f"a tile of shape {self.shape} cannot be indexed with {_spell(key)}",
                "only new axes, as in x[:, None]; take parts with kt.split or by loading smaller tiles",
            )
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            keys = keys[:at] + (slice(None),) * (self.ndim - len(given)) + keys[at + 1 :]
        else:
            keys = keys + (slice(None),) * (self.ndim - len(given))
        extents = iter(self.shape)
        return reshape(self, tuple(1 if k is None else next(extents) for k in keys))

    # Shape and type.
    @property
    def T(self) -> Tile:
        """The transpose of a matrix."""
        if self.ndim != 2:
            fail(
                ShapeError,
                f".T is the transpose of a matrix; this tile has shape {self.shape}",
                "name the order with kt.transpose(x, axes)",
            )
        return transpose(self, (1, 0))

    def to(self, dtype: Any) -> Tile:
        """The elements converted to `dtype`: floats to nearest even, float8 saturating (docs/semantics.md,
        Conversions).
        """
        return cast(self, dtype)

    def bitcast(self, dtype: Any) -> Tile:
        """The same bits read as another type of the same size."""
        return operation("bitcast", (self,), {"dtype": element_type(dtype).name})

    def reshape(self, *shape: Any) -> Tile:
        """The same elements, in row-major order, in another shape."""
        return reshape(self, shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)

    def sum(self, axis: int) -> Tile:
        """Sum along an axis, in float32 (or int32) at least."""
        return reduce("sum", self, axis)

    def max(self, axis: int) -> Tile:
        """Largest element along an axis; NaN if there is one."""
        return reduce("max", self, axis)

    def min(self, axis: int) -> Tile:
        """Smallest element along an axis; NaN if there is one."""
        return reduce("min", self, axis)

    def argmax(self, axis: int) -> Tile:
        """Index (int32) of the first largest element along an axis, or of the first NaN."""
        return reduce("argmax", self, axis)

    def any(self, axis: int) -> Tile:
        """Whether any element of a bool tile is true along an axis."""
        return reduce("any", self, axis)

    def all(self, axis: int) -> Tile:
        """Whether all elements of a bool tile are true along an axis."""
        return reduce("all", self, axis)

    def cumsum(self, axis: int) -> Tile:
        """Running sums along an axis, in float32 (or int32) at least."""
        return reduce("cumsum", self, axis)

    def numpy(self) -> Any:
        """The elements as a NumPy array, for looking at while running on the reference; an error while
        tracing.
        """
        if not isinstance(self.value, np.ndarray):
            fail(
                ControlFlowError,
                "this tile has no elements yet: the kernel is being traced",
                "look at values by running on NumPy arrays, or with kt.print",
            )
        return self.value.copy()


class Counter:
    """A Python integer that a loop or branch carries: known only at run time, and an integer all the same.

    As with the integer that it is when Python runs the kernel, it takes the dtype of the tiles that it meets.
    Its own arithmetic is that of int64. What needs its value in Python is refused.
    """

    __slots__ = ("tile",)
    __array_ufunc__ = None

    def __init__(self, tile: Tile):
        self.tile = tile

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    def __repr__(self) -> str:
        return f"<Python integer carried by a loop, {self.tile!r}>"

    def __abs__(self) -> Counter:
        return Counter(unary("abs", self.tile))

    def __neg__(self) -> Counter:
        return Counter(unary("neg", self.tile))

    def __pos__(self) -> Counter:
        return self

    def __invert__(self) -> Counter:
        return Counter(unary("bitnot", self.tile))

    def _refuse(self, *args: Any) -> NoReturn:
        fail(
            ControlFlowError,
            "a Python integer that a loop or branch changes is known only at run time",
            "it can be added, multiplied, compared and used as a coordinate, but not index Python objects "
            "or decide "
            "Python control flow: loop over Python constants with range(), or choose with kt.where",
        )


def _counter_method(name: str, reflected: bool, wrap: Any) -> Any:
    def method(self: Counter, other: Any) -> Any:
        if type(other) is Counter:
            other = other.tile
        elif isinstance(other, (int, np.integer)):
            other = int(other)
        elif isinstance(other, (float, np.floating)):
            self._refuse()
        else:
            return NotImplemented
        return wrap(binary(name, other, self.tile) if reflected else binary(name, self.tile, other))

    return method


for _python, _name in dict(
    add="add", sub="sub", mul="mul", floordiv="floordiv", mod="mod", lshift="shl", rshift="shr",
    **{"and": "bitand", "or": "bitor", "xor": "bitxor"},
).items():  # fmt: skip
    setattr(Counter, f"__{_python}__", _counter_method(_name, False, Counter))
    setattr(Counter, f"__r{_python}__", _counter_method(_name, True, Counter))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Counter, f"__{_name}__", _counter_method(_name, False, lambda tile: tile))
for _name in [
    "bool",
    "index",
    "int",
    "float",
    "hash",
    "str",
    "format",
    "round",
    "pow",
    "rpow",
    "divmod",
    "rdivmod",
]:
    setattr(Counter, f"__{_name}__", Counter._refuse)


def fail(kind: type[KittensError], message: str, hint: str = "") -> NoReturn:
    """Raise an error at the line of the kernel that is being run."""
    raise kind(message, hint=hint, location=errors.here())


def _spell(key: Any) -> str:
    if isinstance(key, tuple):
        return ", ".join(map(_spell, key))
    if isinstance(key, slice):
        return ":" if key == slice(None) else f"{_spell(key.start)}:{_spell(key.stop)}"
    return (
        "..."
        if key is Ellipsis
        else ""
        if key is None
        else str(key.type)
        if isinstance(key, Tile)
        else repr(key)
    )


def element_type(spec: Any) -> DType:
    """The element type that a user named. Raises DTypeError at the line of the kernel."""
    try:
        return as_dtype(spec)
    except KittensError as error:
        error.location = errors.here()
        raise


def apply(name: str, operands: Sequence[Tile | Tensor], attrs: dict[str, Any]) -> list[Tile]:
    """Check one operation and have the current executor carry it out."""
    executor = current()
    for x in operands:
        if x.executor is not executor:
            fail(
                ScopeError,
                "a tile or tensor of another kernel is used here",
                "tiles live as long as one run of their kernel; pass data between kernels in tensors",
            )
    types: list[Type] = [x.type for x in operands]
    try:
        call = opset.infer(name, types, attrs)
        values = executor.apply(name, call, [x.value for x in operands])
    except KittensError as error:
        error.location = error.location or errors.here()
        raise
    return [
        Tile(t, v, executor) for t, v in zip(call.results, values, strict=False) if isinstance(t, TileType)
    ]


def operation(name: str, operands: Sequence[Any], attrs: dict[str, Any]) -> Tile:
    """Apply an operation with one result to tiles and numbers."""
    (result,) = apply(name, [as_tile(x) for x in operands], attrs)
    return result


# Numbers and tiles.


def _is_tensor(x: Any) -> bool:
    return isinstance(getattr(x, "type", None), TensorType)


def is_number(x: Any) -> bool:
    """Whether `x` is a number of Python or NumPy."""
    return isinstance(x, (bool, int, float, np.generic))


def _bounds(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    return (
        (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1) if dtype.kind == "i" else (0, 2**dtype.bits - 1)
    )


def _holds(dtype: DType, value: int) -> bool:
    low, high = _bounds(dtype)
    return low <= value <= high


def constant(value: Any, dtype: DType, shape: tuple[int, ...] = ()) -> Tile:
    """A tile filled with a Python number, converted to `dtype`; refuses what the type cannot hold."""
    if type(value) is Counter:
        if dtype.kind == "b":
            value._refuse()
        return broadcast(cast(value.tile, dtype), shape)
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        fail(DTypeError, f"{type(value).__name__} is not a number a tile can hold")
    if dtype.is_integer:
        if isinstance(value, float):
            if not value.is_integer():
                fail(
                    DTypeError,
                    f"{value!r} is not an integer, the tile is {dtype}",
                    "convert the tile with .to(kt.float32)",
                )
            value = int(value)
        if not _holds(dtype, value):
            low, high = _bounds(dtype)
            fail(DTypeError, f"{value} does not fit into {dtype} ({low} to {high})", "use a wider type")
        value = int(value)
    elif dtype.kind == "b":
        if value not in (0, 1):
            fail(DTypeError, f"{value!r} is not a bool")
        value = bool(value)
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        value = float(convert(np.array(value, np.int64), dtype))  # one rounding, as a conversion at run time
    else:
        value = float(value)
    (result,) = apply("const", (), {"value": value, "dtype": dtype.name, "shape": shape})
    if shape == () and dtype.is_integer:
        result.known = (value, frozenset())
    return result


def as_tile(x: Any, like: DType | None = None) -> Tile:
    """`x` as a tile; a Python number becomes a scalar of `like`."""
    if isinstance(x, Tile):
        return x
    if _is_tensor(x):
        fail(
            DTypeError,
            "a tensor is used where a tile is needed",
            "load a tile first: kt.load(tensor, coordinates, shape)",
        )
    if is_number(x) and like is not None:
        if isinstance(x, (float, np.floating)) and like.kind in "biu":
            fail(
                DTypeError,
                f"the float {x!r} meets a tile of {like}",
                "convert the tile first, with .to(kt.float32)",
            )
        if isinstance(x, (bool, np.bool_)) and like.kind != "b":
            fail(DTypeError, f"the bool {x!r} meets a tile of {like}", "use 0 or 1, or kt.where")
        return constant(x, like)
    if is_number(x):
        return constant(x, bool_ if isinstance(x, bool) else int64 if isinstance(x, int) else float32)
    fail(DTypeError, f"{type(x).__name__} is used where a tile is needed")


def integer(x: Any, what: str) -> Tile:
    """`x` as an integer scalar tile."""
    if isinstance(x, Tile):
        if x.shape == () and x.dtype.is_integer:
            return x
        fail(DTypeError, f"{what} is an integer scalar, not {x.type}")
    if type(x) is Counter:
        return x.tile
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
        return constant(int(x), int64)
    fail(
        DTypeError,
        f"{what} is an integer, not {x!r}" if not _is_tensor(x) else f"{what} is an integer, not a tensor",
    )


def extent(x: Any, what: str = "an extent of a tile") -> int:
    """`x` as a positive Python integer. An extent of a tensor is made constant: the kernel specialises on
    it.
    """
    n = static(x, what)
    if n < 1:
        fail(
            ShapeError,
            f"{what} is at least 1, not {n}",
            "an empty tensor is fine: programs that load from it get `pad`",
        )
    return n


def static(x: Any, what: str = "kt.static") -> int:
    """A Python integer from an extent of a tensor (or arithmetic on extents); the kernel specialises on its
    value.

    Raises ShapeError for a value that is known only while the kernel runs.
    """
    if isinstance(x, Tile):
        if x.known is None:
            fail(ShapeError, f"{what} must be a constant, and this {x.type} is known only at run time",
                  "use a keyword-only parameter of the kernel, or an extent such as x.shape[-1]")  # fmt: skip
        current().specialise(x.known[1])
        return x.known[0]
    try:
        return operator.index(x)
    except TypeError:
        fail(ShapeError, f"{what} must be an integer, not {x!r}")


def shape_of(shape: Any) -> tuple[int, ...]:
    """A tile shape from what the user gave: integers or extents."""
    items = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if len(items) > MAX_RANK:
        fail(
            ShapeError,
            f"a tile has at most {MAX_RANK} axes, not {len(items)}",
            "index the leading axes of tensors",
        )
    return tuple(extent(x) for x in items)


# Operations with checks and conversions of their own.

_KNOWN: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "maximum": max, "minimum": min,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "cdiv": lambda a, b: -(-a // b) if b else 0,
}  # fmt: skip


def unify(name: str, *operands: Any) -> list[Tile]:
    """Bring operands to one dtype and one shape: numbers take the tiles' type, tiles widen and broadcast."""
    tiles = [x for x in operands if isinstance(x, Tile)]
    for x in operands:
        if not isinstance(x, Tile) and not is_number(x):
            as_tile(x)
    if not tiles:
        fail(DTypeError, f"{name} needs at least one tile among its operands")
    dtype = tiles[0].dtype
    try:
        for t in tiles[1:]:
            dtype = promote(dtype, t.dtype)
    except DTypeError as error:
        error.message = f"{name}: {error.message}"
        error.location = errors.here()
        raise
    if any(t.loose for t in tiles):
        _check_loose(name, tiles, dtype)
    cast_up = [cast(as_tile(x, dtype), dtype) for x in operands]
    try:
        shape = np.broadcast_shapes(*(t.shape for t in cast_up))
    except ValueError:
        shapes = " and ".join(str(t.shape) for t in tiles)
        fail(
            ShapeError,
            f"{name}: shapes {shapes} do not broadcast",
            "add an axis with x[:, None] or x[None, :]",
        )
    return [broadcast(t, shape) for t in cast_up]


def _check_loose(name: str, tiles: list[Tile], dtype: DType) -> None:
    """Refuse to bring together what would have another type if the loose operands were Python integers."""
    firm = [t.dtype for t in tiles if not t.loose]
    if dtype != (functools.reduce(promote, firm) if firm else tiles[0].dtype):
        loose = next(t for t in tiles if t.loose)
        fail(
            ControlFlowError,
            f"{name}: an operand is a Python integer if its loop or branch does not run, a run-time "
            f"{loose.dtype} "
            f"if it does, which would make the result another type",
            f"give it a type before the loop: kt.scalar(0, kt.{loose.dtype})",
        )


def unary(name: str, x: Any) -> Tile:
    """An element-by-element operation of one operand."""
    if not isinstance(x, Tile):
        as_tile(x)
        fail(DTypeError, f"{name} takes a tile, not {x!r}", "use the math module on Python numbers")
    result = operation(name, (x,), {})
    result.loose = x.loose and name in ("neg", "abs", "bitnot")
    return result


def binary(name: str, a: Any, b: Any) -> Tile:
    """An element-by-element operation of two operands, brought together by `unify`."""
    x, y = unify(name, a, b)
    (result,) = apply(name, (x, y), {})
    if x.known and y.known and name in _KNOWN:
        value = _KNOWN[name](x.known[0], y.known[0])
        result.known = (value, x.known[1] | y.known[1]) if _holds(result.dtype, value) else None
    tiles = [t for t in (a, b) if isinstance(t, Tile)]
    result.loose = result.dtype.is_integer and all(t.loose for t in tiles)
    return result


def _add(a: Any, b: Any) -> Tile:
    """a + b; where one side is a product just made, one accumulation (docs/semantics.md, Products)."""
    if isinstance(a, Tile) and isinstance(b, Tile) and a.type == b.type:
        for product, rest in ((b, a), (a, b)):
            if product.product is not None and current().fuses(product):
                (result,) = apply("mma", (*product.product, rest), {})
                return result
    return binary("add", a, b)


def matmul(a: Any, b: Any, acc: Any = None, accumulate: str = "full") -> Tile:
    """The matrix product a @ b, or acc + a @ b in one accumulation.

    A fast product that is added to something stays a product and an addition: sums of products of a few elements of K,
    added in float32, are written so.
    """
    x, y = as_tile(a), as_tile(b)
    attrs = {} if accumulate == "full" else {"accumulate": accumulate}
    (result,) = apply("mma", (x, y) if acc is None else (x, y, as_tile(acc)), attrs)
    if acc is None and not attrs:
        result.product = (x, y)
    return result


def cast(x: Tile, dtype: Any) -> Tile:
    """`x` converted to `dtype`; itself if it has it already."""
    to = element_type(dtype)
    if x.dtype == to:
        return x
    result = operation("cast", (x,), {"dtype": to.name})
    if to.is_integer and x.known and _holds(to, x.known[0]):
        result.known = x.known
    return result


def broadcast(x: Tile, shape: tuple[int, ...]) -> Tile:
    """`x` with axes of extent 1 repeated, and leading axes added, to `shape`; itself if it has it already."""
    return x if x.shape == shape else operation("broadcast", (x,), {"shape": tuple(shape)})


def reshape(x: Tile, shape: Any) -> Tile:
    """The same elements, in row-major order, in another shape; one extent may be -1."""
    items = tuple(shape)
    wild = [i for i, n in enumerate(items) if isinstance(n, int) and n == -1]
    if len(wild) > 1:
        fail(ShapeError, "only one extent of a reshape may be -1")
    if wild:
        rest = math.prod(extent(n) for i, n in enumerate(items) if i != wild[0])
        items = (*items[: wild[0]], max(1, x.type.size // rest), *items[wild[0] + 1 :])
    new = shape_of(items)
    return x if x.shape == new else operation("reshape", (x,), {"shape": new})


def transpose(x: Tile, axes: Sequence[int]) -> Tile:
    """The tile whose axis i is axis `axes[i]` of `x`."""
    order = tuple(a + x.ndim if a < 0 else a for a in axes)
    if sorted(order) != list(range(x.ndim)):
        fail(
            ShapeError,
            f"transpose of a tile of shape {x.shape} with axes {tuple(axes)}",
            "name each axis once",
        )
    return x if order == tuple(range(x.ndim)) else operation("transpose", (x,), {"perm": order})


def axis_of(x: Tile, axis: Any, name: str) -> int:
    """An axis of `x`, counted from the end (negative)."""
    if not isinstance(axis, int) or isinstance(axis, bool) or not -x.ndim <= axis < x.ndim:
        fail(
            ShapeError,
            f"{name}: no axis {axis!r} in a tile of shape {x.shape}",
            f"axes are 0 to {x.ndim - 1}" if x.ndim else "a scalar has no axes",
        )
    return axis - x.ndim if axis >= 0 else axis


def reduce(name: str, x: Any, axis: Any) -> Tile:
    """A reduction or scan along one axis."""
    t = as_tile(x)
    return operation(name, (t,), {"axis": axis_of(t, axis, name)})
