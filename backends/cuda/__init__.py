"""NVIDIA GPUs, after ThunderKittens: CUDA text compiled by NVRTC, run through CuPy, or on the CPU simulator."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kittens.arguments import Reader, TensorArg
from kittens.backends.cuda import arrays
from kittens.dtypes import DType
from kittens.generating import ULP, Parts, driver_missing, hooks, simulator_missing
from kittens.plugins import hookimpl
from kittens.targets import Numerics, Rows, Target, TargetInfo, infos

if TYPE_CHECKING:
    from kittens.artifact import Artifact

ARCHITECTURES = {
    "": "the NVIDIA GPU of this machine",
    "sm_80": "NVIDIA Ampere (A100)",
    "sm_90a": "NVIDIA Hopper (H100, H200)",
}


@functools.cache
def missing() -> dict[str, str]:
    """For each way a target could work, what is missing. Drivers and packages are looked for, not loaded."""
    from kittens.backends.cuda.compile import available

    out = {
        "execute": driver_missing(
            "the NVIDIA driver", ("/dev/nvidiactl", "/dev/dxg"), ("cupy", "cuda"), "cuda"
        ),
        "compile": available(),
        "simulate": simulator_missing(),
    }
    return {way: why for way, why in out.items() if why}


def _parts() -> Parts:
    from kittens.backends.cuda import compile, launch, machine, rates, sim, tunables

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
    )


globals().update(hooks("cuda", _parts))


@hookimpl
def kittens_targets() -> list[TargetInfo]:
    return infos("cuda", ARCHITECTURES, missing())


@hookimpl
def kittens_assembly(target: Target, artifact: Artifact) -> str | None:
    if target.backend != "cuda":
        return None
    from kittens.backends.cuda.assembly import assembly

    return assembly(artifact)


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
    from kittens.backends.cuda.machine import DEFAULT, machine

    own, native = machine(target.arch or DEFAULT), target.arch == "sm_90a"
    float8 = dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), "native" if native else "emulated")
    return Numerics(
        ULP,
        underflows=("exp2",),
        float8={**float8, "float8_e4m3fnuz": "emulated", "float8_e5m2fnuz": "emulated"},
        atomics=own.atomics,
        turns=own.turns,
    )


@hookimpl
def kittens_adds(target: Target, kernel: str, arguments: dict[str, Any]) -> bool | None:
    if target.backend != "cuda":
        return None
    from kittens.backends.cuda.tunables import adds

    return adds(target, kernel, arguments)


@hookimpl
def kittens_rows(target: Target, kernel: str, arguments: dict[str, Any]) -> Rows | None:
    if target.backend != "cuda":
        return None
    from kittens.backends.cuda.tunables import rows

    return rows(target, kernel, arguments)
