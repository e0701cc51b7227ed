"""Build a kernel for the CPU and run it on NumPy arrays."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kittens.errors import ArgumentError
from kittens.sim.faults import KINDS, SimulationFault
from kittens.sim.maps import MappedArray
from kittens.sim.toolchain import Unit, build_library, check_unit
from kittens.sim.vendor import DEVICE, Vendor

ORDERS = ("forward", "reverse")
_RANDOM = 2
_MAX_THREADS = 1024
_MAX_BUFFERS = 63
_MESSAGE_BYTES = 1200
_MAX_GROUPS = 32
_MAX_CLUSTER = 16


class _Fault(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("program", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32),
        ("lane", ctypes.c_uint32),
        ("group", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("mark", ctypes.c_uint32),
        ("file", ctypes.c_char_p),
        ("function", ctypes.c_char_p),
        ("message", ctypes.c_char * _MESSAGE_BYTES),
    ]


class _Extent(ctypes.Structure):
    _fields_ = [
        ("base", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("writable", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("values", ctypes.POINTER(ctypes.c_void_p)),
        ("extents", ctypes.POINTER(_Extent)),
        ("extents_count", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("checks", ctypes.c_uint32),
        ("workers", ctypes.c_uint32),
        ("lanes", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("meetings", ctypes.c_uint64),
        ("barriers", ctypes.c_uint64),
        ("fault", _Fault),
    ]


@dataclass(frozen=True)
class Parameter:
    """A parameter as the host compiler sees it: a pointer to a buffer, or a value of so many bytes."""

    buffer: bool
    bytes: int


@dataclass(frozen=True)
class Counts:
    """What a run did: meetings of groups, and barriers."""

    meetings: int
    barriers: int


class Program:
    """A kernel compiled for the CPU. Made by `build`."""

    def __init__(
        self,
        library: Path,
        kernel: str,
        lanes: int,
        locations: Mapping[int, tuple[str, int]],
    ):
        self.library = library
        self.kernel = kernel
        self.lanes = lanes
        self.locations = dict(locations)
        self._loaded = ctypes.CDLL(str(library))
        self._loaded.kt_sim_entry.argtypes = [ctypes.POINTER(_Launch)]
        self._loaded.kt_sim_entry.restype = None
        sizes = (ctypes.c_int * 256)()
        self._loaded.kt_sim_parameters(sizes)
        count = list(sizes).index(0)
        self.parameters = tuple(Parameter(size < 0, abs(size)) for size in sizes[:count])

    def run(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared_bytes: int = 0,
        order: str | int = "forward",
        checks: bool = True,
        workers: int | None = None,
        cluster: int = 1,
    ) -> Counts:
        """Run every program of the grid; arrays are changed in place.

        args          one for each parameter: an array for a buffer; a number, bytes or a MappedArray for a value
        shared_bytes  of shared memory that a program has
        order         of lanes, groups and programs: "forward", "reverse", or a number that seeds a random one
        checks        of shared memory: races, unwritten bytes, asynchronous copies; bounds always are checked
        workers       threads that programs are spread over; `KITTENS_SIM_WORKERS`, else one for each CPU
        cluster       programs, neighbours along the first axis, that run side by side and reach each other's shared memory
        """
        threads = _three(block)
        total = threads[0] * threads[1] * threads[2]
        if not 0 < total <= _MAX_THREADS:
            raise ArgumentError(f"a program has 1 to {_MAX_THREADS} threads, not {total}")
        if total % self.lanes:
            raise ArgumentError(f"{total} threads are no multiple of the {self.lanes} that meet as one group")
        if not 0 < cluster <= _MAX_CLUSTER or cluster * total > min(_MAX_THREADS, _MAX_GROUPS * self.lanes):
            raise ArgumentError(
                f"a cluster of {cluster} programs of {total} threads is too large to simulate"
            )
        if cluster > 1 and _three(grid)[0] % cluster:
            raise ArgumentError(f"{_three(grid)[0]} programs cannot be dealt to clusters of {cluster}")
        if len(args) != len(self.parameters):
            raise ArgumentError(
                f"{self.kernel} takes {len(self.parameters)} arguments, {len(args)} were given"
            )
        launch = _Launch()
        launch.grid[:] = _three(grid)
        launch.block[:] = threads
        if 0 in list(launch.grid):
            return Counts(0, 0)
        values = _Values(self.kernel)
        for number, (parameter, value) in enumerate(zip(self.parameters, args, strict=True)):
            values.add(number, parameter, value)
        values.bind(launch)
        launch.shared_bytes = shared_bytes
        launch.lanes = self.lanes
        launch.cluster = cluster
        launch.checks = checks
        launch.workers = workers or int(os.environ.get("KITTENS_SIM_WORKERS", 0)) or os.cpu_count() or 1
        launch.order, launch.seed = _order(order)
        self._loaded.kt_sim_entry(ctypes.byref(launch))
        if launch.fault.kind:
            raise self._fault(launch.fault)
        return Counts(launch.meetings, launch.barriers)

    def _fault(self, fault: _Fault) -> SimulationFault:
        file, line = (fault.file or b"").decode(), int(fault.line)
        if fault.mark in self.locations:
            file, line = self.locations[fault.mark]
        x, y, z = fault.program
        return SimulationFault(
            KINDS[fault.kind],
            fault.message.decode(errors="replace"),
            kernel=self.kernel,
            program=(x, y, z),
            thread=fault.thread,
            lane=fault.lane,
            file=file,
            line=line,
        )


class _Values:
    """The arguments of a launch as the runtime takes them: pointers to values, and extents of buffers."""

    def __init__(self, kernel: str):
        self.kernel = kernel
        self.buffers: list[Any] = []
        self.extents: list[_Extent] = []
        self.kept: list[np.ndarray] = []
        self.tagged: dict[int, int] = {}  # pointers as kernels see them, by the array's identity

    def add(self, number: int, parameter: Parameter, value: Any) -> None:
        if parameter.buffer:
            self.buffers.append(ctypes.c_uint64(self._pointer(number, value)))
            return
        if isinstance(value, MappedArray):
            value = value.encoded(self._pointer(number, value.array))
        raw = _raw(value, parameter.bytes)
        if raw is None:
            raise ArgumentError(
                f"argument {number} of {self.kernel} is a value of {parameter.bytes} bytes, "
                f"not {type(value).__name__}"
            )
        # Aligned for any parameter, vector types and tensor maps included.
        space = np.zeros(parameter.bytes + 128, np.uint8)
        start = -space.ctypes.data % 128
        space[start : start + parameter.bytes] = np.frombuffer(raw, np.uint8)
        self.kept.append(space)
        self.buffers.append(space.ctypes.data + start)

    def _pointer(self, number: int, value: Any) -> int:
        if not isinstance(value, np.ndarray):
            raise ArgumentError(
                f"argument {number} of {self.kernel} is a buffer: an array, not {type(value).__name__}"
            )
        if id(value) in self.tagged:  # a buffer and its maps are one buffer
            return self.tagged[id(value)]
        if len(self.extents) == _MAX_BUFFERS:
            raise ArgumentError(f"more than {_MAX_BUFFERS} buffers")
        low, high = _byte_bounds(value)
        self.kept.append(value)
        self.extents.append(_Extent(low, high - low, value.flags.writeable, number))
        self.tagged[id(value)] = len(self.extents) << 48 | value.ctypes.data
        return self.tagged[id(value)]

    def bind(self, launch: _Launch) -> None:
        """Fill in the launch. It holds addresses only: this object must outlive the run."""
        pointers = [b if isinstance(b, int) else ctypes.addressof(b) for b in self.buffers]
        self.pointers = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        self.table = (_Extent * max(1, len(self.extents)))(*self.extents)
        launch.values = ctypes.cast(self.pointers, ctypes.POINTER(ctypes.c_void_p))
        launch.extents = ctypes.cast(self.table, ctypes.POINTER(_Extent))
        launch.extents_count = len(self.extents)


def build(
    source: str,
    vendor: Vendor,
    entry: str,
    arch: str | None = None,
    *,
    locations: Mapping[int, tuple[str, int]] | None = None,
    cache_dir: str | Path | None = None,
) -> Program:
    """Compile a vendor's source for this machine's CPU, over the vendor's shim.

    entry      name of the kernel
    arch       as the vendor names it; decides the lanes of a group and what the source's `#if`s see
    locations  (file, line) for every n of a `KT_LOC(n)` in the source; else `#line` decides what reports name
    """
    library = build_library(_unit(source, vendor, entry, arch), cache_dir=cache_dir)
    return Program(library, entry, vendor.arch(arch).lanes, locations or {})


def check(source: str, vendor: Vendor, entry: str, arch: str | None = None) -> None:
    """Have the host compiler read a source over the vendor's shim, and make nothing. Raises BuildError if it refuses."""
    check_unit(_unit(source, vendor, entry, arch))


