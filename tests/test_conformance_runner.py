"""Selecting, running and reporting; memory around arguments; the words of a verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import kittens as kt
from kittens import conformance, plugins
from kittens.conformance import Case, Out, all_cases, examine, runner, sanitize, select
from kittens.conformance.buffers import GUARD, allocate, poison
from kittens.conformance.case import LAYOUTS
from kittens.conformance.examine import build
from kittens.conformance.judge import Bounded, exactly
from kittens.conformance.verdict import compare
from kittens.dtypes import ALL, BY_NAME, DType
from kittens.runtime import Run
from kittens.targets import Numerics, Target, TargetInfo

F32 = BY_NAME["float32"]


def test_cases_are_deterministic_and_of_every_theme() -> None:
    for name in list(all_cases())[::97]:
        first, second = all_cases()[name].make(), all_cases()[name].make()
        for key, value in first.items():
            if hasattr(value, "data"):
                assert value.data.tobytes() == second[key].data.tobytes()  # type: ignore[union-attr]


def test_select() -> None:
    cases = list(all_cases().values())
    assert {c.name for c in select(cases, "elementwise/add/float32/ragged")} == {
        "elementwise/add/float32/ragged"
    }
    assert all("mma" not in c.name and "float16" in c.name for c in select(cases, "library float16"))
    assert select(cases, "*/add/*float32/special")[0].name == "elementwise/add/float32/special"
    assert 0 < len(select(cases, None, 100)) < len(cases)
    assert select(cases, "no such case") == []


def test_processes_started_keep_to_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KITTENS_SIM_WORKERS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with runner._one_thread_each():
        assert os.environ["KITTENS_SIM_WORKERS"] == os.environ["OPENBLAS_NUM_THREADS"] == "1"
        assert os.environ["OMP_NUM_THREADS"] == "7"  # the user's word counts
    assert "KITTENS_SIM_WORKERS" not in os.environ


def test_run_reports() -> None:
    seen: list[tuple[int, int]] = []
    report = conformance.run(
        "numpy", "control", jobs=1, progress=lambda done, total, row: seen.append((done, total))
    )
    assert report.ok and not report.failures
    assert seen == [(i + 1, len(report.rows)) for i in range(len(report.rows))]
    summary = report.summary()
    assert summary.cases == summary.passed == len(report.rows) and 0 < summary.largest_ratio <= 1
    data = json.loads(report.to_json(indent=1))
    assert data["versions"]["numpy"] == np.__version__ and data["numerics"]["numpy"]["ulp"]["exp2"] == 1.0
    assert data["rows"][0]["how"] == "executed" and data["summary"]["numpy"]["failed"] == 0


def test_processes_give_the_same_rows() -> None:
    one, two = (conformance.run("numpy", "control", jobs=n) for n in (1, 2))
    assert [(r.case, r.ratio, r.verdict) for r in one.rows] == [
        (r.case, r.ratio, r.verdict) for r in two.rows
    ]


def test_a_run_of_nothing_is_not_ok() -> None:
    assert not conformance.run("numpy", "no such case").ok


def test_unknown_targets_are_refused() -> None:
    with pytest.raises(kt.TargetError):
        conformance.run("abacus")


def test_cases_are_compiled_where_nothing_runs() -> None:
    """With no device: what compiles passes, what spills fails with the line, and nothing is called run."""
    from kittens.backends.hip.compile import available

    if available():
        pytest.skip(available())
    report = conformance.run("hip:gfx1100", "add/float32", jobs=1, compile_only=True)
    assert report.ok and {r.how for r in report.rows if r.verdict == "passed"} == {"compiled"}
    assert all(r.judged == 0 for r in report.rows)
    refused = conformance.run("hip:gfx1100", "add/float64", compile_only=True).rows
    assert {r.verdict for r in refused} == {"refused"}

    @kt.kernel
    def greedy(out):
        x = kt.arange(512).to(kt.float32)
        table = kt.sin(x[:, None] * x[None, :])
        kt.store(out, (0, 0), table / table.sum(axis=1)[:, None])

    case = Case("greedy", greedy, lambda: {"out": Out(F32, (512, 512))})
    row = build(case, Target("hip", "gfx1100"))
    assert row.verdict == "failed" and "greedy" in row.message and "hint: use smaller tiles" in row.message


def test_what_sanitizers_watch_runs_and_tells_differences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sanitize.watch("numpy", ["decoding", "rows", "products"], 1)
    assert capsys.readouterr().out.split() == ["decoding", "done", "rows", "done", "products", "done"]
    rng = np.random.default_rng(0)
    for made, said in ((lambda: np.array([1.0, np.inf]), "not finite"), (lambda: rng.random(3), "differ")):
        monkeypatch.setitem(sanitize.NAMES, "rows", lambda on, size, made=made: [made()])
        with pytest.raises(AssertionError, match=said):
            sanitize.watch("numpy", ["rows"], 1)


class Abacus:
    """A backend that promises little and returns half of what it should."""

    halves = False

    @plugins.hookimpl
    def kittens_targets(self) -> list[TargetInfo]:
        return [TargetInfo("abacus", "beads", ("execute",))]

    @plugins.hookimpl
    def kittens_numerics(self, target: Target) -> Numerics | None:
        return (
            Numerics(dict.fromkeys(plugins.ask("kittens_numerics", Target("numpy")).ulp, 4.0))
            if target.backend == "abacus"
            else None
        )

    @plugins.hookimpl
    def kittens_launch(self, target: Target, launch: Any) -> Run | None:
        if target.backend != "abacus":
            return None
        run = plugins.ask("kittens_launch", Target("numpy"), launch=launch)
        if self.halves:
            launch.arguments["out"].data[...] /= 2
        return Run(run.kernel, "abacus", "executed", run.grid, run.constants)


@pytest.fixture
def abacus():  # type: ignore[no-untyped-def]
    plugin = Abacus()
    plugins.register(plugins.manager(), plugin, "abacus")
    yield plugin
    plugins.manager().unregister(name="abacus")


def test_any_backend_is_held_to_what_it_promises(abacus: Abacus) -> None:
    report = conformance.run(["numpy", "abacus"], "elementwise/mul/float32")
    assert report.ok and report.targets() == ["numpy", "abacus"]
    abacus.halves = True
    report = conformance.run(["numpy", "abacus"], "elementwise/mul/float32", stop_first=True)
    assert [row.target for row in report.failures] == ["abacus"]
    assert report.rows[-1] is report.failures[0]


def test_what_a_target_does_not_do_is_reported_as_refused(abacus: Abacus) -> None:
    report = conformance.run("abacus", "memory/copy/float8_e4m3fn/1x1")
    assert [row.verdict for row in report.rows] == ["refused"] and not report.ok
    assert "refuses float8_e4m3fn" in report.rows[0].message
    assert "reference only" in conformance.run("abacus", "memory/copy/float64/1x1").rows[0].message


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_views_lie_within_their_guards(layout: str, dtype: DType) -> None:
    buffer = allocate((3, 5), dtype, layout)
    assert buffer.view.shape == (3, 5) and buffer.covered.sum() == 15
    assert not buffer.covered[:GUARD].any() and not buffer.covered[-GUARD:].any()
    before = buffer.outside().copy()
    buffer.view[...] = np.zeros((), dtype.numpy)
    np.testing.assert_array_equal(buffer.outside(), before)
    aligned = buffer.view.ctypes.data % 16 == 0
    assert layout in ("offset", "reversed") or aligned


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_poison_contradicts_every_value(dtype: DType) -> None:
    from kittens.conformance.buffers import values

    pool = (
        np.arange(256, dtype=np.uint8).view(dtype.numpy)
        if dtype.bits == 8 and dtype.kind != "b"
        else np.array([0, 1, 1], dtype.numpy)
    )
    expected = values(pool, dtype)
    ratio = compare(
        "out", exactly(dtype, expected), values(poison(expected, dtype), dtype), np.ones(expected.shape, bool)
    )
    assert f"{pool.size} / {pool.size}" in ratio.message


def test_the_words_of_a_mismatch() -> None:
    v = np.array([[1.0, 2.0], [3.0, 4.0]])
    found = compare(
        "c",
        Bounded(F32, v, np.full((2, 2), 2.0**-20)),
        v + np.array([[0, 0], [0, 2.0**-18]]),
        np.ones((2, 2), bool),
    )
    assert found.ratio == 4
    assert found.message.splitlines() == [
        "c: mismatched elements: 1 / 4 (25%)",
        "  worst at c[1][1]: got 4.000003814697266, expected 4.0, allowed error 9.537e-07",
        "  error 3.815e-06 = 8 ulp of float32; allowed 2 ulp",
    ]


def test_empty_outputs_pass_and_say_so() -> None:
    @kt.kernel(grid=0)
    def nothing(out):
        kt.store(out, 0, kt.zeros(4, kt.float32))

    row = examine(Case("empty", nothing, lambda: {"out": Out(F32, (0,))}), Target("numpy"))
    assert row.verdict == "passed" and row.judged == 0


@pytest.mark.slow
def test_the_suite_runs_as_pytest(tmp_path: Any) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--pyargs",
        "kittens.conformance",
        "-k",
        "fibonacci",
    ]
    # The caller's own options for pytest, such as -q, are not this run's.
    env = {n: v for n, v in os.environ.items() if n != "PYTEST_ADDOPTS"} | {"KITTENS_ON": "numpy"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "10 passed" in done.stdout
