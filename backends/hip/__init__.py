"""AMD GPUs, after HipKittens: HIP compiled by clang without ROCm, run by hip-python or the simulator."""

from __future__ import annotations

import functools
import os
from importlib.util import find_spec
from typing import Any

from kittens.arguments import TensorArg
from kittens.backends.hip import arrays
from kittens.dtypes import DType
from kittens.errors import UnavailableError
from kittens.plugins import hookimpl
from kittens.runtime import Launch, Run
from kittens.targets import Numerics, Rates, Target, TargetInfo, infos, way

ARCHITECTURES = {
    "": "the AMD GPU of this machine",
    "gfx942": "AMD CDNA3 (MI300X)",
    "gfx950": "AMD CDNA4 (MI355X)",
    "gfx1100": "AMD RDNA3 (RX 7900)",
    "gfx1201": "AMD RDNA4 (RX 9070)",
}


@functools.cache
def missing() -> dict[str, str]:
    """For each way a target could work, what is missing. Drivers and packages are looked for, not loaded."""
    from kittens.backends.hip.compile import available

    out = {}
    absent = [] if any(map(os.path.exists, ("/dev/kfd", "/dev/dxg"))) else ["the AMD driver"]
    packages = [name for name in ("hip",) if find_spec(name) is None]
    if packages:
        absent.append(f"{' and '.join(packages)} (pip install 'kittens-gpu[hip]')")
    if absent:
        out["execute"] = f"missing: {', '.join(absent)}"
    if available():
        out["compile"] = available()
    if not os.environ.get("KITTENS_CLANG") and find_spec("ziglang") is None:
        out["simulate"] = "a host compiler: pip install 'kittens-gpu[sim]'"
    return out


@hookimpl
def kittens_targets() -> list[TargetInfo]:
    return infos("hip", ARCHITECTURES, missing())


@hookimpl
def kittens_adopt(array: Any) -> TensorArg | None:
    return arrays.adopt(array)


@hookimpl
def kittens_empty(like: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    return arrays.empty(like, shape, dtype)


@hookimpl
def kittens_numerics(target: Target) -> Numerics | None:
    if target.backend != "hip":
        return None
    # Largest errors of the device headers' functions, in units in the last place; tests/test_sim_math.py.
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
    native = {"gfx942": ("e4m3fnuz", "e5m2fnuz"), "gfx1201": ("e4m3fn",), "gfx1100": ()}.get(
        target.arch, ("e4m3fn", "e5m2")
    )
    float8 = {
        f"float8_{n}": "native" if n in native else "emulated"
        for n in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")
    }
    return Numerics(ulp, float8=float8)


@hookimpl
def kittens_tunables(target: Target, kernel: str, arguments: dict[str, Any]) -> dict[str, int] | None:
    if target.backend != "hip":
        return None
    from kittens.backends.hip.tunables import shipped

    return shipped(target, kernel, arguments)


@hookimpl
def kittens_candidates(
    target: Target, kernel: str, arguments: dict[str, Any]
) -> dict[str, tuple[int, ...]] | None:
    if target.backend != "hip":
        return None
    from kittens.backends.hip.tunables import CANDIDATES

    return CANDIDATES.get(kernel, {})


@hookimpl
def kittens_architecture(target: Target) -> str | None:
    if target.backend != "hip":
        return None
    from kittens.backends.hip.machine import DEFAULT

    if target.arch or target.simulated or "execute" in missing():
        return target.arch or DEFAULT
    from kittens.backends.hip.launch import device_arch

    return device_arch(target.index or 0)


@hookimpl
def kittens_rates(target: Target) -> Rates | None:
    if target.backend != "hip":
        return None
    from kittens.backends.hip.machine import DEFAULT
    from kittens.backends.hip.rates import RATES

    return RATES.get(target.arch or DEFAULT)


def _machine(target: Target) -> Any:
    from kittens.backends.hip.machine import DEFAULT, machine

    return machine(target.arch or DEFAULT)


@hookimpl
def kittens_plan(target: Target, function: Any) -> Any:
    if target.backend != "hip":
        return None
    from kittens.codegen.pipeline import planned

    return planned(function, _machine(target))[0]


@hookimpl
def kittens_emit(target: Target, plan: Any) -> Any:
    if target.backend != "hip":
        return None
    from kittens.codegen.pipeline import planned

    return planned(plan.function, plan.machine)[1]


@hookimpl
def kittens_compile(target: Target, function: Any) -> Any:
    if target.backend != "hip":
        return None
    from kittens.backends.hip.compile import compiled

    return compiled(function, _machine(target))


@hookimpl
def kittens_launch(target: Target, launch: Launch) -> Run | None:
    if target.backend != "hip":
        return None
    # A fault of the kernel itself is reported before any device is looked for.
    function = launch.kernel.trace(launch.arguments, launch.constants, len(launch.grid))
    way(target, launch.kernel.name, missing())
    if target.simulated:
        from kittens.backends.hip.machine import DEFAULT, machine_for
        from kittens.backends.hip.sim import VENDOR
        from kittens.codegen.pipeline import run_simulated

        run_simulated(launch, machine_for(target.arch or DEFAULT, function, launch.arguments), VENDOR)
        return Run(launch.kernel.name, str(target), "simulated", launch.grid, launch.constants)
    from kittens.backends.hip.launch import execute

    execute(target, launch)
    return Run(launch.kernel.name, str(target), "executed", launch.grid, launch.constants)


@hookimpl
def kittens_run(target: Target, artifact: Any, arguments: Any, grid: Any) -> Run | None:
    if target.backend != "hip":
        return None
    from kittens.backends.hip.machine import far

    way(target, artifact.kernel, missing())
    if far(artifact.source, artifact.parameters, arguments):
        raise UnavailableError(
            f"{artifact.kernel} was compiled for tensors whose rows lie closer together",
            hint="call the kernel itself",
        )
    if target.simulated:
        from kittens.backends.hip.sim import VENDOR
        from kittens.codegen.pipeline import rerun_simulated

        arch = artifact.target.partition(":")[2].split()[0]
        rerun_simulated(artifact, VENDOR, arch, arguments, grid)
        return Run(artifact.kernel, str(target), "simulated", tuple(grid), artifact.constants)
    from kittens.backends.hip.launch import run_artifact

    run_artifact(artifact, arguments, grid, target.index or 0)
    return Run(artifact.kernel, str(target), "executed", tuple(grid), artifact.constants)
