"""The host side of AMD launches, against a stand-in for HIP that runs kernels in the assembly interpreter.

Like the interpreter, the stand-in is no part of this project: it is used where it is beside the checkout.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kittens.backends.hip.compile import available

STAND_IN = Path(__file__).resolve().parents[2] / "shared" / "trials" / "hip" / "mockhip"

pytestmark = [
    pytest.mark.skipif(bool(available()), reason=available() or "the compiler is there"),
    pytest.mark.skipif(find_spec("hip") is None, reason="hip-python is not installed (extra hip)"),
    pytest.mark.skipif(not STAND_IN.is_dir(), reason="the stand-in for HIP is not beside the checkout"),
]

# In a process of its own: the stand-in stays loaded under the names of the real libraries.
SCRIPT = """
import contextlib
import io
import sys
sys.path.insert(0, sys.argv[1])
import mockhip
mock = mockhip.install("gfx950")
import ml_dtypes
import numpy as np
import kittens as kt
from kittens.backends.hip import launch
from kittens.errors import CheckError
from kittens.examples import library
from kittens.runtime import Launch, evaluate_grid
from kittens.targets import parse

compile_kernel = launch.compiled

def compiled(*args):
    made = compile_kernel(*args)
    mock.assembly[made.code] = made.asm
    return made

launch.compiled = compiled

@kt.kernel(grid=lambda x: kt.cdiv(x.shape[0], 16))
def added(x, out, turns):
    i = kt.program_id()
    kt.store_add(out, (0, 0), kt.load(x, (i, 0), (16, 32)), turn=(turns[0], i))

@kt.kernel(grid=2)
def tell(x):
    i = kt.program_id()
    kt.device_print("{} of {}: {}", i, 2, kt.load(x, i, 4).sum(axis=0))

def start(kernel, *args):
    arguments, given = kernel.bind(args, {})
    settled = kernel.settle(parse("hip"), arguments, given)
    grid = evaluate_grid(kernel, arguments, settled)
    made = Launch(kernel, arguments, settled, grid)
    launch.execute(parse("hip"), made, kernel.trace(arguments, settled, len(grid)))

def run(a, b, c):
    start(library("matmul"), a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)

rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((100, 72), (72, 64)))
run(a, b, np.zeros((100, 64), np.float32))
run(a[::-1], b, np.zeros((200, 64), np.float32)[::-2])
run(a[:0], b, np.zeros((0, 64), np.float32))
x = rng.standard_normal((50, 32)).astype(np.float32)
for _ in range(2):  # the programs' counter is at zero again
    out, turns = np.zeros((16, 32), np.float32), np.zeros(1, np.int32)
    start(added, x, out, turns)
    want, counts = np.zeros_like(out), np.zeros_like(turns)
    added(x, want, counts, on="numpy")
    assert (out == want).all() and turns == counts == 4
for first in range(2):  # each launch has a log of its own
    with contextlib.redirect_stdout(io.StringIO()) as out:
        start(tell, np.arange(first, first + 8, dtype=np.float32))
    said = [f"(0,): 0 of 2: {6 + 4 * first}", f"(1,): 1 of 2: {22 + 4 * first}"]
    assert sorted(out.getvalue().splitlines()) == said, out.getvalue()
mock.fail_next(2)
try:
    run(a, b, np.zeros((100, 64), np.float32))
except CheckError as error:
    assert "hip" in str(error), error
else:
    raise AssertionError("an error of HIP was lost")
print("done")
"""


def test_launches_against_the_stand_in():
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(STAND_IN)], capture_output=True, text=True)
    assert done.stdout.strip() == "done", done.stdout + done.stderr
