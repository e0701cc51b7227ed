"""Where tiles live: a layout for every tile that is held in registers.

Values that meet in element-by-element operations, or through loops, form a class that shares one layout. Products seed
layouts, reductions and broadcasts carry them between a matrix and its rows or columns, and what is left over gets a
blocked layout. Index arithmetic and constants are not held at all: they are computed where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from kittens.codegen.machine import Engine, Machine, MatrixOp
from kittens.dtypes import BY_NAME
from kittens.errors import UnavailableError
from kittens.ir import Function, Op, Region, TensorType, TileType, Value
from kittens.layouts import (
    Digit,
    Linear,
    Product,
    Tiled,
    blocked,
    every_other,
    feeds,
    reduction,
    reorder,
    transpose,
    with_axes,
)
from kittens.opset.elementwise import BINARY, COMPARISONS, MATHEMATICAL, UNARY

ELEMENTWISE = {*BINARY, *COMPARISONS, *UNARY, *MATHEMATICAL, "fma", "where", "cast", "bitcast", "random_bits"}
#: Cheap enough to be computed again wherever they are used, if all they depend on is.
_CHEAP = {*BINARY, *COMPARISONS, "neg", "bitnot", "where", "cast", "floor"}


def squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without axes of extent 1: what of it has to be distributed."""
    return tuple(n for n in shape if n != 1)


def is_tile(value: Value) -> bool:
    """Whether a value has more than one element."""
    return isinstance(value.type, TileType) and value.type.size > 1


def shape(value: Value) -> tuple[int, ...]:
    assert isinstance(value.type, TileType)
    return value.type.shape


def dtype_of(value: Value) -> str:
    assert isinstance(value.type, (TileType, TensorType))
    return value.type.dtype.name


@dataclass
class Matrix:
    """How one product is carried out: by an instruction over (rows, columns) groups, or element by element (op None).

    `layout` is the result's. With an instruction, `a` and `b` are the operands' layouts as (M, K) and (K, N), K outermost
    in the registers. `team`: the instruction is the engine's, asked for by teams of groups that lie below each other; then
    `a` is the left operand's layout in registers, and the right one is always in shared memory. `swapped`: it makes the
    transpose, so that its left operand is the right one's transpose, and `layout` the transpose of its own.
    """

    op: MatrixOp | None
    layout: Tiled
    a: Tiled | None = None
    b: Tiled | None = None
    tiles: tuple[int, int, int] = (1, 1, 1)  # instructions of one group along M, N, K
    split: tuple[int, int] = (1, 1)  # groups along M, N
    reason: str = ""
    team: Product | None = None
    swapped: bool = False


@dataclass
class Placement:
    """Layouts of values, the ways of products, what is computed in place, and which loads products read from memory."""

    groups: int
    layouts: dict[Value, Tiled] = field(default_factory=dict)
    products: dict[Op, Matrix] = field(default_factory=dict)
    implicit: set[Value] = field(default_factory=set)
    direct: set[Value] = field(default_factory=set)
    spare: int = 0  # words a lane may spend on operands that are kept in registers over a loop
    reasons: dict[Value, str] = field(default_factory=dict)


