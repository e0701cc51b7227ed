"""The host side of NVIDIA launches, against a stand-in for CuPy and the driver that writes down what it is told."""

from __future__ import annotations

import threading
import types
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from fake_cuda import Fake, Tensor, aligned, install, ndarray

import kittens as kt
from kittens.arguments import OnDevice
from kittens.artifact import Artifact, Parameter, TileMap
from kittens.backends.cuda import counters
from kittens.backends.cuda.launch import device_arch, run_artifact
from kittens.backends.cuda.maps import unmappable
from kittens.kernel import Kernel
from kittens.targets import Target


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    yield from install(monkeypatch)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    yield from install(monkeypatch, count=2)


def array(*shape: int, dtype: object = np.float32, device: int = 0) -> ndarray:
    return ndarray(aligned(shape, dtype), device)


def kernel(**globals: object) -> Kernel:
    """A kernel of its own, with the globals that it reads."""

    @kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
    def scaled(x, y, by=None, *, B=64, plus=0.0):
        i = kt.program_id()
        tile = kt.load(x, i, B)
        kt.store(y, i, (tile if by is None else tile * by.to(kt.float32)) + float(plus))

    return scaled


def address(x: ndarray) -> int:
    return x.data.ptr


# ---- what is launched


def test_a_launch_and_its_repetitions(cuda: Fake) -> None:
    scaled = kernel()
    arrays = [array(1000) for _ in range(4)]
    for x, y in [(0, 1), (1, 0), (2, 3), (0, 3)]:
        run = scaled(arrays[x], arrays[y])
        seen = cuda.started[-1]
        assert (run.how, run.target, run.grid) == ("executed", "cuda", (16,))
        assert (seen.blocks, seen.device, seen.stream) == (16, 0, 0)
        assert seen.parameters["x"] == address(arrays[x]) and seen.parameters["y"] == address(arrays[y])
        assert seen.parameters["x_n0"] == 1000 and seen.parameters["grid_0"] == 16
    assert len(cuda.started) == 4 and len(cuda.launched) == 1


def traced(scaled: Kernel) -> int:
    return sum(map(len, scaled._traces.values()))


def test_what_tells_calls_from_others(cuda: Fake) -> None:
    """Calls that differ in shape, strides, type, constants, alignment or scalars' types are never repeated as each other."""
    scaled = kernel()
    found_out = []
    for _ in range(3):
        for n in (64, 65, 128):
            scaled(array(n), array(n))
            assert cuda.started[-1].parameters["y_n0"] == n
        wide = array(64, 2)
        scaled(wide[:, 0], array(64))
        assert cuda.started[-1].parameters["x_s0"] == 2
        scaled(array(64, dtype=ml_dtypes.bfloat16), array(64))
        scaled(array(64), array(64))
        aligned_one = cuda.started[-1].function
        scaled(array(64), array(64), B=32)
        assert cuda.started[-1].blocks == 2
        scaled(array(65)[1:], array(64))
        assert cuda.started[-1].function != aligned_one
        scaled(array(64), array(64), 2.5)
        assert cuda.started[-1].parameters["by"] == 2.5
        scaled(array(64), array(64), 7)
        assert cuda.started[-1].parameters["by"] == 7
        scaled(array(64), array(64), np.float32(0.5))
        assert cuda.started[-1].parameters["by"] == 0.5
        scaled(array(64), array(64), by=-3, B=32)
        assert cuda.started[-1].parameters["by"] == -3 and cuda.started[-1].blocks == 2
        found_out.append(len(cuda.launched))
    assert found_out[0] == found_out[-1]  # what was called again was repeated


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (1, True), (1.0, 1), (2, np.int64(2))])
def test_constants_that_compare_equal_are_others(cuda: Fake, one: object, other: object) -> None:
    scaled = kernel()
    x, y = array(64), array(64)
    for plus in (one, other, one, other):
        run = scaled(x, y, plus=plus)
        assert str(run.constants["plus"]) == str(plus) and type(run.constants["plus"]) is type(plus)


