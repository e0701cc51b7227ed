"""`kt.range` and `kt.when`: loops and branches on run-time values, written as Python `for` statements.

    for k in kt.range(n):          # n passes
    for _ in kt.when(i == 0):      # one pass if the condition holds, else none

Both mean what Python says: run eagerly they simply run. While tracing, the body runs with symbolic tiles (see
`kittens.trace`), and whatever Python would carry from pass to pass is carried by the IR.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from kittens.dtypes import bool_, int64
from kittens.errors import ArgumentError, ControlFlowError, DTypeError, Location, locate, user_frame
from kittens.executor import current
from kittens.frames import is_for_statement
from kittens.tile import Tile, binary, cast, integer


class Control:
    """What a `for` statement of a kernel iterates over: the operands of a `loop` or a `when`."""

    def __init__(self, name: str, operands: list[Tile], attrs: dict[str, Any], location: Location | None):
        self.name = name
        self.operands = operands
        self.attrs = attrs
        self.location = location

    @property
    def spelled(self) -> str:
        return "kt.range" if self.name == "loop" else "kt.when"

    def __iter__(self) -> Iterator[Tile]:
        frame = sys._getframe(1)
        if not is_for_statement(frame):
            raise ControlFlowError(
                f"{self.spelled} is iterated over by something other than a `for` statement",
                hint=f"write `for k in {self.spelled}(...):` directly; enumerate, zip, list and unpacking "
                "would run once, not once a pass",
                location=locate(user_frame(frame) or frame),
            )
        return current().iterate(self, frame)

    def __bool__(self) -> NoReturn:
        self._misused(f"if {self.spelled}(...)")

    def __enter__(self) -> NoReturn:
        self._misused(f"with {self.spelled}(...)")

    def __exit__(self, *exc: object) -> None: ...

    def _misused(self, how: str) -> NoReturn:
        raise ControlFlowError(
            f"`{how}` is not how it is used",
            hint=f"write `for _ in {self.spelled}(...):`",
            location=self.location,
        )


def _here() -> Location | None:
    frame = user_frame(sys._getframe(1))
    return locate(frame) if frame else None


def range_(*bounds: Any, unroll: int | Any = 1) -> Control:
    """kt.range(stop), kt.range(start, stop) or kt.range(start, stop, step): a loop over run-time integers.

    The index is an int64 scalar. step is positive. `unroll` is advice to the target: passes worked on
    together. Raises DTypeError for bounds that are no integers, ArgumentError for a step or an unroll below
    1.
    """
    if not 1 <= len(bounds) <= 3:
        raise ArgumentError(f"kt.range takes 1 to 3 bounds, not {len(bounds)}", location=_here())
    lo, hi, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if isinstance(step, int) and step < 1:
        raise ArgumentError(
            f"the step of kt.range is at least 1, not {step}",
            hint="count down with n - 1 - k",
            location=_here(),
        )
    if not isinstance(unroll, int) or isinstance(unroll, bool) or unroll < 1:
        raise ArgumentError(f"unroll is a Python integer of at least 1, not {unroll!r}", location=_here())
    operands = [cast(integer(x, "a bound of kt.range"), int64) for x in (lo, hi, step)]
    return Control("loop", operands, {"unroll": unroll}, _here())


def when(condition: Any) -> Control:
    """kt.when(condition): `for _ in kt.when(condition):` runs its body if the bool scalar holds.

    Variables assigned in the body keep their old value where it does not. Raises DTypeError for anything
    else.
    """
    if isinstance(condition, bool):
        raise ControlFlowError(
            "kt.when is for run-time conditions, this one is a Python bool",
            hint="use a plain `if`",
            location=_here(),
        )
    if not isinstance(condition, Tile):
        raise DTypeError(f"kt.when takes a bool scalar, not {type(condition).__name__}", location=_here())
    if condition.shape != () or condition.dtype != bool_:
        raise DTypeError(
            f"kt.when takes a bool scalar, not {condition.type}",
            hint="reduce with .any() or .all(), or choose element by element with kt.where",
            location=_here(),
        )
    return Control("when", [condition], {}, _here())


def trip_count(lo: Tile, hi: Tile, step: Tile) -> Tile:
    """Number of passes of a loop."""
    return binary("maximum", binary("cdiv", binary("sub", hi, lo), step), 0)


def left_early(control: Control) -> ControlFlowError:
    """The error for a body left by break, return or an exception that was swallowed."""
    return ControlFlowError(
        f"the body of {control.spelled} is left early (break, return, or a swallowed exception)",
        hint="a kernel runs every pass to its end; guard what should not happen with `for _ in "
        "kt.when(...):` or kt.where",
        location=control.location,
    )
