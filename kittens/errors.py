"""Errors that name the line, show it, and say what to do.

Every error a user can meet derives from `KittensError` and from the built-in exception a Python
programmer would expect (`TypeError`, `ValueError`, ...). An error raised while a kernel runs or is
traced carries the `Location` of the user's line; `str(error)` shows that line with a caret.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import sys
import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType


@dataclass(frozen=True)
class Location:
    """A place in a user's Python text. `column` and `end_column` are 0-based and may be unknown (-1)."""

    file: str
    line: int
    function: str = ""
    column: int = -1
    end_column: int = -1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def source(self) -> str:
        """The text of the line, or an empty string when it is not to be had (a kernel made by `exec`)."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def render(self) -> str:
        """The location, the line and a caret under the expression."""
        where = f"  --> {self.file}:{self.line}" + (f", in {self.function}" if self.function else "")
        text = self.source()
        if not text:
            return where
        number = str(self.line)
        gutter = " " * len(number)
        rows = [where, f"{gutter} |", f"{number} | {text}"]
        if 0 <= self.column < self.end_column:
            raw = text.encode()
            before = raw[: self.column].decode(errors="replace")
            marked = raw[self.column : self.end_column].decode(errors="replace")
            pad = "".join("\t" if c == "\t" else " " * _width(c) for c in before)
            rows.append(f"{gutter} | {pad}{'^' * max(1, sum(map(_width, marked)))}")
        return "\n".join(rows)


def _width(char: str) -> int:
    """Terminal columns that one character takes: two for East Asian wide ones."""
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


#: Modules of this distribution that hold kernels, and so count as a user's.
_KERNEL_MODULES = ("kittens.kernels", "kittens.conformance", "kittens.bench")


@functools.lru_cache(1024)
def is_internal(module: str) -> bool:
    """Whether a module belongs to the implementation rather than to kernels (ours or a user's)."""
    return module == "kittens" or (module.startswith("kittens.") and not module.startswith(_KERNEL_MODULES))


def user_frame(frame: FrameType | None = None) -> FrameType | None:
    """The innermost frame, from `frame` outwards, that runs a kernel's text rather than ours."""
    frame = frame or sys._getframe(1)
    while frame is not None and is_internal(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame


def locate(frame: FrameType) -> Location:
    """The location of the expression that `frame` is evaluating."""
    column = end_column = -1
    line = frame.f_lineno
    if sys.version_info >= (3, 11):
        start, end, col, end_col = positions(frame.f_code, frame.f_lasti)
        if start is not None and col is not None and end_col is not None:
            line, column = start, col
            end_column = end_col if end == start else col + 1
    return Location(frame.f_code.co_filename, line or 0, frame.f_code.co_name, column, end_column)


_positions: dict[CodeType, list[tuple[int | None, int | None, int | None, int | None]]] = {}


def positions(code: CodeType, lasti: int) -> tuple[int | None, int | None, int | None, int | None]:
    """(line, end line, column, end column) of the instruction at byte offset `lasti`; Python 3.11 or
    later.
    """
    table = _positions.get(code)
    if table is None:
        table = _positions[code] = list(code.co_positions())  # type: ignore[attr-defined, unused-ignore]
    return table[lasti // 2]


def here() -> Location | None:
    """The location of the user's line now being run, or None outside any user frame."""
    frame = user_frame(sys._getframe(1))
    return locate(frame) if frame is not None else None


_notes = threading.local()


@contextlib.contextmanager
def noted() -> Iterator[list[KittensError]]:
    """The errors made in this thread within a `with` block, whether raised on or swallowed."""
    made: list[KittensError] = []
    _notes.open = (*getattr(_notes, "open", ()), made)
    try:
        yield made
    finally:
        _notes.open = _notes.open[:-1]


class KittensError(Exception):
    """Base of all errors. `message` says what is wrong, `hint` what to do, `location` where."""

    def __init__(self, message: str, *, hint: str = "", location: Location | None = None):
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.location = location
        for made in getattr(_notes, "open", ()):
            made.append(self)

    def __str__(self) -> str:
        rows = [self.message]
        if self.location is not None:
            rows.append(self.location.render())
        if self.hint:
            rows.append(f"hint: {self.hint}")
        return "\n".join(rows)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.location)


def _rebuild(kind: type[KittensError], message: str, hint: str, location: Location | None) -> KittensError:
    return kind(message, hint=hint, location=location)


class DTypeError(KittensError, TypeError):
    """Element types that do not fit the operation."""


class ShapeError(KittensError, ValueError):
    """Shapes or ranks that do not fit the operation."""


class ControlFlowError(KittensError, TypeError):
    """Python control flow that cannot be carried into a kernel."""


class ScopeError(ControlFlowError):
    """A tile used outside the loop, branch or kernel it belongs to."""


class ArgumentError(KittensError, ValueError):
    """An argument of a kernel or of an operation that cannot be used."""


class TargetError(KittensError, LookupError):
    """A target that is unknown."""


class UnavailableError(KittensError, RuntimeError):
    """A target or a step that needs something this machine lacks; the message names it."""


class CheckError(KittensError, RuntimeError):
    """A run-time check of the reference or simulator failed: an assertion, a store conflict, ..."""


class InternalError(KittensError, RuntimeError):
    """A fault in kittens itself."""

    def __init__(self, message: str, *, hint: str = "", location: Location | None = None):
        hint = hint or "this is a bug in kittens, not in your kernel; please report it"
        super().__init__(message, hint=hint, location=location)
