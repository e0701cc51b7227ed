"""Apple GPUs, after ThunderMittens: Metal text, run through PyObjC on a Mac or by the CPU simulator."""

from __future__ import annotations

import functools
import sys
from importlib.util import find_spec
from pathlib import Path

from kittens.generating import ULP, Parts, hooks
from kittens.plugins import hookimpl
from kittens.targets import Numerics, Target, TargetInfo

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


def _parts() -> Parts:
    from kittens.backends.metal import compile, launch, machine, rates, sim, tunables

    return Parts(
        missing,
        machine.DEFAULT,
        machine.machine,
        compile.compiled,
        sim.VENDOR,
        tunables.shipped,
        tunables.CANDIDATES,
        dict.fromkeys(ARCHITECTURES, rates.RATES),
        Path(__file__).with_name("tuned.json"),
        launch.device_arch,
        launch.execute,
        launch.run_saved,
    )


globals().update(hooks("metal", _parts))


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
    # On a device exp2 and rsqrt are Apple's own (reported: 2).
    names = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    from kittens.backends.metal.machine import DEFAULT, machine

    own = machine(target.arch or DEFAULT)
    emulated = dict.fromkeys(names, "emulated")
    return Numerics(ULP, flushes=True, float8=emulated, atomics=own.atomics, turns=own.turns)
