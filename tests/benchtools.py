"""A device whose time is made up: work on it takes as long as a test says, and its arrays are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kittens.bench.race import OURS
from kittens.bench.workload import Workload


class FakeClock:
    """Counts the seconds of the calls that it makes. records: whether it can record work."""

    def __init__(self, records: bool = True):
        self.records = records
        self.busy = 0.0
        self.host = 0.0  # what submitting costs a call, on top: the device waits for it
        self.log: list[str] = []
        self.samples: list[tuple[str, int, float]] = []  # what was timed: first call, how many, seconds
        self.rests: list[float] = []
        self.recording = False
        self.recorded = 0

    def call(self, name: str, seconds: float | Callable[[], float], result: Any = None) -> Callable[[], Any]:
        def submit() -> Any:
            self.log.append(name)
            if not self.recording:
                self.busy += self.host
            self.busy += seconds() if callable(seconds) else seconds
            return result

        return submit

    def time(self, work: Callable[[], None]) -> float:
        start, first = self.busy, len(self.log)
        work()
        self.samples.append((self.log[first], len(self.log) - first, self.busy - start))
        return self.busy - start

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)

    def capture(self, work: Callable[[], None]) -> Callable[[], None] | None:
        if not self.records:
            return None
        self.recording = True
        first, start = len(self.log), self.busy
        work()
        self.recording = False
        names, seconds = self.log[first:], self.busy - start
        self.recorded += 1

        def replay() -> None:
            self.log.extend(names)
            self.busy += seconds

        return replay


class FakeDevice(FakeClock):
    """A FakeClock that arrays can be made on, with a cache of 1000 bytes."""

    cache_bytes = 1000

    def __init__(self, name: str = "a gem", records: bool = True):
        super().__init__(records)
        self.name = name
        self.random = np.random.default_rng(0)
        self.hosts = 0

    def host_clock(self) -> FakeClock:
        self.hosts += 1
        return self

    def normal(self, shape: Any, dtype: str) -> Any:
        return self.random.standard_normal(4 if np.prod(shape) > 10**6 else shape)

    def empty(self, shape: Any, dtype: str) -> Any:
        return np.zeros(4 if np.prod(shape) > 10**6 else shape)

    def like(self, described: Any) -> Any:
        return self.random.standard_normal(described.shape).astype(described.dtype.numpy)

    def kept(self, array: Any) -> Any:
        return array.copy()

    def poison(self, array: Any) -> Any:
        array.fill(np.nan)
        return array

    def restore(self, array: Any, kept: Any) -> None:
        array[...] = kept

    def copies(self, to: Any, source: Any) -> dict[str, Callable[[], Any]]:
        return {"copy": self.call("copy", 1e-3), "slow copy": self.call("slow copy", 3e-3)}

    def nbytes(self, array: Any) -> int:
        return int(getattr(array, "nbytes", 0))

    def difference(self, ours: Any, theirs: Any) -> tuple[float, float]:
        d = np.abs(ours - theirs)
        return float(np.sqrt((d**2).mean())), float(d.max())

    def release(self) -> None:
        pass

    def facts(self) -> dict[str, Any]:
        return {"device": self.name, "driver": {"driver_version": "1"}, "versions": {"gemlib": "2"}}


def workload(
    device: FakeDevice, name: str, seconds: dict[str, Any], wrong: float = 0.0, **more: Any
) -> Workload:
    """Doubling an array; contenders take `seconds`, by name. Ours is off by `wrong`."""

    def made(contender: str) -> Callable[..., Any]:
        def build(*on: str, x: Any) -> Any:
            off = wrong if contender == OURS else 0.0
            return device.call(contender, seconds[contender], 2 * x + off)

        return build

    options = {"bytes": 1e6, **more}
    return Workload(
        name,
        f"doubling, {name}",
        lambda d: {"x": d.normal((40,), "float64")},
        made(OURS),
        {p: made(p) for p in seconds if p != OURS},
        **options,
    )
