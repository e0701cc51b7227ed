"""Loads, stores, and copies to shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kittens import layouts as lay
from kittens.codegen import cexpr
from kittens.codegen.edges import Limit, divides, known_limit
from kittens.codegen.emit.products import preload
from kittens.codegen.emit.text import fit, follows, paren
from kittens.codegen.emit.writer import Reader, Writer
from kittens.codegen.known import divisor, vector
from kittens.codegen.placement import (
    axis_name,
    dtype_of,
    is_tile,
    shape,
    squeezed,
)
from kittens.codegen.plan import PURE_SCALARS, Staged
from kittens.codegen.views import Resolved, cname, resolve
from kittens.dtypes import BY_NAME
from kittens.ir import Op, TensorType, Value, base
from kittens.layouts import Tiled


def _divides(view: Resolved, axis: int) -> int:
    """Elements that are known to lie together inside or outside along an axis."""
    return divisor(view.axes[axis].known_extent)


#: Copies of one thread, beyond which they are not written out: of 16 bytes, and of less, each with an address of its own.
_MANY, _FEW = 16, 4
#: Types of a piece of so many bytes.
_PIECES = {4: "kt_u32", 8: "kt_u32x2", 16: "kt_u32x4"}


def wait_all(writer: Writer, tiles: Sequence[Staged]) -> None:
    if any(s.linear for s in tiles):
        writer.line("kt_wait_loads<0>();")
    if not all(s.linear for s in tiles):
        writer.line("kt_cp_async_wait<0>();")


def copies_ahead(
    writer: Writer, rings: Sequence[Staged], slot: str, index: Value, ahead: str, alive: str
) -> None:
    """Copy the tiles of a later pass, if there is one. Linear copies are made always, of nothing then."""
    for staged in rings:
        if staged.linear:
            copy(writer, staged, slot, {index: ahead}, alive)
    if not all(staged.linear for staged in rings):
        writer.open(f"if ({alive})")
        for staged in rings:
            if not staged.linear:
                copy(writer, staged, slot, {index: ahead})
        writer.close()
        writer.line("kt_cp_async_commit();")


def inline(writer: Writer, value: Value, env: dict[Value, str], alive: str = "") -> str:
    """A scalar as an expression in which some values stand for others: the address of a later pass.

    What it takes from memory is loaded before, if the pass is `alive`.
    """
    if value in env:
        return env[value]
    op = value.producer
    if op is not None and op.name == "load" and follows(value, set(env)):
        return _scalar_load(writer, op, env, alive)
    if (
        op is None
        or op.name in ("const", "dim")
        or op.name not in PURE_SCALARS
        or (value in writer.names and not follows(value, set(env)))
    ):
        return writer.scalar(value)
    texts = [inline(writer, x, env, alive) for x in op.operands]
    return cexpr.expression(op.name, op.attrs, [dtype_of(x) for x in op.operands], dtype_of(value), texts)


def _scalar_load(writer: Writer, op: Op, env: dict[Value, str], alive: str = "") -> str:
    """Load one number, unless its pass is not `alive`; the name that it has then."""
    result = op.result
    c = cexpr.ctype(dtype_of(result))
    view, at, limits = window(writer, op, shape(result), env, alive)
    conditions = [f"{x} > 0" for x in limits if not x.all]
    if not limits:
        conditions = [*([alive] if alive else []), *view.conditions]
    name = writer.fresh(result.name or "t")
    text = f"kt_get_global<{c}>({at})"
    if conditions:
        text = f"{' && '.join(conditions)} ? {text} : {c}({cexpr.literal(op.attrs['pad'], dtype_of(result))})"
    writer.line(f"const {c} {name} = {text};")
    return name


def window(
    writer: Writer,
    op: Op,
    extents: Sequence[int],
    env: dict[Value, str],
    alive: str = "",
    *,
    straight: bool = False,
) -> tuple[Resolved, str, list[Limit]]:
    """Where a tile lies: its view, the name of the address of its first element, and how far each axis is inside.

    Nothing is inside unless `alive`, a condition: then, and unless the view is one, the first axis is not. straight: with no
    branch on such conditions, so that the loads of several tiles follow each other.
    """
    view = resolve(op.operands[0], lambda v: inline(writer, v, env, alive))
    tensor = view.parameter.type
    assert isinstance(tensor, TensorType)
    coordinates = [inline(writer, c, env, alive) for c in op.operands[1 : 1 + len(view.axes)]]
    terms = list(view.terms)
    limits: list[Limit] = []
    conditions = [alive, *view.conditions] if alive else view.conditions
    for value, c, n, axis in zip(op.operands[1:], coordinates, extents, view.axes, strict=False):
        if c != "kt_i64(0)":
            terms.append(f"kt_i64({c}) * {n} * {axis.stride}" if axis.stride != "1" else f"kt_i64({c}) * {n}")
        known = known_limit(value, n, axis, writer.loops)
        text = f"kt_limit({c}, {n}, {axis.extent})" if known is None else str(known)
        whole = divides(n, axis) if known is None else known in (0, n)
        if conditions and not limits:
            every = " && ".join(conditions)
            text = (
                f"kt_limit_if({every}, {c}, {n}, {axis.extent})" if known is None else f"{every} ? {text} : 0"
            )
        if known is None or " " in text:
            name = writer.fresh("limit")
            writer.line(f"const int {name} = {text};")
            text = name
        limits.append(Limit(text, n, whole=whole))
    at = writer.fresh(f"{view.parameter.name}_at")
    size = tensor.dtype.bytes
    total = " + ".join(terms)
    pointer = "kt_out" if view.parameter.name in writer.stored else "kt_in"
    writer.line(
        f"const {pointer} {at} = {cname(view.parameter.name)}" + (f" + ({total}) * {size};" if total else ";")
    )
    return view, at, limits


def copy(
    writer: Writer, staged: Staged, slot: str, env: dict[Value, str], alive: str = "", held: str = ""
) -> None:
    """Copy a tile to its slot in shared memory (zeros, unless `alive`); every thread takes a share.

    With `held`, an array, only as far as there: `_put_held` does the rest.
    """
    op, shared = staged.load, staged.shared
    writer.locate(op)
    writer.open()
    view, at, limits = window(writer, op, shape(op.result), env, alive)
    rows, cols = shared.shape
    size = shared.itemsize
    axes = list(zip(view.axes, limits, strict=False))
    (row_axis, row_limit), (_, col_limit) = axes[::-1] if staged.flipped else axes
    threads = writer.plan.threads
    vector = max(1, staged.width // size)
    per_row = cols // vector
    total = rows * per_row
    buffer = "" if held else _buffer(writer, staged, slot)
    if staged.linear:
        _copy_linear(writer, staged, view, buffer, at, limits)
        writer.close()
        return
    # Copies of a few elements are many, and their addresses would take all registers: they stay a loop.
    shares = -(-total // threads)
    few = staged.width and shares <= (_MANY if staged.width == 16 else _FEW)
    writer.open(
        f"KT_EACH(share, {shares})" if few else f"KT_BY_FOURS for (int share = 0; share < {shares}; ++share)"
    )
    writer.line(
        f"const int number = share * {threads} + tid, row = number / {per_row}, col = number % {per_row}"
        + (f" * {vector};" if vector > 1 else ";")
    )
    to = f"{buffer} + {paren(lay.offset_expression(shared))}"
    guard = f"if (number < {total}) " if total % threads else ""
    if staged.width:
        bytes_inside = _bytes_inside(writer, staged, row_limit, col_limit)
        source = f"{at} + (row * {row_axis.stride} + col) * {size}"
        if not bytes_inside.isdigit():
            writer.line(f"const int bytes = {bytes_inside};")
            source, bytes_inside = f"bytes ? {source} : {cname(view.parameter.name)}", "bytes"
        if held:
            writer.line(
                f"{guard}{held}[share] = kt_fetch_b{staged.width * 8}({source}, kt_u32({bytes_inside}));"
            )
        else:
            writer.line(f"{guard}kt_cp_async_b{staged.width * 8}({to}, {source}, kt_u32({bytes_inside}));")
    else:
        c = cexpr.ctype(dtype_of(op.result))
        (_, _), (col_axis, _) = axes[::-1] if staged.flipped else axes
        where = f"{at} + (row * {row_axis.stride} + col * {col_axis.stride}) * {size}"
        inside = " && ".join([*row_limit.tests("row"), *col_limit.tests("col")])
        element = f"kt_get_global<{c}>({where})"
        writer.line(f"{guard}kt_put({to}, {f'{inside} ? {element} : {c}(0)' if inside else element});")
    writer.close()
    writer.close()


def _bytes_inside(writer: Writer, staged: Staged, row: Limit, col: Limit) -> str:
    """How many bytes of the piece at (row, col) lie inside: a number, or an expression."""
    width, size = staged.width, staged.shared.itemsize
    tests = [*row.tests("row"), *(col.tests("col") if col.whole else ())]
    if col.whole:
        return f"{' && '.join(tests)} ? {width} : 0" if tests else str(width)
    writer.line(
        f"const int left = {f'{tests[0]} ? ' if tests else ''}({col} - col) * {size}{' : 0' if tests else ''};"
    )
    return f"left < 0 ? 0 : left < {width} ? left : {width}"


def _buffer(writer: Writer, staged: Staged, slot: str) -> str:
    """The address of a slot, named."""
    buffer = writer.fresh("buffer")
    first = f"smem + {staged.offset}" if staged.offset else "smem"
    writer.line(
        f"const kt_smem {buffer} = {first}"
        + (f" + {slot} * {staged.slot_bytes};" if staged.depth > 1 else ";")
    )
    return buffer


def _hold(writer: Writer, staged: Staged, env: dict[Value, str], alive: str) -> str:
    """Load a tile into registers, on its way to shared memory; the name of the array."""
    held = writer.fresh("held")
    pieces = -(
        -staged.shared.shape[0]
        * staged.shared.shape[1]
        * staged.shared.itemsize
        // staged.width
        // writer.plan.threads
    )
    writer.line(f"{_PIECES[staged.width]} {held}[{pieces}];")
    if not staged.whole:
        copy(writer, staged, "", env, alive, held)
        return held
    writer.open()
    view, at, limits = window(writer, staged.load, shape(staged.load.result), env, alive)
    vector = staged.width // staged.shared.itemsize
    per_row = staged.shared.shape[1] // vector
    source, offset = _range(writer, staged, view, at, limits)
    writer.open(f"KT_EACH(share, {pieces})")
    writer.line(f"const kt_u32 number = kt_u32(share * {writer.plan.threads} + tid);")
    writer.line(f"const kt_u32 row = number / {per_row}, col = number % {per_row} * {vector};")
    writer.line(f"{held}[share] = kt_buffer_ld_b{staged.width * 8}({source}, {offset});")
    writer.close()
    writer.close()
    return held


def _range(writer: Writer, staged: Staged, view: Resolved, at: str, limits: list[Limit]) -> tuple[str, str]:
    """Name a buffer that ends with the last row inside; and the offset of (row, col), outside it if they are."""
    size = staged.shared.itemsize
    axes = list(zip(view.axes, limits, strict=False))
    (row_axis, row_limit), (_, col_limit) = axes[::-1] if staged.flipped else axes
    pitch, source = writer.fresh("pitch"), writer.fresh("source")
    writer.line(f"const kt_u32 {pitch} = kt_u32({row_axis.stride}) * {size}u;")
    length = f"kt_u32({row_limit}) * {pitch}"
    if not col_limit.all:
        length = f"{col_limit} > 0 ? {length} : 0u"
    writer.line(f"const kt_buffer {source} = kt_make_buffer({at}, {length});")
    offset = f"row * {pitch} + col * {size}u"
    if not col_limit.whole:  # columns outside do not follow from the buffer's end
        offset = f"col < kt_u32({col_limit}) ? {offset} : ~0u"
    return source, offset


def _put_held(writer: Writer, staged: Staged, slot: str, held: str) -> None:
    """Store what `_hold` loaded."""
    shared, threads = staged.shared, writer.plan.threads
    vector = staged.width // shared.itemsize
    per_row = shared.shape[1] // vector
    total = shared.shape[0] * per_row
    writer.open()
    buffer = _buffer(writer, staged, slot)
    writer.open(f"KT_EACH(share, {-(-total // threads)})")
    writer.line(
        f"const int number = share * {threads} + tid, row = number / {per_row}, col = number % {per_row}"
        + (f" * {vector};" if vector > 1 else ";")
    )
    guard = f"if (number < {total}) " if total % threads else ""
    writer.line(
        f"{guard}kt_st_shared_b{staged.width * 8}({buffer} + {paren(lay.offset_expression(shared))}, {held}[share]);"
    )
    writer.close()
    writer.close()


def _copy_linear(
    writer: Writer, staged: Staged, view: Resolved, buffer: str, at: str, limits: list[Limit]
) -> None:
    """Pieces land in shared memory one after the other, so each thread looks up which one belongs there."""
    shared, threads, width = staged.shared, writer.plan.threads, staged.width
    source, offset = _range(writer, staged, view, at, limits)
    writer.open(f"KT_EACH(share, {shared.size // width // threads})")
    row, col = lay.element_expressions(shared, width)
    writer.line(f"const kt_u32 number = kt_u32(share * {threads} + tid), row = {row}, col = {col};")
    writer.line(
        f"kt_copy_linear_b{width * 8}({buffer} + (share * {threads} + group * {writer.machine.lanes}) * {width}, {source}, {offset});"
    )
    writer.close()


def linear_copies(writer: Writer, staged: Sequence[Staged]) -> int:
    """Linear copies that each thread makes of some tiles."""
    return sum(s.shared.size // s.width // writer.plan.threads for s in staged if s.linear)


def op_load(writer: Writer, op: Op) -> None:
    result = op.result
    if result in writer.plan.streamed:
        writer.locate(op)
        writer.streams[result] = _stream(writer, op)
        return
    staged = writer.plan.staged.get(result)
    if staged is not None:
        if staged.loop is None or staged.depth == 1:
            writer.barrier() if writer.indent != "  " else None
            copy(writer, staged, "0", {})
            if not staged.linear:
                writer.line("kt_cp_async_commit();")
            wait_all(writer, [staged])
            writer.barrier()
            writer.scratch_busy = False
            writer.slots[result] = "0"
            preload(writer, staged)
        return
    writer.locate(op)
    if base(op.operands[0]).name in writer.stored:
        writer.barrier()
    c = cexpr.ctype(dtype_of(result))
    if not is_tile(result):
        writer.names[result] = _scalar_load(writer, op, {})
        return
    layout = writer.layout_of(result)
    name = writer.fresh(result.name or "t")
    writer.line(f"{c} {name}[{layout.registers}];")
    writer.open()
    tile_memory(writer, op, result, layout, name)
    writer.close()
    writer.held[result] = (name, layout)


def _stream(writer: Writer, op: Op) -> Callable[[str, str], str]:
    """How an element of a tile is read where it lies, by its row and column."""
    view, at, limits = window(writer, op, shape(op.result), {})
    dtype = dtype_of(op.result)
    c, size = cexpr.ctype(dtype), BY_NAME[dtype].bytes

    def element(row: str, col: str) -> str:
        where = " + ".join(f"kt_i64({x}) * {a.stride}" for x, a in zip((row, col), view.axes, strict=True))
        text = f"kt_get_global<{c}>({at} + ({where}) * {size})"
        inside = " && ".join([*limits[0].tests(row), *limits[1].tests(col)])
        return f"({inside} ? {text} : {c}(0))" if inside else text

    return element


def tile_memory(
    writer: Writer,
    op: Op,
    tile: Value,
    layout: Tiled,
    name: str,
    store: Reader | None = None,
    keep: Sequence[int] | None = None,
) -> None:
    """Load a tile into registers, or store it, in the widest pieces that alignment and layout allow."""
    view, at, limits = window(writer, op, shape(tile), {}, straight=True)
    size = BY_NAME[dtype_of(tile)].bytes
    extents = shape(tile)
    tensor = view.parameter.type
    assert isinstance(tensor, TensorType)
    along = next(
        (i for i in reversed(range(len(extents))) if view.axes[i].known_stride.value == 1 and extents[i] > 1),
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
            found = lay.runs(layout, axis, limit)
            width = vector(found)
            runs = found if width > 1 else runs
    uniform = all(x.whole for x in limits)
    if uniform and (scalar_tests := [t for x in limits for t in x.tests("")]):
        writer.line(f"const bool inside = {' && '.join(scalar_tests)};")
    firsts = [run[0] for run in runs] if keep is None or width > 1 else list(keep)
    first = fit(tuple(firsts), "vec") if len(firsts) > 1 else str(firsts[0])
    for v in ["vec"] if first is not None and len(firsts) > 1 else [str(f) for f in firsts]:
        r = first if v == "vec" and first is not None else v
        if v == "vec":
            writer.open(f"KT_EACH(vec, {len(firsts)})")
        else:
            writer.open()
        index = writer.indices(layout, extents, r)
        where = (
            " + ".join(
                f"({x}) * {a.stride}" if a.stride != "1" else f"({x})"
                for x, a in zip(index, view.axes, strict=False)
                if x != "0"
            )
            or "0"
        )
        tests = [t for x, limit in zip(index, limits, strict=False) for t in limit.tests(x)]
        if not uniform:
            writer.line(f"const bool inside = {' && '.join(tests)};")
        inside = "inside" if tests else "true"
        writer.line(f"const {'kt_out' if store else 'kt_in'} ptr = {at} + kt_i64({where}) * {size};")
        if store is None:
            _load_vector(writer, op, tile, name, r, width, inside)
        else:
            _store_vector(writer, tile, store, r, width, inside)
        writer.close()


def _load_vector(writer: Writer, op: Op, tile: Value, name: str, r: str, width: int, inside: str) -> None:
    dtype = dtype_of(tile)
    c = cexpr.ctype(dtype)
    pad = cexpr.literal(op.attrs["pad"], dtype)
    pad = pad if pad.startswith(f"{c}(") else f"{c}({pad})"
    if width == 1:
        element = f"kt_get_global<{c}>(ptr)"
        writer.line(f"{name}[{r}] = {f'{inside} ? {element} : {pad}' if inside != 'true' else element};")
    else:
        macro = "KT_LOAD_VECTOR" if base(op.operands[0]).name in writer.stored else "KT_FETCH_VECTOR"
        writer.line(f"{macro}({c}, {width}, {name}, {r}, {inside}, ptr, {pad});")


def _store_vector(writer: Writer, tile: Value, read: Reader, r: str, width: int, inside: str) -> None:
    c = cexpr.ctype(dtype_of(tile))
    if width == 1:
        guard = "" if inside == "true" else f"if ({inside}) "
        writer.line(f"{guard}kt_put_global(ptr, {c}({read(r)}));")
        return
    writer.line(f"{c} piece[{width}];")
    writer.line(f"KT_EACH(el, {width}) piece[el] = {read(f'{paren(r)} + el')};")
    writer.line(f"KT_STORE_VECTOR({c}, {width}, piece, {inside}, ptr);")


def op_store(writer: Writer, op: Op) -> None:
    writer.locate(op)
    counted = turn(writer, op) if op.attrs.get("ordered") else ""
    if counted:
        writer.line(f"if (tid == 0) kt_turn_wait({counted});")
    if counted or op in writer.meetings:
        writer.barrier()
    if is_tile(op.operands[-1]):
        _store_tile(writer, op)
    else:
        _store_scalar(writer, op)
    if counted:
        writer.line("kt_added();")
        writer.barrier()
        writer.line(f"if (tid == 0) kt_turn_pass({counted});")


def _store_scalar(writer: Writer, op: Op) -> None:
    number = op.operands[-1]
    view, at, limits = window(writer, op, shape(number), {})
    conditions = [
        "tid == 0",
        *(f"{x} > 0" for x in limits if not x.all),
        *(view.conditions if not limits else []),
    ]
    call = "kt_add_global" if op.name == "store_add" else "kt_put_global"
    value = f"{cexpr.ctype(dtype_of(number))}({writer.scalar(number)})"
    writer.line(f"if ({' && '.join(conditions)}) {call}({at}, {value});")


def _store_tile(writer: Writer, op: Op) -> None:
    tile = op.operands[-1]
    layout = writer.held[tile][1] if tile in writer.held else writer.layout_of(tile)
    read = writer.reader(tile, layout)
    keep, condition = writer.owners(layout)
    writer.open(f"if ({condition})" if condition else "")
    if op.name == "store_add":
        view, at, limits = window(writer, op, shape(tile), {})
        size = BY_NAME[dtype_of(tile)].bytes
        for header, r in writer.each(keep, layout.registers):
            index = writer.indices(layout, shape(tile), r)
            where = " + ".join(f"({x}) * {a.stride}" for x, a in zip(index, view.axes, strict=False))
            inside = " && ".join(t for x, limit in zip(index, limits, strict=False) for t in limit.tests(x))
            guard = f"if ({inside}) " if inside else ""
            writer.line(f"{header}{guard}kt_add_global({at} + kt_i64({where}) * {size}, {read(r)});")
    else:
        tile_memory(writer, op, tile, layout, "", read, keep)
    writer.close()


def turn(writer: Writer, op: Op) -> str:
    """The address of the counter of an ordered addition, and its turn; a counter outside its tensor has no turns."""
    value, number = op.operands[-3:-1]
    view = resolve(value, lambda v: inline(writer, v, {}))
    name = writer.fresh("turn_of")
    at = " + ".join(
        [cname(view.parameter.name), *([f"({' + '.join(view.terms)}) * 4"] if view.terms else [])]
    )
    inside = " && ".join(view.conditions)
    writer.line(f"const kt_out {name} = {f'{inside} ? {at} : kt_out(0)' if inside else at};")
    return f"{name}, kt_i64({writer.scalar(number)})"


op_store_add = op_store
