"""Build gates: compiled objects are read, and one that spills, does not fit or differs from its plan is refused.

Each contradiction is planted in a source or its description, and must be found in what the real compiler made of it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import kittens as kt
from kittens import cache
from kittens.backends.cuda import compile as cuda
from kittens.backends.cuda import machine as cuda_machine
from kittens.backends.hip import compile as hip
from kittens.backends.hip import machine as hip_machine
from kittens.codegen.gates import Binary, check
from kittens.codegen.pipeline import built, planned
from kittens.errors import InternalError, UnavailableError
from kittens.examples import Example
from kittens.kernels import attention_forward, matmul

CUDA = pytest.mark.skipif(bool(cuda.available()), reason=cuda.available() or "the compiler is there")
HIP = pytest.mark.skipif(bool(hip.available()), reason=hip.available() or "the compiler is there")
TARGETS = [
    pytest.param(cuda, cuda_machine.machine("sm_80"), marks=CUDA, id="sm_80"),
    pytest.param(cuda, cuda_machine.machine("sm_90a"), marks=CUDA, id="sm_90a"),
    pytest.param(hip, hip_machine.machine("gfx950"), marks=HIP, id="gfx950"),
    pytest.param(hip, hip_machine.machine("gfx1201"), marks=HIP, id="gfx1201"),
]


def small():
    x = kt.spec("bfloat16", (256, 256))
    return matmul.ir(x, x, x, BM=64, BN=64, BK=32)


@pytest.mark.parametrize(("backend", "machine"), TARGETS)
def test_a_compiled_kernel_keeps_to_its_plan_and_what_does_not_is_refused(backend, machine) -> None:
    plan, source = planned(small(), machine)
    made = backend.compile_source(plan, source)
    assert made.resources["shared_bytes"] == source.shared_bytes > 0
    assert made.resources["threads"] == source.threads and made.resources["registers"] > 0

    with pytest.raises(InternalError, match="threads a program, its plan says") as caught:
        backend.compile_source(plan, replace(source, threads=2 * source.threads))
    assert "report it" in str(caught.value) and "products.py" in str(caught.value)
    with pytest.raises(InternalError, match="parameters, its plan says"):
        backend.compile_source(plan, replace(source, parameters=source.parameters[:-1]))
    tight = replace(plan, machine=replace(machine, shared_bytes=1024))
    with pytest.raises(UnavailableError, match=r"shared memory, .* has 1024") as short:
        backend.compile_source(tight, source)
    assert "smaller tiles" in str(short.value)


@CUDA
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_shared_memory_that_no_plan_knows_of_is_found_in_a_cubin(arch) -> None:
    plan, source = planned(small(), cuda_machine.machine(arch))
    entry = source.text.index("KT_SHARED_MEMORY(")
    planted = "__shared__ volatile int hidden[64]; hidden[threadIdx.x % 64] = 1;\n  "
    with pytest.raises(InternalError, match="bytes of shared memory, its plan says"):
        cuda.compile_source(plan, replace(source, text=source.text[:entry] + planted + source.text[entry:]))


@HIP
def test_shared_memory_that_differs_from_the_plan_is_found_in_a_code_object() -> None:
    plan, source = planned(small(), hip_machine.machine("gfx942"))
    with pytest.raises(InternalError, match="bytes of shared memory, its plan says"):
        hip.compile_source(plan, replace(source, shared_bytes=source.shared_bytes + 128))


@pytest.mark.parametrize(
    "target", [pytest.param("cuda:sm_80", marks=CUDA), pytest.param("hip:gfx1100", marks=HIP)]
)
def test_spills_are_refused(target) -> None:
    @kt.kernel
    def greedy(x, y):
        tile = kt.load(x, (0, 0), (256, 1024))
        kt.store(y, (0, 0), tile / tile.sum(axis=1)[:, None])

    x = kt.spec("float32", (256, 1024))
    with pytest.raises(UnavailableError, match="spills") as caught:
        greedy.compile(target, x, x)
    assert "smaller tiles" in str(caught.value) and "greedy" in str(caught.value)


def test_registers_of_all_lanes_must_fit() -> None:
    plan, source = planned(small(), cuda_machine.machine("sm_80"))
    check(plan, source, Binary(registers=255, register_file=255 * source.threads))
    with pytest.raises(UnavailableError, match="255 registers in each of"):
        check(plan, source, Binary(registers=255, register_file=255 * source.threads - 1))


# ---- what was compiled before


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("KITTENS_CACHE_DIR", str(tmp_path))


def test_what_was_compiled_before_is_neither_planned_nor_compiled_again(empty_cache) -> None:
    made = []

    def compile(plan, source):
        from kittens.codegen.pipeline import artifact

        made.append(source)
        return artifact(plan.function, source, "cuda:sm_80", b"code", {"registers": 1})

    machine = cuda_machine.machine("sm_80")
    first, second = small(), matmul.ir(*(kt.spec("bfloat16", (512, 512)),) * 3, BM=64, BN=64, BK=64)
    found = built(first, machine, compile, ("1",))
    assert built(first, machine, compile, ("1",)) is found
    matmul._traces.clear()
    again = small()
    assert again is not first and built(again, machine, compile, ("1",)) == found and len(made) == 1
    built(second, machine, compile, ("1",))
    assert len(made) == 2, "another kernel is another entry"
    matmul._traces.clear()
    built(small(), machine, compile, ("2",))
    assert len(made) == 3, "so is another compiler"
    matmul._traces.clear()
    built(small(), replace(machine, target="cuda:sm_90a"), compile, ("1",))
    assert len(made) == 4, "and another target"
    matmul._traces.clear()
    built(small(), replace(machine, stages=2), compile, ("1",))
    assert len(made) == 5, "and another machine of the same name"


def test_what_other_code_made_is_not_taken_for_ours(tmp_path) -> None:
    (tmp_path / "a.py").write_text("one")
    first = cache.digest.__wrapped__(tmp_path)
    assert cache.digest.__wrapped__(tmp_path) == first
    (tmp_path / "a.py").write_text("two")
    assert cache.digest.__wrapped__(tmp_path) != first


def test_a_function_is_the_same_whichever_line_asks_for_it() -> None:
    from kittens.codegen.pipeline import _identity

    example = Example.of(attention_forward)
    found = []
    for _ in range(2):
        attention_forward._traces.clear()
        found.append(_identity(attention_forward.ir(*example.args, BM=64, BN=64, **example.constants)))
    attention_forward._traces.clear()
    found.append(_identity(attention_forward.ir(*example.args, BM=64, BN=64, **example.constants)))
    assert len(set(found)) == 1
