"""Compiling Metal source by Apple's compiler, through PyObjC on a Mac; elsewhere it can only be checked.

Checked means: read by clang over the simulator's shim of Metal, which knows address spaces, and of the
standard library no more than our device functions use. That is no compiler for Apple's GPUs, and nothing
here calls its result compiled.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib.util import find_spec
from typing import Any

from kittens.artifact import Artifact
from kittens.codegen import Plan
from kittens.codegen.emit import Source
from kittens.codegen.pipeline import artifact
from kittens.codegen.pressure import registers
from kittens.errors import InternalError, UnavailableError

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


def compile_source(plan: Plan, source: Source, arch: str) -> Artifact:
    """Compile a source on a Mac, check it elsewhere; the artifact's resources say which ("stage").

    Raises UnavailableError where neither can be done, and for a kernel that needs more registers than a
    thread has: those are predicted by the plan, since Apple's compiler does not tell.
    """
    function = plan.function
    needed = registers(plan)
    if needed > plan.machine.registers:
        raise UnavailableError(
            f"{function.name} needs about {needed} registers a thread, "
            f"metal:{arch} has {plan.machine.registers}",
            hint="use smaller tiles (the kernel's tunables)",
            location=function.location,
        )
    facts: dict[str, Any] = {
        "predicted_registers": needed,
        "shared_bytes": source.shared_bytes,
        "threads": source.threads,
    }
    emitted = artifact(function, source, f"metal:{arch}", b"", facts)
    if not missing():
        facts["max_threads"] = int(build_pipeline(device(0), emitted).maxTotalThreadsPerThreadgroup())
        facts["stage"] = "compiled"
        return emitted
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
    return emitted


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
            hint="use smaller tiles (the kernel's tunables)",
        )
    return pipeline
