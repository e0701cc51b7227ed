"""The tile IR as text: printed for people, deterministic, and read back by `parse`."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from kittens.dtypes import BY_NAME
from kittens.errors import ArgumentError
from kittens.ir import Extent, Function, Op, Region, TensorType, TileType, Type, Value


def print_function(function: Function, *, locations: bool = False) -> str:
    """The text of a function; with `locations`, each line ends with the Python line it came from."""
    names = _Names()
    params = ", ".join(f"{names.of(v)}: {v.type}" for v in function.params)
    constants = f" {_attrs(function.constants)}" if function.constants else ""
    lines = [f"kernel {function.name}({params}) grid {function.grid_rank}{constants}"]
    _print_region(function.body, names, "  ", lines, locations)
    return "\n".join(lines) + "\n"


class _Names:
    def __init__(self) -> None:
        self.given: dict[Value, str] = {}
        self.taken: set[str] = set()

    def of(self, value: Value) -> str:
        if value not in self.given:
            stem, n = value.name, 0
            name = stem
            while not name or name in self.taken:
                n += 1
                name = f"{stem}.{n}" if stem else str(len(self.given) + n - 1)
            self.taken.add(name)
            self.given[value] = name
        return f"%{self.given[value]}"


def _print_region(region: Region, names: _Names, indent: str, lines: list[str], locations: bool) -> None:
    for op in region.ops:
        operands = ", ".join(map(names.of, op.operands))
        results = ", ".join(map(names.of, op.results))
        line = indent + (f"{results} = " if results else "") + f"{op.name}({operands})"
        if op.attrs:
            line += f" {_attrs(op.attrs)}"
        if op.results:
            line += " : " + ", ".join(str(v.type) for v in op.results)
        if op.regions:
            args = ", ".join(f"{names.of(v)}: {v.type}" for v in op.regions[0].args)
            line += f" do ({args})"
        if locations and op.location is not None:
            line += f"  # {op.location}"
        lines.append(line)
        for inner in op.regions:
            _print_region(inner, names, indent + "  ", lines, locations)
            lines.append(f"{indent}end")


def _attrs(attrs: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{k}={v!r}" for k, v in sorted(attrs.items())) + "}"


_NAME = r"%[A-Za-z_0-9.\[\]']+"
_HEADER = re.compile(r"kernel (\w+)\((.*)\) grid (\d+)(?: (\{.*\}))?$")
_LINE = re.compile(
    rf"(?:(?P<results>{_NAME}(?:, {_NAME})*) = )?(?P<name>\w+)\((?P<operands>[^()]*)\)"
    r"(?: (?P<attrs>\{.*?\})(?= : | do |$))?(?: : (?P<types>.*?))?(?: do \((?P<args>.*)\))?$"
)


def parse(text: str) -> Function:
    """The function that `print_function` printed (without locations). Raises ArgumentError on a line it
    cannot read.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    header = _HEADER.match(lines[0]) if lines else None
    if header is None:
        raise ArgumentError("tile IR starts with `kernel name(...) grid n`")
    values: dict[str, Value] = {}
    body = Region()
    for name, type in _typed(header[2]):
        values[name] = Value(type, _stem(name))
        body.args.append(values[name])
    stack: list[Region] = [body]
    for number, line in enumerate(lines[1:], 2):
        if line == "end":
            stack.pop()
            continue
        match = _LINE.match(line)
        if match is None:
            raise ArgumentError(f"line {number} of tile IR cannot be read: {line}")
        try:
            operands = [values[n] for n in _split(match["operands"])]
        except KeyError as missing:
            raise ArgumentError(f"line {number} of tile IR uses {missing} before it is made") from None
        op = Op(match["name"], operands, _read_attrs(match["attrs"]), [])
        for name, type in zip(
            _split(match["results"]), [parse_type(t) for t in _split(match["types"])], strict=True
        ):
            values[name] = Value(type, _stem(name), op)
            op.results.append(values[name])
        stack[-1].ops.append(op)
        if match["args"] is not None:
            region = Region()
            for name, type in _typed(match["args"]):
                values[name] = Value(type, _stem(name))
                region.args.append(values[name])
            op.regions.append(region)
            stack.append(region)
    return Function(header[1], body, int(header[3]), _read_attrs(header[4]))


def _stem(name: str) -> str:
    stem = name[1:].split(".")[0]
    return "" if stem.isdigit() else stem


def _split(text: str | None) -> list[str]:
    """Split at commas outside brackets."""
    if not text:
        return []
    parts, depth = [""], 0
    for char in text:
        depth += (char in "[<(") - (char in "]>)")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [p.strip() for p in parts]


def _typed(text: str) -> list[tuple[str, Type]]:
    pairs = (item.split(": ", 1) for item in _split(text))
    return [(name, parse_type(type)) for name, type in pairs]


def parse_type(text: str) -> Type:
    """The type that its `str` gave."""
    tensor = re.fullmatch(r"tensor<(\w+)\[(.*)\]:\[(.*)\](?:@(\d+))?>", text)
    if tensor:
        dims, strides = (tuple(map(_extent, _split(part))) for part in tensor.group(2, 3))
        return TensorType(BY_NAME[tensor[1]], dims, strides, int(tensor[4] or 16))
    tile = re.fullmatch(r"(\w+)(?:\[(.*)\])?", text)
    if tile is None or tile[1] not in BY_NAME:
        raise ArgumentError(f"no type {text!r}")
    return TileType(BY_NAME[tile[1]], tuple(int(n) for n in _split(tile[2])))


def _extent(text: str) -> Extent:
    if not text.startswith("?"):
        return Extent(int(text))
    return Extent(None, int(text[2:]) if len(text) > 1 else 1)


def _read_attrs(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    call = ast.parse(f"f({text[1:-1]})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {str(k.arg): ast.literal_eval(_Infinite().visit(k.value)) for k in call.keywords}


class _Infinite(ast.NodeTransformer):
    """inf and nan as literals."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        special = {"inf": math.inf, "nan": math.nan}
        return ast.Constant(special[node.id]) if node.id in special else node
