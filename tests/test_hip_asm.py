"""Compiled AMD assembly, run instruction by instruction on the CPU, and what its main loops hold.

The interpreter is not part of this project: it is used where its folder stands beside the checkout. It checks
waits, barriers and bounds of every access, and counts bank conflicts of shared memory.
"""

from __future__ import annotations

import importlib
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kittens as kt
from kittens.arguments import TensorArg
from kittens.backends.hip import codeobject
from kittens.backends.hip.compile import available, compile_source
from kittens.backends.hip.machine import machine
from kittens.bench import amd_counts
from kittens.codegen.launches import values
from kittens.codegen.pipeline import planned
from kittens.codegen.printing import LIMIT, new_log, show
from kittens.examples import EXAMPLES, library
from kittens.runtime import Launch, evaluate_grid
from kittens.targets import parse

TOOLS = Path(__file__).resolve().parents[2] / "shared" / "tools" / "amd"
RNG = np.random.default_rng(0)

pytestmark = pytest.mark.skipif(bool(available()), reason=available() or "the compiler is there")
interpreted = pytest.mark.skipif(
    not (TOOLS / "asm_emu.py").is_file(), reason="the assembly interpreter is not beside the checkout"
)


def bf16(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(ml_dtypes.bfloat16)


def interpret(
    name: str | kt.Kernel,
    args: tuple[Any, ...],
    constants: dict[str, Any],
    arch: str,
    order: str,
    text: str = "",
) -> Any:
    """Compile a kernel, or the library's of that name, and run its assembly or a text; the interpreter's counts.

    What it prints goes to the standard output.
    """
    sys.path.insert(0, str(TOOLS))
    try:
        emulator = importlib.import_module("asm_emu")
    finally:
        sys.path.remove(str(TOOLS))
    kernel = library(name) if isinstance(name, str) else name
    arguments, given = kernel.bind(args, constants)
    settled = kernel.settle(parse(f"hip:{arch}"), arguments, given)
    launch = Launch(kernel, arguments, settled, evaluate_grid(kernel, arguments, settled))
    function = kernel.trace(launch.arguments, launch.constants, len(launch.grid))
    compiled = compile_source(*planned(function, machine(arch)))

    def pointer(name: str, argument: TensorArg) -> Any:
        array = argument.data
        base = array
        while base.base is not None:
            base = base.base
        return emulator.Pointer(base, array.ctypes.data - base.ctypes.data)

    log = new_log(compiled.messages)
    passed = values(compiled.parameters, launch.arguments, launch.grid, pointer, log=log)
    passed = [x if not isinstance(x, np.generic) else x.item() for x in passed]
    programs = int(np.prod(launch.grid))
    stats = emulator.run(
        text or compiled.asm, compiled.entry, passed, programs, compiled.threads, arch, order=order
    )
    show(log, compiled.messages)
    return stats


def races(stats: Any) -> list[str]:
    """Warnings of the interpreter, without the one that counted waits bring: loads under way at a barrier."""
    return [w for w in stats.warnings if "in flight at a barrier" not in w]


@interpreted
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
@pytest.mark.parametrize(
    ("arch", "m", "n", "k", "transposed", "constants"),
    [
        ("gfx950", 256, 256, 192, False, {"BM": 256, "BN": 256, "BK": 32}),
        ("gfx950", 256, 256, 192, True, {"BM": 256, "BN": 256, "BK": 32}),
        ("gfx950", 100, 72, 72, False, {}),
        ("gfx942", 128, 128, 96, True, {}),
        ("gfx942", 100, 72, 72, False, {}),
    ],
)
def test_matmul(arch, m, n, k, transposed, constants, order):
    a = bf16(m, k)
    b = bf16(n, k).T if transposed else bf16(k, n)
    c = np.zeros((m, n), np.float32)
    stats = interpret("matmul", (a, b, c), constants, arch, order)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-3)
    assert not races(stats), races(stats)
    assert stats.scratch == 0
    if arch == "gfx950" or transposed:
        assert stats.lds_conflict_cycles == 0, [x for x in stats.lds_lines if x.cycles > x.ideal]


