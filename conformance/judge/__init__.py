"""The judge of conformance: an arithmetic on (value, error bound).

A kernel run in it yields, for every element it stores, the value in float64 and a bound on the error of any
implementation that honours the numerics contract. The rule of each operation is found by name in `RULES`:

    elementwise  arithmetic (correctly rounded), comparisons, bits, where, functions (the target's ULP figure)
    reduction    sum, cumsum, max, min, argmax, any, all
    product      mma, mma_scaled
    shape        const, cast, bitcast, moves
    random       random_bits
    oracle       loads, stores, store_add; running kernels

Source of the formulas: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM 2002,
chapters 2-4.
"""

from kittens.conformance.judge.bounded import SIGN, Bounded, Unjudgeable, exactly
from kittens.conformance.judge.elementwise import RULES
from kittens.conformance.judge.oracle import Judge, Memory, judge, judge_ir, memory_of
from kittens.conformance.judge.rounding import Rules

__all__ = [
    "RULES",
    "SIGN",
    "Bounded",
    "Judge",
    "Memory",
    "Rules",
    "Unjudgeable",
    "exactly",
    "judge",
    "judge_ir",
    "memory_of",
]
