"""Which keys a query of attention sees: those from `left` before its position (None: from the first) to `right` after it
(None: to the last). The last of nq queries stands at the last of nk keys. Blocks are of BM queries and BN keys.
"""

from __future__ import annotations

import kittens as kt


def key_blocks(i, nq, nk, left, right, BM, BN):
    """The range lo, hi of the blocks of keys that some query of block i sees."""
    lo, hi = 0, kt.cdiv(nk, BN)
    if left is not None:
        lo = kt.maximum(i * BM + (nk - nq - left), 0) // BN
    if right is not None:
        hi = kt.minimum(kt.cdiv(kt.maximum((i + 1) * BM + (nk - nq + right), 0), BN), hi)
    return lo, hi


def visible(s, i, j, nq, nk, left, right):
    """The scores s of query block i and key block j; -inf where the query does not see the key."""
    return within_reach(s, kt.rows(i, s.shape[0]) + (nk - nq), j, nk, left, right)


def within_reach(s, position, j, nk, left, right):
    """The scores s of queries at these positions and key block j; -inf where the query does not see the key."""
    key = kt.cols(j, s.shape[1])
    if right is None or right > 0:  # else the bound on the right says it
        s = kt.where(key < nk, s, -kt.inf)
    if left is not None:
        s = kt.where(key >= position - left, s, -kt.inf)
    if right is not None:
        s = kt.where(key <= position + right, s, -kt.inf)
    return s
