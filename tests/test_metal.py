"""The Metal backend: text, plans, results in the simulator, and host code over a stand-in for Metal."""

from __future__ import annotations

import re
import subprocess
import sys

import fake_metal
import ml_dtypes
import numpy as np
import pytest

import kittens as kt
from kittens import ops
from kittens.arguments import adopt, spec
from kittens.artifact import load
from kittens.backends.metal import compile as metal_compile
from kittens.backends.metal import launch as metal_launch
from kittens.backends.metal import machine
from kittens.backends.metal.text import own, pasted, pieces_of
from kittens.codegen.pipeline import planned
from kittens.codegen.pressure import registers
from kittens.errors import InternalError, UnavailableError
from kittens.examples import EXAMPLES, library
from kittens.sim.toolchain import compiler

ON = "metal:apple7@sim"
RNG = np.random.default_rng(0)


def source(name: str) -> str:
    example = EXAMPLES[name]
    return str(library(name).source("metal", *example.args, **example.constants))


# ---- the text

# Of the Metal Shading Language Specification 3.1: words that no name may be.
RESERVED = """
device constant thread threadgroup threadgroup_imageblock ray_data object_data kernel vertex fragment visible
intersection half bfloat alignas alignof asm auto bool break case catch char class const constexpr continue
decltype default delete do double else enum explicit export extern false float for friend goto if inline int
long mutable namespace new noexcept nullptr operator private protected public register return short signed
sizeof static struct switch template this throw true try typedef typeid typename union unsigned using virtual
void volatile while main NAN INFINITY HUGE_VALF MAXFLOAT INT_MAX UINT_MAX M_PI_F
"""

# Functions and types of the standard library that the device headers use.
BUILTINS = """
as_type fma rint fabs sqrt exp2 rsqrt threadgroup_barrier simdgroup_barrier simd_shuffle simd_shuffle_xor
simd_shuffle_up simd_shuffle_down simd_any simd_all simd_ballot simdgroup_multiply_accumulate thread_elements
atomic_fetch_add_explicit float half bfloat int uint uint2 uint4 ushort ulong bool vote_t
"""
WORDS = {"if", "for", "while", "return", "sizeof", "buffer", "T"}
SCALARS = r"kt_[iu]\d+(?:x\d)?|float\d?|half\d?|bfloat\d?|u?int\d?|u?long\d?|uchar\d?|ushort\d?|bool|T"


def device_text(text: str) -> str:
    """What Apple's compiler makes of a text before it reads it: no comments, and macros replaced."""
    text = re.sub(r"^#(include <|pragma METAL).*", "", text, flags=re.M)
    command = [*compiler().compile, "-E", "-P", "-x", "c++", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return re.sub(r"__attribute__\(\(always_inline\)\)", "", done.stdout)


def faults(text: str) -> list[str]:
    """What in a text breaks the rules for generated Metal."""
    seen = device_text(text)
    before, kernel = seen.split("kernel void", 1)
    found = [
        f"double literal {m[0]}"
        for m in re.finditer(r"(?<![\w.])(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+)(?![\w.])", seen)
    ]
    found += [f"64-bit literal {m[0]}" for m in re.finditer(r"\b\d+u?ll\b", seen)]
    found += [f"unknown here: {w}" for w in ("long long", "double ", "goto ", "asm", "kt_sim") if w in seen]
    if re.search(r"template[^;{]*$", before) or "kernel void" in kernel:
        found.append("more than one plain kernel")
    if "max_total_threads_per_threadgroup" in seen:
        found.append("a bound on threads: of exactly one simdgroup it is miscompiled")
    for m in re.finditer(rf"(\w+ )?\b(?:{SCALARS})\s*[&*]\s*\w+\s*[,)=;\[]", seen):
        if m[1] not in ("device ", "constant ", "threadgroup ", "thread "):
            found.append(f"no address space: {m[0]}")
    defined = set(re.findall(r"\b(\w+)\([^()]*(?:\([^()]*\)[^()]*)*\)\s*\{", before))
    defined |= set(re.findall(r"typedef [^;]*?(\w+);", before)) | set(re.findall(r"struct (\w+)", before))
    called = set(re.findall(r"\b([A-Za-z]\w*)\(", before + kernel.partition("(")[2]))
    found += [f"unknown function {n}" for n in sorted(called - set(BUILTINS.split()) - WORDS - defined)]
    declared = set(re.findall(rf"\b(?:{SCALARS}|kt_\w+) (\w+)(?:\[\d+\])?(?: =|;|,)", kernel))
    return found + [f"{n} is a reserved word" for n in sorted(declared & set(RESERVED.split()))]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_text_keeps_to_the_rules(name: str) -> None:
    assert faults(source(name)) == []


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ("float wrong = 1.0;", "double literal 1.0"),
        ("float wrong = 1e3;", "double literal 1e3"),
        ("float wrong = kt_exp2(1.0f) + expf(2.0f);", "unknown function expf"),
        ("thread float here; float& wrong = here;", "no address space: float& wrong ="),
        ("float half[2];", "half is a reserved word"),
        ("kt_i64 wrong = 5ll;", "64-bit literal 5ll"),
    ],
)
def test_the_rules_find_what_breaks_them(planted: str, told: str) -> None:
    text = source("softmax").replace("KT_IDS) {", f"KT_IDS) {{\n  {planted}", 1)
    assert any(told in fault for fault in faults(text)), faults(text)


