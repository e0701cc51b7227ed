"""Reductions within lanes, across lanes and across groups; running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kittens import layouts as lay
from kittens.codegen import cexpr
from kittens.codegen.emit.text import fit, row_major
from kittens.codegen.emit.writer import Reader, Writer
from kittens.codegen.placement import (
    axis_name,
    dtype_of,
    is_tile,
    shape,
    squeezed,
)
from kittens.dtypes import BY_NAME
from kittens.errors import InternalError
from kittens.ir import Op, Value
from kittens.layouts import Tiled


def reduce(writer: Writer, op: Op) -> None:
    writer.locate(op)
    x, result, axis, name = op.operands[0], op.result, op.attrs["axis"], op.name
    dtype, to = dtype_of(x), dtype_of(result)
    if not is_tile(x) or shape(x)[axis] == 1:  # nothing to combine
        _reduce_one(writer, op)
        return
    small = squeezed(shape(x))
    if len(small) == 3:
        layout, read = _lines_of(writer, x, axis)
        along = "col"
    else:
        layout = writer.held[x][1] if x in writer.held else writer.layout_of(x)
        along = axis_name(shape(x), axis) or "col"
        if len(layout.axes) != len(small):
            layout = writer.layout_of(x)
        read = writer.reader(x, layout)
    red = lay.reduction(layout, along)
    n = red.result.registers
    c = cexpr.ctype(to)
    out = writer.fresh(result.name or "t")
    argmax = name == "argmax"
    work = _work_type(writer, name, dtype, to)
    best = writer.fresh(f"{out}_best") if argmax else out
    first: dict[int, int] = {}
    for register, into_ in enumerate(red.into):
        first.setdefault(into_, register)
    writer.line(f"{work} {best}[{n}];")
    value = _to_work(writer, name, dtype, to)
    if argmax:
        writer.line(f"kt_i32 {out}[{n}];")
        for header, t, r in _pairs(writer, [first[i] for i in range(n)]):
            position = writer.coordinate(layout, along, r)
            writer.line(f"{header}{{ {best}[{t}] = {value(read(r))}; {out}[{t}] = {position}; }}")
        rest = [r for r in range(layout.registers) if first[red.into[r]] != r]
        for register in rest:
            held = red.into[register]
            position = writer.coordinate(layout, along, str(register))
            writer.line(
                f"kt_argmax({best}[{held}], {out}[{held}], {value(read(str(register)))}, {position});"
            )
    elif (many := _by_results(red.into, n)) is not None:
        _in_parts(
            writer,
            many,
            n,
            work,
            best,
            lambda r: value(read(r)),
            lambda a, b: _combine(writer, name, work, a, b),
        )
    else:
        for header, t, r in _pairs(writer, [first[i] for i in range(n)]):
            writer.line(f"{header}{best}[{t}] = {value(read(r))};")
        rest = [r for r in range(layout.registers) if first[red.into[r]] != r]
        if rest:
            into, which = fit(tuple(red.into[r] for r in rest), "r"), fit(tuple(rest), "r")
            if into is not None and which is not None:
                writer.line(
                    f"KT_EACH(r, {len(rest)}) {best}[{into}] = {_combine(writer, name, work, f'{best}[{into}]', value(read(which)))};"
                )
            else:
                for register in rest:
                    place = f"{best}[{red.into[register]}]"
                    writer.line(
                        f"{place} = {_combine(writer, name, work, place, value(read(str(register))))};"
                    )
    for mask in _together(writer, op, red):
        if argmax:
            writer.line(
                f"KT_EACH(r, {n}) kt_argmax({best}[r], {out}[r], kt_swap({best}[r], {mask}u), kt_swap({out}[r], {mask}u));"
            )
        else:
            writer.line(
                f"KT_EACH(r, {n}) {best}[r] = {_combine(writer, name, work, f'{best}[r]', f'kt_swap({best}[r], {mask}u)')};"
            )
    if red.group_sets:
        _across_groups(writer, red, name, work, best, out if argmax else None)
    if not argmax and work != c:
        final = writer.fresh(result.name or "t")
        writer.line(f"{c} {final}[{n}];")
        writer.line(f"KT_EACH(r, {n}) {final}[r] = {cexpr.narrow(f'{out}[r]', to)};")
        out = final
    if not is_tile(result):
        writer.names[result] = f"{out}[0]"
        return
    writer.held[result] = (
        out,
        lay.with_axes(red.result, "col") if len(red.result.axes) == 1 else red.result,
    )


def _together(writer: Writer, op: Op, red: lay.Reduction) -> Sequence[int]:
    """The lanes whose parts are combined here. Those of a sum that a loop carries on may wait until the loop has ended."""
    if op not in writer.partial or red.group_sets:
        return red.lane_masks
    have, want = lay.with_axes(red.result, "col"), writer.layout_of(op.result)
    if len(red.result.axes) != 1 or have.shape != want.shape or not lay.same(have, want):
        return red.lane_masks
    writer.partial[op] = tuple(red.lane_masks)
    return ()


def together(writer: Writer, value: Value, masks: Sequence[int]) -> None:
    """Put together the lanes' parts of a sum that a loop has carried on."""
    name, layout = writer.held[value]
    for mask in masks:
        writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {name}[r] + kt_swap({name}[r], {mask}u);")


