"""Apple GPUs, after ThunderMittens: Metal text, run through PyObjC on a Mac or by the CPU simulator."""

from __future__ import annotations

import functools
import sys
from importlib.util import find_spec
from typing import Any

from kittens.plugins import hookimpl
from kittens.runtime import Launch, Run
from kittens.targets import Numerics, Rates, Target, TargetInfo, way

ARCHITECTURES = {
    "": "the Apple GPU of this machine",
    "apple7": "Apple M1",
    "apple8": "Apple M2",
    "apple9": "Apple M3, M4",
}


@functools.cache
def missing() -> dict[str, str]:
    """For each way a target could work, what is missing. Packages are looked for, not loaded."""
    from kittens.backends.metal.compile import checker_missing
    from kittens.backends.metal.compile import missing as compiler_missing

    absent = [] if sys.platform == "darwin" else ["macOS"]
    if find_spec("Metal") is None:
        absent.append("PyObjC's Metal (pip install 'kittens-gpu[metal]')")
    out = {"execute": f"missing: {' and '.join(absent)}"} if absent else {}
    ways = {"compile": compiler_missing(), "simulate": checker_missing()}
    return out | {way: f"missing: {why}" for way, why in ways.items() if why}


@hookimpl
def kittens_targets() -> list[TargetInfo]:
    lacks = missing()
    out = []
    for arch, text in ARCHITECTURES.items():
        name = "metal" + (f":{arch}" if arch else "")
        for suffix, also, ways in (
            ("", "", ("execute", "compile")),
            ("@sim", ", simulated on the CPU", ("simulate",)),
        ):
            can = tuple(w for w in ways if w not in lacks)
            said = text if not suffix or arch else f"an Apple GPU ({ARCHITECTURES['apple7']})"
            out.append(TargetInfo(name + suffix, said + also, can, {w: lacks[w] for w in ways if w in lacks}))
    return out


@hookimpl
def kittens_numerics(target: Target) -> Numerics | None:
    if target.backend != "metal":
        return None
    # Largest errors of the device headers' functions, in units in the last place: measured in the simulator
    # (tests/test_sim_math.py), except exp2 and rsqrt, which are Apple's own on a device (reported: 2).
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
    names = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    from kittens.backends.metal.machine import ATOMICS

    return Numerics(ulp, flushes=True, float8=dict.fromkeys(names, "emulated"), atomics=ATOMICS)


@hookimpl
def kittens_tunables(target: Target, kernel: str, arguments: dict[str, Any]) -> dict[str, int] | None:
    if target.backend != "metal":
        return None
    from kittens.backends.metal.tunables import shipped

    return shipped(kernel, arguments)


@hookimpl
def kittens_candidates(
    target: Target, kernel: str, arguments: dict[str, Any]
) -> dict[str, tuple[int, ...]] | None:
    if target.backend != "metal":
        return None
    from kittens.backends.metal.tunables import CANDIDATES

    return CANDIDATES.get(kernel, {})


@hookimpl
def kittens_architecture(target: Target) -> str | None:
    if target.backend != "metal":
        return None
    from kittens.backends.metal.machine import DEFAULT

    if target.arch or target.simulated or "execute" in missing():
        return target.arch or DEFAULT
    from kittens.backends.metal.launch import device_arch

    return device_arch(target.index or 0)


@hookimpl
def kittens_rates(target: Target) -> Rates | None:
    if target.backend != "metal":
        return None
    from kittens.backends.metal.rates import RATES

    return RATES


def _machine(target: Target) -> Any:
    from kittens.backends.metal.machine import DEFAULT, machine

    return machine(target.arch or DEFAULT)


@hookimpl
def kittens_plan(target: Target, function: Any) -> Any:
    if target.backend != "metal":
        return None
    from kittens.codegen.pipeline import planned

    return planned(function, _machine(target))[0]


@hookimpl
def kittens_emit(target: Target, plan: Any) -> Any:
    if target.backend != "metal":
        return None
    from kittens.codegen.pipeline import planned

    return planned(plan.function, _machine(target))[1]


@hookimpl
def kittens_compile(target: Target, function: Any) -> Any:
    if target.backend != "metal":
        return None
    from kittens.backends.metal.compile import compiled

    return compiled(function, _machine(target))


@hookimpl
def kittens_launch(target: Target, launch: Launch) -> Run | None:
    if target.backend != "metal":
        return None
    # A fault of the kernel itself is reported before any device is looked for.
    launch.kernel.trace(launch.arguments, launch.constants, len(launch.grid))
    way(target, launch.kernel.name, missing())
    if target.simulated:
        from kittens.backends.metal.sim import VENDOR
        from kittens.codegen.pipeline import run_simulated

        run_simulated(launch, _machine(target), VENDOR)
        return Run(launch.kernel.name, str(target), "simulated", launch.grid, launch.constants)
    from kittens.backends.metal.launch import execute

    execute(target, launch)
    return Run(launch.kernel.name, str(target), "executed", launch.grid, launch.constants)


@hookimpl
def kittens_run(target: Target, artifact: Any, arguments: Any, grid: Any) -> Run | None:
    if target.backend != "metal":
        return None
    way(target, artifact.kernel, missing())
    if target.simulated:
        from kittens.backends.metal.sim import VENDOR
        from kittens.codegen.pipeline import rerun_simulated

        rerun_simulated(artifact, VENDOR, _machine(target).arch, arguments, grid)
        return Run(artifact.kernel, str(target), "simulated", tuple(grid), artifact.constants)
    from kittens.backends.metal.launch import run_artifact

    run_artifact(target, artifact, arguments, grid)
    return Run(artifact.kernel, str(target), "executed", tuple(grid), artifact.constants)
