"""AMD GPUs, after HipKittens: HIP compiled by clang without ROCm, run by hip-python or the simulator."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from kittens.arguments import TensorArg
from kittens.backends.hip import arrays
from kittens.dtypes import DType
from kittens.generating import ULP, Parts, driver_missing, hooks, simulator_missing
from kittens.plugins import hookimpl
from kittens.targets import Numerics, Target, TargetInfo, infos

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

    out = {
        "execute": driver_missing("the AMD driver", ("/dev/kfd", "/dev/dxg"), ("hip",), "hip"),
        "compile": available(),
        "simulate": simulator_missing(),
    }
    return {way: why for way, why in out.items() if why}


def _parts() -> Parts:
    from kittens.backends.hip import compile, launch, machine, rates, sim, tunables

    return Parts(
        missing,
        machine.DEFAULT,
        machine.machine,
        compile.compiled,
        sim.VENDOR,
        tunables.shipped,
        tunables.CANDIDATES,
        rates.RATES,
        Path(__file__).with_name("tuned.json"),
        launch.device_arch,
        launch.execute,
        launch.run_saved,
        machine.machine_for,
        machine.check_saved,
    )


globals().update(hooks("hip", _parts))


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
    native = {"gfx942": ("e4m3fnuz", "e5m2fnuz"), "gfx1201": ("e4m3fn",), "gfx1100": ()}.get(
        target.arch, ("e4m3fn", "e5m2")
    )
    float8 = {
        f"float8_{n}": "native" if n in native else "emulated"
        for n in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")
    }
    from kittens.backends.hip.machine import DEFAULT, machine

    own = machine(target.arch or DEFAULT)
    return Numerics(ULP, float8=float8, atomics=own.atomics, turns=own.turns)
