"""Apple's fragment map and threadgroup-memory banks, as data.

Words are those of :func:`kittens.layouts.fragment`: the lowest bit first, ``r`` a row bit, ``c`` a
column bit. Registers count elements.
"""

from __future__ import annotations

from kittens.layouts import Access, Product, Xor, fragment, phase_lanes

LANES = 32

_8X8 = fragment("c0", "c1 r0 r1 c2 r2")
_SOURCE = "MLX, ThunderMittens and tinygrad agree; not in the MSL specification: probe the device"
_APPLE7 = ("apple7", "apple8", "apple9", "apple10")

SIMDGROUP_MATRIX = Product(
    "simdgroup_matrix_8x8",
    _8X8,
    _8X8,
    _8X8,
    ("float16", "bfloat16", "float32"),
    "float32",
    _APPLE7,
    _SOURCE,
)
"""``simdgroup_multiply_accumulate``: A, B and D hold the same places."""

SWIZZLES: dict[int, tuple[Xor, ...]] = {}
"""None: rows are padded instead."""

PAD = 16
"""Bytes left free after each row against bank conflicts."""

_ASSUMED = "assumed: 32 banks of 4 bytes, as reported 8-way conflicts without padding suggest"

ACCESSES: dict[str, Access] = {
    a.name: a
    for a in (
        Access("vec16", 16, 32, phase_lanes(LANES, 8), _ASSUMED),
        Access("vec8", 8, 32, phase_lanes(LANES, 16), _ASSUMED),
        Access("vec4", 4, 32, phase_lanes(LANES, 32), _ASSUMED),
        Access("vec2", 2, 32, phase_lanes(LANES, 32), _ASSUMED),
    )
}
"""Threadgroup-memory loads and stores."""

SEGMENT = 64
"""Bytes of one device-memory transaction (assumed)."""
