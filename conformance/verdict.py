"""The verdict on an array: largest observed error over its bound, and words for what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kittens.conformance.judge.bounded import Bounded
from kittens.conformance.judge.formats import spacing
from kittens.dtypes import Array


@dataclass(frozen=True)
class Finding:
    """What comparing one array gave. ratio: largest observed/bound (inf for NaN or bit mismatches). judged:
    elements.
    """

    ratio: float
    judged: int
    unknown: int
    message: str = ""


def compare(name: str, expected: Bounded, got: Array, written: Array) -> Finding:
    """Compare what a target wrote with bounded values, where `written`."""
    ratios = np.where(written, _ratios(expected, got), 0.0)
    unknown = int((written & np.isinf(expected.e)).sum())
    judged = int(written.sum()) - unknown
    worst = float(ratios.max(initial=0.0))
    return Finding(worst, judged, unknown, _describe(name, expected, got, ratios) if worst > 1 else "")


def _ratios(x: Bounded, got: Array) -> Array:
    """Observed error over bound; 0 for agreement, inf where no error is allowed or NaN and infinities
    disagree.
    """
    with np.errstate(all="ignore"):
        if x.dtype.kind not in "fs":
            error = (
                np.abs(np.subtract(got, x.v, dtype=np.float64)) if x.dtype.bits < 64 else _distance(got, x.v)
            )
            return np.where(got == x.v, 0.0, np.where(x.e > 0, error / np.where(x.e > 0, x.e, 1), np.inf))
        nan = np.isnan(x.v)
        same = (got == x.v) | (nan & np.isnan(got))
        bits = same & (nan | (np.signbit(got) == np.signbit(x.v)))
        near = np.abs(got - x.v) / np.where(x.e > 0, x.e, 1.0)
        overflow = np.isinf(got) & np.isfinite(x.v) & (np.sign(got) * x.v + x.e >= x.dtype.max)
        inexact = np.where(same | overflow, 0.0, np.where(np.isfinite(got) & np.isfinite(x.v), near, np.inf))
        return np.where(x.e == 0, np.where(bits, 0.0, np.inf), np.where(np.isinf(x.e), 0.0, inexact))


def _distance(a: Array, b: Array) -> Array:
    return np.abs(a.astype(np.float64) - b.astype(np.float64))


def _describe(name: str, x: Bounded, got: Array, ratios: Array) -> str:
    """In the manner of numpy.testing.assert_allclose, with the bound and units in the last place."""
    bad = ratios > 1
    count, total = int(bad.sum()), bad.size
    at = (
        np.unravel_index(int(np.argmax(np.where(np.isnan(ratios), np.inf, ratios))), ratios.shape)
        if ratios.ndim
        else ()
    )
    g, v, e = got[at], x.v[at], float(x.e[at])
    where = "".join(f"[{int(i)}]" for i in at)
    rows = [
        f"{name}: mismatched elements: {count} / {total} ({100 * count / max(total, 1):.3g}%)",
        f"  worst at {name}{where}: got {g!s}, expected {v!s}, allowed error {e:.4g}"
        + (" (exact)" if e == 0 else ""),
    ]
    if x.dtype.kind == "f" and np.isfinite(v) and np.isfinite(g):
        ulp = float(spacing(x.dtype, np.asarray(v)))
        rows.append(
            f"  error {abs(g - v):.4g} = {abs(g - v) / ulp:.4g} ulp of {x.dtype}; allowed {e / ulp:.4g} ulp"
        )
    some = np.argwhere(bad)[:5]
    if len(some) > 1:
        rows.append(
            "  first: "
            + ", ".join(f"[{','.join(map(str, i))}] {got[tuple(i)]!s} for {x.v[tuple(i)]!s}" for i in some)
        )
    return "\n".join(rows)
