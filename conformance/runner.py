"""Running the suite and reporting on it."""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.metadata
import json
import multiprocessing
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from kittens import plugins
from kittens.conformance.case import Case, select
from kittens.conformance.cases import all_cases
from kittens.conformance.examine import Row, build, examine
from kittens.targets import Target, parse

#: Cases handed to a worker process at a time.
CHUNK = 12

#: How many threads linear algebra takes, by the names that its libraries read.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

Progress = Callable[[int, int, Row], None]  # (rows done, rows in all, the latest)


@dataclass(frozen=True)
class Summary:
    """Counts, the largest observed/bound among the cases that passed, and where it was."""

    cases: int
    passed: int
    failed: int
    refused: int
    largest_ratio: float
    largest_case: str
    seconds: float


@dataclass(frozen=True)
class Report:
    """The rows of a run, and under what circumstances they came about."""

    rows: list[Row]
    seconds: float
    circumstances: dict[str, Any] = field(default_factory=dict)

    @property
    def failures(self) -> list[Row]:
        return [row for row in self.rows if row.verdict == "failed"]

    @property
    def ok(self) -> bool:
        """Whether something passed and nothing failed."""
        return not self.failures and any(row.verdict == "passed" for row in self.rows)

    def summary(self, target: str | None = None) -> Summary:
        """The summary of all rows, or of those of one target."""
        rows = [row for row in self.rows if target in (None, row.target)]
        count = {v: sum(row.verdict == v for row in rows) for v in ("passed", "failed", "refused")}
        largest = max(
            (row for row in rows if row.verdict == "passed"), key=lambda row: row.ratio, default=None
        )
        ratio, where = (largest.ratio, largest.case) if largest else (0.0, "")
        return Summary(
            len(rows), count["passed"], count["failed"], count["refused"], ratio, where, self.seconds
        )

    def targets(self) -> list[str]:
        """The targets, in the order in which they were asked for."""
        return list(dict.fromkeys(row.target for row in self.rows))

    def to_json(self, **options: Any) -> str:
        """Everything as JSON text."""
        summaries = {t: asdict(self.summary(t)) for t in self.targets()}
        whole = {
            **self.circumstances,
            "seconds": self.seconds,
            "summary": summaries,
            "rows": [row.to_json() for row in self.rows],
        }
        return json.dumps(whole, **options)


def run(
    targets: str | Target | Sequence[str | Target] = "numpy",
    pattern: str | None = None,
    stop_first: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
    max_cost: float | None = None,
    compile_only: bool = False,
) -> Report:
    """Run the cases that `pattern` and `max_cost` select on each target.

    compile_only: compile them, and run nothing. stop_first: end at the first failure. jobs: worker processes (as
    many as processors by default; a device is used from one). progress: called with (rows done, rows in all, the
    latest row). Raises TargetError for an unknown target.
    """
    several = [targets] if isinstance(targets, (str, Target)) else list(targets)
    chosen = [plugins.check(parse(t)) for t in several]
    start = datetime.datetime.now(datetime.timezone.utc)
    cases = select(all_cases().values(), pattern, max_cost)
    rows: list[Row] = []
    total = len(cases) * len(chosen)
    for target in chosen:
        for row in _rows(target, cases, jobs, compile_only):
            rows.append(row)
            if progress is not None:
                progress(len(rows), total, row)
            if stop_first and row.verdict == "failed":
                return _report(rows, start, chosen)
    return _report(rows, start, chosen)


def _report(rows: list[Row], start: datetime.datetime, targets: list[Target]) -> Report:
    seconds = (datetime.datetime.now(datetime.timezone.utc) - start).total_seconds()
    return Report(rows, seconds, circumstances(targets, start))


def circumstances(targets: list[Target], start: datetime.datetime) -> dict[str, Any]:
    """Versions, platform, date and the numerics promised by each target, so that a report can be read years
    later.
    """
    versions = {}
    for name in ("kittens-gpu", "numpy", "ml_dtypes"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    promised = {}
    for target in targets:
        numerics = plugins.manager().hook.kittens_numerics(target=target)
        promised[str(target)] = asdict(numerics) if numerics is not None else None
    return {
        "date": start.isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **versions},
        "platform": platform.platform(),
        "processor": platform.machine(),
        "seed": "each case is seeded by its name",
        "policy": "strict: float32 accumulation, round to nearest even, no contraction, saturating float8",
        "numerics": promised,
    }


def _rows(target: Target, cases: list[Case], jobs: int | None, compile_only: bool) -> Iterator[Row]:
    """Rows in the order of the cases. A device is used from one process unless `jobs` says otherwise."""
    hosted = target.backend == "numpy" or target.simulated or compile_only
    workers = jobs or (_processors() if hosted else 1)
    if workers == 1 or len(cases) <= CHUNK:
        yield from map(functools.partial(build if compile_only else examine, target=target), cases)
        return
    names = [case.name for case in cases]
    chunks = [names[i : i + CHUNK] for i in range(0, len(names), CHUNK)]
    # spawn: a fork of a process that has threads (a progress bar, a BLAS) may hang.
    context = multiprocessing.get_context("spawn")
    with _one_thread_each(), ProcessPoolExecutor(workers, context, initializer=all_cases) as pool:
        futures = [pool.submit(_examine_named, str(target), chunk, compile_only) for chunk in chunks]
        try:
            for future in futures:
                yield from future.result()
        finally:
            for future in futures:
                future.cancel()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started within keep to one thread each: processors are shared out already."""
    names = (*_THREADS, "KITTENS_SIM_WORKERS")
    own = {name: "1" for name in names if name not in os.environ}
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]


def _examine_named(target: str, names: list[str], compile_only: bool) -> list[Row]:
    table = all_cases()
    return [(build if compile_only else examine)(table[name], parse(target)) for name in names]
