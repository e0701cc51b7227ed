"""What the simulator reports when a kernel does something that no device defines."""

from __future__ import annotations

from kittens.errors import CheckError, Location

# By number, as in FaultKind of runtime/kt_sim.h.
KINDS = (
    "none",
    "global-bounds",
    "shared-bounds",
    "misaligned",
    "read-only",
    "unwritten-shared",
    "async-shared",
    "race",
    "divergent",
    "barrier",
    "assertion",
    "crash",
    "unfenced",
    "product",
    "descriptor",
    "registers",
)


class SimulationFault(CheckError):
    """A fault of a kernel, found by the simulator.

    kind      one of `KINDS`: what sort of fault
    kernel    name of the entry function
    program   index of the program in the grid, (x, y, z)
    thread    number of the thread within its program
    lane      number of the thread within its group (warp, wave, simdgroup)
    file      source file of the line, as `#line` or the table of locations names it
    line      1-based line, 0 if unknown
    detail    what happened, without the place
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        kernel: str,
        program: tuple[int, int, int],
        thread: int,
        lane: int,
        file: str,
        line: int,
    ):
        where = f"kernel {kernel}, program {program}, thread {thread} (lane {lane}), {file}:{line}"
        super().__init__(
            f"{kind}: {detail}\n  in {where}",
            location=Location(file, line) if file and line else None,
        )
        self.kind = kind
        self.kernel = kernel
        self.program = program
        self.thread = thread
        self.lane = lane
        self.file = file
        self.line = line
        self.detail = detail

    def __reduce__(self) -> tuple[object, ...]:
        fields = {
            "kernel": self.kernel,
            "program": self.program,
            "thread": self.thread,
            "lane": self.lane,
            "file": self.file,
            "line": self.line,
        }
        return _rebuild, (self.kind, self.detail, fields)


def _rebuild(kind: str, detail: str, fields: dict[str, object]) -> SimulationFault:
    return SimulationFault(kind, detail, **fields)  # type: ignore[arg-type]