def _unit(source: str, vendor: Vendor, entry: str, arch: str | None) -> Unit:
    """What the host compiler is given."""
    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64", "arm64", "aarch64") or sys.platform not in ("linux", "darwin"):
        raise ArgumentError(
            f"the simulator runs on x86-64 and arm64, Linux and macOS, not on {machine} and {sys.platform}"
        )
    chosen = vendor.arch(arch)
    if vendor.entry is None:
        ending = f"KT_SIM_ENTRY({entry})\n"
    else:
        ending = vendor.entry(source, entry)
    # headers of a vendor's own are made with the text, after the head
    line, head, rest = (1, "", source) if vendor.standard_headers else _head(source)
    head = f'#include "{vendor.prelude}"\n{head}'
    unit = f'#line {line} "{entry}{vendor.suffix}"\n{rest}\n#line 1 "entry"\n{ending}'
    defines = [f"-D{name}={value}" for name, value in {"KT_SIM": "1", **chosen.defines}.items()]
    return Unit(head, unit, (*vendor.include, DEVICE), (*vendor.flags, *defines), vendor.standard_headers)


def _byte_bounds(array: np.ndarray) -> tuple[int, int]:
    """The first byte of an array and the one past its last, whatever its strides."""
    low = high = array.ctypes.data
    if array.size == 0:
        return low, high
    for size, stride in zip(array.shape, array.strides, strict=True):
        span = (size - 1) * stride
        low, high = low + min(span, 0), high + max(span, 0)
    return low, high + array.itemsize


