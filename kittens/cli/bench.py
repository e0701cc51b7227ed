"""`kittens bench`: how long things take here, on the host, or on a device beside the libraries of others."""

from __future__ import annotations

import platform
from typing import Any

import click

from kittens import plugins
from kittens.cli.output import check_writable, console, dump, progress, table, write_text
from kittens.errors import ArgumentError
from kittens.targets import parse


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--on", default="numpy", show_default=True, metavar="TARGET", help="The target to measure.")
@click.option("-k", "pattern", metavar="PATTERN", help="Only those whose name contains or matches PATTERN.")
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
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=7,
    show_default=True,
    help="Rounds in which contenders take turns.",
)
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
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    help='Write JSON to FILE ("-": standard output, without the table).',
)
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
    on_device = bool(read_files) or plugins.check(parse(on)).backend != "numpy"
    if on_device:
        wanted = tuple(p for p in (vs or "").split(",") if p)
        method = {"rounds": rounds, "round_seconds": round_ms / 1000, "bursts": bursts}
        _device(
            names,
            pattern,
            on,
            wanted,
            method,
            budget or 0.0,
            only_list,
            json_file,
            plot_file,
            old_file,
            read_files,
        )
        return
    for option, value in (("--vs", vs), ("--plot", plot_file), ("--against", old_file)):
        if value is not None:
            raise ArgumentError(f"{option} is for devices, and {on} is none", hint="name one: --on cuda")
    _host(names, on, pattern, seconds, only_list, json_file)


# The host.


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
        _list([(b.name, b.description) for b in found], json_file)
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


def _list(found: list[tuple[str, str]], json_file: str | None) -> None:
    if json_file is not None:
        write_text(json_file, dump([{"name": name, "description": text} for name, text in found]))
        return
    rows = table("benchmark", "what it times")
    for name, text in found:
        rows.add_row(name, text)
    console().print(rows)


def _host_table(results: list[Any]) -> Any:
    rows = table("benchmark", "median", "least", "runs", "limit", right=("median", "least", "runs", "limit"))
    for r in results:
        limit = "" if r.limit is None else f"{_time(r.limit)}{'' if r.within else '  over'}"
        rows.add_row(r.name, _time(r.median), _time(r.least), str(r.runs), limit)
    return rows


# A device.


def _device(
    names: tuple[str, ...], pattern: str | None, on: str, wanted: tuple[str, ...], method: dict[str, Any], budget: float,
    only_list: bool, json_file: str | None, plot_file: str | None, old_file: str | None, read_files: tuple[str, ...],
) -> None:  # fmt: skip
    from kittens.bench import plot
    from kittens.bench import report as results

    if plot_file is not None:
        check_writable(plot_file)
        plot.check(plot_file)
    old = results.read(old_file) if old_file is not None else None
    if read_files:
        report = results.merged([results.read(f) for f in read_files])
        report.rows = [r for r in report.rows if _chosen(r.workload, names, pattern)]
        if not report.rows:
            raise ArgumentError(f"nothing in {', '.join(read_files)} has such a name")
        if json_file is not None:
            write_text(json_file, dump(report.to_json()))
    else:
        measured = _measure(names, pattern, on, wanted, method, budget, only_list, json_file)
        if measured is None:
            return
        report = measured
    if json_file != "-":
        _print(report)
    if plot_file is not None:
        plot.draw(report, plot_file)
    slower = _compare(report, old, json_file == "-") if old is not None else False
    if slower or any(row.error for row in report.rows):
        raise SystemExit(1)


