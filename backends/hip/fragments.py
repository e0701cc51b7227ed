"""AMD's fragment maps, swizzles and shared-memory banks, as data.

Words are those of :func:`kittens.layouts.fragment`: the lowest bit first, ``r`` a row bit, ``c`` a
column bit, ``.`` a copy. Registers count elements. B of every instruction is A transposed (with n
in the place of m), so one word table gives both.

CDNA maps: AMD matrix instruction calculator and matrix-core blog. RDNA maps: the same calculator.
Products do not see an order of k that A and B share, so a map of k is only observable with
block scales, transposing loads or operands of two widths.
"""

from __future__ import annotations

from kittens.layouts import Access, Linear, Product, Xor, flip, fragment, phase_lanes

LANES = {"gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}

_CALCULATOR = "AMD matrix instruction calculator"
_BY_RULE = "AMD matrix-core blog; by the same rule as its documented neighbours"
_UNSETTLED = "order of k by rule, not confirmed on a device; matters for block scales only"

_CDNA3 = ("gfx942",)
_CDNA4 = ("gfx950",)
_CDNA = _CDNA3 + _CDNA4
_HALF = ("bfloat16", "float16")
_FNUZ = ("float8_e4m3fnuz", "float8_e5m2fnuz")
_OCP = ("float8_e4m3fn", "float8_e5m2")
_SMALL = ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")

_M16 = "r0 r1 r2 r3"
_M32 = "r0 r1 r2 r3 r4"

# Accumulators: four neighbouring rows of one column; 32x32 has four such pieces, 8 rows apart.
_D16 = fragment("r0 r1", "c0 c1 c2 c3 r2 r3")
_D32 = fragment("r0 r1 r3 r4", "c0 c1 c2 c3 c4 r2")


def _mfma(name: str, a: Linear, dtypes: tuple[str, ...], targets: tuple[str, ...], source: str) -> Product:
    d = _D32 if dict(a.outputs)["row"] == 5 else _D16
    return Product(name, a, flip(a), d, dtypes, "int32" if "i8" in name else "float32", targets, source)


MFMA: dict[str, Product] = {
    p.name: p
    for p in (
        # 32-bit operands: one element a lane
        _mfma("f32_16x16x4f32", fragment("", f"{_M16} c0 c1"), ("float32",), _CDNA, _CALCULATOR),
        _mfma("f32_32x32x2f32", fragment("", f"{_M32} c0"), ("float32",), _CDNA, _CALCULATOR),
        _mfma("f32_16x16x8_xf32", fragment("c0", f"{_M16} c1 c2"), ("tfloat32",), _CDNA3, _CALCULATOR),
        _mfma("f32_32x32x4_xf32", fragment("c0", f"{_M32} c1"), ("tfloat32",), _CDNA3, _CALCULATOR),
        # 16-bit operands
        _mfma("f32_16x16x16", fragment("c0 c1", f"{_M16} c2 c3"), _HALF, _CDNA, _CALCULATOR),
        _mfma("f32_32x32x8", fragment("c0 c1", f"{_M32} c2"), _HALF, _CDNA, _CALCULATOR),
        _mfma("f32_16x16x32", fragment("c0 c1 c2", f"{_M16} c3 c4"), _HALF, _CDNA4, _BY_RULE),
        _mfma("f32_32x32x16", fragment("c0 c1 c2", f"{_M32} c3"), _HALF, _CDNA4, _BY_RULE),
        # 8-bit operands, up to 16 elements a lane
        _mfma("f32_16x16x32_fp8_fnuz", fragment("c0 c1 c2", f"{_M16} c3 c4"), _FNUZ, _CDNA3, _CALCULATOR),
        _mfma("f32_32x32x16_fp8_fnuz", fragment("c0 c1 c2", f"{_M32} c3"), _FNUZ, _CDNA3, _CALCULATOR),
        _mfma("f32_16x16x32_fp8", fragment("c0 c1 c2", f"{_M16} c3 c4"), _OCP, _CDNA4, _BY_RULE),
        _mfma("f32_32x32x16_fp8", fragment("c0 c1 c2", f"{_M32} c3"), _OCP, _CDNA4, _BY_RULE),
        _mfma("i32_16x16x32_i8", fragment("c0 c1 c2", f"{_M16} c3 c4"), ("int8",), _CDNA, _CALCULATOR),
        _mfma("i32_32x32x16_i8", fragment("c0 c1 c2", f"{_M32} c3"), ("int8",), _CDNA, _CALCULATOR),
        _mfma("i32_16x16x64_i8", fragment("c0 c1 c2 c3", f"{_M16} c4 c5"), ("int8",), _CDNA4, _BY_RULE),
        _mfma("i32_32x32x32_i8", fragment("c0 c1 c2 c3", f"{_M32} c4"), ("int8",), _CDNA4, _BY_RULE),
        # f8f6f4: 32 elements a lane; 8-bit ones lie in two chunks of 16, smaller ones in one piece
        _mfma(
            "f32_16x16x128_f8f6f4_8bit",
            fragment("c0 c1 c2 c3 c6", f"{_M16} c4 c5"),
            _OCP,
            _CDNA4,
            _UNSETTLED,
        ),
        _mfma(
            "f32_32x32x64_f8f6f4_8bit",
            fragment("c0 c1 c2 c3 c5", f"{_M32} c4"),
            _OCP,
            _CDNA4,
            "AMD matrix-core blog, its 32x32x64 fp8 kernel",
        ),
        _mfma(
            "f32_16x16x128_f8f6f4_small",
            fragment("c0 c1 c2 c3 c4", f"{_M16} c5 c6"),
            _SMALL,
            _CDNA4,
            _UNSETTLED,
        ),
        _mfma(
            "f32_32x32x64_f8f6f4_small",
            fragment("c0 c1 c2 c3 c4", f"{_M32} c5"),
            _SMALL,
            _CDNA4,
            "AMD matrix-core blog, its 32x32x64 fp4 kernel; 6-bit types not confirmed",
        ),
    )
}
"""MFMA instructions; the name is that of the compiler's builtin up to the type of the operands."""

# RDNA3: lanes 16 to 31 hold the same operands as lanes 0 to 15, and every other row of D.
_WMMA3_A = fragment("c0 c1 c2 c3", f"{_M16} .")
_WMMA3_D = fragment("r1 r2 r3", "c0 c1 c2 c3 r0")
# RDNA4: no copies. 16-bit operands alternate between lane halves by 4 along k, 8-bit ones by 8.
_WMMA4_A16 = fragment("c0 c1 c3", f"{_M16} c2")
_WMMA4_A8 = fragment("c0 c1 c2", f"{_M16} c3")
_WMMA4_D = fragment("r0 r1 r2", "c0 c1 c2 c3 r3")
_RDNA3 = ("gfx1100",)
_RDNA4 = ("gfx1201",)


def _wmma(name: str, a: Linear, d: Linear, dtypes: tuple[str, ...], targets: tuple[str, ...]) -> Product:
    accumulator = "int32" if name.startswith("i32") else "float32"
    return Product(name, a, flip(a), d, dtypes, accumulator, targets, _CALCULATOR)


WMMA: dict[str, Product] = {
    p.name: p
    for p in (
        _wmma("f32_16x16x16_w32", _WMMA3_A, _WMMA3_D, _HALF, _RDNA3),
        _wmma("i32_16x16x16_iu8_w32", _WMMA3_A, _WMMA3_D, ("int8", "uint8"), _RDNA3),
        _wmma("f32_16x16x16_w32_gfx12", _WMMA4_A16, _WMMA4_D, _HALF, _RDNA4),
        _wmma("f32_16x16x16_fp8_w32_gfx12", _WMMA4_A8, _WMMA4_D, _OCP, _RDNA4),
        _wmma("i32_16x16x16_iu8_w32_gfx12", _WMMA4_A8, _WMMA4_D, ("int8", "uint8"), _RDNA4),
    )
}
"""WMMA instructions of 32 lanes, with 32-bit accumulators."""

_SLOTS = ("register", "lane")

TRANSPOSING_READS: dict[str, Linear] = {
    "ds_read_b64_tr_b16": fragment("l0 l1", "l2 l3 r0 r1 l4 l5", axes=_SLOTS),
    "ds_read_b64_tr_b8": fragment("l0 l1 l2", "l3 r0 r1 r2 l4 l5", axes=_SLOTS),
    "ds_read_b64_tr_b4": fragment("l0 l1 l2 l3", "r0 r1 r2 r3 l4 l5", axes=_SLOTS),  # not confirmed
}
"""Patterns for :func:`kittens.layouts.addresses`: element ``register`` of the 8 bytes that ``lane``
points at goes to the (register ``r``, lane ``l``) said."""

# ---------------------------------------------------------------------------------------------
# Shared memory

SWIZZLES: dict[str, tuple[Xor, ...]] = {
    "128B rows, b128, 16-row operand": (Xor(7, 3, 4),),
    "128B rows, b128, 32-row operand": (Xor(8, 3, 4),),
    "256B rows, tr_b16": (Xor(8, 2, 6),),
    "512B rows, tr_b16": (Xor(9, 2, 5), Xor(12, 1, 7)),
}
"""Xors of the byte offset in a row-major tile, by length of a row and how it is read on gfx950. That of
32-row operands serves 16-row ones as well. ``kittens.layouts.find_swizzle`` finds others."""

SUBTILES: dict[str, tuple[tuple[int, int], tuple[Xor, ...]]] = {
    "16x16": ((16, 16), ()),
    "16x16 swizzled": ((16, 16), (Xor(7, 2, 3),)),
    "32x32": ((32, 32), (Xor(9, 1, 5), Xor(10, 1, 4))),
    "16x32": ((16, 32), (Xor(9, 1, 5),)),
    "32x16": ((32, 16), (Xor(9, 1, 4),)),
    "8x32": ((8, 32), ()),
    "16x128 8-bit": ((16, 128), (Xor(8, 3, 4),)),
}
"""The subtiles of HipKittens (public): (rows, cols) of 16-bit elements unless said, and their xors."""

_QUADS_B128 = ((0, 3, 5, 6), (1, 2, 4, 7))  # lanes 4 q to 4 q + 3 for each q
_QUADS_EIGHT = ((0, 5), (1, 4), (2, 7), (3, 6))


def _quads(pattern: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Phases of both halves of 64 lanes, from the quads of lanes in the first half."""
    return tuple(
        tuple(half + 4 * quad + lane for quad in quads for lane in range(4))
        for half in (0, 32)
        for quads in pattern
    )


_MEASURED = "measured by HipKittens on MI355X"
_DOCUMENTED = "public AMD kernel-library documentation"
_ASSUMED = "assumed by analogy"


def _accesses(*accesses: Access) -> dict[str, Access]:
    return {access.name: access for access in accesses}


ACCESSES: dict[str, dict[str, Access]] = {
    "gfx950": _accesses(
        Access("ds_read_b128", 16, 64, _quads(_QUADS_B128), _MEASURED),
        Access("ds_read_b96", 12, 32, _quads(_QUADS_EIGHT), _MEASURED),
        Access("ds_read_b64", 8, 64, phase_lanes(64, 32), _MEASURED),
        Access("ds_read_b64_tr_b16", 8, 64, phase_lanes(64, 32), _ASSUMED),
        Access("ds_read_b32", 4, 64, phase_lanes(64, 64), _ASSUMED),
        Access("ds_read_u16", 2, 64, phase_lanes(64, 64), _ASSUMED),
        Access("ds_write_b128", 16, 32, phase_lanes(64, 8), _DOCUMENTED),
        Access("ds_write_b64", 8, 32, phase_lanes(64, 16), _MEASURED),
        Access("ds_write_b32", 4, 32, phase_lanes(64, 32), _ASSUMED),
        Access("ds_write_b16", 2, 32, phase_lanes(64, 32), _ASSUMED),
    ),
    "gfx942": _accesses(
        Access("ds_read_b128", 16, 32, _quads(_QUADS_EIGHT), _DOCUMENTED),
        Access("ds_read_b96", 12, 32, _quads(_QUADS_EIGHT), _ASSUMED),
        Access("ds_read_b64", 8, 32, phase_lanes(64, 16), _ASSUMED),
        Access("ds_read_b32", 4, 32, phase_lanes(64, 32), _ASSUMED),
        Access("ds_read_u16", 2, 32, phase_lanes(64, 32), _ASSUMED),
        Access("ds_write_b128", 16, 32, phase_lanes(64, 8), _DOCUMENTED),
        Access("ds_write_b64", 8, 32, phase_lanes(64, 16), _ASSUMED),
        Access("ds_write_b32", 4, 32, phase_lanes(64, 32), _ASSUMED),
        Access("ds_write_b16", 2, 32, phase_lanes(64, 32), _ASSUMED),
    ),
}
"""Shared-memory accesses by architecture."""

SEGMENT = 64
"""Bytes of one global-memory transaction (assumed)."""