def test_scalars_change_without_a_new_launch_being_prepared(cuda: Fake) -> None:
    scaled = kernel()
    x, y = array(64), array(64)
    for by in (1.0, 2.0, 1e300, -0.0):
        scaled(x, y, by)
        assert cuda.started[-1].parameters["by"] == (by if by < 1e38 else float("inf"))
    (pattern,) = scaled.calls.patterns.values()
    assert len(pattern.calls) == 1
    for by in (1, -5, 2**62):
        scaled(x, y, by)
        assert cuda.started[-1].parameters["by"] == by
    with pytest.raises(kt.ArgumentError, match="int64"):
        scaled(x, y, 2**63)


def test_a_grid_that_depends_on_a_scalar(cuda: Fake) -> None:
    @kt.kernel(grid=lambda n: n)
    def some(x, y, n):
        i = kt.program_id()
        kt.store(y, i, kt.load(x, i, 16) * 2)

    x, y = array(64), array(64)
    for n in (1, 3, 1, 0, 4):
        before = len(cuda.started)
        assert some(x, y, n).grid == (n,)
        assert [s.blocks for s in cuda.started[before:]] == ([n] if n else [])


# ---- what is refused


def test_outputs_are_checked_at_every_call(cuda: Fake) -> None:
    scaled = kernel()
    base = array(256)
    scaled(base[:64], base[64:128])
    scaled(base[128:192], base[64:128])
    assert len(cuda.started) == 2
    for low in (1, 16, 63):
        with pytest.raises(kt.ArgumentError, match="overlaps"):
            scaled(base[low : low + 64], base[64:128])
        with pytest.raises(kt.ArgumentError, match="overlaps"):
            scaled(base[64:128], base[low : low + 64])
    with pytest.raises(kt.ArgumentError, match="overlaps"):
        scaled(base[64:128], base[64:128])
    assert len(cuda.started) == 2
    scaled(base[0:64], base[64:128])
    assert len(cuda.started) == 3
    backward = base[64:128][::-1]
    scaled(backward, base[:64])
    with pytest.raises(kt.ArgumentError, match="overlaps"):
        scaled(backward, base[32:96])
    repeated = ndarray(np.broadcast_to(aligned((1,), np.float32), (64,)))
    for _ in range(2):
        with pytest.raises(kt.ArgumentError, match="share memory"):
            scaled(base[:64], repeated)


def test_calls_that_are_wrong_say_so_after_right_ones(cuda: Fake) -> None:
    scaled = kernel()
    x, y = array(64), array(64)
    scaled(x, y)
    scaled(x, y, B=32)
    with pytest.raises(kt.ArgumentError, match="takes 3 arguments"):
        scaled(x, y, None, x)
    with pytest.raises(kt.ArgumentError, match="misses"):
        scaled(x)
    with pytest.raises(kt.ArgumentError, match="no constant"):
        scaled(x, y, C=1)
    with pytest.raises(kt.ArgumentError, match="bool"):
        scaled(x, y, True)
    with pytest.raises(kt.ArgumentError, match="twice"):
        scaled(x, y, x=x)
    with pytest.raises(kt.TargetError):
        scaled(x, y, on=["cuda"])


def test_a_launch_is_not_repeated_once_a_global_has_changed(cuda: Fake) -> None:
    space = {"kt": kt, "FACTOR": 2.0, "TABLE": [1.0]}
    text = "def body(x, y):\n    kt.store(y, 0, kt.load(x, 0, 64) * FACTOR + TABLE[0])\n"
    exec(compile(text, "<body>", "exec"), space)
    body = kt.kernel(space["body"])  # type: ignore[call-overload]
    x, y = array(64), array(64)

    def source() -> str:
        body(x, y)
        return cuda.artifacts[cuda.started[-1].function].source

    first = source()
    assert source() == first and len(cuda.launched) == 1
    space["FACTOR"] = 3.0
    assert source() != first
    space["TABLE"].append(5.0)  # type: ignore[attr-defined]
    traces = len(cuda.launched)
    source()
    assert len(cuda.launched) == traces + 1
    space["TABLE"] = [9.0]
    assert "9" in source()
    del space["FACTOR"]
    with pytest.raises(NameError):
        source()