def test_names_of_the_language_can_be_names_in_a_kernel() -> None:
    @kt.kernel(grid=1)
    def odd(thread, kernel, fragment, *, device=1.0):
        half = kt.load(thread, 0, 64) * device
        constant = half + kt.load(kernel, 0, 64)
        INFINITY = constant * 2.0
        tid = INFINITY + 1.0
        kt.store(fragment, 0, tid)

    a, b, c = RNG.random(64, np.float32), RNG.random(64, np.float32), np.zeros(64, np.float32)
    assert faults(str(odd.source("metal", a, b, c))) == []
    odd(a, b, c, on=ON)
    np.testing.assert_allclose(c, (a + b) * 2 + 1, rtol=1e-6)


def test_a_product_fits_a_screen_or_two() -> None:
    assert len(own(source("matmul")).splitlines()) <= 150


def test_texts_are_the_same_every_time() -> None:
    example = EXAMPLES["attention_forward"]
    texts = set()
    for _ in range(2):
        function = library("attention_forward").ir(*example.args, **example.constants, on="metal")
        texts.add(planned(function, machine.machine("apple7"))[1].text)
        planned.__globals__["_sources"].clear()
    assert len(texts) == 1


def test_only_what_is_reached_is_pasted() -> None:
    head = '#include "kt_metal.h"\n#include "kt_ops.h"\n'
    body = "kernel void k(kt_out x [[buffer(0)]], KT_IDS) { kt_put_global(x, kt_exp(1.0f)); }\n"
    text = pasted(f"// k\n{head}{body}")
    assert text.startswith("// k\n") and own(text).strip() == body.strip()
    assert "float kt_exp(" in text and "kt_scale" in text and "kt_st_global_b32" in text
    assert "kt_sin(" not in text and "kt_mma" not in text and '#include "' not in text


def test_headers_are_cut_at_their_declarations() -> None:
    pieces = [p for file in ("kt_metal.h", "kt_ops.h") for p in pieces_of(file)]
    assert all(p.text.count("{") == p.text.count("}") for p in pieces if "#" not in p.text)
    names = {n for p in pieces for n in p.names}
    assert {
        "kt_in",
        "kt_parts",
        "kt_shl",
        "kt_mma_8x8x8_f16",
        "kt_f32_to_i8",
        "kt_argmax",
        "KT_EACH",
        "kt_get",
    } <= names


# ---- plans


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_library_kernels_fit(name: str) -> None:
    example = EXAMPLES[name]
    plan = library(name).plan("metal", *example.args, **example.constants)
    source(name)
    assert plan.shared_bytes <= machine.SHARED_BYTES
    assert registers(plan) <= machine.REGISTERS
    assert plan.threads <= 1024
    assert all(matrix.op is not None for matrix in plan.placement.products.values())


@pytest.mark.parametrize("width", [32, 64, 96, 128])
def test_attention_of_every_usual_width_fits(width: int) -> None:
    x, stats = spec("bfloat16", (1, 2, 256, width)), spec("float32", (1, 2, 256))
    cases = {
        "attention_forward": (x, x, x, x, stats),
        "attention_backward_kv": (x, x, x, x, stats, stats, x, x),
        "attention_backward_q": (x, x, x, x, stats, stats, x),
    }
    for name, args in cases.items():
        plan = library(name).plan("metal", *args, scale=0.1, right=0)
        library(name).source("metal", *args, scale=0.1, right=0)
        assert registers(plan) <= machine.REGISTERS, name


def test_products_come_straight_from_memory_and_shared_keys_do_not() -> None:
    example = EXAMPLES["matmul"]
    plan = library("matmul").plan("metal", *example.args)
    assert len(plan.placement.direct) == 2 and not plan.staged and plan.shared_bytes == 0
    example = EXAMPLES["attention_forward"]
    plan = library("attention_forward").plan("metal", *example.args, **example.constants)
    assert [v.name for v in plan.placement.direct] == ["q_tile"] and len(plan.staged) == 2


