"""Products of matrices, beside cuBLAS (by way of torch.mm and torch._scaled_mm)."""

from __future__ import annotations

import kittens as kt
from kittens.bench.workload import Workload
from kittens.bench.workloads import torch_peers as peers

NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}
_SQUARES = (2048, 4096, 8192, 16384)
#: M, N, K of the others.
_SHAPES = (
    (8192, 28672, 8192),
    (8192, 8192, 28672),
    (4096, 4096, 512),
    (128, 8192, 8192),
    (16, 8192, 8192),
    (4097, 4095, 4093),
)


#: What cuBLASLt does in the place of each way to accumulate float8: its own default is promoted too.
_FLOAT8_PEERS = {
    "full": {"cublas": False, "cublas-fast": True},
    "promoted": {"cublas": False},
    "fast": {"cublas-fast": True},
}


def matmul(m, n, k, short, transposed, accumulate="full"):
    """a (m, k) @ b (k, n); `transposed`: b's columns lie contiguous, as those of a weight do in x @ w.T."""
    dtype = NAMES[short]
    size = str(m) if m == n == k else f"{m}x{n}x{k}"

    def inputs(device):
        b = device.normal((n, k) if transposed else (k, n), dtype)
        found = {"a": device.normal((m, k), dtype), "b": b.T if transposed else b}
        return {**found, "out": device.empty((m, n), "bfloat16" if short == "fp8" else dtype)}

    def ours(on, a, b, out):
        return lambda: kt.ops.matmul(a, b, accumulate=accumulate, out=out, on=on)

    if short == "fp8":
        others = {name: peers.scaled_mm(fast) for name, fast in _FLOAT8_PEERS[accumulate].items()}
    else:
        others = {"cublas": peers.mm, "triton": peers.triton_matmul}
    itemsize = 1 if short == "fp8" else 2
    how = "" if accumulate == "full" else f", accumulation {accumulate}"
    return Workload(
        f"matmul.{short}{f'-{accumulate}' if how else ''}.{'nt' if transposed else 'nn'}.{size}",
        f"{m} x {n} x {k}, {dtype}{', b transposed' if transposed else ''}{how}",
        inputs, ours, others, flops=2.0 * m * n * k, bytes=float(itemsize * (m * k + k * n) + 2 * m * n), unit=dtype,
    )  # fmt: skip


def epilogue(n):
    """gelu(x @ w.T + bias), as in a feed-forward layer; the peers are torch's, which rounds in between."""

    def inputs(device):
        found = {"a": device.normal((n, n), "bfloat16"), "b": device.normal((n, n), "bfloat16").T}
        return {**found, "bias": device.normal((n,), "bfloat16"), "out": device.empty((n, n), "bfloat16")}

    def ours(on, a, b, bias, out):
        return lambda: kt.ops.matmul(a, b, bias=bias, activation="gelu_tanh", out=out, on=on)

    return Workload(
        f"matmul.gelu.bf16.nt.{n}", f"gelu(a @ b + bias), {n} x {n} x {n}, bfloat16, b transposed", inputs, ours,
        peers.MATMUL_GELU, flops=2.0 * n**3, bytes=6.0 * n * n, unit="bfloat16", tolerance=1.0,
    )  # fmt: skip


def scaled(n, accumulate="full"):
    """float8 with a scale for each row of a and column of b."""

    def inputs(device):
        dtype = NAMES["fp8"]
        found = {"a": device.normal((n, n), dtype), "b": device.normal((n, n), dtype).T}
        scales = {"a_scale": device.uniform((n,), "float32"), "b_scale": device.uniform((n,), "float32")}
        return {**found, **scales, "out": device.empty((n, n), "bfloat16")}

    def ours(on, a, b, a_scale, b_scale, out):
        scales = {"a_scale": a_scale, "b_scale": b_scale}
        return lambda: kt.ops.matmul(a, b, **scales, accumulate=accumulate, out=out, on=on)

    how = "" if accumulate == "full" else f", accumulation {accumulate}"
    return Workload(
        f"matmul.fp8rows{f'-{accumulate}' if how else ''}.nt.{n}",
        f"{n} x {n} x {n}, {NAMES['fp8']} with scales for rows and columns{how}", inputs, ours,
        {name: peers.row_scaled_mm(fast) for name, fast in _FLOAT8_PEERS[accumulate].items()},
        flops=2.0 * n**3, bytes=4.0 * n * n, unit=NAMES["fp8"],
    )  # fmt: skip


WORKLOADS = [
    *(matmul(n, n, n, short, t) for short in ("bf16", "fp16") for n in _SQUARES for t in (False, True)),
    *(matmul(*shape, "bf16", t) for shape in _SHAPES for t in (False, True)),
    *(matmul(n, n, n, "fp8", True, how) for how in _FLOAT8_PEERS for n in _SQUARES),
    *(scaled(8192, how) for how in _FLOAT8_PEERS),
    epilogue(8192),
]
