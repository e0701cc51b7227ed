"""NVIDIA GPUs, after ThunderKittens: CUDA text compiled by NVRTC, run through CuPy, or on the CPU simulator."""

from __future__ import annotations

import functools
import os
from importlib.util import find_spec
from typing import Any

from kittens.arguments import TensorArg, contiguous
from kittens.dtypes import DType, as_dtype
from kittens.plugins import hookimpl
from kittens.runtime import Launch, Run
from kittens.targets import Numerics, Target, TargetInfo, infos, way

ARCHITECTURES = {
    "": "the NVIDIA GPU of this machine",
    "sm_80": "NVIDIA Ampere (A100)",
    "sm_90a": "NVIDIA Hopper (H100, H200)",
}


@functools.cache
def missing() -> dict[str, str]:
    """For each way a target could work, what is missing. Drivers and packages are looked for, not loaded."""
    from kittens.backends.cuda.compile import available

    out = {}
    absent = [] if any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg"))) else ["the NVIDIA driver"]
    packages = [name for name in ("cupy", "cuda") if find_spec(name) is None]
    if packages:
        absent.append(f"{' and '.join(packages)} (pip install 'kittens-gpu[cuda]')")
    if absent:
        out["execute"] = f"missing: {', '.join(absent)}"
    if available():
        out["compile"] = available()
    if not os.environ.get("KITTENS_CLANG") and find_spec("ziglang") is None:
        out["simulate"] = "a host compiler: pip install 'kittens-gpu[sim]'"
    return out


@hookimpl
def kittens_targets() -> list[TargetInfo]:
    return infos("cuda", ARCHITECTURES, missing())


@hookimpl
def kittens_adopt(array: Any) -> TensorArg | None:
    library = type(array).__module__.partition(".")[0]
    if library == "torch":
        return _adopt_torch(array)
    if library == "cupy":
        strides = tuple(s // array.itemsize for s in array.strides)
        return _describe(
            as_dtype(array.dtype), array.shape, strides, array.data.ptr, array.device.id, array, True
        )
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        return None
    dtype, shape = as_dtype(interface["typestr"]), tuple(interface["shape"])
    given = interface.get("strides")
    strides = contiguous(shape) if given is None else tuple(s // dtype.bytes for s in given)
    address, read_only = interface["data"]
    return _describe(dtype, shape, strides, address, 0, array, not read_only)


def _adopt_torch(tensor: Any) -> TensorArg | None:
    if not getattr(tensor, "is_cuda", False):
        return None
    dtype = as_dtype(str(tensor.dtype)[6:])  # without "torch."
    return _describe(
        dtype, tuple(tensor.shape), tensor.stride(), tensor.data_ptr(), tensor.device.index or 0, tensor, True
    )


def _describe(
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    address: int,
    device: int,
    owner: Any,
    writable: bool,
) -> TensorArg:
    span = None
    if 0 not in shape:
        high = sum(s * (n - 1) for s, n in zip(strides, shape, strict=False) if s > 0)
        span = (("cuda", device), address, address + dtype.bytes * (1 + high))
    alignment = min(16, address & -address) if address else 16
    return TensorArg(
        dtype, shape, strides, _target(device), _Device(address, owner), writable, alignment, span
    )


@functools.cache
def _target(device: int) -> Target:
    return Target("cuda") if device == 0 else Target("cuda", index=device)


class _Device:
    """An address on a device, and the array that keeps it alive."""

    __slots__ = ("owner", "ptr")

    def __init__(self, ptr: int, owner: Any):
        self.ptr = ptr
        self.owner = owner


@hookimpl
def kittens_empty(like: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    if getattr(like, "__cuda_array_interface__", None) is None:
        return None
    if type(like).__module__.split(".")[0] == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=like.device)
    import cupy

    with cupy.cuda.Device(like.device.id):
        return cupy.empty(shape, dtype.numpy)


@hookimpl
def kittens_numerics(target: Target) -> Numerics | None:
    if target.backend != "cuda":
        return None
    # Largest errors of the device headers' functions, in units in the last place (tests/test_sim_math.py measures them).
    ulp = {
        "exp": 2.0,
        "exp2": 2.0,
        "log": 2.0,
        "log2": 2.0,
        "rsqrt": 2.0,
        "sin": 2.0,
        "cos": 2.0,
        "tanh": 3.0,
        "erf": 3.0,
    }
    native = target.arch == "sm_90a"
    float8 = dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), "native" if native else "emulated")
    return Numerics(ulp, underflows=("exp2",), float8={**float8, "float8_e4m3fnuz": "emulated", "float8_e5m2fnuz": "emulated"})


@hookimpl
def kittens_tunables(target: Target, kernel: str, arguments: dict[str, Any]) -> dict[str, int] | None:
    if target.backend != "cuda":
        return None
    from kittens.backends.cuda.tunables import shipped

    return shipped(target, kernel, arguments)


def _machine(target: Target) -> Any:
    from kittens.backends.cuda.machine import DEFAULT, machine

    return machine(target.arch or DEFAULT)


@hookimpl
def kittens_plan(target: Target, function: Any) -> Any:
    if target.backend != "cuda":
        return None
    from kittens.codegen.pipeline import planned

    return planned(function, _machine(target))[0]


@hookimpl
def kittens_emit(target: Target, plan: Any) -> Any:
    if target.backend != "cuda":
        return None
    from kittens.codegen.pipeline import planned

    return planned(plan.function, _machine(target))[1]


@hookimpl
def kittens_compile(target: Target, function: Any) -> Any:
    if target.backend != "cuda":
        return None
    from kittens.backends.cuda.compile import compiled

    return compiled(function, _machine(target))


@hookimpl
def kittens_launch(target: Target, launch: Launch) -> Run | None:
    if target.backend != "cuda":
        return None
    # A fault of the kernel itself is reported before any device is looked for.
    launch.kernel.trace(launch.arguments, launch.constants, len(launch.grid))
    way(target, launch.kernel.name, missing())
    if target.simulated:
        from kittens.backends.cuda.sim import VENDOR
        from kittens.codegen.pipeline import run_simulated

        run_simulated(launch, _machine(target), VENDOR)
        return Run(launch.kernel.name, str(target), "simulated", launch.grid, launch.constants)
    from kittens.backends.cuda.launch import execute

    again = execute(target, launch)
    return Run(launch.kernel.name, str(target), "executed", launch.grid, launch.constants, again)


@hookimpl
def kittens_run(target: Target, artifact: Any, arguments: Any, grid: Any) -> Run | None:
    if target.backend != "cuda":
        return None
    way(target, artifact.kernel, missing())
    if target.simulated:
        from kittens.backends.cuda.sim import VENDOR
        from kittens.codegen.pipeline import rerun_simulated

        rerun_simulated(artifact, VENDOR, _machine(target).arch, arguments, grid)
        return Run(artifact.kernel, str(target), "simulated", tuple(grid), artifact.constants)
    from kittens.backends.cuda.launch import run_saved

    run_saved(target, artifact, arguments, grid)
    return Run(artifact.kernel, str(target), "executed", tuple(grid), artifact.constants)
