"""What kernels print on devices without printf: they write records into a log, which the host reads after the launch.

A log is 16 bytes of four 32-bit numbers (the words taken, the records that did not fit, the words there are, 0), then words
of 64 bits. A record is a word for the message's number, counted from 1, and a word for each of its values: bits of a
float32, or an integer, or 0 or 1. Records that do not fit are counted only; 0 stands where the first of them would.
`KT_RECORD` of the device headers writes them. Messages are formats of C, which devices with printf take as they are.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kittens.errors import ArgumentError

#: The environment's name for the bytes of records that a launch has room for.
LIMIT = "KITTENS_PRINT_BYTES"
_DEFAULT, _MOST = 1 << 20, 1 << 30
_HEAD = 4
_VALUE = re.compile(r"%(?:%|lld|llu|d|s|\.9g)")


def new_log(messages: Sequence[str]) -> Any:
    """An empty log for a launch of a kernel with these messages; for one that has none, no more than the head."""
    if not messages:
        return np.zeros(_HEAD, np.uint32)
    text = os.environ.get(LIMIT) or str(_DEFAULT)
    if not text.isdecimal() or int(text) > _MOST:
        raise ArgumentError(
            f"{LIMIT} is {text!r}", hint=f"a number of bytes up to {_MOST}, such as {_DEFAULT}"
        )
    words = int(text) // 8
    log = np.zeros(_HEAD + 2 * words, np.uint32)
    log[2] = words
    return log


def show(log: Any, messages: Sequence[str]) -> None:
    """Write the lines of a log to the standard output, and how many did not fit."""
    lines = [*_lines(log, messages)]
    if lost := int(log[1]):
        lines.append(f"... lines that did not fit: {lost}; raise {LIMIT}, which is {int(log[2]) * 8}")
    if lines:
        print(*lines, sep="\n", flush=True)


def _lines(log: Any, messages: Sequence[str]) -> Iterator[str]:
    words = iter(log[_HEAD:].view(np.uint64)[: int(log[0])].tolist())
    while number := next(words, 0):
        yield _VALUE.sub(lambda form: _shown(form[0], words), messages[number - 1])


def _shown(form: str, words: Iterator[int]) -> str:
    """The next value, as printf shows it."""
    if form == "%%":
        return "%"
    word = next(words)
    if form == "%.9g":
        (x,) = struct.unpack("<f", struct.pack("<I", word))
        return f"{x:.9g}" if x == x or not word >> 31 else "-nan"
    return str(bool(word)) if form == "%s" else str(word if form == "%llu" else word - (word >> 63 << 64))
