"""What the tests of the kernel library share: running kernels both ways, and textbook error bounds.

Bounds are those of the standard model of rounding (Higham, Accuracy and Stability of Numerical Algorithms,
ch. 3): a sum or product of n terms in any order errs by at most gamma_n = n u / (1 - n u) times the sum of
magnitudes.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, settings

from kittens import runtime
from kittens.arguments import ScalarArg, TensorArg
from kittens.dtypes import as_dtype
from kittens.eager import NumPyArithmetic, interpret

U = 2.0**-24
BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
FLOATS = [F32, BF16, F16]
E4M3, E5M2, E8M0 = (np.dtype(getattr(ml_dtypes, f"float8_{x}")) for x in ("e4m3fn", "e5m2", "e8m0fnu"))

random_shapes = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


def run_both_ways(monkeypatch):
    """Have every kernel call also trace the kernel and interpret its IR, which must give the same bits.

    Outputs are filled with one pattern before one run and another before the other, so each element must be
    written.
    """
    run = runtime.run

    def both(kernel, args, constants, on):
        arguments, given = kernel.bind(args, constants)
        settled = kernel.settle(runtime.choose_target(arguments, on), arguments, given)
        grid = runtime.evaluate_grid(kernel, arguments, settled)
        function = kernel.trace(arguments, settled, len(grid))
        tensors = {n: a.data for n, a in arguments.items() if isinstance(a, TensorArg)}
        outputs = function.stored()
        for name in outputs:
            fill(tensors[name], 0x55)
        copies = {n: x.copy() for n, x in tensors.items()}
        for name in outputs:
            fill(copies[name], 0x2A)
        result = run(kernel, args, constants, on)
        scalars = {
            n: np.array(a.value, a.dtype.numpy) for n, a in arguments.items() if isinstance(a, ScalarArg)
        }
        values = [{**copies, **scalars}[p.name] for p in function.params]
        for program in itertools.product(*map(range, grid)):
            interpret(function, NumPyArithmetic(), values, grid, program)
        for name, x in tensors.items():
            assert x.tobytes() == copies[name].tobytes(), (
                f"{kernel.name}: {name} differs between eager and traced"
            )
        return result

    monkeypatch.setattr(runtime, "run", both)


def fill(x, byte):
    """Set every byte of an array."""
    x[...] = np.frombuffer(bytes([byte]) * x.itemsize, x.dtype)[0]


def gamma(n, u=U):
    return n * u / (1 - n * u)


def rounding(dtype):
    """Unit round-off of a dtype, and the largest absolute error of rounding near zero."""
    d = as_dtype(dtype)
    return (d.unit_roundoff, d.smallest) if d.is_float else (0.0, 0.0)


def rounded(x, dtype):
    """The largest error that rounding x to a dtype makes."""
    u, smallest = rounding(dtype)
    return np.abs(x) * u + smallest


def within(got, want, bound):
    """Whether a result is the float64 value to within a bound; both may be NaN or the same infinity."""
    got, bound = got.astype(np.float64), np.broadcast_to(bound, want.shape)
    with np.errstate(invalid="ignore"):
        error = np.abs(got - want)
    ok = (error <= bound) | (got == want) | (np.isnan(got) & np.isnan(want))
    assert got.shape == want.shape
    worst = np.nanmax(np.where(ok, 0, error), initial=0)
    assert ok.all(), f"{(~ok).sum()} of {ok.size} elements outside the bound, by up to {worst:.3g}"


def normal(rng, dtype, *shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(dtype)


def wide(*arrays):
    return [np.asarray(x).astype(np.float64) for x in arrays]