#: Parts that a lane's share of a reduction is combined in, so that they need not wait for each other.
_PARTS = 4


def _by_results(into: Sequence[int], n: int) -> list[int] | None:
    """Registers in the order (k, result): the k-th that goes into each of n results; None if there are few, or not as many for each."""
    each: list[list[int]] = [[r for r, result in enumerate(into) if result == i] for i in range(n)]
    count = len(each[0])
    if count < 2 * _PARTS or count % _PARTS or any(len(rs) != count for rs in each):
        return None
    order = [rs[k] for k in range(count) for rs in each]
    return order if fit(tuple(order), "r") is not None else None


def _in_parts(
    writer: Writer,
    order: Sequence[int],
    n: int,
    work: str,
    out: str,
    read: Callable[[str], str],
    combine: Callable[[str, str], str],
) -> None:
    """Combine registers, in the order that `_by_results` gives, into n results."""
    width, part = _PARTS * n, writer.fresh("part")
    writer.line(f"{work} {part}[{width}];")
    writer.line(f"KT_EACH(r, {width}) {part}[r] = {read(writer.table(order[:width], 'r'))};")
    mine = f"{part}[r % {width}]"
    writer.line(
        f"KT_EACH(r, {len(order) - width}) {mine} = {combine(mine, read(writer.table(order[width:], 'r')))};"
    )
    while width > 2 * n:
        width //= 2
        writer.line(f"KT_EACH(r, {width}) {part}[r] = {combine(f'{part}[r]', f'{part}[r + {width}]')};")
    writer.line(f"KT_EACH(r, {n}) {out}[r] = {combine(f'{part}[r]', f'{part}[r + {n}]')};")


def _reduce_one(writer: Writer, op: Op) -> None:
    x, result = op.operands[0], op.result

    def text(t: str) -> str:
        return "0" if op.name == "argmax" else cexpr.convert(t, dtype_of(x), dtype_of(result))

    c = cexpr.ctype(dtype_of(result))
    name = writer.fresh(result.name or "t")
    if not is_tile(result):
        writer.names[result] = name
        writer.line(f"const {c} {name} = {text(writer.scalar(x))};")
        return
    layout = writer.layout_of(result)
    read = writer.reader(x, layout)
    writer.line(f"{c} {name}[{layout.registers}];")
    writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {text(read('r'))};")
    writer.held[result] = (name, layout)


def _pairs(writer: Writer, registers: list[int]) -> list[tuple[str, str, str]]:
    """(loop header, result register, tile register) for result registers in order."""
    if len(registers) == 1:
        return [("", "0", str(registers[0]))]
    found = fit(tuple(registers), "r")
    if found is not None:
        return [(f"KT_EACH(r, {len(registers)}) ", "r", found)]
    return [("", str(t), str(r)) for t, r in enumerate(registers)]


def _work_type(writer: Writer, name: str, dtype: str, to: str) -> str:
    if BY_NAME[dtype].kind == "f":
        return "float"
    return cexpr.ctype(to if name == "sum" else dtype)


def _to_work(writer: Writer, name: str, dtype: str, to: str) -> Callable[[str], str]:
    if BY_NAME[dtype].kind == "f":
        return lambda t: cexpr.widen(t, dtype)
    return (lambda t: cexpr.convert(t, dtype, to)) if name in ("sum", "cumsum") else (lambda t: t)


def _combine(writer: Writer, name: str, work: str, a: str, b: str) -> str:
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


