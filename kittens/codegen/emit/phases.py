"""Passes of a loop whose groups run in teams some phases apart, as `kittens.codegen.schedule` says it."""

from __future__ import annotations

from collections.abc import Sequence

from kittens.codegen.emit.memory import copy
from kittens.codegen.emit.products import load_operands
from kittens.codegen.emit.writer import Writer
from kittens.codegen.schedule import Copy, Phase, Read, Schedule
from kittens.ir import Op, Value


def enter(writer: Writer, schedule: Schedule) -> None:
    """Behind the first copies: all have come where others will read them, and some teams fall behind."""
    writer.line(f"kt_wait_loads<{schedule.left}>();")
    writer.line("kt_tie();")
    _apart(writer, schedule.before)


def leave(writer: Writer, schedule: Schedule) -> None:
    """Behind the loop: the teams come together again."""
    _apart(writer, schedule.after)


def _apart(writer: Writer, ties: Sequence[int]) -> None:
    """Ties that some teams meet by themselves."""
    size = writer.groups // len(ties)
    for team, count in enumerate(ties):
        for _ in range(count):
            writer.line(f"if (group / {size} == {team}) kt_tie();")


def one_pass(writer: Writer, loop: Op, schedule: Schedule, slot: str, ahead: str, alive: str) -> None:
    """The phases of a pass that works on `slot`; copies are for the pass `ahead`, made of nothing unless `alive`."""
    (region,) = loop.regions
    into = writer.fresh("into")
    writer.line(f"const int {into} = {slot} == 0 ? {schedule.depth - 1} : {slot} - 1;")
    writer.slots.update({v: slot for v, s in writer.plan.staged.items() if s.loop is loop})
    product = next(op for op in region.ops if op.name == "mma")
    for number, phase in enumerate(schedule.phases):
        writer.line(f"// phase {number}")
        words = _phase(writer, loop, phase, product, into, ahead, alive)
        if phase.left is not None:
            writer.line(f"kt_wait_loads<{phase.left}>();")
        if phase.settled:
            writer.line("kt_wait_shared<0>();")
            for line in words:
                writer.line(line)
        writer.line("kt_tie();")
    for side in "ab":
        writer.preloaded.pop((product, side), None)


def _phase(
    writer: Writer, loop: Op, phase: Phase, product: Op, into: str, ahead: str, alive: str
) -> list[str]:
    """What a phase does; the lines that hold the compiler to having what it read."""
    index, held = loop.regions[0].args[0], []
    for act in phase.acts:
        if isinstance(act, Read):
            assert isinstance(act.tile, Value) and not act.part, act
            for words, count, each in load_operands(writer, product, act.tile):
                held.append(_held(words, count, each))
        elif isinstance(act, Copy):
            assert isinstance(act.tile, Value) and not act.part, act
            copy(writer, writer.plan.staged[act.tile], into, {index: ahead}, alive)
        else:
            assert act.product is product, act
            writer.line(f"kt_set_priority<{phase.priority}>();")
            writer.region(loop.regions[0])
            name, layout = writer.held[product.result]
            mt, nt, _ = writer.plan.placement.products[product].tiles
            writer.line(_held(name, layout.registers, layout.registers // (mt * nt)))
            writer.line("kt_set_priority<0>();")
    return held


def _held(array: str, count: int, each: int) -> str:
    """The line by which what makes an array, in vectors of `each` registers, stays before a tie and what takes it after."""
    return f"KT_EACH(r, {count // each}) kt_hold<{each}>(&{array}[r * {each}]);"
