"""The writer of the computing teams, and what it keeps in mind: products under way, slots to hand back.

Products are started and waited for later: `Compute.flights` are those under way, oldest first. An operation that reads a
result waits for it, no sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kittens import layouts as lay
from kittens.artifact import Parameter, TileMap
from kittens.codegen.emit.roles.rings import OURS, advance, bar, phase_of
from kittens.codegen.emit.roles.vectors import dealt
from kittens.codegen.emit.writer import Handler, Reader, Writer
from kittens.codegen.machine import Engine, Instruction
from kittens.codegen.plan import Plan, Ring, Roles, Staged
from kittens.ir import Op, Region, Value


@dataclass(eq=False)
class Flight:
    """A product under way: the array that it writes, the values there, and the ring slots to hand back after it.

    again: a ring whose barrier is asked again before it is waited for; else the compiler would wait much sooner.
    """

    op: Op
    sums: str
    values: set[Value]
    slots: list[Ring] = field(default_factory=list)
    again: Ring | None = None


@dataclass(eq=False)
class Waiting:
    """A result that waits to go out, and the lines that define what it needs."""

    name: str
    lines: list[str] = field(default_factory=list)

    @property
    def flag(self) -> str:
        """Whether there is one."""
        return f"{self.name}_waits"

    @property
    def call(self) -> str:
        """The function that sends it."""
        return f"{self.name}_send"

    @property
    def words(self) -> str:
        """The array that it is in."""
        return f"{self.name}_words"

    @property
    def number(self) -> str:
        """Its program's number."""
        return f"{self.name}_number"


class Compute(Writer):
    """Writes what the computing teams do. `plain`: what writes operations that are neither staged nor the engine's.

    read: the operations that matter to these teams.
    """

    def __init__(
        self, plan: Plan, handlers: Mapping[str, Handler], plain: Mapping[str, Handler], read: set[Op]
    ):
        super().__init__(plan, handlers)
        self.taken |= OURS
        assert plan.roles is not None and plan.machine.engine is not None
        self.roles: Roles = plan.roles
        self.engine: Engine = plan.machine.engine
        self.tiles: dict[Value, Staged] = plan.tiles
        #: Products that are started a pass after their own.
        self.late: set[Op] = {*self.roles.late.values(), *(r.late for r in self.roles.relays.values())}
        self.flights: list[Flight] = []
        #: Vectors that are read from a slot where they are used, and what is made of them.
        self.columns: dict[Value, Reader] = {}
        self.instructions: dict[Instruction, None] = {}
        self.sizes: dict[int, None] = {}
        self.descriptors: dict[tuple[Value, int, bool], str] = {}
        #: Rings whose slots are handed back a pass later: where the slot's number is.
        self.kept: dict[Ring, str] = {}
        #: Those of them that a late product reads, and others in the pass before.
        self.lagging: set[Ring] = set()
        self.pending: dict[Ring, set[Op]] = {}
        self.plain = plain
        self.read_here = read
        self.maps: dict[TileMap, Parameter] = {}
        self.waiting: list[Waiting] = []
        self.meet = f"kt_barrier_named(1, {plan.threads});"
        #: Whether teams start products in turn, and whether the next product has to wait for its team's turn.
        self.in_turn = self.roles.teams > 1 and bool(self.roles.late)
        self.turn_due = False
        #: Whether so many teams share the processor that instructions count more than what one team does meanwhile.
        self.crowded = self.roles.teams > 2

    def await_turn(self) -> None:
        """Wait until it is this team's turn to start products; barriers 2 and on are the teams'."""
        self.turn_due = False
        self.line(f"kt_barrier_named(team + 1, {2 * self.engine.team * self.machine.lanes});")

    def pass_turn(self) -> None:
        """The next team may start its products."""
        last = f"team == {self.roles.teams} ? 2 : team + 2"
        self.line(f"kt_barrier_arrive({last}, {2 * self.engine.team * self.machine.lanes});")

    def region(self, region: Region) -> None:
        super().region(region)
        if region.ops and region.ops[-1].name == "yield":  # what is carried over is read there
            land(self, len(self.flights))

    def reader(self, value: Value, layout: lay.Tiled) -> Reader:
        """As a writer's; what is dealt to the lanes of a group they read from each other, and no sooner than they use it."""
        if value.producer in self.roles.dealt and value not in self.held:
            return dealt(self, value.producer, layout)
        if value in self.columns:
            return self.columns[value]
        return super().reader(value, layout)


def settle(writer: Compute, value: Value) -> None:
    while value.producer is not None and value.producer.name in ("broadcast", "transpose", "reshape"):
        value = value.producer.operands[0]
    for i, flight in enumerate(writer.flights):
        if value in flight.values:
            land(writer, i + 1)
            return


def land(writer: Compute, count: int) -> None:
    """Wait until only the products behind the oldest `count` are under way, and hand back the slots that they read."""
    if not count:
        return
    landed, writer.flights = writer.flights[:count], writer.flights[count:]
    first, *others = dict.fromkeys(f.sums for f in landed)
    slots = [r for r in landed[-1].slots if r not in writer.lagging]
    again = landed[-1].again
    if landed[-1].op in writer.roles.late.values() and slots and not writer.crowded:
        again = slots[0]
    if again is not None:
        writer.line(f"kt_bar_again({bar(again, 'full')}, {phase_of(again)});")
    writer.line(f"kt_engine_wait<{len(writer.flights)}>({first});")
    for sums in others:
        writer.line(f"kt_engine_pin({sums});")
    for flight in landed:
        for ring in flight.slots:
            hand_back(writer, ring)


def hand_back(writer: Compute, ring: Ring) -> None:
    """Tell the copying team that this group has read a slot."""
    kept = writer.kept.get(ring)
    empty = bar(ring, "empty", kept or "")
    if ring.common:
        writer.line(f"if (lane < {writer.cluster}) kt_bar_arrive_at({empty}, lane);")
    else:
        writer.line(f"if (lane == 0) kt_bar_arrive({empty});")
    if kept is None and ring.loop is not None:
        advance(writer, ring)


def one(writer: Compute, op: Op) -> None:
    """Write one operation, as a region would."""
    writer.region(Region([], [op]))
