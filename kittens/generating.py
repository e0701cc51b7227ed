"""The hooks that every backend which generates source answers alike, made from what the backend brings."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kittens.plugins import hookimpl
from kittens.runtime import Again, Launch, Run
from kittens.targets import Rates, Target, way

if TYPE_CHECKING:
    from kittens.arguments import Argument
    from kittens.artifact import Artifact
    from kittens.codegen import Machine
    from kittens.ir import Function
    from kittens.sim import Vendor

#: Largest errors of the device headers' mathematical functions, in units in the last place of float32: kittens/device
#: has them, tests/test_sim_math.py measures them.
ULP = {
    "exp": 2.0, "exp2": 2.0, "log": 2.0, "log2": 2.0, "rsqrt": 2.0, "sin": 2.0, "cos": 2.0, "tanh": 3.0, "erf": 3.0,
}  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """What a generating backend brings.

    missing: for each of "execute", "compile" and "simulate" that does not work here, what is missing. default: the
    architecture where a name leaves it open and no device settles it. machine: by architecture. compiled: a function
    compiled for a machine. vendor: how its text is simulated. shipped: values for a kernel's tunables. candidates: more
    of them, by kernel and tunable. rates: by architecture. tuned: where the values lie that `kittens tune` found and that are
    shipped; there need be none. device_arch: the architecture of a device, by its number.
    execute: runs a launch of a traced kernel on a device; the way to run it again, if there is one. run_saved: runs a
    saved kernel on a device.

    machine_for: the machine for certain arguments, if they make a difference. check: raises UnavailableError for
    arguments that a saved kernel does not take though their types fit.
    """

    missing: Callable[[], dict[str, str]]
    default: str
    machine: Callable[[str], Machine]
    compiled: Callable[[Function, Machine], Artifact]
    vendor: Vendor
    shipped: Callable[[Target, str, dict[str, Any]], dict[str, int] | None]
    candidates: dict[str, dict[str, tuple[int, ...]]]
    rates: dict[str, Rates]
    tuned: Path
    device_arch: Callable[[int], str]
    execute: Callable[[Target, Launch, Function], Again | None]
    run_saved: Callable[[Target, Artifact, dict[str, Argument], Sequence[int]], None]
    machine_for: Callable[[str, Function, dict[str, Argument]], Machine] | None = None
    check: Callable[[Artifact, dict[str, Argument]], None] | None = None

    def arch(self, target: Target) -> str:
        return target.arch or self.default


def simulator_missing() -> str:
    """What is missing to simulate; an empty string if nothing is. The compiler is looked for, not run."""
    if os.environ.get("KITTENS_CLANG") or find_spec("ziglang") is not None:
        return ""
    return "a host compiler: pip install 'kittens-gpu[sim]'"


def driver_missing(driver: str, files: Sequence[str], packages: Sequence[str], extra: str) -> str:
    """What is missing to run on a device, of a driver that one of some files shows, and of packages that an extra brings."""
    absent = [] if any(map(os.path.exists, files)) else [driver]
    lacking = [name for name in packages if find_spec(name) is None]
    if lacking:
        absent.append(f"{' and '.join(lacking)} (pip install 'kittens-gpu[{extra}]')")
    return f"missing: {', '.join(absent)}" if absent else ""


def hooks(name: str, parts: Callable[[], Parts]) -> dict[str, Any]:
    """Hooks for the targets of backend `name`, to become functions of its module.

    `parts` imports what it gives; it is first called when a hook needs it, so that looking for targets stays quick.
    """

    @hookimpl
    def kittens_tunables(target: Target, kernel: str, arguments: dict[str, Any]) -> dict[str, int] | None:
        return parts().shipped(target, kernel, arguments) if target.backend == name else None

    @hookimpl
    def kittens_candidates(
        target: Target, kernel: str, arguments: dict[str, Any]
    ) -> dict[str, tuple[int, ...]] | None:
        return parts().candidates.get(kernel, {}) if target.backend == name else None

    @hookimpl
    def kittens_tuned(target: Target) -> Path | None:
        return parts().tuned if target.backend == name else None

    @hookimpl
    def kittens_architecture(target: Target) -> str | None:
        if target.backend != name:
            return None
        own = parts()
        if target.arch or target.simulated or "execute" in own.missing():
            return own.arch(target)
        return own.device_arch(target.index or 0)

    @hookimpl
    def kittens_rates(target: Target) -> Rates | None:
        if target.backend != name:
            return None
        own = parts()
        return own.rates.get(own.arch(target))

    @hookimpl
    def kittens_plan(target: Target, function: Function) -> Any:
        if target.backend != name:
            return None
        from kittens.codegen.pipeline import planned

        own = parts()
        return planned(function, own.machine(own.arch(target)))[0]

    @hookimpl
    def kittens_emit(target: Target, plan: Any) -> Any:
        if target.backend != name:
            return None
        from kittens.codegen.pipeline import planned

        return planned(plan.function, plan.machine)[1]

    @hookimpl
    def kittens_compile(target: Target, function: Function) -> Artifact | None:
        if target.backend != name:
            return None
        own = parts()
        return own.compiled(function, own.machine(own.arch(target)))

    @hookimpl
    def kittens_launch(target: Target, launch: Launch) -> Run | None:
        if target.backend != name:
            return None
        # A fault of the kernel itself is reported before any device is looked for.
        function = launch.kernel.trace(launch.arguments, launch.constants, len(launch.grid))
        own = parts()
        way(target, launch.kernel.name, own.missing())
        if not target.simulated:
            again = own.execute(target, launch, function)
            return Run(launch.kernel.name, str(target), "executed", launch.grid, launch.constants, again)
        from kittens.codegen.pipeline import run_simulated

        arch = own.arch(target)
        machine = own.machine_for(arch, function, launch.arguments) if own.machine_for else own.machine(arch)
        run_simulated(launch, machine, own.vendor)
        return Run(launch.kernel.name, str(target), "simulated", launch.grid, launch.constants)

    @hookimpl
    def kittens_run(
        target: Target, artifact: Artifact, arguments: dict[str, Argument], grid: tuple[int, ...]
    ) -> Run | None:
        if target.backend != name:
            return None
        own = parts()
        way(target, artifact.kernel, own.missing())
        if own.check:
            own.check(artifact, arguments)
        if target.simulated:
            from kittens.codegen.pipeline import rerun_simulated

            rerun_simulated(artifact, own.vendor, own.arch(target), arguments, grid)
        else:
            own.run_saved(target, artifact, arguments, grid)
        how = "simulated" if target.simulated else "executed"
        return Run(artifact.kernel, str(target), how, tuple(grid), artifact.constants)

    return {hook: made for hook, made in locals().items() if hook.startswith("kittens_")}