def _across_groups(
    writer: Writer, red: lay.Reduction, name: str, work: str, best: str, index: str | None
) -> None:
    """Groups write their parts to shared memory and each combines all of them, in one order."""
    n, lanes = red.result.registers, writer.machine.lanes
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
    slab = writer.groups * n * lanes
    at = writer.before_scratch(slab * (size + (4 if index else 0)))
    where = f"((group * {n} + r) * {lanes} + lane)"
    writer.line(f"KT_EACH(r, {n}) kt_put({at} + {where} * {size}, {best}[r]);")
    if index:
        writer.line(f"KT_EACH(r, {n}) kt_put({at} + {slab * size} + {where} * 4, {index}[r]);")
    writer.barrier()
    origin = f"(group / {step * count} * {step * count} + group % {step})" if writer.groups != count else "0"
    other = writer.fresh("other")
    writer.open(f"KT_EACH(r, {n})")
    first = f"(({origin} * {n} + r) * {lanes} + lane)"
    writer.line(f"{best}[r] = kt_get<{work}>({at} + {first} * {size});")
    if index:
        writer.line(f"{index}[r] = kt_get<kt_i32>({at} + {slab * size} + {first} * 4);")
    writer.open(f"for (int {other} = 1; {other} < {count}; ++{other})")
    there = f"((({origin} + {other} * {step}) * {n} + r) * {lanes} + lane)"
    if index:
        writer.line(
            f"kt_argmax({best}[r], {index}[r], kt_get<{work}>({at} + {there} * {size}), kt_get<kt_i32>({at} + {slab * size} + {there} * 4));"
        )
    else:
        writer.line(
            f"{best}[r] = {_combine(writer, name, work, f'{best}[r]', f'kt_get<{work}>({at} + {there} * {size})')};"
        )
    writer.close()
    writer.close()


def _lines_of(writer: Writer, x: Value, axis: int) -> tuple[Tiled, Reader]:
    """A tile of three axes as a matrix whose rows run along one of them, moved through shared memory."""
    extents = shape(x)
    axis %= len(extents)
    rest = [i for i in range(len(extents)) if i != axis]
    rows = extents[rest[0]] * extents[rest[1]]
    layout = lay.blocked((rows, extents[axis]), vector=1, lanes=writer.machine.lanes, groups=writer.groups)

    def number(r: str) -> str:
        row, col = writer.coordinate(layout, "row", r), writer.coordinate(layout, "col", r)
        index = [""] * 3
        index[rest[0]], index[rest[1]], index[axis] = (
            f"({row}) / {extents[rest[1]]}",
            f"({row}) % {extents[rest[1]]}",
            col,
        )
        return row_major(index, extents)

    return layout, writer.through_scratch(x, layout, number)


def op_cumsum(writer: Writer, op: Op) -> None:
    """Lines go to shared memory, a thread sums each in place, and the tile is read back."""
    writer.locate(op)
    x, result, axis = op.operands[0], op.result, op.attrs["axis"] % len(shape(op.result))
    dtype, to = dtype_of(x), dtype_of(result)
    if not is_tile(x):
        _reduce_one(writer, op)
        return
    extents = shape(x)
    c, size = cexpr.ctype(to), BY_NAME[to].bytes
    have = writer.held[x][1] if x in writer.held else writer.layout_of(x)
    read = writer.reader(x, have)
    total = 1
    for n in extents:
        total *= n
    inner = 1
    for n in extents[axis + 1 :]:
        inner *= n
    at = writer.before_scratch(total * size)
    keep, condition = writer.owners(have)
    if condition:
        writer.open(f"if ({condition})")
    for header, r in writer.each(keep, have.registers):
        writer.line(
            f"{header}kt_put({at} + ({writer.linear(have, r)}) * {size}, {c}({cexpr.convert(read(r), dtype, to)}));"
        )
    if condition:
        writer.close()
    writer.barrier()
    lines = total // extents[axis]
    writer.open(f"for (int each = tid; each < {lines}; each += {writer.plan.threads})")
    writer.line(f"const int from = each / {inner} * {inner * extents[axis]} + each % {inner};")
    writer.line(f"{c} total = kt_get<{c}>({at} + from * {size});")
    writer.open(f"for (int along = 1; along < {extents[axis]}; ++along)")
    where = f"{at} + (from + along * {inner}) * {size}"
    writer.line(f"total = {_combine(writer, 'sum', c, 'total', f'kt_get<{c}>({where})')};")
    writer.line(f"kt_put({where}, total);")
    writer.close()
    writer.close()
    writer.barrier()
    layout = writer.layout_of(result)
    name = writer.fresh(result.name or "t")
    writer.line(f"{c} {name}[{layout.registers}];")
    writer.line(
        f"KT_EACH(r, {layout.registers}) {name}[r] = kt_get<{c}>({at} + ({writer.linear(layout, 'r')}) * {size});"
    )
    writer.held[result] = (name, layout)


op_sum = reduce


op_max = reduce


op_min = reduce


op_argmax = reduce


op_any = reduce


op_all = reduce
