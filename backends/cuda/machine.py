"""NVIDIA GPUs as the shared planner sees them: the portable path of mma.sync, ldmatrix and cp.async."""

from __future__ import annotations

from collections.abc import Sequence

from kittens.backends.cuda import wgmma
from kittens.backends.cuda.fragments import ACCESSES, LANES, MATRIX_MOVES, MMA, SEGMENT, SWIZZLES, WGMMA
from kittens.codegen import Dialect, Engine, Instruction, Machine, MatrixOp, Move

#: Shared memory that one program may use, by architecture, in bytes (CUDA programming guide, compute capabilities).
SHARED_BYTES = {"sm_80": 166912, "sm_86": 101376, "sm_89": 101376, "sm_90a": 232448}
DEFAULT = "sm_90a"

_FLOAT8 = frozenset(("float8_e4m3fn", "float8_e5m2"))
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
        MatrixOp(
            MMA[name],
            dtype,
            lambda d, a, b, f=function: _call(f, d, a, b),  # type: ignore[misc]
            coarse=arch == "sm_89" and dtype in _FLOAT8,  # see ENGINE
        )
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


def _alone(name: str, parameters: Sequence[tuple[str, str]], threads: int, cluster: int) -> str:
    """A kernel that has a processor to itself."""
    beside = f" __cluster_dims__({cluster}, 1, 1)" if cluster > 1 else ""
    listed = ", ".join(f"KT_MAP({n})" if c == "kt_map" else f"{c} {n}" for c, n in parameters)
    return f'extern "C" __global__ void{beside} __launch_bounds__({threads}, 1) {name}({listed}) {{'


#: How an element type is called in wgmma's names. 16-bit operands may lie either way in shared memory.
_TYPES = {"bfloat16": "bf16", "float16": "f16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


def _named(i: Instruction) -> wgmma.Product:
    a, b = (_TYPES[dtype] for dtype in i.dtypes)
    return wgmma.Product(i.columns, a, b, "rs" if i.held else "ss")


def _start(i: Instruction, sums: str, first: int, a: str, b: str, add: str) -> str:
    turns = [int(i.across[1])] if i.held else [int(x) for x in i.across]
    product = _named(i)
    given = ", ".join(map(str, [*(turns if product.majors else []), first]))
    return f"{product.name}<{given}>({sums}, {a}, {b}, {add});"


def _wrappers(instructions: Sequence[Instruction], sizes: Sequence[int]) -> str:
    return wgmma.wrappers([_named(i) for i in instructions], sizes)


#: wgmma and bulk copies. Registers: the launch gives 168 (three teams) or 128 (four) a lane, and what the copying team does not
#: need the others get. Eight-bit operands must lie along K (PTX ISA, "Asynchronous warpgroup level matrix instructions"), and
#: sums of float8 keep 13 bits behind the leading one, which docs/semantics.md allows in fast products, as do those of Ada's
#: mma.sync. Hopper's mma.sync adds in float32.
ENGINE = Engine(
    team=4,
    products={
        dtype: WGMMA["m64k16" if dtype in ("bfloat16", "float16") else "m64k32_fp8"] for dtype in _TYPES
    },
    step=8,
    most=256,
    along=_FLOAT8,
    coarse=_FLOAT8,
    call=_start,
    wrappers=_wrappers,
    registers={2: (40, 232), 3: (32, 160)},
    registers_of_slices={2: (56, 224), 3: (32, 160)},
    entry=_alone,
    cluster=2,
    put=lambda address, words: _call("kt_stmatrix_x4", [address], words, []),
)


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
        turns=True,
        reads={size: ACCESSES[f"b{8 * size}"] for size in (4, 8, 16)},
        engine=ENGINE if arch == "sm_90a" else None,
        stages=4 if arch == "sm_90a" else 3,
    )
