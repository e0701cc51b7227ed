"""What one device of each architecture can do at most: MI300X, MI355X, RX 7900 XTX and RX 9070 XT, by their data sheets,
caches roughly. Candidates are ranked by it.
"""

from __future__ import annotations

from kittens.targets import Rates

RATES = {
    "gfx942": Rates(304, 65536, 2048, 131072, {16: 1307e12, 8: 2615e12}, 163e12, 5.3e12, 17e12),
    "gfx950": Rates(256, 163840, 2048, 131072, {16: 2500e12, 8: 5000e12}, 157e12, 8e12, 17e12),
    "gfx1100": Rates(96, 65536, 1024, 98304, {16: 123e12, 8: 123e12}, 61e12, 0.96e12, 3.5e12),
    "gfx1201": Rates(64, 65536, 1024, 98304, {16: 195e12, 8: 389e12}, 48e12, 0.64e12, 3e12),
}