def test_what_does_not_fit_is_refused_with_advice() -> None:
    @kt.kernel
    def symmetric(x, y):
        tile = kt.load(x, (0, 0), (128, 128))
        kt.store(y, (0, 0), tile + tile.T)

    x = spec("float32", (128, 128))
    with pytest.raises(UnavailableError, match=r"bytes of shared memory.*32768"):
        symmetric.source("metal", x, x)
    x = spec("bfloat16", (512, 512))
    with pytest.raises(UnavailableError, match=r"registers a thread.*128") as caught:
        library("matmul").compile("metal", x, x, x, BM=128, BN=128, BK=64)
    assert "smaller tiles" in str(caught.value)


def test_predicted_registers_follow_the_tiles() -> None:
    x = spec("bfloat16", (512, 512))
    small, large = (registers(library("matmul").plan("metal", x, x, x, BM=64, BN=64, BK=k)) for k in (8, 32))
    # 2 x 32 x 24 more elements of 16 bits for each of 32 lanes
    assert large - small == 2 * 32 * 24 // 32 // 2


# ---- results, in the simulator


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2fnuz"]
)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_products(dtype: str, layout: str) -> None:
    element = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    a, b = (
        (RNG.standard_normal(s) * (30 if dtype == "int8" else 1)).astype(element)
        for s in ((70, 100), (100, 50))
    )
    wide = np.float64 if dtype != "int8" else np.int64
    expected = a.astype(wide) @ b.astype(wide)
    if layout[0] == "t":
        a = np.ascontiguousarray(a.T).T
    if layout[1] == "t":
        b = np.ascontiguousarray(b.T).T
    c = np.zeros((70, 50), np.int32 if dtype == "int8" else np.float32)
    library("matmul")(a, b, c, on=ON)
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-4 if dtype != "int8" else 0)


def test_large_sums_of_bytes_are_exact() -> None:
    a = np.full((16, 4096), -128, np.int8)
    c = np.zeros((16, 16), np.int32)
    library("matmul")(a, a.T, c, on=ON)
    assert (c == 4096 * 128 * 128).all()


@pytest.mark.parametrize("width", [64, 96])
def test_attention_and_its_gradient(width: int) -> None:
    q, k, v, do = RNG.standard_normal((4, 1, 2, 75, width)).astype(np.float32)
    out, lse = ops.attention(q, k, v, causal=True, return_lse=True, on=ON)
    want, want_lse = ops.attention(q, k, v, causal=True, return_lse=True, on="numpy")
    np.testing.assert_allclose(out, want, atol=1e-5)
    np.testing.assert_allclose(lse, want_lse, atol=1e-5)
    got = ops.attention_backward(q, k, v, out, lse, do, causal=True, on=ON)
    for x, y in zip(
        got, ops.attention_backward(q, k, v, want, want_lse, do, causal=True, on="numpy"), strict=True
    ):
        np.testing.assert_allclose(x, y, atol=1e-4)


def test_loops_count_in_32_bits_and_index_in_64() -> None:
    @kt.kernel(grid=1)
    def far(y, *, start):
        total = kt.zeros((), kt.int64)
        for i in kt.range(start, start + 3):
            total += i
        kt.store(y[0], (), total)

    y = np.zeros(1, np.int64)
    far(y, start=2**40, on=ON)
    assert y[0] == 3 * 2**40 + 3
    assert "kt_i32 count" in str(far.source("metal", y, start=2**40))


def test_64_bit_additions_carry() -> None:
    @kt.kernel(grid=8)
    def add(y, x):
        kt.store_add(y, 0, kt.load(x, 0, 64))

    x = RNG.integers(-(2**62), 2**62, 64)
    y = np.zeros(64, np.int64)
    add(y, x, on=ON)
    np.testing.assert_array_equal(y, 8 * x)


# ---- the host code, over a stand-in for Metal


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch):
    """A machine that looks like a Mac with one GPU."""
    monkeypatch.setitem(sys.modules, "Metal", fake_metal)
    monkeypatch.setattr("kittens.backends.metal.missing", dict)
    monkeypatch.setattr(metal_compile, "missing", lambda: "")
    monkeypatch.setattr(fake_metal, "DEVICES", [fake_metal.Device()])
    metal_compile.device.cache_clear()
    monkeypatch.setattr(metal_launch, "_pipelines", {})
    monkeypatch.setattr(metal_launch, "_queues", {})
    yield fake_metal
    metal_compile.device.cache_clear()


