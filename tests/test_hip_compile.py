"""Every library kernel compiles for every AMD architecture at its shipped tile sizes, without spills."""

from __future__ import annotations

import pytest

from kittens.arguments import spec
from kittens.backends.hip.compile import available
from kittens.backends.hip.fragments import LANES
from kittens.examples import EXAMPLES, library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(available()), reason=available() or "the compiler is there"),
]


@pytest.mark.parametrize("arch", LANES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_compiles_without_spills(name, arch):
    example = EXAMPLES[name]
    compiled = library(name).compile(f"hip:{arch}", *example.args, **example.constants)
    assert compiled.resources["spilled"] == compiled.resources["scratch_bytes"] == 0
    assert compiled.resources["scalar_spills"] == 0
    assert compiled.code.startswith(b"\x7fELF")
    assert compiled.asm


@pytest.mark.parametrize("size", [256, 4096])
@pytest.mark.parametrize(
    "dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int8"]
)
@pytest.mark.parametrize("arch", LANES)
def test_products_of_eight_bits_compile_without_spills(arch, dtype, size):
    """Float8 that the architecture has no instruction for takes registers in both forms: tiles as of 16 bits spilled."""
    a, c = spec(dtype, (size, size)), spec("int32" if dtype == "int8" else "bfloat16", (size, size))
    taken = library("matmul").resources(f"hip:{arch}", a, a, c)
    assert taken["spilled"] == taken["scratch_bytes"] == 0


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize(
    ("dtype", "width"),
    [("bfloat16", 32), ("bfloat16", 192), ("bfloat16", 256), ("float32", 128), ("float32", 256)],
)
def test_gradients_of_heads_of_any_width_compile_without_spills(arch, dtype, width):
    heads, rows = spec(dtype, (2, 4, 1024, width)), spec("float32", (2, 4, 1024))
    arguments = (heads, heads, heads, heads, rows, rows, heads, heads)
    taken = library("attention_backward_kv").resources(f"hip:{arch}", *arguments, scale=0.1, right=0)
    assert taken["spilled"] == taken["scalar_spills"] == 0


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("left", [None, 511])
@pytest.mark.parametrize(
    ("dtype", "width"), [("bfloat16", 64), ("bfloat16", 192), ("float16", 256), ("float32", 256)]
)
def test_gradients_of_packed_heads_compile_without_spills(arch, dtype, width, left):
    """A window takes registers that a causal mask does not, and sequences more than dense tensors."""
    q, k, rows = spec(dtype, (8, 4097, width)), spec(dtype, (2, 4093, width)), spec("float32", (8, 4097))
    bounds = spec("int32", (9,))
    arguments = (q, k, k, bounds, bounds, 4093, q, rows, rows, k, k)
    kernel = library("attention_varlen_backward_kv")
    taken = kernel.resources(f"hip:{arch}", *arguments, scale=0.1, left=left, right=0)
    assert taken["spilled"] == taken["scratch_bytes"] == 0


@pytest.mark.parametrize(("dtype", "shapes"), [("float8_e4m3fn", (65, 63, 129)), ("int8", (65, 63, 129))])
def test_products_whose_scalars_the_compiler_keeps_in_vector_registers(dtype, shapes):
    m, n, k = shapes
    a, b, c = (
        spec(dtype, (m, k)),
        spec(dtype, (k, n)),
        spec("float32" if dtype[0] == "f" else "int32", (m, n)),
    )
    assert library("matmul").compile("hip:gfx950", a, b, c).code.startswith(b"\x7fELF")
