"""`kittens doctor`: what this machine can do, and what is missing for the rest."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import click

from kittens import cache, plugins
from kittens.cli import options
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
        "cache": {
            "folder": str(cache.folder()),
            "bytes": sum(entry.size for entry in cache.entries()),
            "limit": cache.limit(),
        },
    }


def with_simulation(targets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The targets, what is told of NAME@sim being told of NAME."""
    merged = {t["name"]: {**t, "can": list(t["can"]), "missing": dict(t["missing"])} for t in targets}
    for name in [n for n in merged if n.endswith("@sim") and n.removesuffix("@sim") in merged]:
        simulated, plain = merged.pop(name), merged[name.removesuffix("@sim")]
        plain["can"] += simulated["can"]
        plain["missing"] = {**simulated["missing"], **plain["missing"]}
        for way in simulated["can"]:
            plain["missing"].pop(way, None)
    return list(merged.values())


@click.command()
@options.as_json
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
    targets = with_simulation(found["targets"])
    for t in targets:
        marks = ["yes" if way in t["can"] else "no" if way in t["missing"] else "-" for way in WAYS]
        rows.add_row(t["name"], *marks, t["description"])
    out.print(rows)
    simulated = [t["name"] for t in targets if "simulate" in t["can"]]
    if simulated:
        out.print(f"\nA target is simulated under its name with @sim, as in {simulated[0]}@sim.")
    reasons: dict[tuple[str, str], list[str]] = {}
    for t in targets:
        for way, why in t["missing"].items():
            reasons.setdefault((t["name"].partition(":")[0], why), []).append(way)
    if reasons:
        out.print("\nWhat is missing:")
    for (backend, why), ways in reasons.items():
        out.print(f"  {backend}, {' and '.join(dict.fromkeys(ways))}: {why}", markup=False)
    kept = found["cache"]
    out.print(
        f"\nThe cache of what was compiled, {kept['folder']}, holds {kept['bytes'] / 1e9:.2f} GB of {kept['limit'] / 1e9:g}"
        f" at most ({cache.FOLDER} and {cache.LIMIT} change that).",
        markup=False,
    )
    for name, why in found["failed"].items():
        out.print(f"\nThe backend {name} could not be loaded: {why}", markup=False)
