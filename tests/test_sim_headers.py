"""The device headers compile for the devices themselves: what the simulator runs is what a GPU would get."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from simtools import kernels, program

from kittens.backends.cuda.sim import VENDOR as CUDA
from kittens.backends.hip.sim import VENDOR as HIP
from kittens.backends.metal.sim import VENDOR as METAL
from kittens.sim.vendor import DEVICE

NEUTRAL = (DEVICE / "kt_convert.h", DEVICE / "kt_math.h")  # what the vendors' headers include


def functions(*files: Path) -> set[str]:
    """Names of the functions that device headers declare."""
    texts = "".join(file.read_text() for file in files)
    return set(re.findall(r"^KT_FN \w+ (kt_\w+)\(", texts, re.MULTILINE))


# ---- NVIDIA: by NVRTC


def nvrtc() -> ctypes.CDLL:
    """The library of whichever NVRTC package is installed, or a skipped test."""
    for package in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        try:
            spec = find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (spec.submodule_search_locations or []) if spec else []:
            for path in sorted(Path(folder).glob("lib/libnvrtc.so*")):
                return ctypes.CDLL(str(path))
    pytest.skip("no NVRTC package is installed")


def nvrtc_log(library: ctypes.CDLL, source: str, arch: str) -> str:
    """Compile; the log, empty when there is nothing to say. Fails the test on an error."""
    handle = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(handle), source.encode(), b"k.cu", 0, None, None) == 0
    options = [f"--gpu-architecture={arch}", "--std=c++17", "-fmad=false", "-default-device"]
    options += [f"-I{folder}" for folder in (*CUDA.include, DEVICE)]
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    code = library.nvrtcCompileProgram(handle, len(options), array)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(handle, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(handle, log)
    library.nvrtcDestroyProgram(ctypes.byref(handle))
    text = log.value.decode()
    assert code == 0, text
    return text


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("file", ["basic.cu", "gemm.cu", "every.cu"])
def test_cuda_compiles_for_the_device(file, arch):
    assert nvrtc_log(nvrtc(), kernels(file), arch) == ""


def uncalled(folder: Path, text: str) -> set[str]:
    """Functions of the device headers that neither `text` calls nor another function of them."""
    files = (*folder.glob("*.h"), *NEUTRAL)
    text += "".join(re.sub(r"^KT_FN \w+ kt_\w+\(", "(", f.read_text(), flags=re.MULTILINE) for f in files)
    names = {name for name in functions(*files) if "_soft_" not in name}
    return {name for name in names if not re.search(rf"\b{name}[(<]", text)}


def test_every_cuda_function_is_called_by_the_compile_test():
    assert not uncalled(CUDA.include[1], kernels("every.cu") + kernels("every_hopper.cu"))


# ---- AMD: by the clang that the simulator uses too


@pytest.mark.parametrize("arch", list(HIP.arches))
@pytest.mark.parametrize("file", ["basic.hip", "gemm.hip", "every.hip"])
def test_hip_compiles_for_the_device(file, arch, tmp_path):
    if file == "gemm.hip" and not arch.startswith("gfx9"):
        pytest.skip("written for CDNA")
    pytest.importorskip("ziglang")
    text = kernels("basic.cu").replace("kt_cuda.h", "kt_hip.h") if file == "basic.hip" else kernels(file)
    source, assembly = tmp_path / file, tmp_path / "k.s"
    source.write_text(text)
    command = [sys.executable, "-m", "ziglang", "clang", "-x", "hip", f"--offload-arch={arch}"]
    command += ["--cuda-device-only", "-nogpulib", "-nogpuinc", "-fuse-cuid=none", "-std=c++17", "-O3"]
    command += [
        "-ffp-contract=off",
        "-Wall",
        "-Wno-unused-function",
        "-Wno-inline-asm",
        "-S",
        "-o",
        str(assembly),
        str(source),
    ]
    command += [f"-I{folder}" for folder in (*HIP.include, DEVICE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    # A call would be to a function of a device library, which there is none of.
    assert "s_swappc" not in assembly.read_text()


def test_every_hip_function_is_called_by_the_compile_test():
    assert not uncalled(HIP.include[1], kernels("every.hip"))


# ---- Apple: by the simulator's shim alone, there being no other compiler of Metal off a Mac


def test_metal_compiles():
    assert len(program(METAL, kernels("every.metal"), "every").parameters) == 4


def test_every_metal_function_is_called_by_the_compile_test():
    assert not uncalled(METAL.include[1], kernels("every.metal"))