@interpreted
@pytest.mark.parametrize(
    ("arch", "constants"), [("gfx942", {}), ("gfx950", {}), ("gfx950", {"BM": 256, "BN": 64})]
)
@pytest.mark.parametrize("right", [None, 0])
def test_attention(arch, constants, right):
    q, k, v = bf16(1, 1, 100, 128), bf16(1, 1, 130, 128), bf16(1, 1, 130, 128)
    o, lse = np.zeros((1, 1, 100, 128), np.float32), np.zeros((1, 1, 100), np.float32)
    stats = interpret(
        "attention_forward",
        (q, k, v, o, lse),
        {"scale": 128**-0.5, "right": right, **constants},
        arch,
        "forward",
    )
    s = q[0, 0].astype(np.float32) @ k[0, 0].astype(np.float32).T * 128**-0.5
    if right == 0:
        s = np.where(np.arange(100)[:, None] + 30 >= np.arange(130), s, -np.inf)
    top = s.max(axis=1, keepdims=True)
    p = np.exp(s - top)
    np.testing.assert_allclose(lse[0, 0], (top + np.log(p.sum(axis=1, keepdims=True)))[:, 0], atol=1e-4)
    np.testing.assert_allclose(
        o[0, 0], p / p.sum(axis=1, keepdims=True) @ v[0, 0].astype(np.float32), atol=2e-2
    )
    assert not races(stats), races(stats)
    assert stats.scratch == 0
    if arch == "gfx950":
        reads = [x for x in stats.lds_lines if x.text.startswith("ds_read") and x.cycles > x.ideal]
        assert not reads, reads


@interpreted
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_softmax(arch):
    x = RNG.standard_normal((5, 300)).astype(np.float32)
    y = np.zeros_like(x)
    stats = interpret("softmax", (x, y), {}, arch, "forward")
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)
    assert not races(stats), races(stats)


def counts(name: str, target: str, **constants: int) -> dict[str, float]:
    """Instructions of the main loop for each matrix instruction."""
    example = EXAMPLES[name]
    compiled = library(name).compile(target, *example.args, **{**example.constants, **constants})
    found = amd_counts.count(amd_counts.main_loop(compiled.asm))
    return {kind: n / found["matrix"] for kind, n in found.items()}


def test_main_loop_of_matmul():
    found = counts("matmul", "hip:gfx950", BM=256, BN=256, BK=32)
    assert found.get("accumulator copies", 0) == 0
    assert found.get("vector", 0) <= 0.25
    assert found["LDS reads"] <= 0.5
    assert found["direct to LDS"] <= 0.125
    assert found["barriers"] <= 0.125
    assert found["waits for all loads"] == 0


def test_teams_of_matmul_multiply_in_phases_of_their_own():
    """The compiler kept each product in its phase, with nothing beside it, and all that is waited for in the others."""
    example = EXAMPLES["matmul"]
    compiled = library("matmul").compile(
        "hip:gfx950", *example.args, **{**example.constants, "BM": 256, "BN": 256, "BK": 32}
    )
    loop = amd_counts.main_loop(compiled.asm)
    phases = "\n".join([*loop, *loop]).split("s_barrier")[1:-1]  # the loop may begin inside one
    kinds = [amd_counts.count(text.split("\n")[1:-1]) for text in phases]
    products = [k for k in kinds if k["matrix"]]
    assert len(products) >= 4
    assert all(bool(one["matrix"]) != bool(two["matrix"]) for one, two in itertools.pairwise(kinds))
    for text, kind in zip(phases, kinds, strict=True):
        if kind["matrix"]:
            assert kind["matrix"] == 32 and kind["matrix"] + kind["scalar"] == sum(kind.values()), text
            assert re.findall("s_setprio .", text) == ["s_setprio 1", "s_setprio 0"]
        else:
            assert (kind["LDS reads"], kind["direct to LDS"]) == (16, 4), text


