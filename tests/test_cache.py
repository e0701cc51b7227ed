"""The cache of what was compiled: shared by processes that compile the same at once, and by none that should not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kittens.backends.cuda.compile import available
from kittens.codegen import cache

# Waits until all are there, then asks for the same entry; says whether it made it and what it got.
ASKS = """
import os, sys, time
from pathlib import Path
from kittens.codegen.cache import cached

me, all = int(sys.argv[1]), int(sys.argv[2])
ready = Path(os.environ["READY"])
(ready / str(me)).touch()
while len(list(ready.iterdir())) < all:
    time.sleep(0.001)
for round in range(20):
    def make():
        time.sleep(0.002)
        return bytes([round]) * 300_000
    data = cached(("entry", str(round)), make)
    assert data == bytes([round]) * 300_000, len(data)
print("done")
"""

COMPILES = """
import os, sys, time
from pathlib import Path
import kittens as kt
from kittens.kernels import softmax

me, all = int(sys.argv[1]), int(sys.argv[2])
x = kt.spec("float32", (64, 256))
softmax.plan("cuda:sm_90a", x, x)
ready = Path(os.environ["READY"])
(ready / str(me)).touch()
while len(list(ready.iterdir())) < all:
    time.sleep(0.001)
made = softmax.compile("cuda:sm_90a", x, x)
print(len(made.code), hash(made.code))
"""


def together(script: str, count: int, tmp_path: Path) -> list[str]:
    """What so many processes say that run a script at the same time, on one cache."""
    ready = tmp_path / "ready"
    ready.mkdir()
    environment = {
        **os.environ, "KITTENS_CACHE": str(tmp_path / "cache"), "READY": str(ready), "PYTHONHASHSEED": "0",
    }  # fmt: skip
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(i), str(count)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i in range(count)
    ]  # fmt: skip
    said = []
    for process in running:
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        said.append(out.strip())
    return said


def entries(tmp_path: Path) -> list[str]:
    return [p.name for p in (tmp_path / "cache").rglob("*") if p.is_file()]


def test_processes_that_ask_for_one_entry_at_once(tmp_path: Path) -> None:
    assert together(ASKS, 4, tmp_path) == ["done"] * 4
    assert len(entries(tmp_path)) == 20 and all(len(name) == 64 for name in entries(tmp_path))


@pytest.mark.skipif(bool(available()), reason=available() or "the compiler is there")
def test_processes_that_compile_one_kernel_at_once(tmp_path: Path) -> None:
    said = together(COMPILES, 3, tmp_path)
    assert len(set(said)) == 1 and int(said[0].split()[0]) > 1000
    assert all(len(name) == 64 for name in entries(tmp_path))


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("KITTENS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_entries_differ_by_everything_they_depend_on(empty: Path) -> None:
    made: list[tuple[str, ...]] = []
    for parts in (("a", "b"), ("ab",), ("a", "c"), ("a", "b", "")):
        for _ in range(2):
            assert cache.cached(parts, lambda parts=parts: made.append(parts) or repr(parts).encode()) == (  # type: ignore[misc, func-returns-value]
                repr(parts).encode()
            )
    assert len(made) == 4


@pytest.mark.parametrize(
    "damage", [b"", b"short", lambda whole: whole[:-1], lambda whole: whole[:40] + b"x" + whole[41:]]
)
def test_a_damaged_entry_is_made_anew(empty: Path, damage: object) -> None:
    cache.cached(("k",), lambda: b"right" * 100)
    (path,) = (p for p in (empty / "cache").rglob("*") if p.is_file())
    path.write_bytes(damage(path.read_bytes()) if callable(damage) else damage)  # type: ignore[arg-type]
    assert cache.cached(("k",), lambda: b"again") == b"again"
    assert cache.cached(("k",), lambda: b"third") == b"again"


def test_a_cache_that_cannot_be_written_costs_time_alone(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    assert cache.cached(("k",), lambda: b"data") == b"data"
    assert entries(empty) == []
    monkeypatch.undo()
    monkeypatch.setenv("KITTENS_CACHE", str(empty / "file" / "cache"))
    (empty / "file").write_text("in the way")
    assert cache.cached(("k",), lambda: b"data") == b"data"


def test_a_maker_that_fails_leaves_nothing(empty: Path) -> None:
    def fails() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.cached(("k",), fails)
    assert entries(empty) == []
    assert cache.cached(("k",), lambda: b"data") == b"data"
