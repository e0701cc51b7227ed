"""The simulator's host compiler: found, told what to do, its results kept."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from kittens.backends.cuda.sim import VENDOR
from kittens.errors import UnavailableError
from kittens.sim import build, toolchain

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


def test_a_named_compiler_gives_the_same(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("KITTENS_CLANG", f"{shlex.quote(sys.executable)} -m ziglang cc")
    run_convert(cache)
    assert toolchain.compiler().zig == ""


def test_a_library_is_built_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    run_convert(cache)
    monkeypatch.setattr(toolchain, "_run", lambda *_: pytest.fail("the compiler was run again"))
    run_convert(cache)


def test_a_compiler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KITTENS_CLANG", str(tmp_path / "no-clang"))
    with pytest.raises(UnavailableError, match="no-clang") as caught:
        run_convert(tmp_path)
    assert "KITTENS_CLANG" in str(caught.value)
