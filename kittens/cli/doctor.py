"""`kittens doctor`: what this machine can do, and what is missing for the rest."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import click

from kittens import plugins
from kittens.cli.output import console, dump, table

WAYS = ("execute", "simulate", "compile")
BASE = ("numpy", "ml_dtypes", "pluggy", "click", "rich")


def examine() -> dict[str, Any]:
    """Versions, targets and backends that failed to load, as plain data."""
    return {
        "kittens": metadata.version("kittens-gpu"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {name: metadata.version(name) for name in BASE},
        "targets": [
            {
                "name": t.name,
                "description": t.description,
                "can": list(t.can),
                "missing": {way: why for way, why in t.missing.items() if way not in t.can},
            }
            for t in plugins.targets()
        ],
        "failed": plugins.failed(),
    }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Say what this machine can execute, simulate and compile, and what is missing.

    Nothing is loaded or run: drivers and packages are only looked for.
    """
    found = examine()
    if as_json:
        click.echo(dump(found))
        return
    out = console()
    libraries = ", ".join(f"{name} {version}" for name, version in found["libraries"].items())
    out.print(f"kittens {found['kittens']}, Python {found['python']}, {found['platform']}")
    out.print(libraries + "\n")
    rows = table("target", *WAYS, "what it is")
    for t in found["targets"]:
        marks = ["yes" if way in t["can"] else "no" if way in t["missing"] else "-" for way in WAYS]
        rows.add_row(t["name"], *marks, t["description"])
    out.print(rows)
    reasons: dict[tuple[str, str], list[str]] = {}
    for t in found["targets"]:
        for way, why in t["missing"].items():
            reasons.setdefault((t["name"].partition(":")[0], why), []).append(way)
    if reasons:
        out.print("\nWhat is missing:")
    for (backend, why), ways in reasons.items():
        out.print(f"  {backend}, {' and '.join(dict.fromkeys(ways))}: {why}", markup=False)
    for name, why in found["failed"].items():
        out.print(f"\nThe backend {name} could not be loaded: {why}", markup=False)
