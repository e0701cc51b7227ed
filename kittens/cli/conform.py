"""`kittens conform`: run the conformance suite on targets and say how close to the error bounds it came."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import click

from kittens import plugins
from kittens.cli import options
from kittens.cli.output import check_writable, console, progress, table, write_text
from kittens.errors import UnavailableError
from kittens.targets import parse

_MOST_FAILURES = 20


@click.command()
@click.option(
    "--on",
    "names",
    multiple=True,
    metavar="TARGET",
    help="A target to test; may be repeated.  [default: numpy]",
)
@options.pattern
@click.option("-x", "stop_first", is_flag=True, help="Stop at the first failure.")
@click.option(
    "-j", "jobs", type=click.IntRange(min=1), help="Processes to run cases in.  [default: one a core]"
)
@click.option(
    "--compile",
    "compile_only",
    is_flag=True,
    help="Compile the cases and run none: the device need not be here.",
)
@options.to_json
def conform(
    names: tuple[str, ...],
    pattern: str | None,
    stop_first: bool,
    jobs: int | None,
    compile_only: bool,
    json_file: str | None,
) -> None:
    """Run the same cases on every TARGET and judge the results by error bounds.

    A case passes if observed error / bound is at most 1; exact operations must match bit for bit. The exit
    code is 0 if all cases passed, 1 if one failed or none ran, 3 if a target cannot run (or compile) here.
    """
    from kittens import conformance

    check_writable(json_file)
    targets = [str(plugins.check(parse(name))) for name in names or ("numpy",)]
    for name in targets:
        _check_can(name, ("compile",) if compile_only else ("execute", "simulate"))
    with progress("cases") as show:
        report = conformance.run(
            targets,
            pattern=pattern,
            stop_first=stop_first,
            jobs=jobs,
            compile_only=compile_only,
            progress=lambda done, total, row: show(done, total, row.case.partition("/")[0]),
        )
    if json_file is not None:
        write_text(json_file, report.to_json(indent=2))
    if json_file != "-":
        _print(report)
    if not report.ok:
        raise SystemExit(1)


def _check_can(name: str, ways: Sequence[str]) -> None:
    """Raise UnavailableError if a target can be had in none of these ways here."""
    plain = str(parse(name).backend if parse(name).index is not None else name)
    for info in plugins.targets():
        if info.name == plain and not set(ways) & set(info.can):
            why = info.missing.get(ways[0]) or "its backend says nothing about it"
            does = "run" if "execute" in ways else "compile"
            raise UnavailableError(
                f"{name} cannot {does} kernels here: {why}", hint="`kittens doctor` lists what can"
            )


def _print(report: Any) -> None:
    """The failures, the table of groups, and one line that sums up."""
    out = console()
    failures = report.failures
    for row in failures[:_MOST_FAILURES]:
        out.print(f"FAILED {row.case} on {row.target}\n{textwrap.indent(row.message, '  ')}", markup=False)
    if len(failures) > _MOST_FAILURES:
        out.print(f"... and {len(failures) - _MOST_FAILURES} more failures; --json has all", markup=False)
    counts = ("cases", "passed", "refused", "largest ratio")
    rows = table("target", "group", *counts, "at", right=counts)
    for (target, group), members in _groups(report.rows).items():
        passed = [r for r in members if r.verdict == "passed"]
        worst = max(members, key=lambda r: r.ratio)
        refused = sum(r.verdict == "refused" for r in members)
        at = worst.case if worst.ratio else ""
        rows.add_row(
            target, group, str(len(members)), str(len(passed)), str(refused or ""), _ratio(worst.ratio), at
        )
    out.print(rows)
    out.print()
    for target in report.targets():
        s = report.summary(target)
        said = f"{s.cases} cases, {s.passed} passed, {s.failed} failed, {s.refused} refused"
        how = (
            " and ".join(sorted({r.how for r in report.rows if r.target == target and r.how}))
            or "nothing ran"
        )
        if how != "compiled":  # what was not run has no errors
            said += f"; largest error / bound {_ratio(s.largest_ratio)}"
            said += f" at {s.largest_case}" if s.largest_ratio else ""
        out.print(f"{target} ({how}): {said}", markup=False)
    out.print(f"{report.seconds:.1f} s" if report.rows else "no case was selected", markup=False)


def _ratio(ratio: float) -> str:
    """Three digits; one that is below 1 does not become 1 by rounding."""
    return f"{math.floor(ratio * 1000) / 1000:.3f}" if 0.9 < ratio < 1 else f"{ratio:.3g}"


def _groups(rows: list[Any]) -> dict[tuple[str, str], list[Any]]:
    """Rows by target and by the first part of the case's name."""
    found: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        found.setdefault((row.target, row.case.partition("/")[0]), []).append(row)
    return found
