"""Tensors as a kernel sees them: extents, types, and views that are indexed like NumPy's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from kittens import errors, opset
from kittens.dtypes import DType, int64
from kittens.errors import ControlFlowError, DTypeError, KittensError, ScopeError, ShapeError
from kittens.executor import Executor, current
from kittens.ir import TensorType
from kittens.tile import Counter, Tile, apply, binary, cast, constant, fail, integer, is_number


class Tensor:
    """A tensor in global memory, or a view of one. Indexed like NumPy down to the 1 or 2 axes that a tile
    covers.

    `shape` holds one scalar tile an axis (int64), `dtype` and `ndim` are constants.
    """

    __slots__ = ("executor", "shape", "type", "value")
    __array_ufunc__ = None

    def __init__(self, type: TensorType, value: Any, shape: tuple[Tile, ...], executor: Executor):
        self.type = type
        self.value = value
        self.shape = shape
        self.executor = executor

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.type.rank

    def __repr__(self) -> str:
        return f"<{self.type}>"

    @property
    def T(self) -> Tensor:
        """The view with the axes in reverse order."""
        return self.permute(*reversed(range(self.ndim)))

    def permute(self, *axes: int) -> Tensor:
        """The view whose axis i is axis `axes[i]` of this one."""
        if sorted(axes) != list(range(self.ndim)):
            fail(ShapeError, f"permute{tuple(axes)} of a tensor with {self.ndim} axes", "name each axis once")
        return _view("permute", self, (), {"perm": tuple(axes)}, tuple(self.shape[a] for a in axes))

    def __getitem__(self, key: Any) -> Tensor:
        """Integers (constant or run-time) drop an axis, slices lo:hi narrow it, `...` and `:` keep axes."""
        keys = list(key) if isinstance(key, tuple) else [key]
        ellipses = [i for i, k in enumerate(keys) if k is Ellipsis]
        if len(ellipses) > 1 or len(keys) - len(ellipses) > self.ndim:
            fail(ShapeError, f"{len(keys)} indices for a tensor of {self.ndim} axes")
        if ellipses:
            at = ellipses[0]
            keys[at : at + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        view, axis = self, 0
        for k in keys:
            if isinstance(k, slice):
                view = _sliced(view, axis, k)
                axis += 1
            else:
                view = _indexed(view, axis, k)
        return view

    def __iter__(self) -> NoReturn:
        fail(
            ControlFlowError,
            "a tensor cannot be iterated over or unpacked",
            "loop over tile coordinates with kt.range",
        )

    def __len__(self) -> NoReturn:
        fail(ControlFlowError, "a tensor has no len()", "its extents are in .shape")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        fail(ControlFlowError, "a tensor is written with kt.store", "kt.store(tensor, coordinates, tile)")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        fail(
            ControlFlowError,
            "a tensor of a kernel is not a NumPy array",
            "load a tile with kt.load(tensor, coordinates, shape)",
        )


def _arithmetic_on_tensor(name: str) -> Any:
    def method(self: Tensor, *other: Any) -> NoReturn:
        fail(
            DTypeError,
            "a tensor lives in global memory; operators work on tiles",
            "load a tile first: kt.load(tensor, coordinates, shape)",
        )

    method.__name__ = name
    return method


for _op in [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "matmul",
    "pow",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
]:
    for _name in (f"__{_op}__", f"__r{_op}__"):
        setattr(Tensor, _name, _arithmetic_on_tensor(_name))
for _name in ["__neg__", "__abs__", "__invert__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__"]:
    setattr(Tensor, _name, _arithmetic_on_tensor(_name))


def _view(
    name: str, tensor: Tensor, operands: Sequence[Tile], attrs: dict[str, Any], shape: tuple[Tile, ...]
) -> Tensor:
    executor = current()
    if tensor.executor is not executor:
        fail(ScopeError, "a tensor of another kernel is used here", "pass it as an argument of this kernel")
    try:
        call = opset.infer(name, [tensor.type, *(x.type for x in operands)], attrs)
        (value,) = executor.apply(name, call, [tensor.value, *(x.value for x in operands)])
    except KittensError as error:
        error.location = error.location or errors.here()
        raise
    (type,) = call.results
    assert isinstance(type, TensorType)
    return Tensor(type, value, shape, executor)


def _position(k: Any, extent: Tile, what: str) -> Tile:
    """A position on an axis: a Python integer below 0 counts from the end, a run-time value does not."""
    i = cast(integer(k, what), int64)
    if i.loose:
        fail(
            ControlFlowError,
            f"{what} may be a Python integer (which counts from the end below 0) or a run-time one, after "
            "a loop",
            "give it a run-time value before the loop: kt.scalar(0, kt.int64)",
        )
    if type(k) is Counter:
        (shift,) = apply("where", [binary("lt", i, 0), cast(extent, int64), constant(0, int64)], {})
        return binary("add", i, shift)
    return binary("add", extent, i) if is_number(k) and k < 0 else i


def _indexed(view: Tensor, axis: int, key: Any) -> Tensor:
    i = _position(key, view.shape[axis], "an index of a tensor")
    return _view("index", view, [i], {"axis": axis}, view.shape[:axis] + view.shape[axis + 1 :])


def _sliced(view: Tensor, axis: int, key: slice) -> Tensor:
    if all(k is None for k in (key.start, key.stop, key.step)):
        return view
    if key.step is not None and not (type(key.step) is int and key.step == 1):
        fail(
            ShapeError,
            "a slice of a tensor takes no step",
            "load every element and choose with kt.where, or pass a strided view in",
        )
    extent = view.shape[axis]

    def bound(k: Any, default: Tile) -> Tile:
        if k is None:
            return default
        i = _position(k, extent, "a bound of a slice")
        return binary("minimum", binary("maximum", i, 0), extent)

    lo, hi = bound(key.start, constant(0, int64)), bound(key.stop, extent)
    length = hi if key.start is None else binary("maximum", binary("sub", hi, lo), 0)
    return _view(
        "slice", view, [lo, hi], {"axis": axis}, (*view.shape[:axis], length, *view.shape[axis + 1 :])
    )