def _planted(asm: str) -> dict[str, str]:
    """The text of matmul with one wait of its phases loosened, or one of their barriers taken away, for each of them.

    Not the first barrier, before which nothing happens, the last, and the two by which a team falls behind and catches up.
    """
    lines = asm.split("\n")

    def with_line(number: int, text: str) -> str:
        return "\n".join([*lines[:number], text, *lines[number + 1 :]])

    waits = [i for i, line in enumerate(lines) if "vmcnt(8)" in line]
    barriers = [i for i, line in enumerate(lines) if re.match(r"\s+s_barrier", line)]
    return {
        **{f"a looser wait in line {i}": with_line(i, lines[i].replace("(8)", "(9)")) for i in waits},
        **{f"no barrier in line {i}": with_line(i, "\ts_nop 0") for i in (barriers[1], *barriers[3:-2])},
    }


@interpreted
def test_each_wait_and_barrier_of_the_phases_is_needed():
    constants = {"BM": 256, "BN": 256, "BK": 32}
    given = bf16(256, 320), bf16(320, 256), np.zeros((256, 256), np.float32)
    example = library("matmul").compile("hip:gfx950", *given, **constants)
    changed, missed = _planted(example.asm), []
    assert len(changed) > 12
    for what, text in changed.items():
        if not any(faulty(given, constants, order, text) for order in ("forward", "reverse", "random")):
            missed.append(what)
    assert not missed, missed


def faulty(given: tuple[Any, ...], constants: dict[str, Any], order: str, text: str) -> bool:
    """Whether the interpreter finds something in another text of matmul."""
    try:
        return bool(races(interpret("matmul", given, constants, "gfx950", order, text)))
    except Exception as fault:  # the interpreter's own class
        if type(fault).__name__ != "Fault":
            raise
        return True


def test_attention_moves_nothing_between_its_products():
    found = counts("attention_forward", "hip:gfx950")
    assert found.get("LDS writes", 0) == 0
    assert found.get("accumulator copies", 0) == 0


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["matmul", "attention_forward"])
def test_plan_reads_without_conflicts(arch, name):
    example = EXAMPLES[name]
    plan = library(name).plan(f"hip:{arch}", *example.args, **example.constants)
    costs = [s.cost for s in plan.staged.values()]
    assert costs
    assert all(c is not None and c.factor == 1.0 for c in costs), str(plan)


def test_resources_are_read_from_the_code_object():
    example = EXAMPLES["matmul"]
    compiled = library("matmul").compile("hip:gfx950", *example.args, BM=128, BN=128, BK=64)
    said = codeobject.metadata(compiled.code)
    assert said[".name"] == "matmul_kernel"
    taken = codeobject.resources(compiled.code, "gfx950")
    assert taken["shared_bytes"] == compiled.shared_bytes
    assert f".vgpr_count:     {taken['registers']}" in compiled.asm
    assert taken["spilled"] == 0


def test_spills_are_an_error_with_advice():
    example = EXAMPLES["matmul"]
    with pytest.raises(kt.errors.UnavailableError, match=r"spills|shared memory") as caught:
        library("matmul").compile("hip:gfx1100", *example.args, BM=256, BN=256, BK=64)
    assert "smaller tiles" in str(caught.value)


@kt.kernel(grid=lambda x: (kt.cdiv(x.shape[0], 16), 2))
def added(x: Any, out: Any, turns: Any) -> None:
    """Each program adds its rows to the same tile, in the order of rows."""
    i, z = kt.program_id()
    kt.store_add(out, (0, z), kt.load(x, (i, z), (16, 32)), turn=(turns[z], i))


@interpreted
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_additions_in_turn(arch, order):
    """Programs are drawn: a device that begins blocks in another order than that of their numbers does not hang."""
    x = RNG.standard_normal((70, 64)).astype(np.float32)
    out, turns = np.zeros((16, 64), np.float32), np.zeros(2, np.int32)
    stats = interpret(added, (x, out, turns), {}, arch, order)
    want, counts = np.zeros_like(out), np.zeros_like(turns)
    added(x, want, counts, on="numpy")
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(turns, counts)
    assert not races(stats), races(stats)


