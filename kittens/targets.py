"""Names of targets: `backend[:arch-or-device][@sim]`, such as `numpy`, `cuda:sm_90a`, `cuda:0`,
`hip:gfx950@sim`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from kittens.errors import TargetError, UnavailableError


@dataclass(frozen=True)
class Target:
    """A place where kernels run or for which they are compiled.

    backend: name of the plugin. arch: the architecture, if named. index: the device, if named. simulated: run
    the generated source on the CPU.
    """

    backend: str
    arch: str = ""
    index: int | None = None
    simulated: bool = False

    def __str__(self) -> str:
        detail = self.arch or ("" if self.index is None else str(self.index))
        return self.backend + (f":{detail}" if detail else "") + ("@sim" if self.simulated else "")


def parse(text: str | Target | Any) -> Target:
    """The target a user named. Raises TargetError for a malformed name."""
    if isinstance(text, Target):
        return text
    match = (
        re.fullmatch(r"([a-z][a-z0-9_]*)(?::([A-Za-z0-9_]+))?(@sim)?", text)
        if isinstance(text, str)
        else None
    )
    if match is None:
        raise TargetError(
            f"{text!r} is not the name of a target",
            hint="names look like numpy, cuda:sm_90a, cuda:0, hip:gfx950@sim; `kittens doctor` lists them",
        )
    backend, detail, sim = match.groups()
    if detail and detail.isdigit():
        return Target(backend, "", int(detail), bool(sim))
    return Target(backend, detail or "", None, bool(sim))


@dataclass(frozen=True)
class TargetInfo:
    """What a backend says of one of its targets on this machine.

    `can` holds the ways it works here ("execute", "simulate", "compile"); `missing` says, for each way that
    does not, what is missing and what brings it.
    """

    name: str
    description: str
    can: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)


def infos(backend: str, architectures: dict[str, str], lacks: dict[str, str]) -> list[TargetInfo]:
    """What a generating backend lists: each architecture ("" for the machine's own device), and its simulation.

    `lacks` says, for each of "execute", "compile" and "simulate" that does not work here, what is missing.
    """
    out = []
    for arch, text in architectures.items():
        name = backend + (f":{arch}" if arch else "")
        listed: list[tuple[str, str, tuple[str, ...]]] = [(name, text, ("execute", "compile"))]
        if arch:
            listed.append((f"{name}@sim", f"{text}, simulated on the CPU", ("simulate",)))
        for full, said, ways in listed:
            can = tuple(w for w in ways if w not in lacks)
            out.append(TargetInfo(full, said, can, {w: lacks[w] for w in ways if w in lacks}))
    return out


def way(target: Target, kernel: str, lacks: dict[str, str]) -> str:
    """How a target runs kernels: "execute" or "simulate". Raises UnavailableError if that does not work here."""
    how = "simulate" if target.simulated else "execute"
    if how in lacks:
        raise UnavailableError(
            f"{target} cannot run kernel {kernel}: {lacks[how]}",
            hint="run it on the reference with on='numpy'; `kittens doctor` says what this machine can do",
        )
    return how


@dataclass(frozen=True)
class Numerics:
    """What a target promises of its arithmetic (docs/semantics.md).

    ulp: for each mathematical function, the largest error in units in the last place of its float32 result.
    underflows: functions among them whose results below the smallest normal float32 may be zero.
    flushes: whether float32 subnormals count as zero. float8: for each float8 dtype "native", "emulated" or
    "refused". atomics: dtypes that kt.store_add adds in. turns: whether programs wait for each other there. A backend that
    generates source says of both what its `Machine` says.
    """

    ulp: dict[str, float]
    flushes: bool = False
    underflows: tuple[str, ...] = ()
    float8: dict[str, str] = field(default_factory=dict)
    atomics: tuple[str, ...] = ("float32", "float64", "int32", "uint32", "int64", "uint64")
    turns: bool = False


@dataclass(frozen=True)
class Rows:
    """How the operands of a product had better lie: with rows that begin at multiples of `step` bytes. along: and that go along
    the axis which is summed.
    """

    step: int
    along: bool = False


@dataclass(frozen=True)
class Rates:
    """What a usual device of an architecture can do at most: to rank candidates by, never to claim a time.

    processors: that programs are dealt to. shared_bytes, threads, registers: that one of them has for all its programs.
    products: operations a second of matrix products, by bits of an operand's element; vector: of all else. bandwidth:
    bytes a second from memory; cache: from the cache that all processors share.
    """

    processors: int
    shared_bytes: int
    threads: int
    registers: int
    products: dict[int, float]
    vector: float
    bandwidth: float
    cache: float
