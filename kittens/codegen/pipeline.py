"""What every generating backend does alike: from a traced function to a plan, a source, a simulated run. All cached."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kittens.arguments import Argument
from kittens.artifact import Artifact, from_bytes
from kittens.cache import cached, digest
from kittens.codegen.emit import Source, emit
from kittens.codegen.machine import Machine
from kittens.codegen.placement import dtype_of
from kittens.codegen.plan import Plan, make_plan
from kittens.codegen.simulate import simulate
from kittens.dtypes import BY_NAME
from kittens.errors import UnavailableError
from kittens.ir import Function, base
from kittens.runtime import Launch
from kittens.text import print_function

if TYPE_CHECKING:
    from kittens.sim import Vendor

_sources: weakref.WeakKeyDictionary[Function, dict[str, tuple[Plan, Source]]] = weakref.WeakKeyDictionary()
_built: weakref.WeakKeyDictionary[Function, dict[str, Artifact]] = weakref.WeakKeyDictionary()
_PACKAGE = Path(__file__).resolve().parent.parent


def planned(function: Function, machine: Machine) -> tuple[Plan, Source]:
    """The plan of a function for a machine and its source, made once."""
    known = _sources.setdefault(function, {})
    if machine.target not in known:
        plan = make_plan(function, machine)
        try:
            known[machine.target] = plan, emit(plan)
        except UnavailableError:
            if plan.roles is None:
                raise
            plan = make_plan(function, replace(machine, engine=None))  # it may take less shared memory
            known[machine.target] = plan, emit(plan)
    return known[machine.target]


def built(
    function: Function, machine: Machine, compile: Callable[[Plan, Source], Artifact], about: tuple[str, ...]
) -> Artifact:
    """A function compiled for a machine, made once: kept in this process, and on disk.

    What was made before is found by the traced function, so that nothing is planned or written again. `about`: what else
    `compile` depends on besides this package and the folder it is in, such as its compiler's version.
    """
    known = _built.setdefault(function, {})
    if machine.target not in known:
        code = digest(_PACKAGE, Path(compile.__code__.co_filename).resolve().parent)
        parts = ("artifact", code, _facts(machine), *about, _identity(function))
        made = cached(parts, lambda: compile(*planned(function, machine)).to_bytes())
        known[machine.target] = from_bytes(made)
    return known[machine.target]


def _facts(machine: Machine) -> str:
    """What a machine says in plain data; all else of it follows from the code."""
    values = {f.name: getattr(machine, f.name) for f in fields(machine)}
    return repr({k: v for k, v in values.items() if isinstance(v, (bool, int, str))})


def _identity(function: Function) -> str:
    """All that a source depends on of a function: its text, and the Python lines that it quotes."""
    at = {op.location for op in function.body.walk()}
    quoted = sorted({(x.file, x.line, x.source()) for x in at if x is not None})
    return f"{print_function(function, locations=True)}{quoted!r}"


def artifact(
    function: Function, source: Source, target: str, code: bytes, resources: dict[str, Any], asm: str = ""
) -> Artifact:
    """A compiled (or, with no code, an emitted) kernel with its signature."""
    return Artifact(
        kernel=function.name,
        target=target,
        code=code,
        source=source.text,
        entry=source.entry,
        parameters=source.parameters,
        threads=source.threads,
        shared_bytes=source.shared_bytes,
        grid_rank=function.grid_rank,
        signature=tuple((v.name, str(v.type)) for v in function.params),
        written=tuple(sorted(function.stored())),
        unordered=tuple(sorted(_unordered(function))),
        constants=function.constants,
        resources=resources,
        asm=asm,
        packed=source.packed,
        persistent=source.persistent,
        cluster=source.cluster,
        early=source.early,
        messages=source.messages,
    )


def _unordered(function: Function) -> set[str]:
    """Outputs whose floats depend on the order of programs."""
    adds = [
        op
        for op in function.body.walk()
        if op.name == "store_add"
        and not op.attrs.get("ordered")
        and BY_NAME[dtype_of(op.operands[-1])].is_float
    ]
    return {base(op.operands[0]).name for op in adds}


def run_simulated(launch: Launch, machine: Machine, vendor: Vendor) -> None:
    """Run a launch on the simulator."""
    function = launch.kernel.trace(launch.arguments, launch.constants, len(launch.grid))
    _, source = planned(function, machine)
    emitted = artifact(function, source, machine.target, b"", {})
    simulate(emitted, vendor, machine.arch, launch.arguments, launch.grid, source.locations)


def rerun_simulated(
    saved: Artifact, vendor: Vendor, arch: str, arguments: dict[str, Argument], grid: Sequence[int]
) -> None:
    """Run a saved kernel's source on the simulator."""
    simulate(saved, vendor, arch, arguments, grid)
