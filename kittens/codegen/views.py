"""Views of tensors, resolved to a first element and, for each axis, a stride and an extent, as expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kittens.codegen.known import ENDLESS, constant, divides, divisor
from kittens.ir import Extent, TensorType, Value


@dataclass
class Axis:
    """One axis of a view: its stride and extent in elements, as text, and what is known of them.

    of: the tensor and the axis of it that this one is, if it is a whole one.
    """

    stride: str
    extent: str
    known_stride: Extent
    known_extent: Extent
    of: tuple[Value, int] | None = None


@dataclass
class Resolved:
    """A view: the parameter, terms (in elements) that lead to its first element, its axes, and when it is not empty.

    `aligned` is the largest power of two, in elements, that divides every term.
    """

    parameter: Value
    terms: list[str] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    aligned: int = 256


_WORDS = {
    "int",
    "float",
    "double",
    "char",
    "bool",
    "const",
    "for",
    "if",
    "else",
    "while",
    "do",
    "switch",
    "case",
    "default",
    "auto",
    "register",
    "this",
    "new",
    "delete",
    "class",
    "struct",
    "union",
    "enum",
    "template",
    "typename",
    "operator",
    "public",
    "private",
    "protected",
    "virtual",
    "static",
    "extern",
    "inline",
    "volatile",
    "signed",
    "unsigned",
    "short",
    "long",
    "void",
    "return",
    "goto",
    "sizeof",
    "true",
    "false",
    "half",
    "bfloat",
    "device",
    "constant",
    "threadgroup",
    "thread",
    "kernel",
    "vertex",
    "fragment",
    "main",
    "smem",
    "lane",
    "group",
    "tid",
    "ray_data",
    "object_data",
    "visible",
    "intersection",
    "grid_0",
    "grid_1",
    "grid_2",
    "team",
    "programs",
    "rows",
    "rank",
    "counter",
    "printed",
    "first_program",
    "cut_rows",
    "asm",
    "typeid",
    "using",
    "namespace",
    "try",
    "catch",
    "throw",
    "break",
    "continue",
    "and",
    "or",
    "not",
    "xor",
    "float2",
    "float4",
    "int2",
    "uint",
    "ulong",
}


def cname(name: str) -> str:
    """A parameter's name as C takes it; one of capitals alone could be a macro there."""
    macro = name.isupper() and len(name) > 2
    return f"{name}_" if name in _WORDS or name.startswith("kt_") or macro else name


def extent_text(value: Value, axis: int) -> str:
    """The name or number of a parameter's extent."""
    assert isinstance(value.type, TensorType)
    known = value.type.dims[axis].value
    return str(known) if known is not None else f"{cname(value.name)}_n{axis}"


def stride_text(value: Value, axis: int) -> str:
    """The name or number of a parameter's stride."""
    assert isinstance(value.type, TensorType)
    known = value.type.strides[axis].value
    return str(known) if known is not None else f"{cname(value.name)}_s{axis}"


def resolve(value: Value, scalar: Callable[[Value], str]) -> Resolved:
    """Follow a chain of views to its parameter; `scalar` gives the text of an index."""
    op = value.producer
    if op is None:
        assert isinstance(value.type, TensorType)
        axes = [
            Axis(
                stride_text(value, i),
                extent_text(value, i),
                value.type.strides[i],
                value.type.dims[i],
                (value, i),
            )
            for i in range(value.type.rank)
        ]
        return Resolved(value, axes=axes)
    view = resolve(op.operands[0], scalar)
    if op.name == "permute":
        view.axes = [view.axes[p] for p in op.attrs["perm"]]
        return view
    axis = view.axes[op.attrs["axis"]]
    position = scalar(op.operands[1])
    lo, stride = divides(op.operands[1]), divisor(axis.known_stride)
    if op.name == "index":
        view.conditions.append(f"kt_inside({position}, {axis.extent})")
        view.terms.append(f"kt_i64({position}) * {axis.stride}")
        view.aligned = min(view.aligned, lo * stride)
        del view.axes[op.attrs["axis"]]
        return view
    end = scalar(op.operands[2])
    first, last, extent = constant(op.operands[1]), constant(op.operands[2]), axis.known_extent
    whole = divisor(extent)
    if first is not None and last is not None and extent.value is not None:
        first, last = (min(max(i, 0), extent.value) for i in (first, last))
        if first:
            view.terms.append(f"kt_i64({first}) * {axis.stride}")
        axis.known_extent = Extent(last - first if last > first else 0)
        axis.extent = str(axis.known_extent.value)
    else:
        if first != 0:
            view.terms.append(f"kt_cut({position}, {axis.extent}) * {axis.stride}")
        axis.known_extent = Extent(divisor=min(lo, divides(op.operands[2]), whole))
        axis.extent = f"(kt_cut({end}, {axis.extent}) - kt_cut({position}, {axis.extent}))"
    axis.of = None
    view.aligned = min(view.aligned, min(lo, whole if first != 0 else ENDLESS) * stride)
    return view
