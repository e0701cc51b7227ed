"""Planning and emission: plans say what they should, text is deterministic, gates are errors, artifacts come back."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import kittens as kt
from kittens.artifact import Artifact
from kittens.backends.cuda.machine import machine
from kittens.codegen import emit, make_plan
from kittens.codegen.emit import fit
from kittens.examples import library
from kittens.kernels import attention_forward, matmul, softmax


def bf16(*shape: int) -> object:
    return kt.spec("bfloat16", shape)


def ir(kernel, *args, **constants):
    return kernel.ir(*args, **constants)


@pytest.fixture(scope="module")
def product():
    return ir(matmul, bf16(512, 256), bf16(256, 512), bf16(512, 512))


def test_a_product_of_loads_is_staged_in_a_ring(product) -> None:
    plan = make_plan(product, machine("sm_80"))
    assert len(plan.staged) == 2
    assert all(s.loop is not None and s.depth == 3 and s.width == 16 for s in plan.staged.values())
    assert "ring of 3" in str(plan)


@kt.kernel
def sum_of_pages(x, table, w, y, *, notes=False):
    acc = kt.zeros((32, 32), kt.float32)
    for j in kt.range(table.shape[0]):
        acc += kt.load(x[kt.load(table[j])], (0, 0), (32, 32)) @ kt.load(w, (0, 0), (32, 32))
        if notes:
            kt.store(table[j], (), kt.scalar(0, kt.int32))
    kt.store(y, (0, 0), acc)


def test_tiles_that_a_table_names_are_read_ahead_unless_the_kernel_changes_it() -> None:
    x, w = kt.spec("bfloat16", (9, 32, 32)), kt.spec("bfloat16", (32, 32))
    for notes in (False, True):
        given = (x, kt.spec("int32", (7,)), w, kt.spec("float32", (32, 32)))
        plan = make_plan(ir(sum_of_pages, *given, notes=notes), machine("sm_80"))
        depth = next(s.depth for s in plan.staged.values() if s.load.operands[0].producer is not None)
        assert (depth > 1) is not notes


def test_attention_needs_no_trip_through_shared_memory_between_its_products() -> None:
    q = bf16(2, 4, 256, 64)
    source = str(emit(make_plan(ir(attention_forward, q, q, q, q, None, scale=1.0), machine("sm_80"))))
    loop = source[source.index("for (kt_i64") :] if "for (kt_i64" in source else source
    between = loop[loop.index("kt_exp2") : loop.rindex("kt_mma")]
    assert "kt_put(" not in between and "kt_swap(" not in between.split("kt_exp2")[-1].split("kt_f32x2")[-1]


def test_emission_is_deterministic(product) -> None:
    first, second = (str(emit(make_plan(product, machine("sm_80")))) for _ in range(2))
    assert first == second
    assert (
        "return kt.mma(x, y, acc, accumulate=accumulate)" in first
    )  # the Python line that a block came from


def test_aligned_rows_are_copied_in_sixteen_bytes_and_odd_ones_element_by_element() -> None:
    odd = ir(matmul, bf16(64, 33), bf16(33, 64), bf16(64, 64))
    widths = sorted(s.width for s in make_plan(odd, machine("sm_80")).staged.values())
    assert widths == [0, 16]


def test_a_tile_too_large_for_shared_memory_is_an_error_with_advice(product) -> None:
    large = ir(matmul, bf16(512, 256), bf16(256, 512), bf16(512, 512), BM=256, BN=256, BK=256)
    with pytest.raises(kt.UnavailableError, match=r"shared memory") as caught:
        emit(make_plan(large, machine("sm_80")))
    assert "smaller tiles" in str(caught.value)


def test_float64_is_refused_with_the_line() -> None:
    @kt.kernel
    def double(x, y):
        kt.store(y, 0, kt.load(x, 0, 8) * 2.0)

    x = kt.spec("float64", (8,))
    with pytest.raises(kt.UnavailableError, match="float64"):
        make_plan(double.ir(x, x), machine("sm_80"))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0, 0, 0), "0"),
        ((0, 1, 2, 3), "r"),
        ((0, 1, 8, 9), "r % 2 + r / 2 * 8"),
        ((5, 6, 5, 6), "r % 2 + 5"),
        ((0, 3, 1), None),
    ],
)
def test_fit(values: tuple[int, ...], text: str | None) -> None:
    found = fit(values, "r")
    assert found == text
    if found is not None:
        assert tuple(eval(found.replace("/", "//"), {"r": r}) for r in range(len(values))) == values


def test_fit_is_right_whenever_it_answers() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes = rng.integers(1, 5, 3)
        steps = rng.integers(0, 9, 3)
        n = int(np.prod(sizes))
        values = tuple(
            int(sum((r // int(np.prod(sizes[:i]))) % sizes[i] * steps[i] for i in range(3))) for r in range(n)
        )
        found = fit(values, "r")
        assert found is not None
        assert tuple(eval(found.replace("/", "//"), {"r": r}) for r in range(n)) == values


def needs_compiler() -> None:
    from kittens.backends.cuda.compile import available

    if available():
        pytest.skip(available())


def test_compiled_kernels_say_what_they_take() -> None:
    needs_compiler()
    found = softmax.resources("cuda:sm_80", bf16(64, 512), bf16(64, 512))
    assert found["registers"] > 0 and found["spilled_bytes"] == 0 and found["threads"] % 32 == 0


def test_machine_code_is_shown_as_text(monkeypatch) -> None:
    needs_compiler()
    from kittens.backends.cuda import assembly

    made = softmax.compile("cuda:sm_90a", bf16(64, 512), bf16(64, 512))
    with monkeypatch.context() as m:
        m.setattr(assembly, "disassembler", lambda: None)
        with pytest.raises(kt.UnavailableError, match="nvdisasm is not installed") as caught:
            assembly.assembly(made)
        assert "kittens-gpu[compile]" in str(caught.value)
    if assembly.disassembler() is None:
        pytest.skip("nvdisasm is not installed: the extra compile brings it")
    text = assembly.assembly(made)
    assert "softmax_kernel" in text and "MUFU.EX2" in text and "EXIT" in text
    with pytest.raises(kt.UnavailableError, match="cannot read the code of softmax"):
        assembly.assembly(dataclasses.replace(made, code=b"no code"))


def test_copies_of_a_few_bytes_take_no_registers_for_their_addresses() -> None:
    needs_compiler()
    a, b, c = (kt.spec("float32", s) for s in ((5, 0), (0, 6), (5, 6)))
    assert "KT_BY_FOURS" in matmul.source("cuda:sm_90a", a, b, c)
    assert matmul.resources("cuda:sm_90a", a, b, c)["spilled_bytes"] == 0


def _heads(packed: bool, dtype: str, width: int) -> tuple[list[object], list[object]]:
    """What attention's kernels take first (q, k, v and perhaps bounds), and rows of numbers."""
    shape, at = ((8, 4096, width), (8, 4096)) if packed else ((2, 8, 4096, width), (2, 8, 4096))
    x, bounds = kt.spec(dtype, shape), kt.spec("int32", (9,))
    return [x, x, x, *([bounds, bounds, 4096] if packed else [])], [kt.spec("float32", at)]


