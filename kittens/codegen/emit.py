"""The text of a plan: C-like source over the functions of the device headers, written for people to read.

A tile that is held in registers is an array, one element a register; KT_EACH(r, n) is an unrolled loop over them. Index
arithmetic and constants are written where they are used.
"""

from __future__ import annotations

import functools
import keyword
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kittens import layouts as lay
from kittens.artifact import Parameter
from kittens.codegen import cexpr
from kittens.codegen.machine import Machine
from kittens.codegen.placement import Matrix, axis_name, dtype_of, is_tile, related, shape, squeezed
from kittens.codegen.plan import PURE_SCALARS, Plan, Staged, divisor, source_of
from kittens.codegen.reads import collective, tile
from kittens.codegen.views import Resolved, cname, extent_text, resolve, stride_text
from kittens.dtypes import BY_NAME
from kittens.errors import InternalError, UnavailableError
from kittens.ir import Op, Region, TensorType, Value, base
from kittens.layouts import Tiled
from kittens.opset.elementwise import COMPARISONS

Reader = Callable[[str], str]


@dataclass(frozen=True)
class Source:
    """An emitted kernel: its text, its parameters in order, threads and shared bytes, and the Python lines it came from.

    `packed`: the kernel takes all pointers first, and then one structure of all that is no pointer.
    """

    text: str
    entry: str
    parameters: tuple[Parameter, ...]
    threads: int
    shared_bytes: int
    locations: dict[int, tuple[str, int]]
    packed: bool = False

    def __str__(self) -> str:
        return self.text


def emit(plan: Plan) -> Source:
    """Write the source of a plan."""
    return _Emitter(plan).source()


def parameters(plan: Plan) -> tuple[Parameter, ...]:
    """The parameters that a plan's kernel takes, in order."""
    out: list[Parameter] = []
    stored = plan.function.stored()
    for value in plan.function.params:
        t = value.type
        if not isinstance(t, TensorType):
            out.append(Parameter("scalar", value.name, 0, cexpr.ctype(t.dtype.name), cname(value.name)))
            continue
        out.append(
            Parameter(
                "pointer", value.name, 0, "kt_out" if value.name in stored else "kt_in", cname(value.name)
            )
        )
        out += [
            Parameter("extent", value.name, i, "kt_i64", extent_text(value, i))
            for i in range(t.rank)
            if t.dims[i].value is None
        ]
        out += [
            Parameter("stride", value.name, i, "kt_i64", stride_text(value, i))
            for i in range(t.rank)
            if t.strides[i].value is None
        ]
    out += [Parameter("grid", "", i, "kt_i32", f"grid_{i}") for i in range(plan.function.grid_rank)]
    return tuple(out)


