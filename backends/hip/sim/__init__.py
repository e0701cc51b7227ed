"""AMD's words for the simulator."""

from pathlib import Path

from kittens.sim.vendor import Arch, Vendor

_HERE = Path(__file__).resolve().parent

VENDOR = Vendor(
    name="hip",
    suffix=".hip",
    prelude="kt_hip_shim.h",
    include=(_HERE, _HERE.parent / "device"),
    arches={
        "gfx942": Arch(64, {"__gfx942__": "1"}),
        "gfx950": Arch(64, {"__gfx950__": "1"}),
        "gfx1100": Arch(32, {"__gfx1100__": "1"}),
        "gfx1201": Arch(32, {"__gfx1201__": "1"}),
    },
)
