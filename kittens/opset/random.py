"""Counter-based random numbers: Philox-4x32-10 (Salmon, Moraes, Dror and Shaw, SC'11)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kittens.dtypes import Array, uint32
from kittens.errors import DTypeError
from kittens.ir import TileType, Type
from kittens.opset import Call, define

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox(
    key: tuple[Array, Array], counter: tuple[Array, Array, Array, Array]
) -> tuple[Array, Array, Array, Array]:
    """The four 32-bit words of Philox-4x32-10. All arrays are uint64 that hold 32-bit values."""
    mask = np.uint64(0xFFFFFFFF)
    k0, k1 = key
    x0, x1, x2, x3 = counter
    for _ in range(ROUNDS):
        p0, p1 = x0 * np.uint64(MULTIPLIERS[0]), x2 * np.uint64(MULTIPLIERS[1])
        x0, x1, x2, x3 = (
            (p1 >> np.uint64(32)) ^ x1 ^ k0,
            p1 & mask,
            (p0 >> np.uint64(32)) ^ x3 ^ k1,
            p0 & mask,
        )
        k0, k1 = (k0 + np.uint64(WEYL[0])) & mask, (k1 + np.uint64(WEYL[1])) & mask
    return x0, x1, x2, x3


def _infer_random(call: Call) -> Sequence[Type]:
    seed, counter = call.tile(0), call.tile(1)
    if not counter.dtype.is_integer or seed.dtype.kind not in "iu" or seed.shape != ():
        raise DTypeError(f"random bits take an integer seed and integer counters, not {seed} and {counter}")
    return [TileType(uint32, counter.shape)]


def _random(call: Call, seed: Array, counter: Array) -> Array:
    mask, word = np.uint64(0xFFFFFFFF), np.uint64(32)
    key, c = seed.astype(np.int64).view(np.uint64), counter.astype(np.int64).view(np.uint64)
    key = key.reshape(key.shape + (1,) * (c.ndim - key.ndim))
    group, lane = c >> np.uint64(2), c & np.uint64(3)
    zero = np.zeros_like(group)
    with np.errstate(over="ignore"):
        words = philox((key & mask, key >> word), (group & mask, group >> word, zero, zero))
    return np.choose(lane.astype(np.int64), words).astype(np.uint32)


#: random_bits: word (counter mod 4) of the block at counter div 4, both read as unsigned 64 bits, under key
#: `seed`.
define("random_bits", _infer_random, _random)