@pytest.mark.parametrize(
    ("target", "kernel", "dtype", "width", "left"),
    [
        ("cuda:sm_90a", "attention_forward", "bfloat16", 100, None),
        ("cuda:sm_90a", "attention_varlen_forward", "float16", 50, 511),
        ("cuda:sm_90a", "attention_backward_q", "bfloat16", 50, 511),
        ("cuda:sm_90a", "attention_backward_q", "float32", 100, None),
        ("cuda:sm_90a", "attention_forward", "float8_e4m3fn", 128, None),
        ("cuda:sm_90a", "attention_forward", "float8_e5m2", 160, None),
        ("cuda:sm_90a", "attention_varlen_backward_kv", "bfloat16", 100, None),
        ("cuda:sm_80", "attention_forward", "bfloat16", 160, None),
        ("cuda:sm_80", "attention_varlen_forward", "bfloat16", 112, 511),
        ("cuda:sm_80", "attention_backward_kv", "bfloat16", 224, None),
    ],
)
def test_attention_of_heads_of_any_width_compiles_without_spills(target, kernel, dtype, width, left) -> None:
    """Rows that are no multiple of 16 bytes are copied in small pieces, whose addresses took all registers."""
    needs_compiler()
    heads, rows = _heads("varlen" in kernel, dtype, width)
    x = heads[0]
    more = {"forward": [x, *rows], "q": [x, *rows, *rows, x], "kv": [x, *rows, *rows, x, x]}
    arguments = [*heads, *more[kernel.rsplit("_", 1)[1]]]
    taken = library(kernel).resources(target, *arguments, scale=0.1, left=left, right=0)
    assert taken["spilled_bytes"] == 0


