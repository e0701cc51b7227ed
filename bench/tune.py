"""The search of `kittens tune`: candidates listed, pruned by predictions, checked, timed; the fastest right one wins.

On a target that runs here, candidates that are left are timed, and one that is faster than the present values by more than
noise is the winner. On a simulated target they are only ranked by what their plans predict, and no time is claimed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kittens import plugins, runtime
from kittens.arguments import Argument, ScalarArg, TensorArg
from kittens.bench import stats
from kittens.bench.race import ROTATION
from kittens.bench.timing import Contender, Method, race
from kittens.codegen.plan import Plan
from kittens.codegen.predict import Prediction, predict
from kittens.conformance import Case, In, InOut, Out, all_cases, examine
from kittens.dtypes import DType, as_dtype, convert
from kittens.errors import ArgumentError, KittensError
from kittens.examples import Example
from kittens.kernel import Kernel, Tunable
from kittens.targets import Target

#: Cases of the conformance suite that each candidate must pass.
CASES = 2
#: Candidates that are predicted to take more than so many times the least are left out.
SLOWEST = 3.0
#: Contenders of the last and longest race.
FINALISTS = 4
#: The first race is this much shorter, and has fewer rounds.
FIRST_ROUNDS, FIRST_SHARE = 2, 0.15
#: How far results may be from those of the present values, in halves of a rounding; and at the worst element.
APART, WORST = 0.5, 16.0

#: candidate's state: what became of it, from the first check that it did not pass to the last race.
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

    def drop(self, state: str, reason: str) -> None:
        """Go no further."""
        self.state, self.reason = state, reason


@dataclass
class Found:
    """What a search found. winner: None if the present values stay; timed: whether anything was timed."""

    present: Candidate
    candidates: list[Candidate]
    timed: bool
    winner: Candidate | None = None


@dataclass(frozen=True)
class Search:
    """A kernel with the arguments that it is tuned for, on a target. device: where it is timed, None to predict only."""

    kernel: Kernel
    example: Example
    target: Target
    device: Any = None
    method: Method = field(default_factory=Method)
    keep: int = 12
    progress: Callable[[str], None] = lambda text: None

    @property
    def bound(self) -> tuple[dict[str, Argument], dict[str, Any]]:
        """Arguments by name, and the constants given."""
        return self.kernel.bind(self.example.args, self.example.constants)

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

    def run(self) -> Found:
        """The whole search."""
        found = Found(self._present(), [], self.device is not None)
        found.candidates = [found.present]
        for values in self._listed():
            if values != found.present.values:
                found.candidates.append(Candidate(values))
        self._predict(found)
        self._prune(found)
        self._check(found)
        if self.device is not None:
            self._time(found)
        else:
            ranked = [c for c in found.candidates if c.state == "ranked" and c.prediction is not None]
            best = min(ranked, key=_cost, default=None)
            found.winner = best if best is not None and best is not found.present else None
        return found

    def _present(self) -> Candidate:
        settled = self.settled()
        return Candidate({n: settled[n] for n in self.open()})

    def _listed(self) -> Iterator[dict[str, int]]:
        """Every combination of what the kernel lists, what the target lists, and the present values."""
        arguments, given = self.bound
        settled = self.settled()
        more = plugins.manager().hook.kittens_candidates(
            target=self.target, kernel=self.kernel.name, arguments={**arguments, **given}
        )
        names = self.open()
        choices = []
        for name in names:
            tunable = given.get(name, self.kernel.constants[name])
            choices.append(dict.fromkeys((settled[name], *tunable.candidates, *(more or {}).get(name, ()))))
        for values in itertools.product(*choices):
            yield dict(zip(names, values, strict=True))

    def _predict(self, found: Found) -> None:
        """Plan each candidate; those that do not fit, or would spill, go no further."""
        arguments, _ = self.bound
        rates = plugins.manager().hook.kittens_rates(target=self.target)
        for number, c in enumerate(found.candidates):
            self.progress(f"plan {number + 1} of {len(found.candidates)}: {c}")
            constants = {**self.example.constants, **c.values}
            try:
                function = self.kernel.ir(*self.example.args, on=self.target, **constants)
                plan = plugins.manager().hook.kittens_plan(target=self.target, function=function)
                if not isinstance(plan, Plan) or rates is None:
                    continue  # a backend that predicts nothing: all are tried
                grid = runtime.evaluate_grid(self.kernel, arguments, {**self.settled(), **c.values})
                c.prediction = predict(plan, arguments, grid, rates)
            except KittensError as error:
                c.drop("refused", error.message)
                continue
            if c.prediction.spills and c is not found.present:
                p = c.prediction
                c.drop("pruned", f"{p.registers} registers predicted, a lane has {p.limit}")

    def _prune(self, found: Found) -> None:
        """Leave those that are predicted to be among the fastest; the present values stay in any case."""
        ranked = sorted((c for c in found.candidates if c.prediction and c.state == "ranked"), key=_cost)
        for place, c in enumerate(ranked):
            if c is found.present:
                continue
            times = _cost(c) / _cost(ranked[0])
            if times > SLOWEST:
                c.drop("pruned", f"predicted to take {times:.2g} times the least")
            elif place >= self.keep:
                c.drop("pruned", f"{place} others are predicted to be no slower")

    # Right results.

    def _check(self, found: Found) -> None:
        """Compare what each candidate computes, on small arguments, with the reference. Raises if the present values fail."""
        cases = list(self._cases(found.present))
        left = [c for c in found.candidates if c.state == "ranked"]
        if self.device is None:  # simulating takes long: the best few are enough to find one that is right
            left = [found.present, *(c for c in sorted(left, key=_cost) if c is not found.present)]
        right = 0
        for number, c in enumerate(left):
            if self.device is None and right > FINALISTS:
                c.drop("pruned", f"{right - 1} others are predicted to be no slower")
                continue
            self.progress(f"check {number + 1} of {len(left)}: {c}")
            for case in cases:
                kept = {n: v for n, v in c.values.items() if n not in case.constants}
                row = examine(replace(case, constants={**case.constants, **kept}), self.target)
                if row.verdict == "passed":
                    continue
                if c is found.present:
                    raise ArgumentError(
                        f"{self.kernel.name} is wrong with its present values, {c}: {row.message}"
                    )
                c.drop("wrong" if row.verdict == "failed" else "refused", f"{case.name}: {row.message}")
                break
            right += c.state == "ranked"

    def _cases(self, present: Candidate) -> Iterator[Case]:
        """Cases of the suite for the kernel, its types and constants: a small one and the largest; or its own arguments."""
        arguments, given = self.bound
        types = {n: a.dtype for n, a in arguments.items() if isinstance(a, TensorArg)}
        fitting = [c for c in all_cases().values() if c.kernel is self.kernel and _types(c) == types]
        alike = [
            c
            for c in fitting
            if all(c.constants.get(n) == v or isinstance(v, float) for n, v in given.items())
        ]
        ordered = sorted(alike or fitting, key=lambda c: c.cost)
        if ordered:
            yield from [ordered[len(ordered) // 2], ordered[-1]][: min(CASES, len(ordered))]
            return
        constants = {**self.example.constants, **present.values}
        made = _arrays(self.kernel, self.example, arguments, constants)
        truth: dict[str, Any] = {}

        def textbook(**_: Any) -> dict[str, Any]:
            if not truth:
                truth.update(_reference(self.kernel, made, constants))
            return truth

        yield Case(
            "its arguments", self.kernel, lambda: dict(made), dict(self.example.constants), 0.0, textbook
        )

    # Time.

    def _time(self, found: Found) -> None:
        """Race all that are left, then the best of them again for longer."""
        sets, calls = self._calls(found)
        left = self._agreeing(found, sets, calls)
        if found.present not in left:
            raise ArgumentError(
                f"{self.kernel.name} does not run with its present values, {found.present}: {found.present.reason}"
            )
        first = replace(
            self.method, rounds=FIRST_ROUNDS, round_seconds=FIRST_SHARE * self.method.round_seconds, bursts=0
        )
        self._race(left, calls, first, "timed")
        finalists = sorted(left, key=lambda c: stats.median(c.seconds))[:FINALISTS]
        if found.present not in finalists:
            finalists.append(found.present)
        self._race(finalists, calls, replace(self.method, bursts=0), "final")
        best = min(finalists, key=lambda c: stats.median(c.seconds))
        if best is found.present:
            return
        samples = [stats.ratios(c.seconds, found.present.seconds) for c in (found.present, best)]
        gain = stats.ratio(best.seconds, found.present.seconds)
        if not stats.change(gain, 1.0, samples[1], samples[0]).regressed:
            best.reason = f"{100 * (gain - 1):.1f} % faster, which noise could be"
            return
        found.winner = best

    def _calls(self, found: Found) -> tuple[list[list[Any]], dict[str, list[Callable[[], Any]]]]:
        """Sets of arrays that a rotation takes past the cache, and the calls of each candidate on them."""
        arguments, _ = self.bound
        size = sum(
            int(np.prod(a.shape)) * a.dtype.bytes for a in arguments.values() if isinstance(a, TensorArg)
        )
        count = max(1, -(-int(ROTATION * self.device.cache_bytes) // max(size, 1)))
        sets = [
            [
                self.device.like(a)
                if isinstance(a, TensorArg)
                else (a.value if isinstance(a, ScalarArg) else None)
                for a in arguments.values()
            ]
            for _ in range(count)
        ]
        on = self.target

        def call(values: dict[str, int], arrays: list[Any]) -> Callable[[], Any]:
            constants = {**self.example.constants, **values}
            return lambda: self.kernel(*arrays, on=on, **constants)

        left = [c for c in found.candidates if c.state == "ranked"]
        return sets, {str(c): [call(c.values, arrays) for arrays in sets] for c in left}

    def _agreeing(self, found: Found, sets: list[list[Any]], calls: dict[str, Any]) -> list[Candidate]:
        """Those that run at full size and give what the present values give there."""
        arguments, _ = self.bound
        constants = {**self.example.constants, **found.present.values}
        function = self.kernel.ir(*self.example.args, on=self.target, **constants)
        outputs = [i for i, name in enumerate(arguments) if name in function.stored()]
        expected: list[Any] = []
        left = []
        for c in (found.present, *(c for c in found.candidates if c is not found.present)):
            if c.state != "ranked":
                continue
            self.progress(f"run {c}")
            try:
                calls[str(c)][0]()
            except KittensError as error:
                c.drop("refused", error.message)
                continue
            got = [self.device.kept(sets[0][i]) for i in outputs]
            if c is found.present:
                expected = got
            apart = [self.device.difference(g, e) for g, e in zip(got, expected, strict=True)]
            allowed = [APART * _coarseness(arguments, list(arguments)[i]) for i in outputs]
            if any(not (t <= a and w <= WORST * a) for (t, w), a in zip(apart, allowed, strict=True)):
                c.drop("wrong", "at full size it does not give what the present values give")
                continue
            left.append(c)
        return left

    def _race(self, left: Sequence[Candidate], calls: dict[str, Any], method: Method, state: str) -> None:
        self.progress(f"time {len(left)} candidates")
        samples = race(self.device, [Contender(str(c), calls[str(c)]) for c in left], method)
        for c in left:
            c.seconds, c.state = samples[str(c)].hot, state


def _cost(c: Candidate) -> float:
    return c.prediction.cost if c.prediction else 0.0


def _types(case: Case) -> dict[str, DType]:
    """Types of a case's arrays, by argument; an argument of None has none."""
    made = case.make().items()
    return {
        n: x.dtype if isinstance(x, Out) else as_dtype(x.data.dtype)
        for n, x in made
        if not (x is None or isinstance(x, (int, float, np.generic)))
    }


