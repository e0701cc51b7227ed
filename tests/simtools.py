"""What the simulator's tests share: kernels, orders, and programs built once a session."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kittens.sim import Program, SimulationFault, Vendor, build

KERNELS = Path(__file__).resolve().parent / "sim_kernels"
ORDERS: tuple[str | int, ...] = ("forward", "reverse", 1, 2)

_cache = tempfile.TemporaryDirectory(prefix="kittens-test-sim-")
_programs: dict[tuple[str, str, str, str | None], Program] = {}


def program(vendor: Vendor, source: str, entry: str, arch: str | None = None) -> Program:
    """The program built from `source`, kept for the next test that wants the same."""
    key = vendor.name, source, entry, arch
    if key not in _programs:
        _programs[key] = build(source, vendor, entry, arch, cache_dir=_cache.name)
    return _programs[key]


@functools.cache
def kernels(file: str) -> str:
    """The text of a file of kernels."""
    return (KERNELS / file).read_text()


def edited(text: str, old: str, new: str) -> str:
    """`text` with a bug planted in it: the one place that reads `old` reads `new`."""
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    return text.replace(old, new)


def fault(
    kind: str | tuple[str, ...], run: Callable[..., object], *args: object, **options: object
) -> SimulationFault:
    """The fault that `run` ends with; it must be of `kind`."""
    with pytest.raises(SimulationFault) as caught:
        run(*args, **options)
    kinds = (kind,) if isinstance(kind, str) else kind
    assert caught.value.kind in kinds, caught.value
    return caught.value
