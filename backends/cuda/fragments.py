"""NVIDIA's fragment maps, swizzles and shared-memory banks, as data.

Words are those of :func:`kittens.layouts.fragment`: the lowest bit first, ``r`` a row bit, ``c`` a
column bit. Registers count elements, in the order in which the instruction's operand list packs
them. Source of all matrix maps: PTX ISA, "Matrix multiply-accumulate operation" and "wgmma".
"""

from __future__ import annotations

from kittens.layouts import Access, Linear, Product, Xor, fragment, phase_lanes

LANES = 32

_PTX = "PTX ISA, fragment figures"
_SM80 = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120")
_SM89 = _SM80[3:]
_HALF = ("bfloat16", "float16")
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")

# Accumulators of every 16x8 form: two neighbouring columns, then the row eight below.
_D = fragment("c0 r3", "c1 c2 r0 r1 r2")

# A lane's 32-bit register holds 4, 2 or 1 neighbours along k; A has rows r and r + 8 of it, then
# the same again in the upper half of k.
_A8_K32 = fragment("c0 c1 r3 c4", "c2 c3 r0 r1 r2")
_B8_K32 = fragment("r0 r1 r4", "r2 r3 c0 c1 c2")
_A8_K16 = fragment("c0 c1 r3", "c2 c3 r0 r1 r2")
_B8_K16 = fragment("r0 r1", "r2 r3 c0 c1 c2")
_A16_K16 = fragment("c0 r3 c3", "c1 c2 r0 r1 r2")
_B16_K16 = fragment("r0 r3", "r1 r2 c0 c1 c2")
_A16_K8 = fragment("c0 r3", "c1 c2 r0 r1 r2")
_B16_K8 = fragment("r0", "r1 r2 c0 c1 c2")
_A32_K8 = fragment("r3 c2", "c0 c1 r0 r1 r2")
_B32_K8 = fragment("r2", "r0 r1 c0 c1 c2")
_A32_K4 = fragment("r3", "c0 c1 r0 r1 r2")
_B32_K4 = fragment("", "r0 r1 c0 c1 c2")

MMA: dict[str, Product] = {
    p.name: p
    for p in (
        Product("m16n8k16", _A16_K16, _B16_K16, _D, _HALF, "float32", _SM80, _PTX),
        Product("m16n8k8", _A16_K8, _B16_K8, _D, _HALF, "float32", _SM80, _PTX),
        Product("m16n8k8_tf32", _A32_K8, _B32_K8, _D, ("tfloat32",), "float32", _SM80, _PTX),
        Product("m16n8k4_tf32", _A32_K4, _B32_K4, _D, ("tfloat32",), "float32", _SM80, _PTX),
        Product("m16n8k32_fp8", _A8_K32, _B8_K32, _D, _FLOAT8, "float32", _SM89, _PTX),
        Product("m16n8k32_int8", _A8_K32, _B8_K32, _D, ("int8", "uint8"), "int32", _SM80, _PTX),
        Product("m16n8k16_int8", _A8_K16, _B8_K16, _D, ("int8", "uint8"), "int32", _SM80, _PTX),
    )
}
"""``mma.sync`` instructions, one group each."""

_FOUR = "r4 r5"  # four groups stand below each other, 16 rows each
_WD = fragment("c0 r3", "c1 c2 r0 r1 r2", _FOUR)
_WA8 = fragment("c0 c1 r3 c4", "c2 c3 r0 r1 r2", _FOUR)
_WA16 = fragment("c0 r3 c3", "c1 c2 r0 r1 r2", _FOUR)
_WA32 = fragment("r3 c2", "c0 c1 r0 r1 r2", _FOUR)
_SM90A = ("sm_90a",)

WGMMA: dict[str, Product] = {
    p.name: p
    for p in (
        Product("m64k16", _WA16, None, _WD, _HALF, "float32", _SM90A, _PTX),
        Product("m64k32_fp8", _WA8, None, _WD, _FLOAT8, "float32", _SM90A, _PTX),
        Product("m64k32_int8", _WA8, None, _WD, ("int8", "uint8"), "int32", _SM90A, _PTX),
        Product("m64k8_tf32", _WA32, None, _WD, ("tfloat32",), "float32", _SM90A, _PTX),
    )
}
"""``wgmma`` instructions, four groups each. D is given for 8 columns: an instruction for N columns
repeats it N / 8 times, in registers, along the columns. A is the form read from registers."""

WGMMA_N = tuple(range(8, 257, 8))
"""Widths N of one ``wgmma`` (int8: of those, only 8, 16, 24, 32 and multiples of 16 above)."""

# ---------------------------------------------------------------------------------------------
# ldmatrix and stmatrix: 8x8 matrices of 16-bit elements

_SLOTS = ("register", "lane")

MATRIX_MOVES: dict[str, Linear] = {
    "x1": fragment("r0 l0 l1", "l2 l3 l4 . .", axes=_SLOTS),
    "x2": fragment("r0 l0 l1", "l2 l3 l4 r1 .", axes=_SLOTS),
    "x4": fragment("r0 l0 l1", "l2 l3 l4 r1 r2", axes=_SLOTS),
    "x1.trans": fragment("l2 l3 l4", "r0 l0 l1 . .", axes=_SLOTS),
    "x2.trans": fragment("l2 l3 l4", "r0 l0 l1 r1 .", axes=_SLOTS),
    "x4.trans": fragment("l2 l3 l4", "r0 l0 l1 r1 r2", axes=_SLOTS),
}
"""Patterns for :func:`kittens.layouts.addresses`: element ``register`` of the row that ``lane`` points
at goes to the (register ``r``, lane ``l``) said. Lane 8 q + i points at row i of matrix q (PTX ISA)."""

# ---------------------------------------------------------------------------------------------
# Shared memory

SWIZZLES: dict[int, tuple[Xor, ...]] = {
    128: (Xor(7, 3, 4),),
    64: (Xor(7, 2, 4),),
    32: (Xor(7, 1, 4),),
}
"""By width of a panel in bytes: 16-byte chunks xor the 128-byte line they are in. Used alike by bulk
copies, ``wgmma`` descriptors (CUDA driver API, tensor map swizzle modes) and our own accesses."""

_WELL_KNOWN = "not documented by NVIDIA; consistent with profiler counts in public literature"

ACCESSES: dict[str, Access] = {
    a.name: a
    for a in (
        Access("b128", 16, 32, phase_lanes(LANES, 8), _WELL_KNOWN),
        Access("b64", 8, 32, phase_lanes(LANES, 16), _WELL_KNOWN),
        Access("b32", 4, 32, phase_lanes(LANES, 32), "CUDA C++ programming guide"),
        Access("b16", 2, 32, phase_lanes(LANES, 32), "CUDA C++ programming guide"),
        Access("b8", 1, 32, phase_lanes(LANES, 32), "CUDA C++ programming guide"),
        Access("ldmatrix.x4", 16, 32, phase_lanes(LANES, 8), "PTX ISA: a matrix is 8 rows of 16 B"),
    )
}
"""Shared-memory loads and stores (they are served alike)."""

SEGMENT = 32
"""Bytes of one global-memory transaction (a sector)."""
