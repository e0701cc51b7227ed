"""The simulator's host compiler: found, told what to do, its results kept."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from kittens.backends.cuda.sim import VENDOR
from kittens.errors import UnavailableError
from kittens.sim import BuildError, build, program, toolchain

# Conversions for which processors have no instruction, and clang calls a function.
CONVERT = """
extern "C" __global__ void convert(kt_in x, kt_out out) {
  double value = kt_sim::load_global<double>(x);
  kt_sim::store_global<kt_u16>(out, __builtin_bit_cast(kt_u16, (_Float16)value));
  unsigned __int128 wide = (unsigned __int128)kt_u64(value) << 70;
  kt_sim::store_global<kt_u64>(out + 8, kt_u64(wide % 1000003));
}
"""


def run_convert(cache: Path) -> None:
    x, out = np.array([777.7]), np.zeros(2, np.uint64)
    source = '#include "kt_cuda.h"\n' + CONVERT
    build(source, VENDOR, "convert", cache_dir=cache).run(1, 32, [x, out])
    assert out[:1].view(np.float16)[0] == np.float16(777.7)
    assert out[1] == (777 << 70) % 1000003


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_functions_that_the_compiler_calls_are_linked(cache: Path) -> None:
    run_convert(cache)


def test_a_library_holds_no_more_than_it_uses(cache: Path) -> None:
    run_convert(cache)  # or a conformance run fills disks
    assert max(library.stat().st_size for library in cache.glob("*.so")) < 100_000


def test_a_named_compiler_gives_the_same(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("KITTENS_CLANG", f"{shlex.quote(sys.executable)} -m ziglang cc")
    run_convert(cache)
    assert toolchain.compiler().zig == ""


def test_a_library_is_built_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    run_convert(cache)
    monkeypatch.setattr(toolchain, "_run", lambda *_: pytest.fail("the compiler was run again"))
    run_convert(cache)


def test_the_same_compiler_elsewhere_finds_what_was_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    """A fresh environment with the same ziglang compiled everything again."""
    run_convert(cache)
    zig = Path(toolchain.compiler().zig)
    (tmp_path / "zig").symlink_to(zig)  # its library is found from where it really lies
    other = toolchain._clang_of_zig(str(tmp_path / "zig"), toolchain._level())
    assert other != toolchain.compiler() and toolchain._identity(other) == toolchain._identity(
        toolchain.compiler()
    )
    monkeypatch.setattr(toolchain, "compiler", lambda: other)
    monkeypatch.setattr(toolchain, "_run", lambda *_: pytest.fail("the compiler was run again"))
    run_convert(cache)


def test_a_compiler_of_the_system_without_headers_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Debian's gcc comes without libc6-dev where recommendations are not followed: zig found no stdlib.h."""
    found = tmp_path / "cc"
    found.write_text(
        "#!/bin/sh\necho '#include <...> search starts here:' >&2; echo ' /nowhere' >&2; echo 'End of search list.' >&2\n"
    )
    found.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CC", raising=False)
    text = tmp_path / "text.cpp"
    text.write_text("#include <stdlib.h>\nvoid* memory() { return malloc(1); }\n")
    command = [*toolchain.compiler().hosted, "-c", str(text), "-o", str(tmp_path / "text.o")]
    toolchain._run(command, tmp_path / "cache")


def test_a_compiler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KITTENS_CLANG", str(tmp_path / "no-clang"))
    with pytest.raises(UnavailableError, match="no-clang") as caught:
        run_convert(tmp_path)
    assert "KITTENS_CLANG" in str(caught.value)


ANSWER = '#include "kt_answer.h"\nextern "C" __global__ void answer(kt_out out) { kt_sim::store_global(out, kt_answer()); }\n'


def answer(folder: Path, cache: Path) -> int:
    out = np.zeros(1, np.int32)
    vendor = dataclasses.replace(VENDOR, include=(*VENDOR.include, folder))
    build(ANSWER, vendor, "answer", cache_dir=cache).run(1, 32, [out])
    return int(out[0])


def write_answer(folder: Path, value: int) -> None:
    folder.mkdir(exist_ok=True)
    text = f'#pragma once\n#include "kt_cuda.h"\nstatic int kt_answer() {{ return {value}; }}\n'
    (folder / "kt_answer.h").write_text(text)


def test_headers_are_read_again_when_they_change(tmp_path: Path, cache: Path) -> None:
    # of one size, and in one second: only what they hold tells them apart
    for value in (1, 2, 3):
        write_answer(tmp_path / "headers", value)
        assert answer(tmp_path / "headers", cache) == value


def test_headers_of_two_checkouts_are_kept_apart(tmp_path: Path, cache: Path) -> None:
    for folder in ("one", "two"):
        write_answer(tmp_path / folder, 4)
        assert answer(tmp_path / folder, cache) == 4
    shutil.rmtree(tmp_path / "one")
    for library in cache.glob("*.so"):
        library.unlink()
    assert answer(tmp_path / "two", cache) == 4


def test_a_definition_before_the_headers_is_seen_by_them() -> None:
    source = '#define KT_ONE_PROGRAM\n#include "kt_cuda.h"\n' + CONVERT
    unit = program._unit(source, VENDOR, "convert", None)
    assert "KT_ONE_PROGRAM" not in unit.head
    assert unit.text.index("KT_ONE_PROGRAM") < unit.text.index("kt_cuda.h")


def test_lines_are_counted_past_the_headers(cache: Path) -> None:
    source = '// one\n#include "kt_cuda.h"\n\nextern "C" __global__ void wrong() { missing(); }\n'
    with pytest.raises(BuildError, match=r"wrong\.cu:4:"):
        build(source, VENDOR, "wrong", cache_dir=cache)


@pytest.mark.parametrize("ending", [".so", ".pch", ".a", ".o", ".h"])
def test_what_was_built_and_is_damaged_is_built_again(tmp_path: Path, ending: str) -> None:
    """A library cut short would end the process; other files, every build of this head."""
    run_convert(tmp_path)
    found = [path for path in tmp_path.iterdir() if path.suffix == ending]
    if not found:
        assert not toolchain.compiler().heads, "without heads there are fewer files"
    for path in found:
        whole = path.read_bytes()
        path.unlink()  # this process has the library open
        path.write_bytes(whole[: len(whole) // 2])
    if ending != ".so":
        for path in tmp_path.glob("*.so"):
            path.unlink()
    run_convert(tmp_path)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnavailableError, match=r"file/sim, where it cannot write(.|\n)*KITTENS_CACHE_DIR"):
        run_convert(tmp_path / "file" / "sim")
