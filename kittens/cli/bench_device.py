"""`kittens bench` on a device: workloads timed beside their peers, shown, drawn, compared with older results."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Any

import click

from kittens.cli.output import check_writable, console, dump, duration, listing, progress, table, write_text
from kittens.errors import ArgumentError
from kittens.targets import parse


@dataclass(frozen=True)
class Asked:
    """What the command line asks for. method: of `kittens.bench.timing.Method`; budget: seconds, 0 for no limit."""

    names: tuple[str, ...]
    pattern: str | None
    on: str
    peers: tuple[str, ...]
    method: dict[str, Any]
    budget: float
    json_file: str | None
    plot_file: str | None
    old_file: str | None
    read_files: tuple[str, ...]

    def chosen(self, name: str) -> bool:
        """Whether a workload is asked for."""
        from kittens.bench.workload import matches

        named = not self.names or any(matches(name, n) for n in self.names)
        return named and (self.pattern is None or self.pattern in name or fnmatch.fnmatch(name, self.pattern))


def bench_device(asked: Asked, only_list: bool) -> None:
    """Measure, or read, and show. The exit code is 1 for a wrong result or one that got slower."""
    from kittens.bench import plot
    from kittens.bench import report as results

    if asked.plot_file is not None:
        check_writable(asked.plot_file)
        plot.check(asked.plot_file)
    old = results.read(asked.old_file) if asked.old_file is not None else None
    if only_list:
        listing([(w.name, f"{w.summary}; {', '.join(w.peers)}") for w in _workloads(asked)], asked.json_file)
        return
    report = _read(asked) if asked.read_files else _measure(asked)
    if asked.json_file is not None:
        write_text(asked.json_file, dump(report.to_json()))
    if asked.json_file != "-":
        _print(report)
    if asked.plot_file is not None:
        plot.draw(report, asked.plot_file)
    slower = _compare(report, old, asked.json_file == "-") if old is not None else False
    if slower or any(row.error for row in report.rows):
        raise SystemExit(1)


def _workloads(asked: Asked) -> list[Any]:
    from kittens.bench import workload

    found = [w for w in workload.choose(workload.workloads(), asked.names) if asked.chosen(w.name)]
    if not found:
        raise ArgumentError(f"no workload matches {asked.pattern!r}")
    workload.choose_peers(found, asked.peers)
    return found


def _read(asked: Asked) -> Any:
    """The results in files, as one report."""
    from kittens.bench import report as results

    report = results.merged([results.read(f) for f in asked.read_files])
    report.rows = [r for r in report.rows if asked.chosen(r.workload)]
    if not report.rows:
        raise ArgumentError(f"nothing in {', '.join(asked.read_files)} has such a name")
    return report


def _measure(asked: Asked) -> Any:
    """The report of a run, written to its file after each workload."""
    from kittens.bench import device, suite
    from kittens.bench.timing import Method

    found = _workloads(asked)
    opened = device.open_device(parse(asked.on))
    with progress("workloads") as show:

        def after(done: int, report: Any) -> None:
            show(done, len(found), found[min(done, len(found) - 1)].name)
            if asked.json_file not in (None, "-"):
                write_text(asked.json_file, dump(report.to_json()))

        method = Method(**asked.method)
        return suite.run(opened, asked.on, found, asked.peers, method, budget=asked.budget, progress=after)


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
            fraction = row.fraction(name)
            ratios = (
                ("", "")
                if name == OURS
                else (f"{row.ratio(name):.3f}", _number(row.ratio(name, "burst"), ".3f"))
            )
            rows.add_row(
                row.workload if name == OURS else "", name + (" *" if row.samples[name].captured else ""),
                duration(row.seconds(name)), _rate(row, name), _number(fraction, ".2f"), duration(row.seconds(name, "burst")),
                *ratios,
            )  # fmt: skip
    out.print(rows)
    for row in report.rows:
        if row.error:
            out.print(f"{row.workload} {row.error.splitlines()[0]}", markup=False)
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
