"""Devices as PyTorch gives them: arrays, events, recorded work. All of it that benches know of a device is here."""

from __future__ import annotations

import gc
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from kittens import plugins
from kittens.arguments import TensorArg
from kittens.errors import ArgumentError, KittensError, UnavailableError
from kittens.targets import Target

#: Cycles that a device spins before timed work, so that the host is ahead of it: about a tenth of a millisecond.
_LEAD = 200_000
#: Elements compared at once: what a comparison holds in float64 stays small.
_CHUNK = 1 << 26


def open_device(target: Target) -> TorchDevice:
    """The device of a target. Raises UnavailableError, naming what is missing, if it cannot be timed here."""
    if target.simulated:
        raise ArgumentError(
            f"{target} is a simulator: how long it takes says nothing of a device",
            hint="`kittens show --stage plan` predicts; name a target that is executed to time it",
        )
    listed = str(Target(target.backend, "" if target.index is not None else target.arch))
    for info in plugins.targets():
        if info.name == listed and "execute" not in info.can:
            raise UnavailableError(
                f"{target} cannot be timed here: {info.missing.get('execute', 'it does not run')}"
            )
    if target.backend != "cuda":
        raise UnavailableError(
            f"benches of kernels know no clock for {target.backend}",
            hint="they run on cuda; on numpy there are benches of the host",
        )
    if find_spec("torch") is None:
        raise UnavailableError(
            "PyTorch, which times and is the peer, is missing: pip install 'kittens-gpu[torch]'"
        )
    import torch

    if not torch.cuda.is_available():
        raise UnavailableError("this PyTorch sees no CUDA device", hint="install a build of it for CUDA")
    return TorchDevice(f"cuda:{target.index or 0}")


