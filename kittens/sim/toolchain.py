"""The host compiler: found, run, and its results cached by content."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kittens.cache import FOLDER, folder, sound, used, write_sealed
from kittens.errors import KittensError, UnavailableError

RUNTIME = Path(__file__).resolve().parent / "runtime"

# Contraction off: the CPU must fuse a multiply and an add only where the kernel says so. The vendors' `char` is signed;
# that of arm64 Linux is not, unless told.
_FLAGS = (
    "-x",
    "c++",
    "-std=c++20",
    "-O2",
    "-g0",
    "-fPIC",
    "-ffp-contract=off",
    "-fsigned-char",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
)

_UNCHECKED = "-fno-sanitize=all"  # zig compiles with checks, unless told


class BuildError(KittensError, RuntimeError):
    """The host compiler refused the source; the message is its diagnostics."""


@dataclass(frozen=True)
class Clang:
    """A host compiler, as the beginnings of its commands.

    compile  text to object. A kernel's text needs no header but ours
    hosted   text to object, with the C library's headers at hand: the runtime needs them
    link     objects to a shared library
    archive  an object to a library of it and of the functions that clang calls for what a processor lacks. Empty where
             `link` is a driver, which adds those
    heads    whether `compile` can keep what it has read of headers
    zig      the program that clang is a part of, or an empty string
    """

    compile: tuple[str, ...]
    hosted: tuple[str, ...]
    link: tuple[str, ...]
    heads: bool
    zig: str = ""
    archive: tuple[str, ...] = ()


def compiler() -> Clang:
    """The clang to run: `KITTENS_CLANG` (a command line), or the one of the `ziglang` package."""
    level = _level()
    named = os.environ.get("KITTENS_CLANG")
    if named:
        command = tuple(shlex.split(named))
        zig = any(Path(word).name in ("zig", "ziglang") for word in command)
        whole = (*command, *((*_zig_machine(level), _UNCHECKED) if zig else _machine(level)))
        return Clang(whole, whole, (*(whole if zig else command), "-shared"), heads=not zig)
    found = find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        raise UnavailableError(
            "the simulator needs clang, and the package ziglang, which brings one, is not installed",
            hint="pip install 'kittens-gpu[sim]', or name a clang (19 or later) in KITTENS_CLANG",
        )
    return _clang_of_zig(str(Path(found.submodule_search_locations[0]) / "zig"), level)


def _clang_of_zig(zig: str, level: int) -> Clang:
    """The commands of the clang and lld inside zig.

    `zig cc` hashes every input and starts itself twice more, which takes as long as compiling a small kernel does.
    Its parts are called directly where a library needs nothing of the system.
    """
    machine = _zig_machine(level)
    hosted = (zig, "cc", *machine, _UNCHECKED)
    if sys.platform != "linux":
        return Clang(hosted, hosted, (*hosted, "-shared"), heads=False, zig=zig)
    linker = (zig, "ld.lld", "-shared", "--gc-sections", "--exclude-libs=ALL", "--strip-debug")
    direct = (zig, "clang", f"--target={_zig_target()}", *_machine(level), "-nostdinc")
    archive = (zig, "build-lib", "-fcompiler-rt", "-fstrip", "-fPIC", "-O", "ReleaseFast", *machine)
    return Clang(direct, hosted, linker, heads=True, zig=zig, archive=archive)


def _machine(level: int) -> tuple[str, ...]:
    return (f"-march=x86-64-v{level}",) if level else ()


def _zig_machine(level: int) -> tuple[str, ...]:
    """zig compiles for this very processor, unless told, and spells levels its own way.

    Told the target, it takes the C library's headers that it brings. Else it asks the system's compiler for its own, and
    fails where there is such a compiler and no headers, or an SDK of macOS that it cannot read yet.
    """
    processor = f"-mcpu=x86_64_v{level}" if level else "-mcpu=baseline"
    return ("-target", _zig_target(), processor)


def _zig_target() -> str:
    processor = "x86_64" if _is_x86() else "aarch64"
    return f"{processor}-macos.11.0" if sys.platform == "darwin" else f"{processor}-linux-gnu"


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def _level() -> int:
    """The level of x86-64's instruction set, which a cache can share between machines of the last ten years; else 0."""
    if not _is_x86():
        return 0
    return 3 if _has_avx2() else 2


