"""What was compiled, kept on disk: where, what is found again, and how much of it stays.

Safe with many processes: entries are written whole, then renamed into place. What was used last stays: an entry's time of
change says when that was. Once more is there than the limit, whoever writes removes what was not used for longest.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kittens.errors import ArgumentError, UnavailableError
from kittens.whole import write_whole

#: The environment's names for the folder, and for how many gigabytes may lie there.
FOLDER, LIMIT = "KITTENS_CACHE_DIR", "KITTENS_CACHE_GB"
_DEFAULT_GB = 4.0

_DIGEST = hashlib.sha256().digest_size  # bytes before an entry's own, by which damage is told
#: Seconds after which another use is noted, and after its last use in which an entry is not removed: time to load it.
_NOTED, _KEPT = 60.0, 300.0
#: Seconds after which a process that writes looks at the whole cache again, unless it has written a good part of the limit.
_LOOKED = 600.0
_PART = 1 / 16
#: What is removed at once: down to this part of the limit.
_LEFT = 0.75
#: Names of files that are ours, whole or half written, in folders that are. Nothing else is removed, whatever folder was named.
_OURS = re.compile(r"([0-9a-f]{64}|(head-|runtime-)?[0-9a-f]{32}\.(so|h|pch|o|a)(\.sum)?)([0-9a-f]{8})?")
_FOLDERS = re.compile(r"[0-9a-f]{2}|sim")
_ZIG = re.compile(r"zig(-\d+)?")


def folder() -> Path:
    """Where entries are kept: $KITTENS_CACHE_DIR, or `kittens` in the user's cache folder. Raises UnavailableError where no
    such folder is known.
    """
    if named := os.environ.get(FOLDER):
        return Path(named)
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "kittens"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kittens"
    except RuntimeError:
        raise UnavailableError(
            "there is no folder for what was compiled: this user has no home", hint=f"name one in {FOLDER}"
        ) from None


def limit() -> int:
    """How many bytes may lie there: $KITTENS_CACHE_GB, or 4 gigabytes. Raises ArgumentError for what is no such number."""
    text = os.environ.get(LIMIT) or str(_DEFAULT_GB)
    try:
        most = int(float(text) * 1e9)
    except (ValueError, OverflowError):
        most = -1
    if most < 0:
        raise ArgumentError(f"{LIMIT} is {text!r}", hint="a number of gigabytes, such as 4")
    return most


def cached(parts: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
    """The bytes stored under `parts` (everything the result depends on), or those that `make` gives, stored.

    Raises ArgumentError for a limit that is none, whether anything is stored or not.
    """
    limit()
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    path = folder() / key[:2] / key
    found = _read(path)
    if found is not None:
        return found
    data = make()
    # A cache that cannot be written only costs time.
    with contextlib.suppress(OSError):
        write(path, hashlib.sha256(data).digest() + data)
    return data


def _read(path: Path) -> bytes | None:
    """What an entry holds; None if there is none, or it is damaged, as after a loss of power."""
    if not used(path):
        return None
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    data = whole[_DIGEST:]
    return data if hashlib.sha256(data).digest() == whole[:_DIGEST] else None


def used(path: Path) -> bool:
    """Whether an entry is there. That it is used is noted, so that it stays."""
    try:
        at = os.stat(path).st_mtime
    except OSError:
        return False
    if abs(time.time() - at) > _NOTED:
        with contextlib.suppress(OSError):
            os.utime(path)
    return True


def write(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write an entry in one step, so that no other process sees half of it; then make room if there is too much."""
    limit()  # refused before anything is written
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, mode)
    if folder() in path.parents:
        _wrote(len(data))


def write_sealed(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write an entry that other programs read as it is, and beside it the digest by which `sound` tells damage."""
    write(path, data, mode)
    write(_seal(path), hashlib.sha256(data).digest())


def sound(path: Path) -> bool:
    """Whether an entry is there as `write_sealed` wrote it. That it is used is noted."""
    if not (used(path) and used(_seal(path))):
        return False
    try:
        return hashlib.sha256(path.read_bytes()).digest() == _seal(path).read_bytes()
    except OSError:
        return False


def _seal(path: Path) -> Path:
    return path.with_name(f"{path.name}.sum")


_written = 0  # bytes by this process since it last looked at the whole cache


def _wrote(size: int) -> None:
    global _written
    first, _written = not _written, _written + size
    if _written > limit() * _PART or (first and not _looked_at()):
        _written = 1
        prune()


def _looked_at() -> bool:
    """Whether some process has looked at the whole cache not long ago."""
    try:
        return abs(time.time() - os.stat(folder() / "looked").st_mtime) < _LOOKED
    except OSError:
        return False


@dataclass(frozen=True)
class Entry:
    """A file of the cache: when it was used, and its bytes. Or (`shared`) all that zig keeps for itself."""

    path: Path
    used: float
    size: int
    shared: bool = False


def entries() -> Iterator[Entry]:
    """All that is kept. What another process removes meanwhile is left out."""
    for place in _scanned(folder()):
        if not place.is_dir() or not _FOLDERS.fullmatch(place.name):
            continue
        for file in _scanned(Path(place.path)):
            with contextlib.suppress(OSError):
                about = file.stat(follow_symlinks=False)
                if file.is_file(follow_symlinks=False) and _OURS.fullmatch(file.name):
                    yield Entry(Path(file.path), about.st_mtime, about.st_size)
                elif file.is_dir(follow_symlinks=False) and _ZIG.fullmatch(file.name):
                    yield Entry(Path(file.path), about.st_mtime, _whole(file.path), True)


def _scanned(place: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as found:
            return list(found)
    except OSError:
        return []


def _whole(place: str) -> int:
    """The bytes of all files in a folder."""
    total = 0
    for at, _, names in os.walk(place):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(at, name)).st_size
    return total


def prune() -> None:
    """Where more is kept than the limit, remove what was not used for longest. Not what was used in the last minutes, which
    another process may be about to load; zig's own files only together, and first if they are a good part of all.
    """
    most, now = limit(), time.time()
    with contextlib.suppress(OSError):
        (folder() / "looked").touch()
    found = list(entries())
    total = sum(entry.size for entry in found)
    if total <= most:
        return
    for entry in sorted(found, key=lambda e: (not (e.shared and e.size > most / 4), e.used)):
        if total <= most * _LEFT:
            return
        if now - entry.used < _KEPT:
            continue
        with contextlib.suppress(OSError):
            if entry.shared:
                gone = entry.path.with_name(f"zig-{os.getpid()}")
                os.replace(entry.path, gone)  # who starts now finds none of it
                shutil.rmtree(gone)
            else:
                entry.path.unlink()
        total -= entry.size


@functools.cache
def digest(*folders: Path) -> str:
    """A digest of the code in some folders, wherever they lie: what was made by other code is not taken for what this would
    make.
    """
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".h")):
            found.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