def _three(value: int | Sequence[int]) -> tuple[int, int, int]:
    sizes = (value,) if isinstance(value, int) else tuple(value)
    x, y, z = sizes + (1,) * (3 - len(sizes))
    return x, y, z


def _order(order: str | int) -> tuple[int, int]:
    if isinstance(order, int):
        return _RANDOM, order & (2**64 - 1)
    if order not in ORDERS:
        raise ArgumentError(
            f"an order is one of {', '.join(ORDERS)} or the seed of a random one, not {order!r}"
        )
    return ORDERS.index(order), 0


def _raw(value: Any, size: int) -> bytes | None:
    """The bytes of a value that a kernel takes as `size` bytes, or None if it cannot be one."""
    if isinstance(value, bytes):
        return value if len(value) == size else None
    if isinstance(value, np.generic):
        return bytes(value.tobytes()) if value.nbytes == size else None
    if isinstance(value, float) and size in (4, 8):
        return struct.pack("<f" if size == 4 else "<d", value)
    if isinstance(value, int) and size in (1, 2, 4, 8):
        return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return None


def _head(source: str) -> tuple[int, str, str]:
    """The includes of our headers that a source begins with. -> (line of the rest, those includes, the rest)"""
    lines = source.splitlines(keepends=True)
    count = 0
    for count, line in enumerate(lines):  # noqa: B007
        if not line.startswith(('#include "', "//", "\n")):
            break
    head = "".join(line for line in lines[:count] if line.startswith("#"))
    return count + 1, head, "".join(lines[count:])
