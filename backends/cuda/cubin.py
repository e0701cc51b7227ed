"""What a compiled NVIDIA kernel takes, read from its cubin.

The attributes of the `.nv.info` sections have no public description. Those read here are the ones that the toolkit's
`cuobjdump -elf` prints as REGCOUNT, FRAME_SIZE, MAX_THREADS and KPARAM_INFO.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kittens.codegen.elf import sections

_INFO, _SHARED = ".nv.info", ".nv.shared."
_REGISTERS, _FRAME, _MAX_THREADS, _PARAMETER = 0x2F, 0x11, 0x05, 0x17
#: Shared memory that the system keeps of each program, from compute capability 9 on; it is listed as the kernel's own.
RESERVED = 1024


def resources(code: bytes) -> dict[str, int]:
    """What a cubin of one kernel says: registers and stack bytes of a thread, static shared bytes (with what the system
    keeps), the most threads of a program, and the number of parameters.
    """
    found = {"registers": 0, "stack_bytes": 0, "static_shared_bytes": 0, "max_threads": 0, "parameters": 0}
    for section in sections(code):
        if section.name.startswith(_SHARED) and not section.name.startswith(_SHARED + "reserved"):
            found["static_shared_bytes"] = section.size
        if not section.name.startswith(_INFO):
            continue
        for attribute, words in _attributes(code, section.start, section.start + section.size):
            if attribute == _REGISTERS:
                found["registers"] = max(found["registers"], words[1])
            elif attribute == _FRAME:
                found["stack_bytes"] = max(found["stack_bytes"], words[1])
            elif attribute == _MAX_THREADS:
                found["max_threads"] = words[0] * words[1] * words[2]
            elif attribute == _PARAMETER:
                found["parameters"] += 1
    return found


def _attributes(code: bytes, at: int, end: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The attributes of a section with their values, as words where they have a size of their own."""
    while at < end:
        form, attribute, short = struct.unpack_from("<BBH", code, at)
        at += 4
        if form != 4:
            yield attribute, (short,)
            continue
        yield attribute, struct.unpack_from(f"<{short // 4}I", code, at)
        at += short
