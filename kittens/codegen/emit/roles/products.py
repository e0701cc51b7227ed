"""Products by the engine: started on tiles in slots and on words in registers."""

from __future__ import annotations

from kittens import layouts as lay
from kittens.codegen.emit.products import _pack
from kittens.codegen.emit.roles.compute import Compute, Flight
from kittens.codegen.emit.roles.rings import bar, phase_of, ring_of, slot_of
from kittens.codegen.emit.writer import Writer
from kittens.codegen.engine import across, as_it_lies
from kittens.codegen.machine import Instruction
from kittens.codegen.placement import dtype_of, sides, source_of
from kittens.codegen.plan import Ring, Staged
from kittens.dtypes import BY_NAME
from kittens.errors import InternalError
from kittens.ir import Op, Value


def product(writer: Writer, op: Op) -> None:
    """A product outside loops, or in one that carries nothing of it under way."""
    assert isinstance(writer, Compute)
    layout = writer.plan.placement.products[op].layout
    sums = writer.fresh(op.result.name or "product")
    writer.line(f"float {sums}[{layout.registers}];")
    if len(op.operands) == 3:
        read = writer.reader(op.operands[2], layout)
        writer.line(f"KT_EACH(r, {layout.registers}) {sums}[r] = {read('r')};")
    start(writer, op, sums, {op.result})
    writer.held[op.result] = (sums, layout)


