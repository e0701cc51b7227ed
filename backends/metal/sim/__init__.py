"""Apple's words for the simulator."""

from __future__ import annotations

import re
from pathlib import Path

from kittens.sim.toolchain import BuildError
from kittens.sim.vendor import Arch, Vendor

_HERE = Path(__file__).resolve().parent

# What KT_IDS of the device header stands for, and what else a kernel may ask for by an attribute.
_IDS = (
    "threadgroup_position_in_grid",
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
)
_KNOWN = {*_IDS, "threads_per_threadgroup", "threadgroups_per_grid"}


def entry(source: str, kernel: str) -> str:
    """The entry points of `kernel`: Metal says by attributes which parameters are arguments."""
    found = re.search(rf"\bkernel\s+void\s+{re.escape(kernel)}\s*\(", source)
    if found is None:
        raise BuildError(f"the source has no `kernel void {kernel}(`")
    buffers = 0
    ids: list[str] = []
    for parameter in _parameters(source, found.end()):
        if parameter == "KT_IDS":
            ids += _IDS
            continue
        attribute = re.search(r"\[\[\s*(\w+)\s*(?:\(\s*(\d+)\s*\))?\s*\]\]", parameter)
        if attribute is None:
            raise BuildError(f"parameter `{parameter}` of {kernel} has no attribute")
        name, number = attribute.groups()
        if name == "buffer":
            if ids or int(number) != buffers:
                raise BuildError(
                    f"buffers of {kernel} must come first, numbered as they stand: `{parameter}`"
                )
            buffers += 1
        elif name in _KNOWN:
            ids.append(name)
        else:
            raise BuildError(f"the simulator does not know the attribute `{name}` of {kernel}")
    values = "".join(f", kt_sim::{name}()" for name in ids)
    return f"""
extern "C" __attribute__((visibility("default"))) void kt_sim_entry(kt_sim::Launch* launch) {{
  kt_sim::kt_sim_launch(launch, {{[](const void* const* values) {{
    kt_sim::call_with_ids<{buffers}>(&{kernel}, values{values});
  }}, true}});
}}
extern "C" __attribute__((visibility("default"))) void kt_sim_parameters(int* sizes) {{
  kt_sim::describe_first(&{kernel}, sizes, {buffers});
}}
"""


def _parameters(source: str, start: int) -> list[str]:
    """The parameters of the list that begins at `start`, split at its commas."""
    parameters, depth, text = [], 1, ""
    for character in source[start:]:
        depth += (character in "([<") - (character in ")]>")
        if depth == 0 or (depth == 1 and character == ","):
            parameters.append(" ".join(text.split()))
            text = ""
        else:
            text += character
        if depth == 0:
            break
    return [parameter for parameter in parameters if parameter]


VENDOR = Vendor(
    name="metal",
    suffix=".metal",
    prelude="kt_metal_shim.h",
    include=(_HERE, _HERE.parent / "device"),
    arches={"apple7": Arch(32), "apple8": Arch(32), "apple9": Arch(32), "apple10": Arch(32)},
    standard_headers=("metal_stdlib", "metal_simdgroup_matrix", "metal_atomic"),
    flags=("-Wno-unknown-attributes",),
    entry=entry,
)
