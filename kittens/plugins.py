"""Backends are pluggy plugins found through the entry-point group `kittens.backends`; ours are found the same
way.

A backend is a module (or object) with functions marked `@kittens.plugins.hookimpl` and named as below. Each
function answers for its own targets and returns None for others. docs/writing-a-backend.md is the guide.
"""

from __future__ import annotations

import functools
import importlib.metadata
from typing import TYPE_CHECKING, Any

import pluggy

from kittens.errors import TargetError, UnavailableError
from kittens.targets import Numerics, Rates, Rows, Target, TargetInfo

if TYPE_CHECKING:
    from pathlib import Path

    from kittens.arguments import Argument, Reader, TensorArg
    from kittens.artifact import Artifact
    from kittens.dtypes import DType
    from kittens.ir import Function
    from kittens.runtime import Launch, Run

GROUP = "kittens.backends"
hookspec = pluggy.HookspecMarker("kittens")
hookimpl = pluggy.HookimplMarker("kittens")


class Hooks:
    """The hooks of a backend. All but `kittens_targets` stop at the first plugin that answers."""

    @hookspec
    def kittens_targets(self) -> list[TargetInfo]:  # type: ignore[empty-body]
        """The targets of this backend, with what works on this machine. Must not load a vendor library."""

    @hookspec(firstresult=True)
    def kittens_adopt(self, array: Any) -> TensorArg | None:
        """Describe an array without copying it, with the target where it lives; None if the array is not
        yours.
        """

    @hookspec(firstresult=True)
    def kittens_reader(self, array: Any) -> Reader | None:
        """How arrays of the class of this one are read quickly, so that launches on them can be repeated."""

    @hookspec(firstresult=True)
    def kittens_empty(self, like: Any, shape: tuple[int, ...], dtype: DType) -> Any:
        """A new array, its elements not set, of the library and on the device of `like`; None if that is
        not yours.
        """

    @hookspec(firstresult=True)
    def kittens_numerics(self, target: Target) -> Numerics | None:
        """What the target promises of its arithmetic."""

    @hookspec(firstresult=True)
    def kittens_tunables(
        self, target: Target, kernel: str, arguments: dict[str, Any]
    ) -> dict[str, int] | None:
        """Shipped values for the tunables of a kernel, for these arguments."""

    @hookspec(firstresult=True)
    def kittens_candidates(
        self, target: Target, kernel: str, arguments: dict[str, Any]
    ) -> dict[str, tuple[int, ...]] | None:
        """More values for the tunables of a kernel, by name, that are worth trying on the target."""

    @hookspec(firstresult=True)
    def kittens_tuned(self, target: Target) -> Path | None:
        """The file of tunables' values that `kittens tune` found and the backend ships (kittens.tuned); there need be none."""

    @hookspec(firstresult=True)
    def kittens_rows(self, target: Target, kernel: str, arguments: dict[str, Any]) -> Rows | None:
        """How a product's operands should lie, so much that copying those pays which do not; None where it does not."""

    @hookspec(firstresult=True)
    def kittens_adds(self, target: Target, kernel: str, arguments: dict[str, Any]) -> bool | None:
        """Whether a kernel that can add to memory what another would sum, in turn or in no order, had better do so."""

    @hookspec(firstresult=True)
    def kittens_architecture(self, target: Target) -> str | None:
        """The architecture that a target means on this machine, where its name leaves it open."""

    @hookspec(firstresult=True)
    def kittens_rates(self, target: Target) -> Rates | None:
        """What a usual device of the target can do at most."""

    @hookspec(firstresult=True)
    def kittens_plan(self, target: Target, function: Function) -> Any:
        """How the target maps a traced kernel to hardware; printable data."""

    @hookspec(firstresult=True)
    def kittens_emit(self, target: Target, plan: Any) -> str | None:
        """The vendor source of a plan."""

    @hookspec(firstresult=True)
    def kittens_compile(self, target: Target, function: Function) -> Any:
        """Compile a traced kernel; returns the compiled object, whose resources can be read."""

    @hookspec(firstresult=True)
    def kittens_assembly(self, target: Target, artifact: Artifact) -> str | None:
        """The assembly of a compiled kernel, of a backend whose compiler gives none with the code."""

    @hookspec(firstresult=True)
    def kittens_launch(self, target: Target, launch: Launch) -> Run | None:
        """Run a kernel on its arguments and say how that was done. Raises UnavailableError when it cannot."""

    @hookspec(firstresult=True)
    def kittens_run(
        self, target: Target, artifact: Artifact, arguments: dict[str, Argument], grid: tuple[int, ...]
    ) -> Run | None:
        """Run a saved artifact on arguments that fit it."""


def new_manager() -> pluggy.PluginManager:
    """A plugin manager that knows the hooks and has no plugins."""
    manager = pluggy.PluginManager("kittens")
    manager.add_hookspecs(Hooks)
    return manager


@functools.cache
def _loaded() -> tuple[pluggy.PluginManager, dict[str, str]]:
    """The plugin manager with every installed backend, and for those that failed to load, why."""
    manager, failed = new_manager(), {}
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda e: e.name):
        if manager.has_plugin(entry.name):
            continue
        try:
            register(manager, entry.load(), entry.name)
        except (
            Exception
        ) as error:  # a stranger's plugin may fail in any way; it is listed, and the others work
            failed[entry.name] = f"{type(error).__name__}: {error}"
    return manager, failed


def register(manager: pluggy.PluginManager, plugin: object, name: str) -> None:
    """Register a backend; a function whose name or arguments match no hook is an error and leaves nothing
    registered.
    """
    try:
        manager.register(plugin, name)
        manager.check_pending()
    except pluggy.PluginValidationError:
        if manager.has_plugin(name):
            manager.unregister(name=name)
        raise


def manager() -> pluggy.PluginManager:
    """The plugin manager with every backend that could be loaded."""
    return _loaded()[0]


def failed() -> dict[str, str]:
    """Backends that could not be loaded, with the reason."""
    return dict(_loaded()[1])


def targets() -> list[TargetInfo]:
    """Every target of every backend."""
    return [info for infos in reversed(manager().hook.kittens_targets()) for info in infos]


@functools.cache
def check(target: Target) -> Target:
    """`target` itself. Raises TargetError, with the known names, if no backend has it; UnavailableError if
    its backend failed to load.
    """
    infos = {info.name for info in targets()}
    plain = str(Target(target.backend, target.arch))
    if plain in infos and (target.simulated is False or f"{plain}@sim" in infos):
        return target
    if target.backend in failed():
        raise UnavailableError(f"the backend of {target} could not be loaded: {failed()[target.backend]}")
    raise TargetError(f"no target {str(target)!r}", hint=f"the targets are {', '.join(sorted(infos))}")


def ask(hook: str, target: Target, **arguments: Any) -> Any:
    """The answer of the target's backend. Raises UnavailableError if it does not do what is asked."""
    answer = getattr(manager().hook, hook)(target=check(target), **arguments)
    if answer is None:
        raise UnavailableError(f"the backend of {target} does not offer {hook.removeprefix('kittens_')}")
    return answer