@kt.kernel(grid=lambda x: kt.cdiv(x.shape[0], 4))
def telling(x):
    i = kt.program_id()
    tile = kt.load(x, i, 4)
    for k in kt.range(0, i + 1):
        kt.device_print("{} of {}, {}%, {}", k, i - 3, tile.max(axis=0), i > k)
    kt.device_print("{} {}", tile.to(kt.bfloat16), tile > 5.0)


@interpreted
@pytest.mark.parametrize("limit", ["", "200"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_what_kernels_print(arch, limit, capfd, monkeypatch):
    """The same lines as in the simulator; as many of them as there is room for."""
    monkeypatch.setenv(LIMIT, limit)
    x = RNG.standard_normal(11).astype(np.float32) * 5
    stats = interpret(telling, (x,), {}, arch, "forward")
    lines = sorted(capfd.readouterr().out.splitlines())
    monkeypatch.delenv(LIMIT)
    telling(x, on=f"hip:{arch}@sim")
    expected = sorted(capfd.readouterr().out.splitlines())
    assert len(expected) == 15
    if limit:
        [lost] = [line for line in lines if line not in expected]
        lines.remove(lost)
        assert 0 < len(lines) < 15
        assert lost == f"... lines that did not fit: {15 - len(lines)}; raise {LIMIT}, which is 200"
    else:
        assert lines == expected
    assert not races(stats), races(stats)
    assert stats.scratch == 0


@interpreted
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_float32_products_read_four_along_k(arch, transposed):
    """Four instructions of K = 4 as one: operands along K come in 16 bytes a lane, with no bank conflict."""
    a = RNG.standard_normal((100, 72)).astype(np.float32)
    b = RNG.standard_normal((80, 72) if transposed else (72, 80)).astype(np.float32)
    b, c = b.T if transposed else b, np.zeros((100, 80), np.float32)
    stats = interpret("matmul", (a, b, c), {}, arch, "forward")
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4)
    assert not races(stats), races(stats)
    assert stats.scratch == 0 and stats.lds_conflict_cycles == 0, [
        x for x in stats.lds_lines if x.cycles > x.ideal
    ]


#: Of each architecture: that all of a group's additions are done; that the counter is read again, and what follows from it.
TURNS = {
    "gfx942": (r"s_waitcnt vmcnt\(0\)", r"global_load_dword .* sc1", r"buffer_inv sc1"),
    "gfx950": (r"s_waitcnt vmcnt\(0\)", r"global_load_dword .* sc1", r"buffer_inv sc1"),
    "gfx1100": (
        r"s_waitcnt_vscnt null, 0x0",
        r"global_load_b32 .* glc",
        r"buffer_gl1_inv\n\s+buffer_gl0_inv",
    ),
    "gfx1201": (r"s_wait_storecnt 0x0", r"global_load_b32 .*scope:SCOPE_DEV", r"global_inv scope:SCOPE_DEV"),
}


@pytest.mark.parametrize("arch", sorted(TURNS))
def test_turns_are_waited_for_and_handed_on(arch):
    """A turn is waited for by one lane, asleep between looks; every group's additions are done before it is handed on."""
    x, out, turns = np.zeros((80, 64), np.float32), np.zeros((16, 64), np.float32), np.zeros(2, np.int32)
    asm = added.compile(f"hip:{arch}", x, out, turns).asm
    done, look, acquired = TURNS[arch]
    _, waiting = asm.split("s_sleep", 1)
    assert "s_sleep" not in waiting  # one loop
    spin, behind = waiting.split("s_cbranch", 1)
    assert re.search(look, spin) and re.search(acquired, behind.split("global_atomic_add_f32")[0])
    last = behind.rsplit("global_atomic_add_f32", 1)[1]
    handed = last.index("global_store")
    assert re.search(done, last[:handed]), last
    meeting = re.search(r"s_barrier|; wave barrier", last)
    assert meeting and re.search(done, last[: meeting.start()]), last