def place(function: Function, machine: Machine, teams: int = 0, copied: Collection[Value] = ()) -> Placement:
    """Decide layouts for a function; products are made by the machine's engine if `teams` of groups ask it for them.

    copied: vectors that lie along the engine's columns and come through shared memory: each lane holds those of its columns.
    """
    values = _values(function.body)
    implicit = _implicit(function)
    classes = _Classes()
    ops = list(function.body.walk())
    _join(function.body, classes)
    groups = machine.engine.team * teams if machine.engine and teams else _choose_groups(ops, values, machine)
    out = Placement(groups, implicit=implicit)
    layouts: dict[Value, Tiled] = {}  # by class root
    reasons: dict[Value, str] = {}

    turned = _turned(ops, classes) if teams else set()
    lined = {classes.root(r[0]) for r in map(related, ops) if r is not None and r[2] == "col"}

    for op in ops:
        if op.name in ("mma", "mma_scaled"):
            root = classes.root(op.result)
            if teams and machine.engine:
                matrix = _by_engine(op, machine.engine, teams, swapped=op in turned)
            else:
                matrix = _product(op, machine, groups, layouts.get(root), lined=root in lined)
            out.products[op] = matrix
            if root not in layouts:
                layouts[root] = matrix.layout
                made = matrix.op.product if matrix.op else matrix.team
                reasons[root] = f"result of {made.name}" if made else matrix.reason
    for op, matrix in out.products.items():
        _feed(op, matrix, lambda v: layouts.get(classes.root(v)))
    out.spare = _spare(out.products, machine)
    for value, layout in _direct(function, out, machine.direct).items():
        layouts[value] = layout
        reasons[value] = "read by products straight from memory"
        out.direct.add(value)
    if teams:
        _deal(ops, classes, out, machine.lanes, layouts, reasons, {classes.root(v) for v in copied})
    _spread(ops, classes, layouts, reasons)
    for op in ops:
        _place_pairs(op, ops, values, classes, machine, groups, implicit, layouts, reasons)
    for rank in (3, 2, 1):
        for value in values:
            root = classes.root(value)
            if len(squeezed(shape(value))) != rank or root in layouts or value in implicit:
                continue
            layouts[root] = _blocked(classes.members(root, values), machine, groups, ops)
            reasons[root] = "elementwise: vectors along the contiguous axis"
            _spread(ops, classes, layouts, reasons)
    for value in values:
        root = classes.root(value)
        if root in layouts:
            out.layouts[value] = layouts[root]
            out.reasons[value] = reasons[root]
    return out


def _values(region: Region) -> list[Value]:
    found = [v for v in region.args if is_tile(v)]
    for op in region.ops:
        for inner in op.regions:
            found += _values(inner)
        found += [v for v in op.results if is_tile(v)]
    return found


def _implicit(function: Function) -> set[Value]:
    """Values that are recomputed where they are used: constants, indices, and cheap arithmetic on these and on scalars."""
    found: set[Value] = set()

    def free(value: Value) -> bool:
        return value in found or (isinstance(value.type, TileType) and value.type.size == 1)

    for op in function.body.walk():
        if len(op.results) != 1 or not is_tile(op.result):
            continue
        if op.name in ("const", "arange") or (
            op.name in (*_CHEAP, "broadcast", "reshape", "transpose") and all(map(free, op.operands))
        ):
            found.add(op.result)
    return found


class _Classes:
    """Disjoint sets of values that share a layout."""

    def __init__(self) -> None:
        self.parent: dict[Value, Value] = {}

    def root(self, value: Value) -> Value:
        while value in self.parent:
            value = self.parent[value]
        return value

    def join(self, a: Value, b: Value) -> None:
        if not (is_tile(a) and is_tile(b)) or squeezed(shape(a)) != squeezed(shape(b)):
            return
        x, y = self.root(a), self.root(b)
        if x is not y:
            self.parent[x] = y

    def members(self, root: Value, values: list[Value]) -> list[Value]:
        return [v for v in values if self.root(v) is root]


def _join(region: Region, classes: _Classes) -> None:
    for op in region.ops:
        for inner in op.regions:
            _join(inner, classes)
        if op.name in ELEMENTWISE:
            for operand in op.operands:
                classes.join(operand, op.result)
        elif op.name == "mma" and len(op.operands) == 3:
            classes.join(op.operands[2], op.result)
        elif op.name == "mma_scaled" and len(op.operands) == 5:
            classes.join(op.operands[4], op.result)
        elif op.name == "reshape" and squeezed(shape(op.operands[0])) == squeezed(shape(op.result)):
            classes.join(op.operands[0], op.result)
        elif op.name in ("loop", "when"):
            (inner,) = op.regions
            n = len(op.results)
            first, fixed = len(inner.args) - n, len(op.operands) - n
            for i, result in enumerate(op.results):
                for other in (op.operands[fixed + i], inner.args[first + i], inner.ops[-1].operands[i]):
                    classes.join(other, result)


def axis_name(shape: Sequence[int], axis: int) -> str | None:
    """The name in a matrix's layout of one axis of a shape (which may have axes of extent 1); None for a unit axis."""
    if shape[axis] == 1:
        return None
    names = {1: ("col",), 2: ("row", "col")}[len(squeezed(shape))]
    return names[len(squeezed(shape[: axis % len(shape)]))]


def slice_of(layout: Tiled, dropped: str) -> Tiled:
    """The layout of a vector that runs along the other axis of a matrix's layout."""
    return with_axes(reduction(layout, dropped).result, "col")


