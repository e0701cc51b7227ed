"""Two ways of timing, hot and burst, against whatever clock a device has.

*Hot*: contenders take turns in rounds of some 80 ms, so that the device works at the limit of its power, in an order
that is reversed every other round, so that each meets the same clocks and temperatures. The ratio of two contenders
is that of their medians here. *Burst*: a few milliseconds of work after a pause, from a cool device.

Nothing here knows a device: a `Clock` times what is submitted to it, and a test gives one whose time it makes up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class Clock(Protocol):
    """What the engine asks of a device."""

    def time(self, work: Callable[[], None]) -> float:
        """Seconds that the device is busy with what `work` submits; work before that has ended."""

    def rest(self, seconds: float) -> None:
        """Wait until all work has ended, then leave the device idle."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """What `work` submits, recorded, to be submitted again at no cost to the host; None if that cannot be done."""


@dataclass(frozen=True)
class Method:
    """How long and how often to time. Seconds, and numbers of samples.

    capture_below: calls that take less are recorded by the device, if all contenders can be, so that what the host
    does for each is not timed. most_calls: in one sample, if not 0.
    """

    rounds: int = 7
    round_seconds: float = 0.08
    bursts: int = 5
    burst_seconds: float = 0.004
    pause: float = 0.15
    capture_below: float = 1e-3
    most_calls: int = 0


@dataclass(frozen=True)
class Contender:
    """One that is timed. `calls` do the same work, each on its own copy of the inputs."""

    name: str
    calls: Sequence[Callable[[], Any]]


@dataclass
class Samples:
    """Seconds that one call took, by sample. captured: what was timed were recordings of calls."""

    hot: list[float] = field(default_factory=list)
    burst: list[float] = field(default_factory=list)
    captured: bool = False


class _Lane:
    """A contender at work: it goes through the copies of its inputs in turn, and knows about how long a call takes."""

    def __init__(self, clock: Clock, contender: Contender):
        self.clock = clock
        self.name = contender.name
        self.units: Sequence[Callable[[], Any]] = contender.calls
        self.calls = 1  # in one unit
        self.next = 0
        self.seconds = 0.0  # of one call
        self.samples = Samples()

    def sample(self, seconds: float, most: int) -> float:
        """Seconds a call takes, from about `seconds` of work and no more than `most` calls (0: any number)."""
        count = max(1, round(seconds / max(self.seconds * self.calls, 1e-7)))
        if most:
            count = max(1, min(count, most // self.calls))
        return self.clock.time(lambda: self._submit(count)) / (count * self.calls)

    def _submit(self, count: int) -> None:
        for _ in range(count):
            self.units[self.next]()
            self.next = (self.next + 1) % len(self.units)

    def warm(self, method: Method) -> None:
        """Run on each copy once, and then find how long a call takes, by more and more of them."""
        self.clock.time(lambda: self._submit(len(self.units)))
        self.seconds = self.clock.time(lambda: self._submit(1)) / self.calls
        for share in (0.01, 0.1):
            self.seconds = self.sample(share * method.round_seconds, method.most_calls)

    def recording(self, seconds: float) -> Callable[[], None] | None:
        """A recording of as many rotations as take about `seconds`."""
        rotations = max(1, math.ceil(seconds / max(self.seconds * len(self.units), 1e-7)))
        return self.clock.capture(lambda: self._submit(rotations * len(self.units)))

    def replay(self, unit: Callable[[], None], seconds: float) -> None:
        """Time a recording of that many seconds from now on."""
        self.calls = len(self.units) * max(1, math.ceil(seconds / max(self.seconds * len(self.units), 1e-7)))
        self.units, self.next, self.samples.captured = [unit], 0, True


def race(clock: Clock, contenders: Sequence[Contender], method: Method) -> dict[str, Samples]:
    """Time all contenders together, first in bursts, then hot."""
    lanes = [_Lane(clock, c) for c in contenders]
    for lane in lanes:
        lane.warm(method)
    _capture(lanes, method)
    for number in range(method.bursts):
        for lane in _order(lanes, number):
            clock.rest(method.pause)
            lane.samples.burst.append(lane.sample(method.burst_seconds, method.most_calls))
    for number in range(method.rounds + 1):
        for lane in _order(lanes, number):
            seconds = lane.sample(method.round_seconds, method.most_calls)
            lane.seconds = seconds
            if number:  # the first round only warms
                lane.samples.hot.append(seconds)
    return {lane.name: lane.samples for lane in lanes}


def _order(lanes: list[_Lane], number: int) -> list[_Lane]:
    """Forwards, and backwards every other time."""
    return lanes[::-1] if number % 2 else lanes


def _capture(lanes: list[_Lane], method: Method) -> None:
    """Record the work of all lanes, or of none: what one gains the others must gain too."""
    if not lanes or min(lane.seconds for lane in lanes) >= method.capture_below:
        return
    span = method.burst_seconds / 4
    recordings = []
    for lane in lanes:
        recording = lane.recording(span)
        if recording is None:
            return
        recordings.append(recording)
    for lane, recording in zip(lanes, recordings, strict=True):
        lane.replay(recording, span)
        lane.warm(method)
