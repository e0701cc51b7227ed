"""NVIDIA GPUs, after ThunderKittens. This version knows the targets and does not emit code for them yet."""

from __future__ import annotations

import functools
import os
from importlib.util import find_spec
from typing import Any

from kittens.errors import UnavailableError
from kittens.plugins import hookimpl
from kittens.runtime import Launch, Run
from kittens.targets import Target, TargetInfo

ARCHITECTURES = {
    "": "the NVIDIA GPU of this machine",
    "sm_80": "NVIDIA Ampere (A100)",
    "sm_90a": "NVIDIA Hopper (H100, H200)",
}


@functools.cache
def missing() -> dict[str, str]:
    """For each way a target could work, what is missing. Drivers and packages are looked for, not loaded."""
    text = "this version of kittens does not emit code for NVIDIA GPUs yet"
    absent = [] if any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg"))) else ["the NVIDIA driver"]
    packages = [name for name in ("cupy", "cuda") if find_spec(name) is None]
    if packages:
        absent.append(f"{' and '.join(packages)} (pip install 'kittens-gpu[cuda]')")
    also = f"; also missing here: {', '.join(absent)}" if absent else ""
    return {"execute": text + also, "simulate": text, "compile": text}


@hookimpl
def kittens_targets() -> list[TargetInfo]:
    names = {"cuda" + (f":{arch}" if arch else ""): text for arch, text in ARCHITECTURES.items()}
    return [TargetInfo(name, text, missing=missing()) for name, text in names.items()]


@hookimpl
def kittens_plan(target: Target, function: Any) -> None:
    if target.backend == "cuda":
        raise UnavailableError(
            f"no plan for {target}: {missing()['compile']}", hint="kernel.ir(...) shows the tile IR"
        )


@hookimpl
def kittens_launch(target: Target, launch: Launch) -> Run | None:
    if target.backend != "cuda":
        return None
    # A fault of the kernel itself is reported before any device is looked for.
    launch.kernel.trace(launch.arguments, launch.constants, len(launch.grid))
    raise UnavailableError(
        f"{target} cannot run kernel {launch.kernel.name}: {missing()['execute']}",
        hint="run it on the reference with on='numpy'; `kittens doctor` says what this machine can do",
    )
