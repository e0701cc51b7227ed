"""Names of targets: `backend[:arch-or-device][@sim]`, such as `numpy`, `cuda:sm_90a`, `cuda:0`,
`hip:gfx950@sim`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from kittens.errors import TargetError


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


@dataclass(frozen=True)
class Numerics:
    """What a target promises of its arithmetic (docs/semantics.md).

    ulp: for each mathematical function, the largest error in units in the last place of its float32 result.
    flushes: whether float32 subnormals count as zero. float8: for each float8 dtype "native", "emulated" or
    "refused". atomics: dtypes that kt.store_add adds in.
    """

    ulp: dict[str, float]
    flushes: bool = False
    float8: dict[str, str] = field(default_factory=dict)
    atomics: tuple[str, ...] = ("float32", "float64", "int32", "uint32", "int64", "uint64")
