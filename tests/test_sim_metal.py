"""Metal text in the simulator: right in every order, address spaces kept apart, planted bugs found."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from simtools import ORDERS, edited, fault, kernels, program

from kittens.backends.metal.fragments import SIMDGROUP_MATRIX
from kittens.backends.metal.sim import VENDOR
from kittens.sim import BuildError

GEMM = kernels("gemm.metal")
RNG = np.random.default_rng(0)
HEAD = '#include "kt_metal.h"\n'


def as_metal(text: str) -> str:
    """The kernels of a text in the shared words, with signatures as Metal wants them."""

    def signature(match: re.Match[str]) -> str:
        name, parameters = match.groups()
        given = []
        for number, parameter in enumerate(parameters.split(", ")):
            kind, word = parameter.split()
            kind = kind if kind.startswith("kt_") else f"constant {kind}&"
            given.append(f"{kind} {word} [[buffer({number})]]")
        return f"kernel void {name}({', '.join(given)}, KT_IDS)"

    text = re.sub(r'extern "C" __global__ void (\w+)\(([^)]*)\)', signature, text)
    return text.replace("kt_cuda.h", "kt_metal.h")


BASIC = as_metal(kernels("basic.cu"))


def run_gemm(source: str = GEMM, order: str | int = "forward", dtype=np.float16) -> None:
    m, n, k = 72, 136, 168
    a, b = RNG.standard_normal((m, k)).astype(dtype), RNG.standard_normal((k, n)).astype(dtype)
    c = np.full((m, n), np.nan, np.float32)
    program(VENDOR, source, "gemm").run((3, 2), 128, [a, b, c, m, n, k], 9728, order=order)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


def run_text(body: str, args=(), order: str | int = "forward", parameters: str = "", block: int = 64) -> None:
    """Run a kernel `k` given by its body, and its parameters."""
    text = f"{HEAD}kernel void k({parameters + ', ' if parameters else ''}KT_IDS) {{ {body} }}"
    program(VENDOR, text, "k").run(1, block, args, 1024, order=order)


# ---- right kernels


@pytest.mark.parametrize("order", ORDERS)
def test_kernels_in_the_shared_words(order):
    a, b, c = RNG.random(1000, np.float32), RNG.random(1000, np.float32), np.zeros(1000, np.float32)
    program(VENDOR, BASIC, "vector_add").run(8, 128, [a, b, c, 1000], order=order)
    np.testing.assert_array_equal(c, a + b)
    x, y, s = RNG.random((70, 45), np.float32), np.zeros((45, 70), np.float32), np.zeros(70, np.float32)
    program(VENDOR, BASIC, "transpose").run((2, 3), 256, [x, y, 70, 45], 32 * 33 * 4, order=order)
    np.testing.assert_array_equal(y, x.T)
    program(VENDOR, BASIC, "row_sum").run(70, 128, [x, s, 45], 16, order=order)
    np.testing.assert_allclose(s, x.sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_matmul_by_simdgroup_matrices(order):
    run_gemm(order=order)


def test_matmul_of_bfloat():
    run_gemm(GEMM.replace("kt_mma_tiles_f16", "kt_mma_tiles_bf16"), dtype=ml_dtypes.bfloat16)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_matrix_products_hold_their_fragments_as_the_table_says(dtype):
    element = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    name = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[dtype]
    pair = "kt_ld_global_b32(P + kt_lane() * 4u)"
    if dtype == "float32":
        pair = ", ".join(f"kt_from_bits(kt_ld_global_b32(P + kt_lane() * 8u + {i}u))" for i in (0, 4))
    body = f"""
      float d0 = 0.0f, d1 = 0.0f;
      kt_mma_8x8x8_{name}(d0, d1, {pair.replace("P", "a")}, {pair.replace("P", "b")});
      kt_st_global_b64(c + kt_lane() * 8u, kt_make_u32x2(kt_bits(d0), kt_bits(d1)));"""
    register, lane = np.meshgrid(np.arange(2), np.arange(32))
    place = tuple(SIMDGROUP_MATRIX.a(register=register, lane=lane, group=np.zeros_like(lane)))
    a, b = RNG.standard_normal((2, 8, 8)).astype(element)
    d = np.zeros((32, 2), np.float32)
    parameters = "kt_in a [[buffer(0)]], kt_in b [[buffer(1)]], kt_out c [[buffer(2)]]"
    run_text(body, [a[place], b[place], d], parameters=parameters, block=32)
    np.testing.assert_allclose(d, (a.astype(np.float32) @ b.astype(np.float32))[place], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 5), (4, 4), (3, 2)])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_many_products_at_once_are_the_same_to_the_bit(dtype, m, n):
    """What the simulator does for all tiles together, and what devices do: one product after the other."""
    words = 2 if dtype == "f32" else 1
    bits = RNG.standard_normal((m + n, 32, words)).astype(np.float32)
    if dtype != "f32":
        element = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]
        bits = RNG.standard_normal((m + n, 32, 2)).astype(element).view(np.uint32)
    kind, read = ("float", "kt_from_bits") if dtype == "f32" else ("kt_u32", "")
    body = f"""
      {kind} x[{(m + n) * words}];
      for (int i = 0; i < {m + n}; i++) for (int w = 0; w < {words}; w++)
        x[i * {words} + w] = {read}(kt_ld_global_b32(in + ((kt_u32(i) * 32u + kt_lane()) * {words}u + kt_u32(w)) * 4u));
      float one[{m * n * 2}], all[{m * n * 2}];
      for (int i = 0; i < {m * n * 2}; i++) one[i] = all[i] = float(i);
      for (int step = 0; step < 2; step++) {{
        kt_mma_each_{dtype}<{m}, {n}>(one, x, x + {m * words});
        kt_mma_tiles_{dtype}<{m}, {n}>(all, x, x + {m * words});
      }}
      for (kt_u32 i = 0u; i < {m * n * 2}u; i++) {{
        kt_st_global_b32(out + (i * 64u + kt_lane()) * 4u, kt_bits(one[i]));
        kt_st_global_b32(out + (i * 64u + 32u + kt_lane()) * 4u, kt_bits(all[i]));
      }}"""
    out = np.zeros((m * n * 2, 2, 32), np.float32)
    run_text(body, [bits, out], parameters="kt_in in [[buffer(0)]], kt_out out [[buffer(1)]]", block=32)
    assert np.abs(out).sum() > 0
    np.testing.assert_array_equal(out[:, 0].view(np.uint32), out[:, 1].view(np.uint32))


def test_shuffles_and_votes():
    body = """
      kt_u32 l = kt_lane();
      kt_u32 r[9] = {kt_shfl(l, 5u), kt_shfl_xor(l, 3u), kt_shfl_up(l, 2u), kt_shfl_down(l, 4u),
                     kt_shfl_xor_by<8u>(l), kt_u32(kt_ballot(l % 3u == 0u)), kt_any(l == 7u), kt_all(l < 31u),
                     kt_all(l < 32u)};
      for (kt_u32 i = 0u; i < 9u; i++) kt_st_global_b32(out + (i * 32u + l) * 4u, r[i]);"""
    out = np.zeros((9, 32), np.uint32)
    run_text(body, [out], parameters="kt_out out [[buffer(0)]]", block=32)
    lanes = np.arange(32)
    expected = [np.full(32, 5), lanes ^ 3, np.where(lanes >= 2, lanes - 2, lanes)]
    expected += [np.where(lanes + 4 < 32, lanes + 4, lanes), lanes ^ 8]
    np.testing.assert_array_equal(out[:5], expected)
    assert [set(row) for row in out[5:]] == [{sum(1 << i for i in range(0, 32, 3))}, {1}, {0}, {1}]


def test_subnormals_are_flushed_as_on_the_device():
    body = "kt_st_global_b32(c, kt_bits(kt_from_bits(kt_ld_global_b32(a)) * 1.5f));"
    parameters = "kt_in a [[buffer(0)]], kt_out c [[buffer(1)]]"
    c = np.ones(1, np.float32)
    run_text(body, [np.array([1e-40], np.float32), c], parameters=parameters, block=32)
    assert c[0] == 0
    assert np.float32(1e-40) * np.float32(1.5) > 0  # and not on the caller's side


# ---- what Metal's compiler would refuse


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("kt_ld_shared_b32(a);", "no matching function for call to 'kt_ld_shared_b32'"),  # of another space
        ("kt_st_global_b32(a, 1u);", "no matching function for call to 'kt_st_global_b32'"),  # const
        ("const device uchar* p = a; uchar* q = p;", "cannot initialize"),
        ("const device uchar* p = a; device uchar* q = p;", "cannot initialize"),
        ("max(1, 2);", "undeclared identifier 'max'"),  # not of the words that device headers are made of
        ("simd_shuffle(bfloat{0}, ushort(0));", "no matching function for call to 'simd_shuffle'"),
    ],
)
def test_refused(body, message):
    with pytest.raises(BuildError, match=message):
        run_text(body, [np.zeros(4, np.float32)], parameters="kt_in a [[buffer(0)]]")


def test_signatures_that_cannot_be_run():
    for parameters, message in (
        ("kt_in a", "has no attribute"),
        ("kt_in a [[buffer(1)]]", "must come first"),
        ("uint x [[dispatch_quadgroups_per_threadgroup]]", "does not know the attribute"),
    ):
        with pytest.raises(BuildError, match=message):
            program(VENDOR, f"{HEAD}kernel void k({parameters}) {{}}", "k")
    with pytest.raises(BuildError, match="no `kernel void other"):
        program(VENDOR, HEAD, "other")


# ---- planted bugs


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("which", [0, 1])
def test_a_barrier_removed(order, which):
    head, middle, tail = GEMM.split("    kt_barrier();\n")
    source = (
        head + middle + "    kt_barrier();\n" + tail
        if which == 0
        else head + "    kt_barrier();\n" + middle + tail
    )
    fault(("race", "unwritten-shared"), run_gemm, source, order)


def test_a_matrix_product_that_lanes_do_not_reach():
    source = edited(GEMM, "kt_mma_tiles_f16<4", "if (lane != 5u) kt_mma_tiles_f16<4")
    assert "kt_mma_tiles_f16" in fault("divergent", run_gemm, source).detail


def test_an_index_past_the_end():
    source = edited(GEMM, "if (row < kt_u32(m) && column < kt_u32(n))", "if (column < kt_u32(n))")
    found = fault("global-bounds", run_gemm, source)
    assert "of argument 2, which has 39168 bytes" in found.detail
    assert found.file == "gemm.metal"


def test_a_pad_on_one_side_only():
    stored = "kt_st_shared_b128(smem + row * A_ROW + piece"
    fault(("race", "unwritten-shared"), run_gemm, edited(GEMM, stored, stored.replace("A_ROW", "64u")))


@pytest.mark.parametrize("order", ORDERS)
def test_lanes_need_their_barrier_too(order):
    body = """
      KT_SHARED_MEMORY(smem, 256);
      kt_st_shared_b32(smem + kt_thread() * 4u, kt_lane());
      SYNC
      kt_ld_shared_b32(smem + (kt_thread() ^ 1u) * 4u);"""
    run_text(body.replace("SYNC", "kt_sync_lanes();"), order=order)
    fault(("race", "unwritten-shared"), run_text, body.replace("SYNC", ""), order=order)
