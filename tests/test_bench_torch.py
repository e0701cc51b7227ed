"""The peers compute what we compute: each workload's check, on small arrays, torch on the CPU against the reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kittens.bench import race
from kittens.bench.device import TorchDevice
from kittens.bench.workload import Workload
from kittens.bench.workloads import attention, launches, products, rows

torch = pytest.importorskip("torch")


class Cpu(TorchDevice):
    """torch's CPU, for arrays and comparisons; nothing is timed."""

    def __init__(self) -> None:
        self.torch = torch
        self.device = torch.device("cpu")
        self.generator = torch.Generator().manual_seed(0)
        self.cache_bytes = 0


_VIEWED = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.int8, ml_dtypes.float8_e4m3fn),
}


def to_numpy(x: Any) -> Any:
    """A tensor as a NumPy array on the same memory, turned as it is."""
    if not isinstance(x, torch.Tensor):
        return x
    if x.dtype not in _VIEWED:
        return x.numpy()
    plain, dtype = _VIEWED[x.dtype]
    return x.view(plain).numpy().view(dtype) if x.is_contiguous() else to_numpy(x.T).T


def to_torch(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(map(to_torch, x))
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.ascontiguousarray(x).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(x))


SMALL = [
    products.matmul(128, 96, 64, "bf16", False),
    products.matmul(65, 63, 61, "fp16", True),
    products.matmul(128, 96, 64, "fp8", True),
    products.epilogue(64),
    rows.softmax(64, 512),
    rows.gelu(64, 512),
    rows.rms_norm(64, 512),
    rows.layer_norm(64, 512),
    rows.dropout_residual_layer_norm(2, 64, 512),
    rows.rotary(2, 2, 64, 128),
    rows.cross_entropy(64, 3000),
    attention.forward("forward", 1, 4, 4, 256, 256, 64, True),
    attention.forward("forward.gqa", 1, 8, 2, 256, 256, 64, False),
    attention.forward("decode", 2, 8, 2, 1, 512, 64, False),
    attention.backward("backward", 1, 4, 4, 128, 64, True),
    attention.backward("backward.gqa", 1, 8, 2, 128, 64, False),
    launches.WORKLOADS[0],
]  # fmt: skip
CPU_HAS = ("torch", "cublas", "cublas-fast")


@pytest.mark.parametrize(
    ("work", "peer"), [pytest.param(w, p, id=f"{w.name}-{p}") for w in SMALL for p in w.peers if p in CPU_HAS]
)
def test_ours_and_the_peers_results_agree(work: Workload, peer: str) -> None:
    device = Cpu()
    inputs = work.inputs(device)
    ours = to_torch(work.ours("numpy", **{n: to_numpy(x) for n, x in inputs.items()})())
    theirs = work.peers[peer](**inputs)()
    typical, worst = race.check(device, work, inputs, ours, theirs)
    assert typical <= work.tolerance and worst < race.WORST * work.tolerance / 2, "far from what is allowed"


@pytest.mark.parametrize("work", [w for w in SMALL if not w.host], ids=lambda w: w.name)
def test_one_wrong_element_in_a_result_is_seen(work: Workload) -> None:
    device = Cpu()
    inputs = work.inputs(device)
    peer = next(p for p in work.peers if p in CPU_HAS)
    results = work.ours("numpy", **{n: to_numpy(x) for n, x in inputs.items()})()
    results = results if isinstance(results, tuple) else (results,)
    for number in range(len(results)):
        broken = [np.array(x) for x in results]
        flat = broken[number].reshape(-1)
        flat[flat.size // 2] += 3 * np.abs(flat.astype(np.float64)).max()
        ours = to_torch(tuple(broken))
        with pytest.raises(race.WrongResult):
            race.check(device, work, inputs, ours if len(ours) > 1 else ours[0], work.peers[peer](**inputs)())


def test_differences_count_roundings_of_the_coarser_type() -> None:
    device = Cpu()
    x = torch.ones(1000, dtype=torch.float32)
    near = x.clone()
    near[3] += 2.0**-7  # one rounding of bfloat16, at 1
    whole, worst = device.difference(near.to(torch.bfloat16), x)
    assert worst == pytest.approx(0.5) and whole == pytest.approx(1000**-0.5)
    assert device.difference(x, x.to(torch.bfloat16)) == (0.0, 0.0)
    for odd in (float("nan"), float("inf")):
        bad = x.clone()
        bad[3] = odd
        assert device.difference(bad, x)[1] == device.difference(x, bad)[1] == float("inf")
        assert device.difference(bad, bad) == (0.0, 0.0)


def test_integers_are_equal_or_not() -> None:
    x = torch.arange(5)
    assert Cpu().difference(x, x) == (0.0, 0.0)
    assert Cpu().difference(x, x + (x == 4)) == (float("inf"), float("inf"))


def test_wrong_shapes_are_not_compared() -> None:
    with pytest.raises(ValueError, match="our result has shape"):
        Cpu().difference(torch.ones(3), torch.ones(4))


def test_random_arrays_are_of_the_described_kind() -> None:
    import kittens as kt

    device = Cpu()
    assert device.like(kt.spec("float8_e4m3fn", (3, 4))).dtype == torch.float8_e4m3fn
    assert set(device.like(kt.spec("int64", (50,))).tolist()) == {0, 1}
    scales = device.like(kt.spec("float8_e8m0fnu", (50,))).float()
    assert float(scales.min()) > 0.05 and float(scales.max()) < 32
    assert device.nbytes(device.normal((3, 4), "bfloat16")) == 24 and device.nbytes(3) == 0
    for dtype in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "bfloat16", "float32"):
        assert device.empty((4,), dtype).float().isnan().all(), dtype
    assert device.poison(torch.zeros(4, dtype=torch.int16)).tolist() == [2**15 - 1] * 4
    assert device.poison(torch.zeros(4, dtype=torch.bool)).all()
    kept = device.kept(scales)
    scales.zero_()
    assert float(kept.min()) > 0
    device.restore(scales, kept)
    assert torch.equal(scales, kept)


def test_the_check_of_dropout_sees_a_wrong_share() -> None:
    work = rows.dropout_residual_layer_norm(2, 64, 512)
    device = Cpu()
    inputs = work.inputs(device)
    import kittens as kt

    plain = {n: to_numpy(x) for n, x in inputs.items()}
    ours = kt.ops.dropout_residual_layer_norm(**plain, p=0.15, seed=1, eps=1e-5, on="numpy")
    with pytest.raises(race.WrongResult):
        race.check(device, work, inputs, to_torch(ours), None)
