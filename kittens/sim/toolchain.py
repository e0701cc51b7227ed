"""The host compiler: found, run, and its results cached by content."""

from __future__ import annotations

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

from kittens.errors import KittensError, UnavailableError

RUNTIME = Path(__file__).resolve().parent / "runtime"

# Contraction off: the CPU must fuse a multiply and an add only where the kernel says so.
_FLAGS = (
    "-x",
    "c++",
    "-std=c++20",
    "-O2",
    "-g0",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-fno-sanitize=all",
    "-fno-strict-aliasing",
)


_ZIG = (sys.executable, "-m", "ziglang")


class BuildError(KittensError, RuntimeError):
    """The host compiler refused the source; the message is its diagnostics."""


def compiler() -> tuple[str, ...]:
    """The clang to run: `KITTENS_CLANG` (a command line), or the one of the `ziglang` package."""
    named = os.environ.get("KITTENS_CLANG")
    if named:
        return tuple(shlex.split(named))
    if find_spec("ziglang") is None:
        raise UnavailableError(
            "the simulator needs clang, and the package ziglang, which brings one, is not installed",
            hint="pip install 'kittens-gpu[sim]', or name a clang (19 or later) in KITTENS_CLANG",
        )
    return (*_ZIG, "cc")


def cache_folder(cache_dir: str | Path | None = None) -> Path:
    """Where built programs are kept: `cache_dir`, `KITTENS_CACHE_DIR`, or the user's cache folder."""
    if cache_dir is not None:
        return Path(cache_dir)
    named = os.environ.get("KITTENS_CACHE_DIR")
    if named:
        return Path(named) / "sim"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kittens" / "sim"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kittens" / "sim"


@dataclass(frozen=True)
class Unit:
    """What the compiler is given: a text, folders to search, options, and names of headers that hold nothing."""

    text: str
    include: tuple[Path, ...]
    flags: tuple[str, ...] = ()
    empty_headers: tuple[str, ...] = ()

    def write(self, scratch: Path) -> list[str]:
        """Write the text and the empty headers into a folder. -> options that find everything, and the file"""
        for name in self.empty_headers:
            (scratch / name).touch()
        (scratch / "unit.cpp").write_text(self.text)
        return [*(f"-I{folder}" for folder in (RUNTIME, *self.include, scratch)), str(scratch / "unit.cpp")]


def build_library(unit: Unit, cache_dir: str | Path | None) -> Path:
    """Compile a unit together with the runtime into a shared library, unless the cache has it. -> its path"""
    cache = cache_folder(cache_dir)
    command = compiler()
    options = (*_FLAGS, *_machine_flags(command), *unit.flags)
    headers = _texts((RUNTIME, *unit.include))
    library = (
        cache / f"{_key(unit.text, *options, *command, _version(command), *unit.empty_headers, *headers)}.so"
    )
    if library.exists():
        return library
    runtime = _runtime_object(command, cache)
    with tempfile.TemporaryDirectory(prefix="kittens-sim-") as scratch:
        output = Path(scratch) / "unit.so"
        parts = ["-shared", *unit.write(Path(scratch)), "-x", "none", str(runtime), "-o", str(output)]
        _run([*command, *options, *parts], cache)
        _publish(output, library)
    return library


def check_unit(unit: Unit) -> None:
    """Parse a unit and check its types. Raises BuildError, with the compiler's words, for what is wrong."""
    command = compiler()
    with tempfile.TemporaryDirectory(prefix="kittens-sim-") as scratch:
        # zig has no way to parse and write nothing
        options = [
            *_FLAGS,
            *_machine_flags(command),
            *unit.flags,
            "-O0",
            "-c",
            "-o",
            str(Path(scratch) / "unit.o"),
        ]
        _run([*command, *options, *unit.write(Path(scratch))], cache_folder())


def _runtime_object(command: tuple[str, ...], cache: Path) -> Path:
    options = (*_FLAGS, *_machine_flags(command), "-Wall", "-Wextra")
    built = cache / f"runtime-{_key(*options, *command, _version(command), *_texts([RUNTIME]))}.o"
    if not built.exists():
        with tempfile.TemporaryDirectory(prefix="kittens-sim-") as scratch:
            output = Path(scratch) / "runtime.o"
            _run([*command, *options, "-c", str(RUNTIME / "kt_sim.cpp"), "-o", str(output)], cache)
            _publish(output, built)
    return built


def _publish(made: Path, place: Path) -> None:
    """Move a finished file into the cache in one step, so that no other process sees half of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=place.name)
    with os.fdopen(descriptor, "wb") as file:
        file.write(made.read_bytes())
    os.chmod(name, 0o755)
    os.replace(name, place)


def _run(command: list[str], cache: Path) -> None:
    # zig keeps its own cache of the C library's start files; it belongs beside ours.
    environment = {**os.environ}
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


def _machine_flags(command: tuple[str, ...]) -> tuple[str, ...]:
    """A level of the instruction set that the cache can share between machines of the last ten years."""
    is_zig = (
        command[:3] == _ZIG
    )  # which compiles for this very processor unless told, and spells levels its own way
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ("-mcpu=baseline",) if is_zig else ()
    level = "3" if _has_avx2() else "2"
    return (f"-mcpu=x86_64_v{level}",) if is_zig else (f"-march=x86-64-v{level}",)


def _has_avx2() -> bool:
    if sys.platform == "darwin":
        return True  # every Mac that the current macOS versions run on
    try:
        return {"avx2", "fma", "f16c", "bmi2"} <= set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    except OSError as error:
        raise _not_run(command[0], error) from error
    return done.stdout


def _texts(folders: Iterable[Path]) -> list[str]:
    """The contents of every header, since the result depends on them."""
    files = [file for folder in folders for file in sorted(folder.iterdir())]
    return [file.read_text() for file in files if file.is_file() and file.suffix != ".py"]


def _key(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]
