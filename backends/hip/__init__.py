"""AMD GPUs, after HipKittens. This version knows the targets and does not emit code for them yet."""

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
    "": "the AMD GPU of this machine",
    "gfx942": "AMD CDNA3 (MI300X)",
    "gfx950": "AMD CDNA4 (MI355X)",
    "gfx1100": "AMD RDNA3 (RX 7900)",
    "gfx1201": "AMD RDNA4 (RX 9070)",
}


@functools.cache
def missing() -> dict[str, str]:
    """For each way a target could work, what is missing. Drivers and packages are looked for, not loaded."""
    text = "this version of kittens does not emit code for AMD GPUs yet"
    absent = [] if any(map(os.path.exists, ("/dev/kfd", "/dev/dxg"))) else ["the AMD driver"]
    packages = [name for name in ("hip",) if find_spec(name) is None]
    if packages:
        absent.append(f"{' and '.join(packages)} (pip install 'kittens-gpu[hip]')")
    also = f"; also missing here: {', '.join(absent)}" if absent else ""
    return {"execute": text + also, "simulate": text, "compile": text}


@hookimpl
def kittens_targets() -> list[TargetInfo]:
    names = {"hip" + (f":{arch}" if arch else ""): text for arch, text in ARCHITECTURES.items()}
    return [TargetInfo(name, text, missing=missing()) for name, text in names.items()]


@hookimpl
def kittens_plan(target: Target, function: Any) -> None:
    if target.backend == "hip":
        raise UnavailableError(
            f"no plan for {target}: {missing()['compile']}", hint="kernel.ir(...) shows the tile IR"
        )


@hookimpl
def kittens_launch(target: Target, launch: Launch) -> Run | None:
    if target.backend != "hip":
        return None
    # A fault of the kernel itself is reported before any device is looked for.
    launch.kernel.trace(launch.arguments, launch.constants, len(launch.grid))
    raise UnavailableError(
        f"{target} cannot run kernel {launch.kernel.name}: {missing()['execute']}",
        hint="run it on the reference with on='numpy'; `kittens doctor` says what this machine can do",
    )
