"""Compiling generated HIP with the clang and lld of the `ziglang` package: no ROCm and no GPU needed."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from kittens.artifact import Artifact
from kittens.backends.hip.codeobject import resources
from kittens.cache import cached
from kittens.codegen import Machine, Plan
from kittens.codegen.emit import Source
from kittens.codegen.gates import Binary, check
from kittens.codegen.pipeline import artifact, built
from kittens.errors import InternalError, UnavailableError
from kittens.ir import Function
from kittens.sim.vendor import DEVICE

_HEADERS = Path(__file__).resolve().parent / "device"
_MISSING = "clang for AMD GPUs is missing: pip install 'kittens-gpu[compile]' (or [hip]) brings it"
_MARK = b"\0\0\0\0code object\0"


def available() -> str:
    """An empty string if the compiler is installed, else what is missing."""
    return "" if find_spec("ziglang") is not None else _MISSING


@functools.cache
def headers() -> dict[str, str]:
    """The device headers that generated text includes, by name."""
    return {p.name: p.read_text() for d in (_HEADERS, DEVICE) for p in sorted(d.glob("*.h"))}


@functools.cache
def version() -> str:
    """The version of the compiler. Raises UnavailableError without one."""
    if available():
        raise UnavailableError(available())
    return importlib.metadata.version("ziglang")


def compiled(function: Function, machine: Machine) -> Artifact:
    """A function compiled for a machine, made once. Raises UnavailableError without a compiler."""
    return built(function, machine, compile_source, (version(),))


def compile_source(plan: Plan, source: Source) -> Artifact:
    """The compiled kernel; its code from the disk cache if it was compiled before.

    Raises UnavailableError without a compiler, and for a kernel that spills registers or does not fit.
    """
    arch = plan.machine.arch
    options = (
        "-x", "hip", f"--offload-arch={arch}", "--cuda-device-only", "-nogpulib", "-nogpuinc",
        "-fuse-cuid=none", "-std=c++17", "-O3", "-ffp-contract=off", "-Wno-pass-failed",
    )  # fmt: skip
    parts = (
        "code object",
        version(),
        arch,
        *options,
        source.text,
        *headers().values(),
    )
    asm, _, code = cached(parts, lambda: _built(source, arch, options)).partition(_MARK)
    taken = resources(code, arch)
    spilled = taken["spilled"] or taken["scratch_bytes"]
    binary = Binary(
        spilled=f"{taken['spilled']} registers, {taken['scratch_bytes']} bytes" if spilled else "",
        shared_bytes=taken["shared_bytes"],
        threads=taken["threads"],
        parameters=taken["parameters"],
    )
    check(plan, source, binary)
    return artifact(plan.function, source, f"hip:{arch}", code, taken, asm.decode())


def _built(source: Source, arch: str, options: tuple[str, ...]) -> bytes:
    """Assembly and code. Where the compiler has what scalar registers are asked for in vector registers, it is told to move
    it, which costs instructions that other kernels do without.
    """
    try:
        return _build(source, arch, options)
    except InternalError as error:
        if "illegal VGPR to SGPR copy" not in error.message:
            raise
    return _build(source, arch, (*options, "-DKT_FIRST_LANE"))


def _build(source: Source, arch: str, options: tuple[str, ...]) -> bytes:
    # Three commands: the wheel has clang and lld inside one program, which clang's own driver does not find.
    with tempfile.TemporaryDirectory(prefix="kittens-hip-") as folder:
        Path(folder, "kernel.hip").write_text(source.text)
        searched = [f"-I{d}" for d in (_HEADERS, DEVICE)]
        _zig(source, folder, "clang", *options, *searched, "-S", "-o", "kernel.s", "kernel.hip")
        _zig(
            source,
            folder,
            "clang",
            "-target",
            "amdgcn-amd-amdhsa",
            f"-mcpu={arch}",
            "-c",
            "-o",
            "kernel.o",
            "kernel.s",
        )
        _zig(source, folder, "ld.lld", "-shared", "--no-undefined", "-o", "kernel.hsaco", "kernel.o")
        return Path(folder, "kernel.s").read_bytes() + _MARK + Path(folder, "kernel.hsaco").read_bytes()


@functools.cache
def _program() -> str:
    spec = find_spec("ziglang")
    assert spec is not None and spec.origin is not None
    return os.path.join(os.path.dirname(spec.origin), "zig" + (".exe" if os.name == "nt" else ""))


def _zig(source: Source, folder: str, *arguments: str) -> None:
    done = subprocess.run([_program(), *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise InternalError(f"the source of {source.entry} does not compile: {done.stderr.strip()[:3000]}")
