"""The sections of an ELF file of 64 bits, little-endian: what vendors' compilers for GPUs write."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A section: its kind is a number of the ELF format or of the vendor's, `start` and `size` are in bytes."""

    name: str
    kind: int
    start: int
    size: int


def sections(code: bytes) -> list[Section]:
    """All sections of a file. A ValueError if it is no ELF file."""
    if code[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF file of 64 bits")
    (table,) = struct.unpack_from("<Q", code, 40)
    entry, count, names = struct.unpack_from("<HHH", code, 58)
    found = [struct.unpack_from("<IIQQQQ", code, table + i * entry) for i in range(count)]

    def name(offset: int) -> str:
        start = found[names][4] + offset
        return code[start : code.index(b"\0", start)].decode()

    return [Section(name(offset), kind, start, size) for offset, kind, _, _, start, size in found]
