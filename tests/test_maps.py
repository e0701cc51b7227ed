"""Maps of tensors, and grids of blocks that run several programs: saved, loaded, and as the simulator hands them over."""

from __future__ import annotations

import contextlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kittens as kt
from kittens.arguments import adopt
from kittens.artifact import Artifact, Parameter, TileMap, from_bytes
from kittens.backends.cuda.sim import VENDOR
from kittens.codegen.simulate import PROCESSORS, simulate
from kittens.runtime import programs
from kittens.sim.maps import MAP_BYTES, MappedArray

# y[i, j] = x[i, j] for x of uint16 by way of its map, block by block; each block counts itself and writes down the map.
SOURCE = """
#include "kt_cuda.h"
struct alignas(64) seen_map {
  kt_u64 base; kt_u32 rank, element, swizzle, zero, extents[5], gap; kt_u64 strides[5]; kt_u16 box[5];
};
extern "C" __global__ void copy(kt_in x, seen_map x_map, kt_out y, seen_map y_map, kt_out said, kt_i32 grid_0) {
  kt_u32 lane = kt_thread();
  if (lane == 0u) kt_atomic_add_i32(said, 1);
  if (lane == 0u && kt_program_x() == 0u) {
    kt_u64 words[] = {x_map.rank, x_map.element, x_map.swizzle, x_map.zero, x_map.extents[0], x_map.extents[1],
                      x_map.extents[2], x_map.strides[0], x_map.strides[1], x_map.strides[2], x_map.box[0], x_map.box[1],
                      x_map.box[2], kt_u64(x_map.base == kt_u64(x)), kt_u64(y_map.base == kt_u64(y))};
    for (kt_u32 i = 0u; i < 15u; i++) kt_st_global_b32(said + 4u * (i + 1u), kt_u32(words[i]));
  }
  for (kt_u32 row = kt_program_x(); row < kt_u32(grid_0); row += BLOCKS)
    for (kt_u32 i = lane; i < x_map.extents[0]; i += 32u)
      kt_st_global_b16(kt_out(y_map.base + row * y_map.strides[1] + i * 2u),
                       kt_ld_global_b16(kt_in(x_map.base + row * x_map.strides[1] + i * 2u)));
}
"""


def artifact(persistent: int = 0, cluster: int = 1, swizzle: int = 64, blocks: int = 1 << 30) -> Artifact:
    def tensor(name: str, c: str) -> list[Parameter]:
        tile = TileMap(name, (1, 0), (32, 8), swizzle)
        return [
            Parameter("pointer", name, 0, c, name),
            Parameter("map", name, 0, "seen_map", f"{name}_map", tile),
        ]

    return Artifact(
        "copy", "cuda:sm_90a", b"", SOURCE.replace("BLOCKS", f"{blocks}u"), "copy",
        parameters=(
            *tensor("x", "kt_in"), *tensor("y", "kt_out"), Parameter("pointer", "said", 0, "kt_out", "said"),
            Parameter("grid", "", 0, "kt_i32", "grid_0"),
        ),
        threads=32, written=("said", "y"), persistent=persistent, cluster=cluster,
    )  # fmt: skip


def run(made: Artifact, x: np.ndarray, y: np.ndarray) -> list[int]:
    said = np.zeros(16, np.int32)
    arguments = {n: adopt(v, n) for n, v in {"x": x, "y": y, "said": said}.items()}
    simulate(made, VENDOR, "sm_90a", arguments, (x.shape[0],))
    return said.tolist()


def test_blocks_of_persistent_kernels_and_of_clusters() -> None:
    assert [artifact().blocks(n, 132) for n in (1, 7, 5000)] == [1, 7, 5000]
    assert [artifact(persistent=2).blocks(n, 132) for n in (1, 263, 264, 5000)] == [1, 263, 264, 264]
    assert [artifact(cluster=2).blocks(n, 132) for n in (1, 2, 5)] == [2, 2, 6]
    assert [artifact(persistent=1, cluster=4).blocks(n, 7) for n in (1, 5, 100)] == [4, 4, 4]
    assert artifact(persistent=1, cluster=4).blocks(100, 3) == 4


def test_maps_are_saved_and_loaded(tmp_path: Path) -> None:
    made = artifact(persistent=2, cluster=2)
    made.save(tmp_path / "copy.kittens")
    assert kt.load(tmp_path / "copy.kittens") == made


def test_a_saved_kernel_of_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kittens.artifact._FORMAT", 1)
    artifact().save(tmp_path / "old.kittens")
    monkeypatch.undo()
    with pytest.raises(kt.ArgumentError, match="another version"):
        kt.load(tmp_path / "old.kittens")


