"""What is made of raw samples: medians, ratios, how far they scatter, and whether one run is slower than another."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: Standard deviations of a normal distribution in one median absolute deviation.
_SIGMA = 1.4826
#: Differences of less than this share are never called regressions: a card is not the same card an hour later.
LEAST_ALLOWANCE = 0.01
#: Scatters, of both runs together, that a difference must exceed.
SCATTERS = 3.0


def median(samples: Sequence[float]) -> float:
    """The median."""
    return statistics.median(samples)


def scatter(samples: Sequence[float]) -> float:
    """How far samples lie from their median, as a share of it: a standard deviation that outliers do not move."""
    middle = median(samples)
    return _SIGMA * median([abs(x - middle) for x in samples]) / middle if middle else 0.0


def ratio(ours: Sequence[float], peer: Sequence[float]) -> float:
    """How many times as fast as the peer we are: the ratio of the medians."""
    return median(peer) / median(ours)


def ratios(ours: Sequence[float], peer: Sequence[float]) -> list[float]:
    """The same round by round, for their scatter: both had the same clocks there."""
    return [p / o for o, p in zip(ours, peer, strict=False)]


@dataclass(frozen=True)
class Change:
    """How a figure moved between two runs: new / old, and how far below 1 noise alone may take it."""

    factor: float
    allowance: float

    @property
    def regressed(self) -> bool:
        return self.factor < 1 - self.allowance


def change(old: float, new: float, old_samples: Sequence[float], new_samples: Sequence[float]) -> Change:
    """Compare two figures, of which more is better, with the samples that each was made of.

    The allowance is three times the scatter of both runs together, at least 1 %.
    """
    noise = math.hypot(scatter(old_samples), scatter(new_samples))
    return Change(new / old, max(LEAST_ALLOWANCE, SCATTERS * noise))
