"""The words of Hopper's copies and products compile for the device, and mean what they should there."""

from __future__ import annotations

import re

import pytest
from simtools import kernels

from kittens.backends.cuda import wgmma
from kittens.backends.cuda.compile import available, headers
from kittens.backends.cuda.wgmma import Product

TYPES = [("bf16", "bf16"), ("f16", "f16"), ("s8", "s8")]
TYPES += [(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
EVERY = [Product(64, a, b, form) for a, b in TYPES for form in ("ss", "rs")]


def compiled(source: str, arch: str) -> tuple[str, str]:
    """The log of NVRTC, and the PTX where `arch` names a virtual architecture."""
    if available():
        pytest.skip(available())
    from cuda.bindings import nvrtc

    names = [n.encode() for n in headers()]
    texts = [t.encode() for t in headers().values()]
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"k.cu", len(names), texts, names)
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17", b"-fmad=false", b"-default-device"]
    if arch.startswith("sm"):
        options.append(b"--ptxas-options=-v")
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert int(error) == 0, log.decode()
    ptx = bytearray()
    if arch.startswith("compute"):
        _, size = nvrtc.nvrtcGetPTXSize(program)
        ptx = bytearray(size)
        nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(program)
    return log.decode(), ptx.decode()


def source() -> str:
    """The kernel that uses every function, with the wrappers it needs."""
    return f'#include "kt_cuda.h"\n{wgmma.wrappers(EVERY, {32, 64}, {32})}\n{kernels("every_hopper.cu")}'


def test_every_function_compiles_without_a_word_from_the_assembler():
    log, _ = compiled(source(), "sm_90a")
    assert "(C7" not in log and "warning" not in log, log
    assert "0 bytes spill stores" in log


def test_arrivals_and_waits_are_plain():
    """Scoped ones order all memory at each stage, and cost a third of the time."""
    _, ptx = compiled(source(), "compute_90a")
    used = re.findall(r"(mbarrier\.(?:arrive|try_wait)[\w.:]*)", ptx)
    assert used and not [u for u in used if ".release" in u or ".acquire" in u]
    assert "ld.param.b" not in ptx and ".local" not in ptx  # maps are named where they lie, not copied


def test_the_assembly_of_a_product():
    text = wgmma.wrappers([Product(8, "bf16", "bf16", "ss"), Product(8, "e4m3", "e5m2", "rs")])
    assert (
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, add, 1, 1, %7, %8; }"
        in text
    )
    assert "m64n8k32.f32.e4m3.e5m2 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, add, 1, 1; }" in text
    assert text.count("KT_FN") == 2


WRONG = [
    (60, "bf16", "bf16", "ss"),
    (264, "f16", "f16", "ss"),
    (40, "s8", "s8", "ss"),
    (64, "bf16", "f16", "ss"),
    (64, "e4m3", "bf16", "ss"),
    (64, "tf32", "tf32", "ss"),
    (64, "bf16", "bf16", "sr"),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_products_that_the_hardware_lacks(wrong):
    with pytest.raises(ValueError):
        Product(*wrong)
