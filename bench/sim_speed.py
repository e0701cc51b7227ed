"""How fast the simulator multiplies matrices: on one core, with and without its checks, and on all cores.

    python -m kittens.bench.sim_speed          (or: python bench/sim_speed.py)

It runs the test suite's tiled kernels, so it needs a checkout.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from kittens.backends.cuda.sim import VENDOR as CUDA
from kittens.backends.hip.sim import VENDOR as HIP
from kittens.backends.metal.sim import VENDOR as METAL
from kittens.sim import Program, build

KERNELS = Path(__file__).resolve().parents[1] / "tests" / "sim_kernels"

# file, vendor, architecture, threads of a program, bytes of shared memory, type of the operands
CASES = (
    ("gemm.cu", CUDA, "sm_80", 128, 3 * 8192, ml_dtypes.bfloat16),
    ("gemm.hip", HIP, "gfx942", 256, 2 * 8192, ml_dtypes.bfloat16),
    ("gemm.hip", HIP, "gfx950", 256, 2 * 8192, ml_dtypes.bfloat16),
    ("gemm.metal", METAL, "apple7", 128, 9728, np.float16),
)


def gflops(program: Program, threads: int, shared: int, dtype: type, size: int, **options: Any) -> float:
    """The best of three products of `size` cubed. On one core by the time it had, whoever else is there."""
    clock = time.process_time if options.get("workers") == 1 else time.perf_counter
    a, b = np.random.default_rng(0).standard_normal((2, size, size)).astype(dtype)
    c = np.zeros((size, size), np.float32)
    best = float("inf")
    for _ in range(3):
        start = clock()
        program.run((size // 64, size // 64), threads, [a, b, c, size, size, size], shared, **options)
        best = min(best, clock() - start)
    return 2 * size**3 / best / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=256, help="of the square matrices, a multiple of 64")
    size = parser.parse_args().size
    print(f"GFLOP/s; {os.cpu_count()} cores")
    print(f"{'kernel':24}{'unchecked':>12}{'checked':>12}{'checked, all cores':>22}")
    for file, vendor, arch, threads, shared, dtype in CASES:
        program = build((KERNELS / file).read_text(), vendor, "gemm", arch)
        one, checked, every = (
            gflops(program, threads, shared, dtype, size, **options)
            for options in ({"workers": 1, "checks": False}, {"workers": 1}, {})
        )
        print(f"{vendor.name + ':' + arch:24}{one:12.2f}{checked:12.2f}{every:22.2f}")


if __name__ == "__main__":
    main()
