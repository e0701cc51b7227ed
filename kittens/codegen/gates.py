"""What a compiled kernel must keep to: no spills, no more than the target has, nothing that its plan contradicts.

A backend reads its compiled object and says what is there as a `Binary`; `check` refuses what may not be shipped.
"""

from __future__ import annotations

from dataclasses import dataclass

from kittens.codegen.emit import Source
from kittens.codegen.plan import Plan
from kittens.errors import InternalError, UnavailableError

SMALLER = "use smaller tiles (the kernel's tunables)"
_REPORT = "this is a bug in kittens, please report it; other tiles (the kernel's tunables) may do meanwhile"


@dataclass(frozen=True)
class Binary:
    """What a compiled object says of itself; None for what its format does not say.

    spilled: what lies in memory that was meant for registers, in words ("12 bytes of registers"), empty if nothing does.
    shared_bytes: of a program, with what is given at launch. threads: the most that a program may have. parameters: how
    many the kernel takes. serial: why products that were to run beside the threads do not, in the compiler's words. registers and register_file: of a lane, and of all lanes of a program.
    """

    spilled: str = ""
    serial: str = ""
    shared_bytes: int | None = None
    threads: int | None = None
    parameters: int | None = None
    registers: int | None = None
    register_file: int | None = None


def check(plan: Plan, source: Source, binary: Binary) -> None:
    """Raise UnavailableError for a kernel that spills or does not fit, InternalError for one that differs from its plan."""
    function, machine = plan.function, plan.machine
    if binary.spilled:
        raise UnavailableError(
            f"{source.entry} spills on {machine.target}: {binary.spilled}",
            hint=SMALLER,
            location=function.location,
        )
    if binary.serial:
        raise UnavailableError(
            f"products of {source.entry} wait for each other on {machine.target}: {binary.serial}",
            hint=SMALLER,
            location=function.location,
        )
    if binary.shared_bytes is not None and binary.shared_bytes > machine.shared_bytes:
        raise UnavailableError(
            f"{source.entry} takes {binary.shared_bytes} bytes of shared memory, "
            f"{machine.target} has {machine.shared_bytes}",
            hint=SMALLER,
            location=function.location,
        )
    if binary.registers is not None and binary.register_file is not None:
        taken = binary.registers * source.threads
        if taken > binary.register_file:
            raise UnavailableError(
                f"{source.entry} takes {binary.registers} registers in each of {source.threads} threads, "
                f"{machine.target} has {binary.register_file} for a program",
                hint=SMALLER,
                location=function.location,
            )
    for what, found, planned in (
        ("bytes of shared memory", binary.shared_bytes, source.shared_bytes),
        ("threads a program", binary.threads, source.threads),
        ("parameters", binary.parameters, len(source.parameters)),
    ):
        if found is not None and found != planned:
            raise InternalError(
                f"{source.entry} as compiled for {machine.target} has {found} {what}, its plan says {planned}",
                hint=_REPORT,
                location=function.location,
            )
