"""Attention forward, backward, of packed sequences, over a group of heads and in decoding, beside cuDNN's by way of torch."""

from __future__ import annotations

import itertools

import kittens as kt
from kittens.bench.workload import Workload
from kittens.bench.workloads import torch_peers as peers

_TYPE = "bfloat16"
_TOKENS = 16384  # of all sequences together
_WIDTH = 2048  # of all heads together


def _qkv(device, b, h, hk, nq, nk, d):
    return {
        "q": device.normal((b, h, nq, d), _TYPE),
        "k": device.normal((b, hk, nk, d), _TYPE),
        "v": device.normal((b, hk, nk, d), _TYPE),
    }


def _flops(b, h, nq, nk, d, causal):
    """Of the two products forward; a causal mask leaves half of them, as everybody counts."""
    return 4.0 * b * h * nq * nk * d * (0.5 if causal else 1.0)


def forward(name, b, h, hk, nq, nk, d, causal):
    def inputs(device):
        return {**_qkv(device, b, h, hk, nq, nk, d), "out": device.empty((b, h, nq, d), _TYPE)}

    def ours(on, q, k, v, out):
        return lambda: kt.ops.attention(q, k, v, causal=causal, out=out, on=on)

    return Workload(
        f"attention.{name}", f"B={b} H={h}/{hk} N={nq}/{nk} D={d} {'causal' if causal else 'full'}, {_TYPE}",
        inputs, ours, peers.attention(causal), flops=_flops(b, h, nq, nk, d, causal),
        bytes=2.0 * d * (2 * b * h * nq + 2 * b * hk * nk), unit=_TYPE, tolerance=1.0,
    )  # fmt: skip


def backward(name, b, h, hk, n, d, causal, *, deterministic=True):
    """All gradients, from the results of each one's own forward pass, which is not timed."""

    def inputs(device):
        return {**_qkv(device, b, h, hk, n, n, d), "do": device.normal((b, h, n, d), _TYPE)}

    def ours(on, q, k, v, do):
        o, lse = kt.ops.attention(q, k, v, causal=causal, return_lse=True, on=on)
        return lambda: kt.ops.attention_backward(
            q, k, v, o, lse, do, causal=causal, deterministic=deterministic, on=on
        )

    order, mask = "" if deterministic else ", unordered", "causal" if causal else "full"
    return Workload(
        f"attention.{name}", f"backward{order}, B={b} H={h}/{hk} N={n} D={d} {mask}, {_TYPE}",
        inputs, ours, peers.attention_backward(causal), flops=2.5 * _flops(b, h, n, n, d, causal),
        bytes=2.0 * d * (4 * b * h * n + 4 * b * hk * n), unit=_TYPE, tolerance=2.0,
    )  # fmt: skip


def _packed(device, lengths, h, d):
    total = sum(lengths)
    bounds = device.numbers(itertools.accumulate(lengths, initial=0))
    qkv = {name: device.normal((total, h, d), _TYPE) for name in "qkv"}
    return {**qkv, "cu": bounds, "longest": max(lengths)}


def packed_forward(name, lengths, h, d, causal):
    """Of sequences of these lengths, one after another."""

    def inputs(device):
        return {**_packed(device, lengths, h, d), "out": device.empty((sum(lengths), h, d), _TYPE)}

    def ours(on, q, k, v, cu, longest, out):
        return lambda: kt.ops.attention_varlen(q, k, v, cu, cu, longest, causal=causal, out=out, on=on)

    return Workload(
        f"attention.{name}", f"packed, {_said(lengths)} H={h} D={d} {'causal' if causal else 'full'}, {_TYPE}",
        inputs, ours, peers.packed_attention(causal), flops=sum(_flops(1, h, n, n, d, causal) for n in lengths),
        bytes=2.0 * d * 4 * h * sum(lengths), unit=_TYPE, tolerance=1.0,
    )  # fmt: skip


def packed_backward(name, lengths, h, d, causal):
    """All gradients, from the results of each one's own forward pass, which is not timed."""

    def inputs(device):
        return {**_packed(device, lengths, h, d), "do": device.normal((sum(lengths), h, d), _TYPE)}

    def ours(on, q, k, v, cu, longest, do):
        o, lse = kt.ops.attention_varlen(q, k, v, cu, cu, longest, causal=causal, return_lse=True, on=on)
        given = (q, k, v, o, lse, do, cu, cu, longest, longest)
        return lambda: kt.ops.attention_varlen_backward(*given, causal=causal, on=on)

    return Workload(
        f"attention.{name}", f"packed backward, {_said(lengths)} H={h} D={d} {'causal' if causal else 'full'}, {_TYPE}",
        inputs, ours, peers.packed_attention_backward(causal),
        flops=2.5 * sum(_flops(1, h, n, n, d, causal) for n in lengths), bytes=2.0 * d * 8 * h * sum(lengths),
        unit=_TYPE, tolerance=2.0,
    )  # fmt: skip


def _said(lengths):
    least, most = min(lengths), max(lengths)
    return f"{len(lengths)} sequences of {least if least == most else f'{least} to {most}'}"


#: Packed sequences: all alike, and as they come.
_PACKED = {"even": (2048,) * 8, "ragged": (4096, 1000, 3000, 500, 2500, 200, 4000, 1088)}

_CASES = [
    (d, causal, n) for d in (128, 64) for causal in (False, True) for n in (1024, 2048, 4096, 8192, 16384)
]


def _name(kind, d, causal, n):
    return f"{kind}.d{d}.{'causal' if causal else 'full'}.{n}"


WORKLOADS = [
    *(
        forward(_name("forward", d, c, n), _TOKENS // n, _WIDTH // d, _WIDTH // d, n, n, d, c)
        for d, c, n in _CASES
    ),
    *(
        backward(_name(name, d, c, n), _TOKENS // n, _WIDTH // d, _WIDTH // d, n, d, c, deterministic=ordered)
        for name, ordered in (("backward", True), ("backward.unordered", False))
        for d, c, n in _CASES
    ),
    *(forward(_name("forward.gqa", 128, c, 8192), 4, 64, 8, 8192, 8192, 128, c) for c in (False, True)),
    *(
        backward(_name(name, 128, c, 8192), 4, 64, 8, 8192, 128, c, deterministic=ordered)
        for name, ordered in (("backward.gqa", True), ("backward.gqa.unordered", False))
        for c in (False, True)
    ),
    *(
        packed(f"packed.{_name(kind, d, causal, mix)}", lengths, _WIDTH // d, d, causal)
        for kind, packed in (("forward", packed_forward), ("backward", packed_backward))
        for d in (128, 64)
        for causal in (False, True)
        for mix, lengths in _PACKED.items()
    ),
    *(forward(f"decode.d{d}.{nq}x16384", 16, 32, 8, nq, 16384, d, False) for d in (128, 64) for nq in (1, 4)),
]
