"""AMD GPUs as the shared planner sees them: MFMA on CDNA (64 lanes), WMMA on RDNA (32 lanes).

Products are computed as D^T = B^T A^T: an accumulator's registers run down a column of the instruction's D,
which is then a row of ours, so that rows are reduced in registers and results are stored in wide pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kittens.arguments import Argument, TensorArg
from kittens.artifact import Artifact, Parameter
from kittens.backends.hip.fragments import ACCESSES, LANES, MFMA, TRANSPOSING_READS, WMMA
from kittens.codegen import Dialect, Machine, MatrixOp, Move
from kittens.codegen.emit.writer import NARROW
from kittens.codegen.pipeline import planned
from kittens.errors import UnavailableError
from kittens.ir import Function
from kittens.layouts import Product, Xor, flip

#: LDS that one program may use, in bytes (LLVM AMDGPU usage; clang refuses more).
SHARED_BYTES = {"gfx942": 65536, "gfx950": 163840, "gfx1100": 65536, "gfx1201": 65536}
DEFAULT = "gfx950"

_SHORT = {
    "bfloat16": "bf16", "float16": "f16", "float32": "f32", "int8": "i8", "float8_e4m3fn": "e4m3fn",
    "float8_e5m2": "e5m2", "float8_e4m3fnuz": "e4m3fnuz", "float8_e5m2fnuz": "e5m2fnuz",
}  # fmt: skip

#: Instructions by preference: the name in the tables, and the shape in the function's name.
_MFMA = (
    ("f32_16x16x32", "16x16x32"), ("f32_16x16x16", "16x16x16"), ("f32_16x16x4f32", "16x16x4"),
    ("f32_16x16x128_f8f6f4_8bit", "16x16x128"), ("f32_16x16x32_fp8", "16x16x32"),
    ("f32_16x16x32_fp8_fnuz", "16x16x32"), ("i32_16x16x64_i8", "16x16x64"), ("i32_16x16x32_i8", "16x16x32"),
    ("f32_32x32x16", "32x32x16"), ("f32_32x32x8", "32x32x8"),
)  # fmt: skip


def _joined(arch: str) -> list[tuple[Product, str]]:
    """Several instructions as one of a longer k, for operands that are read in 16 bytes a lane."""
    wide, half, word = MFMA["i32_16x16x64_i8"].a, MFMA["f32_16x16x32"].a, MFMA["f32_16x16x16"].a
    rows = {
        "gfx942": (
            (2, "f32_16x16x16", half, "16x16x32"), (2, "i32_16x16x32_i8", wide, "16x16x64"),
            (2, "f32_16x16x32_fp8_fnuz", wide, "16x16x64"), (4, "f32_16x16x4f32", word, "16x16x16"),
        ),
        "gfx950": ((2, "f32_16x16x32_fp8", wide, "16x16x64"), (4, "f32_16x16x4f32", word, "16x16x16")),
    }  # fmt: skip
    return [
        (replace(MFMA[name], name=f"{count} {name}", a=a, b=flip(a)), f"kt_mfma_{shape}")
        for count, name, a, shape in rows.get(arch, ())
    ]


def _matrix_op(product: Product, dtype: str, function: str) -> MatrixOp:
    tall = product.shape.m == 32  # a row of ours is in half as many lanes as with 16
    return MatrixOp(product, dtype, lambda d, a, b: f"{function}(&{d[0]}, &{a[0]}, &{b[0]});", lined=tall)


def _products(arch: str) -> tuple[MatrixOp, ...]:
    named = [(MFMA[name], f"kt_mfma_{shape}") for name, shape in _MFMA]
    # before what they are made of; float8's on gfx950 behind its own instruction of K = 128
    joined = _joined(arch)
    named[4:4] = joined[:1] if arch == "gfx950" else []
    named[:0] = joined[1:] if arch == "gfx950" else joined
    named += [(p, "kt_wmma_16x16x16") for p in WMMA.values()]
    found = [(p, function) for p, function in named if arch in p.targets]
    native = [
        _matrix_op(p, dtype, f"{function}_{_SHORT[dtype]}")
        for p, function in found
        for dtype in p.dtypes
        if dtype in _SHORT and (arch, dtype) != ("gfx1201", "float8_e5m2")
    ]
    # Other 8-bit floats are converted: bfloat16 holds them exactly.
    wide = [op for op in native if op.dtype == "bfloat16"]
    other = [n for n in _SHORT if n.startswith("float8") and all(op.dtype != n for op in native)]
    return (*native, *(replace(op, dtype=name, through="bfloat16") for name in other for op in wide))


def _read(function: str, words: Sequence[str], at: str) -> str:
    return f"{{ const kt_u32x2 got = {function}({at}); {words[0]} = got.x; {words[1]} = got.y; }}"


def _moves(arch: str) -> tuple[Move, ...]:
    if arch != "gfx950":
        return ()
    return tuple(
        Move(
            TRANSPOSING_READS[f"ds_read_b64_tr_b{bits}"],
            bits,
            64 // bits,
            partial(_read, f"kt_ds_read_tr{bits}_b64"),
            ACCESSES[arch].get(f"ds_read_b64_tr_b{bits}", ACCESSES[arch]["ds_read_b64"]),
        )
        for bits in (16, 8)
    )


#: Found by kittens.layouts.find_swizzle: for rows read by transposing reads, and for 8-byte reads.
_MORE_SWIZZLES: dict[int, tuple[tuple[Xor, ...], ...]] = {
    128: (
        (Xor(7, 3, 4),),
        (Xor(7, 2, 5),),
        (Xor(9, 2, 6),),
        (Xor(7, 3, 4), Xor(10, 1, 6)),
        (Xor(7, 2, 5), Xor(10, 1, 4)),
    ),
    64: ((Xor(8, 2, 4),),),
}


_PLAIN = re.compile(r"ds_read_[bu]\d+")


def _entry(name: str, parameters: Sequence[tuple[str, str]], threads: int, shared: int) -> str:
    listed = ", ".join(f"{c} {n}" for c, n in parameters)
    return f'extern "C" __global__ void KT_THREADS({threads}) {name}({listed}) {{'


DIALECT = Dialect("kt_hip.h", _entry, ".hip", counter="kt_i32")


#: Bytes from a row to the next that linear copies manage: they add up to 256 rows in 32 bits.
PITCH = 1 << 23


def machine_for(arch: str, function: Function, arguments: dict[str, Argument]) -> Machine:
    """The machine for some arguments: one that takes all of them where they lie too far apart for the usual one."""
    near = machine(arch)
    source = planned(function, near)[1]
    if not far(source.text, source.parameters, arguments):
        return near
    return wide_machine(arch)


def wide_machine(arch: str) -> Machine:
    """The machine for arguments that the usual one does not take."""
    return replace(machine(arch), target=f"hip:{arch} (far rows)", linear=(), buffers=(), narrow=False)


def far(text: str, parameters: Sequence[Parameter], arguments: dict[str, Argument]) -> bool:
    """Whether an emitted kernel does not take some arguments: rows that it copies linearly lie too far apart for that, or
    backwards, or a number is not one of those that its parameter holds.
    """
    pitches = set(re.findall(r"\bpitch\w* = kt_u32\((\w+)\)", text))
    for p in parameters:
        argument = arguments.get(p.name)
        if not isinstance(argument, TensorArg) or p.kind not in ("extent", "stride"):
            continue
        number = argument.strides[p.axis] if p.kind == "stride" else argument.shape[p.axis]
        if p.ctype == "kt_u32" and not 0 <= number < 2**32:
            return True
        if p.kind == "stride" and p.text.removesuffix(NARROW) in pitches:
            if not 0 <= number * argument.dtype.bytes < PITCH:
                return True
    return False


def check_saved(artifact: Artifact, arguments: dict[str, Argument]) -> None:
    """Raise UnavailableError for arguments that saved code does not take."""
    if far(artifact.source, artifact.parameters, arguments):
        raise UnavailableError(
            f"{artifact.kernel} was compiled for tensors whose rows lie closer together",
            hint="call the kernel itself",
        )


def machine(arch: str) -> Machine:
    """The machine of an architecture such as gfx950."""
    return Machine(
        target=f"hip:{arch}",
        arch=arch,
        lanes=LANES[arch],
        shared_bytes=SHARED_BYTES[arch],
        max_threads=1024,
        registers=512 if LANES[arch] == 64 else 256,
        dialect=DIALECT,
        products=_products(arch),
        moves=_moves(arch),
        swizzles={128: (Xor(8, 3, 4),), 64: (Xor(7, 2, 4),), 32: (Xor(7, 1, 4),)},
        more_swizzles=_MORE_SWIZZLES,
        reads={a.size: a for a in ACCESSES.get(arch, {}).values() if _PLAIN.fullmatch(a.name)},
        linear=(16,) if arch == "gfx950" else (),
        stages=4 if arch == "gfx950" else 2,
        long_stages=2,
        unrolled=arch == "gfx950",
        late=True,
        buffers=(16, 8, 4),
        transposed=True,
        narrow=True,
        paired=8 if arch == "gfx950" else 0,  # two groups on each of a processor's four SIMDs
        turns=True,
        logs=True,
        parts=8 if LANES[arch] == 64 else 0,  # dies of CDNA 3 and 4, as AMD's tuning guides have them
    )