class TorchDevice:
    """A CUDA device, current as long as this is in use. Random numbers are the same in every run."""

    def __init__(self, name: str):
        import torch

        self.torch = torch
        self.device = torch.device(name)
        torch.cuda.set_device(self.device)
        self.generator = torch.Generator(self.device).manual_seed(0)
        properties = torch.cuda.get_device_properties(self.device)
        self.name = str(properties.name)
        self.cache_bytes = int(properties.L2_cache_size)

    # Arrays.

    def normal(self, shape: Sequence[int], dtype: str, scale: float = 1.0) -> Any:
        """Normally distributed numbers."""
        x = self.torch.randn(
            tuple(shape), generator=self.generator, device=self.device, dtype=self.torch.float32
        )
        return (x.mul_(scale) if scale != 1 else x).to(self._dtype(dtype))

    def uniform(self, shape: Sequence[int], dtype: str) -> Any:
        """Numbers from 0 to 1."""
        x = self.torch.rand(
            tuple(shape), generator=self.generator, device=self.device, dtype=self.torch.float32
        )
        return x.to(self._dtype(dtype))

    def integers(self, shape: Sequence[int], high: int) -> Any:
        """Integers from 0 below `high`, of 64 bits."""
        return self.torch.randint(high, tuple(shape), generator=self.generator, device=self.device)

    def numbers(self, values: Sequence[int]) -> Any:
        """These integers, of 32 bits."""
        return self.torch.tensor(list(values), dtype=self.torch.int32, device=self.device)

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """An array for a result, poisoned."""
        return self.poison(self.torch.empty(tuple(shape), dtype=self._dtype(dtype), device=self.device))

    def poison(self, array: Any) -> Any:
        """Fill an array with NaN, or the largest integer: what a kernel does not write is seen."""
        if array.dtype.is_floating_point and array.dtype.itemsize == 1:
            array.view(self.torch.uint8).fill_(255)  # NaN in all of them
            return array
        if array.dtype.is_floating_point:
            return array.fill_(float("nan"))
        return array.fill_(self.torch.iinfo(array.dtype).max if array.dtype != self.torch.bool else True)

    def restore(self, array: Any, kept: Any) -> None:
        """Set an array to what `kept` gave."""
        array.copy_(kept)

    def like(self, described: TensorArg) -> Any:
        """A random array of the shape, strides and type of a description; integers are 0 or 1."""
        made = self._filled(described)
        if made.stride() == described.strides or 0 in described.shape:
            return made
        laid = self.torch.empty_strided(
            described.shape, described.strides, dtype=made.dtype, device=self.device
        )
        return laid.copy_(made)

    def _filled(self, described: TensorArg) -> Any:
        dtype = described.dtype
        if dtype.kind == "s":
            return (
                self.integers(described.shape, 8).add_(124).to(self.torch.uint8).view(self._dtype(dtype.name))
            )
        if dtype.is_float:
            return self.normal(described.shape, dtype.name)
        return self.integers(described.shape, 2).to(self._dtype(dtype.name))

    def kept(self, array: Any) -> Any:
        """A copy of what an array holds now."""
        return array.clone()

    def copies(self, to: Any, source: Any) -> dict[str, Callable[[], Any]]:
        """Ways to copy an array, by name: the driver's, and a kernel that reads and writes as much."""
        return {
            "copy": lambda: to.copy_(source),
            "negation": lambda: self.torch.neg(source, out=to),
        }

    def _dtype(self, name: str) -> Any:
        return getattr(self.torch, name)

    def nbytes(self, array: Any) -> int:
        """Bytes of an array, 0 for what is none."""
        return int(array.nbytes) if isinstance(array, self.torch.Tensor) else 0

    def difference(self, ours: Any, theirs: Any) -> tuple[float, float]:
        """How far results are apart in roundings of the coarser type: as a whole, and at the worst element.

        As a whole: the length of the difference over that of the result. At an element: over the sum of its size
        and the typical size. Infinite if one is not finite where the other is, and if integers differ.
        """
        torch = self.torch
        if ours.shape != theirs.shape:
            raise ArgumentError(f"our result has shape {tuple(ours.shape)}, the peer's {tuple(theirs.shape)}")
        if not all(x.dtype.is_floating_point for x in (ours, theirs)):
            apart = 0.0 if torch.equal(ours, theirs) else float("inf")
            return apart, apart
        rounding = max(torch.finfo(x.dtype).eps for x in (ours, theirs))
        a, b = ours.reshape(-1), theirs.reshape(-1)
        pieces = list(zip(a.split(_CHUNK), b.split(_CHUNK), strict=True))
        norm = sum(float(y.double().square().nan_to_num(0, 0, 0).sum()) for _, y in pieces)
        typical = (norm / max(b.numel(), 1)) ** 0.5 or 1.0
        square, worst = 0.0, 0.0
        for x, y in pieces:
            x, y = x.double(), y.double()
            same = (x == y) | (x.isnan() & y.isnan())
            d = (x - y).abs().masked_fill(same, 0.0)
            square += float(d.square().sum())
            if d.numel():
                share = (
                    (d / (y.abs() + typical))
                    .masked_fill(same, 0.0)
                    .masked_fill(y.isinf() & ~same, float("inf"))
                )
                worst = max(worst, float(share.nan_to_num(float("inf")).max()))
        whole = (square / max(b.numel(), 1)) ** 0.5 / typical
        return (whole if whole == whole else float("inf")) / rounding, worst / rounding

    def release(self) -> None:
        """Give back the memory of arrays that are gone."""
        gc.collect()
        self.torch.cuda.empty_cache()

    # Time.

    def time(self, work: Callable[[], None]) -> float:
        """Seconds that the device is busy with what `work` submits, by its own events."""
        cuda = self.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda.synchronize()
        cuda._sleep(_LEAD)
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def rest(self, seconds: float) -> None:
        """Wait until all work has ended, then leave the device idle."""
        self.torch.cuda.synchronize()
        time.sleep(seconds)

    def capture(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """What `work` submits as a graph; None if something in it cannot be part of one."""
        cuda = self.torch.cuda
        graph = cuda.CUDAGraph()
        try:
            with cuda.graph(graph, capture_error_mode="thread_local"):
                work()
        except (RuntimeError, KittensError):  # whatever a library says of it
            cuda.synchronize()
            return None
        replay: Callable[[], None] = graph.replay
        return replay

    def host_clock(self) -> HostClock:
        """A clock of what the caller of this device spends."""
        return HostClock(self.torch.cuda.synchronize)

    # What is noted beside results.

    def facts(self) -> dict[str, Any]:
        """The device, and the versions of what was used."""
        torch = self.torch
        version = torch.backends.cudnn.version() or 0
        return {
            "device": self.name,
            "driver": _driver(self.device.index or 0),
            "versions": {
                "torch": str(torch.__version__),
                "cuda": str(torch.version.cuda),
                "cudnn": str(version),
            },
        }


class HostClock:
    """Times what the host spends on submitting work. `wait` ends when all that was submitted has ended."""

    def __init__(self, wait: Callable[[], None], now: Callable[[], float] = time.perf_counter):
        self.wait = wait
        self.now = now

    def time(self, work: Callable[[], None]) -> float:
        """Seconds that `work` takes to submit."""
        self.wait()
        start = self.now()
        work()
        seconds = self.now() - start
        self.wait()
        return seconds

    def rest(self, seconds: float) -> None:
        """Wait, then stay idle."""
        self.wait()
        time.sleep(seconds)

    def capture(self, work: Callable[[], None]) -> None:
        """Nothing: recorded work would not be the host's."""
        return


def _driver(index: int) -> dict[str, str]:
    """The driver's version and the device's power limit, as far as the vendor's tool tells."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    fields = ("driver_version", "power.limit")
    asked = [tool, f"--id={index}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=20)
    values = done.stdout.strip().split(", ") if done.returncode == 0 else []
    return dict(zip(fields, values, strict=False))
