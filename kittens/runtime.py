"""Running a kernel: where, with which tunables, on which grid; and what to say of it afterwards."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kittens import dispatch, plugins
from kittens.arguments import Argument, ScalarArg, TensorArg
from kittens.errors import ArgumentError, KittensError, UnavailableError
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
class Again:
    """How a backend repeats a launch, on arguments that differ from its own in addresses and in the values of scalars alone.

    run takes these, one for each argument that is not None, in order: the address of an array's first element, or a
    number. It trusts that outputs share no memory with other arguments. written: names of the outputs.
    """

    run: Callable[..., None]
    written: frozenset[str]


@dataclass(frozen=True)
class Run:
    """What a kernel call says of itself: where it ran and how ("executed" on silicon, "simulated" on the
    CPU).

    The reference is "executed" on `numpy`.
    """

    kernel: str
    target: str
    how: str
    grid: tuple[int, ...]
    constants: dict[str, Any]
    again: Again | None = field(default=None, repr=False, compare=False)


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


@functools.lru_cache(4096)
def _wanted(function: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function."""
    return inspect.signature(function).parameters


def call_by_name(function: Any, values: dict[str, Any], what: str) -> Any:
    """Call a function with those of `values` that it has parameters for."""
    wanted = _wanted(function)
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


def grid_reads(kernel: Kernel, name: str) -> bool:
    """Whether a kernel's grid depends on an argument's value."""
    wanted = _wanted(kernel.grid) if callable(kernel.grid) else {}
    return name in wanted or any(p.kind is p.VAR_KEYWORD for p in wanted.values())


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
    return grid_extents(grid, kernel.name)


def grid_extents(grid: Any, name: str) -> tuple[int, ...]:
    """The extents of a kernel's grid: a number, or up to three. Raises ArgumentError for what are no extents."""
    extents = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    extents = tuple(int(n) if isinstance(n, np.integer) else n for n in extents)
    if not 1 <= len(extents) <= 3:
        raise ArgumentError(f"the grid of {name} has {len(extents)} axes", hint="a grid has 1 to 3")
    for n in extents:
        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            raise ArgumentError(
                f"the grid of {name} is {extents}",
                hint="its extents are integers of at least 0; kt.cdiv(n, block) rounds up",
            )
    return extents


def programs(grid: Sequence[int]) -> int:
    """How many programs a grid has. Raises UnavailableError for more than targets can number."""
    count = math.prod(grid)
    if count >= 2**31:
        raise UnavailableError(
            f"a grid of {count} programs: 2^31 - 1 at most", hint="give each program more to do"
        )
    return count


def run(kernel: Kernel, args: tuple[Any, ...], constants: dict[str, Any], on: str | Target | None) -> Run:
    """Run `kernel` on arrays and scalars."""
    arguments, given = kernel.bind(args, constants)
    kernel.forget_if_stale()
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
    if result.again is not None:
        _remember(kernel, args, constants, on, arguments, result, result.again)
    return result


def _remember(
    kernel: Kernel, args: tuple[Any, ...], named: dict[str, Any], on: Any, arguments: dict[str, Argument],
    result: Run, again: Again,
) -> None:  # fmt: skip
    """Let the kernel repeat a launch for calls like this one."""
    at = dispatch.key(args, on, named)
    order = [*kernel.params[: len(args)], *named]
    passed = [n for n in order if arguments.get(n) is not None]  # in the order in which a pattern reads them
    pairs = _pairs(arguments, passed, again.written)
    pattern = kernel.calls.patterns.get(at)
    if pattern is None or not pairs <= pattern.pairs:
        values = [*args, *named.values()]
        reads = [_read(kernel, name, x) for name, x in zip(order, values, strict=True)]
        if at is None or None in reads:
            return
        known = pairs | (pattern.pairs if pattern is not None else set())
        call = [f"kt_v{passed.index(n)}" for n in kernel.params if n in passed]
        tail = _tail(sorted(known), call)
        pattern = dispatch.Pattern(list(map(type, values)), list(named), on, reads, tail)  # type: ignore[arg-type]
        pattern.pairs = known
    key, addresses = pattern.read(args, on, named) or (None, ())
    if key is None:
        return
    bounds = [
        apart(arguments[passed[i]], addresses[i], arguments[passed[j]], addresses[j])
        for i, j in sorted(pattern.pairs)
    ]
    pattern.remember(key, (again.run, result, *itertools.chain(*bounds)))
    kernel.remember(at, pattern)


def _read(kernel: Kernel, name: str, x: Any) -> dispatch.Read | None:
    """How a kernel's argument is read; None if calls with such a one cannot be remembered."""
    if name in kernel.constants:
        return dispatch.constant(type(x))
    if x is None:
        return dispatch.Read()
    if type(x) in dispatch.NUMBERS:
        return dispatch.number(type(x), constant=grid_reads(kernel, name))
    return dispatch.array(x)


def _pairs(
    arguments: dict[str, Argument], passed: Sequence[str], written: frozenset[str]
) -> set[tuple[int, int]]:
    """Pairs of arrays, by number, that must not share memory: at least one of each is written."""
    arrays = [(i, n) for i, n in enumerate(passed) if isinstance(arguments[n], TensorArg)]
    pairs = itertools.combinations(arrays, 2)
    return {(i, j) for (i, m), (j, n) in pairs if m in written or n in written}


def apart(a: Argument, at: int, b: Argument, other: int) -> tuple[int, int]:
    """The bounds between which the difference of the addresses of `b` and `a`, here `other` and `at`, means shared memory."""
    if not (
        isinstance(a, TensorArg) and isinstance(b, TensorArg) and a.span and b.span and a.span[0] == b.span[0]
    ):
        return 0, 0
    return a.span[1] - b.span[2] - at + other, a.span[2] - b.span[1] - at + other


def _tail(pairs: Sequence[tuple[int, int]], call: Sequence[str]) -> list[str]:
    """The lines that repeat a launch."""
    bounds = "".join(f", kt_low{n}, kt_high{n}" for n in range(len(pairs)))
    shared = [f"kt_low{n} < kt_v{j} - kt_v{i} < kt_high{n}" for n, (i, j) in enumerate(pairs)]
    lines = [f"if {' or '.join(shared)}:", "    return None"] if shared else []
    return [f"kt_again, kt_run{bounds} = kt_found", *lines, f"kt_again({', '.join(call)})", "return kt_run"]
