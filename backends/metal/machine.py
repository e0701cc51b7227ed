"""Apple GPUs as the shared planner sees them: simdgroups of 32 lanes, 8x8 matrix products, plain copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kittens.backends.metal.fragments import LANES, PAD, SIMDGROUP_MATRIX, SWIZZLES
from kittens.backends.metal.text import pasted
from kittens.codegen import Dialect, Machine, MatrixOp

DEFAULT = "apple7"

#: Threadgroup memory of one program, in bytes (Apple, Metal feature set tables).
SHARED_BYTES = 32768

#: 32-bit registers of a thread (dougallj, applegpu). With more than about half of them a core is not full.
REGISTERS = 128

_PRODUCTS = (("bfloat16", "bf16"), ("float16", "f16"), ("float32", "f32"))

#: Types that half holds exactly: every 8-bit float and integer.
_THROUGH_HALF = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int8")

#: Kinds of parameters that are pointers; all others are members of one structure.
_POINTERS = ("kt_in", "kt_out")


def _call(function: str, d: Sequence[str], a: Sequence[str], b: Sequence[str]) -> str:
    return f"{function}({', '.join([*d, *a, *b])});"


def _tiles(short: str, counts: tuple[int, int], d: str, a: str, b: str) -> str:
    return f"kt_mma_tiles_{short}<{counts[0]}, {counts[1]}>({d}, {a}, {b});"


def _products() -> tuple[MatrixOp, ...]:
    taken = {
        dtype: MatrixOp(
            SIMDGROUP_MATRIX, dtype, partial(_call, f"kt_mma_8x8x8_{short}"), tiles=partial(_tiles, short)
        )
        for dtype, short in _PRODUCTS
    }
    through = [replace(taken["float16"], dtype=d, through="float16") for d in _THROUGH_HALF]
    return (*taken.values(), *through)


def _entry(name: str, parameters: Sequence[tuple[str, str]], threads: int, shared: int) -> str:
    """Tensors are buffers 0, 1, ..; all else is in one structure behind them: Metal has 31 buffers."""
    pointers = [(c, n) for c, n in parameters if c in _POINTERS]
    rest = [(c, n) for c, n in parameters if c not in _POINTERS]
    listed = [f"{c} {n} [[buffer({i})]]" for i, (c, n) in enumerate(pointers)]
    lines = []
    if rest:
        lines += [f"struct {name}_numbers {{", *(f"  {c} {n};" for c, n in rest), "};"]
        listed.append(f"constant {name}_numbers& kt_n [[buffer({len(pointers)})]]")
    lines.append(f"kernel void {name}({', '.join([*listed, 'KT_IDS'])}) {{")
    lines += [f"  const {c} {n} = kt_n.{n};" for c, n in rest]
    return "\n".join(lines)


DIALECT = Dialect("kt_metal.h", _entry, ".metal", packed=True, counter="kt_i32", finish=pasted)


def machine(arch: str) -> Machine:
    """The machine of a family such as apple7; all of them plan alike today.

    Staging costs more than it saves where few simdgroups read a tile (reported for products of 4096 cubed on
    M4 Pro: 5.8 against 5.4 TFLOPS). Keys and values of attention, which all of them read, are staged, once:
    room for a second stage is worth more as occupancy.

    Integers of 64 bits are added in two halves: MSL has 64-bit minima and maxima only. Programs that wait for turns are
    started one by one: MSL promises no threadgroup that it goes on while others wait, nor acquires and releases before
    version 3.2, but what one dispatch wrote, the next one of an encoder sees.
    """
    return Machine(
        target=f"metal:{arch}",
        arch=arch,
        lanes=LANES,
        shared_bytes=SHARED_BYTES,
        max_threads=1024,
        registers=REGISTERS,
        dialect=DIALECT,
        products=_products(),
        swizzles=SWIZZLES,
        pad=PAD,
        stages=1,
        direct=2,
        logs=True,
        turns=True,
        alone=True,
    )
