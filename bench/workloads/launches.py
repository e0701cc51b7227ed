"""What a launch costs the host: kernels that do next to nothing, one after another."""

from __future__ import annotations

import kittens as kt
from kittens.bench.workload import Workload
from kittens.bench.workloads import torch_peers as peers


@kt.kernel(grid=lambda x, BLOCK: kt.cdiv(x.shape[0], BLOCK))
def increment(x, y, *, BLOCK=kt.tunable(256)):
    """y = x + 1."""
    i = kt.program_id()
    kt.store(y, i, kt.load(x, i, BLOCK) + 1.0)


def _inputs(device):
    return {"x": device.normal((256,), "float32"), "y": device.empty((256,), "float32")}


def _ours(on, x, y):
    def call():
        increment(x, y, on=on)
        return y

    return call


WORKLOADS = [
    Workload(
        "launch.increment",
        "the host's time of a launch with two tensors of 256 numbers",
        _inputs,
        _ours,
        peers.INCREMENT,
        host=True,
    )
]
