"""What kernels print: the same lines in the simulator of every vendor, by printf or by way of a log."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest

import kittens as kt
from kittens.backends.cuda.compile import available as nvrtc_missing
from kittens.backends.hip.compile import available
from kittens.codegen.printing import LIMIT
from kittens.codegen.printing import _lines as lines_of
from kittens.dtypes import BY_NAME

#: What kernels load: all but float64.
ALL = [d for d in BY_NAME.values() if d.name != "float64"]
SIGNED_NAN = [-np.nan] if sys.platform == "linux" else []  # other C libraries show no sign
SIMULATED = ("cuda:sm_80@sim", "hip:gfx950@sim", "hip:gfx1201@sim", "metal@sim")


def said(x) -> str:
    """A value as printf shows it by the format of its type."""
    if isinstance(x, (np.bool_, np.integer)):
        return str(x)
    return "-nan" if np.isnan(x) and np.signbit(x) else f"{float(x):.9g}"


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


@kt.kernel
def branches(printed):  # named as the log is
    for k in kt.range(0, printed.shape[0]):
        x = kt.load(printed, k, 1).reshape(())
        kt.device_print("{}: {}", k, x)
        for _ in kt.when(x > 2):
            kt.device_print("{} is more than {}%, %lld\n", x, 2)
    kt.device_print("the end of {}", printed.shape[0])


@kt.kernel
def scalar(x):
    kt.device_print("it is {}", kt.load(x, 0, 1).reshape(()))


@kt.kernel(grid=4)
def stops(x):
    i = kt.program_id()
    kt.device_print("program {}", i)
    kt.device_assert(i < 3, "no more")


@kt.kernel
def mixed(x):
    kt.device_print("1")
    kt.device_print("{} {} {}", x.shape[0] - 3, 3, 4)
    kt.device_print("{} {}", x.shape[0], 2)
    kt.device_print("2")


@kt.kernel
def quiet(x):
    kt.store(x, 0, kt.load(x, 0, 12) * 2.0)


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

    @pytest.mark.parametrize("dtype", ALL, ids=str)
    def test_scalars_of_every_type(self, dtype, target, capfd) -> None:
        if dtype.is_float or dtype.kind == "s":
            some = [1.5, 1 / 3, 240.0, 2.0**-7, 0.0] if dtype.kind == "f" else [0.25, 2.0**100]
            some += [] if "fn" in dtype.name else [np.inf, -np.inf, np.nan, -0.0, *SIGNED_NAN, 1e-30, 3e38]
        elif dtype.is_integer:
            limits = np.iinfo(dtype.numpy)
            some = [0, 1, 77, limits.min, limits.max]
        else:
            some = [True, False]
        with np.errstate(over="ignore"):
            values = [np.array(x).astype(dtype.numpy)[()] for x in some]
        for x in values:
            scalar(np.array([x]), on=target)
        shown = [said(x) for x in values]
        assert capfd.readouterr().out.splitlines() == [f"(0,): it is {s}" for s in shown]

    def test_loops_and_branches_print_each_time(self, target, capfd) -> None:
        branches(np.array([1, 3, -2, 7], np.int32), on=target)
        assert capfd.readouterr().out.splitlines() == [
            "(0,): 0: 1",
            "(0,): 1: 3",
            "(0,): 3 is more than 2%, %lld ",
            "(0,): 2: -2",
            "(0,): 3: 7",
            "(0,): 7 is more than 2%, %lld ",
            "(0,): the end of 4",
        ]

    def test_launches_do_not_mix(self, target, capfd) -> None:
        for n in (5, 3, 5):
            anonymous(np.zeros(n, np.float32), on=target)
            lines = sorted(capfd.readouterr().out.splitlines())
            assert lines == [f"({i},): a program with {n} elements" for i in range(3)]

    def test_what_was_printed_before_a_fault_is_told(self, target, capfd, monkeypatch) -> None:
        monkeypatch.setenv("KITTENS_SIM_WORKERS", "1")
        with pytest.raises(kt.CheckError, match="no more"):
            stops(np.zeros(1, np.float32), on=target)
        assert capfd.readouterr().out.splitlines() == [f"({i},): program {i}" for i in range(4)]

    def test_saved_kernels_print(self, target, capfd, tmp_path) -> None:
        device = target.removesuffix("@sim")
        if device.startswith("cuda") and nvrtc_missing():
            pytest.skip(nvrtc_missing())
        x = np.arange(12, dtype=np.float32) / 2
        types(x, on=target)
        expected = capfd.readouterr().out
        types.compile(device, x).save(tmp_path / "types.kittens")
        kt.load(tmp_path / "types.kittens")(x, grid=1, on=target)
        assert capfd.readouterr().out == expected != ""


@pytest.mark.skipif(bool(nvrtc_missing()), reason=nvrtc_missing() or "NVRTC is there")
def test_kernels_that_print_compile_for_nvidia() -> None:
    x = kt.spec("float32", (4, 12))
    assert b"vprintf" in talk.compile("cuda:sm_80", x, x).code


@pytest.mark.skipif(bool(available()), reason=available() or "clang is there")
@pytest.mark.parametrize("target", ["hip:gfx942", "hip:gfx950", "hip:gfx1100", "hip:gfx1201", "metal"])
def test_kernels_that_print_compile_where_there_is_no_printf(target) -> None:
    x, row = kt.spec("float32", (4, 12)), kt.spec("float32", (12,))
    for kernel, *args in ((talk, x, x), (types, row), (branches, kt.spec("int32", (5,)))):
        made = kernel.compile(target, *args)
        assert "KT_RECORD(printed, 1, " in made.source and "KT_PRINT(" not in made.source
        assert made.parameters[-1].kind == "log" and made.messages
        assert not made.resources.get("spilled") and not made.resources.get("scratch_bytes")
    silent = quiet.compile(target, row)
    assert not silent.messages and all(p.kind != "log" for p in silent.parameters)


@pytest.mark.sim
@pytest.mark.skipif(bool(available()), reason=available() or "clang is there")
@pytest.mark.parametrize("target", [t for t in SIMULATED if not t.startswith("cuda")])
class TestLogs:
    """What printf has no part in: records that do not fit, faults, launches one after another."""

    def test_what_does_not_fit_is_counted(self, target, capfd, monkeypatch) -> None:
        x = np.zeros(5, np.float32)
        monkeypatch.setenv(LIMIT, "55")  # two records of three words are 48 bytes
        anonymous(x, on=target)
        *lines, last = capfd.readouterr().out.splitlines()
        assert len(set(lines)) == 2 and all(line.endswith("a program with 5 elements") for line in lines)
        assert last == f"... lines that did not fit: 1; raise {LIMIT}, which is 48"
        for room, fit in (
            (56, ["(0,): 1", "(0,): 2 3 4"]),
            (48, ["(0,): 1"]),
        ):  # records of 16, 40, 32 and 16 bytes
            monkeypatch.setenv(LIMIT, str(room))
            mixed(x, on=target)
            lost = f"... lines that did not fit: {4 - len(fit)}; raise {LIMIT}, which is {room}"
            assert capfd.readouterr().out.splitlines() == [*fit, lost]
        monkeypatch.setenv(LIMIT, "0")
        anonymous(x, on=target)
        assert capfd.readouterr().out == f"... lines that did not fit: 3; raise {LIMIT}, which is 0\n"
        monkeypatch.setenv(LIMIT, "72")
        anonymous(x, on=target)
        assert len(capfd.readouterr().out.splitlines()) == 3, "all fit, to the last byte"

    def test_a_full_log_takes_no_more(self, target, monkeypatch) -> None:
        """Else the words taken would begin anew at 2^32, in the midst of what stands there."""
        logs = []
        monkeypatch.setattr("kittens.codegen.simulate.show", lambda log, messages: logs.append(log))
        monkeypatch.setenv("KITTENS_SIM_WORKERS", "1")
        monkeypatch.setenv(LIMIT, "48")
        anonymous(np.zeros(5, np.float32), on=target)
        assert logs[0][:4].tolist() == [6, 1, 6, 0]

    @pytest.mark.parametrize("given", ["-1", "1e6", str(1 << 40)])
    def test_a_limit_that_is_no_number_of_bytes_is_refused(self, target, given, monkeypatch) -> None:
        monkeypatch.setenv(LIMIT, given)
        with pytest.raises(kt.ArgumentError, match=LIMIT):
            anonymous(np.zeros(5, np.float32), on=target)
        quiet(np.zeros(12, np.float32), on=target)


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries show no sign of a NaN")
def test_a_record_is_shown_as_printf_shows_it() -> None:
    """The forms that the emitter writes, against the C library, for bits of every kind."""
    c = ctypes.CDLL(None)
    out = ctypes.create_string_buffer(200)
    bits = [0, 1, 2**31, 2**31 - 1, 2**63, 2**64 - 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000]
    bits += np.random.default_rng(0).integers(0, 2**64, 200, np.uint64).tolist()
    for word in bits:
        single = ctypes.c_double(float(np.uint32(word & 0xFFFFFFFF).view(np.float32)))
        forms = (
            ("%lld", word, ctypes.c_int64(word)),
            ("%llu", word, ctypes.c_uint64(word)),
            ("%d", word & 0x7FFFFFFF, ctypes.c_int(word & 0x7FFFFFFF)),
            ("%.9g", word & 0xFFFFFFFF, single),
            ("%s", word & 1, ctypes.c_char_p(b"True" if word & 1 else b"False")),
        )
        for form, record, value in forms:
            c.snprintf(out, 200, f"100%% {form}%%lld".encode(), value)
            log = np.concatenate(
                [np.array([2, 0, 2, 0], np.uint32), np.array([1, record], np.uint64).view(np.uint32)]
            )
            assert list(lines_of(log, [f"100%% {form}%%lld"])) == [out.value.decode()], (form, word)
