"""Rings in the text: where a role stands in one, its barriers, and the next position.

A position is a slot and a phase, which flips each time round.
"""

from __future__ import annotations

from kittens.codegen.emit.writer import Writer
from kittens.codegen.plan import Ring
from kittens.ir import Value

#: Names that the text of roles gives itself: no value of the program may have them.
OURS = {
    "team",
    "programs",
    "rows",
    "rank",
    "counter",
    "cut_rows",
    "panel",
    "to",
    "turn_0",
    "turn_1",
    "turn_2",
    "me",
}


def slot_of(ring: Ring) -> str:
    """The present slot's number."""
    return f"{(ring.beside or ring).name}_slot" if ring.depth > 1 else "0"


def slot_before(ring: Ring) -> str:
    """The number of the slot before the present one."""
    slot = slot_of(ring)
    return f"({slot} ^ 1)" if ring.depth == 2 else f"({slot} ? {slot} - 1 : {ring.depth - 1})"


def phase_of(ring: Ring) -> str:
    """The parity of the phase that is to be waited for."""
    return f"{(ring.beside or ring).name}_phase"


def bar(ring: Ring, which: str, slot: str = "") -> str:
    """A barrier of the present slot, or of the one given."""
    slot = slot or slot_of(ring)
    return f"{ring.name}_{which}" + (f" + {slot} * 8" if slot != "0" else "")


def advance(writer: Writer, ring: Ring) -> None:
    """Go on to the next slot; rings beside this one go with it."""
    if ring.beside is not None:
        return
    flip = f"{ring.name}_phase ^= 1;"
    if ring.depth > 1:
        writer.line(f"if (++{ring.name}_slot == {ring.depth}) {{ {ring.name}_slot = 0; {flip} }}")
    else:
        writer.line(flip)


def positions(writer: Writer, phase: int, *more: Ring) -> None:
    """Declare where a role stands in each ring: those who copy find all slots empty, those who compute find none full."""
    assert writer.plan.roles is not None
    roles = writer.plan.roles
    for ring in (*(more or roles.rings), *([roles.turns] if roles.turns else [])):
        writer.taken |= {f"{ring.name}_{x}" for x in ("full", "empty", "slot", "phase")}
        if ring.beside is None:
            slot = f"int {ring.name}_slot = 0; " if ring.depth > 1 else ""
            writer.line(f"{slot}kt_u32 {ring.name}_phase = {phase};")


def ring_of(writer: Writer, value: Value) -> Ring:
    assert writer.plan.roles is not None
    rings = (*writer.plan.roles.rings, *(r.ring for r in writer.plan.roles.relays.values()))
    return next(r for r in rings if any(s.load.result is value for s in r.tiles))