def test_arrays_go_to_the_device_and_back(mac) -> None:
    a, b = RNG.standard_normal((2, 40, 40)).astype(np.float16)
    c = np.zeros((40, 80), np.float32)[:, ::2]
    run = library("matmul")(a, b.T, c, on="metal")
    assert run.how == "executed"
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.T.astype(np.float32), atol=1e-3)
    library("matmul")(a, b.T, c, on="metal")
    assert len(mac.DEVICES[0].compiled) == 1, "compiled once"
    assert (mac.DEVICES[0].compiled[0].language, mac.DEVICES[0].compiled[0].math) == (0x30001, 0)


def test_programs_that_wait_for_turns_are_launched_one_by_one(mac, monkeypatch) -> None:
    @kt.kernel(grid=lambda x: kt.cdiv(x.shape[0], 16))
    def added(x, out, turns):
        i = kt.program_id()
        kt.store_add(out, (0, 0), kt.load(x, (i, 0), (16, 32)), turn=(turns[0], i))

    x = RNG.standard_normal((75, 32)).astype(np.float32)
    want, have = np.zeros((16, 32), np.float32), np.zeros((16, 32), np.float32)
    counts, turns = np.zeros(1, np.int32), np.zeros(1, np.int32)
    grids = []
    dispatch = fake_metal.Encoder.dispatchThreadgroups_threadsPerThreadgroup_
    monkeypatch.setattr(
        fake_metal.Encoder,
        "dispatchThreadgroups_threadsPerThreadgroup_",
        lambda self, grid, threads: (grids.append(tuple(grid)), dispatch(self, grid, threads)),
    )
    added(x, want, counts, on="numpy")
    added(x, have, turns, on="metal")
    np.testing.assert_array_equal(have, want)
    assert grids == [(1, 1, 1)] * 5 and turns[0] == counts[0] == 5


def test_what_kernels_print_comes_back_in_a_buffer(mac, capsys) -> None:
    @kt.kernel(grid=2)
    def tell(x, by):
        i = kt.program_id()
        kt.device_print("{} times {}: {}", i, by, (kt.load(x, i, 4) * by).sum(axis=0))

    for by in (2.5, 4.0):
        tell(np.arange(8, dtype=np.float32), np.float32(by), on="metal")
        lines = sorted(capsys.readouterr().out.splitlines())
        assert lines == [f"(0,): 0 times {by:.9g}: {6 * by:.9g}", f"(1,): 1 times {by:.9g}: {22 * by:.9g}"]


def test_scalars_travel_in_one_structure(mac) -> None:
    @kt.kernel(grid=lambda x: kt.cdiv(x.shape[0], 64))
    def scaled(x, y, by, shift):
        i = kt.program_id()
        kt.store(y, i, kt.load(x, i, 64) * by + shift.to(kt.float32))

    x, y = RNG.random(100, np.float32), np.zeros(100, np.float32)
    scaled(x, y, np.float32(2.5), 3, on="metal")
    np.testing.assert_allclose(y, x * 2.5 + 3, rtol=1e-6)


