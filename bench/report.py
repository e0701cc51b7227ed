"""Results as they are kept: raw samples with the device, the versions and the date; read, merged, and compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kittens.bench import stats
from kittens.bench.roofline import Roofline
from kittens.bench.timing import Samples
from kittens.errors import ArgumentError

#: What "format" says in a file of this kind.
FORMAT = "kittens bench 1"
OURS = "kittens"


@dataclass
class Row:
    """What one workload gave.

    check: how far our result was from a peer's. error: why nothing was timed, or "". bound: the least seconds by the
    limits that were measured in the same run, 0 if none were.
    """

    workload: str
    flops: float
    bytes: float
    unit: str
    samples: dict[str, Samples]
    check: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    bound: float = 0.0

    @property
    def peers(self) -> list[str]:
        """The contenders that are not ours."""
        return [name for name in self.samples if name != OURS]

    def seconds(self, contender: str = OURS, way: str = "hot") -> float:
        """The median of a contender's samples, NaN if there are none."""
        found = self.samples.get(contender, Samples())
        samples = found.hot if way == "hot" else found.burst
        return stats.median(samples) if samples else math.nan

    def fraction(self, contender: str = OURS) -> float:
        """A contender's part of the limit, NaN where there is none."""
        return self.bound / self.seconds(contender) if self.bound else math.nan

    def ratio(self, peer: str, way: str = "hot") -> float:
        """How many times as fast as the peer we are."""
        return self.seconds(peer, way) / self.seconds(OURS, way)


@dataclass
class Report:
    """The results of a run: facts (device, driver, versions, date), how it was timed, the limits, the rows."""

    target: str
    facts: dict[str, Any]
    method: dict[str, Any]
    roofline: Roofline | None = None
    rows: list[Row] = field(default_factory=list)

    def row(self, workload: str) -> Row | None:
        """The row of a workload."""
        return next((r for r in self.rows if r.workload == workload), None)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "format": FORMAT,
            "target": self.target,
            **self.facts,
            "method": self.method,
            "roofline": None if self.roofline is None else asdict(self.roofline),
            "rows": [asdict(row) for row in self.rows],
        }


def read(path: str | Path) -> Report:
    """The report in a file. Raises ArgumentError, saying what is wrong with it, for any other file."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(
            f"cannot read the results in {path}: {getattr(error, 'strerror', None) or error}"
        ) from None
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ArgumentError(
            f"{path} is no JSON: {error}", hint="name a file that `kittens bench --json` wrote"
        ) from None
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise ArgumentError(
            f"{path} holds no results of a bench on a device: its format is {found!r}, not {FORMAT!r}",
            hint="name a file that `kittens bench --on ... --json` wrote",
        )
    try:
        return _report(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ArgumentError(f"the results in {path} are damaged: {said}") from None


def _report(data: dict[str, Any]) -> Report:
    known = {"format", "target", "method", "roofline", "rows"}
    limits = data["roofline"]
    roofline = None
    if limits is not None:
        roofline = Roofline(float(limits["bandwidth"]), dict(limits["products"]), dict(limits["samples"]))
    facts = {name: value for name, value in data.items() if name not in known}
    return Report(str(data["target"]), facts, dict(data["method"]), roofline, [_row(r) for r in data["rows"]])


def _row(data: dict[str, Any]) -> Row:
    samples = {
        name: Samples(_numbers(s["hot"]), _numbers(s["burst"]), bool(s["captured"]))
        for name, s in data["samples"].items()
    }
    name, error = str(data["workload"]), str(data["error"])
    if not error and OURS not in samples:
        raise ValueError(f"{name} has no samples of ours")
    if not error and any(not s.hot for s in samples.values()):
        raise ValueError(f"{name} has no hot samples")
    work = float(data["flops"]), float(data["bytes"])
    return Row(name, *work, str(data["unit"]), samples, dict(data["check"]), error, float(data["bound"]))


def _numbers(samples: Sequence[Any]) -> list[float]:
    found = [float(x) for x in samples]
    if not all(math.isfinite(x) and x > 0 for x in found):
        raise ValueError(f"samples are seconds, not {samples}")
    return found


def merged(reports: Sequence[Report]) -> Report:
    """Reports of parts of one table as one; of a workload in several of them, the last row. Limits are the first's."""
    first = reports[0]
    for other in reports[1:]:
        _same_device(first, other)
    rows = {row.workload: row for report in reports for row in report.rows}
    products = {u: p for r in reversed(reports) if r.roofline for u, p in r.roofline.products.items()}
    samples = {u: p for r in reversed(reports) if r.roofline for u, p in r.roofline.samples.items()}
    limits = next((r.roofline for r in reports if r.roofline), None)
    roofline = Roofline(limits.bandwidth, products, samples) if limits else None
    facts = {name: value for name, value in first.facts.items() if name != "not timed"}
    left = dict.fromkeys(n for report in reports for n in report.facts.get("not timed", ()) if n not in rows)
    if left:
        facts["not timed"] = list(left)
    return Report(first.target, facts, first.method, roofline, list(rows.values()))


def _same_device(a: Report, b: Report) -> None:
    names = a.facts.get("device"), b.facts.get("device")
    if names[0] != names[1]:
        raise ArgumentError(
            f"results of {names[0]} and of {names[1]} cannot be compared", hint="name results of one device"
        )


@dataclass(frozen=True)
class Comparison:
    """How our figure for a workload moved. what: "ratio to PEER", or "time" where the runs have no peer in common."""

    workload: str
    what: str
    old: float
    new: float
    change: stats.Change

    @property
    def regressed(self) -> bool:
        return self.change.regressed

    def __str__(self) -> str:
        moved, allowed = 100 * (self.change.factor - 1), 100 * self.change.allowance
        figures = (
            f"{self.old * 1e6:.4g} us, now {self.new * 1e6:.4g} us"
            if self.what == "time"
            else f"{self.old:.3f}, now {self.new:.3f}"
        )
        return f"{self.workload}: {self.what} was {figures}: {moved:+.1f} % (noise allows {allowed:.1f} %)"


def against(new: Report, old: Report) -> list[Comparison]:
    """Every workload that both timed: our hot ratio to the first common peer, or our time.

    A ratio is made within one run, so it says the same on a warmer day; a time does not. Raises ArgumentError for results of
    different devices, or with nothing in common.
    """
    _same_device(new, old)
    found = list(_comparisons(new, old))
    if not found:
        raise ArgumentError(
            "the two results have no workload in common that both could time",
            hint=f"the older has {', '.join(r.workload for r in old.rows if not r.error) or 'none'}",
        )
    return found


def _comparisons(new: Report, old: Report) -> Iterator[Comparison]:
    for row in new.rows:
        before = old.row(row.workload)
        if row.error or before is None or before.error:
            continue
        peer = next((p for p in before.peers if p in row.samples), None)
        if peer is None:
            change = stats.change(
                1 / before.seconds(), 1 / row.seconds(), before.samples[OURS].hot, row.samples[OURS].hot
            )
            yield Comparison(row.workload, "time", before.seconds(), row.seconds(), change)
            continue
        scattered = [stats.ratios(r.samples[OURS].hot, r.samples[peer].hot) for r in (before, row)]
        change = stats.change(before.ratio(peer), row.ratio(peer), *scattered)
        yield Comparison(row.workload, f"ratio to {peer}", before.ratio(peer), row.ratio(peer), change)
