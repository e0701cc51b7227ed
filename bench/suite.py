"""Many workloads on a device, one after another, into a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import metadata
from typing import Any

from kittens.bench import race, roofline
from kittens.bench.report import Report, Row
from kittens.bench.timing import Method
from kittens.bench.workload import Workload, choose_peers


def run(
    device: Any,
    target: str,
    chosen: Sequence[Workload],
    wanted: Sequence[str] = (),
    method: Method | None = None,
    *,
    budget: float = 0.0,
    progress: Callable[[int, Report], None] = lambda done, report: None,
    now: Callable[[], float] = time.monotonic,
) -> Report:
    """Time the chosen workloads with the wanted peers (none named: all that are installed).

    A workload that fails does not stop the others: its row says why. budget: seconds after which no further one is begun
    (0: no limit); those left out are listed in the report's facts. progress: called before the first and after each.
    """
    method = method or Method()
    start = now()
    peers = choose_peers(chosen, wanted)
    facts = {**device.facts(), "date": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    facts["versions"] = {"kittens": metadata.version("kittens-gpu"), **facts.get("versions", {})}
    report = Report(target, facts, asdict(method))
    if any(w.bytes for w in chosen):
        report.roofline = roofline.measure(device, {w.unit for w in chosen if w.unit}, method)
    progress(0, report)
    for done, workload in enumerate(chosen, 1):
        if budget and now() - start > budget:
            report.facts["not timed"] = [w.name for w in chosen[done - 1 :]]
            break
        row = _row(device, workload, peers[workload.name], bool(wanted), target, method)
        if report.roofline is not None and workload.bytes:
            row.bound = report.roofline.bound(row.flops, row.bytes, row.unit)
        report.rows.append(row)
        device.release()
        progress(done, report)
    return report


def _row(device: Any, workload: Workload, peers: list[str], asked: bool, target: str, method: Method) -> Row:
    try:
        return race.run(device, workload, peers, target, method, lenient=not asked)
    except Exception as error:  # a kernel or a peer may fail in any way; the others are timed all the same
        return race.failed(workload, error)