# ---- where and when


def test_the_current_stream_is_asked_for_at_every_call(cuda: Fake) -> None:
    scaled = kernel()
    for stream in (0, 77, 0, 99):
        cuda.stream = stream
        scaled(array(64), array(64))
        assert cuda.started[-1].stream == stream


def test_several_devices(two: Fake) -> None:
    scaled = kernel()
    for device in (1, 0, 1, 1, 0):
        two.set_device(1 - device)
        run = scaled(array(64, device=device), array(64, device=device))
        assert two.started[-1].device == device and two.device == 1 - device
        assert run.target == ("cuda:1" if device else "cuda")
    assert len({s.function for s in two.started}) == 2
    with pytest.raises(kt.ArgumentError, match="different places"):
        scaled(array(64), array(64, device=1))
    with pytest.raises(kt.UnavailableError, match="no CUDA device 2"):
        scaled(array(64), array(64), on="cuda:2")


def test_errors_of_the_driver_name_the_kernel_and_the_launch(cuda: Fake) -> None:
    scaled = kernel()
    x, y = array(1000), array(1000)
    for _ in range(3):
        cuda.fail = [700]
        with pytest.raises(
            kt.CheckError, match=r"scaled on cuda:0, grid \(16,\) \(16 blocks of \d+ threads.*700"
        ):
            scaled(x, y)
        scaled(x, y)


def test_a_thread_without_a_context_gets_one(cuda: Fake) -> None:
    scaled = kernel()
    cuda.set_device(0)
    cuda.context_of_threads = True
    scaled(array(64), array(64))
    failures: list[BaseException] = []

    def other() -> None:
        try:
            scaled(array(64), array(64))
            cuda.fail = [201, 700]
            with pytest.raises(kt.CheckError, match="700"):
                scaled(array(64), array(64))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert not failures and len(cuda.started) == 2


def test_threads_do_not_mix_their_arguments(cuda: Fake) -> None:
    scaled = kernel()
    pairs = [(array(64), array(64)) for _ in range(8)]
    scaled(*pairs[0])
    cuda.started.clear()
    threads = [threading.Thread(target=lambda p=p: [scaled(*p) for _ in range(200)]) for p in pairs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wanted = sorted((address(x), address(y)) for x, y in pairs for _ in range(200))
    assert sorted((s.parameters["x"], s.parameters["y"]) for s in cuda.started) == wanted


def test_host_arrays_are_copied_there_and_back(cuda: Fake) -> None:
    scaled = kernel()
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    for _ in range(2):
        assert scaled(x, y, on="cuda").how == "executed"
        assert cuda.started[-1].parameters["x"] != x.ctypes.data
    with pytest.raises(kt.ArgumentError, match="overlaps"):
        scaled(x, x, on="cuda")


@pytest.mark.parametrize(
    ("capability", "arch"), [("80", "sm_80"), ("86", "sm_80"), ("89", "sm_89"), ("90", "sm_90a")]
)
def test_the_architecture_of_a_device(cuda: Fake, capability: str, arch: str) -> None:
    cuda.capability = capability
    assert device_arch(0) == arch


@pytest.mark.parametrize("capability", ["75", "100", "121"])
def test_devices_without_a_target(cuda: Fake, capability: str) -> None:
    cuda.capability = capability
    with pytest.raises(
        kt.UnavailableError, match=f"{capability[:-1]}.{capability[-1]}, for which there is no target"
    ):
        kernel()(array(64), array(64))


# ---- arrays of others


class Speaks:
    """An array that speaks of itself by __cuda_array_interface__."""

    def __init__(self, host: np.ndarray, read_only: bool = False, stream: int | None = None):
        self.host, self.read_only, self.stream = host, read_only, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": self.host.shape, "typestr": self.host.dtype.str, "data": (self.host.ctypes.data, self.read_only),
            "strides": None if self.host.flags.c_contiguous else self.host.strides, "version": 3, "stream": self.stream,
        }  # fmt: skip


