"""`kittens bench`: how long things take here."""

from __future__ import annotations

import platform
from typing import Any

import click

from kittens import plugins
from kittens.cli.output import check_writable, console, dump, progress, table, write_text
from kittens.errors import ArgumentError
from kittens.targets import parse


@click.command()
@click.option("--on", default="numpy", show_default=True, metavar="TARGET", help="The target to measure.")
@click.option(
    "-k", "pattern", metavar="PATTERN", help="Only benchmarks whose name contains or matches PATTERN."
)
@click.option(
    "--seconds", type=click.FloatRange(min=0), default=0.5, show_default=True, help="Time for each one."
)
@click.option("--list", "only_list", is_flag=True, help="List the benchmarks and run none.")
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    help='Write JSON to FILE ("-": standard output, without the table).',
)
def bench(on: str, pattern: str | None, seconds: float, only_list: bool, json_file: str | None) -> None:
    """Time what has a benchmark for TARGET; the exit code is 1 if a least time is over its limit.

    Figures hold for this machine as it is now. What needs a device is offered for that device's targets only.
    """
    from kittens import bench as benches

    check_writable(json_file)
    target = str(plugins.check(parse(on)))
    found = benches.select(pattern, target)
    if not found:
        raise ArgumentError(f"no benchmark for {target}" + (f" matches {pattern!r}" if pattern else ""))
    if only_list and json_file is not None:
        write_text(json_file, dump([{"name": b.name, "description": b.description} for b in found]))
        return
    if only_list:
        rows = table("benchmark", "what it times")
        for b in found:
            rows.add_row(b.name, b.description)
        console().print(rows)
        return
    results = []
    with progress("benchmarks") as show:
        for number, b in enumerate(found):
            show(number, len(found), b.name)
            results.append(benches.measure(b, target, seconds))
    if json_file is not None:
        where = {"target": target, "platform": platform.platform(), "python": platform.python_version()}
        write_text(json_file, dump({**where, "results": [r.to_json() for r in results]}))
    if json_file != "-":
        console().print(_table(results))
    if not all(r.within for r in results):
        raise SystemExit(1)


def _table(results: list[Any]) -> Any:
    rows = table("benchmark", "median", "least", "runs", "limit", right=("median", "least", "runs", "limit"))
    for r in results:
        limit = "" if r.limit is None else f"{_time(r.limit)}{'' if r.within else '  over'}"
        rows.add_row(r.name, _time(r.median), _time(r.least), str(r.runs), limit)
    return rows


def _time(seconds: float) -> str:
    """Seconds in the unit a person would use."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
