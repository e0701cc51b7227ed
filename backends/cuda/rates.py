"""What one device of each architecture can do at most: an H200 and an A100 of 80 GB, by their data sheets; their caches
by what was measured (H200) or is reported. Candidates are ranked by it.
"""

from __future__ import annotations

from kittens.targets import Rates

RATES = {
    "sm_80": Rates(108, 167936, 2048, 65536, {16: 312e12, 8: 624e12}, 19.5e12, 2.0e12, 5e12),
    "sm_90a": Rates(132, 233472, 2048, 65536, {16: 989e12, 8: 1979e12}, 67e12, 4.8e12, 10e12),
}
