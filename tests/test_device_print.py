"""What kernels print: in the simulator of every vendor, in code for devices that can, and nowhere silently nothing."""

from __future__ import annotations

import numpy as np
import pytest

import kittens as kt
from kittens.backends.cuda.compile import available as nvrtc_missing
from kittens.backends.hip.compile import available

SIMULATED = ("cuda:sm_80@sim", "hip:gfx950@sim", "hip:gfx1201@sim", "metal@sim")


@kt.kernel(grid=(2, 3))
def talk(x, y):
    i, j = kt.program_id(order="grouped")
    tile = kt.load(x, (i, j), (2, 4))
    kt.device_print('100% "sure" {} of {} and {}', tile.max(axis=1).sum(axis=0), i * 10 + j, i == j)
    twice = tile * 2.0
    kt.device_print("{}", twice)
    kt.store(y, (i, j), twice)


@kt.kernel
def types(x):
    tile = kt.load(x, 0, 12)
    kt.device_print("{}", tile.to(kt.bfloat16))
    kt.device_print("{} {}", tile > 2.0, (tile.to(kt.int32) - 3).to(kt.int8))


@kt.kernel(grid=3)
def anonymous(x):
    kt.device_print("a program with {} elements", x.shape[0])


@pytest.mark.sim
@pytest.mark.skipif(bool(available()), reason=available() or "clang is there")
@pytest.mark.parametrize("target", SIMULATED)
class TestSimulated:
    def test_scalars_stand_in_the_text_and_tiles_follow_it(self, target, capfd) -> None:
        x = np.arange(48, dtype=np.float32).reshape(4, 12)
        y = np.zeros_like(x)
        talk(x, y, on=target)
        lines = capfd.readouterr().out.splitlines()
        assert (y == 2 * x).all()
        assert len(lines) == 6 * 4 and len(set(lines)) == 6 * 4, (
            "each program prints once, not once for each order"
        )
        for i in range(2):
            for j in range(3):
                tile = x[2 * i : 2 * i + 2, 4 * j : 4 * j + 4]
                total = tile.max(axis=1).sum(axis=0)
                said = f'({i}, {j}): 100% "sure" {total:.9g} of {10 * i + j} and {i == j}'
                assert said in lines, lines
                assert f"({i}, {j}): <float32[2,4]>" in lines
                for r in range(2):
                    row = " ".join(f"{v:.9g}" for v in 2 * tile[r])
                    assert f"({i}, {j}): twice[{r}, 0..]: {row}" in lines

    def test_elements_of_every_kind(self, target, capfd) -> None:
        types(np.arange(12, dtype=np.float32) / 2, on=target)
        lines = capfd.readouterr().out.splitlines()
        assert lines == [
            "(0,): <bfloat16[12]>",
            "(0,): tile[0..]: 0 0.5 1 1.5 2 2.5",
            "(0,): tile[6..]: 3 3.5 4 4.5 5 5.5",
            "(0,): <bool[12]> <int8[12]>",
            "(0,): tile[0..]: False False False False False True",
            "(0,): tile[6..]: True True True True True True",
            "(0,): tile[0..]: -3 -3 -2 -2 -1 -1",
            "(0,): tile[6..]: 0 0 1 1 2 2",
        ]

    def test_programs_have_numbers_where_the_kernel_asks_for_none(self, target, capfd) -> None:
        anonymous(np.zeros(5, np.float32), on=target)
        lines = sorted(capfd.readouterr().out.splitlines())
        assert lines == [f"({i},): a program with 5 elements" for i in range(3)]


@pytest.mark.skipif(bool(nvrtc_missing()), reason=nvrtc_missing() or "NVRTC is there")
def test_kernels_that_print_compile_for_nvidia() -> None:
    x = kt.spec("float32", (4, 12))
    assert b"vprintf" in talk.compile("cuda:sm_80", x, x).code


@pytest.mark.parametrize("target", ["hip:gfx950", "metal"])
def test_a_device_that_cannot_print_refuses_with_the_line(target) -> None:
    if available():
        pytest.skip(available())
    x = kt.spec("float32", (4, 12))
    with pytest.raises(kt.UnavailableError, match=f"do not print on {target}") as caught:
        talk.compile(target, x, x)
    assert "device_print('100%" in str(caught.value) and f"{target.split(':')[0]}" in str(caught.value.hint)
