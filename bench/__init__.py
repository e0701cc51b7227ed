"""Benches of the host: a registry by name, a timer, results as data. (Of devices: `suite` runs what `workload` lists.)

    @bench("host.trace.attention", "trace attention forward")
    def _(target):
        ...prepare...
        return call          # a function without arguments: what is timed

A benchmark where the wall clock would lie returns a `Timed`, which has a clock of its own.
"""

from __future__ import annotations

import fnmatch
import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kittens.errors import ArgumentError


@dataclass(frozen=True)
class Timed:
    """A benchmark with a clock of its own: `sample()` runs once and returns seconds."""

    sample: Callable[[], float]


Prepared = Callable[[], Any] | Timed


@dataclass(frozen=True)
class Bench:
    """A benchmark. `prepare(target)` does what is not timed and gives what is; `limit` is in seconds."""

    name: str
    description: str
    prepare: Callable[[str], Prepared]
    limit: float | None = None


@dataclass(frozen=True)
class Result:
    """Seconds a run of a benchmark took: the least, the median and the most of `runs`."""

    name: str
    target: str
    runs: int
    least: float
    median: float
    most: float
    limit: float | None = None

    @property
    def within(self) -> bool:
        """Whether the least time, which other work disturbs least, keeps to the limit if there is one."""
        return self.limit is None or self.least <= self.limit

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "within": self.within}


BENCHES: dict[str, Bench] = {}


def bench(
    name: str, description: str, *, limit: float | None = None
) -> Callable[[Callable[[str], Prepared]], Callable[[str], Prepared]]:
    """Register a function as the preparation of a benchmark."""

    def register(prepare: Callable[[str], Prepared]) -> Callable[[str], Prepared]:
        if name in BENCHES:
            raise ArgumentError(f"two benchmarks are called {name!r}")
        BENCHES[name] = Bench(name, description, prepare, limit)
        return prepare

    return register


def select(pattern: str | None = None) -> list[Bench]:
    """The benchmarks whose names contain or match `pattern`."""
    importlib.import_module("kittens.bench.workloads")
    found = BENCHES.values()
    return [b for b in found if pattern is None or pattern in b.name or fnmatch.fnmatch(b.name, pattern)]


def measure(b: Bench, target: str = "numpy", seconds: float = 0.5, most: int = 200) -> Result:
    """Time one benchmark: once to warm up, then at least 3 times and up to `seconds` or `most` runs."""
    prepared = b.prepare(target)
    sample = prepared.sample if isinstance(prepared, Timed) else _wall(prepared)
    sample()
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 3 or (len(times) < most and time.perf_counter() - start < seconds):
        times.append(sample())
    return Result(b.name, target, len(times), min(times), statistics.median(times), max(times), b.limit)


def run(pattern: str | None = None, target: str = "numpy", seconds: float = 0.5) -> Iterator[Result]:
    """Time every selected benchmark, one after another."""
    for b in select(pattern):
        yield measure(b, target, seconds)


def _wall(call: Callable[[], Any]) -> Callable[[], float]:
    def sample() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return sample
