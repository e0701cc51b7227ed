"""One workload on a device: its inputs made, our result checked, all contenders timed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from kittens.bench.report import Row
from kittens.bench.timing import Clock, Contender, Method, race
from kittens.bench.workload import Workload
from kittens.errors import KittensError, UnavailableError

OURS = "kittens"
#: An element may be this many times as far off as is typical: results have up to a billion elements.
WORST = 16.0
#: Rotations of inputs take this many times the bytes of the cache.
ROTATION = 2.0
#: Samples of the host's time are this many calls: fewer than a device lets wait.
HOST_CALLS = 200


class Device(Clock, Protocol):
    """A device that arrays can be made on, compared and timed. Workloads ask it for their inputs, too."""

    cache_bytes: int

    def host_clock(self) -> Clock:
        """A clock of what the caller of this device spends."""

    def nbytes(self, array: Any) -> int:
        """Bytes of an array, 0 for what is none."""

    def difference(self, ours: Any, theirs: Any) -> tuple[float, float]:
        """How far results are apart in roundings of the coarser type: as a whole, and at the worst element."""

    def release(self) -> None:
        """Give back the memory of arrays that are gone."""


class WrongResult(KittensError):
    """Our result is not the peer's: it is not timed."""


def copies(device: Device, workload: Workload) -> list[dict[str, Any]]:
    """So many copies of the inputs that going through them leaves nothing in the cache for the next time."""
    first = workload.inputs(device)
    size = sum(device.nbytes(x) for x in first.values())
    if workload.host or not size:
        return [first]
    count = max(1, math.ceil(ROTATION * device.cache_bytes / size))
    return [first, *(workload.inputs(device) for _ in range(count - 1))]


def check(
    device: Device, workload: Workload, inputs: dict[str, Any], ours: Any, theirs: Any
) -> tuple[float, float]:
    """How far our result is from the peer's, in roundings. Raises WrongResult if that is too far."""
    if workload.check is not None:
        typical, worst = workload.check(device, inputs, ours, theirs)
    else:
        pairs = zip(_results(ours), _results(theirs), strict=True)
        found = [device.difference(o, t) for o, t in pairs]
        typical, worst = max(f[0] for f in found), max(f[1] for f in found)
    allowed = workload.tolerance
    if not (typical <= allowed and worst <= WORST * allowed):  # NaN fails
        raise WrongResult(
            f"the result is wrong: {typical:.3g} roundings from the peer's as a whole, {worst:.3g} at the "
            f"worst element; {allowed:g} and {WORST * allowed:g} are allowed",
            hint="it is not timed; `kittens conform` says more of what is wrong",
        )
    return typical, worst


def _results(results: Any) -> Sequence[Any]:
    return results if isinstance(results, (tuple, list)) else (results,)


def run(
    device: Device,
    workload: Workload,
    peers: Sequence[str],
    on: str,
    method: Method,
    *,
    lenient: bool = False,
) -> Row:
    """Check one workload and time it with its peers; `lenient`: with those that are installed.

    Raises WrongResult, or what a kernel or a peer raises.
    """
    inputs = copies(device, workload)
    reference = next(iter(workload.peers))
    calls = {OURS: [workload.ours(on, **x) for x in inputs]}
    for peer in peers:
        try:
            calls[peer] = [workload.peers[peer](**x) for x in inputs]
        except UnavailableError:
            if not lenient:
                raise
    judge = calls[reference][0] if reference in calls else workload.peers[reference](**inputs[0])
    error = check(device, workload, inputs[0], calls[OURS][0](), judge())
    del judge
    clock, how = (
        (device.host_clock(), replace(method, most_calls=HOST_CALLS, capture_below=0.0))
        if workload.host
        else (device, method)
    )
    samples = race(clock, [Contender(name, made) for name, made in calls.items()], how)
    return Row(
        workload.name, workload.flops, workload.bytes, workload.unit, samples,
        {"against": reference, "typical": error[0], "worst": error[1], "allowed": workload.tolerance},
    )  # fmt: skip


def failed(workload: Workload, error: Exception) -> Row:
    """The row of a workload that could not be timed."""
    said = error.message if isinstance(error, KittensError) else f"{type(error).__name__}: {error}"
    kind = "refused" if isinstance(error, UnavailableError) else "failed"
    return Row(workload.name, workload.flops, workload.bytes, workload.unit, {}, {}, f"{kind}: {said}")
