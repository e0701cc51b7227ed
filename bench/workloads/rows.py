"""Kernels that memory bounds: rows of a matrix in, rows out."""

from __future__ import annotations

import kittens as kt
from kittens.bench.workload import Workload
from kittens.bench.workloads import torch_peers as peers

_TYPE = "bfloat16"


def _by(shape):
    return "x".join(map(str, shape))


def _count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def rows(name, shape, ours, others, inputs, *, tensors=2, summary="", **more):
    """A workload over tensors of one shape, `tensors` of which are read or written once each."""
    return Workload(
        f"{name}.{_by(shape)}", summary or f"{name} of {_by(shape)}, {_TYPE}", inputs, ours, others,
        bytes=2.0 * tensors * _count(shape), **more,
    )  # fmt: skip


def softmax(*shape):
    def inputs(device):
        return {"x": device.normal(shape, _TYPE), "out": device.empty(shape, _TYPE)}

    return rows(
        "softmax", shape, lambda on, x, out: lambda: kt.ops.softmax(x, out=out, on=on), peers.SOFTMAX, inputs
    )


def gelu(*shape):
    def inputs(device):
        return {"x": device.normal(shape, _TYPE), "out": device.empty(shape, _TYPE)}

    return rows("gelu", shape, lambda on, x, out: lambda: kt.ops.gelu(x, out=out, on=on), peers.GELU, inputs)


def rms_norm(*shape):
    def inputs(device):
        weight = device.normal(shape[-1:], _TYPE)
        return {"x": device.normal(shape, _TYPE), "weight": weight, "out": device.empty(shape, _TYPE)}

    def ours(on, x, weight, out):
        return lambda: kt.ops.rms_norm(x, weight, eps=peers.EPS, out=out, on=on)

    return rows("rms_norm", shape, ours, peers.RMS_NORM, inputs)


def layer_norm(*shape):
    def inputs(device):
        weight, bias = (device.normal(shape[-1:], _TYPE) for _ in range(2))
        return {
            "x": device.normal(shape, _TYPE),
            "weight": weight,
            "bias": bias,
            "out": device.empty(shape, _TYPE),
        }

    def ours(on, x, weight, bias, out):
        return lambda: kt.ops.layer_norm(x, weight, bias, eps=peers.EPS, out=out, on=on)

    return rows("layer_norm", shape, ours, peers.LAYER_NORM, inputs)


def dropout_residual_layer_norm(*shape):
    """Masks cannot be equal to torch's: the check takes ours from our sum, and computes the rest by torch's formula."""

    def inputs(device):
        weight, bias = (device.normal(shape[-1:], _TYPE) for _ in range(2))
        return {
            "x": device.normal(shape, _TYPE),
            "residual": device.normal(shape, _TYPE),
            "weight": weight,
            "bias": bias,
        }

    def ours(on, x, residual, weight, bias):
        return lambda: kt.ops.dropout_residual_layer_norm(
            x, residual, weight, bias, p=peers.DROPPED, seed=1, eps=peers.EPS, on=on
        )

    return rows(
        "dropout_residual_layer_norm", shape, ours, peers.DROPOUT_RESIDUAL_LAYER_NORM, inputs, tensors=4,
        check=peers.check_dropout,
    )  # fmt: skip


def rotary(*shape):
    n, d = shape[-2:]

    def inputs(device):
        angles = device.uniform((n, d // 2), "float32") * 6.28
        return {"x": device.normal(shape, _TYPE), "cos": angles.cos(), "sin": angles.sin()}

    def ours(on, x, cos, sin):
        return lambda: kt.ops.rotary(x, cos, sin, on=on)

    return rows("rotary", shape, ours, peers.ROTARY, inputs)


def cross_entropy(*shape):
    def inputs(device):
        return {"logits": device.normal(shape, _TYPE), "labels": device.integers(shape[:1], shape[1])}

    def ours(on, logits, labels):
        return lambda: kt.ops.cross_entropy(logits, labels, on=on)

    return rows("cross_entropy", shape, ours, peers.CROSS_ENTROPY, inputs, tensors=1)


WORKLOADS = [
    softmax(65536, 4096),
    rms_norm(65536, 4096),
    layer_norm(65536, 4096),
    dropout_residual_layer_norm(16, 4096, 2048),
    rotary(16, 16, 2048, 128),
    cross_entropy(8192, 32000),
    gelu(65536, 4096),
]
