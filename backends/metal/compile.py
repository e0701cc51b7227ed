"""Compiling Metal source by Apple's compiler, through PyObjC on a Mac; elsewhere it can only be checked.

Checked means: read by clang over the simulator's shim of Metal, which knows address spaces, and of the
standard library no more than our device functions use. That is no compiler for Apple's GPUs, and nothing
here calls its result compiled.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
from importlib.util import find_spec
from typing import Any

from kittens.artifact import Artifact
from kittens.codegen import Machine, Plan
from kittens.codegen.emit import Source
from kittens.codegen.gates import SMALLER, Binary, check
from kittens.codegen.pipeline import artifact, built, planned
from kittens.codegen.pressure import registers
from kittens.errors import InternalError, UnavailableError
from kittens.ir import Function

#: MTLLanguageVersion3_1 (macOS 14): the first with bfloat. Unset, Metal takes what the Python binary was
#: built for.
LANGUAGE = 0x30001


def missing() -> str:
    """An empty string where Apple's compiler can be asked, else what is missing."""
    if sys.platform != "darwin":
        return "macOS; elsewhere the text is checked over the simulator's shim, not compiled"
    return "" if find_spec("Metal") is not None else "PyObjC's Metal (pip install 'kittens-gpu[metal]')"


def checker_missing() -> str:
    """An empty string if a clang that can check text, and simulate it, is there; else what is missing."""
    if os.environ.get("KITTENS_CLANG") or find_spec("ziglang") is not None:
        return ""
    return "a host compiler: pip install 'kittens-gpu[sim]'"


def compiled(function: Function, machine: Machine) -> Artifact:
    """A function compiled on a Mac, checked elsewhere, where what was checked before is taken from the disk cache."""
    if not missing():
        return compile_source(*planned(function, machine))
    command = os.environ.get("KITTENS_CLANG") or importlib.metadata.version("ziglang")
    return built(function, machine, compile_source, (command,))


def emitted(plan: Plan, source: Source) -> Artifact:
    """A kernel to be compiled by the Mac that runs it.

    Raises UnavailableError for one that needs more registers than a thread has: those are predicted by the plan, since
    Apple's compiler does not tell.
    """
    function, machine = plan.function, plan.machine
    needed = registers(plan)
    if needed > machine.registers:
        raise UnavailableError(
            f"{function.name} needs about {needed} registers a thread, {machine.target} has {machine.registers}",
            hint=SMALLER,
            location=function.location,
        )
    facts = {
        "predicted_registers": needed,
        "shared_bytes": source.shared_bytes,
        "threads": source.threads,
    }
    return artifact(function, source, machine.target, b"", facts)


def compile_source(plan: Plan, source: Source) -> Artifact:
    """Compile a source on a Mac, check it elsewhere; the artifact's resources say which ("stage").

    Raises UnavailableError where neither can be done, and for a kernel that needs too many registers or does not fit.
    """
    arch = plan.machine.arch
    made = emitted(plan, source)
    facts = made.resources
    if not missing():
        pipeline = build_pipeline(device(0), made)
        taken, whole = int(pipeline.staticThreadgroupMemoryLength()), -(-source.shared_bytes // 16) * 16
        check(plan, source, Binary(shared_bytes=taken if taken > whole else source.shared_bytes))
        facts["max_threads"] = int(pipeline.maxTotalThreadsPerThreadgroup())
        facts["stage"] = "compiled"
        return made
    if checker_missing():
        raise UnavailableError(
            f"{source.entry} cannot be compiled for metal:{arch}: missing {missing()}", hint=checker_missing()
        )
    from kittens import sim
    from kittens.backends.metal.sim import VENDOR

    try:
        sim.check(source.text, VENDOR, source.entry, arch)
    except sim.BuildError as error:
        raise InternalError(f"the source of {source.entry} is not right: {str(error)[:3000]}") from error
    facts["stage"] = "checked"
    return made


@functools.cache
def device(index: int) -> Any:
    """A GPU of this Mac. Raises UnavailableError if there is none."""
    import Metal

    devices = list(Metal.MTLCopyAllDevices() or ())
    if index >= len(devices):
        raise UnavailableError(f"no Metal device {index}: there are {len(devices)}")
    return devices[index]


def build_pipeline(gpu: Any, kernel: Artifact) -> Any:
    """The compute pipeline of a source.

    Raises InternalError with the compiler's words, and UnavailableError if the kernel does not fit: Metal
    itself would silently not run a program of more threads than the pipeline allows.
    """
    import Metal

    options = Metal.MTLCompileOptions.alloc().init()
    options.setLanguageVersion_(LANGUAGE)
    if hasattr(options, "setMathMode_"):  # macOS 15
        options.setMathMode_(Metal.MTLMathModeSafe)
    else:
        options.setFastMathEnabled_(False)
    library, error = gpu.newLibraryWithSource_options_error_(kernel.source, options, None)
    if library is None:
        raise InternalError(
            f"the source of {kernel.entry} does not compile: {error.localizedDescription()[:3000]}"
        )
    pipeline, error = gpu.newComputePipelineStateWithFunction_error_(
        library.newFunctionWithName_(kernel.entry), None
    )
    if pipeline is None:
        raise InternalError(f"no pipeline for {kernel.entry}: {error.localizedDescription()[:3000]}")
    most = int(pipeline.maxTotalThreadsPerThreadgroup())
    if kernel.threads > most:
        raise UnavailableError(
            f"{kernel.entry} has {kernel.threads} threads a program; "
            f"with the registers it takes, this GPU runs {most}",
            hint=SMALLER,
        )
    return pipeline
