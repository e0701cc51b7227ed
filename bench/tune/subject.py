"""What is tuned: a kernel with arguments on a target; and a candidate: values for its open tunables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kittens import plugins, runtime
from kittens.arguments import Argument
from kittens.codegen.plan import Plan
from kittens.codegen.predict import Prediction, predict
from kittens.errors import ArgumentError
from kittens.examples import Example
from kittens.ir import Function
from kittens.kernel import Kernel, Tunable
from kittens.targets import Target

#: What becomes of a candidate: from the first check that it did not pass to the last race.
STATES = ("refused", "pruned", "wrong", "ranked", "timed", "final")


@dataclass
class Candidate:
    """One set of values. state: one of STATES; reason: why it went no further. seconds: hot samples of the last race."""

    values: dict[str, int]
    state: str = "ranked"
    reason: str = ""
    prediction: Prediction | None = None
    seconds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return " ".join(f"{n}={v}" for n, v in self.values.items())

    @property
    def cost(self) -> float:
        """The predicted cost, 0 where nothing is predicted."""
        return self.prediction.cost if self.prediction else 0.0

    def drop(self, state: str, reason: str) -> None:
        """Go no further."""
        self.state, self.reason = state, reason


@dataclass(frozen=True)
class Subject:
    """A kernel, the arguments that it is tuned for, and the target."""

    kernel: Kernel
    example: Example
    target: Target

    @property
    def bound(self) -> tuple[dict[str, Argument], dict[str, Any]]:
        """Arguments by name, and the constants given."""
        return self.kernel.bind(self.example.args, self.example.constants)

    @property
    def arguments(self) -> dict[str, Argument]:
        """Arguments by name."""
        return self.bound[0]

    def constants(self, candidate: Candidate) -> dict[str, Any]:
        """The constants given, with a candidate's values."""
        return {**self.example.constants, **candidate.values}

    def open(self) -> list[str]:
        """Names of the tunables that nobody has given a value. Raises ArgumentError if there are none."""
        _, given = self.bound
        found = [n for n, v in self.kernel.constants.items() if isinstance(given.get(n, v), Tunable)]
        if not found:
            raise ArgumentError(
                f"kernel {self.kernel.name} has no tunables that are open",
                hint="constants that may be tuned are declared with kt.tunable",
            )
        return found

    def settled(self) -> dict[str, Any]:
        """Every constant with the present values."""
        return self.kernel.settle(self.target, *self.bound)

    def present(self) -> Candidate:
        """The values that the kernel has now."""
        settled = self.settled()
        return Candidate({n: settled[n] for n in self.open()})

    def listed(self) -> Iterator[Candidate]:
        """Every combination of what the kernel lists, what the target lists, and the present values."""
        arguments, given = self.bound
        present = self.present().values
        more = plugins.manager().hook.kittens_candidates(
            target=self.target, kernel=self.kernel.name, arguments={**arguments, **given}
        )
        choices = []
        for name, value in present.items():
            tunable = given.get(name, self.kernel.constants[name])
            choices.append(dict.fromkeys((value, *tunable.candidates, *(more or {}).get(name, ()))))
        for values in itertools.product(*choices):
            yield Candidate(dict(zip(present, values, strict=True)))

    def traced(self, candidate: Candidate) -> Function:
        """The tile IR with a candidate's values."""
        return self.kernel.ir(*self.example.args, on=self.target, **self.constants(candidate))

    def predicted(self, candidate: Candidate) -> Prediction | None:
        """What a candidate's plan predicts, None if the target's backend does not. Raises what planning raises."""
        plan = plugins.manager().hook.kittens_plan(target=self.target, function=self.traced(candidate))
        rates = plugins.manager().hook.kittens_rates(target=self.target)
        if not isinstance(plan, Plan) or rates is None:
            return None
        arguments = self.arguments
        grid = runtime.evaluate_grid(self.kernel, arguments, {**self.settled(), **candidate.values})
        return predict(plan, arguments, grid, rates)
