"""The search of `kittens tune`: candidates listed, pruned by predictions, checked, timed; the fastest right one wins.

On a target that runs here, candidates that are left are timed, and one that is faster than the present values by more than
noise is the winner. On a simulated target they are only ranked by what their plans predict, and no time is claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kittens.bench.timing import Method
from kittens.bench.tune import checks
from kittens.bench.tune.subject import STATES, Candidate, Subject
from kittens.bench.tune.trials import FINALISTS, Trials
from kittens.errors import ArgumentError, KittensError

__all__ = ["STATES", "Candidate", "Found", "Subject", "search"]

#: Candidates that are predicted to take more than so many times the least are left out.
SLOWEST = 3.0


@dataclass
class Found:
    """What a search found. winner: None if the present values stay; timed: whether anything was timed."""

    present: Candidate
    candidates: list[Candidate]
    timed: bool
    winner: Candidate | None = None

    def left(self) -> list[Candidate]:
        """Candidates that nothing speaks against so far, those predicted to be best first."""
        return sorted((c for c in self.candidates if c.state == "ranked"), key=lambda c: c.cost)


def search(
    subject: Subject,
    device: Any = None,
    method: Method | None = None,
    *,
    keep: int = 12,
    progress: Callable[[str], None] = lambda text: None,
) -> Found:
    """Search values for the open tunables of a subject. device: where it is timed, None to predict only.

    keep: most candidates that are tried. Raises ArgumentError if nothing is open, or the present values are wrong.
    """
    present = subject.present()
    others = [c for c in subject.listed() if c.values != present.values]
    found = Found(present, [present, *others], device is not None)
    _predict(subject, found, progress)
    _prune(found, keep)
    _check(subject, found, progress)
    if device is not None:
        trials = Trials(subject, device, method or Method(), progress)
        found.winner = trials.winner(present, trials.agreeing(present, found.left()))
    else:
        best = next(iter(found.left()), present)
        found.winner = best if best is not present else None
    return found


def _predict(subject: Subject, found: Found, progress: Callable[[str], None]) -> None:
    """Plan each candidate; those that do not fit, or would spill, go no further."""
    for number, c in enumerate(found.candidates):
        progress(f"plan {number + 1} of {len(found.candidates)}: {c}")
        try:
            c.prediction = subject.predicted(c)
        except KittensError as error:
            if c is found.present:
                raise
            c.drop("refused", error.message)
            continue
        if c.prediction is not None and c.prediction.spills and c is not found.present:
            c.drop("pruned", f"{c.prediction.registers} registers predicted, a lane has {c.prediction.limit}")


def _prune(found: Found, keep: int) -> None:
    """Leave those that are predicted to be among the fastest; the present values stay in any case."""
    left = found.left()
    for place, c in enumerate(left):
        if c is found.present:
            continue
        if c.cost > SLOWEST * left[0].cost:
            c.drop("pruned", f"predicted to take {c.cost / left[0].cost:.2g} times the least")
        elif place >= keep:
            others = f"{place} others are predicted to be no slower"
            c.drop(
                "pruned", others if c.prediction else f"{keep} are tried, and nothing is predicted of them"
            )


def _check(subject: Subject, found: Found, progress: Callable[[str], None]) -> None:
    """Compare what each candidate computes with the reference. Raises ArgumentError if the present values fail.

    Where nothing will be timed, the best few that are right are enough: simulating takes long.
    """
    judged = list(checks.cases(subject, found.present))
    left = [found.present, *(c for c in found.left() if c is not found.present)]
    right = 0
    for number, c in enumerate(left):
        if not found.timed and right > FINALISTS:
            c.drop("pruned", f"{right} others are predicted to be no slower")
            continue
        progress(f"check {number + 1} of {len(left)}: {c}")
        state, reason = checks.failure(subject, c, judged)
        if state and c is found.present:
            raise ArgumentError(f"{subject.kernel.name} is wrong with its present values, {c}: {reason}")
        if state:
            c.drop(state, reason)
        right += not state
