"""The writer: lines, names, coordinates, and how the elements of a value are read where they are needed."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kittens import layouts as lay
from kittens.artifact import Parameter
from kittens.codegen import cexpr
from kittens.codegen.edges import loops_by_index
from kittens.codegen.emit.text import (
    RESERVED,
    first_of,
    fit,
    holders,
    paren,
    row_major,
    source_index,
)
from kittens.codegen.known import alike, axis_before, most, vector
from kittens.codegen.machine import Machine
from kittens.codegen.order import meetings
from kittens.codegen.placement import (
    axis_name,
    dtype_of,
    is_tile,
    related,
    shape,
    squeezed,
)
from kittens.codegen.plan import Plan, owners
from kittens.codegen.positions import Test, compared
from kittens.codegen.views import cname, extent_text, stride_text
from kittens.dtypes import BY_NAME
from kittens.errors import InternalError, UnavailableError
from kittens.ir import Op, Region, TensorType, Value, base
from kittens.layouts import Tiled
from kittens.opset.elementwise import COMPARISONS


@dataclass(frozen=True)
class Source:
    """An emitted kernel: its text, its parameters in order, threads and shared bytes, and the Python lines it came from.

    `packed`: the kernel takes all pointers first, and then one structure of all that is no pointer. `persistent`,
    `cluster`, `early` and `messages` are as in `Artifact`.
    """

    text: str
    entry: str
    parameters: tuple[Parameter, ...]
    threads: int
    shared_bytes: int
    locations: dict[int, tuple[str, int]]
    packed: bool = False
    persistent: int = 0
    cluster: int = 1
    early: bool = False
    messages: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


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
        for kind, known, text in (("extent", t.dims, extent_text), ("stride", t.strides, stride_text)):
            for i in range(t.rank):
                if known[i].value is None:
                    name = text(value, i)
                    c, given = ("kt_u32", f"{name}{NARROW}") if plan.machine.narrow else ("kt_i64", name)
                    out.append(Parameter(kind, value.name, i, c, given))
    out += [Parameter("grid", "", i, "kt_i32", f"grid_{i}") for i in range(plan.function.grid_rank)]
    if plan.machine.alone and plan.function.ordered:
        out.append(Parameter("first", "", 0, "kt_u32", FIRST))
    if plan.machine.logs and any(op.name == "print" for op in plan.function.body.walk()):
        out.append(Parameter("log", "", 0, "kt_out", LOG))
    return tuple(out)


def heading(plan: Plan) -> list[str]:
    """The lines above a kernel: what it is, and the headers that it needs."""
    function, machine = plan.function, plan.machine
    head = [f"// {function.name} for {machine.target}, written by kittens."]
    if function.constants:
        head.append("// " + ", ".join(f"{k}={v!r}" for k, v in function.constants.items()))
    return [*head, f'#include "{machine.dialect.include}"', '#include "kt_ops.h"', ""]


#: What parameters of 32 bits have behind the name that their value goes by.
NARROW = "_32"
#: The parameter that kernels print into, where they have no printf.
LOG = "printed"
#: The parameter that says which program a launch begins with, where programs are started one by one.
FIRST = "first_program"

Reader = Callable[[str], str]
#: Writes one operation.
Handler = Callable[["Writer", Op], None]


@dataclass(frozen=True)
class Vector:
    """Aligned neighbours along an axis, held by registers that follow one another: how many, and the first one's index."""

    axis: int
    width: int
    index: list[str]

    def before(self, op: Op) -> Vector | None:
        """The same of the operand of a broadcast, reshape or transpose, if it has such neighbours too."""
        axis = axis_before(op, self.axis)
        return None if axis is None or axis < 0 else Vector(axis, self.width, source_index(op, self.index))