def test_arrays_with_the_cuda_array_interface(cuda: Fake) -> None:
    scaled = kernel()
    x, y = aligned((64,), np.float32), aligned((128,), np.float32)
    for _ in range(2):
        scaled(Speaks(x), Speaks(y[::2]))
        seen = cuda.started[-1].parameters
        assert seen["x"] == x.ctypes.data and seen["y"] == y.ctypes.data and seen["y_s0"] == 2
        with pytest.raises(kt.ArgumentError, match="read-only"):
            scaled(Speaks(x), Speaks(y[::2], read_only=True))
        scaled(Speaks(x, read_only=True), array(64))
    (first, _) = scaled.calls.patterns.values()
    assert len(first.calls) == 1
    assert not cuda.waits
    scaled(Speaks(x, stream=5), Speaks(y[::2]))
    scaled(Speaks(x, stream=5), Speaks(y[::2]))
    assert cuda.waits == [(0, ("event", 5))] * len(cuda.waits) and len(cuda.waits) >= 2
    made = kt.ops.relu(Speaks(x.reshape(8, 8)))
    assert isinstance(made, ndarray) and made.shape == (8, 8)


def test_the_device_of_an_array_with_the_interface_is_looked_up(two: Fake) -> None:
    scaled = kernel()
    for _ in range(2):
        scaled(Speaks(aligned((64,), np.float32)), Speaks(aligned((64,), np.float32)))
        assert two.started[-1].device == 1  # the stand-in says so of every address


