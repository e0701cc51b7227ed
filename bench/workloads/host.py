"""What costs time on the host: importing, tracing, calling. Limits are the project's measures."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np

import kittens as kt
from kittens.bench import Timed, bench
from kittens.examples import Example, library


@bench("host.import", "import kittens, in a fresh process, beyond starting Python and NumPy", limit=0.2)
def _import(target):
    code = "import time, numpy; t = time.perf_counter(); import kittens; print(time.perf_counter() - t)"

    def sample():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return float(done.stdout)

    return Timed(sample)


@kt.kernel(grid=lambda x, BLOCK: kt.cdiv(x.shape[0], BLOCK))
def add(x, y, z, *, BLOCK=kt.tunable(256)):
    i = kt.program_id()
    kt.store(z, i, kt.load(x, i, BLOCK) + kt.load(y, i, BLOCK))


@bench("host.call", "call a kernel of one program that adds 256 numbers")
def _call(target):
    x, y, z = (np.zeros(256, np.float32) for _ in range(3))
    return lambda: add(x, y, z, on=target)


@bench("host.matmul.512", "call matmul on 512 x 512 x 512 bfloat16", limit=0.5)
def _matmul(target):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512)).astype(ml_dtypes.bfloat16) for _ in range(2))
    return lambda: kt.ops.matmul(a, b, on=target)


def _trace(name):
    found = library(name)
    example = Example.of(found)

    def call():
        found._traces.clear()
        found.ir(*example.args, **example.constants)

    return call


@bench("host.trace.matmul", "trace matmul", limit=0.02)
def _trace_matmul(target):
    return _trace("matmul")


@bench("host.trace.attention", "trace attention forward", limit=0.02)
def _trace_attention(target):
    return _trace("attention_forward")
