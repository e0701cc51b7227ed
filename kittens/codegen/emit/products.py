"""Products of matrices: operands from registers or shared memory, by instruction or element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kittens import layouts as lay
from kittens.codegen import cexpr
from kittens.codegen.emit.text import added, fit, packed_words, paren, plus, times
from kittens.codegen.emit.writer import Writer
from kittens.codegen.machine import Move
from kittens.codegen.placement import (
    Matrix,
    dtype_of,
    is_tile,
    shape,
)
from kittens.codegen.plan import Staged, source_of
from kittens.codegen.pressure import registers
from kittens.codegen.reads import collective, tile
from kittens.dtypes import BY_NAME
from kittens.errors import InternalError
from kittens.ir import Op, Value
from kittens.layouts import Tiled


def _contiguous(shared: lay.Shared) -> int:
    """Neighbouring columns that lie together, and aligned, in every row: up to 16 bytes, which no swizzle splits."""
    row_bytes = shared.shape[1] * shared.itemsize
    return max(1, min(16, row_bytes & -row_bytes) // shared.itemsize)


def op_mma(writer: Writer, op: Op) -> None:
    writer.locate(op)
    matrix = writer.plan.placement.products[op]
    result = op.result
    layout = matrix.layout
    c = cexpr.ctype(dtype_of(result))
    accumulator = op.operands[2 if op.name == "mma" else 4] if len(op.operands) in (3, 5) else None
    read = writer.reader(accumulator, layout) if accumulator is not None else None
    operands: dict[str, Any] = {}
    if matrix.op is not None:
        operands = {side: _operand(writer, op, matrix, side, i) for i, side in enumerate("ab")}
    name = writer.fresh(result.name or "product")
    writer.line(f"{c} {name}[{layout.registers}];")
    zero = "0.0f" if c == "float" else "0"
    writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = {read('r') if read else zero};")
    if matrix.op is None:
        _product_by_elements(writer, op, layout, name)
    elif c == "kt_i32" and matrix.op.product.accumulator == "float32":
        sums = writer.fresh("sums")
        writer.line(f"float {sums}[{layout.registers}];")
        writer.line(f"KT_EACH(r, {layout.registers}) {sums}[r] = 0.0f;")
        _product_by_instruction(writer, op, matrix, sums, operands)
        writer.line(
            f"KT_EACH(r, {layout.registers}) {name}[r] = kt_i32(kt_u32({name}[r]) + kt_u32(kt_i32({sums}[r])));"
        )
    else:
        _product_by_instruction(writer, op, matrix, name, operands)
    writer.held[result] = (name, layout)


def _operand(writer: Writer, op: Op, matrix: Matrix, side: str, position: int) -> tuple[str, Any]:
    """How a product reads one operand: ("words", array), or ("shared", (tile, address, whether it is turned)).

    The tile is one in shared memory, or a function that gives the text of an element by its row and column.
    """
    layout = matrix.a if side == "a" else matrix.b
    assert layout is not None
    value = op.operands[position]
    if (op, side) in writer.preloaded:
        return "words", writer.preloaded[op, side]
    assert matrix.op is not None
    if matrix.op.through:
        return "words", _converted(writer, value, layout, side, matrix.op.through)
    root, flipped = source_of(value)
    if root in writer.plan.staged:
        staged = writer.plan.staged[root]
        return "shared", (staged.shared, _slot_address(writer, staged), flipped != staged.flipped)
    if root in writer.streams:
        return "shared", (writer.streams[root], "", flipped)
    bits = BY_NAME[dtype_of(value)].bits
    oriented = lay.transpose(layout) if flipped else layout
    registers = lay.renaming(writer.held[root][1], oriented) if root in writer.held else None
    if registers is not None:
        return "words", _pack(writer, root, registers, bits)
    # Through shared memory, laid out as a staged tile would be.
    rows, cols = oriented.shape
    size = bits // 8
    shared, _ = tile(writer.machine, (rows, cols), size, [(oriented, matrix.tiles[2])])
    have = writer.held[root][1] if root in writer.held else writer.layout_of(root)
    if root not in writer.held and root not in writer.plan.placement.implicit:
        writer.hold(root, have)
    at = writer.before_scratch(shared.size)
    writer.put_all(
        root,
        lambda r: (
            f"{at} + {paren(lay.offset_expression(shared, paren(writer.coordinate(have, 'row', r)), paren(writer.coordinate(have, 'col', r))))}"
        ),
        have,
    )
    writer.barrier()
    words = writer.fresh(f"{side}_words")
    per_word = 32 // bits
    writer.line(f"{_word_type(writer, bits)} {words}[{layout.registers // per_word}];")
    _load_all(writer, shared, at, layout, flipped, bits, words, matrix.tiles[2])
    return "words", words


def _slot_address(writer: Writer, staged: Staged) -> str:
    """Where the tile that this pass works on lies."""
    address = f"smem + {staged.offset}" if staged.offset else "smem"
    return (
        f"{address} + {writer.slots[staged.load.result]} * {staged.slot_bytes}"
        if staged.depth > 1
        else address
    )


def _converted(writer: Writer, value: Value, layout: Tiled, side: str, to: str) -> str:
    """An operand as words of pairs of another type, which holds every value of its own."""
    read = writer.reader(value, layout)
    dtype, n = dtype_of(value), layout.registers // 2
    low, high = (
        cexpr.widen(t, dtype) if BY_NAME[dtype].kind == "f" else f"float({t})"
        for t in (read("word * 2"), read("word * 2 + 1"))
    )
    words = writer.fresh(f"{side}_words")
    writer.line(f"kt_u32 {words}[{n}];")
    writer.line(f"KT_EACH(word, {n}) {words}[word] = kt_f32x2_to_{cexpr.SHORT[to]}x2({low}, {high});")
    return words


def _word_type(writer: Writer, bits: int) -> str:
    return "float" if bits == 32 else "kt_u32"


def _pack(writer: Writer, value: Value, registers: Sequence[int], bits: int) -> str:
    """Registers of a held tile as the 32-bit words of an operand."""
    words = writer.fresh(f"{value.name or 't'}_words")
    per = 32 // bits
    n = len(registers) // per
    writer.line(f"{_word_type(writer, bits)} {words}[{n}];")
    name = writer.held[value][0]
    source, convert = None, ""
    producer = value.producer
    dtype = dtype_of(value)
    if (
        per == 2
        and producer is not None
        and producer.name == "cast"
        and dtype_of(producer.operands[0]) == "float32"
        and producer.operands[0] in writer.held
    ):
        if writer.held[producer.operands[0]][1] == writer.held[value][1]:
            source, convert = writer.held[producer.operands[0]][0], f"kt_f32x2_to_{cexpr.SHORT[dtype]}x2"
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
        writer.line(f"{header}{words}[{w}] = {text};")
    return words


def preload(writer: Writer, staged: Staged) -> None:
    """Read operands that were loaded once, and are used in loops, into registers before the loops."""
    if staged.loop is not None:
        return

    def find(value: Value, flipped: bool) -> None:
        for use in writer.uses.get(value, ()):
            if use.name == "transpose":
                find(use.result, not flipped)
            elif use.name == "mma" and writer.plan.placement.products[use].op is not None:
                for position, side in enumerate("ab"):
                    if use.operands[position] is value:
                        _preload_one(writer, staged, use, side, flipped)

    find(staged.load.result, False)


def _preload_one(writer: Writer, staged: Staged, op: Op, side: str, flipped: bool) -> None:
    matrix = writer.plan.placement.products[op]
    layout = matrix.a if side == "a" else matrix.b
    assert layout is not None
    bits = BY_NAME[dtype_of(staged.load.result)].bits
    count = layout.registers * bits // 32
    if writer.preloaded_words + count > writer.plan.placement.spare or (op, side) in writer.preloaded:
        return
    writer.preloaded_words += count
    words = writer.fresh(f"{staged.load.result.name or side}_words")
    writer.line(f"{_word_type(writer, bits)} {words}[{count}];")
    address = f"smem + {staged.offset}" if staged.offset else "smem"
    _load_all(writer, staged.shared, address, layout, flipped != staged.flipped, bits, words, matrix.tiles[2])
    writer.preloaded[op, side] = words


def load_operands(writer: Writer, op: Op, tile: Value) -> list[tuple[str, int, int]]:
    """Read what a product takes of a staged tile into words, where it finds them: (array, words, words of a fragment)."""
    matrix, out = writer.plan.placement.products[op], []
    for position, (side, layout) in enumerate((("a", matrix.a), ("b", matrix.b))):
        root, flipped = source_of(op.operands[position])
        if root is not tile:
            continue
        assert layout is not None
        staged, bits = writer.plan.staged[root], BY_NAME[dtype_of(root)].bits
        count, steps = layout.registers * bits // 32, matrix.tiles[2]
        words = writer.preloaded[op, side] = writer.fresh(f"{side}_words")
        writer.line(f"{_word_type(writer, bits)} {words}[{count}];")
        at = _slot_address(writer, staged)
        _load_all(writer, staged.shared, at, layout, flipped != staged.flipped, bits, words, steps)
        out.append((words, count, count // (steps * matrix.tiles[position])))
    return out


def _load_fragments(
    writer: Writer,
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
    source, size, call = _fragment_read(writer, shared, oriented, bits, per_step)
    parts = range(per_word) if call is None else range(1)
    scale = source.registers // oriented.registers  # lanes may point at more than they get
    c = {8: "kt_u8", 16: "kt_u16", 32: "float"}[bits]

    def statement(first: str, at: Callable[[str, int], str]) -> str:
        if callable(shared):
            texts = [shared(at("row", i), at("col", i)) for i in parts]
        else:
            where = [
                f"{address} + {paren(lay.offset_expression(shared, at('row', i), at('col', i)))}"
                for i in parts
            ]
            if call is not None:
                return call(words, first, where[0])
            texts = [f"kt_get<{c}>({x})" for x in where]
        return f"{words}[{first}] = {texts[0] if bits == 32 else packed_words(texts, bits)};"

    def one(k: int) -> list[str]:
        out = []
        for r in range(k * per_step, (k + 1) * per_step, size):
            first = str((r if whole else r - k * per_step) // per_word)
            out.append(
                statement(first, lambda axis, i, r=r: writer.coordinate_text(source, axis, r * scale + i))  # type: ignore[misc]
            )
        return out

    def loop() -> list[str]:
        many = per_step // size
        first = (
            " + ".join(
                x
                for x in (
                    times("kk", per_step // per_word) if whole and steps > 1 else "",
                    times("fi", size // per_word) if many > 1 else "",
                )
                if x
            )
            or "0"
        )
        text = statement(
            first, lambda axis, i: _stepped(writer, source, axis, i, steps, per_step * scale, size * scale)
        )
        return [(f"KT_EACH(fi, {many}) " if many > 1 else "") + text]

    return lambda k: loop() if k is None else one(k)


def _move_call(move: Move, count: int) -> Callable[[str, str, str], str]:
    """The statement of a collective load that fills `count` words from a first one on."""

    def call(words: str, first: str, at: str) -> str:
        return move.call([f"{words}[{plus(first, i)}]" for i in range(count)], at)

    return call


def _fragment_read(
    writer: Writer, shared: Any, oriented: Tiled, bits: int, per_step: int
) -> tuple[Tiled, int, Callable[[str, str, str], str] | None]:
    """The widest way to fill a layout: where lanes point, registers filled at once, and the statement for (words, first
    word, address); None if elements are read one by one.
    """
    per_word = 32 // bits
    if callable(shared):
        return oriented, per_word, None
    for move in writer.machine.moves:
        found = collective(oriented, move.pattern, move.bits, move.elements, bits, shared.shape[1], per_step)
        if found is not None:
            pointing, filled = found
            return (
                pointing,
                filled,
                _move_call(move, filled // per_word),
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


def _stepped(
    writer: Writer, layout: Tiled, axis: str, part: int, steps: int, per_step: int, size: int
) -> str:
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
    first = writer.coords(layout)[axis]
    return " + ".join(x for x in (first, *texts) if x not in (None, "0")) or "0"


def _load_all(
    writer: Writer, shared: Any, address: str, layout: Tiled, flipped: bool, bits: int, words: str, steps: int
) -> None:
    """Read the fragments of every step into words."""
    reads = _load_fragments(writer, shared, address, layout, flipped, bits, words, steps, whole=True)
    try:
        for text in reads(None):
            writer.line((f"KT_EACH(kk, {steps}) " if steps > 1 else "") + text)
    except ValueError:
        for k in range(steps):
            for text in reads(k):
                writer.line(text)


def _product_by_instruction(
    writer: Writer, op: Op, matrix: Matrix, name: str, operands: dict[str, tuple[str, Any]]
) -> None:
    assert matrix.op is not None and matrix.a is not None and matrix.b is not None
    mt, nt, kt = matrix.tiles
    bits = matrix.op.bits
    per = 32 // bits
    fa = matrix.a.registers // (mt * kt) // per
    fb = matrix.b.registers // (nt * kt) // per
    fd = matrix.layout.registers // (mt * nt)
    local = {}
    writer.open()
    for side, count in (("a", fa * mt), ("b", fb * nt)):
        if operands[side][0] == "shared":
            local[side] = writer.fresh(f"{side}_words")
            writer.line(f"{_word_type(writer, bits)} {local[side]}[{count}];")
    reads = {}
    for side, layout in (("a", matrix.a), ("b", matrix.b)):
        kind, what = operands[side]
        if kind == "shared":
            shared, address, flipped = what
            reads[side] = _load_fragments(
                writer, shared, address, layout, flipped, bits, local[side], kt, whole=False
            )
    header = (f"KT_EACH(mi, {mt}) " if mt > 1 else "") + (f"KT_EACH(ni, {nt}) " if nt > 1 else "")
    m, n = "mi" if mt > 1 else "", "ni" if nt > 1 else ""
    tile = f"({m} * {nt} + {n})" if m and n else (f"{m} * {nt}" if m and nt > 1 else m) or n
    d = [f"{name}[{added(times(tile, fd) if tile else '', e)}]" for e in range(fd)]

    def at(side: str, k: int | None, step: str, per_tile: int, tiles: int) -> list[str]:
        array, origin = (
            (local[side], "")
            if side in local
            else (
                operands[side][1],
                times("kk", per_tile * tiles) if k is None else str(k * per_tile * tiles),
            )
        )
        return [
            f"{array}[{added(origin, times(step, per_tile) if step else '', w)}]" for w in range(per_tile)
        ]

    instruction = matrix.op

    def step(k: int | None) -> list[str]:
        if instruction.tiles is not None:
            firsts = (f"&{at(side, k, '', per, n)[0]}" for side, per, n in (("a", fa, mt), ("b", fb, nt)))
            statement = instruction.tiles((mt, nt), name, *firsts)
        else:
            a, b = at("a", k, m, fa, mt), at("b", k, n, fb, nt)
            statement = header + instruction.call(d, *((b, a) if writer.machine.transposed else (a, b)))
        return [*(text for side in reads for text in reads[side](k)), statement]

    try:
        texts = step(None) if kt > 1 else step(0)
    except ValueError:
        texts = [text for k in range(kt) for text in step(k)]
        kt = 1
    if kt > 1:
        # Reads of single elements, unrolled and hoisted, would take all registers.
        by_elements = len(local) == 2 and any("kt_get<" in t or "kt_get_global<" in t for t in texts)
        writer.open(f"KT_ROLLED for (int kk = 0; kk < {kt}; ++kk)" if by_elements else f"KT_EACH(kk, {kt})")
    for text in texts:
        writer.line(text)
    if kt > 1:
        writer.close()
    writer.close()


def _product_by_elements(writer: Writer, op: Op, layout: Tiled, name: str) -> None:
    """Both operands in shared memory; a lane sums the products of each of its elements, fused, along K."""
    scaled = op.name == "mma_scaled"
    a, b = op.operands[0], op.operands[2 if scaled else 1]
    sources = [a, b] + ([op.operands[1], op.operands[3]] if scaled else [])
    (rows, inner), cols = shape(a), shape(b)[1]
    written = [x for x in sources if source_of(x)[0] not in writer.plan.staged]
    for x in written:
        if is_tile(x) and x not in writer.held and x not in writer.plan.placement.implicit:
            writer.hold(x, writer.layout_of(x))
    offsets, total = {}, 0
    for x in written:
        offsets[x] = total
        total += -(-math.prod(shape(x)) * BY_NAME[dtype_of(x)].bytes // 16) * 16
    at = writer.before_scratch(total) if written else ""
    for x in written:
        size, offset = BY_NAME[dtype_of(x)].bytes, offsets[x]
        if is_tile(x):
            have = writer.held[x][1] if x in writer.held else writer.layout_of(x)
            writer.put_all(
                x,
                lambda r, have=have, size=size, offset=offset: (  # type: ignore[misc]
                    f"{at} + {offset} + ({writer.linear(have, r)}) * {size}"
                ),
                have,
            )
        else:
            writer.line(
                f"if (tid == 0) kt_put({at} + {offset}, {cexpr.ctype(dtype_of(x))}({writer.scalar(x)}));"
            )
    if written:
        writer.barrier()

    def address(x: Value, row: str, col: str) -> str:
        """Of an element of an operand in shared memory."""
        root, flipped = source_of(x)
        if x in offsets:
            return f"{at} + {offsets[x]} + (({row}) * {shape(x)[1]} + {paren(col)}) * {BY_NAME[dtype_of(x)].bytes}"
        staged = writer.plan.staged[root]
        if flipped != staged.flipped:
            row, col = col, row
        return f"{_slot_address(writer, staged)} + {paren(lay.offset_expression(staged.shared, row, col))}"

    # A lane's elements are few rows by few columns: each row's and column's operand is read once a step.
    da, db = dtype_of(a), dtype_of(b)
    ca, cb = cexpr.ctype(da), cexpr.ctype(db)
    (row, m, of_row), (col, n, of_col) = (
        _distinct(writer, layout, rows, "row"),
        _distinct(writer, layout, cols, "col"),
    )
    if da == db == "float32" and not scaled:

        def along(x: Value, lies_along_k: bool) -> tuple[bool, int]:
            """Whether an operand lies along K in shared memory, and how many neighbours are read at once there."""
            root, flipped = source_of(x)
            if x in offsets:
                width = shape(x)[1]
                return lies_along_k, min(4, width & -width)
            staged = writer.plan.staged[root]
            return lies_along_k != (flipped != staged.flipped), _contiguous(staged.shared)

        left_side = _Side(lambda r, k: address(a, r, k), row, m, of_row, *along(a, True), "row", rows)
        right_side = _Side(lambda c, k: address(b, k, c), col, n, of_col, *along(b, False), "col", cols)
        _fused(writer, layout, name, inner, (left_side, right_side))
        return
    reads = [
        ("x", m, f"kt_get<{ca}>({address(a, row, 'kk')})", da),
        ("y", n, f"kt_get<{cb}>({address(b, 'kk', col)})", db),
    ]
    if scaled:
        reads.append(("sx", m, f"kt_get<kt_u8>({address(op.operands[1], row, 'kk / 32')})", "uint8"))
        reads.append(("sy", n, f"kt_get<kt_u8>({address(op.operands[3], 'kk / 32', col)})", "uint8"))
    writer.open(f"for (int kk = 0; kk < {inner}; ++kk)")
    arrays = {}
    for stem, count, text, dtype in reads:
        arrays[stem] = writer.fresh(stem)
        floats = BY_NAME[dtype].kind == "f"
        writer.line(f"{'float' if floats else cexpr.ctype(dtype)} {arrays[stem]}[{count}];")
        writer.line(
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
    writer.line(f"KT_EACH(r, {layout.registers}) {text};")
    writer.close()


@dataclass(frozen=True)
class _Side:
    """An operand of float32 as a lane reads it: the address of an element by its place across K and along it; the place of number
    fi of `count` different ones, and which one register r takes (`_distinct`); whether it lies along K, and how many neighbours
    are read at once; its axis of the result and that one's extent.
    """

    address: Callable[[str, str], str]
    place: str
    count: int
    of: str
    along: bool
    width: int
    axis: str
    extent: int


#: Registers that both sides' neighbours along K may take, and of a lane's registers the part that a kernel's tiles may take
#: where there are any: the compiler needs as many again for addresses and what it reads early.
_AHEAD, _ROOM = 32, 0.55


def _fused(writer: Writer, layout: Tiled, name: str, inner: int, sides: tuple[_Side, _Side]) -> None:
    """A lane's sums of products along K, fused; neighbours in shared memory are read together."""
    steps = 1
    for s in (4, 2) if registers(writer.plan) <= _ROOM * writer.machine.registers else ():
        ahead = [x.count * s for x in sides if x.along and x.width >= s]
        if ahead and sum(ahead) <= _AHEAD and inner % s == 0:
            steps = s
            break
    arrays, whole, single = [], [], []
    for stem, side in zip("xy", sides, strict=True):
        array = writer.fresh(stem)
        several = steps > 1 and side.along and side.width >= steps
        width = 1 if side.along else _neighbours(layout, side)
        many = f"KT_EACH(fi, {side.count // width}) " if side.count // width > 1 else ""
        if several:
            at = side.address(side.place, "kk")
            first = f"fi * {steps}" if many else "0"
            whole.append(
                (array, side.count * steps, f"{many}KT_LOAD_FLOATS({steps}, {array}, {first}, {at});")
            )
            arrays.append(f"{array}[{paren(side.of)} * {steps} + ki]")
            continue
        k = "kk + ki" if steps > 1 else "kk"
        arrays.append(f"{array}[{side.of}]")
        if width == 1:
            text = f"{many}{array}[{'fi' if many else '0'}] = kt_get<float>({side.address(side.place, k)});"
        else:
            place = _distinct(writer, layout, side.extent, side.axis, width)[0]
            first = f"fi * {width}" if many else "0"
            text = f"{many}KT_LOAD_FLOATS({width}, {array}, {first}, {side.address(place, k)});"
        single.append((array, side.count, text))

    def read(each: list[tuple[str, int, str]]) -> None:
        for array, count, text in each:
            writer.line(f"float {array}[{count}];")
            writer.line(text)

    # Unrolled, what later steps read in vectors would be hoisted, and take all registers.
    rolled = "KT_ROLLED " if any("KT_LOAD_FLOATS" in text for _, _, text in (*whole, *single)) else ""
    writer.open(f"{rolled}for (int kk = 0; kk < {inner}; {'++kk' if steps == 1 else f'kk += {steps}'})")
    read(whole)
    if steps > 1:
        writer.open(f"KT_EACH(ki, {steps})")
    read(single)
    writer.line(f"KT_EACH(r, {layout.registers}) {name}[r] = kt_fma({arrays[0]}, {arrays[1]}, {name}[r]);")
    if steps > 1:
        writer.close()
    writer.close()


