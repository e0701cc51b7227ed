"""The simulator for machines that are not this one: compiled and linked as it would be there, and looked at, not run."""

from __future__ import annotations

import dataclasses
import platform
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from simtools import kernels

from kittens.backends.cuda import wgmma
from kittens.backends.cuda.sim import VENDOR as CUDA
from kittens.backends.cuda.wgmma import Product
from kittens.backends.hip.sim import VENDOR as HIP
from kittens.backends.metal.sim import VENDOR as METAL
from kittens.sim import program, toolchain

pytest.importorskip("ziglang", reason="what the extra `sim` installs compiles for other machines")


@dataclass(frozen=True)
class Machine:
    """What Python says of it, and the number of its processor in ELF or Mach-O files."""

    system: str
    processor: str
    number: int
    avx2: bool = False


MACHINES = {
    "arm64 Linux": Machine("linux", "aarch64", 183),
    "x86-64 Linux": Machine("linux", "x86_64", 62, avx2=True),
    "x86-64 Linux without AVX2": Machine("linux", "x86_64", 62),
    "arm64 macOS": Machine("darwin", "arm64", 0x100000C),
    "x86-64 macOS": Machine("darwin", "x86_64", 0x1000007, avx2=True),
}

# What kernels take for granted of C++, and compilers decide for each machine.
ASSUMED = """
static_assert(kt_i8(-1) < kt_i8(0) && kt_i16(-1) < kt_i16(0) && kt_u8(-1) > kt_u8(0), "signs");
static_assert(sizeof(kt_i8) == 1 && sizeof(kt_i16) == 2 && sizeof(kt_i32) == 4 && sizeof(kt_i64) == 8, "sizes");
static_assert(__FLT_EVAL_METHOD__ == 0, "float32 arithmetic rounds to float32");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the order of bytes");
"""

BF16 = wgmma.wrappers([Product(64, "bf16", "bf16", "ss")], {32})
TEXTS = {  # source, vendor, entry, architecture
    "cuda": (kernels("every.cu"), CUDA, "every", "sm_80"),
    "hopper": (f'#include "kt_cuda.h"\n{BF16}{kernels("hopper_gemm.cu")}', CUDA, "gemm", "sm_90a"),
    "hip": (kernels("every.hip"), HIP, "every", "gfx942"),
    "metal": (kernels("every.metal"), METAL, "every", None),
}

# What a library may want of a process that has loaded the C library. Others, such as functions that clang calls for what
# a processor lacks, it has to bring.
LIBC = """
__tls_get_addr abort calloc clock_gettime fflush fputs free malloc memcpy memmove memset mmap mprotect munmap
posix_memalign pthread_create pthread_join pthread_mutex_lock pthread_mutex_unlock realloc sched_yield sigaction
sigaltstack signal snprintf stdout strcmp vsnprintf
"""


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine that the toolchain takes this one for."""
    made = MACHINES[request.param]
    monkeypatch.delenv("KITTENS_CLANG", raising=False)
    # The compiler's own parts for a machine take it half a minute: they stay where the simulator keeps them.
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.setenv(name, str(toolchain.cache_folder() / "zig"))
    with monkeypatch.context() as there:
        there.setattr(sys, "platform", made.system)
        there.setattr(platform, "machine", lambda: made.processor)
        there.setattr(toolchain, "_has_avx2", lambda: made.avx2)
        clang = toolchain.compiler()

    other = dataclasses.replace(clang, hosted=(*clang.hosted, "-Werror"))
    monkeypatch.setattr(toolchain, "compiler", lambda: other)
    return made


def elf_imports(library: bytes) -> set[str]:
    """The names that an ELF library wants of others."""
    (start,) = struct.unpack_from("<Q", library, 40)
    size, count = struct.unpack_from("<HH", library, 58)
    sections = [struct.unpack_from("<IIQQQQII", library, start + size * i) for i in range(count)]
    names = set()
    for kind, at, length, strings in ((s[1], s[4], s[5], s[6]) for s in sections):
        for symbol in range(at, at + length, 24) if kind == 11 else ():
            name, _, section = struct.unpack_from("<IHH", library, symbol)
            begin = sections[strings][4] + name
            if name and not section:
                names.add(library[begin : library.index(b"\0", begin)].decode())
    return names


def mach_commands(library: bytes) -> Iterator[tuple[int, bytes]]:
    """The load commands of a Mach-O library."""
    at = 32
    for _ in range(struct.unpack_from("<I", library, 16)[0]):
        command, size = struct.unpack_from("<II", library, at)
        yield command, library[at : at + size]
        at += size


def check_elf(library: bytes, machine: Machine) -> None:
    assert library.startswith(b"\x7fELF")
    assert struct.unpack_from("<HH", library, 16) == (3, machine.number)
    imports, known = elf_imports(library), set(LIBC.split())
    assert "mmap" in imports and imports <= known, imports - known


def check_mach(library: bytes, machine: Machine) -> None:
    """The linker has seen to it that nothing is missing."""
    assert struct.unpack_from("<II", library) == (0xFEEDFACF, machine.number)
    assert struct.unpack_from("<I", library, 12) == (6,)  # a library that can be loaded
    commands = list(mach_commands(library))
    wanted = [body[24:].rstrip(b"\0") for command, body in commands if command == 12]
    assert wanted == [b"/usr/lib/libSystem.B.dylib"]
    oldest = [struct.unpack_from("<I", body, 12)[0] for command, body in commands if command == 0x32]
    assert oldest == [11 << 16]  # the macOS that it asks for, whichever there is here
    if machine.processor == "arm64":
        assert 0x1D in [command for command, _ in commands]  # a signature: Apple's chips load nothing without


@pytest.mark.parametrize("text", TEXTS)
def test_kernels_are_compiled_and_linked(machine: Machine, text: str, shared_cache: Path) -> None:
    source, vendor, entry, arch = TEXTS[text]
    library = toolchain.build_library(program._unit(source + ASSUMED, vendor, entry, arch), shared_cache)
    (check_elf if machine.system == "linux" else check_mach)(library.read_bytes(), machine)


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machines")


def test_a_mac_that_lacks_avx2_is_compiled_for_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rosetta's processor had none before macOS 15."""
    has = {"avx2_0": True, "fma": True, "f16c": True, "bmi2": True}
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(toolchain, "_mac_has", has.__getitem__)
    assert toolchain._level() == 3
    for name in has:
        monkeypatch.setitem(has, name, False)
        assert toolchain._level() == 2
        monkeypatch.setitem(has, name, True)