def related(op: Op) -> tuple[Value, Value, str] | None:
    """(matrix, vector, the axis that the vector lacks) of a reduction or broadcast between the two."""
    if op.name in ("sum", "max", "min", "argmax", "any", "all"):
        matrix, vector, axis = op.operands[0], op.result, op.attrs["axis"]
        if len(squeezed(shape(matrix))) == 2 and is_tile(vector):
            name = axis_name(shape(matrix), axis)
            return (matrix, vector, name) if name else None
    if op.name == "broadcast":
        matrix, vector = op.result, op.operands[0]
        if len(squeezed(shape(matrix))) == 2 and len(squeezed(shape(vector))) == 1:
            full = (1,) * (len(shape(matrix)) - len(shape(vector))) + shape(vector)
            dropped = [i for i, (a, b) in enumerate(zip(full, shape(matrix), strict=False)) if a != b]
            if len(dropped) == 1:
                name = axis_name(shape(matrix), dropped[0])
                return (matrix, vector, name) if name else None
    return None


def _spread(ops: list[Op], classes: _Classes, layouts: dict[Value, Tiled], reasons: dict[Value, str]) -> None:
    """Give vectors the layout of the matrices they are reduced from or broadcast to."""
    for op in ops:
        relation = related(op)
        if relation is None:
            continue
        matrix, vector, dropped = relation
        m, v = classes.root(matrix), classes.root(vector)
        if m in layouts and v not in layouts:
            try:
                layouts[v] = slice_of(layouts[m], dropped)
                reasons[v] = (
                    f"along the {'rows' if dropped == 'col' else 'columns'} of {matrix.name or 'a matrix'}"
                )
            except ValueError:
                continue


# Products.