def _neighbours(layout: Tiled, side: _Side) -> int:
    """How many of an operand's places across K lie together, and are read at once."""
    axis = side.axis if len(layout.axes) == 2 else "col"
    if side.extent == 1 or side.width == 1:
        return 1
    runs = lay.runs(layout, axis, side.width)
    offsets = lay.register_offsets(layout, axis)
    different = sorted(set(offsets or ()))
    width = len(runs[0])
    groups = [different[i : i + width] for i in range(0, len(different), width)]
    return width if all(g == list(range(g[0], g[0] + width)) for g in groups) else 1


def _distinct(writer: Writer, layout: Tiled, extent: int, axis: str, width: int = 1) -> tuple[str, int, str]:
    """The different coordinates that a lane's registers have along an axis of a product: the text of number fi (of group fi of
    `width`), how many there are, and the text of which one register r has.
    """
    axis = axis if len(layout.axes) == 2 else "col"
    if extent == 1:
        return "0", 1, "0"
    offsets = lay.register_offsets(layout, axis)
    if offsets is None:
        raise InternalError(f"registers of {layout} do not add to a coordinate")
    different = sorted(set(offsets))
    position = added(
        writer.coords(layout)[axis],
        writer.table(different[::width], "fi" if len(different) > width else "0"),
    )
    return position, len(different), writer.table([different.index(o) for o in offsets], "r")


op_mma_scaled = op_mma