def test_a_saved_kernel_runs(mac, tmp_path) -> None:
    x, y = RNG.random((32, 100), np.float32), np.zeros((32, 100), np.float32)
    made = library("softmax").compile("metal", x, y)
    assert made.resources["stage"] == "compiled" and made.resources["max_threads"] == 1024
    made.save(tmp_path / "softmax.kittens")
    grid = (-(-32 // made.constants["BM"]), 1)
    for on, how in (("metal", "executed"), (ON, "simulated")):
        y[:] = 0
        assert load(tmp_path / "softmax.kittens")(x, y, grid=grid, on=on).how == how
        np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-5)


def test_too_many_threads_are_an_error_and_not_silence(mac) -> None:
    mac.DEVICES[0].max_threads = 64
    x, y = RNG.random((32, 1000), np.float32), np.zeros((32, 1000), np.float32)
    with pytest.raises(UnavailableError, match=r"256 threads a program.* 64"):
        library("softmax")(x, y, on="metal")


@pytest.mark.parametrize(
    ("dtype", "width", "names"),
    [
        ("bfloat16", 192, ("attention_forward", "attention_backward_kv", "attention_backward_q")),
        ("bfloat16", 256, ("attention_forward", "attention_backward_kv", "attention_backward_q")),
        ("float32", 128, ("attention_forward", "attention_backward_kv", "attention_backward_q")),
        ("float32", 192, ("attention_forward", "attention_backward_kv", "attention_backward_q")),
        ("float32", 256, ("attention_forward", "attention_backward_kv", "attention_backward_q")),
    ],
)
def test_heads_fit_into_registers(dtype: str, width: int, names: tuple[str, ...]) -> None:
    heads, rows = spec(dtype, (2, 4, 1024, width)), spec("float32", (2, 4, 1024))
    arguments = {
        "attention_forward": (*[heads] * 4, rows),
        "attention_backward_kv": (*[heads] * 4, rows, rows, heads, heads),
        "attention_backward_q": (*[heads] * 4, rows, rows, heads),
    }
    for name in names:
        taken = library(name).resources("metal", *arguments[name], scale=0.1, right=0)
        assert taken["predicted_registers"] <= 128 and taken["shared_bytes"] <= 32768


def test_tiles_that_find_no_room_are_read_where_they_lie() -> None:
    heads, rows = spec("float32", (1, 1, 64, 256)), spec("float32", (1, 1, 64))
    kernel = library("attention_backward_kv")
    arguments = (*[heads] * 4, rows, rows, heads, heads)
    plan = kernel.plan("metal", *arguments, scale=0.1)
    assert plan.streamed and "is not staged: no shared memory is left for it" in str(plan)
    assert plan.shared_bytes <= 32768
    roomy = kernel.plan("metal", *[spec("bfloat16", (1, 1, 64, 64))] * 4, rows, rows, *[heads] * 2, scale=0.1)
    assert not roomy.streamed


@pytest.mark.sim
@pytest.mark.parametrize(("dtype", "width"), [("float32", 256), ("bfloat16", 256), ("float32", 192)])
def test_gradients_of_wide_heads(dtype: str, width: int) -> None:
    import ml_dtypes

    kind = np.float32 if dtype == "float32" else ml_dtypes.bfloat16
    rng = np.random.default_rng(3)
    q, k, v, do = (rng.standard_normal((1, 1, n, width)).astype(kind) for n in (21, 37, 37, 21))
    o, lse = kt.ops.attention(q, k, v, causal=True, return_lse=True, on="numpy")
    want = kt.ops.attention_backward(q, k, v, o, lse, do, causal=True, on="numpy")
    got = kt.ops.attention_backward(q, k, v, o, lse, do, causal=True, on=ON)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(
            x.astype(np.float32), y.astype(np.float32), atol=1e-4 if dtype == "float32" else 0.05
        )


def test_more_threadgroup_memory_than_planned_is_an_error(mac) -> None:
    x, y = RNG.random((32, 100), np.float32), np.zeros((32, 100), np.float32)
    mac.DEVICES[0].shared_bytes = 4096
    with pytest.raises(InternalError, match="4096 bytes of shared memory, its plan says"):
        library("softmax").compile("metal", x, y)
    mac.DEVICES[0].shared_bytes = 65536
    with pytest.raises(UnavailableError, match="has 32768"):
        library("softmax").compile("metal", x, y)


def test_what_needs_too_many_registers_is_neither_compiled_nor_launched(mac) -> None:
    a = np.zeros((128, 64), np.float16)
    c = np.zeros((128, 128), np.float32)
    for attempt in (
        library("matmul"),
        lambda *args, **more: library("matmul").compile(
            "metal", *args, **{k: v for k, v in more.items() if k != "on"}
        ),
    ):
        with pytest.raises(UnavailableError, match="needs about"):
            attempt(a, a.T, c, on="metal", BM=128, BN=128, BK=64)


def test_the_compilers_words_are_told(mac) -> None:
    x, y = RNG.random((32, 100), np.float32), np.zeros((32, 100), np.float32)
    kernel = library("softmax").compile("metal", x, y)
    broken = type(kernel)(**{**vars(kernel), "source": "#error"})
    with pytest.raises(InternalError, match="error: told to"):
        metal_launch.run_saved(
            kt.targets.parse("metal"), broken, {"x": adopt(x, "x"), "y": adopt(y, "y")}, (1, 1)
        )


# ---- away from a Mac


def test_elsewhere_a_text_is_checked_and_never_called_compiled() -> None:
    x = spec("float32", (32, 100))
    assert library("softmax").resources("metal:apple8", x, x)["stage"] == "checked"


def test_a_text_with_a_fault_is_found_by_the_check() -> None:
    from kittens import sim
    from kittens.backends.metal.sim import VENDOR

    text = source("softmax").replace("kt_barrier();", "kt_barrier(threadgroup_size);", 1)
    with pytest.raises(sim.BuildError, match="threadgroup_size"):
        sim.check(text, VENDOR, "softmax_kernel", "apple7")