def _choose_groups(ops: list[Op], values: list[Value], machine: Machine) -> int:
    most = machine.max_threads // machine.lanes
    products = [op for op in ops if op.name in ("mma", "mma_scaled")]
    if products:
        largest = max(shape(op.result)[0] * shape(op.result)[1] for op in products)
        held = sum(shape(op.result)[0] * shape(op.result)[1] for op in products)  # every accumulator, at once
        groups = 8 if largest >= 128 * 256 or (len(products) > 1 and held > 4 * machine.lanes * 120) else 4
        rows = min(shape(op.result)[0] for op in products)
        columns = min(shape(op.result)[1] for op in products)
        while groups > 1 and groups * _share(products, machine) > rows * columns:
            groups //= 2
        instructed = any(machine.products_for(*2 * (dtype_of(op.operands[0]),)) for op in products)
        while not instructed and groups < 4 and held > groups * machine.lanes * _MANY:
            groups *= 2
        return min(groups, most)
    largest = max((v.type.size for v in values if isinstance(v.type, TileType)), default=1)
    groups = 1
    while groups < min(8, most) and groups * machine.lanes * 16 <= largest:
        groups *= 2
    while groups < most and groups * machine.lanes < 512 and groups * machine.lanes * 32 < largest:
        groups *= 2
    tensors = [op.operands[0].type for op in ops if op.name in ("load", "store")]
    bits = min((t.dtype.bits for t in tensors if isinstance(t, TensorType)), default=32)
    pieces, rest = divmod(largest, machine.lanes * (128 // bits if bits < 128 else 4))
    while groups > 1 and not rest and pieces % groups:  # groups that got no piece would hold copies
        groups //= 2
    return min(max(groups, 1), most)


#: Registers of a lane that all accumulators may take before products without an instruction get more groups.
_MANY = 48


def _share(products: list[Op], machine: Machine) -> int:
    """Elements of the smallest result that each group should have at least."""
    kinds = {dtype_of(op.operands[0]) for op in products}
    shapes = [p.product.shape for kind in kinds for p in machine.products_for(kind, kind)]
    return min([16 * 8, *(s.m * s.n for s in shapes)])


#: Products of signed bytes whose sum is exact in float32: 2^24 / 2^14.
_EXACT_BYTES = 1024


def _product(op: Op, machine: Machine, groups: int, given: Tiled | None, *, lined: bool) -> Matrix:
    """How to carry out a product; `lined`: rows of its result are reduced, and should not be spread over groups."""
    scaled = op.name == "mma_scaled"
    a, b = op.operands[0], op.operands[2 if scaled else 1]
    (m, k), n = shape(a), shape(b)[1]
    found = [] if scaled else machine.products_for(dtype_of(a), dtype_of(b))
    found = [f for f in found if not f.coarse or op.attrs.get("accumulate") == "fast"]
    found = [f for f in found if not (f.through and BY_NAME[f.dtype].kind == "i" and k > _EXACT_BYTES)]
    ways = [(_instructed(f, machine, (m, n, k), split), f) for split in _splits(groups) for f in found]
    possible = [w for w, _ in ways if w is not None and given in (None, w.layout)]
    if possible and lined:
        return next(
            (w for w in possible if w.split == possible[0].split and w.op is not None and w.op.lined),
            possible[0],
        )
    if possible:
        best = next(f for f in found if any(w.op is f for w in possible))
        return min((w for w in possible if w.op is best), key=lambda w: (w.tiles[0] + w.tiles[1], w.tiles[1]))
    why = "block scales" if scaled else f"no instruction for {dtype_of(a)} and {dtype_of(b)}"
    if found:
        why = f"{m}x{n}x{k} is no multiple of {found[-1].product.name}"
    layout = given or _blocked_shape(squeezed((m, n)), 4, machine.lanes, groups) if (m, n) != (1, 1) else None
    if layout is None:
        raise UnavailableError("a product of one row and one column", hint="use (a * b).sum(axis=...)")
    return Matrix(None, layout, reason=f"element by element: {why}")


def turned_products(function: Function) -> set[Op]:
    """Products that an engine makes transposed: others read what becomes of them transposed, as left operands.

    Engines take those from the registers that their own results are in.
    """
    classes = _Classes()
    _join(function.body, classes)
    return _turned(list(function.body.walk()), classes)


def _turned(ops: Sequence[Op], classes: _Classes) -> set[Op]:
    lefts = [source_of(op.operands[0]) for op in ops if op.name == "mma"]
    roots = {classes.root(value) for value, flipped in lefts if flipped}
    return {op for op in ops if op.name == "mma" and classes.root(op.result) in roots}


def sides(op: Op, *, swapped: bool) -> list[tuple[Value, bool]]:
    """The engine's left and right operands of a product: each as a value and whether it is the value's transpose."""
    a, b = (source_of(v) for v in op.operands[:2])
    return [(b[0], not b[1]), (a[0], not a[1])] if swapped else [a, b]


def _deal(
    ops: Sequence[Op],
    classes: _Classes,
    placement: Placement,
    lanes: int,
    layouts: dict[Value, Tiled],
    reasons: dict[Value, str],
    copied: set[Value],
) -> None:
    """Deal vectors that lie along the engine's columns to the lanes of each group, which else would hold many elements each."""
    swapped = {classes.root(op.result) for op, matrix in placement.products.items() if matrix.swapped}
    for op in ops:
        relation = related(op) if op.name == "broadcast" else None
        if relation is None or classes.root(relation[0]) not in swapped or relation[2] != "col":
            continue
        vector = classes.root(relation[1])
        if vector in copied:
            continue
        (extent,) = squeezed(shape(vector))
        if vector not in layouts:
            layouts[vector] = dealt_vector(extent, lanes, placement.groups)
            reasons[vector] = "dealt to the lanes of each group"


def dealt_vector(extent: int, lanes: int, groups: int) -> Tiled:
    """A vector of which each group holds a copy, dealt to its lanes."""
    each = blocked((extent,), vector=1, lanes=lanes)
    return Tiled(each.fragment, (*each.digits, Digit("group", None, groups)))


def _by_engine(op: Op, engine: Engine, teams: int, *, swapped: bool) -> Matrix:
    """A product by the engine: teams lie below each other or, where there are rows for one alone, side by side."""
    (m, k), n = shape(op.operands[0]), shape(op.operands[1])[1]
    m, n = (n, m) if swapped else (m, n)
    product = engine.products[dtype_of(op.operands[0])]
    (rows, columns), depth = Tiled(product.d).shape, Tiled(product.a).shape[1]
    beside = teams if m == rows else 1
    mt, nt, kt = m * beside // (rows * teams), n // (columns * beside), k // depth
    below = (Digit("register", "row", mt), Digit("group", "row", teams // beside))
    layout = Tiled(product.d, (Digit("register", "col", nt), Digit("group", "col", beside), *below))
    return Matrix(
        None,
        transpose(layout) if swapped else layout,
        Tiled(product.a, (*below, Digit("register", "col", kt))),
        None,
        (mt, nt, kt),
        (teams // beside, beside),
        team=product,
        swapped=swapped,
    )


def _spare(products: dict[Op, Matrix], machine: Machine) -> int:
    """Half of what accumulators and addresses leave, and at most 48."""
    sums = sum(matrix.layout.registers for op, matrix in products.items() if len(op.operands) in (3, 5))
    return max(0, min(48, (machine.registers - sums - 24) // 2))


def _direct(function: Function, placement: Placement, most: int) -> dict[Value, Tiled]:
    """Loads that only products read, and of each element at most so many groups: with the operand's layout."""
    ops = list(function.body.walk())
    depths = _depths(function.body)
    uses: dict[Value, list[Op]] = {}
    for op in ops:
        for v in op.operands:
            uses.setdefault(v, []).append(op)

    def wanted(value: Value, flipped: bool) -> set[Tiled | None]:
        found: set[Tiled | None] = set()
        for op in uses.get(value, ()):
            if op.name == "transpose" and op.attrs["perm"] == (1, 0):
                found |= wanted(op.result, not flipped)
                continue
            matrix = placement.products.get(op) if op.name == "mma" and value in op.operands[:2] else None
            for layout, operand in (
                zip((matrix.a, matrix.b), op.operands, strict=False)
                if matrix is not None
                else ((None, value),)
            ):
                if operand is value:
                    found.add(transpose(layout) if layout is not None and flipped else layout)
        return found

    out = {}
    for op in ops:
        if op.name != "load" or len(squeezed(shape(op.result))) != 2 or len(shape(op.result)) != 2:
            continue
        layouts = wanted(op.result, False)
        layout = layouts.pop() if len(layouts) == 1 else None
        if layout is None or _readers(layout) > most:
            continue
        if any(depths[use] > depths[op] for use in uses[op.result]):  # held while the loop runs
            words = layout.registers * BY_NAME[dtype_of(op.result)].bits // 32
            if words > placement.spare:
                continue
            placement.spare -= words
        out[op.result] = layout
    return out


def _depths(region: Region, depth: int = 0) -> dict[Op, int]:
    """How many loops each operation stands in."""
    found = {}
    for op in region.ops:
        found[op] = depth
        for inner in op.regions:
            found |= _depths(inner, depth + (op.name == "loop"))
    return found


def _readers(layout: Tiled) -> int:
    """Groups that hold each element of a layout."""
    n = 1
    for digit in layout.digits:
        if digit.owner == "group" and digit.axis is None:
            n *= digit.size
    return n


def _splits(groups: int) -> list[tuple[int, int]]:
    """(groups along rows, along columns), rows first: then reductions along rows stay within a group."""
    out = []
    rows = groups
    while rows >= 1:
        out.append((rows, groups // rows))
        rows //= 2
    return out


def _instructed(
    found: MatrixOp, machine: Machine, sizes: tuple[int, int, int], split: tuple[int, int]
) -> Matrix | None:
    product = found.product
    assert product.b is not None
    m, n, k = sizes
    unit = product.shape
    fa, fb, fd = product.a, product.b, product.d
    if machine.transposed:  # D^T = B^T A^T: the instruction's rows are our columns
        fa, fb, fd = _flip(product.b), _flip(product.a), _flip(product.d)
        unit = type(unit)(unit.n, unit.m, unit.k)
    gm, gn = split
    if m % (unit.m * gm) or n % (unit.n * gn) or k % unit.k:
        return None
    mt, nt, kt = m // (unit.m * gm), n // (unit.n * gn), k // unit.k
    d = Tiled(
        fd,
        (
            Digit("register", "col", nt),
            Digit("group", "col", gn),
            Digit("register", "row", mt),
            Digit("group", "row", gm),
        ),
    )
    a = Tiled(
        fa,
        (
            Digit("group", None, gn),
            Digit("register", "row", mt),
            Digit("group", "row", gm),
            Digit("register", "col", kt),
        ),
    )
    b = Tiled(
        fb,
        (
            Digit("register", "col", nt),
            Digit("group", "col", gn),
            Digit("group", None, gm),
            Digit("register", "row", kt),
        ),
    )
    return Matrix(found, d, a, b, (mt, nt, kt), split)


def _feed(op: Op, matrix: Matrix, layout_of: Callable[[Value], Tiled | None]) -> None:
    """Let a computed operand serve as it lies, where both operands can be read with K in its order."""
    if matrix.a is None or matrix.b is None:
        return
    for position, (mine, inner) in enumerate(((matrix.a, "col"), (matrix.b, "row"))):
        value, flipped = source_of(op.operands[position])
        held = layout_of(value)
        if held is None or (value.producer is not None and value.producer.name == "load"):
            continue
        order = feeds(
            held, transpose(mine) if flipped else mine, "row" if (inner == "row") != flipped else "col"
        )
        if order is not None and not order.is_identity:
            try:
                matrix.a, matrix.b = reorder(matrix.a, "col", order), reorder(matrix.b, "row", order)
            except ValueError:  # the order spans more than one instruction
                continue
            matrix.reason = f"{value.name or 'an operand'} serves as it lies: K in another order"
            return


def source_of(value: Value) -> tuple[Value, bool]:
    """The value that `value` is a transpose of (or itself), and whether it is transposed."""
    flipped = False
    while (
        value.producer is not None
        and value.producer.name == "transpose"
        and value.producer.attrs["perm"] == (1, 0)
    ):
        value, flipped = value.producer.operands[0], not flipped
    return value, flipped


def _flip(f: Linear) -> Linear:
    return transpose(Tiled(f)).fragment


# Blocked layouts.


def _blocked_shape(extents: tuple[int, ...], vector: int, lanes: int, groups: int) -> Tiled:
    if len(extents) == 3:
        extents = (extents[0] * extents[1], extents[2])
    return blocked(extents, vector=vector, lanes=lanes, groups=groups)


def _blocked(members: list[Value], machine: Machine, groups: int, ops: list[Op]) -> Tiled:
    """Vectors of 16 bytes of the narrowest element that is loaded or stored, along the axis that is contiguous there."""
    extents = squeezed(shape(members[0]))
    bits, across = 128, True
    inside = set(members)
    for op in ops:
        if op.name == "load" and op.result in inside:
            tensor, tile = op.operands[0].type, op.result
        elif op.name in ("store", "store_add") and op.operands[-1] in inside:
            tensor, tile = op.operands[0].type, op.operands[-1]
        else:
            continue
        assert isinstance(tensor, TensorType)
        bits = min(bits, tensor.dtype.bits)
        if (
            len(extents) == 2
            and len(shape(tile)) == 2
            and tensor.strides[1].value != 1
            and tensor.strides[0].value == 1
        ):
            across = False
    vector = 128 // bits if bits < 128 else 4
    while vector > 1 and vector * machine.lanes * groups > _size(extents):
        vector //= 2
    if len(extents) == 2 and not across:
        return transpose(_blocked_shape(extents[::-1], vector, machine.lanes, groups))
    return _blocked_shape(extents, vector, machine.lanes, groups)


def _place_pairs(
    op: Op,
    ops: list[Op],
    values: list[Value],
    classes: _Classes,
    machine: Machine,
    groups: int,
    implicit: set[Value],
    layouts: dict[Value, Tiled],
    reasons: dict[Value, str],
) -> None:
    """Give the halves of a `split` or `join` by pairs the layout in which each lane holds its own pairs."""
    if op.name not in ("split", "join") or not op.attrs["pairs"]:
        return
    whole, halves = (op.operands[0], op.results) if op.name == "split" else (op.result, op.operands)
    rank = len(shape(whole))
    if not is_tile(whole) or rank > 2 or op.attrs["axis"] % rank != rank - 1 or whole in implicit:
        return
    root = classes.root(whole)
    layout = layouts.get(root) or _blocked(classes.members(root, values), machine, groups, ops)
    try:
        half = every_other(layout, "col")
    except ValueError:
        return
    if half.shape != squeezed(shape(halves[0])) or layout.shape != squeezed(shape(whole)):
        return
    if root not in layouts:
        layouts[root], reasons[root] = layout, "elementwise: vectors along the contiguous axis"
    for value in halves:
        mine = classes.root(value)
        if is_tile(value) and value not in implicit and mine not in layouts:
            layouts[mine], reasons[mine] = half, f"every other element of {whole.name or 'a tile'}"


def _size(extents: Sequence[int]) -> int:
    n = 1
    for e in extents:
        n *= e
    return n