class Writer:
    """Writes the text of one plan. `handlers` write single operations, by name."""

    def __init__(self, plan: Plan, handlers: Mapping[str, Handler]):
        self.handlers = handlers
        self.plan = plan
        self.machine: Machine = plan.machine
        self.groups = plan.placement.groups
        self.lines: list[str] = []
        self.prelude: list[str] = []
        self.indent = "  "
        self.taken: set[str] = {"smem", "lane", "group", "tid", "r"}
        self.parameters = parameters(plan)
        self.taken |= {p.text for p in self.parameters} | {
            p.text.removesuffix(NARROW) for p in self.parameters
        }
        self.names: dict[Value, str] = {}
        self.held: dict[Value, tuple[str, Tiled]] = {}
        self.coordinates: dict[Tiled, dict[str, str]] = {}
        self.tables: dict[tuple[int, ...], str] = {}
        self.preloaded: dict[tuple[Op, str], str] = {}
        self.preloaded_words = 0
        self.slots: dict[Value, str] = {}
        self.counted: set[Value] = set()  # indices of loops that are counted in 32 bits, from 0 on
        self.slices: dict[Value, tuple[str, str]] = {}  # the bounds of slices that were found out
        self.streams: dict[Value, Callable[[str, str], str]] = {}
        self.scratch_busy = False
        self.scratch_bytes = 0
        self.messages: list[str] = []  # what is printed, as in `Artifact`
        self.locations: dict[int, tuple[str, int]] = {}
        self.place = 0
        self.uses: dict[Value, list[Op]] = {}
        for op in plan.function.body.walk():
            for v in op.operands:
                self.uses.setdefault(v, []).append(op)
        self.stored = plan.function.stored()
        self.meetings = meetings(plan)
        self.owner = owners(plan.function.body)
        self.loops = loops_by_index(plan.function.body)
        # Which program this is. Where some wait for those before them, it is drawn when it begins: devices do not promise to
        # begin blocks in the order of their numbers, and some with several parts do not. Or each is started by itself.
        waits = plan.function.ordered
        self.draws = waits and not self.machine.alone and plan.roles is None  # (roles have their own way)
        self.program = self.fresh("drawn") if self.draws else "kt_program_x()"
        if waits and self.machine.alone:
            self.program = f"({self.program} + {FIRST})"
        self.rows = "grid_0"  # the grid's first extent; in a cluster, whose programs share a number, in steps of `cluster`
        self.cluster = 1
        self.meet = "kt_barrier();"
        #: The blocks of the text that are open, and what is held in each alone: see `hold`.
        self.blocks: list[list[Value]] = []
        #: What groups have been asked of conditions: the names of the answers.
        self.votes: dict[Value, str] = {}
        #: How sums of scalars are tested, if in another way than where they stand.
        self.edge_test: Test | None = None
        #: Sums whose lanes' parts are put together behind the loop: over which lanes, once they are written.
        self.partial: dict[Op, tuple[int, ...]] = {}

    def source(self) -> Source:
        function, machine = self.plan.function, self.machine
        self.region(function.body)
        self.plan.scratch_bytes, self.plan.kept_words = self.scratch_bytes, self.preloaded_words
        shared = self.plan.buffer_bytes + self.scratch_bytes
        parameters, drawn = self.parameters, ""
        if self.draws:
            shared = max(shared, 4)
            parameters += (Parameter("counter", "", 0, "kt_out", "counter"),)
            programs = " * ".join(f"kt_u32(grid_{i})" for i in range(function.grid_rank))
            drawn = f"  const kt_u32 {self.program} = kt_draw_together(smem, counter, {programs});"
        if shared > machine.shared_bytes:
            raise UnavailableError(f"{function.name} needs {shared} bytes of shared memory, {machine.target} has {machine.shared_bytes}",
                                   hint="use smaller tiles (the kernel's tunables)", location=function.location)  # fmt: skip
        entry = f"{function.name}_kernel"
        head = heading(self.plan)
        head.append(
            machine.dialect.entry(entry, [(p.ctype, p.text) for p in parameters], self.plan.threads, shared)
        )
        if shared:
            head.append(f"  KT_SHARED_MEMORY(smem, {shared});")
        head += [drawn] if drawn else []
        text = machine.dialect.finish("\n".join([*head, *self.definitions(), *self.lines, "}", ""]))
        return Source(
            text, entry, parameters, self.plan.threads, shared, self.locations, machine.dialect.packed,
            messages=tuple(self.messages),
        )  # fmt: skip

    def definitions(self, first: int = 0) -> list[str]:
        """What the lines so far need to know of the thread; those before number `first` do not count."""
        text = "\n".join([*self.prelude, *self.lines])
        known = {"tid": "kt_thread", "lane": "kt_lane", "group": "kt_group"}
        before = {"tid": first, "lane": 0, "group": first // self.machine.lanes}
        return (
            [
                f"  const int {name} = int({call}()){f' - {before[name]}' if before[name] else ''};"
                for name, call in known.items()
                if re.search(rf"\b{name}\b", text)
            ]
            + self._widened(text)
            + self.prelude
        )

    def _widened(self, text: str) -> list[str]:
        """Parameters of 32 bits, under the names that they go by."""
        names = [(p.text, p.text.removesuffix(NARROW)) for p in self.parameters if p.ctype == "kt_u32"]
        return [f"  const kt_i64 {w} = {n};" for n, w in names if w != n and re.search(rf"\b{w}\b", text)]

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def barrier(self) -> None:
        """All threads that run this text meet."""
        self.line(self.meet)

    def open(self, text: str = "") -> None:
        """Begin a block, with the statement that heads it, if one does."""
        self.line(f"{text} {{" if text else "{")
        self.indent += "  "
        self.blocks.append([])

    def close(self) -> None:
        """End a block, and with it the arrays that were made there for what is read lazily."""
        self.indent = self.indent[:-2]
        self.line("}")
        for value in self.blocks.pop():
            del self.held[value]

    def fresh(self, stem: str) -> str:
        stem = re.sub(r"\W", "_", stem) or "t"
        if (
            not re.match(r"[A-Za-z]", stem)
            or stem.startswith("kt_")
            or keyword.iskeyword(stem)
            or stem in RESERVED
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
        found = fit(values, paren(r))
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
        return f"({self.coordinate(layout, 'row', r)}) * {layout.shape[1]} + {paren(self.coordinate(layout, 'col', r))}"

    def layout_of(self, value: Value) -> Tiled:
        """The layout that a value's class was given."""
        if value in self.plan.placement.layouts:
            return self.plan.placement.layouts[value]
        small = squeezed(shape(value))
        if len(small) == 3:
            small = (small[0] * small[1], small[2])
        return lay.blocked(small, vector=4, lanes=self.machine.lanes, groups=self.groups)

    def reader(self, value: Value, layout: Tiled) -> Reader:
        """How to read a value's element in register r of a layout; moves the tile first if it lies elsewhere."""
        if not is_tile(value):
            text = self.scalar(value)
            return lambda r: text
        if value in self.plan.placement.implicit:
            axis, width = self.vector(layout, shape(value))
            extents = shape(value)
            if width == 1:
                return lambda r: self.implicit(value, self.indices(layout, extents, r))
            return lambda r: self.implicit(
                value,
                self.indices(layout, extents, r),
                Vector(axis, width, self.indices(layout, extents, first_of(r, width))),
            )
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

    def vector(self, layout: Tiled, extents: Sequence[int]) -> tuple[int, int]:
        """An axis of a shape along which registers that follow one another hold aligned neighbours, and how many do."""
        if layout.shape == squeezed(extents):
            for axis in reversed(range(len(extents))):
                name = axis_name(extents, axis)
                width = vector(lay.runs(layout, name, 16)) if name else 1
                if width > 1:
                    return axis, width
        return 0, 1

    def implicit(self, value: Value, index: list[str], run: Vector | None = None) -> str:
        """An implicit value at an index; `run` is the vector of neighbours that it is in."""
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
                self.implicit(op.operands[0], source_index(op, index), run and run.before(op))
                if is_tile(op.operands[0])
                else self.scalar(op.operands[0])
            )
        if op.name in COMPARISONS and BY_NAME[dtype_of(op.operands[0])].is_integer:
            if run is not None and alike(op, run.axis, run.width):
                index, run = run.index, None  # one answer for all of the vector
        near = compared(op, index, self.plan.placement.implicit, self.scalar)
        if near:
            return near
        texts = [self.implicit(x, index, run) for x in op.operands]
        return cexpr.expression(op.name, op.attrs, [dtype_of(x) for x in op.operands], dtype_of(value), texts)

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
            return row_major(source_index(op, self.indices(layout, shape(result), r)), shape(operand))

        return self.through_scratch(operand, layout, number)

    def before_scratch(self, size: int) -> str:
        """Make ready to write `size` bytes of scratch memory; returns its address."""
        self.scratch_bytes = max(self.scratch_bytes, -(-size // 16) * 16)
        if self.scratch_busy:
            self.barrier()
        self.scratch_busy = True
        return f"smem + {self.plan.buffer_bytes}" if self.plan.buffer_bytes else "smem"

    def most(self, value: Value) -> int | None:
        """A bound of an integer scalar that is not negative, if one is known."""
        op = value.producer
        if op is not None and op.name == "dim" and base(op.operands[0]).name in self.plan.mapped:
            return 2**32 - 1
        return 2**31 - 1 if value in self.counted else most(value)

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
        return holders(layout)

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
        self.barrier()
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
        if self.blocks:
            self.blocks[-1].append(value)
        return name

    def region(self, region: Region) -> None:
        for op in region.ops:
            if op.name == "yield":
                continue
            if len(op.results) == 1 and op.result in self.plan.placement.implicit:
                continue
            handler = self.handlers.get(op.name)
            if handler is not None:
                handler(self, op)
            elif op.name in ("const", "dim", "index", "slice", "permute", "broadcast", "transpose"):
                continue
            else:
                self.handlers["elementwise"](self, op)

    def coordinate_text(self, layout: Tiled, axis: str, register: int) -> str:
        """The coordinate of a constant register, also where registers and lanes are xored."""
        if lay.register_offsets(layout, axis) is not None:
            return self.coordinate(layout, axis, str(register))
        return lay.coordinate_expression(layout, axis, register)
