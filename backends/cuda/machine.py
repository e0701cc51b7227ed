"""NVIDIA GPUs as the shared planner sees them: the portable path of mma.sync, ldmatrix and cp.async."""

from __future__ import annotations

from collections.abc import Sequence

from kittens.backends.cuda.fragments import ACCESSES, LANES, MATRIX_MOVES, MMA, SEGMENT, SWIZZLES
from kittens.codegen import Dialect, Machine, MatrixOp, Move

#: Shared memory that one program may use, by architecture, in bytes (CUDA programming guide, compute capabilities).
SHARED_BYTES = {"sm_80": 166912, "sm_86": 101376, "sm_89": 101376, "sm_90a": 232448}
DEFAULT = "sm_90a"

_PRODUCTS = (
    ("m16n8k16", "bfloat16", "kt_mma_m16n8k16_bf16"),
    ("m16n8k16", "float16", "kt_mma_m16n8k16_f16"),
    ("m16n8k32_fp8", "float8_e4m3fn", "kt_mma_m16n8k32_e4m3fn"),
    ("m16n8k32_fp8", "float8_e5m2", "kt_mma_m16n8k32_e5m2"),
    ("m16n8k32_int8", "int8", "kt_mma_m16n8k32_s8"),
)


def _call(function: str, d: Sequence[str], a: Sequence[str], b: Sequence[str]) -> str:
    return f"{function}({', '.join([*d, *a, *b])});"


def _products(arch: str) -> tuple[MatrixOp, ...]:
    return tuple(
        MatrixOp(MMA[name], dtype, lambda d, a, b, f=function: _call(f, d, a, b))  # type: ignore[misc]
        for name, dtype, function in _PRODUCTS
        if arch in MMA[name].targets
    )


def _moves() -> tuple[Move, ...]:
    return tuple(
        Move(
            MATRIX_MOVES[name],
            16,
            8,
            lambda words, at, f=f"kt_ldmatrix_{name.replace('.', '_')}": _call(f, words, [], [at]),  # type: ignore[misc]
            access=ACCESSES["ldmatrix.x4"] if name.startswith("x4") else None,
        )
        for name in ("x4", "x4.trans", "x2", "x2.trans")
    )


def _entry(name: str, parameters: Sequence[tuple[str, str]], threads: int, shared: int) -> str:
    listed = ", ".join(f"{c} {n}" for c, n in parameters)
    return f'extern "C" __global__ void KT_THREADS({threads}) {name}({listed}) {{'


DIALECT = Dialect("kt_cuda.h", _entry, ".cu")


def machine(arch: str) -> Machine:
    """The machine of an architecture such as sm_80."""
    return Machine(
        target=f"cuda:{arch}",
        arch=arch,
        lanes=LANES,
        shared_bytes=SHARED_BYTES[arch],
        max_threads=1024,
        registers=255,
        dialect=DIALECT,
        products=_products(arch),
        moves=_moves(),
        swizzles=SWIZZLES,
        segment=SEGMENT,
        reads={size: ACCESSES[f"b{8 * size}"] for size in (4, 8, 16)},
        stages=4 if arch == "sm_90a" else 3,
    )
