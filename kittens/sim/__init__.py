"""Runs generated CUDA, HIP and Metal source on the CPU, and checks it while it runs.

    program = build(source, vendor, entry="gemm", arch="sm_90a")
    program.run(grid, block, [a, b, c, m, n, k], shared_bytes=49152, order="reverse")

The source is compiled for the host, unchanged, over a vendor's shim (`VENDOR` of
`kittens.backends.<vendor>.sim`). Every GPU thread is a fiber; shuffles, matrix instructions and
barriers are meeting points. A fault of the kernel raises `SimulationFault`. This simulates the
program; it is never presented as execution on a device.
"""

from kittens.sim.faults import SimulationFault
from kittens.sim.program import Parameter, Program, build, check
from kittens.sim.toolchain import BuildError
from kittens.sim.vendor import Vendor

__all__ = ["BuildError", "Parameter", "Program", "SimulationFault", "Vendor", "build", "check"]
