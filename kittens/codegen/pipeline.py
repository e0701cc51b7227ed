"""What every generating backend does alike: from a traced function to a plan, a source, a simulated run. All cached."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from kittens.codegen.emit import Source, emit
from kittens.codegen.machine import Machine
from kittens.codegen.plan import Plan, make_plan
from kittens.codegen.simulate import simulate
from kittens.ir import Function
from kittens.runtime import Launch

if TYPE_CHECKING:
    from kittens.sim import Vendor

_sources: weakref.WeakKeyDictionary[Function, dict[str, tuple[Plan, Source]]] = weakref.WeakKeyDictionary()


def planned(function: Function, machine: Machine) -> tuple[Plan, Source]:
    """The plan of a function for a machine and its source, made once."""
    known = _sources.setdefault(function, {})
    if machine.target not in known:
        plan = make_plan(function, machine)
        known[machine.target] = plan, emit(plan)
    return known[machine.target]


def run_simulated(launch: Launch, machine: Machine, vendor: Vendor) -> None:
    """Run a launch on the simulator."""
    function = launch.kernel.trace(launch.arguments, launch.constants, len(launch.grid))
    _, source = planned(function, machine)
    simulate(source, vendor, machine.arch, launch, function.stored())