def test_the_bytes_of_a_map() -> None:
    x = np.zeros((3, 5, 64), ml_dtypes.bfloat16)[:, ::-1, :40]
    raw = MappedArray(x, (2, 1, 0), (40, 2, 1), 128).encoded(0x0001_0000_0000_1230)
    assert len(raw) == MAP_BYTES
    assert np.frombuffer(raw, "<u8", 1)[0] == 0x0001_0000_0000_1230
    assert np.frombuffer(raw, "<u4", 4, 8).tolist() == [3, 2, 128, 0]
    assert np.frombuffer(raw, "<u4", 5, 24).tolist() == [40, 5, 3, 0, 0]
    assert np.frombuffer(raw, "<i8", 5, 48).tolist() == [2, -128, 640, 0, 0]
    assert np.frombuffer(raw, "<u2", 5, 88).tolist() == [40, 2, 1, 0, 0]
    assert not any(raw[98:])


def test_simulated_kernels_read_and_write_through_maps() -> None:
    pytest.importorskip("ziglang")
    x = np.arange(20 * 48, dtype=np.uint16).reshape(20, 48)[:, :40]
    y = np.zeros((20, 40), np.uint16)
    said = run(artifact(), x, y)
    assert (y == x).all()
    assert said == [20, 2, 2, 64, 0, 40, 20, 0, 2, 96, 0, 32, 8, 0, 1, 1]


def test_simulated_persistent_kernels_run_several_programs_a_block() -> None:
    pytest.importorskip("ziglang")
    x = np.arange(20 * 8, dtype=np.uint16).reshape(20, 8)
    y = np.zeros_like(x)
    assert run(artifact(persistent=2, blocks=2 * PROCESSORS), x, y)[0] == 2 * PROCESSORS
    assert (y == x).all()
    z = np.zeros_like(x)
    run(artifact(persistent=2), x, z)  # a kernel that runs one program a block leaves the rest undone
    assert (z != x).any()


def test_a_trace_knows_nothing_of_strides_that_step_backwards() -> None:
    """A kernel that copies tiles by way of maps was planned for strides that a map can have."""
    known = [kt.spec("bfloat16", (64, 64), (s, 1)).type.strides[0].divisor for s in (64, 0, -64, -1)]
    assert known == [64, 256, 1, 1]


@given(st.data())
def test_damaged_kernels_are_refused(data: st.DataObject) -> None:
    """By one error, whatever is damaged; a byte that nobody reads may be."""
    whole = replace(artifact(), code=bytes(range(200))).to_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
    for damaged in (whole[:at], whole[:at] + flipped + whole[at + 1 :]):
        with contextlib.suppress(kt.ArgumentError):
            from_bytes(damaged)


@pytest.mark.parametrize(
    "described", ["[]", "null", '"x"', "{}", '{"format": 5}', '{"format": 5, "parameters": [1]}']
)
def test_archives_of_something_else_are_refused(described: str) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("kernel.json", described)
        for part in ("code", "source", "asm"):
            archive.writestr(part, b"")
    with pytest.raises(kt.ArgumentError, match=r"this is not a saved kernel|another version"):
        from_bytes(out.getvalue())


def test_a_saved_kernel_is_a_file_like_others(tmp_path: Path) -> None:
    artifact().save(tmp_path / "copy.kittens")
    (tmp_path / "other").write_text("")
    assert [(tmp_path / name).stat().st_mode for name in ("copy.kittens", "other")] == [
        (tmp_path / "other").stat().st_mode
    ] * 2
    with pytest.raises(OSError, match="copy"):
        artifact().save(tmp_path / "nowhere" / "copy.kittens")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        artifact().save(tmp_path / "folder")
    assert {p.name for p in tmp_path.iterdir()} == {"copy.kittens", "other", "folder"}


def test_a_kernel_runs_on_what_it_was_compiled_for() -> None:
    for on in ("hip:gfx950@sim", "cuda:sm_80@sim", "numpy"):
        with pytest.raises(kt.ArgumentError, match="was compiled for cuda:sm_90a, not for"):
            artifact()(grid=(4,), on=on)
    for grid in (True, 1.5, (-1,), ("4",), (1, 1, 1, 1), (4, 1)):
        with pytest.raises(kt.ArgumentError, match="grid"):
            artifact()(grid=grid)


def test_more_programs_than_can_be_numbered_are_refused() -> None:
    given_ = {"said": adopt(np.zeros(16, np.int32), "said"), "y": adopt(np.zeros((2, 64), np.uint16), "y")}
    for grid in ((2**31,), (2**17, 2**17), (2**40, 1, 1)):
        with pytest.raises(kt.UnavailableError, match="2\\^31 - 1 at most"):
            simulate(artifact(), VENDOR, "sm_90a", given_, grid)
    assert programs((2**40, 0)) == 0 and programs((2**31 - 1,)) == 2**31 - 1
