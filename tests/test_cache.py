"""The cache of what was compiled: shared by processes that compile the same at once, and by none that should not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kittens as kt
from kittens import cache, tuned
from kittens.backends.cuda.compile import available

# Waits until all are there, then asks for the same entry; says whether it made it and what it got.
ASKS = """
import os, sys, time
from pathlib import Path
from kittens.cache import cached

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
        **os.environ, "KITTENS_CACHE_DIR": str(tmp_path / "cache"), "READY": str(ready), "PYTHONHASHSEED": "0",
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
    return [p.name for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.name != "looked"]


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
    monkeypatch.setenv("KITTENS_CACHE_DIR", str(tmp_path / "cache"))
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
    (path,) = (p for p in (empty / "cache").rglob("*") if p.is_file() and p.name != "looked")
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
    monkeypatch.setenv("KITTENS_CACHE_DIR", str(empty / "file" / "cache"))
    (empty / "file").write_text("in the way")
    assert cache.cached(("k",), lambda: b"data") == b"data"


def test_a_maker_that_fails_leaves_nothing(empty: Path) -> None:
    def fails() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.cached(("k",), fails)
    assert entries(empty) == []
    assert cache.cached(("k",), lambda: b"data") == b"data"


# How much is kept


def kept(folder: Path, number: int, age: float, size: int, name: str = "") -> Path:
    """An entry that was last used so many seconds ago."""
    path = folder / "cache" / ("sim" if name else "ab") / (name or f"{number:064x}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def names(*paths: Path) -> list[bool]:
    return [path.exists() for path in paths]


def test_what_was_not_used_for_longest_is_removed(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.LIMIT, "0.00001")
    old = kept(empty, 1, 9000, 4000)
    library = kept(empty, 2, 8000, 4000, f"{2:032x}.so")
    head = kept(empty, 3, 7000, 4000, f"head-{3:032x}.pch")
    new = kept(empty, 4, 6000, 3000)
    cache.prune()
    assert names(old, library, head, new) == [False, False, True, True]


def test_what_fits_stays(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.LIMIT, "0.00001")
    files = [kept(empty, i, 1000 * i, 2500) for i in range(1, 5)]
    cache.prune()
    assert all(names(*files))


def test_use_is_noted(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.LIMIT, "0.000001")
    for part in ("one", "two"):
        cache.cached((part,), lambda: b"d" * 500)
    for path in (empty / "cache").rglob("*"):
        if len(path.name) == 64:
            os.utime(path, (time.time() - 5000, time.time() - 5000))
    assert cache.cached(("one",), lambda: b"again") == b"d" * 500
    cache.prune()
    assert cache.cached(("one",), lambda: b"again") == b"d" * 500
    assert cache.cached(("two",), lambda: b"again") == b"again"


def test_what_a_process_may_be_loading_stays(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.LIMIT, "0")
    now, then = kept(empty, 1, 5, 4000), kept(empty, 2, 5000, 4000)
    cache.prune()
    assert names(now, then) == [True, False]


def test_files_of_others_are_not_touched(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that holds more than the cache may be named, such as a home."""
    monkeypatch.setenv(cache.LIMIT, "0")
    others = [
        empty / "cache" / name for name in ("notes.txt", "ab/diary", "sim/model.so", "mine/" + "a" * 64)
    ] + [empty / "cache" / "ab" / name for name in ("c" * 38, "c" * 62, "d" * 64 + "-a", "e" * 32)]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        os.utime(path, (1, 1))
    linked = empty / "cache" / "ab" / ("b" * 64)
    linked.symlink_to(others[0])
    cache.prune()
    assert all(names(*others, linked))


@pytest.mark.parametrize(("size", "stays"), [(1000, True), (6000, False)])
def test_what_zig_keeps_goes_as_a_whole(
    empty: Path, monkeypatch: pytest.MonkeyPatch, size: int, stays: bool
) -> None:
    """It is used by every build, so that it would never be the oldest: it goes first where it is a good part of all."""
    monkeypatch.setenv(cache.LIMIT, "0.00001")
    zig = empty / "cache" / "sim" / "zig"
    (zig / "o").mkdir(parents=True)
    (zig / "o" / "lib.a").write_bytes(b"x" * size)
    os.utime(zig, (time.time() - 400, time.time() - 400))
    old = kept(empty, 1, 9000, 10_000 - size + 500)
    cache.prune()
    assert names(zig, old) == [stays, not stays]
    assert [p.name for p in zig.parent.iterdir()] == ["zig"] * stays


def test_who_writes_makes_room(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.LIMIT, "0.00001")
    monkeypatch.setattr(cache, "_KEPT", -1.0)
    for i in range(100):
        cache.cached((str(i),), lambda: b"d" * 1000)
        assert sum(entry.size for entry in cache.entries()) <= 12_000
    assert sum(entry.size for entry in cache.entries()) >= 5_000


def test_who_finds_an_entry_looks_at_no_other(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.cached(("k",), lambda: b"data")
    monkeypatch.setattr(cache, "entries", lambda: pytest.fail("the whole cache was looked at"))
    assert cache.cached(("k",), lambda: b"") == b"data"


PRUNES = ASKS.replace("data = cached", "cache.prune(); data = cached").replace(
    "import os, sys, time", "import os, sys, time\nfrom kittens import cache\ncache._KEPT = -1.0"
)


def test_processes_that_remove_and_make_the_same_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.LIMIT, "0.0005")
    assert together(PRUNES, 4, tmp_path) == ["done"] * 4
    assert len(entries(tmp_path)) < 20


@pytest.mark.parametrize("text", ["four", "nan", "inf", "-1"])
def test_a_limit_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(cache.LIMIT, text)
    with pytest.raises(kt.ArgumentError, match=f"{cache.LIMIT} is '{text}'"):
        cache.limit()


def test_doctor_shows_it(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.LIMIT, "2.5")
    kept(empty, 1, 0, 123)
    done = subprocess.run(
        [sys.executable, "-c", "from kittens.cli import main; main()", "doctor", "--json"],
        capture_output=True, text=True,
    )  # fmt: skip
    about = json.loads(done.stdout)["cache"]
    assert about == {"folder": str(empty / "cache"), "bytes": 123, "limit": 2_500_000_000}


def test_a_limit_that_is_none_is_told_before_anything_is_made_or_written(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there is an entry or not."""
    monkeypatch.setenv(cache.LIMIT, "4 GB")
    for _ in range(2):
        with pytest.raises(kt.ArgumentError, match="'4 GB'"):
            cache.cached(("k",), lambda: pytest.fail("it was made"))
    with pytest.raises(kt.ArgumentError, match="'4 GB'"):
        cache.write_sealed(empty / "cache" / "sim" / "x.so", b"data")
    assert entries(empty) == []


@pytest.mark.parametrize(
    "damage", [b"", b"short", lambda whole: whole[:-1], lambda whole: whole[:40] + b"x" + whole[41:], None]
)
@pytest.mark.parametrize("name", ["lib.so", "lib.so.sum"])
def test_damage_of_a_sealed_entry_is_told(empty: Path, name: str, damage: object) -> None:
    path = empty / "cache" / "sim" / "lib.so"
    assert not cache.sound(path)
    cache.write_sealed(path, b"right" * 100)
    assert cache.sound(path)
    hurt = path.with_name(name)
    if damage is None:
        hurt.unlink()
    else:
        hurt.write_bytes(damage(hurt.read_bytes() * 2) if callable(damage) else damage)  # type: ignore[arg-type]
    assert not cache.sound(path)
    cache.write_sealed(path, b"right" * 100)
    assert cache.sound(path)


def test_a_user_without_a_home_is_told_how_to_name_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv(cache.FOLDER, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(kt.UnavailableError, match=f"no home(.|\n)*{cache.FOLDER}"):
        cache.folder()
    monkeypatch.setattr(os.path, "expanduser", lambda text: text)
    monkeypatch.delenv("KITTENS_TUNED", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert tuned.path() is None