def start(
    writer: Compute, op: Op, sums: str, values: set[Value], words: str = "", *, again: bool = False
) -> None:
    """Start a product. `again`: the one before of the same sums may still be under way. `words`: its left operand, if packed."""
    writer.locate(op)
    matrix, engine = writer.plan.placement.products[op], writer.engine
    size = BY_NAME[dtype_of(op.operands[0])].bytes
    rings: list[Ring] = []
    for operand in op.operands[:2]:
        root, _ = source_of(operand)
        if root in writer.plan.staged:
            ring = ring_of(writer, root)
            if ring.loop is None or ring in rings:
                continue
            rings.append(ring)
            if ring not in writer.pending and not (ring in writer.lagging and op in writer.late):
                writer.line(f"kt_bar_wait({bar(ring, 'full')}, {phase_of(ring)});")
                writer.pending[ring] = set(ring.users)
    if writer.turn_due:
        writer.await_turn()
    both = sides(op, swapped=matrix.swapped)
    if both[0][0] not in writer.tiles and not words:
        words = left_words(writer, op)
    lies = [root in writer.tiles and across(writer.tiles[root], flipped, i)
            for i, (root, flipped) in enumerate(both)]  # fmt: skip
    mt, nt, steps = matrix.tiles
    n = nt * 8
    columns = min(n, engine.most)
    assert matrix.team is not None
    rows, depth = lay.Tiled(matrix.team.d).shape[0], lay.Tiled(matrix.team.a).shape[1]
    dtypes = dtype_of(both[0][0]), dtype_of(both[1][0])
    instruction = Instruction(dtypes, columns, depth, bool(words), (lies[0], lies[1]))
    writer.instructions[instruction] = None
    writer.sizes[matrix.layout.registers] = None
    writer.open()
    lag = op in writer.late
    b = _described(writer, op, 1, lies[1], "b_at", lag)
    a = "" if words else _described(writer, op, 0, lies[0], "a_at", lag)
    if not again:
        writer.line(f"kt_engine_pin({sums});")
    writer.line("kt_engine_fence();")
    for i in range(mt):
        for j in range(n // columns):
            first = (i * nt + j * (columns // 8)) * 4
            right = _stepped(writer, op, 1, lies[1], j * columns, steps, depth * size)
            if words:
                per = depth * size // 8  # 32-bit words of one step
                text = ", ".join(f"{words}[{_word(i, steps, per, w)}]" for w in range(per))
            else:
                text = a + _stepped(writer, op, 0, lies[0], i * rows, steps, depth * size)
            add = "true" if len(op.operands) == 3 else "kk > 0" if steps > 1 else "false"
            each = f"KT_EACH(kk, {steps}) " if steps > 1 else ""
            writer.line(each + engine.call(instruction, sums, first, text, b + right, add))
    writer.line("kt_engine_commit();")
    writer.close()
    flight = Flight(op, sums, values)
    writer.flights.append(flight)
    for ring in rings:
        if ring in writer.lagging:
            flight.slots += [ring] if lag else []
            continue
        writer.pending[ring].discard(op)
        if not writer.pending[ring]:
            del writer.pending[ring]
            flight.slots.append(ring)


def _word(row: int, steps: int, per: int, w: int) -> str:
    """The word of step kk of a row of fragments."""
    first = row * steps * per + w
    return f"kk * {per} + {first}" if steps > 1 and first else f"kk * {per}" if steps > 1 else str(first)


def left_words(writer: Compute, op: Op) -> str:
    """A computed left operand as words, fragment after fragment along K."""
    matrix = writer.plan.placement.products[op]
    assert matrix.a is not None
    value, flipped = sides(op, swapped=matrix.swapped)[0]
    if value not in writer.held:
        writer.hold(value, writer.layout_of(value))
    registers = as_it_lies(writer.held[value][1], flipped, matrix)
    if registers is None:
        raise InternalError(f"{value.name} does not lie as the engine takes it")
    return _pack(
        writer, value, _by_rows(registers, matrix.tiles[0], matrix.tiles[2]), BY_NAME[dtype_of(value)].bits
    )


def _by_rows(registers: tuple[int, ...], mt: int, kt: int) -> list[int]:
    """Registers of a left operand, K outermost, with rows of fragments outermost instead."""
    each = len(registers) // (mt * kt)
    return [registers[(k * mt + m) * each + e] for m in range(mt) for k in range(kt) for e in range(each)]


def _described(writer: Compute, op: Op, position: int, lies: bool, name: str, lag: bool = False) -> str:
    """Name the descriptor of an operand in the slot of this pass, or of the one before."""
    matrix = writer.plan.placement.products[op]
    root, _ = sides(op, swapped=matrix.swapped)[position]
    staged, ring = writer.tiles[root], ring_of(writer, root)
    key = (root, position, lies)
    if key not in writer.descriptors:
        base = writer.descriptors[key] = writer.fresh(f"{root.name or 'tile'}_{'ab'[position]}")
        at = f"smem + {staged.offset}" if staged.offset else "smem"
        assert matrix.team is not None
        if matrix.split[position] > 1:  # a team's own rows, or columns
            mine = (matrix.tiles[0] * lay.Tiled(matrix.team.d).shape[0], matrix.tiles[1] * 8)[position]
            at += f" + (team - 1) * {_along(staged, lies, mine)}"
        leading = staged.shared.shape[0] * staged.width if lies else 16
        writer.prelude.append(
            f"  const kt_desc {base} = kt_matrix_desc({at}, {leading}, {8 * staged.width}, {staged.width});"
        )
    base = writer.descriptors[key]
    if ring.depth == 1:
        return base
    name = writer.fresh(name)
    slot = writer.kept[ring] if lag and ring in writer.lagging else slot_of(ring)
    writer.line(f"const kt_desc {name} = {base} + kt_desc({slot}) * {ring.slot_bytes // 16};")
    return name


def _along(staged: Staged, lies: bool, elements: int) -> int:
    """Bytes from an operand's first row (of M or N) to a later one."""
    size = staged.shared.itemsize
    return (
        elements * size // staged.width * staged.shared.shape[0] * staged.width
        if lies
        else elements * staged.width
    )


def _stepped(writer: Compute, op: Op, position: int, lies: bool, first: int, steps: int, bytes: int) -> str:
    """What to add to a descriptor for step kk along K, from row (or column) `first` of the operand on."""
    root, _ = sides(op, swapped=writer.plan.placement.products[op].swapped)[position]
    staged = writer.tiles[root]
    rows, size = staged.shared.shape[0], staged.shared.itemsize
    start = _along(staged, lies, first)
    offsets = []
    for k in range(steps):
        if lies:  # a row of a panel is one of K
            offsets.append((start + k * (bytes // size) * staged.width) // 16)
        else:
            panel, inside = divmod(k * bytes, staged.width)
            offsets.append((start + panel * rows * staged.width + inside) // 16)
    text = writer.table(offsets, "kk" if steps > 1 else "0")
    return f" + kt_desc({text})" if text != "0" else ""
