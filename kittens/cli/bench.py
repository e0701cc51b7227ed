"""`kittens bench`: how long things take here, on the host, or on a device beside the libraries of others."""

from __future__ import annotations

import platform
from typing import Any

import click

from kittens import plugins
from kittens.cli import options
from kittens.cli.bench_device import Asked, bench_device
from kittens.cli.output import check_writable, console, dump, duration, listing, progress, table, write_text
from kittens.errors import ArgumentError
from kittens.targets import parse


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--on", default="numpy", show_default=True, metavar="TARGET", help="The target to measure.")
@options.pattern
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=0.5,
    show_default=True,
    help="Time for each benchmark of the host.",
)
@click.option(
    "--vs", metavar="PEER,...", help="The peers to time beside ours.  [default: all that are installed]"
)
@options.rounds
@click.option(
    "--round-ms", type=click.FloatRange(min=0.1), default=80.0, show_default=True, help="Length of a round."
)
@click.option(
    "--bursts",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Samples after a pause; 0: none.",
)
@click.option(
    "--budget", type=click.FloatRange(min=0), metavar="SECONDS", help="Begin no workload after that long."
)
@click.option("--list", "only_list", is_flag=True, help="List the benchmarks and run none.")
@options.to_json
@click.option("--plot", "plot_file", metavar="FILE", help="Draw the results as FILE.svg or FILE.png.")
@click.option(
    "--against", "old_file", metavar="FILE", help="Compare with results in FILE; a regression is exit code 1."
)
@click.option(
    "--read",
    "read_files",
    multiple=True,
    metavar="FILE",
    help="Measure nothing: take the results in FILE; may be repeated.",
)
def bench(
    names: tuple[str, ...], on: str, pattern: str | None, seconds: float, vs: str | None, rounds: int, round_ms: float,
    bursts: int, budget: float | None, only_list: bool, json_file: str | None, plot_file: str | None,
    old_file: str | None, read_files: tuple[str, ...],
) -> None:  # fmt: skip
    """Time what has a benchmark for TARGET. NAME is a name, what one begins with, or a pattern.

    On numpy that is what kittens costs the host; the exit code is 1 if a least time is over its limit. On a device,
    kernels are timed in turns with their peers, after their results were compared; the exit code is 1 if a result is
    wrong or, with --against, if one got slower than noise explains. Figures hold for this machine as it is now.
    """
    check_writable(json_file)
    if read_files or plugins.check(parse(on)).backend != "numpy":
        wanted = tuple(p for p in (vs or "").split(",") if p)
        method = {"rounds": rounds, "round_seconds": round_ms / 1000, "bursts": bursts}
        asked = Asked(
            names, pattern, on, wanted, method, budget or 0.0, json_file, plot_file, old_file, read_files
        )
        bench_device(asked, only_list)
        return
    for option, value in (("--vs", vs), ("--plot", plot_file), ("--against", old_file)):
        if value is not None:
            raise ArgumentError(f"{option} is for devices, and {on} is none", hint="name one: --on cuda")
    _host(names, on, pattern, seconds, only_list, json_file)


def _host(
    names: tuple[str, ...],
    on: str,
    pattern: str | None,
    seconds: float,
    only_list: bool,
    json_file: str | None,
) -> None:
    from kittens import bench as benches
    from kittens.bench.workload import matches

    target = str(plugins.check(parse(on)))
    found = benches.select(pattern)
    for name in names:
        if not any(matches(b.name, name) for b in found):
            raise ArgumentError(
                f"no benchmark {name!r} for {target}", hint="kernels are timed on devices: --on cuda"
            )
    found = [b for b in found if not names or any(matches(b.name, name) for name in names)]
    if not found:
        raise ArgumentError(f"no benchmark for {target}" + (f" matches {pattern!r}" if pattern else ""))
    if only_list:
        listing([(b.name, b.description) for b in found], json_file)
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
        console().print(_host_table(results))
    if not all(r.within for r in results):
        raise SystemExit(1)


def _host_table(results: list[Any]) -> Any:
    rows = table("benchmark", "median", "least", "runs", "limit", right=("median", "least", "runs", "limit"))
    for r in results:
        limit = "" if r.limit is None else f"{duration(r.limit)}{'' if r.within else '  over'}"
        rows.add_row(r.name, duration(r.median), duration(r.least), str(r.runs), limit)
    return rows
