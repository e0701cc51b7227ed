"""Running a kernel: where, with which tunables, on which grid; and what to say of it afterwards."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kittens import plugins
from kittens.arguments import Argument, ScalarArg, TensorArg
from kittens.errors import ArgumentError, KittensError
from kittens.targets import Target, parse

if TYPE_CHECKING:
    from kittens.kernel import Kernel


@dataclass(frozen=True)
class Launch:
    """A kernel with everything it takes: what a backend's `kittens_launch` is given."""

    kernel: Kernel
    arguments: dict[str, Argument]
    constants: dict[str, Any]
    grid: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """What a kernel call says of itself: where it ran and how ("executed" on silicon, "simulated" on the
    CPU).

    The reference is "executed" on `numpy`. `again` runs the same code on other arguments of the same shapes, strides
    and types: with it a backend lets later calls skip all that the first one found out.
    """

    kernel: str
    target: str
    how: str
    grid: tuple[int, ...]
    constants: dict[str, Any]
    again: Callable[[dict[str, Argument]], None] | None = field(default=None, repr=False, compare=False)


def choose_target(arguments: dict[str, Argument], on: str | Target | None) -> Target:
    """The target named by `on`, or the one where all arrays live. Raises ArgumentError if they do not
    agree.
    """
    if on is not None:
        return plugins.check(parse(on))
    places = {
        a.target: name for name, a in arguments.items() if isinstance(a, TensorArg) and a.target is not None
    }
    if len(places) > 1:
        said = ", ".join(f"{name} on {place}" for place, name in places.items())
        raise ArgumentError(
            f"the arguments live in different places: {said}", hint="move them to one, or say on=..."
        )
    if not places:
        raise ArgumentError(
            "no argument is an array, so nothing says where to run", hint="say on=..., such as on='numpy'"
        )
    return next(iter(places))


def call_by_name(function: Any, values: dict[str, Any], what: str) -> Any:
    """Call a function with those of `values` that it has parameters for."""
    wanted = inspect.signature(function).parameters
    missing = [
        n
        for n, p in wanted.items()
        if n not in values and p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if missing:
        raise ArgumentError(
            f"{what} asks for {', '.join(missing)}, which the kernel does not have",
            hint=f"it can ask for {', '.join(values)}",
        )
    anything = any(p.kind is p.VAR_KEYWORD for p in wanted.values())
    return function(**{n: v for n, v in values.items() if anything or n in wanted})


def evaluate_grid(
    kernel: Kernel, arguments: dict[str, Argument], constants: dict[str, Any]
) -> tuple[int, ...]:
    """The number of programs along each axis of the grid."""
    grid = kernel.grid
    if callable(grid):
        values: dict[str, Any] = {n: a.value if isinstance(a, ScalarArg) else a for n, a in arguments.items()}
        try:
            grid = call_by_name(grid, {**values, **constants}, f"the grid of {kernel.name}")
        except KittensError:
            raise
        except Exception as error:
            raise ArgumentError(
                f"the grid of {kernel.name} cannot be computed: {type(error).__name__}: {error}"
            ) from error
    extents = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    extents = tuple(int(n) if isinstance(n, np.integer) else n for n in extents)
    if not 1 <= len(extents) <= 3:
        raise ArgumentError(f"the grid of {kernel.name} has {len(extents)} axes", hint="a grid has 1 to 3")
    for n in extents:
        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            raise ArgumentError(
                f"the grid of {kernel.name} is {extents}",
                hint="its extents are integers of at least 0; kt.cdiv(n, block) rounds up",
            )
    return extents


#: Launches that a kernel remembers; shapes beyond that are found out anew.
_REMEMBERED = 4096


def run(kernel: Kernel, args: tuple[Any, ...], constants: dict[str, Any], on: str | Target | None) -> Run:
    """Run `kernel` on arrays and scalars."""
    arguments, given = kernel.bind(args, constants)
    kernel.forget_if_stale()
    key = _launch_key(arguments, given, on)
    known = kernel.launches.get(key) if key is not None else None
    if known is not None and known.again is not None:
        known.again(arguments)
        return known
    for name, a in arguments.items():
        if isinstance(a, TensorArg) and a.target is None and a.data is None:
            raise ArgumentError(
                f"argument {name!r} is a kt.spec, which holds no data",
                hint="pass an array; kernel.ir, .plan, .source and .compile take specs",
            )
    target = choose_target(arguments, on)
    settled = kernel.settle(target, arguments, given)
    launch = Launch(kernel, arguments, settled, evaluate_grid(kernel, arguments, settled))
    result = plugins.ask("kittens_launch", target, launch=launch)
    assert isinstance(result, Run)
    if result.again is not None and key is not None:
        if len(kernel.launches) >= _REMEMBERED:
            kernel.launches.clear()
        kernel.launches[key] = result
    return result


def _launch_key(arguments: dict[str, Argument], constants: dict[str, Any], on: str | Target | None) -> Any:
    """Everything but addresses that a launch depends on; None if a constant cannot be told from others."""
    parts: list[Any] = [on, tuple((n, type(v), v) for n, v in constants.items())]
    for a in arguments.values():
        if isinstance(a, TensorArg):
            parts.append((a.dtype.name, a.shape, a.strides, a.alignment, a.target, type(a.data)))
        else:
            parts.append(None if a is None else (a.dtype.name, a.value))
    key = tuple(parts)
    try:
        hash(key)
    except TypeError:
        return None
    return key
