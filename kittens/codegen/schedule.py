"""Loops whose groups run in teams, some phases apart: while one multiplies, another reads and copies for what comes next.

A pass is a row of phases, each of which ends with a *tie*: a barrier of all groups. Teams run the same text. A team that has
met a tie more before its first phase is a phase behind for good, so what stands in different phases meets at a tie, and the
k-th ties of all teams are one. Time is therefore counted in ties: all that a team does between ties k and k + 1 is done before
anything that another does after tie k + 1. `faults` proves by that what a barrier for each slot would prove elsewhere.

HipKittens' eight-wave schedules are of this kind (two teams of four, two of each SIMD, a phase apart).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Tile = Hashable


@dataclass(frozen=True)
class Copy:
    """Each lane starts its `pieces` of a tile (or of one of its parts) for the pass `ahead` of this one, past the last one too."""

    tile: Tile
    ahead: int
    pieces: int
    part: int = 0


@dataclass(frozen=True)
class Read:
    """A group reads what it needs of a tile (or a part) of this pass from shared memory into registers."""

    tile: Tile
    part: int = 0


@dataclass(frozen=True)
class Multiply:
    """A product, or a part of it, of operands that `reads` have brought in this pass."""

    product: Hashable
    reads: tuple[Read, ...]


Act = Copy | Read | Multiply


@dataclass(frozen=True)
class Phase:
    """What a team does between two ties, in order.

    left: before the tie it waits until at most so many of each lane's pieces, the newest, are under way; None: it does not.
    settled: before the tie it waits for its reads. priority: over other groups that share a part of the processor.
    """

    acts: tuple[Act, ...]
    left: int | None = None
    settled: bool = False
    priority: int = 0


@dataclass(frozen=True)
class Schedule:
    """How the passes of a loop are run by teams of groups, the first `groups / teams` of them being team 0, and so on.

    depth: slots of the rings in shared memory. first: copies before the loop, in order, whose `ahead` is the pass that they
    are for. left: what is waited for then, as in a phase; a tie follows. before, after: ties that each team meets, besides,
    before its first phase and after its last.
    """

    teams: int
    depth: int
    first: tuple[Copy, ...]
    left: int
    phases: tuple[Phase, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def told(self, name: Mapping[Any, str], groups: int) -> list[str]:
        """The schedule as lines for people, its tiles and products by name."""

        def act(x: Act) -> str:
            if isinstance(x, Multiply):
                return f"multiplies {' and '.join(_called(name, r) for r in x.reads)}"
            what = _called(name, x)
            return f"reads {what}" if isinstance(x, Read) else f"starts {what} {x.ahead} passes ahead"

        behind = "".join(
            f", team {t} {n} phase{'s'[n == 1 :]} behind" for t, n in enumerate(self.before) if n
        )
        lines = [
            f"{self.teams} teams of {groups // self.teams} groups run {len(self.phases)} phases a pass{behind}"
        ]
        for number, phase in enumerate(self.phases):
            ends = [] if phase.left is None else [f"at most {phase.left} copies under way"]
            ends += ["reads landed"] if phase.settled else []
            level = f" at priority {phase.priority}" if phase.priority else ""
            lines.append(
                f"  phase {number}{level}: {', '.join(map(act, phase.acts))}; {', '.join([*ends, 'tie'])}"
            )
        return lines


def _called(name: Mapping[Any, str], x: Copy | Read) -> str:
    return name.get(x.tile, str(x.tile)) + (f" part {x.part}" if x.part else "")


def ping_pong(depth: int, tiles: Mapping[Any, int], product: Hashable) -> Schedule:
    """Two teams a phase apart, for a loop with one product: a pass is a phase of reads and copies, and one of the product.

    tiles: those that it reads, with the pieces of each that a lane copies, all in rings of `depth` slots. A tile is copied
    `depth - 1` passes ahead, into the slot that both teams have left: the one behind reads it at the tick before. All have
    waited for their share of the next pass's tiles when the one in front reads them.
    """
    reads = tuple(Read(tile) for tile in tiles)
    ahead, pieces = depth - 1, sum(tiles.values())
    left = (ahead - 1) * pieces
    return Schedule(
        teams=2,
        depth=depth,
        first=tuple(Copy(tile, i, n) for i in range(ahead) for tile, n in tiles.items()),
        left=left,
        phases=(
            Phase((*reads, *(Copy(tile, ahead, n) for tile, n in tiles.items())), left, settled=True),
            Phase((Multiply(product, reads),), priority=1),
        ),
        before=(0, 1),
        after=(1, 0),
    )


# ---- what a schedule must keep to


@dataclass
class _Copied:
    """A copy of one team: when it is started, and between which ties it is known to have landed (None: never)."""

    started: int
    landed: int | None = None
    behind: int = 0  # pieces started after it


@dataclass
class _Team:
    """What one team does over some passes, by the tick at which it does so. Ticks are counted by ties."""

    ties: int = 0
    copied: dict[tuple[Tile, int, int], _Copied] = field(default_factory=dict)  # tile, part, pass
    #: When what is read of (tile, part, pass) is started, and when it has landed (None: never).
    read: dict[tuple[Tile, int, int], tuple[int, int | None]] = field(default_factory=dict)
    multiplies: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def start(self, key: tuple[Tile, int, int], pieces: int) -> None:
        if key in self.copied:
            self.faults.append(f"{key[0]} part {key[1]} is copied twice for one pass")
        for other in self.copied.values():
            other.behind += pieces
        self.copied[key] = _Copied(self.ties)

    def wait(self, left: int | None) -> None:
        for copy in self.copied.values() if left is not None else ():
            if copy.landed is None and copy.behind >= (left or 0):
                copy.landed = self.ties

    def settle(self, keys: Sequence[tuple[Tile, int, int]]) -> None:
        for key in keys:
            started, landed = self.read[key]
            self.read[key] = started, self.ties if landed is None else landed


def _run(schedule: Schedule, team: int, passes: int) -> _Team:
    """What a team does, one tick after the other."""
    out = _Team()
    for copy in schedule.first:
        out.start((copy.tile, copy.part, copy.ahead), copy.pieces)
    out.wait(schedule.left)
    out.ties += 1 + schedule.before[team]
    for turn in range(passes):
        held: set[Read] = set()
        for phase in schedule.phases:
            for act in phase.acts:
                if isinstance(act, Copy):
                    out.start((act.tile, act.part, turn + act.ahead), act.pieces)
                elif isinstance(act, Read):
                    out.read[act.tile, act.part, turn] = out.ties, None
                    held.add(act)
                else:
                    out.multiplies.add(out.ties)
                    for read in act.reads:
                        if read not in held:
                            out.faults.append(f"{act.product} takes {read.tile}, which its pass has not read")
                    out.settle([(r.tile, r.part, turn) for r in act.reads if r in held])
            out.wait(phase.left)
            if phase.settled:
                out.settle([(r.tile, r.part, turn) for r in held])
            out.ties += 1
    out.ties += schedule.after[team]
    return out


def faults(schedule: Schedule) -> list[str]:
    """What is wrong with a schedule; nothing if, however the groups' times fall between ties,

    - no team waits for ever at a tie,
    - what is read has been copied: every team has waited for its share of it before a tie that precedes the read,
    - no slot is copied into before every team's reads of what it held have landed, a tie earlier,
    - products take what their pass has read,
    - no two teams multiply at once, and phases that multiply come before others in priority.

    It looks at as many passes as slots and copies can reach over. What holds for those holds for all, since each pass does
    as the one before.
    """
    reach = max((c.ahead for p in schedule.phases for c in p.acts if isinstance(c, Copy)), default=0)
    passes = 2 * schedule.depth + reach + 2
    teams = [_run(schedule, t, passes) for t in range(schedule.teams)]
    return list(dict.fromkeys(_found(schedule, teams, passes)))


def _found(schedule: Schedule, teams: list[_Team], passes: int) -> Iterator[str]:
    for team in teams:
        yield from team.faults
    if len({team.ties for team in teams}) > 1:
        yield f"teams meet {' and '.join(str(t.ties) for t in teams)} ties: some wait for ever"
    for number, team in enumerate(teams):
        for (tile, part, turn), (started, _) in team.read.items():
            what = f"{tile} part {part}"
            for other, its in enumerate(teams):
                copy = its.copied.get((tile, part, turn))
                if copy is None:
                    yield f"{what} is read and not copied"
                elif copy.landed is None:
                    yield f"team {other} never waits for its share of {what}"
                elif copy.landed >= started:
                    yield f"team {number} reads {what} when no tie follows team {other}'s wait for its share of it"
        for (tile, part, turn), copy in team.copied.items():
            for other, its in enumerate(teams):
                read = its.read.get((tile, part, turn - schedule.depth))
                if read is None:
                    continue
                if read[1] is None:
                    yield f"team {other} never waits for what it reads of {tile} part {part}"
                elif read[1] >= copy.started:
                    yield f"team {number} copies over {tile} part {part} while team {other} may read it"
    if any(a.multiplies & b.multiplies for i, a in enumerate(teams) for b in teams[:i]):
        yield "two teams multiply at once"
    levels = [(any(isinstance(x, Multiply) for x in p.acts), p.priority) for p in schedule.phases]
    if min((p for m, p in levels if m), default=1) <= max((p for m, p in levels if not m), default=0):
        yield "phases that multiply have no priority over those that do not"