def test_arrays_with_dlpack(cuda: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    class Packed:
        def __init__(self, held: ndarray, kind: int = 2):
            self.held, self.kind = held, kind

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.kind, 0

    monkeypatch.setattr(sys.modules["cupy"], "from_dlpack", lambda x: x.held, raising=False)
    scaled = kernel()
    x, y = array(64), array(64)
    for _ in range(2):
        scaled(Packed(x), Packed(y))
        assert cuda.started[-1].parameters["x"] == address(x)
    with pytest.raises(kt.ArgumentError, match="no installed backend takes"):
        scaled(Packed(x, kind=1), Packed(y, kind=1))  # on the host


# ---- tensor maps, and blocks


def mapped(tensors: dict[str, TileMap], **fields: object) -> Artifact:
    parameters = [Parameter("pointer", "x", 0, "kt_in", "x"), Parameter("pointer", "y", 0, "kt_out", "y")]
    parameters += [Parameter("map", n, 0, "kt_map", f"{n}_map", tile) for n, tile in tensors.items()]
    parameters += [
        Parameter("grid", "", 0, "kt_i32", "grid_0"),
        Parameter("extent", "x", 0, "kt_i64", "x_n0"),
    ]
    return Artifact(
        "copy", "cuda:sm_90a", b"code", "", "copy", tuple(parameters), 128, written=("y",), **fields
    )  # type: ignore[arg-type]


def launch(cuda: Fake, made: Artifact, *arrays: ndarray, grid: tuple[int, ...] = (10,)) -> object:
    from kittens.arguments import adopt

    cuda.launched.append(made)
    return run_artifact(made, {n: adopt(a, n) for n, a in zip("xy", arrays, strict=False)}, grid, 0)


def test_tensor_maps_are_made_once_for_each_address(cuda: Fake) -> None:
    tile = TileMap("x", (1, 0), (64, 128), 128)
    made = mapped({"x": tile, "y": TileMap("y", (1, 0), (32, 8), 0)})
    x, other, y = (array(256, 192, dtype=ml_dtypes.bfloat16) for _ in range(3))
    again = launch(cuda, made, x, y)
    for given in (x, other, x, other):
        again.run(address(given), address(y))  # type: ignore[attr-defined]
        seen = cuda.started[-1].parameters
        assert f"at {address(given):#x}".encode() in seen["x_map"] and seen["x"] == address(given)
        assert f"at {address(y):#x}".encode() in seen["y_map"] and seen["x_n0"] == 256
    assert len(cuda.encoded) == 3
    first = cuda.encoded[0]
    assert first == {
        "kind": "BFLOAT16", "rank": 2, "address": address(x), "extents": [192, 256], "strides": [384],
        "box": [64, 128], "swizzle": "128B", "promotion": "L2_256B",
    }  # fmt: skip
    assert cuda.encoded[1]["swizzle"] == "NONE" and cuda.encoded[1]["box"] == [32, 8]


def test_tensor_maps_are_kept_in_bounds(cuda: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kittens.backends.cuda.maps._KEPT", 4)
    made = mapped({"x": TileMap("x", (1, 0), (32, 8), 0)})
    y, xs = array(64, 64), [array(64, 64) for _ in range(10)]
    again = launch(cuda, made, xs[0], y)
    for x in xs * 2:
        again.run(address(x), address(y))  # type: ignore[attr-defined]
        assert f"at {address(x):#x}".encode() in cuda.started[-1].parameters["x_map"]


def test_tensor_maps_of_odd_tensors(cuda: Fake) -> None:
    tile = {"x": TileMap("x", (2, 1, 0), (32, 8, 1), 0)}
    y = array(64)
    one = ndarray(aligned((3, 8, 64), np.int8)[:, :1, :33])  # the middle axis has one element, and any stride
    launch(cuda, mapped(tile), one, y)
    assert cuda.encoded[-1] == {
        "kind": "UINT8", "rank": 3, "address": address(one), "extents": [33, 1, 3], "strides": [16, 512],
        "box": [32, 8, 1], "swizzle": "NONE", "promotion": "L2_256B",
    }  # fmt: skip
    launch(cuda, mapped(tile), array(3, 0, 64), y)
    assert cuda.encoded[-1]["extents"] == [1, 1, 1] and cuda.encoded[-1]["address"] != 0
    vector = {"x": TileMap("x", (0,), (64,), 0)}
    launch(cuda, mapped(vector), array(64), y)
    assert cuda.encoded[-1]["rank"] == 1 and cuda.encoded[-1]["extents"] == [64]


def test_tensor_maps_of_slices(cuda: Fake) -> None:
    tile = {"x": TileMap("x", (2, 1, 0), (32, 8, 1), 0, sliced=True)}
    y, x = array(64), array(3, 100, 64)
    launch(cuda, mapped(tile), x, y)
    seen = cuda.encoded[-1]
    assert seen["extents"] == [64, 1 << 30, 3, 0x7FFF0000, 0x7FFF0000] and seen["address"] == address(x)
    row = 64 * x.dtype.itemsize
    assert seen["strides"] == [row, 100 * row, row, (1 << 34) - row] and seen["box"] == [32, 8, 1, 1, 1]
    one = ndarray(aligned((3, 1, 64), np.int8)[:, :, :33])  # the rows have any stride
    launch(cuda, mapped(tile), one, y)
    assert cuda.encoded[-1]["strides"] == [16, 64, 16, (1 << 34) - 16]
    launch(
        cuda, mapped(tile), array(0, 100, 64), y
    )  # rows of slices begin at 2^30 less their number: none is inside
    assert cuda.encoded[-1]["extents"] == [1] * 5 and cuda.encoded[-1]["address"] != 0


def described(strides: tuple[int, ...], shape: tuple[int, ...] = (8, 64), alignment: int = 16) -> object:
    return kt.arguments.TensorArg(
        kt.bfloat16, shape, strides, Target("cuda"), OnDevice(0, None), True, alignment
    )


@pytest.mark.parametrize(
    ("reason", "tensor"),
    [
        ("", described((64, 1))),
        ("", described((0, 1))),
        ("", described((-64, 1), (1, 64))),
        ("", described((-64, -7), (0, 64))),
        ("contiguous", described((1, 8))),
        ("steps by -128", described((-64, 1))),
        ("steps by 24", described((12, 1))),
        ("aligned to 8", described((64, 1), alignment=8)),
        ("steps by", described((1 << 40, 1))),
        ("extent", described((64, 1), ((1 << 32) + 1, 64))),
    ],
)
def test_what_the_copy_engine_cannot_be_told_of(reason: str, tensor: object) -> None:
    said = unmappable(TileMap("x", (1, 0), (64, 8), 128), tensor)  # type: ignore[arg-type]
    assert bool(said) == bool(reason) and reason in said


@pytest.mark.parametrize(
    ("reason", "tensor"),
    [
        ("", described((64, 1), (1 << 30, 64))),
        ("above the 2^30", described((64, 1), ((1 << 30) + 1, 64))),
        ("", described((1 << 32, 1))),
        ("steps by", described((1 << 33, 1))),
    ],
)
def test_what_slices_cannot_be_copied_of(reason: str, tensor: object) -> None:
    said = unmappable(TileMap("x", (1, 0), (64, 8), 128, sliced=True), tensor)  # type: ignore[arg-type]
    assert bool(said) == bool(reason) and reason in said


def test_blocks_and_clusters_that_are_started(cuda: Fake) -> None:
    x, y = array(64), array(64)
    launch(cuda, mapped({}, persistent=2), x, y, grid=(5, 4))
    assert cuda.started[-1].blocks == 8 and cuda.started[-1].parameters["grid_0"] == 5  # of 4 processors
    launch(cuda, mapped({}, cluster=2, shared_bytes=100_000), x, y, grid=(5,))
    seen = cuda.started[-1]
    assert (seen.blocks, seen.cluster, seen.threads, seen.shared) == (6, 2, 128, 100_000)
    cuda.stream = 9
    again = launch(cuda, mapped({}, cluster=2, persistent=1), x, y, grid=(50,))
    assert (cuda.started[-1].blocks, cuda.started[-1].stream) == (4, 9)
    launch(cuda, mapped({}, early=True), x, y, grid=(50,))
    assert cuda.started[-1].early and (cuda.started[-1].blocks, cuda.started[-1].cluster) == (50, 1)
    launch(cuda, mapped({}, early=True, cluster=2), x, y, grid=(50,))
    assert cuda.started[-1].early and cuda.started[-1].cluster == 2
    cuda.fail = [719]
    with pytest.raises(kt.CheckError, match=r"copy on cuda:0.*719"):
        again.run(address(x), address(y))  # type: ignore[attr-defined]


def test_a_launch_is_given_the_counter_of_its_stream(cuda: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else blocks would draw their programs from address 0."""
    monkeypatch.setattr(
        "kittens.backends.cuda.prepared.counters", lambda index: lambda stream: 0xC000 + stream
    )
    made = mapped({"x": TileMap("x", (0,), (32,), 0)})
    made = replace(made, parameters=(*made.parameters, Parameter("counter", "", 0, "kt_out", "counter")))
    x, y = array(64), array(64)
    again = launch(cuda, made, x, y)
    assert cuda.started[-1].parameters["counter"] == 0xC000
    cuda.stream = 8
    again.run(address(x), address(y))  # type: ignore[attr-defined]
    assert cuda.started[-1].parameters["counter"] == 0xC008


def test_streams_share_no_counter_and_a_captured_launch_shares_it_with_none(
    cuda: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cupy

    capturing = [False]
    cupy.cuda.runtime.streamIsCapturing = lambda stream: capturing[0]
    pieces = iter(SimpleNamespace(ptr=at) for at in (0x10000, 0x90000))
    monkeypatch.setattr(counters, "_zeroed", lambda size, index: next(pieces))
    monkeypatch.setattr(counters, "_PIECE", 4)
    given = counters.Counters(0)
    assert given(0) == given(0) == 0x10000 and given(7) == 0x10004
    capturing[0] = True
    assert [given(7), given(7), given(7)] == [0x10008, 0x1000C, 0x90000]
    capturing[0] = False
    assert given(7) == 0x10004


# ---- torch


def test_tensors_of_torch(cuda: Fake) -> None:
    scaled = kernel()
    for stream in (0, 5):
        cuda.stream = stream
        x, y = Tensor(aligned((64,), np.float32)), Tensor(aligned((64,), np.float32))
        scaled(x, y)
        seen = cuda.started[-1]
        assert (
            seen.parameters["x"] == x.data_ptr() and seen.stream == 1000 + stream
        )  # torch's stream, not CuPy's
        scaled(Tensor(aligned((64, 2), np.float32)[:, 0]), y)
        assert cuda.started[-1].parameters["x_s0"] == 2
        scaled(array(64), y)
        assert cuda.started[-1].stream == 1000 + stream
    assert len(cuda.launched) == 3
    with pytest.raises(kt.ArgumentError, match="no installed backend takes"):
        scaled(x, Tensor(aligned((64,), np.float32), cuda=False))


def test_tensors_that_stand_for_their_negatives(cuda: Fake) -> None:
    scaled = kernel()
    y = Tensor(aligned((64,), np.float32))
    for negative in (False, True, False):
        imaginary = Tensor(aligned((130,), np.float32)[1:129:2], negative)
        if negative:
            with pytest.raises(kt.ArgumentError, match="negatives"):
                scaled(imaginary, y)
        else:
            scaled(imaginary, y)
    assert len(cuda.started) == 2


# ---- calls that go straight to a function written for them


def test_names_of_constants_that_mean_something_else(cuda: Fake) -> None:
    """A constant may have the name of a global that a helper reads, or of what the written function uses."""
    space = {"kt": kt, "LIMIT": 3.0}
    text = """
def helper(t):
    return t * LIMIT

def body(kt_v0, x, *, LIMIT=1.0, type=0.0, args=0.0, kt_found=0.0):
    kt.store(x, 0, helper(kt.load(kt_v0, 0, 64)) + LIMIT + type + args + kt_found)
"""
    exec(compile(text, "<body>", "exec"), space)
    body = kt.kernel(space["body"])  # type: ignore[call-overload]
    x, y = array(64), array(64)

    def source(**named: float) -> str:
        body(x, y, **named)
        return cuda.artifacts[cuda.started[-1].function].source

    first = source()
    assert source() == first == source(LIMIT=1.0)
    others = [source(LIMIT=2.0), source(type=1.0), source(args=5.0), source(kt_found=7.0)]
    assert len({first, *others}) == 5
    for _ in range(2):
        assert [source(LIMIT=2.0), source(type=1.0), source(args=5.0), source(kt_found=7.0)] == others
    space["LIMIT"] = 4.0
    assert source() != first


def test_a_closure_that_changes(cuda: Fake) -> None:
    def make() -> tuple[Kernel, types.CellType]:
        factor = 2.0

        @kt.kernel
        def times(x, y):
            kt.store(y, 0, kt.load(x, 0, 64) * factor)

        return times, times.function.__closure__[0]

    times, factor = make()
    x, y = array(64), array(64)

    def source() -> str:
        times(x, y)
        return cuda.artifacts[cuda.started[-1].function].source

    first = source()
    assert source() == first and len(cuda.launched) == 1
    factor.cell_contents = 3.0
    assert source() != first and source() != first and len(cuda.launched) == 2
    del factor.cell_contents
    with pytest.raises(NameError):
        source()


def test_arguments_by_name_and_patterns_in_turn(cuda: Fake) -> None:
    scaled = kernel()
    x, y = array(64), array(64)
    for _ in range(4):
        for call in (
            lambda: scaled(x, y),
            lambda: scaled(x, y=y),
            lambda: scaled(y=y, x=x),
            lambda: scaled(x, y, B=32),
            lambda: scaled(x, y, None),
            lambda: scaled(x, y, 2.0, plus=1.0, B=32),
            lambda: scaled(x, y, plus=1.0, B=32, by=2.0),
            lambda: scaled(x, y, on="cuda"),
        ):
            run = call()
            seen = cuda.started[-1]
            assert (seen.parameters["x"], seen.parameters["y"]) == (address(x), address(y))
            assert seen.blocks == run.grid[0] == 64 // run.constants["B"]
    assert len(cuda.started) == 32 and len(scaled.calls.patterns) == 8


def test_a_kernel_is_still_what_it_looks_like(cuda: Fake) -> None:
    import inspect
    import pickle

    scaled = kernel()
    for _ in range(2):
        assert callable(scaled) and list(inspect.signature(scaled).parameters) == [
            "x",
            "y",
            "by",
            "B",
            "plus",
        ]
        scaled(array(64), array(64))
    assert pickle.loads(pickle.dumps(kt.kernels.matmul)) is kt.kernels.matmul
