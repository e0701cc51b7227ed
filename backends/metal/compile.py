"""Compiling Metal source: by Apple's compiler on a Mac, through PyObjC; elsewhere the text can only be checked.

Checked means: read by clang over the simulator's shim of Metal, which knows address spaces and of the standard library
no more than our device functions use. It is no compiler for Apple's GPUs, and nothing here calls its result compiled.
"""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from kittens.codegen.cache import cached
from kittens.codegen.emit import Source
from kittens.errors import InternalError, UnavailableError

#: MTLLanguageVersion3_1 (macOS 14): the first with bfloat. Unset, Metal would take an older one from the Python binary.
LANGUAGE = 0x30001


@dataclass(frozen=True)
class Resources:
    """What a kernel takes. `registers` are predicted by the plan, a thread's 32-bit ones at most: Apple's compiler does
    not tell. `max_threads`, of a program, is told once a pipeline exists; None until then.
    """

    registers: int
    shared_bytes: int
    threads: int
    max_threads: int | None = None

    def __str__(self) -> str:
        known = f", {self.max_threads} threads at most" if self.max_threads else ", not yet seen by Apple's compiler"
        return (
            f"{self.registers} registers a thread (predicted), {self.shared_bytes} bytes of threadgroup memory, "
            f"{self.threads} threads{known}"
        )


@dataclass(frozen=True)
class Compiled:
    """A kernel's text, and how far it has come: "compiled" by Apple's compiler (`pipeline` is its result), or "checked"."""

    source: Source
    arch: str
    how: str
    resources: Resources
    pipeline: Any = None

    def __str__(self) -> str:
        return f"{self.source.entry} for metal:{self.arch}, {self.how}: {self.resources}"


def missing() -> str:
    """An empty string where Apple's compiler can be asked, else what is missing."""
    if sys.platform != "darwin":
        return "macOS, whose compiler it is; elsewhere the text is checked over the simulator's shim, not compiled"
    return "" if find_spec("Metal") is not None else "PyObjC's Metal (pip install 'kittens-gpu[metal]')"


def checker_missing() -> str:
    """An empty string if a clang that can check text, and simulate it, is there; else what is missing."""
    if os.environ.get("KITTENS_CLANG") or find_spec("ziglang") is not None:
        return ""
    return "a host compiler: pip install 'kittens-gpu[sim]'"


def compile_source(source: Source, arch: str, registers: int) -> Compiled:
    """Compile a source on a Mac, check it elsewhere. Raises UnavailableError where neither can be done."""
    resources = Resources(registers, source.shared_bytes, source.threads)
    if not missing():
        pipeline = build_pipeline(device(0), source)
        most = int(pipeline.maxTotalThreadsPerThreadgroup())
        return Compiled(source, arch, "compiled", Resources(registers, source.shared_bytes, source.threads, most), pipeline)
    if checker_missing():
        raise UnavailableError(f"{source.entry} cannot be compiled for metal:{arch}: missing {missing()}", hint=checker_missing())
    from kittens import sim
    from kittens.backends.metal.sim import VENDOR

    def check() -> bytes:
        try:
            sim.check(source.text, VENDOR, source.entry, arch)
        except sim.BuildError as error:
            raise InternalError(f"the source of {source.entry} is not right: {str(error)[:3000]}") from error
        return b"checked"

    cached(("metal check", *sim.compiler_key(), source.text), check)
    return Compiled(source, arch, "checked", resources)


@functools.cache
def device(index: int) -> Any:
    """A GPU of this Mac. Raises UnavailableError if there is none."""
    import Metal

    devices = list(Metal.MTLCopyAllDevices() or ())
    if index >= len(devices):
        raise UnavailableError(f"no Metal device {index}: there are {len(devices)}")
    return devices[index]


def build_pipeline(gpu: Any, source: Source) -> Any:
    """The compute pipeline of a source. Raises InternalError with the compiler's words, and UnavailableError if the
    kernel does not fit: Metal itself would silently not run a program of more threads than the pipeline allows.
    """
    import Metal

    options = Metal.MTLCompileOptions.alloc().init()
    options.setLanguageVersion_(LANGUAGE)
    if hasattr(options, "setMathMode_"):  # macOS 15
        options.setMathMode_(Metal.MTLMathModeSafe)
    else:
        options.setFastMathEnabled_(False)
    library, error = gpu.newLibraryWithSource_options_error_(source.text, options, None)
    if library is None:
        raise InternalError(f"the source of {source.entry} does not compile: {error.localizedDescription()[:3000]}")
    pipeline, error = gpu.newComputePipelineStateWithFunction_error_(library.newFunctionWithName_(source.entry), None)
    if pipeline is None:
        raise InternalError(f"no pipeline for {source.entry}: {error.localizedDescription()[:3000]}")
    most = int(pipeline.maxTotalThreadsPerThreadgroup())
    if source.threads > most:
        raise UnavailableError(
            f"{source.entry} has {source.threads} threads a program; with the registers it takes, this GPU runs {most}",
            hint="use smaller tiles (the kernel's tunables)",
        )
    return pipeline
