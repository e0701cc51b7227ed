"""Candidates at work on a device: run at full size, compared with the present values, raced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kittens.arguments import ScalarArg, TensorArg
from kittens.bench import stats
from kittens.bench.race import ROTATION
from kittens.bench.timing import Contender, Method, race
from kittens.bench.tune.checks import agree
from kittens.bench.tune.subject import Candidate, Subject
from kittens.errors import ArgumentError, KittensError

#: Contenders of the last and longest race.
FINALISTS = 4
#: The first race is this much shorter, and has fewer rounds.
FIRST_ROUNDS, FIRST_SHARE = 2, 0.15


@dataclass
class Trials:
    """Arrays for a subject on a device, and candidates that run on them."""

    subject: Subject
    device: Any
    method: Method
    progress: Callable[[str], None]
    sets: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        first = self._arrays()
        size = sum(self.device.nbytes(x) for x in first.values())
        count = max(1, -(-int(ROTATION * self.device.cache_bytes) // max(size, 1)))
        self.sets = [first, *(self._arrays() for _ in range(count - 1))]

    def _arrays(self) -> dict[str, Any]:
        return {
            n: self.device.like(a)
            if isinstance(a, TensorArg)
            else a.value
            if isinstance(a, ScalarArg)
            else None
            for n, a in self.subject.arguments.items()
        }

    def call(self, candidate: Candidate, arrays: dict[str, Any]) -> Callable[[], Any]:
        """A call with a candidate's values on a set of arrays."""
        kernel, on, constants = self.subject.kernel, self.subject.target, self.subject.constants(candidate)
        return lambda: kernel(*arrays.values(), on=on, **constants)

    def agreeing(self, present: Candidate, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those that run at full size and give what the present values give there; those first.

        Raises ArgumentError if the present values do not run.
        """
        function = self.subject.traced(present)
        outputs = sorted(function.stored())
        arrays, fresh = self.sets[0], sorted(function.stored() - function.loaded())
        before = {n: self.device.kept(arrays[n]) for n in outputs if n not in fresh}
        expected: dict[str, Any] = {}
        left = []
        for c in (present, *(c for c in candidates if c is not present)):
            self.progress(f"run {c}")
            for name in fresh:
                self.device.poison(arrays[name])  # what a candidate leaves out is not another's result
            for name, x in before.items():
                self.device.restore(arrays[name], x)
            try:
                self.call(c, arrays)()
            except KittensError as error:
                if c is present:
                    raise ArgumentError(
                        f"{self.subject.kernel.name} does not run with its present values, {c}: {error.message}"
                    ) from error
                c.drop("refused", error.message)
                continue
            got = {n: self.device.kept(arrays[n]) for n in outputs}
            expected = expected or got
            if agree(self.device, self.subject.arguments, got, expected):
                left.append(c)
            else:
                c.drop("wrong", "at full size it does not give what the present values give")
        return left

    def winner(self, present: Candidate, candidates: Sequence[Candidate]) -> Candidate | None:
        """Race all, then the best of them again for longer; the one that is faster than the present values by more than
        noise, if any is.
        """
        first = replace(
            self.method, rounds=FIRST_ROUNDS, round_seconds=FIRST_SHARE * self.method.round_seconds, bursts=0
        )
        self._race(candidates, first, "timed")
        finalists = sorted(candidates, key=lambda c: stats.median(c.seconds))[:FINALISTS]
        if present not in finalists:
            finalists.append(present)
        self._race(finalists, replace(self.method, bursts=0), "final")
        best = min(finalists, key=lambda c: stats.median(c.seconds))
        if best is present:
            return None
        gains = stats.ratios(best.seconds, present.seconds)
        gain = stats.ratio(best.seconds, present.seconds)
        if not stats.change(gain, 1.0, gains, [1.0]).regressed:
            best.reason = f"{100 * (gain - 1):.1f} % faster, which noise could be"
            return None
        return best

    def _race(self, candidates: Sequence[Candidate], method: Method, state: str) -> None:
        self.progress(f"time {len(candidates)} candidates")
        contenders = [Contender(str(c), [self.call(c, arrays) for arrays in self.sets]) for c in candidates]
        samples = race(self.device, contenders, method)
        for c in candidates:
            c.seconds, c.state = samples[str(c)].hot, state
