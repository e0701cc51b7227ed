"""Zeros in device memory from which the blocks of a launch draw programs. Each launch leaves its counter at zero again."""

from __future__ import annotations

import functools
import threading
from typing import Any

#: Counters of one piece of memory.
_PIECE = 4096


class Counters:
    """The counters of one device.

    Launches on one stream run one after another, and share a counter. A launch that is captured into a graph gets its own,
    as graphs run whenever they are asked to; it is never given back, and takes four bytes.
    """

    def __init__(self, index: int):
        self.index = index
        self.of_stream: dict[int, int] = {}
        self.pieces: list[Any] = []
        self.used = _PIECE
        self.lock = threading.Lock()

    def __call__(self, stream: int) -> int:
        """The address of a counter for a launch on a stream."""
        import cupy

        if cupy.cuda.runtime.streamIsCapturing(stream):
            with self.lock:
                return self._new()
        found = self.of_stream.get(stream)
        if found is None:
            with self.lock:
                found = self.of_stream.setdefault(stream, self._new())
        return found

    def _new(self) -> int:
        if self.used == _PIECE:
            self.pieces.append(_zeroed(4 * _PIECE, self.index))
            self.used = 0
        self.used += 1
        return int(self.pieces[-1].ptr) + 4 * (self.used - 1)


def _zeroed(size: int, index: int) -> Any:
    """New memory of zeros. Legal while a stream is captured, and no part of what is captured."""
    import cupy
    from cuda.bindings import driver as cu

    with cupy.cuda.Device(index):
        _, mode = cu.cuThreadExchangeStreamCaptureMode(cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            memory = cupy.cuda.Memory(size)
            own = cupy.cuda.Stream(non_blocking=True)
            cupy.cuda.runtime.memsetAsync(memory.ptr, 0, size, own.ptr)
            own.synchronize()
        finally:
            cu.cuThreadExchangeStreamCaptureMode(mode)
    return memory


@functools.cache
def counters(index: int) -> Counters:
    """The counters of a device."""
    return Counters(index)
