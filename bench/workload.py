"""Workloads: what is timed on a device, as data. `kittens.bench.workloads` has them."""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kittens.errors import ArgumentError

#: A call to time: it submits the work and gives the result.
Call = Callable[[], Any]
#: The modules of `kittens.bench.workloads` that list workloads, in `WORKLOADS`.
MODULES = ("products", "rows", "attention", "launches")


@dataclass(frozen=True)
class Workload:
    """One thing to time, ours and the peers'.

    inputs(device): the arrays, by name, made anew for each copy. ours(on, **inputs) and peers[name](**inputs) give the
    call to time; the first peer is also what ours is checked against. flops and bytes count the least work that
    gives the result: each tensor once. unit: the element type whose products bound it, or "". tolerance: of the
    check, in roundings of the result's type. check(device, inputs, ours, theirs): another comparison than of the results, where
    they are not meant to be equal; it gives how far they are apart in roundings, typically and at worst. host: what
    counts is the time of the caller, not of the device.
    """

    name: str
    summary: str
    inputs: Callable[[Any], dict[str, Any]]
    ours: Callable[..., Call]
    peers: dict[str, Callable[..., Call]]
    flops: float = 0.0
    bytes: float = 0.0
    unit: str = ""
    tolerance: float = 0.5
    check: Callable[[Any, dict[str, Any], Any, Any], tuple[float, float]] | None = None
    host: bool = False
    tags: tuple[str, ...] = field(default=(), compare=False)


def workloads() -> list[Workload]:
    """All of them, in order."""
    found = [w for m in MODULES for w in importlib.import_module(f"kittens.bench.workloads.{m}").WORKLOADS]
    names = [w.name for w in found]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise ArgumentError(f"two workloads are called {', '.join(sorted(twice))}")
    return found


def matches(name: str, wanted: str) -> bool:
    """Whether a name is `wanted`, begins with it (at a dot), or matches it as a pattern."""
    return name == wanted or name.startswith(f"{wanted}.") or fnmatch.fnmatchcase(name, wanted)


def choose(known: Sequence[Workload], wanted: Sequence[str]) -> list[Workload]:
    """Those that some wanted name matches, all if none is given. Raises ArgumentError for one that matches nothing."""
    for name in wanted:
        if not any(matches(w.name, name) for w in known):
            heads = dict.fromkeys(".".join(w.name.split(".")[:2]) for w in known)
            raise ArgumentError(f"no workload {name!r}", hint=f"there are {', '.join(heads)}; --list has all")
    return [w for w in known if not wanted or any(matches(w.name, name) for name in wanted)]


def choose_peers(chosen: Sequence[Workload], wanted: Sequence[str]) -> dict[str, list[str]]:
    """The peers to time beside each workload: those wanted that it has, or all.

    "cublas" stands for "cublas-fast" too. Raises ArgumentError for a name that none of the workloads has.
    """
    known = list(dict.fromkeys(p for w in chosen for p in w.peers))
    for name in wanted:
        if not any(_is(p, name) for p in known):
            raise ArgumentError(
                f"none of these workloads has a peer {name!r}", hint=f"they have {', '.join(known)}"
            )
    return {
        w.name: [p for p in w.peers if not wanted or any(_is(p, name) for name in wanted)] for w in chosen
    }


def _is(peer: str, wanted: str) -> bool:
    return peer == wanted or peer.startswith(f"{wanted}-")
