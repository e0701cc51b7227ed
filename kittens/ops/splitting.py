"""Into how many parts work is split, so that a target's processors are busy."""

from __future__ import annotations

import math
from typing import Any

from kittens import plugins
from kittens.kernel import Kernel
from kittens.runtime import evaluate_grid
from kittens.targets import Target

#: Parts, at most.
MOST = 128
#: What the number of parts reckons with: bytes of shared memory that a program takes.
PROGRAM_BYTES = 65536


def parts(programs: int, length: int, target: Target, least: int, resident: int | None = None) -> int:
    """Into how many parts to split keys, or what else programs go through one by one: the fewest with which processors are as
    busy as they can be, less a tenth.

    programs: how many there are for each part, of which a processor holds `resident`, or as many as fit its shared memory, 2 at
    least. least: the length of a part.
    """
    rates = plugins.manager().hook.kittens_rates(target=target)
    if resident is None:
        resident = max(2, rates.shared_bytes // PROGRAM_BYTES) if rates else 2
    slots = resident * (rates.processors if rates else 1)

    def busy(parts: int) -> float:
        return programs * parts / (-(-programs * parts // slots) * slots) if programs else 1.0

    choices = range(1, max(1, min(length // least, MOST)) + 1)
    return next(n for n in choices if busy(n) >= 0.9 * max(map(busy, choices)))


def programs(kernel: Kernel, args: tuple[Any, ...], constants: dict[str, Any], target: Target) -> int:
    """How many programs a kernel has on a target."""
    arguments, given = kernel.bind(args, constants)
    return math.prod(evaluate_grid(kernel, arguments, kernel.settle(target, arguments, given)))


def processors(target: Target) -> int:
    """How many processors a target has; 1 where it does not tell."""
    rates = plugins.manager().hook.kittens_rates(target=target)
    return rates.processors if rates else 1
