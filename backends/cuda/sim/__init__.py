"""NVIDIA's words for the simulator."""

from pathlib import Path

from kittens.sim.vendor import Arch, Vendor

_HERE = Path(__file__).resolve().parent

VENDOR = Vendor(
    name="cuda",
    suffix=".cu",
    prelude="kt_cuda_shim.h",
    include=(_HERE, _HERE.parent / "device"),
    arches={
        "sm_80": Arch(32, {"__CUDA_ARCH__": "800"}),
        "sm_89": Arch(32, {"__CUDA_ARCH__": "890"}),
        "sm_90a": Arch(32, {"__CUDA_ARCH__": "900", "__CUDA_ARCH_FEAT_SM90_ALL": "1"}),
    },
)