def _arrays(
    kernel: Kernel, example: Example, arguments: dict[str, Argument], constants: dict[str, Any]
) -> dict[str, Any]:
    """Random arrays like the arguments of a kernel; those that it writes and does not read are outputs."""
    function = kernel.ir(*example.args, on="numpy", **constants)
    random = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for name, a in arguments.items():
        if not isinstance(a, TensorArg):
            made[name] = a.value if isinstance(a, ScalarArg) else None
        elif name in function.stored() - function.loaded():
            made[name] = Out(a.dtype, a.shape)
        else:
            data = random.standard_normal(a.shape) if a.dtype.is_float else random.integers(0, 2, a.shape)
            made[name] = (InOut if name in function.stored() else In)(convert(data, a.dtype))
    return made


def _reference(kernel: Kernel, made: dict[str, Any], constants: dict[str, Any]) -> dict[str, Any]:
    """What the kernel writes on the reference, in float64."""
    arrays = {
        n: np.zeros(x.shape, x.dtype.numpy) if isinstance(x, Out) else getattr(x, "data", x)
        for n, x in made.items()
    }
    arrays = {n: x.copy() if isinstance(x, np.ndarray) else x for n, x in arrays.items()}
    kernel(**arrays, on="numpy", **constants)
    return {n: arrays[n].astype(np.float64) for n, x in made.items() if isinstance(x, (Out, InOut))}


def _coarseness(arguments: dict[str, Argument], output: str) -> float:
    """Roundings of an output that one rounding of the coarsest float argument is."""
    floats = [a.dtype for a in arguments.values() if isinstance(a, TensorArg) and a.dtype.is_float]
    own = arguments[output]
    assert isinstance(own, TensorArg)
    if not own.dtype.is_float:
        return 1.0
    return 2.0 ** (own.dtype.precision - min(d.precision for d in floats))
