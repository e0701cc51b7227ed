"""What the commands share: where text, tables and JSON go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table


def console() -> Console:
    """Standard output as rich sees it now (a test or a pipe may have replaced it)."""
    return Console(highlight=False, soft_wrap=not Console().is_terminal)


def stderr() -> Console:
    """Standard error: progress bars, which are shown on a terminal only."""
    return Console(stderr=True, highlight=False)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table in the one style; columns named in `right` hold numbers."""
    result = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        result.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return result


def dump(value: Any) -> str:
    """JSON as we print and write it."""
    return json.dumps(value, indent=2)


def write_text(path: str, text: str) -> None:
    """Text into a file, or to standard output for "-"."""
    if path == "-":
        click.echo(text)
        return
    try:
        Path(path).write_text(text + "\n", "utf-8")
    except OSError as error:
        raise click.FileError(path, error.strerror or str(error)) from None
