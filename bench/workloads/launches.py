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
    place = {} if on == "cuda" else {"on": on}  # the default is where the arrays live

    def call():
        increment(x, y, **place)
        return y

    return call


def _on_cupy(on, x, y):
    cupy = peers.cupy()
    call = _ours(on, cupy.from_dlpack(x), cupy.from_dlpack(y))

    def and_give():
        call()
        return y

    return and_give


def _workload(name, arrays, ours):
    summary = f"the host's time of a launch with two {arrays} of 256 numbers"
    return Workload(name, summary, _inputs, ours, peers.INCREMENT, host=True)


WORKLOADS = [
    _workload("launch.increment", "tensors of torch", _ours),
    _workload("launch.increment.cupy", "arrays of CuPy", _on_cupy),
]
