"""What a usual device can do at most: an M2 Pro, by what Apple says of it, its cache roughly. Candidates are ranked by it."""

from __future__ import annotations

from kittens.targets import Rates

RATES = Rates(19, 32768, 1024, 53248, {32: 6.5e12, 16: 6.5e12, 8: 6.5e12}, 6.5e12, 0.2e12, 0.6e12)
