"""Who carries operations out: what a kernel's code finds at work in its thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kittens import errors, opset
from kittens.errors import ScopeError

if TYPE_CHECKING:
    from kittens.tile import Tile

Origins = frozenset[tuple[str, int]]


class Executor(Protocol):
    """Something that carries out operations: the tracer, the eager reference, the judge's error
    arithmetic.
    """

    grid_rank: int

    def apply(self, name: str, call: opset.Call, operands: Sequence[Any]) -> list[Any]: ...
    def iterate(self, control: Any, frame: Any) -> Any: ...
    def specialise(self, origins: Origins) -> None: ...
    def fuses(self, product: Tile) -> bool: ...
    def show(self, tile: Tile) -> str: ...


_active = threading.local()


def current() -> Executor:
    """The executor at work in this thread; raises ScopeError outside a kernel."""
    stack = getattr(_active, "stack", None)
    if not stack:
        raise ScopeError(
            "tiles exist only inside a kernel",
            hint="call this from a function decorated with @kt.kernel",
            location=errors.here(),
        )
    return stack[-1]


class running:
    """Context in which `executor` carries out what kernels say."""

    def __init__(self, executor: Executor):
        self.executor = executor

    def __enter__(self) -> None:
        if not hasattr(_active, "stack"):
            _active.stack = []
        _active.stack.append(self.executor)

    def __exit__(self, *exc: object) -> None:
        _active.stack.pop()
