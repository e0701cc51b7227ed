"""Compiling generated CUDA with NVRTC: no GPU and no driver needed."""

from __future__ import annotations

import functools
import re
from importlib.util import find_spec
from pathlib import Path

from kittens.artifact import Artifact
from kittens.codegen.cache import cached
from kittens.codegen.emit import Source
from kittens.codegen.pipeline import artifact
from kittens.errors import InternalError, UnavailableError
from kittens.ir import Function
from kittens.sim.vendor import DEVICE

_HEADERS = Path(__file__).resolve().parent / "device"
_MARK = b"\0\0\0\0cubin\0"  # between the log and the code in a cache entry
_FACTS = {
    "registers": r"Used (\d+) registers",
    "spilled_bytes": r"(\d+) bytes spill stores",
    "stack_bytes": r"(\d+) bytes stack frame",
}
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
    return f"{major}.{minor}"


def compile_source(function: Function, source: Source, arch: str) -> Artifact:
    """The compiled kernel, from the disk cache if it was compiled before.

    Raises UnavailableError without NVRTC, and for a kernel that spills registers.
    """
    options = (
        f"--gpu-architecture={arch}",
        "--std=c++17",
        "-fmad=false",
        "-default-device",
        "--ptxas-options=-v",
    )
    facts: dict[str, int] = {}
    code = b""
    for more in ((), ("-DKT_ONE_PROGRAM",)):
        tried = (*options, *more)
        parts = ("cubin", version(), *tried, source.text, *headers().values())
        log, _, code = cached(parts, lambda tried=tried: _nvrtc(source, tried)).partition(_MARK)  # type: ignore[misc]
        found = {name: re.search(pattern, log.decode(errors="replace")) for name, pattern in _FACTS.items()}
        facts = {name: int(match[1]) if match else 0 for name, match in found.items()}
        if not facts["spilled_bytes"]:
            break
    else:
        raise UnavailableError(
            f"{source.entry} spills {facts['spilled_bytes']} bytes of registers on {arch}",
            hint="use smaller tiles (the kernel's tunables)",
            location=function.location,
        )
    resources = {**facts, "shared_bytes": source.shared_bytes, "threads": source.threads}
    return artifact(function, source, f"cuda:{arch}", code, resources)


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
