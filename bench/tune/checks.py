"""Whether a candidate computes what it should: on small arguments by the judge, at full size against the present values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kittens.arguments import Argument, ScalarArg, TensorArg
from kittens.bench.tune.subject import Candidate, Subject
from kittens.conformance import Case, In, InOut, Out, all_cases, examine
from kittens.dtypes import DType, as_dtype, convert

#: How far results may be from those of the present values, in roundings; and at the worst element.
APART, WORST = 0.5, 16.0


def cases(subject: Subject, present: Candidate) -> Iterator[Case]:
    """Cases of the suite for the kernel, its types and constants: a middling one and the largest.

    For a kernel that the suite does not know, its own arguments, with what the present values give on the reference as
    the book to compare with.
    """
    arguments, given = subject.bound
    types = {n: a.dtype for n, a in arguments.items() if isinstance(a, TensorArg)}
    fitting = [c for c in all_cases().values() if c.kernel is subject.kernel and _types(c) == types]
    exact = {n: v for n, v in given.items() if not isinstance(v, float)}
    alike = [c for c in fitting if all(c.constants.get(n) == v for n, v in exact.items())]
    ordered = sorted(alike or fitting, key=lambda c: c.cost)
    if len(ordered) > 1:
        yield ordered[len(ordered) // 2 - 1]
    if ordered:
        yield ordered[-1]
        return
    constants = subject.constants(present)
    made = arrays(subject, present)
    truth: dict[str, Any] = {}

    def textbook(**_: Any) -> dict[str, Any]:
        if not truth:
            truth.update(_reference(subject, made, constants))
        return truth

    yield Case(
        "its arguments", subject.kernel, lambda: dict(made), dict(subject.example.constants), 0.0, textbook
    )


def failure(subject: Subject, candidate: Candidate, judged: Sequence[Case]) -> tuple[str, str]:
    """The state and the reason of a candidate that does not pass these cases; empty if it does."""
    for case in judged:
        kept = {n: v for n, v in candidate.values.items() if n not in case.constants}
        row = examine(replace(case, constants={**case.constants, **kept}), subject.target)
        if row.verdict != "passed":
            return "wrong" if row.verdict == "failed" else "refused", f"{case.name}: {row.message}"
    return "", ""


def _types(case: Case) -> dict[str, DType]:
    """Types of a case's arrays, by argument; an argument of None has none."""
    return {
        n: x.dtype if isinstance(x, Out) else as_dtype(x.data.dtype)
        for n, x in case.make().items()
        if isinstance(x, (In, Out, InOut))
    }


def arrays(subject: Subject, present: Candidate) -> dict[str, Any]:
    """Random arrays like the arguments of a kernel; those that it writes and does not read are outputs."""
    function = subject.kernel.ir(*subject.example.args, on="numpy", **subject.constants(present))
    random = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for name, a in subject.arguments.items():
        if not isinstance(a, TensorArg):
            made[name] = a.value if isinstance(a, ScalarArg) else None
        elif name in function.stored() - function.loaded():
            made[name] = Out(a.dtype, a.shape)
        else:
            data = random.standard_normal(a.shape) if a.dtype.is_float else random.integers(0, 2, a.shape)
            made[name] = (InOut if name in function.stored() else In)(convert(data, a.dtype))
    return made


def _reference(subject: Subject, made: dict[str, Any], constants: dict[str, Any]) -> dict[str, Any]:
    """What the kernel writes on the reference, in float64."""
    given = {
        n: np.zeros(x.shape, x.dtype.numpy) if isinstance(x, Out) else getattr(x, "data", x)
        for n, x in made.items()
    }
    given = {n: x.copy() if isinstance(x, np.ndarray) else x for n, x in given.items()}
    subject.kernel(**given, on="numpy", **constants)
    return {n: given[n].astype(np.float64) for n, x in made.items() if isinstance(x, (Out, InOut))}


# At full size.


def agree(device: Any, arguments: dict[str, Argument], got: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether results at full size are those that the present values give, but for rounding."""
    for name, x in expected.items():
        typical, worst = device.difference(got[name], x)
        allowed = APART * _coarseness(arguments, name)
        if not (typical <= allowed and worst <= WORST * allowed):  # NaN fails
            return False
    return True


def _coarseness(arguments: dict[str, Argument], output: str) -> float:
    """Roundings of an output that one rounding of the coarsest float argument is."""
    floats = [a.dtype for a in arguments.values() if isinstance(a, TensorArg) and a.dtype.is_float]
    own = arguments[output]
    assert isinstance(own, TensorArg)
    if not own.dtype.is_float:
        return 1.0
    return 2.0 ** (own.dtype.precision - min(d.precision for d in floats))