@pytest.mark.parametrize("target", ["cuda:sm_90a", "hip:gfx950", "metal"])
def test_tiles_that_no_program_holds_are_refused_at_once(target: str) -> None:
    x = kt.spec("float32", (10**9, 64))
    with pytest.raises(kt.UnavailableError, match="too large for") as caught:
        softmax.plan(target, x, x, BM=10**9)
    assert "use smaller tiles" in str(caught.value) and "softmax" in str(caught.value)


def test_spills_are_an_error_with_advice() -> None:
    needs_compiler()

    @kt.kernel
    def greedy(x, y):
        tile = kt.load(x, (0, 0), (256, 512))
        total = tile.sum(axis=1)
        kt.store(y, (0, 0), tile / total[:, None])

    x = kt.spec("float32", (256, 512))
    with pytest.raises(kt.UnavailableError, match="spills") as caught:
        greedy.compile("cuda:sm_90a", x, x)
    assert "smaller tiles" in str(caught.value) and "greedy" in str(caught.value)


def test_an_artifact_is_saved_loaded_and_run(tmp_path: Path) -> None:
    needs_compiler()
    pytest.importorskip("ziglang")
    x = np.linspace(-1, 1, 8 * 64, dtype=np.float32).reshape(8, 64)
    y = np.zeros_like(x)
    artifact = softmax.compile("cuda:sm_80", x, y)
    artifact.save(tmp_path / "softmax.kittens")
    loaded = kt.load(tmp_path / "softmax.kittens")
    assert (
        isinstance(loaded, Artifact)
        and loaded.code == artifact.code
        and loaded.parameters == artifact.parameters
    )
    run = loaded(x, y, grid=(2, 1, 1)[: loaded.grid_rank], on="cuda:sm_80@sim")
    assert run.how == "simulated"
    wanted = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    assert np.allclose(y[:4], wanted[:4], rtol=1e-5)


def test_an_artifact_refuses_what_it_was_not_compiled_for(tmp_path: Path) -> None:
    needs_compiler()
    x = np.zeros((8, 64), np.float32)
    artifact = softmax.compile("cuda:sm_80", x, np.zeros_like(x))
    with pytest.raises(kt.ArgumentError, match="compiled for"):
        artifact(x[:, :63], np.zeros((8, 63), np.float32), grid=(2, 1, 1)[: artifact.grid_rank])
    with pytest.raises(kt.ArgumentError, match="takes"):
        artifact(x, grid=1)
    bad = tmp_path / "bad"
    bad.write_text("nothing")
    with pytest.raises(kt.ArgumentError, match="not a saved kernel"):
        kt.load(bad)


@pytest.mark.parametrize("target", ["cuda:sm_80", "hip:gfx1201"])
@pytest.mark.parametrize(("transposed", "reads"), [(False, (4, 4)), (True, (2, 2))])
def test_products_by_elements_read_neighbours_together(
    target: str, transposed: bool, reads: tuple[int, int]
) -> None:
    """float32 without a matrix instruction: each operand comes in vectors, along K as many as registers allow."""
    a = np.zeros((64, 64), np.float32)
    text = str(matmul.source(target, a, a.T if transposed else a, a))
    loop = text[text.index("float product") :]
    assert re.findall(r"KT_LOAD_FLOATS\((\d),", loop) == [str(n) for n in reads]
    assert "kt_get<float>" not in loop
