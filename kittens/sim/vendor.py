"""What the simulator needs to know of a vendor: a small table, filled in by each backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEVICE = Path(__file__).resolve().parents[1] / "device"  # headers shared by the vendors


@dataclass(frozen=True, eq=False)
class Vendor:
    """A vendor's shim.

    name      of the backend
    suffix    of its source files, for the name of a kernel in reports
    prelude   header included before the source: it makes the vendor's words mean something to a host compiler
    include   folders searched for headers, beside the simulator's own and the neutral device headers
    arches    lanes of a group and macros to define, by architecture; the first is the default
    flags     further options for the compiler
    standard_headers  of the vendor, that sources include and the prelude stands for
    entry     text of the entry points for (source, kernel); None: every parameter is an argument
    """

    name: str
    suffix: str
    prelude: str
    include: tuple[Path, ...]
    arches: Mapping[str, Arch]
    flags: tuple[str, ...] = ()
    standard_headers: tuple[str, ...] = ()
    entry: Callable[[str, str], str] | None = None

    def arch(self, name: str | None) -> Arch:
        """The architecture by name, or the default one."""
        if name is None:
            return next(iter(self.arches.values()))
        if name not in self.arches:
            raise ValueError(
                f"the simulator knows no {self.name} {name!r}; there are {', '.join(self.arches)}"
            )
        return self.arches[name]


@dataclass(frozen=True)
class Arch:
    """Lanes in a group that meets as one, and the macros that the vendor's compiler would predefine."""

    lanes: int
    defines: Mapping[str, str] = field(default_factory=dict)
