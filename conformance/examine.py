"""Examining one case on one target: judge, poison, run, compare."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kittens import plugins, runtime
from kittens.arguments import Argument
from kittens.conformance.buffers import Buffer, allocate, native_bytes, poison, values
from kittens.conformance.case import Arg, Case, In, InOut, Out
from kittens.conformance.judge.bounded import Bounded, Unjudgeable
from kittens.conformance.judge.oracle import Memory, judge, memory_of
from kittens.conformance.judge.rounding import Rules
from kittens.conformance.verdict import compare
from kittens.dtypes import as_dtype, float64
from kittens.targets import Numerics, Target

#: A case in which more than this share of the elements cannot be judged is a mistake of the case.
MOST_UNKNOWN = 0.5


@dataclass(frozen=True)
class Row:
    """The result of a case on a target.

    verdict: "passed", "failed", or "refused" (the target says that it does not do this, with the reason in
    `message`). how: "executed", "simulated", or "compiled" where nothing was run. ratio: largest observed error
    over its bound. judged: number of elements compared.
    """

    case: str
    target: str
    verdict: str
    how: str = ""
    ratio: float = 0.0
    judged: int = 0
    seconds: float = 0.0
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        row = asdict(self)
        row["ratio"] = self.ratio if np.isfinite(self.ratio) else "inf"
        return row


class Failure(Exception):
    """A case that fails for a reason other than a number."""


def examine(case: Case, target: Target, numerics: Numerics | None = None) -> Row:
    """Run a case on a target and judge what it wrote."""
    start = time.perf_counter()
    promises = numerics or plugins.ask("kittens_numerics", target)
    refusal = refused(case, target, promises)
    if refusal:
        return Row(case.name, str(target), "refused", message=refusal)
    how, ratio, judged, verdict, message = "", 0.0, 0, "passed", ""
    try:
        how, ratio, judged, message = _examine(case, target, promises)
        verdict = "failed" if message else "passed"
    except Failure as error:
        verdict, message, ratio = "failed", str(error), np.inf
    except Exception as error:  # whatever goes wrong in a kernel or a backend is this case's failure
        verdict, message, ratio = "failed", f"{type(error).__name__}: {error}", np.inf
    return Row(
        case.name, str(target), verdict, how, float(ratio), judged, time.perf_counter() - start, message
    )


def build(case: Case, target: Target) -> Row:
    """Compile the kernel of a case for a target, as `kernel.compile` does, and run nothing. It passes if it compiles."""
    start = time.perf_counter()
    refusal = refused(case, target, plugins.ask("kittens_numerics", target))
    if refusal:
        return Row(case.name, str(target), "refused", message=refusal)
    verdict, message = "passed", ""
    try:
        ready = prepare(case, target)
        function = case.kernel.trace(ready.described, ready.constants, len(ready.grid))
        plugins.ask("kittens_compile", target, function=function)
    except Exception as error:
        verdict, message = "failed", f"{type(error).__name__}: {error}"
    return Row(case.name, str(target), verdict, "compiled", 0.0, 0, time.perf_counter() - start, message)


def refused(case: Case, target: Target, numerics: Numerics) -> str:
    """Why a target does not take a case, or an empty string."""
    dtypes = case.dtypes
    if float64 in dtypes and target.backend != "numpy":
        return "float64 is computed on the reference only"
    if case.turns and not numerics.turns:
        return "programs do not wait for each other there"
    out = [d.name for d in dtypes if d.is_float8 and numerics.float8.get(d.name, "refused") == "refused"]
    if "store_add" in case.kernel.function.__code__.co_names:
        out += [d.name for d in dtypes if d.bits == 64 and d.is_integer and d.name not in numerics.atomics]
        if out:
            return f"the target does not add {', '.join(sorted(out))} in memory (no 64-bit atomics)"
    return f"the target refuses {', '.join(sorted(out))}" if out else ""


@dataclass(frozen=True)
class Prepared:
    """A case made ready for a target: its arguments in memory, what the kernel makes of them, and what must
    come out.
    """

    spec: dict[str, Arg]
    buffers: dict[str, Buffer]
    arguments: dict[str, Any]
    described: dict[str, Argument]
    constants: dict[str, Any]
    grid: tuple[int, ...]

    def memory(self) -> dict[str, Memory]:
        """The tensors as the judge finds them before the kernel runs."""
        return {name: _memory(self.spec[name], buffer) for name, buffer in self.buffers.items()}


def prepare(case: Case, target: Target) -> Prepared:
    """Make the arguments of a case, settle its constants and its grid."""
    spec = case.make()
    buffers = {n: _buffer(x) for n, x in spec.items() if isinstance(x, (In, Out, InOut))}
    arguments = {n: buffers[n].view if n in buffers else x for n, x in spec.items()}
    described, given = case.kernel.bind((), {**arguments, **case.constants})
    settled = case.kernel.settle(target, described, given)
    grid = runtime.evaluate_grid(case.kernel, described, settled)
    return Prepared(spec, buffers, arguments, described, settled, grid)


def _examine(case: Case, target: Target, numerics: Numerics) -> tuple[str, float, int, str]:
    ready = prepare(case, target)
    spec, buffers, tensors = ready.spec, ready.buffers, ready.memory()
    rules = Rules(numerics, follows=case.textbook is None)
    with np.errstate(all="ignore"):
        judge(case.kernel, tensors, ready.described, ready.constants, ready.grid, rules)
    expected = {n: tensors[n].bounded() for n in buffers}
    before = {}
    for name, buffer in buffers.items():
        if isinstance(spec[name], Out):
            buffer.view[...] = poison(expected[name].v, expected[name].dtype)
        before[name] = native_bytes(buffer.view).copy(), buffer.outside().copy()

    done = case.kernel(**ready.arguments, on=target, **case.constants)
    _check_run(done, target, ready)

    problems, worst, judged, unknown = [], 0.0, 0, 0
    for name, buffer in buffers.items():
        memory = tensors[name]
        inside, outside = before[name]
        if not np.array_equal(buffer.outside(), outside):
            raise Failure(f"{name}: memory outside the array was overwritten")
        changed = (native_bytes(buffer.view) != inside).any(axis=1).reshape(buffer.view.shape)
        astray = int((changed & ~memory.written).sum())
        if astray:
            raise Failure(f"{name}: {astray} elements were overwritten that the kernel does not store to")
        finding = compare(name, expected[name], values(buffer.view, memory.dtype), memory.written)
        if finding.message:
            stale = int((memory.written & ~changed).sum()) if isinstance(spec[name], Out) else 0
            problems.append(
                finding.message + (f"\n  {stale} elements still hold what was there before" if stale else "")
            )
        worst, judged, unknown = max(worst, finding.ratio), judged + finding.judged, unknown + finding.unknown
    if unknown > MOST_UNKNOWN * (judged + unknown):
        raise Unjudgeable(
            f"{unknown} of {judged + unknown} elements cannot be judged: the case needs other inputs"
        )
    if (
        judged == 0
        and any(m.v.size for n, m in tensors.items() if not isinstance(spec[n], In))
        and grid_size(ready.grid)
    ):
        raise Failure("the run wrote nothing that could be judged")
    if case.textbook is not None:
        problems += against_textbook(case, spec, expected, tensors)
        worst = np.inf if problems and worst <= 1 else worst
    return done.how, worst, judged, "\n".join(problems)


def grid_size(grid: tuple[int, ...]) -> int:
    """Number of programs."""
    return int(np.prod(grid, dtype=np.int64))


def _check_run(done: Any, target: Target, ready: Prepared) -> None:
    """A run must say that it happened, where, how, and with the constants that were judged."""
    if not isinstance(done, runtime.Run):
        raise Failure(f"nothing was run: the call returned {done!r}")
    if done.target.split(":")[0].split("@")[0] != target.backend:
        raise Failure(f"asked for {target}, ran on {done.target}")
    if done.how not in ("executed", "simulated") or (done.how == "simulated") != target.simulated:
        raise Failure(f"asked for {target}, the run was {done.how!r}")
    if tuple(done.grid) != tuple(ready.grid) or dict(done.constants) != ready.constants:
        ran, judged = (done.grid, done.constants), (ready.grid, ready.constants)
        raise Failure(f"ran grid {ran[0]} with {ran[1]}, judged {judged[0]} with {judged[1]}")


def _buffer(x: In | Out | InOut) -> Buffer:
    dtype, shape = (x.dtype, x.shape) if isinstance(x, Out) else (as_dtype(x.data.dtype), x.data.shape)
    buffer = allocate(shape, dtype, x.layout)
    if not isinstance(x, Out):
        buffer.view[...] = x.data
    return buffer


def _memory(x: Arg, buffer: Buffer) -> Memory:
    assert isinstance(x, (In, Out, InOut))
    if isinstance(x, Out):
        return memory_of(np.zeros(x.shape, x.dtype.numpy), x.dtype, readable=False)
    return memory_of(buffer.view.copy(), as_dtype(x.data.dtype))


def against_textbook(
    case: Case, spec: dict[str, Arg], expected: dict[str, Bounded], tensors: dict[str, Memory]
) -> list[str]:
    """Compare the oracle of a kernel with the formula of the books, within the kernel's own bounds."""
    assert case.textbook is not None
    plain = {
        n: values(x.data, as_dtype(x.data.dtype)) if isinstance(x, (In, InOut)) else x
        for n, x in spec.items()
        if not isinstance(x, Out)
    }
    with np.errstate(all="ignore"):  # special values
        truth = case.textbook(**plain, **case.constants)
    problems = []
    for name, array in truth.items():
        finding = compare(name, expected[name], array, tensors[name].written)
        whole = isinstance(spec[name], InOut) or tensors[name].written.all()  # what was there counts
        if finding.message or not whole:
            problems.append(
                "the kernel does not compute its formula: "
                + (finding.message or f"{name} is not written everywhere")
            )
    return problems