@functools.lru_cache(4096)
def fit(values: tuple[int, ...], name: str) -> str | None:
    """An expression in `name` (0 .. len - 1) for a sequence that is linear in the digits of some mixed-radix number."""
    n = len(values)
    start = values[0]
    terms, below = [], 1
    while below < n:
        step = values[below] - start
        size = 1
        while below * (size + 1) <= n and values[below * size] - start == step * size:
            size += 1
        while size > 1 and n % (below * size):
            size -= 1
        if size == 1:
            return None
        terms.append((below, size, step))
        below *= size
    for i, v in enumerate(values):
        if v != start + sum(i // b % s * t for b, s, t in terms):
            return None
    texts = []
    for b, s, t in terms:
        if t:
            text = name if b == 1 else f"{name} / {b}"
            text = text if b * s == n else f"{text} % {s}"
            texts.append(text if t == 1 else f"{text} * {t}")
    if start:
        texts.append(str(start))
    return " + ".join(texts) or "0"


def _pure(x: str) -> bool:
    return re.fullmatch(r"[\w.]+", x) is not None


def _paren(x: str) -> str:
    return x if _pure(x) else f"({x})"


class _Emitter:
    def __init__(self, plan: Plan):
        self.plan = plan
        self.machine: Machine = plan.machine
        self.groups = plan.placement.groups
        self.lines: list[str] = []
        self.prelude: list[str] = []
        self.indent = "  "
        self.taken: set[str] = {"smem", "lane", "group", "tid", "r"}
        self.parameters = parameters(plan)
        self.taken |= {p.text for p in self.parameters}
        self.names: dict[Value, str] = {}
        self.held: dict[Value, tuple[str, Tiled]] = {}
        self.coordinates: dict[Tiled, dict[str, str]] = {}
        self.tables: dict[tuple[int, ...], str] = {}
        self.preloaded: dict[tuple[Op, str], str] = {}
        self.preloaded_words = 0
        self.slots: dict[Value, str] = {}
        self.scratch_busy = False
        self.scratch_bytes = 0
        self.locations: dict[int, tuple[str, int]] = {}
        self.place = 0
        self.uses: dict[Value, list[Op]] = {}
        for op in plan.function.body.walk():
            for v in op.operands:
                self.uses.setdefault(v, []).append(op)
        self.stored = plan.function.stored()
        self.owner: dict[Op, Op] = {}

    # The frame.

    def source(self) -> Source:
        function, machine = self.plan.function, self.machine
        self.region(function.body)
        self.plan.scratch_bytes, self.plan.kept_words = self.scratch_bytes, self.preloaded_words
        shared = self.plan.buffer_bytes + self.scratch_bytes
        if shared > machine.shared_bytes:
            raise UnavailableError(f"{function.name} needs {shared} bytes of shared memory, {machine.target} has {machine.shared_bytes}",
                                   hint="use smaller tiles (the kernel's tunables)", location=function.location)  # fmt: skip
        entry = f"{function.name}_kernel"
        head = [f"// {function.name} for {machine.target}, written by kittens."]
        if function.constants:
            head.append("// " + ", ".join(f"{k}={v!r}" for k, v in function.constants.items()))
        head += [f'#include "{machine.dialect.include}"', '#include "kt_ops.h"', ""]
        head.append(
            machine.dialect.entry(
                entry, [(p.ctype, p.text) for p in self.parameters], self.plan.threads, shared
            )
        )
        body = "\n".join(self.lines)
        if shared:
            head.append(f"  KT_SHARED_MEMORY(smem, {shared});")
        for name, text in (
            ("tid", "int(kt_thread())"),
            ("lane", "int(kt_lane())"),
            ("group", "int(kt_group())"),
        ):
            if re.search(rf"\b{name}\b", body) or any(re.search(rf"\b{name}\b", p) for p in self.prelude):
                head.append(f"  const int {name} = {text};")
        head += self.prelude
        text = machine.dialect.finish("\n".join([*head, body, "}", ""]))
        return Source(
            text, entry, self.parameters, self.plan.threads, shared, self.locations, machine.dialect.packed
        )

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def open(self, text: str) -> None:
        self.line(text + " {")
        self.indent += "  "

    def close(self) -> None:
        self.indent = self.indent[:-2]
        self.line("}")

    def fresh(self, stem: str) -> str:
        stem = re.sub(r"\W", "_", stem) or "t"
        if (
            not re.match(r"[A-Za-z]", stem)
            or stem.startswith("kt_")
            or keyword.iskeyword(stem)
            or stem in _RESERVED
            or (stem.isupper() and len(stem) > 2)
        ):
            stem = f"v_{stem}"
        name, n = stem, 1
        while name in self.taken:
            n += 1
            name = f"{stem}_{n}"
        self.taken.add(name)
        return name

    def locate(self, op: Op) -> None:
        """Say which Python line the next lines come from, where it changes."""
        at = op.location
        if at is None or self.locations.get(self.place) == (at.file, at.line):
            return
        self.place = max(self.locations, default=0) + 1
        known = {v: k for k, v in self.locations.items()}
        self.place = known.get((at.file, at.line), self.place)
        self.locations[self.place] = (at.file, at.line)
        text = at.source().strip()
        self.line(f"KT_LOC({self.place});  // {text or '...'}  ({os.path.basename(at.file)}:{at.line})")

    # Names, scalars, coordinates.

    def scalar(self, value: Value) -> str:
        """The text of a value of one element."""
        if value in self.names:
            return self.names[value]
        op = value.producer
        if op is None:
            return cname(value.name)
        if op.name == "const":
            return cexpr.literal(op.attrs["value"], op.attrs["dtype"])
        if op.name == "dim":
            return extent_text(op.operands[0], op.attrs["axis"])
        if op.name in ("broadcast", "reshape", "transpose"):
            return self.scalar(op.operands[0])
        if value in self.held:
            return f"{self.held[value][0]}[0]"
        raise InternalError(f"{op.name} has no scalar text")

    def coords(self, layout: Tiled) -> dict[str, str]:
        """For each axis of a layout, the name of the coordinate of its first register, made once."""
        if layout not in self.coordinates:
            names = {}
            for axis in layout.axes:
                text = lay.base_expression(layout, axis)
                if text == "0":
                    names[axis] = "0"
                else:
                    names[axis] = self.fresh(f"lane_{axis}")
                    self.prelude.append(f"  const int {names[axis]} = {text};")
            self.coordinates[layout] = names
        return self.coordinates[layout]

    def coordinate(self, layout: Tiled, axis: str, r: str) -> str:
        """The coordinate of register `r` (an expression, or a number)."""
        offsets = lay.register_offsets(layout, axis)
        first = self.coords(layout)[axis]
        if offsets is None:
            raise InternalError(f"registers of {layout} do not add to a coordinate")
        offset = self.table(offsets, r)
        if offset == "0":
            return first
        return offset if first == "0" else f"{first} + {offset}"

    def table(self, values: Sequence[int], r: str) -> str:
        """values[r] as an expression; a table in the text if no simpler one is found."""
        values = tuple(values)
        if r.isdigit():
            return str(values[int(r)])
        found = fit(values, _paren(r))
        if found is not None:
            return found
        if values not in self.tables:
            name = self.tables[values] = self.fresh("table")
            self.prelude.append(f"  const int {name}[] = {{{', '.join(map(str, values))}}};")
        return f"{self.tables[values]}[{r}]"

    def indices(self, layout: Tiled, extents: Sequence[int], r: str) -> list[str]:
        """The index along each axis of a shape (which may have axes of extent 1) of register r."""
        small = squeezed(extents)
        if not small:
            return ["0"] * len(extents)
        if len(layout.axes) == 1:
            texts = [self.coordinate(layout, "col", r)]
            if len(small) == 2:  # a matrix held as a run of its elements
                texts = [f"({texts[0]}) / {small[1]}", f"({texts[0]}) % {small[1]}"]
        else:
            row, col = self.coordinate(layout, "row", r), self.coordinate(layout, "col", r)
            texts = [row, col] if len(small) == 2 else [f"({row}) / {small[1]}", f"({row}) % {small[1]}", col]
        found = iter(texts)
        return ["0" if n == 1 else next(found) for n in extents]

    def linear(self, layout: Tiled, r: str) -> str:
        """The row-major number of the element in register r."""
        if len(layout.axes) == 1:
            return self.coordinate(layout, "col", r)
        return f"({self.coordinate(layout, 'row', r)}) * {layout.shape[1]} + {_paren(self.coordinate(layout, 'col', r))}"

    def layout_of(self, value: Value) -> Tiled:
        """The layout that a value's class was given."""
        if value in self.plan.placement.layouts:
            return self.plan.placement.layouts[value]
        small = squeezed(shape(value))
        if len(small) == 3:
            small = (small[0] * small[1], small[2])
        return lay.blocked(small, vector=4, lanes=self.machine.lanes, groups=self.groups)

    # Reading operands.

    def reader(self, value: Value, layout: Tiled) -> Reader:
        """How to read a value's element in register r of a layout; moves the tile first if it lies elsewhere."""
        if not is_tile(value):
            text = self.scalar(value)
            return lambda r: text
        if value in self.plan.placement.implicit:
            return lambda r: self.implicit(value, self.indices(layout, shape(value), r))
        if value in self.held:
            name, have = self.held[value]
            if have == layout or (have.shape == layout.shape and lay.same(have, layout)):
                return lambda r: f"{name}[{r}]"
            return self.moved(value, layout)
        op = value.producer
        assert op is not None, value
        (operand,) = op.operands
        if op.name == "reshape" and squeezed(shape(operand)) == squeezed(shape(value)):
            return self.reader(operand, layout)
        if (
            op.name == "transpose"
            and len(layout.axes) == 2
            and len(squeezed(shape(operand))) == 2
            and op.attrs["perm"] == (1, 0)
        ):
            return self.reader(operand, lay.transpose(layout))
        if op.name == "broadcast":
            if not is_tile(operand) or squeezed(shape(operand)) == squeezed(shape(value)):
                return self.reader(operand, layout)
            relation = related(op)
            if relation is not None and len(layout.axes) == 2:
                try:
                    reduced = lay.reduction(layout, relation[2])
                    inner = self.reader(operand, lay.with_axes(reduced.result, "col"))
                    return lambda r: inner(self.table(reduced.into, r))
                except ValueError:
                    pass
        return self.gathered(op, layout)

    def implicit(self, value: Value, index: list[str]) -> str:
        """An implicit value at an index."""
        if not is_tile(value):
            return self.scalar(value)
        op = value.producer
        assert op is not None
        if op.name == "const":
            return cexpr.literal(op.attrs["value"], op.attrs["dtype"])
        if op.name == "arange":
            return f"{cexpr.ctype(op.attrs['dtype'])}({index[0]})"
        if op.name in ("broadcast", "reshape", "transpose"):
            return (
                self.implicit(op.operands[0], _source_index(op, index))
                if is_tile(op.operands[0])
                else self.scalar(op.operands[0])
            )
        if op.name in COMPARISONS and dtype_of(op.operands[0]) == "int64":
            near = self.compared(op, index)
            if near:
                return near
        texts = [self.implicit(x, index) for x in op.operands]
        return cexpr.expression(op.name, op.attrs, [dtype_of(x) for x in op.operands], dtype_of(value), texts)

    def compared(self, op: Op, index: list[str]) -> str | None:
        """A comparison of positions in 32 bits: the scalars' difference, cut to what positions in a tile can make up for."""
        left, right = (self.position(x, index) for x in op.operands)
        if left is None or right is None:
            return None
        scalars = " - ".join(f"({' + '.join(s) or '0'})" for s in (left[0], right[0]))
        small = [" + ".join(t) or "0" for t in (left[1], right[1])]
        return f"(kt_near({scalars}) + {_paren(small[0])} {cexpr.COMPARE[op.name]} {_paren(small[1])})"

    def position(self, value: Value, index: list[str]) -> tuple[list[str], list[str]] | None:
        """An implicit integer as a sum of scalars (64 bits) and positions in a tile (small); None if it is no such sum."""
        if not is_tile(value):
            return [self.scalar(value)], []
        op = value.producer
        if op is None or value not in self.plan.placement.implicit:
            return None
        if op.name == "arange":
            return [], [index[0]]
        if op.name == "const":
            return [cexpr.literal(op.attrs["value"], op.attrs["dtype"])], []
        if op.name in ("broadcast", "reshape", "transpose"):
            return self.position(op.operands[0], _source_index(op, index) if is_tile(op.operands[0]) else [])
        if (
            op.name == "cast"
            and op.attrs["dtype"] == "int64"
            and dtype_of(op.operands[0]) in ("int32", "int64")
        ):
            return self.position(op.operands[0], index)
        if op.name == "add" and dtype_of(value) in ("int64", "int32"):
            parts = [self.position(x, index) for x in op.operands]
            if (
                parts[0] is not None
                and parts[1] is not None
                and (dtype_of(value) == "int64" or not (parts[0][0] or parts[1][0]))
            ):
                return parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]
        return None

    def moved(self, value: Value, layout: Tiled) -> Reader:
        """A held tile in another layout: registers renamed, or a trip through shared memory."""
        name, have = self.held[value]
        registers = lay.renaming(have, layout)
        if registers is not None:
            return lambda r: f"{name}[{self.table(registers, r)}]"
        return self.through_scratch(value, layout, lambda r: self.linear(layout, r))

    def gathered(self, op: Op, layout: Tiled) -> Reader:
        """A reshape, transpose or broadcast that moves elements between lanes."""
        (operand,) = op.operands
        result = op.result

        def number(r: str) -> str:
            return _number(_source_index(op, self.indices(layout, shape(result), r)), shape(operand))

        return self.through_scratch(operand, layout, number)

    # Shared memory as a place to exchange elements.

    def before_scratch(self, size: int) -> str:
        """Make ready to write `size` bytes of scratch memory; returns its address."""
        self.scratch_bytes = max(self.scratch_bytes, -(-size // 16) * 16)
        if self.scratch_busy:
            self.line("kt_barrier();")
        self.scratch_busy = True
        return f"smem + {self.plan.buffer_bytes}" if self.plan.buffer_bytes else "smem"

    def put_all(self, value: Value, address: Callable[[str], str], layout: Tiled | None = None) -> None:
        """Write every element of a tile once, at the address that register r's element has."""
        layout = layout or (self.held[value][1] if value in self.held else self.layout_of(value))
        read = self.reader(value, layout)
        keep, condition = self.owners(layout)
        if condition:
            self.open(f"if ({condition})")
        for text, r in self.each(keep, layout.registers):
            self.line(f"{text}kt_put({address(r)}, {cexpr.ctype(dtype_of(value))}({read(r)}));")
        if condition:
            self.close()

    def each(self, keep: Sequence[int], registers: int) -> list[tuple[str, str]]:
        """(loop header, register) pairs that run over the registers in `keep`."""
        if len(keep) == 1:
            return [("", str(keep[0]))]
        found = fit(tuple(keep), "r")
        if found is not None:
            return [(f"KT_EACH(r, {len(keep)}) ", found)]
        return [("", str(k)) for k in keep]

    def owners(self, layout: Tiled) -> tuple[list[int], str]:
        """The registers, and a condition on lane and group, that hold each element exactly once."""
        return _owners(layout)

    def through_scratch(self, value: Value, layout: Tiled, number: Callable[[str], str]) -> Reader:
        """Write a tile to shared memory and read, for register r of a layout, the element with a row-major number."""
        dtype = dtype_of(value)
        size = BY_NAME[dtype].bytes
        extents = shape(value)
        have = self.held[value][1] if value in self.held else self.layout_of(value)
        total = 1
        for n in extents:
            total *= n
        # Reading the source may itself use scratch memory: do that first.
        if value not in self.held and value not in self.plan.placement.implicit:
            self.hold(value, have)
        at = self.before_scratch(total * size)
        self.put_all(value, lambda r: f"{at} + ({self.linear(have, r)}) * {size}", have)
        self.line("kt_barrier();")
        name = self.fresh((value.name or "t") + "_moved")
        c = cexpr.ctype(dtype)
        self.line(f"{c} {name}[{layout.registers}];")
        self.line(f"KT_EACH(r, {layout.registers}) {name}[r] = kt_get<{c}>({at} + ({number('r')}) * {size});")
        return lambda r: f"{name}[{r}]"

    def hold(self, value: Value, layout: Tiled) -> str:
        """Put a lazily read value into registers."""
        read = self.reader(value, layout)
        name = self.fresh(value.name or "t")
        self.line(f"{cexpr.ctype(dtype_of(value))} {name}[{layout.registers}];")
        self.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {read('r')};")
        self.held[value] = (name, layout)
        return name

    # Operations.

    def region(self, region: Region) -> None:
        for op in region.ops:
            if op.name == "yield":
                continue
            if len(op.results) == 1 and op.result in self.plan.placement.implicit:
                continue
            handler = getattr(self, f"op_{op.name}", None)
            if handler is not None:
                handler(op)
            elif op.name in ("const", "dim", "index", "slice", "permute", "broadcast", "transpose"):
                continue
            else:
                self.elementwise(op)

    def op_reshape(self, op: Op) -> None:
        pass

    def elementwise(self, op: Op) -> None:
        types = [dtype_of(x) for x in op.operands]
        result = op.result
        to = dtype_of(result)
        self.locate(op)
        state = []
        if op.name == "random_bits":
            state = [self.fresh("random")]
            self.line(f"kt_random_state {state[0]} = {{}};")
        if not is_tile(result):
            texts = [self.scalar(x) for x in op.operands] + state
            self.names[result] = self.fresh(result.name or "t")
            self.line(
                f"const {cexpr.ctype(to)} {self.names[result]} = {cexpr.expression(op.name, op.attrs, types, to, texts)};"
            )
            return
        layout = self.layout_of(result)
        readers = [self.reader(x, layout) for x in op.operands]
        name = self.fresh(result.name or "t")
        self.line(f"{cexpr.ctype(to)} {name}[{layout.registers}];")
        text = cexpr.expression(op.name, op.attrs, types, to, [f("r") for f in readers] + state)
        self.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {text};")
        self.held[result] = (name, layout)

    def op_arange(self, op: Op) -> None:  # of one element
        self.names[op.result] = "0"

    def op_program_id(self, op: Op) -> None:
        self.locate(op)
        rank = op.attrs["rank"]
        names = [self.fresh(v.name or f"program_{i}") for i, v in enumerate(op.results)]
        self.names.update(zip(op.results, names, strict=False))
        if rank == 1:
            self.line(f"const kt_i64 {names[0]} = kt_program_x();")
            return
        self.line(
            "kt_u32 program = kt_program_x();" if "program" not in self.taken else "program = kt_program_x();"
        )
        self.taken.add("program")
        if op.attrs["order"] == "grouped":
            if self.machine.parts:
                programs = " * ".join(f"kt_u32(grid_{i})" for i in range(rank))
                self.line(f"program = kt_dealt(program, {programs}, {self.machine.parts}u);")
            # Eight rows of programs at a time, column by column, so that neighbours in time share operands.
            width = self.fresh("width")
            self.line(
                f"const kt_u32 {width} = 8u * kt_u32(grid_1), first = program % kt_u32(grid_0 * grid_1) / {width} * 8u;"
            )
            self.line("const kt_u32 tall = kt_u32(grid_0) - first < 8u ? kt_u32(grid_0) - first : 8u;")
            self.line(
                f"const kt_i64 {names[0]} = first + program % kt_u32(grid_0 * grid_1) % {width} % tall;"
            )
            self.line(f"const kt_i64 {names[1]} = program % kt_u32(grid_0 * grid_1) % {width} / tall;")
            if rank == 3:
                self.line(f"const kt_i64 {names[2]} = program / kt_u32(grid_0 * grid_1);")
            return
        for i, name in enumerate(names):
            self.line(f"const kt_i64 {name} = program" + (f" % kt_u32(grid_{i});" if i < rank - 1 else ";"))
            if i < rank - 1:
                self.line(f"program /= kt_u32(grid_{i});")

    def op_num_programs(self, op: Op) -> None:
        for i, v in enumerate(op.results):
            self.names[v] = f"kt_i64(grid_{i})"

    def op_cast(self, op: Op) -> None:
        self.elementwise(op)

    # Loops and branches.

    def carried(self, op: Op) -> list[tuple[Value, Value, str]]:
        """Declare the carried values of a loop or branch, with their first values: (argument, yielded, name)."""
        (region,) = op.regions
        n = len(op.results)
        arguments, inits = region.args[len(region.args) - n :], op.operands[len(op.operands) - n :]
        out = []
        for argument, init, result, after in zip(
            arguments, inits, op.results, region.ops[-1].operands, strict=False
        ):
            c = cexpr.ctype(dtype_of(result))
            name = self.fresh(argument.name or result.name or "carried")
            if is_tile(result):
                layout = self.layout_of(result)
                read = self.reader(init, layout)
                self.line(f"{c} {name}[{layout.registers}];")
                self.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {read('r')};")
                self.held[argument] = self.held[result] = (name, layout)
            else:
                self.line(f"{c} {name} = {self.scalar(init)};")
                self.names[argument] = self.names[result] = name
            out.append((argument, after, name))
        return out

    def carry(self, carried: list[tuple[Value, Value, str]]) -> None:
        """Give the carried values what a pass yields, as if all at once."""
        own = {argument: name for argument, _, name in carried}
        staged = []
        for argument, after, name in carried:
            if after is argument:
                continue
            if is_tile(argument):
                layout = self.held[argument][1]
                read = self.reader(after, layout)
                if after in own or after not in self.held:
                    copy = self.fresh(f"{name}_next")
                    self.line(f"{cexpr.ctype(dtype_of(argument))} {copy}[{layout.registers}];")
                    self.line(f"KT_EACH(r, {layout.registers}) {copy}[r] = {read('r')};")
                    staged.append(f"KT_EACH(r, {layout.registers}) {name}[r] = {copy}[r];")
                else:
                    staged.append(f"KT_EACH(r, {layout.registers}) {name}[r] = {read('r')};")
            else:
                text = self.scalar(after)
                if after in own:
                    copy = self.fresh(f"{name}_next")
                    self.line(f"const {cexpr.ctype(dtype_of(argument))} {copy} = {text};")
                    text = copy
                staged.append(f"{name} = {text};")
        for text in staged:
            self.line(text)

    def op_when(self, op: Op) -> None:
        self.locate(op)
        carried = self.carried(op)
        self.open(f"if ({self.scalar(op.operands[0])})")
        self.region(op.regions[0])
        self.carry(carried)
        self.close()
        self.scratch_busy = True

    def op_loop(self, op: Op) -> None:
        self.locate(op)
        (region,) = op.regions
        carried = self.carried(op)
        lo, hi, step = map(self.scalar, op.operands[:3])
        index = region.args[0]
        name = self.names[index] = self.fresh(index.name or "pass")
        rings = [s for s in self.plan.staged.values() if s.loop is op and s.depth > 1]
        depth = rings[0].depth if rings else 1
        slot = self.fresh("slot") if rings else ""
        if rings:
            self.line("kt_barrier();")
            self.line(f"// Tiles are loaded {depth - 1} passes ahead, into a ring of {depth}.")
            self.open(f"for (int stage = 0; stage < {depth - 1}; ++stage)")
            ahead = self.fresh("ahead")
            self.line(f"const kt_i64 {ahead} = {lo} + stage * {step};")
            self._copies(rings, "stage", index, ahead, f"{ahead} < {hi}")
            self.close()
        counter = self.machine.dialect.counter
        short = sum(inner.name in ("mma", "mma_scaled") for inner in region.walk()) == 1
        unrolled = bool(rings) and short and self.machine.unrolled and counter != "kt_i64"
        last = count = into = ""
        held: list[tuple[Staged, str]] = []
        if rings and not unrolled:
            self.line(f"int {slot} = 0;")
        if counter == "kt_i64":
            self.open(f"for (kt_i64 {name} = {lo}; {name} < {hi}; {name} += {step})")
        else:  # passes are counted in fewer bits than the index has
            count, passes = self.fresh("count"), self.fresh("passes")
            self.line(f"const {counter} {passes} = kt_passes({lo}, {hi}, {step});")
            self.open(f"for ({counter} {count} = 0; {count} < {passes};{'' if unrolled else f' ++{count}'})")
            last = f"{count} + {depth - 1} < {passes}"
            if unrolled:  # a slot's addresses are constants then
                self.open(f"KT_UNROLL for (int {slot} = 0; {slot} < {depth}; ++{slot})")
                self.line(f"if ({count} >= {passes}) break;")
            self.line(
                f"const kt_i64 {name} = {_sum('' if lo == 'kt_i64(0)' else lo, count if step == 'kt_i64(1)' else f'{count} * {step}')};"
            )
        if rings:
            # Batches under way: they are made in every pass, empty ones too, so that counting them tells.
            counted = self.linear_copies(rings)
            self.line(
                f"kt_wait_loads<{min((depth - 2) * counted, 63)}>();"
                if counted
                else f"kt_cp_async_wait<{depth - 2}>();"
            )
            self.line("kt_barrier();")
            ahead = self.fresh("ahead")
            self.line(f"const kt_i64 {ahead} = {name} + {depth - 1} * {step};")
            into = self.fresh("into")
            self.line(f"const int {into} = {slot} == 0 ? {depth - 1} : {slot} - 1;")
            late = [s for s in rings if self.machine.late and short and not s.linear and s.width]
            alive = last or f"{ahead} < {hi}"
            held = [(s, self._hold(s, {index: ahead}, alive)) for s in late]
            self._copies([s for s in rings if s not in late], into, index, ahead, alive)
            self.slots.update({staged.load.result: slot for staged in rings})
        self.scratch_busy = True
        self.region(region)
        self.carry(carried)
        for staged, array in held:
            self._put_held(staged, into, array)
        if unrolled:
            self.line(f"++{count};")
            self.close()
        elif rings:
            self.line(f"{slot} = {slot} == {depth - 1} ? 0 : {slot} + 1;")
        self.close()
        if rings:
            self._wait_all(rings)
            self.line("kt_barrier();")
        self.scratch_busy = True

    def _wait_all(self, tiles: Sequence[Staged]) -> None:
        if any(s.linear for s in tiles):
            self.line("kt_wait_loads<0>();")
        if not all(s.linear for s in tiles):
            self.line("kt_cp_async_wait<0>();")

    def _copies(self, rings: Sequence[Staged], slot: str, index: Value, ahead: str, alive: str) -> None:
        """Copy the tiles of a later pass, if there is one. Linear copies are made always, of nothing then."""
        for staged in rings:
            if staged.linear:
                self.copy(staged, slot, {index: ahead}, alive)
        if not all(staged.linear for staged in rings):
            self.open(f"if ({alive})")
            for staged in rings:
                if not staged.linear:
                    self.copy(staged, slot, {index: ahead})
            self.close()
            self.line("kt_cp_async_commit();")

    # Memory.

    def inline(self, value: Value, env: dict[Value, str]) -> str:
        """A scalar as an expression in which some values stand for others: the address of a later pass."""
        if value in env:
            return env[value]
        op = value.producer
        if (
            op is None
            or op.name in ("const", "dim")
            or op.name not in PURE_SCALARS
            or (value in self.names and not _depends(value, set(env)))
        ):
            return self.scalar(value)
        texts = [self.inline(x, env) for x in op.operands]
        return cexpr.expression(op.name, op.attrs, [dtype_of(x) for x in op.operands], dtype_of(value), texts)

    def window(
        self, op: Op, extents: Sequence[int], env: dict[Value, str], alive: str = ""
    ) -> tuple[Resolved, str, list[str]]:
        """Where a tile lies: its view, the name of the address of its first element, and how far each axis is inside.

        Nothing is inside unless `alive`, a condition.
        """
        view = resolve(op.operands[0], lambda v: self.inline(v, env))
        tensor = view.parameter.type
        assert isinstance(tensor, TensorType)
        coordinates = [self.inline(c, env) for c in op.operands[1 : 1 + len(view.axes)]]
        terms = list(view.terms)
        limits = []
        for c, n, axis in zip(coordinates, extents, view.axes, strict=False):
            if c != "kt_i64(0)":
                terms.append(
                    f"kt_i64({c}) * {n} * {axis.stride}" if axis.stride != "1" else f"kt_i64({c}) * {n}"
                )
            limit = self.fresh("limit")
            condition = " && ".join([alive, *view.conditions] if alive else view.conditions)
            text = f"kt_limit({c}, {n}, {axis.extent})"
            self.line(f"const int {limit} = {f'{condition} ? {text} : 0' if condition else text};")
            limits.append(limit)
        at = self.fresh(f"{view.parameter.name}_at")
        size = tensor.dtype.bytes
        total = " + ".join(terms)
        pointer = "kt_out" if view.parameter.name in self.stored else "kt_in"
        self.line(
            f"const {pointer} {at} = {cname(view.parameter.name)}"
            + (f" + ({total}) * {size};" if total else ";")
        )
        return view, at, limits

    def copy(self, staged: Staged, slot: str, env: dict[Value, str], alive: str = "", held: str = "") -> None:
        """Copy a tile to its slot in shared memory (zeros, unless `alive`); every thread takes a share.

        With `held`, an array, only as far as there: `_put_held` does the rest.
        """
        op, shared = staged.load, staged.shared
        self.locate(op)
        self.open("")
        self.lines[-1] = self.indent[:-2] + "{"
        view, at, limits = self.window(op, shape(op.result), env, alive)
        rows, cols = shared.shape
        size = shared.itemsize
        axes = list(zip(view.axes, limits, strict=False))
        (row_axis, row_limit), (_, col_limit) = axes[::-1] if staged.flipped else axes
        threads = self.plan.threads
        vector = max(1, staged.width // size)
        per_row = cols // vector
        total = rows * per_row
        buffer = "" if held else self._buffer(staged, slot)
        if staged.linear:
            self._copy_linear(staged, view, buffer, at, limits)
            self.close()
            return
        # Copies of single elements are many, and their addresses would take all registers: they stay a loop.
        shares = -(-total // threads)
        self.open(
            f"KT_EACH(share, {shares})"
            if staged.width
            else f"KT_BY_FOURS for (int share = 0; share < {shares}; ++share)"
        )
        self.line(
            f"const int number = share * {threads} + tid, row = number / {per_row}, col = number % {per_row}"
            + (f" * {vector};" if vector > 1 else ";")
        )
        to = f"{buffer} + {_paren(lay.offset_expression(shared))}"
        guard = f"if (number < {total}) " if total % threads else ""
        if staged.width:
            self.line(
                f"const int left = row < {row_limit} ? ({col_limit} - col) * {size} : 0, bytes = left < 0 ? 0 : left < {staged.width} ? left : {staged.width};"
            )
            source = f"bytes ? {at} + (row * {row_axis.stride} + col) * {size} : {cname(view.parameter.name)}"
            if held:
                self.line(f"{guard}{held}[share] = kt_fetch_b{staged.width * 8}({source}, kt_u32(bytes));")
            else:
                self.line(f"{guard}kt_cp_async_b{staged.width * 8}({to}, {source}, kt_u32(bytes));")
        else:
            c = cexpr.ctype(dtype_of(op.result))
            (_, _), (col_axis, _) = axes[::-1] if staged.flipped else axes
            where = f"{at} + (row * {row_axis.stride} + col * {col_axis.stride}) * {size}"
            self.line(
                f"{guard}kt_put({to}, row < {row_limit} && col < {col_limit} ? kt_get_global<{c}>({where}) : {c}(0));"
            )
        self.close()
        self.close()

    def _buffer(self, staged: Staged, slot: str) -> str:
        """The address of a slot, named."""
        buffer = self.fresh("buffer")
        first = f"smem + {staged.offset}" if staged.offset else "smem"
        self.line(
            f"const kt_smem {buffer} = {first}"
            + (f" + {slot} * {staged.slot_bytes};" if staged.depth > 1 else ";")
        )
        return buffer

    def _hold(self, staged: Staged, env: dict[Value, str], alive: str) -> str:
        """Load a tile into registers, on its way to shared memory; the name of the array."""
        held = self.fresh("held")
        pieces = -(
            -staged.shared.shape[0]
            * staged.shared.shape[1]
            * staged.shared.itemsize
            // staged.width
            // self.plan.threads
        )
        self.line(f"{_PIECES[staged.width]} {held}[{pieces}];")
        if not staged.whole:
            self.copy(staged, "", env, alive, held)
            return held
        self.open("")
        self.lines[-1] = self.indent[:-2] + "{"
        view, at, limits = self.window(staged.load, shape(staged.load.result), env, alive)
        vector = staged.width // staged.shared.itemsize
        per_row = staged.shared.shape[1] // vector
        source, offset = self._range(staged, view, at, limits)
        self.open(f"KT_EACH(share, {pieces})")
        self.line(f"const kt_u32 number = kt_u32(share * {self.plan.threads} + tid);")
        self.line(f"const kt_u32 row = number / {per_row}, col = number % {per_row} * {vector};")
        self.line(f"{held}[share] = kt_buffer_ld_b{staged.width * 8}({source}, {offset});")
        self.close()
        self.close()
        return held

    def _range(self, staged: Staged, view: Resolved, at: str, limits: list[str]) -> tuple[str, str]:
        """Name a buffer that ends with the last row inside; and the offset of (row, col), outside it if they are."""
        size = staged.shared.itemsize
        axes = list(zip(view.axes, limits, shape(staged.load.result), strict=False))
        (row_axis, row_limit, _), (col_axis, col_limit, cols) = axes[::-1] if staged.flipped else axes
        pitch, source = self.fresh("pitch"), self.fresh("source")
        self.line(f"const kt_u32 {pitch} = kt_u32({row_axis.stride}) * {size}u;")
        self.line(
            f"const kt_buffer {source} = kt_make_buffer({at}, {col_limit} > 0 ? kt_u32({row_limit}) * {pitch} : 0u);"
        )
        offset = f"row * {pitch} + col * {size}u"
        if divisor(col_axis.known_extent) % cols:  # columns outside do not follow from the buffer's end
            offset = f"col < kt_u32({col_limit}) ? {offset} : ~0u"
        return source, offset

    def _put_held(self, staged: Staged, slot: str, held: str) -> None:
        """Store what `_hold` loaded."""
        shared, threads = staged.shared, self.plan.threads
        vector = staged.width // shared.itemsize
        per_row = shared.shape[1] // vector
        total = shared.shape[0] * per_row
        self.open("")
        self.lines[-1] = self.indent[:-2] + "{"
        buffer = self._buffer(staged, slot)
        self.open(f"KT_EACH(share, {-(-total // threads)})")
        self.line(
            f"const int number = share * {threads} + tid, row = number / {per_row}, col = number % {per_row}"
            + (f" * {vector};" if vector > 1 else ";")
        )
        guard = f"if (number < {total}) " if total % threads else ""
        self.line(
            f"{guard}kt_st_shared_b{staged.width * 8}({buffer} + {_paren(lay.offset_expression(shared))}, {held}[share]);"
        )
        self.close()
        self.close()

    def _copy_linear(self, staged: Staged, view: Resolved, buffer: str, at: str, limits: list[str]) -> None:
        """Pieces land in shared memory one after the other, so each thread looks up which one belongs there."""
        shared, threads, width = staged.shared, self.plan.threads, staged.width
        source, offset = self._range(staged, view, at, limits)
        self.open(f"KT_EACH(share, {shared.size // width // threads})")
        row, col = lay.element_expressions(shared, width)
        self.line(f"const kt_u32 number = kt_u32(share * {threads} + tid), row = {row}, col = {col};")
        self.line(
            f"kt_copy_linear_b{width * 8}({buffer} + (share * {threads} + group * {self.machine.lanes}) * {width}, {source}, {offset});"
        )
        self.close()

    def linear_copies(self, staged: Sequence[Staged]) -> int:
        """Linear copies that each thread makes of some tiles."""
        return sum(s.shared.size // s.width // self.plan.threads for s in staged if s.linear)

    def op_load(self, op: Op) -> None:
        result = op.result
        staged = self.plan.staged.get(result)
        if staged is not None:
            if staged.loop is None or staged.depth == 1:
                self.line("kt_barrier();") if self.indent != "  " else None
                self.copy(staged, "0", {})
                if not staged.linear:
                    self.line("kt_cp_async_commit();")
                self._wait_all([staged])
                self.line("kt_barrier();")
                self.scratch_busy = False
                self.slots[result] = "0"
                self.preload(staged)
            return
        self.locate(op)
        if base(op.operands[0]).name in self.stored:
            self.line("kt_barrier();")
        c = cexpr.ctype(dtype_of(result))
        if not is_tile(result):
            view, at, limits = self.window(op, shape(result), {})
            conditions = [f"{x} > 0" for x in limits] + (view.conditions if not limits else [])
            name = self.names[result] = self.fresh(result.name or "t")
            text = f"kt_get_global<{c}>({at})"
            if conditions:
                text = f"{' && '.join(conditions)} ? {text} : {c}({cexpr.literal(op.attrs['pad'], dtype_of(result))})"
            self.line(f"const {c} {name} = {text};")
            return
        layout = self.layout_of(result)
        name = self.fresh(result.name or "t")
        self.line(f"{c} {name}[{layout.registers}];")
        self.open("")
        self.lines[-1] = self.indent[:-2] + "{"
        self.tile_memory(op, result, layout, name)
        self.close()
        self.held[result] = (name, layout)

    def tile_memory(
        self,
        op: Op,
        tile: Value,
        layout: Tiled,
        name: str,
        store: Reader | None = None,
        keep: Sequence[int] | None = None,
    ) -> None:
        """Load a tile into registers, or store it, in the widest pieces that alignment and layout allow."""
        view, at, limits = self.window(op, shape(tile), {})
        size = BY_NAME[dtype_of(tile)].bytes
        extents = shape(tile)
        tensor = view.parameter.type
        assert isinstance(tensor, TensorType)
        along = next(
            (
                i
                for i in reversed(range(len(extents)))
                if view.axes[i].known_stride.value == 1 and extents[i] > 1
            ),
            None,
        )
        width = 1
        runs: Sequence[tuple[int, ...]] = tuple((r,) for r in range(layout.registers))
        if (
            along is not None
            and (keep is None or len(keep) == layout.registers)
            and layout.shape == squeezed(extents)
        ):
            axis = axis_name(extents, along)
            limit = min(
                16 // size if size < 8 else 1,
                _divides(view, along),
                view.aligned,
                max(1, tensor.alignment // size),
            )
            for i, other in enumerate(view.axes):
                if i != along:
                    limit = min(limit, divisor(other.known_stride))
            limit = min(limit, extents[along] & -extents[along])
            if axis is not None and limit > 1:
                runs = lay.runs(layout, axis, limit)
                width = len(runs[0])
        if width > 1 and any(run != tuple(range(run[0], run[0] + width)) for run in runs):
            width, runs = 1, tuple((r,) for r in range(layout.registers))
        firsts = [run[0] for run in runs] if keep is None or width > 1 else list(keep)
        first = fit(tuple(firsts), "vec") if len(firsts) > 1 else str(firsts[0])
        for v in ["vec"] if first is not None and len(firsts) > 1 else [str(f) for f in firsts]:
            r = first if v == "vec" and first is not None else v
            if v == "vec":
                self.open(f"KT_EACH(vec, {len(firsts)})")
            else:
                self.open("")
                self.lines[-1] = self.indent[:-2] + "{"
            index = self.indices(layout, extents, r)
            where = (
                " + ".join(
                    f"({x}) * {a.stride}" if a.stride != "1" else f"({x})"
                    for x, a in zip(index, view.axes, strict=False)
                    if x != "0"
                )
                or "0"
            )
            inside = (
                " && ".join(f"{x} < {n}" for x, n, e in zip(index, limits, extents, strict=False)) or "true"
            )
            self.line(f"const bool inside = {inside};")
            self.line(f"const {'kt_out' if store else 'kt_in'} ptr = {at} + kt_i64({where}) * {size};")
            if store is None:
                self._load_vector(op, tile, name, r, width, size)
            else:
                self._store_vector(tile, store, r, width, size)
            self.close()

    def _load_vector(self, op: Op, tile: Value, name: str, r: str, width: int, size: int) -> None:
        dtype = dtype_of(tile)
        c = cexpr.ctype(dtype)
        pad = cexpr.literal(op.attrs["pad"], dtype)
        if width == 1:
            self.line(f"{name}[{r}] = inside ? kt_get_global<{c}>(ptr) : {c}({pad});")
        else:
            self.line(f"KT_LOAD_VECTOR({c}, {width}, {name}, {r}, inside, ptr, {c}({pad}));")

    def _store_vector(self, tile: Value, read: Reader, r: str, width: int, size: int) -> None:
        c = cexpr.ctype(dtype_of(tile))
        if width == 1:
            self.line(f"if (inside) kt_put_global(ptr, {c}({read(r)}));")
            return
        self.line(f"{c} piece[{width}];")
        self.line(f"KT_EACH(el, {width}) piece[el] = {read(f'{_paren(r)} + el')};")
        self.line(f"KT_STORE_VECTOR({c}, {width}, piece, inside, ptr);")

    def op_store(self, op: Op) -> None:
        self.locate(op)
        tile = op.operands[-1]
        add = op.name == "store_add"
        c = cexpr.ctype(dtype_of(tile))
        if not is_tile(tile):
            view, at, limits = self.window(op, shape(tile), {})
            conditions = ["tid == 0", *(f"{x} > 0" for x in limits), *(view.conditions if not limits else [])]
            call = "kt_add_global" if add else "kt_put_global"
            self.line(f"if ({' && '.join(conditions)}) {call}({at}, {c}({self.scalar(tile)}));")
            return
        layout = self.held[tile][1] if tile in self.held else self.layout_of(tile)
        read = self.reader(tile, layout)
        keep, condition = self.owners(layout)
        self.open(f"if ({condition})" if condition else "")
        if not condition:
            self.lines[-1] = self.indent[:-2] + "{"
        if add:
            view, at, limits = self.window(op, shape(tile), {})
            size = BY_NAME[dtype_of(tile)].bytes
            for header, r in self.each(keep, layout.registers):
                index = self.indices(layout, shape(tile), r)
                where = " + ".join(f"({x}) * {a.stride}" for x, a in zip(index, view.axes, strict=False))
                inside = " && ".join(f"{x} < {n}" for x, n in zip(index, limits, strict=False))
                self.line(f"{header}if ({inside}) kt_add_global({at} + kt_i64({where}) * {size}, {read(r)});")
        else:
            self.tile_memory(op, tile, layout, "", read, keep)
        self.close()

    op_store_add = op_store

    # Reductions and scans.

    def reduce(self, op: Op) -> None:
        self.locate(op)
        x, result, axis, name = op.operands[0], op.result, op.attrs["axis"], op.name
        dtype, to = dtype_of(x), dtype_of(result)
        if not is_tile(x) or shape(x)[axis] == 1:  # nothing to combine
            self._reduce_one(op)
            return
        small = squeezed(shape(x))
        if len(small) == 3:
            layout, read = self._lines_of(x, axis)
            along = "col"
        else:
            layout = self.held[x][1] if x in self.held else self.layout_of(x)
            along = axis_name(shape(x), axis) or "col"
            if len(layout.axes) != len(small):
                layout = self.layout_of(x)
            read = self.reader(x, layout)
        red = lay.reduction(layout, along)
        n = red.result.registers
        c = cexpr.ctype(to)
        out = self.fresh(result.name or "t")
        argmax = name == "argmax"
        work = self._work_type(name, dtype, to)
        best = self.fresh(f"{out}_best") if argmax else out
        first: dict[int, int] = {}
        for register, into_ in enumerate(red.into):
            first.setdefault(into_, register)
        self.line(f"{work} {best}[{n}];")
        value = self._to_work(name, dtype, to)
        if argmax:
            self.line(f"kt_i32 {out}[{n}];")
            for header, t, r in self._pairs([first[i] for i in range(n)]):
                position = self.coordinate(layout, along, r)
                self.line(f"{header}{{ {best}[{t}] = {value(read(r))}; {out}[{t}] = {position}; }}")
            rest = [r for r in range(layout.registers) if first[red.into[r]] != r]
            for register in rest:
                held = red.into[register]
                position = self.coordinate(layout, along, str(register))
                self.line(
                    f"kt_argmax({best}[{held}], {out}[{held}], {value(read(str(register)))}, {position});"
                )
        else:
            for header, t, r in self._pairs([first[i] for i in range(n)]):
                self.line(f"{header}{best}[{t}] = {value(read(r))};")
            rest = [r for r in range(layout.registers) if first[red.into[r]] != r]
            if rest:
                into, which = fit(tuple(red.into[r] for r in rest), "r"), fit(tuple(rest), "r")
                if into is not None and which is not None:
                    self.line(
                        f"KT_EACH(r, {len(rest)}) {best}[{into}] = {self._combine(name, work, f'{best}[{into}]', value(read(which)))};"
                    )
                else:
                    for register in rest:
                        place = f"{best}[{red.into[register]}]"
                        self.line(
                            f"{place} = {self._combine(name, work, place, value(read(str(register))))};"
                        )
        for mask in red.lane_masks:
            if argmax:
                self.line(
                    f"KT_EACH(r, {n}) kt_argmax({best}[r], {out}[r], kt_swap({best}[r], {mask}u), kt_swap({out}[r], {mask}u));"
                )
            else:
                self.line(
                    f"KT_EACH(r, {n}) {best}[r] = {self._combine(name, work, f'{best}[r]', f'kt_swap({best}[r], {mask}u)')};"
                )
        if red.group_sets:
            self._across_groups(red, name, work, best, out if argmax else None)
        if not argmax and work != c:
            final = self.fresh(result.name or "t")
            self.line(f"{c} {final}[{n}];")
            self.line(f"KT_EACH(r, {n}) {final}[r] = {cexpr.narrow(f'{out}[r]', to)};")
            out = final
        if not is_tile(result):
            self.names[result] = f"{out}[0]"
            return
        self.held[result] = (
            out,
            lay.with_axes(red.result, "col") if len(red.result.axes) == 1 else red.result,
        )

    op_sum = op_max = op_min = op_argmax = op_any = op_all = reduce

    def _reduce_one(self, op: Op) -> None:
        x, result = op.operands[0], op.result
        if op.name == "argmax":
            text: Callable[[str], str] = lambda t: "0"
        else:
            text = lambda t: cexpr.convert(t, dtype_of(x), dtype_of(result))
        c = cexpr.ctype(dtype_of(result))
        name = self.fresh(result.name or "t")
        if not is_tile(result):
            self.names[result] = name
            self.line(f"const {c} {name} = {text(self.scalar(x))};")
            return
        layout = self.layout_of(result)
        read = self.reader(x, layout)
        self.line(f"{c} {name}[{layout.registers}];")
        self.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {text(read('r'))};")
        self.held[result] = (name, layout)

    def _pairs(self, registers: list[int]) -> list[tuple[str, str, str]]:
        """(loop header, result register, tile register) for result registers in order."""
        if len(registers) == 1:
            return [("", "0", str(registers[0]))]
        found = fit(tuple(registers), "r")
        if found is not None:
            return [(f"KT_EACH(r, {len(registers)}) ", "r", found)]
        return [("", str(t), str(r)) for t, r in enumerate(registers)]

    def _work_type(self, name: str, dtype: str, to: str) -> str:
        if BY_NAME[dtype].kind == "f":
            return "float"
        return cexpr.ctype(to if name == "sum" else dtype)

    def _to_work(self, name: str, dtype: str, to: str) -> Callable[[str], str]:
        if BY_NAME[dtype].kind == "f":
            return lambda t: cexpr.widen(t, dtype)
        return (lambda t: cexpr.convert(t, dtype, to)) if name in ("sum", "cumsum") else (lambda t: t)

    def _combine(self, name: str, work: str, a: str, b: str) -> str:
        if name == "sum":
            if work == "float":
                return f"{a} + {b}"
            unsigned = "kt_u64" if "64" in work else "kt_u32"
            return f"{work}({unsigned}({a}) + {unsigned}({b}))"
        if name in ("any", "all"):
            return f"{a} {'|' if name == 'any' else '&'} {b}"
        if work == "float":
            return f"kt_{name}({a}, {b})"
        return f"kt_pick_{name}<{work}>({a}, {b})"

    def _across_groups(self, red: lay.Reduction, name: str, work: str, best: str, index: str | None) -> None:
        """Groups write their parts to shared memory and each combines all of them, in one order."""
        n, lanes = red.result.registers, self.machine.lanes
        size = (
            8
            if "64" in work
            else 4
            if work in ("float", "kt_i32", "kt_u32")
            else 1
            if work in ("bool", "kt_i8", "kt_u8")
            else 2
        )
        members = red.group_sets
        count = len(members[0])
        step = members[0][1] - members[0][0]
        expected = all(
            m == tuple(g // (step * count) * step * count + g % step + i * step for i in range(count))
            for m in members
            for g in m
        )
        if not expected:
            raise InternalError(f"groups {members} do not combine regularly")
        slab = self.groups * n * lanes
        at = self.before_scratch(slab * (size + (4 if index else 0)))
        where = f"((group * {n} + r) * {lanes} + lane)"
        self.line(f"KT_EACH(r, {n}) kt_put({at} + {where} * {size}, {best}[r]);")
        if index:
            self.line(f"KT_EACH(r, {n}) kt_put({at} + {slab * size} + {where} * 4, {index}[r]);")
        self.line("kt_barrier();")
        origin = (
            f"(group / {step * count} * {step * count} + group % {step})" if self.groups != count else "0"
        )
        other = self.fresh("other")
        self.open(f"KT_EACH(r, {n})")
        first = f"(({origin} * {n} + r) * {lanes} + lane)"
        self.line(f"{best}[r] = kt_get<{work}>({at} + {first} * {size});")
        if index:
            self.line(f"{index}[r] = kt_get<kt_i32>({at} + {slab * size} + {first} * 4);")
        self.open(f"for (int {other} = 1; {other} < {count}; ++{other})")
        there = f"((({origin} + {other} * {step}) * {n} + r) * {lanes} + lane)"
        if index:
            self.line(
                f"kt_argmax({best}[r], {index}[r], kt_get<{work}>({at} + {there} * {size}), kt_get<kt_i32>({at} + {slab * size} + {there} * 4));"
            )
        else:
            self.line(
                f"{best}[r] = {self._combine(name, work, f'{best}[r]', f'kt_get<{work}>({at} + {there} * {size})')};"
            )
        self.close()
        self.close()

    def _lines_of(self, x: Value, axis: int) -> tuple[Tiled, Reader]:
        """A tile of three axes as a matrix whose rows run along one of them, moved through shared memory."""
        extents = shape(x)
        axis %= len(extents)
        rest = [i for i in range(len(extents)) if i != axis]
        rows = extents[rest[0]] * extents[rest[1]]
        layout = lay.blocked((rows, extents[axis]), vector=1, lanes=self.machine.lanes, groups=self.groups)

        def number(r: str) -> str:
            row, col = self.coordinate(layout, "row", r), self.coordinate(layout, "col", r)
            index = [""] * 3
            index[rest[0]], index[rest[1]], index[axis] = (
                f"({row}) / {extents[rest[1]]}",
                f"({row}) % {extents[rest[1]]}",
                col,
            )
            return _number(index, extents)

        return layout, self.through_scratch(x, layout, number)

    def op_cumsum(self, op: Op) -> None:
        """Lines go to shared memory, a thread sums each in place, and the tile is read back."""
        self.locate(op)
        x, result, axis = op.operands[0], op.result, op.attrs["axis"] % len(shape(op.result))
        dtype, to = dtype_of(x), dtype_of(result)
        if not is_tile(x):
            self._reduce_one(op)
            return
        extents = shape(x)
        c, size = cexpr.ctype(to), BY_NAME[to].bytes
        have = self.held[x][1] if x in self.held else self.layout_of(x)
        read = self.reader(x, have)
        total = 1
        for n in extents:
            total *= n
        inner = 1
        for n in extents[axis + 1 :]:
            inner *= n
        at = self.before_scratch(total * size)
        keep, condition = self.owners(have)
        if condition:
            self.open(f"if ({condition})")
        for header, r in self.each(keep, have.registers):
            self.line(
                f"{header}kt_put({at} + ({self.linear(have, r)}) * {size}, {c}({cexpr.convert(read(r), dtype, to)}));"
            )
        if condition:
            self.close()
        self.line("kt_barrier();")
        lines = total // extents[axis]
        self.open(f"for (int each = tid; each < {lines}; each += {self.plan.threads})")
        self.line(f"const int from = each / {inner} * {inner * extents[axis]} + each % {inner};")
        self.line(f"{c} total = kt_get<{c}>({at} + from * {size});")
        self.open(f"for (int along = 1; along < {extents[axis]}; ++along)")
        where = f"{at} + (from + along * {inner}) * {size}"
        self.line(f"total = {self._combine('sum', c, 'total', f'kt_get<{c}>({where})')};")
        self.line(f"kt_put({where}, total);")
        self.close()
        self.close()
        self.line("kt_barrier();")
        layout = self.layout_of(result)
        name = self.fresh(result.name or "t")
        self.line(f"{c} {name}[{layout.registers}];")
        self.line(
            f"KT_EACH(r, {layout.registers}) {name}[r] = kt_get<{c}>({at} + ({self.linear(layout, 'r')}) * {size});"
        )
        self.held[result] = (name, layout)

    # Halves.

    def op_split(self, op: Op) -> None:
        self.locate(op)
        (x,) = op.operands
        extents, axis, pairs = shape(x), op.attrs["axis"] % len(shape(x)), op.attrs["pairs"]
        for half, result in enumerate(op.results):
            if result not in self.uses:
                continue
            layout = self.layout_of(result)

            def number(r: str, half: int = half, layout: Tiled = layout, result: Value = result) -> str:
                index = self.indices(layout, shape(result), r)
                i = _paren(index[axis])
                index[axis] = f"{i} * 2 + {half}" if pairs else f"{i} + {half * (extents[axis] // 2)}"
                return _number(index, extents)

            self._from_scratch(x, result, layout, number)

    def _from_scratch(self, x: Value, result: Value, layout: Tiled, number: Callable[[str], str]) -> None:
        if not is_tile(result):
            layout = lay.blocked((1,), vector=1, lanes=self.machine.lanes, groups=self.groups)
        read = self.through_scratch(x, layout, number)
        name = read("r")[:-3]
        if is_tile(result):
            self.held[result] = (name, layout)
        else:
            self.names[result] = f"{name}[0]"

    def op_join(self, op: Op) -> None:
        self.locate(op)
        result = op.result
        extents, axis, pairs = shape(result), op.attrs["axis"] % len(shape(result)), op.attrs["pairs"]
        dtype = dtype_of(result)
        size, c = BY_NAME[dtype].bytes, cexpr.ctype(dtype)
        total = 1
        for n in extents:
            total *= n
        for x in op.operands:
            if is_tile(x) and x not in self.held and x not in self.plan.placement.implicit:
                self.hold(x, self.layout_of(x))
        at = self.before_scratch(total * size)
        for half, x in enumerate(op.operands):

            def address(r: str, half: int = half, x: Value = x) -> str:
                layout = self.held[x][1] if x in self.held else self.layout_of(x)
                index = self.indices(layout, shape(x), r) if is_tile(x) else ["0"] * len(shape(x))
                i = _paren(index[axis])
                index[axis] = f"{i} * 2 + {half}" if pairs else f"{i} + {half * (extents[axis] // 2)}"
                return f"{at} + ({_number(index, extents)}) * {size}"

            if is_tile(x):
                self.put_all(x, address)
            else:
                self.line(f"if (tid == 0) kt_put({address('0')}, {c}({self.scalar(x)}));")
        self.line("kt_barrier();")
        layout = self.layout_of(result)
        name = self.fresh(result.name or "t")
        self.line(f"{c} {name}[{layout.registers}];")
        self.line(
            f"KT_EACH(r, {layout.registers}) {name}[r] = kt_get<{c}>({at} + ({self.linear(layout, 'r')}) * {size});"
        )
        self.held[result] = (name, layout)

    # Products.

    def op_mma(self, op: Op) -> None:
        self.locate(op)
        matrix = self.plan.placement.products[op]
        result = op.result
        layout = matrix.layout
        c = cexpr.ctype(dtype_of(result))
        accumulator = op.operands[2 if op.name == "mma" else 4] if len(op.operands) in (3, 5) else None
        read = self.reader(accumulator, layout) if accumulator is not None else None
        operands: dict[str, Any] = {}
        if matrix.op is not None:
            operands = {side: self._operand(op, matrix, side, i) for i, side in enumerate("ab")}
        name = self.fresh(result.name or "product")
        self.line(f"{c} {name}[{layout.registers}];")
        zero = "0.0f" if c == "float" else "0"
        self.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {read('r') if read else zero};")
        if matrix.op is None:
            self._product_by_elements(op, layout, name)
        elif c == "kt_i32" and matrix.op.product.accumulator == "float32":
            sums = self.fresh("sums")
            self.line(f"float {sums}[{layout.registers}];")
            self.line(f"KT_EACH(r, {layout.registers}) {sums}[r] = 0.0f;")
            self._product_by_instruction(op, matrix, sums, operands)
            self.line(
                f"KT_EACH(r, {layout.registers}) {name}[r] = kt_i32(kt_u32({name}[r]) + kt_u32(kt_i32({sums}[r])));"
            )
        else:
            self._product_by_instruction(op, matrix, name, operands)
        self.held[result] = (name, layout)

    op_mma_scaled = op_mma

    def _operand(self, op: Op, matrix: Matrix, side: str, position: int) -> tuple[str, Any]:
        """How a product reads one operand: ("words", array) or ("shared", Staged-like with address)."""
        layout = matrix.a if side == "a" else matrix.b
        assert layout is not None
        value = op.operands[position]
        if (op, side) in self.preloaded:
            return "words", self.preloaded[op, side]
        assert matrix.op is not None
        if matrix.op.through:
            return "words", self._converted(value, layout, side, matrix.op.through)
        root, flipped = source_of(value)
        if root in self.plan.staged:
            staged = self.plan.staged[root]
            return "shared", (staged.shared, self._slot_address(staged), flipped != staged.flipped)
        bits = BY_NAME[dtype_of(value)].bits
        oriented = lay.transpose(layout) if flipped else layout
        registers = lay.renaming(self.held[root][1], oriented) if root in self.held else None
        if registers is not None:
            return "words", self._pack(root, registers, bits)
        # Through shared memory, laid out as a staged tile would be.
        rows, cols = oriented.shape
        size = bits // 8
        shared, _ = tile(self.machine, (rows, cols), size, [(oriented, matrix.tiles[2])])
        have = self.held[root][1] if root in self.held else self.layout_of(root)
        if root not in self.held and root not in self.plan.placement.implicit:
            self.hold(root, have)
        at = self.before_scratch(shared.size)
        self.put_all(
            root,
            lambda r: (
                f"{at} + {_paren(lay.offset_expression(shared, _paren(self.coordinate(have, 'row', r)), _paren(self.coordinate(have, 'col', r))))}"
            ),
            have,
        )
        self.line("kt_barrier();")
        words = self.fresh(f"{side}_words")
        per_word = 32 // bits
        self.line(f"{self._word_type(bits)} {words}[{layout.registers // per_word}];")
        self._load_all(shared, at, layout, flipped, bits, words, matrix.tiles[2])
        return "words", words

    def _slot_address(self, staged: Staged) -> str:
        """Where the tile that this pass works on lies."""
        address = f"smem + {staged.offset}" if staged.offset else "smem"
        return (
            f"{address} + {self.slots[staged.load.result]} * {staged.slot_bytes}"
            if staged.depth > 1
            else address
        )

    def _converted(self, value: Value, layout: Tiled, side: str, to: str) -> str:
        """An operand as words of pairs of another type, which holds every value of its own."""
        read = self.reader(value, layout)
        dtype, n = dtype_of(value), layout.registers // 2
        low, high = (
            cexpr.widen(t, dtype) if BY_NAME[dtype].kind == "f" else f"float({t})"
            for t in (read("word * 2"), read("word * 2 + 1"))
        )
        words = self.fresh(f"{side}_words")
        self.line(f"kt_u32 {words}[{n}];")
        self.line(f"KT_EACH(word, {n}) {words}[word] = kt_f32x2_to_{cexpr.SHORT[to]}x2({low}, {high});")
        return words

    def _word_type(self, bits: int) -> str:
        return "float" if bits == 32 else "kt_u32"

    def _pack(self, value: Value, registers: Sequence[int], bits: int) -> str:
        """Registers of a held tile as the 32-bit words of an operand."""
        words = self.fresh(f"{value.name or 't'}_words")
        per = 32 // bits
        n = len(registers) // per
        self.line(f"{self._word_type(bits)} {words}[{n}];")
        name = self.held[value][0]
        source, convert = None, ""
        producer = value.producer
        dtype = dtype_of(value)
        if (
            per == 2
            and producer is not None
            and producer.name == "cast"
            and dtype_of(producer.operands[0]) == "float32"
            and producer.operands[0] in self.held
        ):
            if self.held[producer.operands[0]][1] == self.held[value][1]:
                source, convert = self.held[producer.operands[0]][0], f"kt_f32x2_to_{cexpr.SHORT[dtype]}x2"
        parts = [fit(tuple(registers[i::per]), "word") if n > 1 else str(registers[i]) for i in range(per)]
        if all(p is not None for p in parts):
            items: list[tuple[str, str, list[str]]] = [
                (f"KT_EACH(word, {n}) " if n > 1 else "", "word" if n > 1 else "0", [str(p) for p in parts])
            ]
        else:
            items = [("", str(w), [str(registers[w * per + i]) for i in range(per)]) for w in range(n)]
        for header, w, regs in items:
            if bits == 32:
                text = f"{name}[{regs[0]}]"
            elif source:
                text = f"{convert}({source}[{regs[0]}], {source}[{regs[1]}])"
            else:
                text = " | ".join(
                    f"kt_u32(kt_u{bits}({name}[{r}]))" + (f" << {bits * i}" if i else "")
                    for i, r in enumerate(regs)
                )
            self.line(f"{header}{words}[{w}] = {text};")
        return words

    def preload(self, staged: Staged) -> None:
        """Read operands that were loaded once, and are used in loops, into registers before the loops."""
        if staged.loop is not None:
            return

        def find(value: Value, flipped: bool) -> None:
            for use in self.uses.get(value, ()):
                if use.name == "transpose":
                    find(use.result, not flipped)
                elif use.name == "mma" and self.plan.placement.products[use].op is not None:
                    for position, side in enumerate("ab"):
                        if use.operands[position] is value:
                            self._preload_one(staged, use, side, flipped)

        find(staged.load.result, False)

    def _preload_one(self, staged: Staged, op: Op, side: str, flipped: bool) -> None:
        matrix = self.plan.placement.products[op]
        layout = matrix.a if side == "a" else matrix.b
        assert layout is not None
        bits = BY_NAME[dtype_of(staged.load.result)].bits
        count = layout.registers * bits // 32
        if self.preloaded_words + count > self.plan.placement.spare or (op, side) in self.preloaded:
            return
        self.preloaded_words += count
        words = self.fresh(f"{staged.load.result.name or side}_words")
        self.line(f"{self._word_type(bits)} {words}[{count}];")
        address = f"smem + {staged.offset}" if staged.offset else "smem"
        self._load_all(
            staged.shared, address, layout, flipped != staged.flipped, bits, words, matrix.tiles[2]
        )
        self.preloaded[op, side] = words

    def _load_fragments(
        self,
        shared: Any,
        address: str,
        layout: Tiled,
        flipped: bool,
        bits: int,
        words: str,
        steps: int,
        *,
        whole: bool,
    ) -> Callable[[int | None], list[str]]:
        """How to read the fragments of one step along K from shared memory into words (from 0, or with `whole` in their place).

        The result gives the statements for step k, or with None those of a loop over kk; it raises ValueError where a
        loop cannot say them.
        """
        oriented = lay.transpose(layout) if flipped else layout
        per_step, per_word = oriented.registers // steps, 32 // bits
        source, size, call = self._fragment_read(shared, oriented, bits, per_step)
        parts = range(per_word) if call is None else range(1)
        scale = source.registers // oriented.registers  # lanes may point at more than they get
        c = {8: "kt_u8", 16: "kt_u16", 32: "float"}[bits]

        def statement(first: str, at: Callable[[str, int], str]) -> str:
            where = [
                f"{address} + {_paren(lay.offset_expression(shared, at('row', i), at('col', i)))}"
                for i in parts
            ]
            if call is not None:
                return call(words, first, where[0])
            texts = [f"kt_get<{c}>({x})" for x in where]
            return f"{words}[{first}] = {texts[0] if bits == 32 else _packed_words(texts, bits)};"

        def one(k: int) -> list[str]:
            out = []
            for r in range(k * per_step, (k + 1) * per_step, size):
                first = str((r if whole else r - k * per_step) // per_word)
                out.append(
                    statement(first, lambda axis, i, r=r: self.coordinate_text(source, axis, r * scale + i))  # type: ignore[misc]
                )
            return out

        def loop() -> list[str]:
            many = per_step // size
            first = (
                " + ".join(
                    x
                    for x in (
                        _times("kk", per_step // per_word) if whole and steps > 1 else "",
                        _times("fi", size // per_word) if many > 1 else "",
                    )
                    if x
                )
                or "0"
            )
            text = statement(
                first, lambda axis, i: self._stepped(source, axis, i, steps, per_step * scale, size * scale)
            )
            return [(f"KT_EACH(fi, {many}) " if many > 1 else "") + text]

        return lambda k: loop() if k is None else one(k)

    def _fragment_read(
        self, shared: Any, oriented: Tiled, bits: int, per_step: int
    ) -> tuple[Tiled, int, Callable[[str, str, str], str] | None]:
        """The widest way to fill a layout: where lanes point, registers filled at once, and the statement for (words, first
        word, address); None if elements are read one by one.
        """
        per_word = 32 // bits
        for move in self.machine.moves:
            found = collective(
                oriented, move.pattern, move.bits, move.elements, bits, shared.shape[1], per_step
            )
            if found is not None:
                pointing, filled = found
                return (
                    pointing,
                    filled,
                    lambda words, first, at: move.call(
                        [f"{words}[{_plus(first, w)}]" for w in range(filled // per_word)], at
                    ),
                )
        runs = lay.runs(oriented, "col", min(16 * 8 // bits, _contiguous(shared)))
        width = len(runs[0])
        if (
            width < per_word
            or per_step % width
            or any(run != tuple(range(run[0], run[0] + width)) for run in runs)
        ):
            return oriented, per_word, None
        return (
            oriented,
            width,
            lambda words, first, at: (
                f"KT_LOAD_{'FLOATS' if bits == 32 else 'WORDS'}({width // per_word}, {words}, {first}, {at});"
            ),
        )

    def _stepped(self, layout: Tiled, axis: str, part: int, steps: int, per_step: int, size: int) -> str:
        """The coordinate of register kk * per_step + fi * size + part. Raises ValueError if kk and fi do not just add to it."""
        offsets = lay.register_offsets(layout, axis)
        if offsets is None:
            raise ValueError(f"registers of {layout} do not add to a coordinate")
        table = [[offsets[k * per_step + i + part] for i in range(0, per_step, size)] for k in range(steps)]
        if any(row[i] - row[0] != table[0][i] - table[0][0] for row in table for i in range(len(row))):
            raise ValueError("steps and fragments do not just add")
        texts = [fit(tuple(row[0] - table[0][0] for row in table), "kk"), fit(tuple(table[0]), "fi")]
        if None in texts:
            raise ValueError("no expression for the offsets")
        first = self.coords(layout)[axis]
        return " + ".join(x for x in (first, *texts) if x not in (None, "0")) or "0"

    def _load_all(
        self, shared: Any, address: str, layout: Tiled, flipped: bool, bits: int, words: str, steps: int
    ) -> None:
        """Read the fragments of every step into words."""
        reads = self._load_fragments(shared, address, layout, flipped, bits, words, steps, whole=True)
        try:
            for text in reads(None):
                self.line((f"KT_EACH(kk, {steps}) " if steps > 1 else "") + text)
        except ValueError:
            for k in range(steps):
                for text in reads(k):
                    self.line(text)

    def coordinate_text(self, layout: Tiled, axis: str, register: int) -> str:
        """The coordinate of a constant register, also where registers and lanes are xored."""
        if lay.register_offsets(layout, axis) is not None:
            return self.coordinate(layout, axis, str(register))
        return lay.coordinate_expression(layout, axis, register)

    def _product_by_instruction(
        self, op: Op, matrix: Matrix, name: str, operands: dict[str, tuple[str, Any]]
    ) -> None:
        assert matrix.op is not None and matrix.a is not None and matrix.b is not None
        mt, nt, kt = matrix.tiles
        bits = matrix.op.bits
        per = 32 // bits
        fa = matrix.a.registers // (mt * kt) // per
        fb = matrix.b.registers // (nt * kt) // per
        fd = matrix.layout.registers // (mt * nt)
        local = {}
        self.open("")
        self.lines[-1] = self.indent[:-2] + "{"
        for side, count in (("a", fa * mt), ("b", fb * nt)):
            if operands[side][0] == "shared":
                local[side] = self.fresh(f"{side}_words")
                self.line(f"{self._word_type(bits)} {local[side]}[{count}];")
        reads = {}
        for side, layout in (("a", matrix.a), ("b", matrix.b)):
            kind, what = operands[side]
            if kind == "shared":
                shared, address, flipped = what
                reads[side] = self._load_fragments(
                    shared, address, layout, flipped, bits, local[side], kt, whole=False
                )
        header = (f"KT_EACH(mi, {mt}) " if mt > 1 else "") + (f"KT_EACH(ni, {nt}) " if nt > 1 else "")
        m, n = "mi" if mt > 1 else "", "ni" if nt > 1 else ""
        tile = f"({m} * {nt} + {n})" if m and n else (f"{m} * {nt}" if m and nt > 1 else m) or n
        d = [f"{name}[{_sum(_times(tile, fd) if tile else '', e)}]" for e in range(fd)]

        def at(side: str, k: int | None, step: str, per_tile: int, tiles: int) -> list[str]:
            array, origin = (
                (local[side], "")
                if side in local
                else (
                    operands[side][1],
                    _times("kk", per_tile * tiles) if k is None else str(k * per_tile * tiles),
                )
            )
            return [
                f"{array}[{_sum(origin, _times(step, per_tile) if step else '', w)}]" for w in range(per_tile)
            ]

        def step(k: int | None) -> list[str]:
            a, b = at("a", k, m, fa, mt), at("b", k, n, fb, nt)
            if self.machine.transposed:
                a, b = b, a
            return [*(text for side in reads for text in reads[side](k)), header + matrix.op.call(d, a, b)]  # type: ignore[union-attr]

        try:
            texts = step(None) if kt > 1 else step(0)
        except ValueError:
            texts = [text for k in range(kt) for text in step(k)]
            kt = 1
        if kt > 1:
            # Reads of single elements, unrolled and hoisted, would take all registers.
            by_elements = len(local) == 2 and any("kt_get<" in text for text in texts)
            self.open(f"KT_ROLLED for (int kk = 0; kk < {kt}; ++kk)" if by_elements else f"KT_EACH(kk, {kt})")
        for text in texts:
            self.line(text)
        if kt > 1:
            self.close()
        self.close()

    def _product_by_elements(self, op: Op, layout: Tiled, name: str) -> None:
        """Both operands in shared memory; a lane sums the products of each of its elements, fused, along K."""
        scaled = op.name == "mma_scaled"
        a, b = op.operands[0], op.operands[2 if scaled else 1]
        sources = [a, b] + ([op.operands[1], op.operands[3]] if scaled else [])
        (rows, inner), cols = shape(a), shape(b)[1]
        written = [x for x in sources if source_of(x)[0] not in self.plan.staged]
        for x in written:
            if is_tile(x) and x not in self.held and x not in self.plan.placement.implicit:
                self.hold(x, self.layout_of(x))
        offsets, total = {}, 0
        for x in written:
            offsets[x] = total
            total += -(-math.prod(shape(x)) * BY_NAME[dtype_of(x)].bytes // 16) * 16
        at = self.before_scratch(total) if written else ""
        for x in written:
            size, offset = BY_NAME[dtype_of(x)].bytes, offsets[x]
            if is_tile(x):
                have = self.held[x][1] if x in self.held else self.layout_of(x)
                self.put_all(
                    x,
                    lambda r, have=have, size=size, offset=offset: (  # type: ignore[misc]
                        f"{at} + {offset} + ({self.linear(have, r)}) * {size}"
                    ),
                    have,
                )
            else:
                self.line(
                    f"if (tid == 0) kt_put({at} + {offset}, {cexpr.ctype(dtype_of(x))}({self.scalar(x)}));"
                )
        if written:
            self.line("kt_barrier();")

        def address(x: Value, row: str, col: str) -> str:
            """Of an element of an operand in shared memory."""
            root, flipped = source_of(x)
            if x in offsets:
                return f"{at} + {offsets[x]} + (({row}) * {shape(x)[1]} + {_paren(col)}) * {BY_NAME[dtype_of(x)].bytes}"
            staged = self.plan.staged[root]
            if flipped != staged.flipped:
                row, col = col, row
            return f"{self._slot_address(staged)} + {_paren(lay.offset_expression(staged.shared, row, col))}"

        # A lane's elements are few rows by few columns: each row's and column's operand is read once a step.
        da, db = dtype_of(a), dtype_of(b)
        ca, cb = cexpr.ctype(da), cexpr.ctype(db)
        (row, m, of_row), (col, n, of_col) = (
            self._distinct(layout, rows, "row"),
            self._distinct(layout, cols, "col"),
        )
        reads = [
            ("x", m, f"kt_get<{ca}>({address(a, row, 'kk')})", da),
            ("y", n, f"kt_get<{cb}>({address(b, 'kk', col)})", db),
        ]
        if scaled:
            reads.append(("sx", m, f"kt_get<kt_u8>({address(op.operands[1], row, 'kk / 32')})", "uint8"))
            reads.append(("sy", n, f"kt_get<kt_u8>({address(op.operands[3], 'kk / 32', col)})", "uint8"))
        self.open(f"for (int kk = 0; kk < {inner}; ++kk)")
        arrays = {}
        for stem, count, text, dtype in reads:
            arrays[stem] = self.fresh(stem)
            floats = BY_NAME[dtype].kind == "f"
            self.line(f"{'float' if floats else cexpr.ctype(dtype)} {arrays[stem]}[{count}];")
            self.line(
                f"KT_EACH(fi, {count}) {arrays[stem]}[fi] = {cexpr.widen(text, dtype) if floats else text};"
            )
        left, right, sx, sy = (
            f"{arrays[s]}[{which}]" if s in arrays else ""
            for s, which in (("x", of_row), ("y", of_col), ("sx", of_row), ("sy", of_col))
        )
        if scaled:
            text = f"{name}[r] += kt_scale_e8m0({left} * {right}, {sx}, {sy})"
        elif BY_NAME[da].kind == "f":
            text = f"{name}[r] = kt_fma({left}, {right}, {name}[r])"
        else:
            text = f"{name}[r] = kt_i32(kt_u32({name}[r]) + kt_u32(kt_i32({left}) * kt_i32({right})))"
        self.line(f"KT_EACH(r, {layout.registers}) {text};")
        self.close()

    def _distinct(self, layout: Tiled, extent: int, axis: str) -> tuple[str, int, str]:
        """The different coordinates that a lane's registers have along an axis of a product: the text of number fi, how
        many there are, and the text of which one register r has.
        """
        axis = axis if len(layout.axes) == 2 else "col"
        if extent == 1:
            return "0", 1, "0"
        offsets = lay.register_offsets(layout, axis)
        if offsets is None:
            raise InternalError(f"registers of {layout} do not add to a coordinate")
        different = sorted(set(offsets))
        position = _sum(self.coords(layout)[axis], self.table(different, "fi" if len(different) > 1 else "0"))
        return position, len(different), self.table([different.index(o) for o in offsets], "r")

    # Telling the author.

    def op_print(self, op: Op) -> None:
        self.locate(op)
        self.line(f"// kt.device_print({op.attrs['text']!r}): on the reference only")

    def op_assert(self, op: Op) -> None:
        self.locate(op)
        x = op.operands[0]
        if not is_tile(x):
            self.line(f"KT_ASSERT({self.scalar(x)}, {_quoted(op.attrs['message'])});")
            return
        layout = self.held[x][1] if x in self.held else self.layout_of(x)
        read = self.reader(x, layout)
        self.line(f"KT_EACH(r, {layout.registers}) KT_ASSERT({read('r')}, {_quoted(op.attrs['message'])});")


#: Types of a piece of so many bytes.
_PIECES = {4: "kt_u32", 8: "kt_u32x2", 16: "kt_u32x4"}

_RESERVED = {
    "int", "float", "double", "char", "bool", "const", "for", "if", "else", "while", "do", "switch", "case", "default", "auto", "register", "this", "new", "delete",
    "class", "struct", "union", "enum", "template", "typename", "operator", "public", "private", "protected", "virtual", "static", "extern", "inline", "volatile",
    "signed", "unsigned", "short", "long", "void", "return", "goto", "sizeof", "true", "false", "half", "bfloat", "device", "constant", "threadgroup", "thread", "kernel",
    "vertex", "fragment", "ray_data", "object_data", "visible", "intersection", "main", "program", "first", "tall", "share", "number", "row", "col", "left", "bytes", "inside", "ptr", "vec", "el", "word", "mi", "ni", "kk", "fi", "stage", "each", "from", "along", "total", "piece",
}  # fmt: skip


def _plus(text: str, n: int) -> str:
    """`text` + n, where text may be a number."""
    return str(int(text) + n) if text.isdigit() else f"{text} + {n}" if n else text


def _times(text: str, n: int) -> str:
    return text if n == 1 else f"{text} * {n}"


def _sum(*terms: str | int) -> str:
    """The sum of terms, those that are nothing left out."""
    return " + ".join(str(t) for t in terms if t not in ("", "0", 0)) or "0"


def _packed_words(texts: Sequence[str], bits: int) -> str:
    """Elements as a 32-bit word, the first lowest."""
    return " | ".join(f"kt_u32({text})" + (f" << {bits * i}" if i else "") for i, text in enumerate(texts))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def _number(index: Sequence[str], extents: Sequence[int]) -> str:
    """The row-major number of an index."""
    text = ""
    for x, n in zip(index, extents, strict=False):
        text = f"({text}) * {n}" if text else ""
        if x != "0":
            text = f"{text} + {_paren(x)}" if text else _paren(x)
    return text or "0"


def _source_index(op: Op, index: list[str]) -> list[str]:
    """The index, in the operand, of a result's element of a broadcast, reshape or transpose."""
    source, result = shape(op.operands[0]), shape(op.result)
    if op.name == "transpose":
        out = [""] * len(source)
        for i, p in enumerate(op.attrs["perm"]):
            out[p] = index[i]
        return out
    if op.name == "broadcast":
        tail = index[len(result) - len(source) :]
        return ["0" if n == 1 else x for n, x in zip(source, tail, strict=False)]
    if squeezed(source) == squeezed(result):
        found = iter([x for x, n in zip(index, result, strict=False) if n != 1])
        return ["0" if n == 1 else next(found) for n in source]
    number = _paren(_number(index, result))
    out = []
    below = 1
    for n in reversed(source):
        out.append("0" if n == 1 else f"{number} / {below} % {n}")
        below *= n
    return out[::-1]


def _depends(value: Value, on: set[Value]) -> bool:
    """Whether a scalar follows from any of some values."""
    op = value.producer
    return value in on or (op is not None and any(_depends(x, on) for x in op.operands))


def _divides(view: Resolved, axis: int) -> int:
    """Elements that are known to lie together inside or outside along an axis."""
    return divisor(view.axes[axis].known_extent)


@functools.lru_cache(4096)
def _owners(layout: Tiled) -> tuple[list[int], str]:
    import numpy as np

    numbers = lay.elements(layout)
    seen: set[int] = set()
    keep = np.zeros(numbers.shape, bool)
    flat = numbers.reshape(-1)
    _, first = np.unique(flat, return_index=True)
    del seen
    keep.reshape(-1)[first] = True
    groups, lanes, registers = (np.nonzero(keep.any(axis=axes))[0] for axes in ((1, 2), (0, 2), (0, 1)))
    if keep[np.ix_(groups, lanes, registers)].sum() != keep.sum() or keep.sum() != len(groups) * len(
        lanes
    ) * len(registers):
        raise InternalError("copies of a tile's elements do not lie regularly")
    conditions = [
        _condition(layout.lanes, lanes.tolist(), "lane"),
        _condition(layout.groups, groups.tolist(), "group"),
    ]
    return registers.tolist(), " && ".join(c for c in conditions if c)


def _condition(total: int, members: list[int], name: str) -> str:
    if len(members) == total:
        return ""
    mask = 0
    for bit in range(total.bit_length()):
        if not any(m >> bit & 1 for m in members):
            mask |= 1 << bit
    mask &= (1 << max(total - 1, 1).bit_length()) - 1
    if members == [x for x in range(total) if not x & mask]:
        return f"({name} & {mask}) == 0"
    if members == list(range(len(members))):
        return f"{name} < {len(members)}"
    return "(" + " || ".join(f"{name} == {m}" for m in members) + ")"


def _contiguous(shared: lay.Shared) -> int:
    """Neighbouring columns that lie together, and aligned, in every row: up to 16 bytes, which no swizzle splits."""
    row_bytes = shared.shape[1] * shared.itemsize
    return max(1, min(16, row_bytes & -row_bytes) // shared.itemsize)
