"""Compiling generated CUDA with NVRTC: no GPU and no driver needed."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kittens.codegen.cache import cached
from kittens.codegen.emit import Source
from kittens.errors import InternalError, UnavailableError
from kittens.sim.vendor import DEVICE

_HEADERS = Path(__file__).resolve().parent / "device"
_MISSING = "NVRTC is not installed: pip install 'kittens-gpu[compile]' (or [cuda]) brings it"


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel takes: 32-bit registers a thread, spilled bytes, bytes of shared memory."""

    registers: int
    spill_bytes: int
    shared_bytes: int
    threads: int

    def __str__(self) -> str:
        return (
            f"{self.registers} registers a thread, {self.spill_bytes} bytes spilled, "
            f"{self.shared_bytes} bytes of shared memory, {self.threads} threads"
        )


@dataclass(frozen=True)
class Compiled:
    """A cubin with the source it came from and what it takes."""

    code: bytes
    source: Source
    arch: str
    resources: Resources


def available() -> str:
    """An empty string if NVRTC can be loaded, else what is missing."""
    try:
        return "" if find_spec("cuda.bindings.nvrtc") is not None else _MISSING
    except ModuleNotFoundError:
        return _MISSING


@functools.cache
def headers() -> dict[str, str]:
    """The device headers that generated text includes, by name."""
    return {p.name: p.read_text() for d in (_HEADERS, DEVICE) for p in sorted(d.glob("*.h"))}


@functools.cache
def version() -> str:
    """NVRTC's version. Raises UnavailableError if it cannot be loaded."""
    if available():
        raise UnavailableError(available())
    from cuda.bindings import nvrtc

    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as error:
        raise UnavailableError(f"NVRTC could not be loaded: {error}", hint=_MISSING) from error
    return f"{major}.{minor}"


def compile_source(source: Source, arch: str, *, spills: bool = False) -> Compiled:
    """The compiled kernel, from the disk cache if it was compiled before.

    Raises UnavailableError without NVRTC, and for a kernel that spills registers (unless `spills`).
    """
    options = (f"--gpu-architecture={arch}", "--std=c++17", "-fmad=false", "-default-device", "--ptxas-options=-v")
    parts = ("cubin", version(), *options, source.text, *headers().values())
    data = cached(parts, lambda: _nvrtc(source, options))
    log, _, code = data.partition(b"\0\0\0\0cubin\0")
    text = log.decode(errors="replace")
    registers = re.search(r"Used (\d+) registers", text)
    spilled = re.search(r"(\d+) bytes spill stores", text)
    resources = Resources(int(registers[1]) if registers else 0, int(spilled[1]) if spilled else 0, source.shared_bytes, source.threads)
    if resources.spill_bytes and not spills:
        raise UnavailableError(
            f"{source.entry} spills {resources.spill_bytes} bytes of registers on {arch}", hint="use smaller tiles (the kernel's tunables)"
        )
    return Compiled(code, source, arch, resources)


def _nvrtc(source: Source, options: tuple[str, ...]) -> bytes:
    from cuda.bindings import nvrtc

    names = list(headers())
    error, program = nvrtc.nvrtcCreateProgram(
        source.text.encode(), f"{source.entry}.cu".encode(), len(names), [headers()[n].encode() for n in names], [n.encode() for n in names]
    )
    try:
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        if int(error):
            raise InternalError(f"the source of {source.entry} does not compile: {log.decode(errors='replace')[:3000]}")
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        code = b" " * size
        nvrtc.nvrtcGetCUBIN(program, code)
        return log + b"\0\0\0\0cubin\0" + code
    finally:
        nvrtc.nvrtcDestroyProgram(program)
