"""What the commands share: where text, tables and JSON go."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kittens.errors import ArgumentError

#: Columns of a table that goes into a file or a pipe.
_WIDTH = 160


def console() -> Console:
    """Standard output as rich sees it now (a test or a pipe may have replaced it)."""
    terminal = Console().is_terminal
    return Console(highlight=False, soft_wrap=not terminal, width=None if terminal else _WIDTH)


@contextlib.contextmanager
def progress(description: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on standard error, if that is a terminal: call it with (done, total, description)."""
    err = Console(stderr=True)
    if not err.is_terminal:
        yield lambda done, total, text: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table in the one style; columns named in `right` hold numbers."""
    result = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        result.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return result


def dump(value: Any) -> str:
    """JSON as we print and write it."""
    return json.dumps(value, indent=2)


def check_writable(path: str | None) -> None:
    """Raise ArgumentError if `write_text` cannot write there, before long work is done for nothing."""
    if path is None or path == "-":
        return
    place = Path(path)
    if place.is_dir() or not os.access(place if place.exists() else place.parent, os.W_OK):
        raise ArgumentError(f"cannot write the file {path}", hint="name a file in a folder that exists")


def write_text(path: str, text: str) -> None:
    """Text into a file, or to standard output for "-"."""
    if path == "-":
        click.echo(text)
        return
    try:
        Path(path).write_text(text + "\n", "utf-8")
    except OSError as error:
        raise ArgumentError(f"cannot write the file {path}: {error.strerror or error}") from None


def listing(found: list[tuple[str, str]], json_file: str | None) -> None:
    """Print names and what they stand for; or write them as JSON."""
    if json_file is not None:
        write_text(json_file, dump([{"name": name, "description": text} for name, text in found]))
        return
    rows = table("benchmark", "what it times")
    for name, text in found:
        rows.add_row(name, text)
    console().print(rows)


def duration(seconds: float) -> str:
    """Seconds in the unit a person would use."""
    if seconds != seconds:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
