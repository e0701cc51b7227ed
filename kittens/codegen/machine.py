"""A target as planning and emission see it: plain data that a backend fills in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kittens.dtypes import BY_NAME
from kittens.layouts import Access, Linear, Product, Xor


@dataclass(frozen=True)
class MatrixOp:
    """A matrix instruction and how to call it.

    `dtype` is the operands' element type. call(d, a, b) gives the statement: d is the list of accumulator lvalues of one
    lane, a and b the operand expressions, one for each 32-bit word (or for each element of 32 bits). `lined`: preferred
    where rows of the result are reduced, or combined with one value each. `through`: a 16-bit float that operands are converted to, exactly, for an instruction that does not take `dtype`. Then
    8-bit integers are summed in float32, along K no further than is exact, and each sum is added to the result.
    `coarse`: it adds in less than float32, so that it makes fast products alone.
    `tiles`, if there is a function for many: tiles(counts, d, a, b) gives the statement for instructions along M and N, from the
    addresses of the first elements.
    """

    product: Product
    dtype: str
    call: Callable[[Sequence[str], Sequence[str], Sequence[str]], str]
    through: str = ""
    lined: bool = False
    coarse: bool = False
    tiles: Callable[[tuple[int, int], str, str, str], str] | None = None

    @property
    def bits(self) -> int:
        """Bits of an element as the instruction takes it."""
        return BY_NAME[self.through or self.dtype].bits


@dataclass(frozen=True)
class Move:
    """A load from shared memory in which lanes hand elements to each other.

    `pattern` as `kittens.layouts.addresses` takes it; `bits` of an element; a lane points at `elements` neighbours.
    call(words, address) gives the statement that fills the word lvalues. `access`: how its lanes are served.
    """

    pattern: Linear
    bits: int
    elements: int
    call: Callable[[Sequence[str], str], str]
    access: Access | None = None


@dataclass(frozen=True)
class Dialect:
    """How the vendor's text differs: the header, and the frame around a kernel's body.

    packed: the kernel takes all pointers first, and then one structure of all other parameters.
    counter: the type that loops count in. finish: a last change to the whole text.
    """

    include: str
    entry: Callable[
        [str, Sequence[tuple[str, str]], int, int], str
    ]  # name, (type, name) of parameters, threads, shared bytes
    suffix: str
    packed: bool = False
    counter: str = "kt_i64"
    finish: Callable[[str], str] = str


@dataclass(frozen=True)
class Instruction:
    """A product that an engine is asked for: rows x `columns`, over `depth` elements of K, of operands of `dtypes`.

    `held`: the left operand is in registers, else in shared memory. `across`: for each operand whether it lies along M or N
    there, not along K. `registers`: of the whole array of sums that `call` writes a part of.
    """

    dtypes: tuple[str, str]
    columns: int
    depth: int
    held: bool
    across: tuple[bool, bool]


@dataclass(frozen=True)
class Engine:
    """Copies of tiles and products of matrices that run beside the threads that ask for them.

    team: groups that ask for a product together. products: by type of the operands; the result is the fragment's rows by
    multiples of `step` columns, `most` at once. along: types whose operands must both lie along K in shared memory.
    coarse: types that it adds in less than float32, so that it makes fast products of them alone (docs/semantics.md).
    call(instruction, sums, first, a, b, add) gives the statement that starts one, the sums from register `first` of an array on;
    wrappers(instructions, sizes) the functions that those statements call, for arrays of these sizes.
    registers: by number of computing teams, registers a lane that the copying team keeps, and that the others get (none: as
    they are); registers_of_slices: the same where it copies slices, whose bounds it keeps. entry(name, parameters, threads, cluster) opens the kernel. put(address, words) writes 16 rows of 32 bytes of a
    result of 16-bit elements to shared memory, from four words a lane: two of columns 2c and 2c + 1 in rows r and r + 8, then of
    columns 8 further; lane l gives the address of row l % 16, 16 bytes number l / 16. box: most rows of one copy. cluster: blocks side by side
    that one copy can serve (1: none).
    """

    team: int
    products: dict[str, Product]
    step: int
    most: int
    along: frozenset[str]
    coarse: frozenset[str]
    call: Callable[[Instruction, str, int, str, str, str], str]
    wrappers: Callable[[Sequence[Instruction], Sequence[int]], str]
    registers: dict[int, tuple[int, int]]
    registers_of_slices: dict[int, tuple[int, int]]
    entry: Callable[[str, Sequence[tuple[str, str]], int, int], str]
    put: Callable[[str, Sequence[str]], str]
    box: int = 256
    cluster: int = 1


@dataclass(frozen=True)
class Machine:
    """What a kernel is planned for.

    lanes: threads that run in step. shared_bytes: shared memory of a program. max_threads: of a program. registers:
    32-bit registers a lane can have. products and moves: best first. swizzles: by panel width in bytes. pad: bytes left
    free after each row of a tile in shared memory that has no swizzle, a multiple of 16.
    copies: widths in bytes of asynchronous copies to shared memory (zero-filled at edges). stages: of a loop's ring.
    long_stages: of one with several products, whose passes take long (0: the same).
    direct: operands that no more groups than this read come to products straight from memory, others through shared memory;
    with any, tiles for which that has no room are read where they lie, step by step.
    linear: those of `copies` for which data lands in shared memory lane after lane, from a buffer that knows its range.
    unrolled: whether loops with rings and one product are written out once for each slot, so that its addresses are constants.
    late: whether copies go through registers: in such loops they are loaded before a pass's work and stored after it.
    buffers: widths in bytes of loads from a buffer that knows its range, and gives zeros beyond.
    reads: plain reads of shared memory, by bytes a lane. more_swizzles: tried where the first has bank conflicts.
    atomics: dtypes that memory adds in at once. segment: bytes of one transaction with global memory.
    turns: whether programs may wait for those with lower numbers; alone: by starting one when the one before has ended, for
    devices that do not promise that others go on meanwhile.
    transposed: whether products are computed as D^T = B^T A^T, so that a lane holds neighbours of one row of D.
    narrow: whether extents and strides are taken as unsigned numbers of 32 bits; the backend sees that they are.
    parts: of the device, each with a cache of its own, to which programs are dealt in turn.
    paired: groups of a program that its processor's parts run two by two; those of each pair go through loops a phase apart
    then, one multiplying while the other reads and copies (0: as they come).
    logs: whether kernels print into a log that the host reads, as on devices without printf (`codegen.printing`).
    engine: copies and products that run beside the threads, if it has them.
    """

    target: str
    arch: str
    lanes: int
    shared_bytes: int
    max_threads: int
    registers: int
    dialect: Dialect
    products: tuple[MatrixOp, ...] = ()
    moves: tuple[Move, ...] = ()
    swizzles: dict[int, tuple[Xor, ...]] = field(default_factory=dict)
    pad: int = 0
    copies: tuple[int, ...] = (16, 8, 4)
    stages: int = 3
    long_stages: int = 0
    linear: tuple[int, ...] = ()
    unrolled: bool = False
    late: bool = False
    buffers: tuple[int, ...] = ()
    reads: dict[int, Access] = field(default_factory=dict)
    more_swizzles: dict[int, tuple[tuple[Xor, ...], ...]] = field(default_factory=dict)
    transposed: bool = False
    atomics: tuple[str, ...] = ("float32", "int32", "uint32", "int64", "uint64")
    turns: bool = False
    alone: bool = False
    segment: int = 32
    direct: int = 0
    parts: int = 0
    narrow: bool = False
    paired: int = 0
    logs: bool = False
    engine: Engine | None = None

    def products_for(self, a: str, b: str) -> list[MatrixOp]:
        """The instructions for operands of these element types, the preferred one first."""
        return [p for p in self.products if p.dtype == a == b]
