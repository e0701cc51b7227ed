"""What a compiled AMD kernel takes, read from its ELF file: registers, spills, LDS, where its arguments lie.

The notes are MessagePack (LLVM, "User Guide for AMDGPU Backend", code object metadata); this reads the
types they use.
"""

from __future__ import annotations

import struct
from typing import Any

from kittens.codegen.elf import sections

_NOTE_SECTION, _METADATA_NOTE = 7, 32
_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_SIZED = {
    0xD9: (str, ">B"), 0xDA: (str, ">H"), 0xDB: (str, ">I"), 0xDC: (list, ">H"), 0xDD: (list, ">I"),
    0xDE: (dict, ">H"), 0xDF: (dict, ">I"),
}  # fmt: skip
_FIXED = {0xC0: None, 0xC2: False, 0xC3: True}


def metadata(code: bytes) -> dict[str, Any]:
    """The metadata of a code object's first kernel. A ValueError if the file has none."""
    for section in sections(code):
        at, end = section.start, section.start + section.size
        while section.kind == _NOTE_SECTION and at < end:
            name_size, body_size, note = struct.unpack_from("<III", code, at)
            body = at + 12 + (name_size + 3) // 4 * 4
            if note == _METADATA_NOTE:
                return _read(code, body)[0]["amdhsa.kernels"][0]
            at = body + (body_size + 3) // 4 * 4
    raise ValueError("a code object without AMDGPU metadata")


def resources(code: bytes, arch: str) -> dict[str, Any]:
    """What a code object's kernel takes.

    `registers` are vector registers, `accumulators` those of them that only matrix instructions reach,
    `spilled` counts vector registers kept in memory, `scalar_spills` scalar registers kept in lanes of
    vector registers, `occupancy` groups of lanes that a SIMD holds.
    """
    k = metadata(code)
    registers, shared = k[".vgpr_count"], k[".group_segment_fixed_size"]
    threads, lanes = k[".max_flat_workgroup_size"], k[".wavefront_size"]
    return {
        "registers": registers,
        "accumulators": k.get(".agpr_count", 0),
        "scalar_registers": k[".sgpr_count"],
        "spilled": k[".vgpr_spill_count"],
        "scalar_spills": k[".sgpr_spill_count"],
        "scratch_bytes": k[".private_segment_fixed_size"],
        "shared_bytes": shared,
        "threads": threads,
        "parameters": sum(not a[".value_kind"].startswith("hidden") for a in k.get(".args", ())),
        "occupancy": occupancy(arch, registers, shared, threads, lanes),
    }


def occupancy(arch: str, registers: int, shared: int, threads: int, lanes: int) -> float:
    """Groups of lanes that a SIMD holds, by registers and LDS (LLVM's own estimate)."""
    if arch.startswith("gfx9"):
        step, total, most, simds = 8, 512, 8, 4
        lds, lds_step = (163840, 1280) if arch == "gfx950" else (65536, 512)
    else:
        step, total, most, simds = 24, 1536, 16, 2
        lds, lds_step = 65536, 1024
    waves = -(-threads // lanes)
    programs = min(most, total // max(step, -(-registers // step) * step)) * simds // waves
    if shared:
        programs = min(programs, lds // (-(-shared // lds_step) * lds_step))
    return min(most, programs * waves / simds)


def _read(data: bytes, at: int) -> tuple[Any, int]:
    """One MessagePack value at an offset, and the offset after it."""
    tag = data[at]
    at += 1
    if tag < 0x80 or tag >= 0xE0:
        return (tag if tag < 0x80 else tag - 256), at
    if tag in _FIXED:
        return _FIXED[tag], at
    if tag in _NUMBERS:
        return struct.unpack_from(_NUMBERS[tag], data, at)[0], at + struct.calcsize(_NUMBERS[tag])
    if tag in _SIZED:
        kind, form = _SIZED[tag]
        (count,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
    elif tag < 0xC0:
        kind, count = (dict, tag & 15) if tag < 0x90 else (list, tag & 15) if tag < 0xA0 else (str, tag & 31)
    else:
        raise ValueError(f"MessagePack tag {tag:#x}")
    if kind is str:
        return data[at : at + count].decode(), at + count
    items = []
    for _ in range(count * (2 if kind is dict else 1)):
        item, at = _read(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if kind is dict else items), at
