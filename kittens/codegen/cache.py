"""A cache on disk of what was compiled, safe with many processes: entries are written whole, then renamed into place."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


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
    try:
        return path.read_bytes()
    except OSError:
        data = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        pass  # a cache that cannot be written only costs time
    return data


@functools.cache
def digest(*folders: Path) -> str:
    """A digest of the code in some folders: what was made by other code is not taken for what this would make."""
    found = hashlib.sha256()
    for path in sorted(p for folder in folders for p in folder.rglob("*") if p.suffix in (".py", ".h")):
        found.update(str(path).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
