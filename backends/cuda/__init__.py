"""NVIDIA GPUs, after ThunderKittens: CUDA text compiled by NVRTC, run through CuPy, or on the CPU simulator."""

from __future__ import annotations

import functools
import os
from importlib.util import find_spec
from typing import Any

from kittens.arguments import Reader, TensorArg
from kittens.backends.cuda import arrays
from kittens.dtypes import DType
from kittens.plugins import hookimpl
from kittens.runtime import Launch, Run
from kittens.targets import Numerics, Rates, Target, TargetInfo, infos, way

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
    return arrays.adopt(array)


@hookimpl
def kittens_reader(array: Any) -> Reader | None:
    return arrays.reader(array)


@hookimpl
def kittens_empty(like: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    return arrays.empty(like, shape, dtype)


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
    return Numerics(
        ulp,
        underflows=("exp2",),
        float8={**float8, "float8_e4m3fnuz": "emulated", "float8_e5m2fnuz": "emulated"},
    )


@hookimpl
def kittens_tunables(target: Target, kernel: str, arguments: dict[str, Any]) -> dict[str, int] | None:
    if target.backend != "cuda":
        return None
    from kittens.backends.cuda.tunables import shipped

    return shipped(target, kernel, arguments)


@hookimpl
def kittens_adds(target: Target, kernel: str, arguments: dict[str, Any]) -> bool | None:
    if target.backend != "cuda":
        return None
    from kittens.backends.cuda.tunables import adds

    return adds(target, kernel, arguments)


@hookimpl
def kittens_row_bytes(target: Target, kernel: str, arguments: dict[str, Any]) -> int | None:
    if target.backend != "cuda":
        return None
    from kittens.backends.cuda.tunables import row_bytes

    return row_bytes(target, kernel, arguments)


@hookimpl
def kittens_candidates(
    target: Target, kernel: str, arguments: dict[str, Any]
) -> dict[str, tuple[int, ...]] | None:
    if target.backend != "cuda":
        return None
    from kittens.backends.cuda.tunables import CANDIDATES

    return CANDIDATES.get(kernel, {})


@hookimpl
def kittens_architecture(target: Target) -> str | None:
    if target.backend != "cuda":
        return None
    from kittens.backends.cuda.machine import DEFAULT

    if target.arch or target.simulated or "execute" in missing():
        return target.arch or DEFAULT
    from kittens.backends.cuda.launch import device_arch

    return device_arch(target.index or 0)


@hookimpl
def kittens_rates(target: Target) -> Rates | None:
    if target.backend != "cuda":
        return None
    from kittens.backends.cuda.machine import DEFAULT
    from kittens.backends.cuda.rates import RATES

    return RATES.get(target.arch or DEFAULT)


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
    function = launch.kernel.trace(launch.arguments, launch.constants, len(launch.grid))
    way(target, launch.kernel.name, missing())
    if target.simulated:
        from kittens.backends.cuda.sim import VENDOR
        from kittens.codegen.pipeline import run_simulated

        run_simulated(launch, _machine(target), VENDOR)
        return Run(launch.kernel.name, str(target), "simulated", launch.grid, launch.constants)
    from kittens.backends.cuda.launch import execute

    again = execute(target, launch, function)
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
