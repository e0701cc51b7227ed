"""Arrays of torch and CuPy go to the backend of the vendor that the library was built for, though both say "cuda"."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kittens import plugins
from kittens.arguments import TensorArg, adopt, overlap


def torch_like(monkeypatch: pytest.MonkeyPatch, hip: str | None) -> type:
    """A stand-in for torch, built for AMD GPUs (hip: a version) or not, in the place of torch; its class of tensors."""

    class Tensor:
        is_cuda = True
        dtype = "torch.bfloat16"
        device = SimpleNamespace(index=1)
        shape = (4, 8)

        def stride(self) -> tuple[int, int]:
            return 16, 1

        def data_ptr(self) -> int:
            return 4096 + 8

        def is_neg(self) -> bool:
            return False

    Tensor.__module__ = "torch"
    torch: Any = ModuleType("torch")
    torch.version, torch.Tensor, torch.bfloat16 = SimpleNamespace(hip=hip), Tensor, "torch.bfloat16"
    torch.empty = lambda shape, dtype, device: ("new", shape, dtype, device)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return Tensor


def cupy_like(monkeypatch: pytest.MonkeyPatch, is_hip: bool) -> Any:
    """An array of a stand-in for CuPy."""

    class ndarray:
        dtype, shape, strides, itemsize = np.dtype("float32"), (4, 8), (32, 4), 4
        data, device = SimpleNamespace(ptr=4096), SimpleNamespace(id=0)
        __cuda_array_interface__ = property(lambda self: {"shape": self.shape})

    ndarray.__module__ = "cupy"
    cupy: Any = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(runtime=SimpleNamespace(is_hip=is_hip))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return ndarray()


@pytest.mark.parametrize(("hip", "backend"), [("6.4", "hip"), (None, "cuda")])
def test_tensors_of_torch_go_where_torch_was_built_for(monkeypatch, hip, backend) -> None:
    tensor = torch_like(monkeypatch, hip)()
    found = adopt(tensor, "x")
    assert isinstance(found, TensorArg)
    assert (found.target.backend, found.target.index) == (backend, 1)
    assert (found.shape, found.strides, found.alignment) == ((4, 8), (16, 1), 8)
    assert found.data.ptr == 4104 and found.data.owner is tensor
    assert found.span == ((backend, 1), 4104, 4104 + 2 * (3 * 16 + 8)) and overlap(found.span, found.span)


def test_results_are_made_by_the_library_of_the_operands(monkeypatch) -> None:
    from kittens.dtypes import bfloat16

    tensor = torch_like(monkeypatch, "6.4")()
    made = plugins.manager().hook.kittens_empty(like=tensor, shape=(2,), dtype=bfloat16)
    assert made == ("new", (2,), "torch.bfloat16", tensor.device)


def test_tensors_of_torch_on_the_host_are_not_ours(monkeypatch) -> None:
    from kittens.backends.hip.arrays import adopt, empty
    from kittens.dtypes import bfloat16

    tensor = torch_like(monkeypatch, "6.4")()
    tensor.is_cuda = False
    assert adopt(tensor) is None and empty(tensor, (2,), bfloat16) is None
    assert adopt(np.zeros(3)) is None


@pytest.mark.parametrize(("is_hip", "backend"), [(True, "hip"), (False, "cuda")])
def test_arrays_of_cupy_go_where_cupy_was_built_for(monkeypatch, is_hip, backend) -> None:
    found = adopt(cupy_like(monkeypatch, is_hip), "x")
    assert isinstance(found, TensorArg)
    assert (found.target.backend, found.target.index) == (backend, None)
    assert (found.shape, found.strides) == ((4, 8), (8, 1))