def _measure(
    names: tuple[str, ...], pattern: str | None, on: str, wanted: tuple[str, ...], method: dict[str, Any], budget: float,
    only_list: bool, json_file: str | None,
) -> Any:  # fmt: skip
    """The report of a run, written to its file after each workload; None if they were only listed."""
    from kittens.bench import device, suite, workload
    from kittens.bench.timing import Method

    chosen = [w for w in workload.choose(workload.workloads(), names) if _chosen(w.name, (), pattern)]
    if not chosen:
        raise ArgumentError(f"no workload matches {pattern!r}")
    workload.choose_peers(chosen, wanted)
    if only_list:
        _list([(w.name, f"{w.summary}; {', '.join(w.peers)}") for w in chosen], json_file)
        return None
    opened = device.open_device(parse(on))
    with progress("workloads") as show:

        def after(done: int, report: Any) -> None:
            show(done, len(chosen), chosen[min(done, len(chosen) - 1)].name)
            if json_file not in (None, "-"):
                write_text(json_file, dump(report.to_json()))

        report = suite.run(opened, on, chosen, wanted, Method(**method), budget=budget, progress=after)
    if json_file is not None:
        write_text(json_file, dump(report.to_json()))
    return report


def _chosen(name: str, names: tuple[str, ...], pattern: str | None) -> bool:
    import fnmatch

    from kittens.bench.workload import matches

    named = not names or any(matches(name, n) for n in names)
    return named and (pattern is None or pattern in name or fnmatch.fnmatch(name, pattern))


def _print(report: Any) -> None:
    """A line for each workload and contender, and the limits that they were compared with."""
    from kittens.bench.report import OURS

    out = console()
    columns = ("hot", "rate", "of limit", "burst", "hot ratio", "burst ratio")
    rows = table("workload", "contender", *columns, right=columns)
    for row in report.rows:
        if row.error:
            rows.add_row(row.workload, row.error.partition(":")[0])
            continue
        for name in (OURS, *row.peers):
            fraction = report.fraction(row) * row.seconds() / row.seconds(name)
            ratios = (
                ("", "")
                if name == OURS
                else (f"{row.ratio(name):.3f}", _number(row.ratio(name, "burst"), ".3f"))
            )
            rows.add_row(
                row.workload if name == OURS else "", name + (" *" if row.samples[name].captured else ""),
                _time(row.seconds(name)), _rate(row, name), _number(fraction, ".2f"), _time(row.seconds(name, "burst")),
                *ratios,
            )  # fmt: skip
    out.print(rows)
    for row in report.rows:
        if row.error:
            out.print(f"{row.workload} {row.error}", markup=False)
    if any(s.captured for row in report.rows for s in row.samples.values()):
        out.print("* recorded calls: what the host does for each is not in the time", markup=False)
    if report.roofline is not None:
        products = "".join(f", {p / 1e12:.0f} TFLOP/s in {u}" for u, p in report.roofline.products.items())
        out.print(
            f"limits in this run: a copy {report.roofline.bandwidth / 1e12:.2f} TB/s{products}", markup=False
        )
    left = report.facts.get("not timed")
    if left:
        out.print(f"out of time, so not timed: {', '.join(left)}", markup=False)


def _compare(report: Any, old: Any, quiet: bool) -> bool:
    """Print how figures moved; whether one got slower than noise explains."""
    from kittens.bench import report as results

    found = results.against(report, old)
    slower = [c for c in found if c.regressed]
    if not quiet:
        out = console()
        missing = [r.workload for r in old.rows if not r.error and report.row(r.workload) is None]
        out.print(
            f"\n{len(found)} compared with results of {old.facts.get('date', 'unknown date')}, {len(slower)} slower"
        )
        for c in found:
            out.print(f"{'SLOWER ' if c.regressed else '       '}{c}", markup=False)
        if missing:
            out.print(f"not in this run: {len(missing)} of the older results", markup=False)
    elif slower:
        click.echo("\n".join(f"SLOWER {c}" for c in slower), err=True)
    return bool(slower)


def _rate(row: Any, contender: str) -> str:
    seconds = row.seconds(contender)
    if row.flops:
        return f"{row.flops / seconds / 1e12:.1f} TFLOP/s"
    return f"{row.bytes / seconds / 1e12:.2f} TB/s" if row.bytes else ""


def _number(value: float, form: str) -> str:
    return format(value, form) if value == value else ""


def _time(seconds: float) -> str:
    """Seconds in the unit a person would use."""
    if seconds != seconds:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
