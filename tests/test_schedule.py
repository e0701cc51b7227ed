"""Schedules of teams a phase apart: the checks accept those that are right, and find every small change that is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kittens.codegen.schedule import Copy, Multiply, Phase, Read, Schedule, faults, ping_pong

#: Of the size that matmul has on gfx950: tiles of 256x32 and 32x256, two pieces of each a lane.
SHIPPED = ping_pong(4, {"a": 2, "b": 2}, "product")


def halves() -> Schedule:
    """HipKittens' schedule with two products a pass, each of half of the rows of a (trials with it are hand-written).

    Two slots of 64 along K. The first half of a, and b, are free when the first product's operands are read, so their next
    tiles but one are started a whole pass ahead; those of the second half follow. All waits leave eight pieces.
    """
    low, high, b = Read("a", 0), Read("a", 1), Read("b")
    return Schedule(
        teams=2,
        depth=2,
        first=(
            Copy("b", 0, 4), Copy("a", 0, 2), Copy("a", 0, 2, part=1),
            Copy("b", 1, 4), Copy("a", 1, 2),
        ),
        left=8,
        phases=(
            Phase((b, low, Copy("a", 1, 2, part=1)), left=8, settled=True),
            Phase((Multiply("low", (low, b)),), priority=1),
            Phase((high, Copy("b", 2, 4), Copy("a", 2, 2)), left=8, settled=True),
            Phase((Multiply("high", (high, b)),), priority=1),
        ),
        before=(0, 1),
        after=(1, 0),
    )  # fmt: skip


GOOD = {"shipped": SHIPPED, "three slots": ping_pong(3, {"a": 1, "b": 4}, "p"), "halves": halves()}


@pytest.mark.parametrize("schedule", GOOD.values(), ids=GOOD)
def test_schedules_that_are_right_have_no_faults(schedule: Schedule) -> None:
    assert faults(schedule) == []


@given(st.integers(2, 8), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_ping_pong_is_right_for_any_tiles_and_depth(depth: int, pieces: list[int]) -> None:
    assert faults(ping_pong(depth, dict(enumerate(pieces)), "p")) == []


def with_phase(schedule: Schedule, number: int, **changes: object) -> Schedule:
    phases = list(schedule.phases)
    phases[number] = replace(phases[number], **changes)  # type: ignore[arg-type]
    return replace(schedule, phases=tuple(phases))


def joined(schedule: Schedule, number: int) -> Schedule:
    """Without the tie between a phase and the next."""
    one, two, rest = schedule.phases[number], schedule.phases[number + 1], schedule.phases[number + 2 :]
    both = Phase((*one.acts, *two.acts), two.left, two.settled, max(one.priority, two.priority))
    return replace(schedule, phases=(*schedule.phases[:number], both, *rest))


def mutants(schedule: Schedule) -> dict[str, tuple[Schedule, str]]:
    """Schedules with one fault each, and a word of what must be said of it."""
    memory = [i for i, p in enumerate(schedule.phases) if p.settled]
    out = {
        "the first wait is looser": (replace(schedule, left=schedule.left + 1), "wait"),
        "a tie too many before": (replace(schedule, before=(0, 2)), "wait for ever"),
        "a tie too few after": (replace(schedule, after=(0, 0)), "wait for ever"),
        "teams in step": (replace(schedule, before=(0, 0), after=(0, 0)), "at once"),
        "a slot too few": (replace(schedule, depth=schedule.depth - 1), "copies over"),
        "nothing before the loop": (replace(schedule, first=()), "not copied"),
    }
    for i in memory:
        left = schedule.phases[i].left
        assert left is not None
        out[f"a looser wait in phase {i}"] = with_phase(schedule, i, left=left + 1), "wait"
        out[f"no wait in phase {i}"] = with_phase(schedule, i, left=None), "wait"
        out[f"no tie after phase {i}"] = joined(schedule, i), ""
        for act in schedule.phases[i].acts:
            others = tuple(x for x in schedule.phases[i].acts if x is not act)
            said = "not read" if isinstance(act, Read) else "not copied"
            out[f"phase {i} without {act}"] = with_phase(schedule, i, acts=others), said
            if isinstance(act, Copy):
                sooner = tuple(
                    replace(x, ahead=x.ahead + 1) if x is act else x for x in schedule.phases[i].acts
                )
                out[f"phase {i}, {act} a pass too soon"] = with_phase(schedule, i, acts=sooner), ""
    for i in (i for i, p in enumerate(schedule.phases) if p.priority):
        out[f"no priority in phase {i}"] = with_phase(schedule, i, priority=0), "priority"
    return out


CASES = [(f"{name}: {what}", *case) for name, s in GOOD.items() for what, case in mutants(s).items()]


@pytest.mark.parametrize(("schedule", "said"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_every_small_change_is_found(schedule: Schedule, said: str) -> None:
    found = faults(schedule)
    assert found
    assert any(said in text for text in found), found


def test_reads_that_are_not_waited_for_before_the_tie_are_found() -> None:
    """Without it they land when the product needs them: a tick later, when the team in front copies over the slot."""
    assert any("may read" in x for x in faults(with_phase(SHIPPED, 0, settled=False)))
