"""A cache on disk of what was compiled, safe with many processes: entries are written whole, then renamed into place."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

_DIGEST = hashlib.sha256().digest_size  # bytes before an entry's own, by which damage is told


def folder() -> Path:
    """Where entries are kept: $KITTENS_CACHE, or `kittens` in the user's cache folder."""
    base = os.environ.get("KITTENS_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kittens"
    )
    return Path(base)


def cached(parts: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
    """The bytes stored under `parts` (everything the result depends on), or those that `make` gives, stored."""
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    path = folder() / key[:2] / key
    found = _read(path)
    if found is not None:
        return found
    data = make()
    # A cache that cannot be written only costs time.
    with contextlib.suppress(OSError):
        _write(path, data)
    return data


def _read(path: Path) -> bytes | None:
    """What an entry holds; None if there is none, or it is damaged, as after a loss of power."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    data = whole[_DIGEST:]
    return data if hashlib.sha256(data).digest() == whole[:_DIGEST] else None


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@functools.cache
def digest(*folders: Path) -> str:
    """A digest of the code in some folders: what was made by other code is not taken for what this would make."""
    found = hashlib.sha256()
    for path in sorted(p for folder in folders for p in folder.rglob("*") if p.suffix in (".py", ".h")):
        found.update(str(path).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