_LEVEL_3 = ("avx2", "fma", "f16c", "bmi2")  # what tells a processor of level 3 from one of level 2


def _has_avx2() -> bool:
    if sys.platform == "darwin":
        # Not every Mac: an Apple chip that translates x86-64 programs has none before macOS 15.
        return all(_mac_has("avx2_0" if name == "avx2" else name) for name in _LEVEL_3)
    try:
        return set(_LEVEL_3) <= set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False


def _mac_has(feature: str) -> bool:
    """Whether macOS says that the processor, as this program sees it, has `feature`."""
    value, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    ask = ctypes.CDLL(None).sysctlbyname
    failed = ask(
        f"hw.optional.{feature}".encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return not failed and bool(value.value)


def cache_folder(cache_dir: str | Path | None = None) -> Path:
    """Where built programs are kept: `cache_dir`, or the simulator's part of the user's cache."""
    return folder() / "sim" if cache_dir is None else Path(cache_dir)


@dataclass(frozen=True)
class Unit:
    """What the compiler is given.

    head     directives that come first, the same for many units
    text     what follows
    include  folders to search
    flags    further options
    empty_headers  names of headers that the text includes and that hold nothing
    """

    head: str
    text: str
    include: tuple[Path, ...]
    flags: tuple[str, ...] = ()
    empty_headers: tuple[str, ...] = ()

    def folders(self) -> list[str]:
        """The options by which headers are found."""
        return [f"-I{place}" for place in (RUNTIME, *self.include)]

    def compile(self, clang: Clang, scratch: Path, cache: Path, *more: str, head: Path | None = None) -> Path:
        """Compile the text in a folder for the purpose, after `head` where it was compiled before. -> the object"""
        for name in self.empty_headers:
            (scratch / name).touch()
        (scratch / "unit.cpp").write_text(self.text if head else self.head + self.text)
        first = ("-include-pch", str(head)) if head else ()
        files = ["-c", str(scratch / "unit.cpp"), "-o", str(scratch / "unit.o")]
        searched = [*self.folders(), f"-I{scratch}"]
        _run([*clang.compile, *_FLAGS, *self.flags, *more, *searched, *first, *files], cache)
        return scratch / "unit.o"


def build_library(unit: Unit, cache_dir: str | Path | None) -> Path:
    """Compile a unit and link it with the runtime into a shared library, unless the cache has it. -> its path"""
    cache = cache_folder(cache_dir)
    clang = compiler()
    headers = _texts((RUNTIME, *unit.include))
    key = _key(unit.head, unit.text, *_FLAGS, *unit.flags, *_identity(clang), *unit.empty_headers, *headers)
    library = cache / f"{key}.so"
    if sound(library):
        return library
    _writable(cache)
    runtime = _runtime(clang, cache)
    head = _head(unit, clang, cache) if clang.heads else None
    with tempfile.TemporaryDirectory(prefix="kittens-sim-") as scratch:
        made = unit.compile(clang, Path(scratch), cache, head=head)
        output = Path(scratch) / "unit.so"
        _run([*clang.link, str(made), str(runtime), "-o", str(output)], cache)
        _keep(library, output.read_bytes(), 0o755)
    return library


def check_unit(unit: Unit) -> None:
    """Parse a unit and check its types. Raises BuildError, with the compiler's words, for what is wrong."""
    with tempfile.TemporaryDirectory(prefix="kittens-sim-") as scratch:
        # zig has no way to parse and write nothing
        unit.compile(compiler(), Path(scratch), cache_folder(), "-O0")


def _head(unit: Unit, clang: Clang, cache: Path) -> Path:
    """What clang knows after the head of a unit, kept: reading the headers takes as long as compiling a small kernel."""
    # It names the files that it was made of, so it is good for them alone; what they hold is in the key.
    options = (*_FLAGS, *unit.flags, *unit.folders())
    name = f"head-{_key(unit.head, *options, *_identity(clang), *_texts((RUNTIME, *unit.include)))}"
    text = cache / f"{name}.h"
    if not sound(text):
        _keep(text, unit.head.encode())
    start = (*clang.compile, *options, "-x", "c++-header", "-fpch-instantiate-templates")
    command = (*start, "-Xclang", "-fno-pch-timestamp", str(text), "-o")
    return _made(cache, f"{name}.pch", command)


def _runtime(clang: Clang, cache: Path) -> Path:
    """What every unit is linked with: the runtime, and the functions that clang calls for what a processor lacks."""
    command = (*clang.hosted, *_FLAGS, "-Wall", "-Wextra", "-c", str(RUNTIME / "kt_sim.cpp"), "-o")
    key = _key(*_FLAGS, *_identity(clang), *_texts([RUNTIME]))
    built = _made(cache, f"runtime-{key}.o", command)
    if not clang.archive:
        return built
    return _made(cache, f"runtime-{key}.a", (*clang.archive, str(built)), "-femit-bin=")


def _made(cache: Path, name: str, command: tuple[str, ...], output: str = "") -> Path:
    """A file of the cache, made by a command that ends in its name (after `output`) unless it is there already."""
    if not sound(cache / name):
        with tempfile.TemporaryDirectory(prefix="kittens-sim-") as scratch:
            made = Path(scratch) / name
            last = f"{output}{made}"
            _run([*command, last], cache)
            _keep(cache / name, made.read_bytes())
    return cache / name


def _writable(cache: Path) -> None:
    """Raise UnavailableError unless the compiler can keep its files in a folder. (Not all of them say that they cannot.)"""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        raise _no_room(cache, error) from error


def _keep(path: Path, data: bytes, mode: int = 0o644) -> None:
    try:
        write_sealed(path, data, mode)
    except OSError as error:
        raise _no_room(path.parent, error) from error


def _no_room(cache: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"the simulator keeps what it compiles in {cache}, where it cannot write: {error.strerror or error}",
        hint=f"name a folder that can be written in {FOLDER}",
    )


def _run(command: list[str], cache: Path) -> None:
    # zig keeps its own cache of the C library's start files; it belongs beside ours.
    environment = {**os.environ}
    used(cache / "zig")
    environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(cache / "zig"))
    environment.setdefault("ZIG_LOCAL_CACHE_DIR", str(cache / "zig"))
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    except OSError as error:
        raise _not_run(command[0], error) from error
    if done.returncode:
        raise BuildError(done.stderr.strip() or f"the compiler ended with code {done.returncode}")


def _not_run(program: str, error: OSError) -> UnavailableError:
    return UnavailableError(f"the compiler {program!r} cannot be run: {error}", hint="see KITTENS_CLANG")


@functools.cache
def _identity(clang: Clang) -> tuple[str, ...]:
    """The commands and the version that the compiler tells: what its results depend on. Where zig lies makes no difference."""
    command = [clang.zig, "version"] if clang.zig else [*clang.compile, "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise _not_run(command[0], error) from error
    words = (*clang.compile, *clang.hosted, *clang.link, *clang.archive)
    return (*("zig" if clang.zig and word == clang.zig else word for word in words), done.stdout)


def _texts(folders: Iterable[Path]) -> list[str]:
    """The contents of every header, since the result depends on them."""
    files = [file for place in folders for file in sorted(place.iterdir())]
    return [file.read_text() for file in files if file.is_file() and file.suffix != ".py"]


def _key(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]
