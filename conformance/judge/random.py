"""Random bits are integers, hence exact: Philox-4x32-10 typed from the paper (Salmon et al., SC'11, section
3.3).
"""

from __future__ import annotations

import numpy as np

from kittens.conformance.judge.bounded import Bounded, exactly
from kittens.conformance.judge.elementwise import rule
from kittens.conformance.judge.rounding import Rules
from kittens.dtypes import Array
from kittens.opset import Call

_LOW = np.uint64(0xFFFFFFFF)


def block(counter: Array, key: tuple[int, int]) -> Array:
    """Philox-4x32-10 of counters (4, ...), 32-bit words in uint64; the key is two words."""
    left0, right0, left1, right1 = (counter[i] for i in (1, 0, 3, 2))
    k0, k1 = key
    for _ in range(10):
        product0 = right0 * np.uint64(0xD2511F53)
        product1 = right1 * np.uint64(0xCD9E8D57)
        right0, right1 = (
            (product1 >> np.uint64(32)) ^ left0 ^ np.uint64(k0),
            (product0 >> np.uint64(32)) ^ left1 ^ np.uint64(k1),
        )
        left0, left1 = product1 & _LOW, product0 & _LOW
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack([right0, left0, right1, left1])


@rule("random_bits")
def _random_bits(rules: Rules, call: Call, seed: Bounded, counter: Bounded) -> Bounded:
    key = int(seed.v) % 2**64
    number = counter.v.astype(np.int64).astype(np.uint64)
    group = number >> np.uint64(2)
    zero = np.zeros_like(group)
    words = block(np.stack([group & _LOW, group >> np.uint64(32), zero, zero]), (key % 2**32, key >> 32))
    word = np.take_along_axis(words, (number & np.uint64(3)).astype(np.int64)[None], axis=0)[0]
    result = exactly(call.result.dtype, word.astype(np.uint32))
    return (
        result
        if counter.exact and seed.exact
        else Bounded(result.dtype, result.v, np.full(word.shape, np.inf))
    )
