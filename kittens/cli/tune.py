"""`kittens tune`: find better values for a kernel's tunables, and keep them for this machine."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from typing import Any

import click

from kittens import plugins
from kittens.cli import options
from kittens.cli.output import check_writable, console, dump, duration, table, write_text
from kittens.cli.show import find_kernel, read_argument, read_constant
from kittens.errors import ArgumentError, UnavailableError
from kittens.examples import Example, shaped, usual
from kittens.targets import Target, parse

#: Pruned candidates that the table shows.
_SHOWN = 8
PREDICTED = "predicted only: nothing was timed, and nothing is kept"


@click.command()
@click.argument("kernel")
@click.option("--on", metavar="TARGET", help="The target to tune for.  [default: the device of this machine]")
@click.option(
    "--shape",
    metavar="N,N,...",
    help="Extents of a library kernel's arguments, as 4096,4096,4096 for matmul.",
)
@options.arguments
@options.constants
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="Most candidates that are tried.",
)
@options.rounds
@click.option("--dry-run", is_flag=True, help="Do all but keep what was found.")
@click.option("--confirm", is_flag=True, help="Also keep the present values, where nothing is faster.")
@options.to_json
def tune(
    kernel: str, on: str | None, shape: str | None, args: tuple[str, ...], constants: tuple[str, ...], keep: int,
    rounds: int, dry_run: bool, confirm: bool, json_file: str | None,
) -> None:  # fmt: skip
    """Search values for the tunables of KERNEL, named as for `kittens show`, on TARGET.

    Candidates are what the kernel and the target list. Those that do not fit, or are predicted to be slow, are left
    out; of the others each has to compute what the reference computes; then they are timed in turns. One that is faster
    than the present values by more than noise is kept in a file that kernels look into before what the target ships
    ($KITTENS_TUNED, or kittens/tuned.json in your folder of settings), for arguments of the same class. On a
    simulated target candidates are ranked by prediction only.
    """
    from kittens import tuned
    from kittens.bench import device as devices
    from kittens.bench.timing import Method
    from kittens.bench.tune import Subject, search

    check_writable(json_file)
    target = _target(on)
    found = find_kernel(kernel)
    example = _example(kernel, found, shape, args, constants)
    opened = None if target.simulated else devices.open_device(target)
    if not target.simulated and not dry_run and tuned.path() is None:
        raise ArgumentError(
            "KITTENS_TUNED is empty: there is nowhere to keep what is found",
            hint="name a file in it, or say --dry-run",
        )

    def tell(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text[:100]}", nl=False, err=True)

    subject = Subject(found, example, target)
    result = search(subject, opened, Method(rounds=rounds), keep=keep, progress=tell)
    tell("")
    kept = None
    best = result.winner or (result.present if confirm else None)
    if result.timed and best is not None and not dry_run:
        closed = {n: v for n, v in subject.settled().items() if n not in subject.open()}
        facts = {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "seconds": _median(best),
            "before": {"constants": result.present.values, "seconds": _median(result.present)},
            **({"device": opened.name} if opened is not None else {}),
        }
        kept = str(tuned.save(found, target, subject.arguments, closed, best.values, facts))
    if json_file is not None:
        write_text(json_file, dump(_data(found.name, target, result, kept)))
    if json_file != "-":
        _print(result, kept, dry_run)


def _target(on: str | None) -> Target:
    if on is not None:
        return plugins.check(parse(on))
    for info in plugins.targets():
        if "execute" in info.can and ":" not in info.name and info.name != "numpy":
            return parse(info.name)
    raise UnavailableError(
        "this machine has no device to tune for",
        hint="name a simulated target to see predictions; `kittens doctor` lists them",
    )


def _example(
    name: str, kernel: Any, shape: str | None, args: tuple[str, ...], constants: tuple[str, ...]
) -> Example:
    example = Example.of(kernel) if ":" not in name else Example()
    if shape is not None and (args or ":" in name):
        raise ArgumentError(
            "--shape is for kernels of the library, and goes without --arg",
            hint="give --arg for each argument",
        )
    if shape is not None:
        try:
            extents = [int(n) for n in shape.split(",")]
        except ValueError:
            raise ArgumentError(f"{shape!r} is no shape", hint="say extents, as in 4096,4096") from None
        example = shaped(kernel, extents)
    elif not args and ":" not in name:
        example = usual(kernel)
    if args:
        example = Example(tuple(read_argument(a) for a in args), example.constants)
    example = Example(example.args, {**example.constants, **dict(map(read_constant, constants))})
    if not example.args and kernel.params:
        raise ArgumentError(
            f"kernel {kernel.name} takes {', '.join(kernel.params)}, and no arguments are given",
            hint="describe each, in order: --arg float32[1024,64] --arg 3",
        )
    return example


def _median(candidate: Any) -> float:
    from kittens.bench.stats import median

    return median(candidate.seconds)


def _data(kernel: str, target: Target, result: Any, kept: str | None) -> dict[str, Any]:
    rows = []
    for c in result.candidates:
        row: dict[str, Any] = {
            "constants": c.values,
            "state": c.state,
            "reason": c.reason,
            "seconds": c.seconds,
        }
        if c.prediction is not None:
            p = c.prediction
            row["predicted"] = {
                "registers": p.registers,
                "shared_bytes": p.shared_bytes,
                "at_once": p.at_once,
            }
        rows.append(row)
    return {
        "kernel": kernel,
        "target": str(target),
        "how": "timed" if result.timed else "predicted only",
        "present": result.present.values,
        "winner": result.winner.values if result.winner else None,
        "kept": kept,
        "candidates": rows,
    }


def _print(result: Any, kept: str | None, dry_run: bool) -> None:
    """The candidates, best first, those that were left out last and in short; then what was found."""
    from kittens.bench.tune import STATES

    out = console()
    tried = [c for c in result.candidates if c.state != "pruned"]
    left_out = sorted((c for c in result.candidates if c.state == "pruned"), key=lambda c: c.cost)
    least = min((c.prediction.cost for c in tried if c.prediction), default=0.0)
    columns = ("registers", "shared", "predicted", *(("time",) if result.timed else ()))
    rows = table("candidate", *columns, "what became of it", right=columns)

    def order(c: Any) -> tuple[Any, ...]:
        cost = c.prediction.cost if c.prediction else 0.0
        return -STATES.index(c.state), _median(c) if c.seconds else 0.0, cost

    for c in [*sorted(tried, key=order), *left_out[:_SHOWN]]:
        p = c.prediction
        predicted = (str(p.registers), str(p.shared_bytes), f"{p.cost / least:.2f} x") if p else ("", "", "")
        times = (duration(_median(c)) if c.seconds else "",) if result.timed else ()
        said = ("present values" if c is result.present else "winner" if c is result.winner else c.state) + (
            f": {c.reason.splitlines()[0]}" if c.reason else ""
        )
        rows.add_row(str(c), *predicted, *times, said)
    out.print(rows)
    if len(left_out) > _SHOWN:
        out.print(f"... and {len(left_out) - _SHOWN} more that were pruned; --json has all", markup=False)
    best = result.winner
    if not result.timed:
        out.print(f"\n{PREDICTED}", markup=False)
        out.print(f"predicted to be best: {best or result.present}", markup=False)
    elif best is None:
        out.print(f"\nthe present values stay: {result.present}", markup=False)
        if kept:
            out.print(f"kept in {kept}", markup=False)
    else:
        gain = _median(result.present) / _median(best)
        out.print(f"\n{best} is {gain:.3f} times as fast as the present {result.present}", markup=False)
        out.print(f"kept in {kept}" if kept else "not kept: --dry-run" if dry_run else "", markup=False)
