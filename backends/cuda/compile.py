"""Compiling generated CUDA with NVRTC: no GPU and no driver needed."""

from __future__ import annotations

import functools
import re
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

from kittens.artifact import Artifact
from kittens.backends.cuda.cubin import RESERVED, resources
from kittens.cache import cached
from kittens.codegen import Machine, Plan
from kittens.codegen.emit import Source
from kittens.codegen.gates import Binary, check
from kittens.codegen.pipeline import artifact, built
from kittens.errors import InternalError, UnavailableError
from kittens.ir import Function
from kittens.sim.vendor import DEVICE

_HEADERS = Path(__file__).resolve().parent / "device"
_MARK = b"\0\0\0\0cubin\0"  # between the log and the code in a cache entry
_SPILLS = re.compile(rb"(\d+) bytes spill stores")
#: What ptxas says where it makes wgmma instructions wait for each other.
_SERIAL = re.compile(
    rb"\(C75\d\d\) [^:]*: wgmma\.mma_async instructions are serialized due to ([^\n]*?) in the function"
)
_REGISTER_FILE = 65536
_MISSING = "NVRTC is not installed: pip install 'kittens-gpu[compile]' (or [cuda]) brings it"


def available() -> str:
    """An empty string if NVRTC's bindings are installed, else what is missing. Nothing is imported."""
    spec = find_spec("cuda")
    folders = (spec.submodule_search_locations or []) if spec is not None else []
    return "" if any(any(Path(folder, "bindings").glob("nvrtc*")) for folder in folders) else _MISSING


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
    # Releases of one version differ, and only their package says which it is.
    releases = [
        f"{name} {d.version}" for d in distributions() if "cuda-nvrtc" in (name := d.metadata["Name"] or "")
    ]
    return " ".join([f"{major}.{minor}", *sorted(releases)])


def compiled(function: Function, machine: Machine) -> Artifact:
    """A function compiled for a machine, made once. Raises UnavailableError without NVRTC."""
    return built(function, machine, compile_source, (version(),))


def compile_source(plan: Plan, source: Source) -> Artifact:
    """The compiled kernel, its code from the disk cache if it was compiled before.

    Raises UnavailableError without NVRTC, and for a kernel that spills registers or does not fit.
    """
    arch = plan.machine.arch
    options = (
        f"--gpu-architecture={arch}",
        "--std=c++17",
        "-fmad=false",
        "-default-device",
        "--ptxas-options=-v",
    )
    spilled, serial, code = 0, None, b""
    for more in ((), ("-DKT_ONE_PROGRAM",)):
        tried = (*options, *more)
        parts = ("cubin", version(), *tried, source.text, *headers().values())
        log, _, code = cached(parts, lambda tried=tried: _nvrtc(source, tried)).partition(_MARK)  # type: ignore[misc]
        spilled, serial = sum(map(int, _SPILLS.findall(log))), _SERIAL.search(log)
        if not spilled and serial is None:
            break
    found = resources(code)
    static = found["static_shared_bytes"] - (RESERVED if arch >= "sm_90" else 0)
    binary = Binary(
        spilled=f"{spilled} bytes of registers" if spilled else "",
        serial=serial.group(1).decode() if serial is not None else "",
        shared_bytes=source.shared_bytes + max(static, 0),
        threads=found["max_threads"],
        parameters=found["parameters"],
        registers=-(-found["registers"] // 8) * 8,
        register_file=_REGISTER_FILE,
    )
    check(plan, source, binary)
    facts = {
        "registers": found["registers"],
        "spilled_bytes": spilled,
        "stack_bytes": found["stack_bytes"],
        "shared_bytes": source.shared_bytes,
        "threads": source.threads,
    }
    return artifact(plan.function, source, f"cuda:{arch}", code, facts)


def _nvrtc(source: Source, options: tuple[str, ...]) -> bytes:
    from cuda.bindings import nvrtc

    names = list(headers())
    error, program = nvrtc.nvrtcCreateProgram(
        source.text.encode(),
        f"{source.entry}.cu".encode(),
        len(names),
        [headers()[n].encode() for n in names],
        [n.encode() for n in names],
    )
    try:
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        if int(error):
            raise InternalError(
                f"the source of {source.entry} does not compile: {log.decode(errors='replace')[:3000]}"
            )
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        code = b" " * size
        nvrtc.nvrtcGetCUBIN(program, code)
        return log + _MARK + code
    finally:
        nvrtc.nvrtcDestroyProgram(program)
