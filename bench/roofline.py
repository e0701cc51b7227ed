"""The limits of a device, measured in the run that they are compared in: its copies and its large products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kittens.bench.stats import median
from kittens.bench.timing import Contender, Method, race

#: Bytes of the array that is copied; each is read and written.
COPIED = 1 << 29
#: Rows of the square matrices that are multiplied.
SQUARE = 8192
#: Rounds: the limits are steadier than most kernels.
ROUNDS = 3


@dataclass(frozen=True)
class Roofline:
    """Measured limits: bytes a second of the fastest copy, operations a second of a product by element type; raw seconds
    by name.
    """

    bandwidth: float
    products: dict[str, float]
    samples: dict[str, list[float]]

    def bound(self, flops: float, moved: float, unit: str) -> float:
        """The least seconds that so much work could take."""
        product = self.products.get(unit)
        return max(moved / self.bandwidth, flops / product if product else 0.0)


def measure(device: Any, units: set[str], method: Method) -> Roofline:
    """Copy, and multiply in each of the element types, hot."""
    from kittens.bench.workloads import products, torch_peers

    how = replace(method, rounds=ROUNDS, bursts=0)
    x, y = device.normal((COPIED // 2,), "bfloat16"), device.empty((COPIED // 2,), "bfloat16")
    ways = [Contender(name, [call]) for name, call in device.copies(y, x).items()]
    samples = {name: found.hot for name, found in race(device, ways, how).items()}
    bandwidth = 2 * COPIED / min(median(hot) for hot in samples.values())
    del ways
    del x, y
    limits = {}
    for unit in sorted(units):
        short = next(s for s, name in products.NAMES.items() if name == unit)
        work = products.matmul(SQUARE, SQUARE, SQUARE, short, True)
        peer = torch_peers.scaled_mm(True) if short == "fp8" else torch_peers.mm
        samples[f"product.{unit}"] = _hot(device, peer(**work.inputs(device)), how)
        limits[unit] = work.flops / median(samples[f"product.{unit}"])
    device.release()
    return Roofline(bandwidth, limits, samples)


def _hot(device: Any, call: Any, method: Method) -> list[float]:
    return race(device, [Contender("limit", [call])], method)["limit"].hot
