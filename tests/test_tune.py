"""`kittens tune`: what it lists, prunes, checks, times and keeps; and that kernels take what was kept."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchtools import FakeDevice
from click.testing import CliRunner, Result

import kittens as kt
from kittens import plugins, runtime, tuned
from kittens.bench import device as devices
from kittens.bench.timing import Method
from kittens.bench.tune import Candidate, Found, Subject, checks, search, trials
from kittens.cli import main
from kittens.codegen.predict import predict, work
from kittens.conformance import Row
from kittens.errors import ArgumentError, KittensError, UnavailableError
from kittens.examples import Example, library, library_names, shaped, usual
from kittens.kernel import Kernel, Tunable
from kittens.plugins import hookimpl
from kittens.runtime import Launch, Run
from kittens.targets import Numerics, Target, TargetInfo, parse

SEPARATE = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
GEM = Target("gem")


@kt.kernel(grid=lambda x, BLOCK: kt.cdiv(x.shape[0], BLOCK))
def double(x, y, *, BLOCK=kt.tunable(16, 32, 64)):  # type: ignore[no-untyped-def]
    i = kt.program_id()
    kt.store(y, i, kt.load(x, i, BLOCK) * 2.0)


@kt.kernel(grid=lambda x, BLOCK: kt.cdiv(x.shape[0], BLOCK))
def crooked(x, y, *, BLOCK=kt.tunable(16, 32, 64)):  # type: ignore[no-untyped-def]
    i = kt.program_id()
    kt.store(y, i, kt.load(x, i, BLOCK) * (2.0 if BLOCK != 32 else 3.0))


@kt.kernel
def plain(x, *, n=3):  # type: ignore[no-untyped-def]
    kt.store(x, 0, kt.zeros((4,), kt.float32))


EXAMPLE = Example((kt.spec("float32", (100,)), kt.spec("float32", (100,))))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of tuned values, not there yet."""
    path = tmp_path / "settings" / "tuned.json"
    monkeypatch.setenv("KITTENS_TUNED", str(path))
    return path


class Gem:
    """A backend that runs on the reference, takes made-up time, and is wrong or refuses where a test says so."""

    def __init__(self, device: FakeDevice):
        self.device = device
        self.seconds: dict[int, float] = {16: 40e-3, 32: 20e-3, 64: 30e-3}
        self.wrong: set[int] = set()
        self.wrong_from = 0  # elements
        self.idle: set[int] = set()  # writes nothing from so many elements on
        self.refuses: set[int] = set()
        self.shipped: dict[str, int] = {}
        self.tuned: Path | None = None
        self.more: dict[str, tuple[int, ...]] = {}

    @hookimpl
    def kittens_targets(self) -> list[TargetInfo]:
        return [TargetInfo("gem", "a gem", ("execute",))]

    @hookimpl
    def kittens_numerics(self, target: Target) -> Numerics | None:
        return Numerics({}) if target.backend == "gem" else None

    @hookimpl
    def kittens_tunables(
        self, target: Target, kernel: str, arguments: dict[str, Any]
    ) -> dict[str, int] | None:
        return dict(self.shipped) if target.backend == "gem" else None

    @hookimpl
    def kittens_tuned(self, target: Target) -> Path | None:
        return self.tuned if target.backend == "gem" else None

    @hookimpl
    def kittens_candidates(
        self, target: Target, kernel: str, arguments: dict[str, Any]
    ) -> dict[str, Any] | None:
        return self.more if target.backend == "gem" else None

    @hookimpl
    def kittens_launch(self, target: Target, launch: Launch) -> Run | None:
        if target.backend != "gem":
            return None
        block = launch.constants["BLOCK"]
        if block in self.refuses:
            raise UnavailableError(f"tiles of {block} are too large")
        arrays = {n: a.data for n, a in launch.arguments.items()}  # type: ignore[union-attr]
        large = arrays["y"].size >= self.wrong_from
        if not (block in self.idle and large):
            launch.kernel(**arrays, on="numpy", **launch.constants)
        if block in self.wrong and large:
            arrays["y"][-1] += 100.0
        self.device.log.append(str(block))
        self.device.busy += self.seconds[block]
        return Run(launch.kernel.name, "gem", "executed", launch.grid, launch.constants)


@pytest.fixture
def gem() -> Iterator[Gem]:
    backend = Gem(FakeDevice("a gem", records=False))
    plugins.register(plugins.manager(), backend, "gem")
    plugins.check.cache_clear()
    yield backend
    plugins.manager().unregister(name="gem")
    plugins.check.cache_clear()
    for kernel in (double, crooked):
        kernel.calls.clear()


def found_on(gem: Gem, kernel: Kernel = double, example: Example = EXAMPLE, **more: Any) -> Found:
    method = Method(rounds=5, round_seconds=0.1, capture_below=0.0)
    return search(Subject(kernel, example, GEM), gem.device, method, **more)


def states(found: Found) -> dict[int, str]:
    return {c.values["BLOCK"]: c.state for c in found.candidates}


# The search, timed.


def test_the_fastest_right_candidate_wins(gem: Gem) -> None:
    found = found_on(gem)
    assert found.timed and found.present.values == {"BLOCK": 16}
    assert found.winner is not None and found.winner.values == {"BLOCK": 32}
    assert states(found) == {16: "final", 32: "final", 64: "final"}
    assert found.winner.seconds == pytest.approx([20e-3] * 5)


def test_what_the_target_lists_is_tried_too(gem: Gem) -> None:
    gem.more, gem.seconds[8] = {"BLOCK": (8, 16)}, 10e-3
    found = found_on(gem)
    assert found.winner is not None and found.winner.values == {"BLOCK": 8}
    assert len(found.candidates) == 4


def test_a_wrong_candidate_cannot_win(gem: Gem) -> None:
    gem.wrong = {32}
    found = found_on(gem)
    assert states(found)[32] == "wrong" and found.winner is not None and found.winner.values == {"BLOCK": 64}
    (wrong,) = (c for c in found.candidates if c.state == "wrong")
    assert "mismatched elements: 1 / 100" in wrong.reason and not wrong.seconds
    assert gem.device.log.count("32") == 1, "it was run for the check alone"


def test_one_that_is_wrong_at_full_size_alone_cannot_win(gem: Gem, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Example((kt.spec("float32", (40,)), kt.spec("float32", (40,))))
    made = checks.arrays(Subject(double, small, GEM), Candidate({"BLOCK": 16}))
    case = checks.Case("small", double, lambda: dict(made), {})
    monkeypatch.setattr(checks, "all_cases", lambda: {"small": case})
    for gem.wrong, gem.idle in (({32}, set()), (set(), {32})):  # or writes nothing there
        gem.wrong_from = 100
        found = found_on(gem)
        (wrong,) = (c for c in found.candidates if c.state == "wrong")
        assert wrong.values == {"BLOCK": 32} and "at full size" in wrong.reason
        assert found.winner is not None and found.winner.values == {"BLOCK": 64}


def test_a_kernel_whose_result_depends_on_a_tunable_is_seen(gem: Gem) -> None:
    found = found_on(gem, crooked)
    assert states(found)[32] == "wrong" and found.winner is not None and found.winner.values == {"BLOCK": 64}
    (wrong,) = (c for c in found.candidates if c.state == "wrong")
    assert "does not compute its formula" in wrong.reason


def test_wrong_present_values_end_the_search(gem: Gem) -> None:
    gem.wrong = {16}
    with pytest.raises(ArgumentError, match="double is wrong with its present values, BLOCK=16"):
        found_on(gem)


def test_what_the_target_refuses_is_left_out(gem: Gem) -> None:
    gem.refuses = {32}
    found = found_on(gem)
    assert found.winner is not None and found.winner.values == {"BLOCK": 64}
    (out,) = (c for c in found.candidates if c.values == {"BLOCK": 32})
    assert "tiles of 32 are too large" in out.reason and not out.seconds


def test_a_gain_within_noise_is_none(gem: Gem) -> None:
    gem.seconds = {16: 20e-3, 32: 19.9e-3, 64: 40e-3}
    found = found_on(gem)
    assert found.winner is None
    assert any("which noise could be" in c.reason for c in found.candidates)


def test_only_the_best_run_in_the_last_race(gem: Gem) -> None:
    gem.more = {"BLOCK": tuple(range(2, 14, 2))}
    gem.seconds |= {n: 60e-3 + n * 1e-3 for n in range(2, 14, 2)}
    found = found_on(gem)
    finalists = [n for n, state in states(found).items() if state == "final"]
    assert len(finalists) == trials.FINALISTS and {16, 32, 64} <= set(finalists)
    assert sum(state == "timed" for state in states(found).values()) == 5


def test_no_more_are_tried_than_asked_for(gem: Gem) -> None:
    found = found_on(gem, keep=2)
    assert sorted(states(found).values()) == ["final", "final", "pruned"]
    (out,) = (c for c in found.candidates if c.state == "pruned")
    assert out.reason == "2 are tried, and nothing is predicted of them" and not out.seconds


def test_given_constants_are_not_searched(gem: Gem) -> None:
    with pytest.raises(ArgumentError, match="has no tunables that are open"):
        found_on(gem, example=Example(EXAMPLE.args, {"BLOCK": 32}))
    with pytest.raises(ArgumentError, match="has no tunables that are open"):
        found_on(gem, plain, Example(EXAMPLE.args[:1]))


# Predictions.


def planned(
    name: str, target: str, example: Example | None = None, **constants: int
) -> tuple[Any, Any, Any, Any]:
    kernel, on = library(name), parse(target)
    given = example or Example.of(kernel)
    arguments, own = kernel.bind(given.args, {**given.constants, **constants})
    grid = runtime.evaluate_grid(kernel, arguments, kernel.settle(on, arguments, own))
    plan = kernel.plan(on, *given.args, **{**given.constants, **constants})
    return plan, arguments, grid, plugins.ask("kittens_rates", on)


def test_work_is_counted_through_loops() -> None:
    plan, arguments, grid, _ = planned("matmul", "hip:gfx950", BM=128, BN=64, BK=32)
    done = work(plan, arguments, grid, (0, 0, 0))
    assert done.products == {16: 2.0 * 128 * 64 * 4096}
    assert done.bytes == 2 * ((128 + 64) * 4096 + 128 * 64)


def test_work_follows_a_mask() -> None:
    plan, arguments, grid, _ = planned("attention_forward", "cuda:sm_90a", BM=64, BN=64)
    first, last = (work(plan, arguments, grid, (i, 0, 0)) for i in (0, grid[0] - 1))
    assert last.products[16] == 32 * first.products[16]  # causal: 1 block of keys, and 2048 / 64


def test_costs_rank() -> None:
    def cost(**constants: int) -> float:
        return predict(*planned("matmul", "cuda:sm_90a", **constants)).cost

    assert cost(BM=128, BN=128, BK=32) < cost(BM=64, BN=64, BK=32) < cost(BM=32, BN=32, BK=32)
    few = shaped(library("matmul"), (256, 256, 4096))
    small, large = (
        predict(*planned("matmul", "cuda:sm_90a", few, BM=n, BN=n, BK=32)).cost for n in (32, 256)
    )
    assert small < large, "one program keeps one processor busy"


@pytest.mark.parametrize(
    "target", [i.name for i in plugins.targets() if i.name.count(":") and "@" not in i.name]
)
def test_every_generating_target_has_rates(target: str) -> None:
    rates = plugins.ask("kittens_rates", parse(target))
    assert rates.processors > 0 and rates.bandwidth < rates.cache and 16 in rates.products
    assert tuned.architecture(parse(target)) == target


def test_spills_are_predicted() -> None:
    assert predict(*planned("matmul", "cuda:sm_90a", BM=256, BN=256, BK=32)).spills
    assert not predict(*planned("matmul", "cuda:sm_90a", BM=64, BN=64, BK=32)).spills


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Checks that pass, with nothing run; gives the constants that were checked."""
    checked: list[dict[str, Any]] = []

    def passes(case: Any, target: Target) -> Row:
        checked.append(case.constants)
        return Row(case.name, str(target), "passed", "simulated")

    monkeypatch.setattr(checks, "examine", passes)
    return checked


def test_predictions_prune(trusting: list[dict[str, Any]]) -> None:
    found = search(Subject(library("matmul"), Example.of(library("matmul")), parse("cuda:sm_80@sim")))
    assert not found.timed
    reasons = {str(c): c.reason for c in found.candidates if c.state == "pruned"}
    assert "registers predicted, a lane has 255" in reasons["BM=256 BN=256 BK=64"]
    assert "times the least" in reasons["BM=32 BN=32 BK=64"]
    assert any("others are predicted to be no slower" in r for r in reasons.values())
    refused = [c for c in found.candidates if c.state == "refused"]
    assert all("shared memory" in c.reason for c in refused)
    right = [c for c in found.candidates if c.state == "ranked"]
    assert len(right) == trials.FINALISTS + 1 and found.present in right
    assert found.winner is not None and found.winner in right
    assert found.winner.prediction is not None and not found.winner.prediction.spills
    assert len(trusting) == 2 * len(right)


def test_the_cases_are_of_the_same_types_and_constants(trusting: list[dict[str, Any]]) -> None:
    for causal in ({"right": 0}, {"right": None}):
        trusting.clear()
        kernel = library("attention_forward")
        example = shaped(kernel, (2, 4, 1024, 64))
        search(
            Subject(kernel, Example(example.args, {**example.constants, **causal}), parse("cuda:sm_90a@sim"))
        )
        assert trusting and all(c.get("right") == causal["right"] for c in trusting)


@pytest.mark.sim
def test_a_candidate_is_checked_in_the_simulator() -> None:
    example = Example((kt.spec("float32", (9000,)), kt.spec("float32", (9000,))))
    found = search(Subject(double, example, parse("cuda:sm_90a@sim")))
    assert {c.state for c in found.candidates} == {"ranked"}
    found = search(Subject(crooked, example, parse("cuda:sm_90a@sim")))
    assert states(found) == {16: "ranked", 32: "wrong", 64: "ranked"}


# What is kept.


def described(*shape: int, dtype: str = "float32") -> Any:
    return double.bind((kt.spec(dtype, shape), kt.spec(dtype, shape)), {})[0]


def test_kernels_take_what_was_kept_before_what_is_shipped(gem: Gem, kept: Path) -> None:
    gem.shipped = {"BLOCK": 64}
    settle = lambda n, **given: double.settle(GEM, described(n), given)["BLOCK"]  # noqa: E731
    assert settle(5000) == 64
    assert tuned.save(double, GEM, described(4096), {}, {"BLOCK": 32}, {"seconds": 1.0}) == kept
    assert settle(4096) == settle(5008) == settle(8176) == 32, "of one class"
    assert settle(5001) == settle(100) == settle(8192) == 64, "of others"
    assert settle(4096, BLOCK=16) == 16, "what the caller says comes first"
    x = np.arange(4096, dtype=np.float32)
    assert double(x, np.zeros_like(x), on="gem").constants == {"BLOCK": 32}
    tuned.save(double, GEM, described(4096), {}, {"BLOCK": 16}, {})
    assert double(x, np.zeros_like(x), on="gem").constants == {"BLOCK": 16}, (
        "launches are not remembered beyond it"
    )
    os.environ["KITTENS_TUNED"] = ""
    assert settle(4096) == 64


def test_what_a_backend_ships_was_kept_in_its_file(
    gem: Gem, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is looked into behind that of this machine, and before its rules."""
    gem.shipped, gem.tuned = {"BLOCK": 64}, tmp_path / "shipped.json"
    settle = lambda n: double.settle(GEM, described(n), {})["BLOCK"]  # noqa: E731
    assert settle(4096) == 64, "a backend need not have such a file"
    monkeypatch.setenv("KITTENS_TUNED", str(gem.tuned))
    tuned.save(double, GEM, described(4096), {}, {"BLOCK": 16}, {})
    monkeypatch.setenv("KITTENS_TUNED", "")
    assert settle(4096) == 16 and settle(100) == 64
    monkeypatch.setenv("KITTENS_TUNED", str(kept))
    tuned.save(double, GEM, described(4096), {}, {"BLOCK": 32}, {})
    assert settle(4096) == 32


@pytest.mark.parametrize("backend", ["cuda", "hip", "metal"])
def test_shipped_finds_are_of_kernels_and_tunables_that_there_are(backend: str) -> None:
    target = parse(backend)
    place = plugins.manager().hook.kittens_tuned(target=target)
    assert place.parent.name == backend
    for arch, entries in tuned.load(place).items():
        assert parse(arch).backend == backend
        for name, classes in entries.items():
            kernel = library(name.split(":")[1])
            assert tuned.identity(kernel) == name
            for entry in classes.values():
                assert entry["constants"].keys() <= {
                    n for n, v in kernel.constants.items() if isinstance(v, Tunable)
                }


def test_entries_are_of_a_target_a_kernel_and_a_class(kept: Path) -> None:
    hip, other = parse("hip:gfx950"), parse("hip:gfx942")
    tuned.save(double, hip, described(4096), {}, {"BLOCK": 32}, {})
    tuned.save(crooked, hip, described(4096), {}, {"BLOCK": 64}, {})
    tuned.save(double, other, described(100), {}, {"BLOCK": 16}, {})
    assert tuned.lookup(double, hip, described(4096), {}) == {"BLOCK": 32}
    assert tuned.lookup(double, parse("hip:gfx950@sim"), described(4096), {}) == {"BLOCK": 32}
    assert tuned.lookup(crooked, hip, described(4096), {}) == {"BLOCK": 64}
    assert tuned.lookup(double, other, described(4096), {}) == {}
    assert tuned.lookup(double, hip, described(4096), {"causal": True}) == {}
    assert tuned.lookup(double, parse("numpy"), described(4096), {}) == {}
    data = json.loads(kept.read_text())
    assert set(data["values"]) == {"hip:gfx950", "hip:gfx942"}


def test_classes_of_shapes() -> None:
    def of(*shape: int, **constants: Any) -> str:
        return tuned.shape_class({"x": kt.spec("bfloat16", shape)}, constants)

    assert of(4096, 128) == "x:bfloat16[4096+,128]@1"
    assert of(5000, 128) == "x:bfloat16[4096+/8,128]@1" != of(5008, 128)
    assert of(64, 96) != of(64, 64), "widths of heads are told apart"
    assert of(1, 8192) == "x:bfloat16[1,8192+]@1"
    assert of(16, 64, scale=0.125) == of(16, 64, scale=0.5) != of(16, 64, scale=0.0)
    assert of(16, 64, right=0) != of(16, 64, right=None) != of(16, 64, right=False)
    turned = kt.spec("bfloat16", (64, 64), (1, 64))
    assert tuned.shape_class({"x": turned}, {}) != tuned.shape_class({"x": kt.spec("bfloat16", (64, 64))}, {})
    assert tuned.shape_class({"x": None}, {"d": kt.float16}) == "d=float16"


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"format": "kittens tuned 0", "values": {}}', '{"format": "kittens tuned 1", "values": 3}',
     '{"format": "kittens tuned 1", "values": {"gem": {"k": {"c": {"constants": {"BLOCK": "32"}}}}}}',
     '{"format": "kittens tuned 1", "values": {"gem": {"k": {"c": {}}}}}'],
)  # fmt: skip
def test_a_damaged_file_is_an_error_that_says_what_to_do(kept: Path, text: str) -> None:
    kept.parent.mkdir()
    kept.write_text(text)
    with pytest.raises(ArgumentError, match="tuned values") as raised:
        double.settle(parse("hip:gfx950"), described(100), {})
    assert str(kept) in str(raised.value) and "delete the file" in str(raised.value)


def test_a_file_that_changed_is_read_again(kept: Path) -> None:
    hip = parse("hip:gfx950")
    tuned.save(double, hip, described(100), {}, {"BLOCK": 32}, {})
    text = kept.read_text()
    assert tuned.lookup(double, hip, described(100), {}) == {"BLOCK": 32}
    kept.write_text(text.replace('"BLOCK": 32', '"BLOCK": 128'))
    assert tuned.lookup(double, hip, described(100), {}) == {"BLOCK": 128}
    kept.unlink()
    assert tuned.lookup(double, hip, described(100), {}) == {}


def test_where_values_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KITTENS_TUNED")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert tuned.path() == tmp_path / "kittens" / "tuned.json"
    monkeypatch.setenv("KITTENS_TUNED", "")
    assert tuned.path() is None
    with pytest.raises(ArgumentError, match="KITTENS_TUNED is empty"):
        tuned.save(double, GEM, described(100), {}, {"BLOCK": 32}, {})
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KITTENS_TUNED", str(tmp_path / "file" / "tuned.json"))
    with pytest.raises(ArgumentError, match="cannot write the tuned values"):
        tuned.save(double, parse("hip:gfx950"), described(100), {}, {"BLOCK": 32}, {})


# Examples in other shapes.


def test_examples_in_other_shapes() -> None:
    example = shaped(library("matmul"), (64, 32, 128))
    assert [a.shape for a in example.args] == [(64, 128), (128, 32), (64, 32)]
    example = shaped(library("layer_norm"), (10, 300))
    assert [a.shape for a in example.args] == [(10, 300), (10, 300), (300,), (300,)]
    assert example.constants["resident"] and example.constants["BN"] >= 300
    assert "resident" not in shaped(library("softmax"), (10, 30000)).constants
    assert (
        usual(library("softmax")).constants["resident"] and usual(library("softmax")).constants["BN"] == 4096
    )
    for name, extents in (("matmul", (64, 32)), ("matmul", (64, 32, 0)), ("embedding", (64, 32))):
        with pytest.raises(ArgumentError, match="shape"):
            shaped(library(name), extents)


def test_examples_are_as_the_ready_operations_run_them(monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
    """What is tuned for an example is found by the operation."""
    kernel = library("softmax")
    example = usual(kernel)
    arguments, given = kernel.bind(example.args, example.constants)
    closed = {n: v for n, v in kernel.settle(parse("hip:gfx950"), arguments, given).items() if n != "BM"}
    tuned.save(kernel, parse("hip:gfx950"), arguments, closed, {"BM": 16}, {})
    settled: list[dict[str, Any]] = []

    def launched(hook: str, target: Target, launch: Launch) -> Run:
        settled.append(launch.constants)
        return Run("softmax", "hip", "executed", launch.grid, launch.constants)

    monkeypatch.setattr(plugins, "ask", launched)
    kt.ops.softmax(np.zeros((4096, 4096), kt.bfloat16.numpy), on="hip:gfx950")
    assert settled[0]["BM"] == 16


# The command.


def run(*arguments: str) -> Result:
    return CliRunner(**SEPARATE).invoke(main, ["tune", *arguments])  # type: ignore[arg-type, unused-ignore]


def succeeds(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(code: int, *arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == code and "Traceback" not in result.stderr, result.output
    return result.stderr


@pytest.fixture
def opened(gem: Gem, monkeypatch: pytest.MonkeyPatch) -> Gem:
    monkeypatch.setattr(devices, "open_device", lambda target: gem.device)
    return gem


ARGUMENTS = (f"{Path(__file__)}:double", "--arg", "float32[100]", "--arg", "float32[100]")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Has the command find the kernel of this module."""
    import kittens.cli.tune as command

    monkeypatch.setattr(
        command, "find_kernel", lambda name: {"double": double, "plain": plain}[name.split(":")[1]]
    )
    return lambda: None


@pytest.mark.usefixtures("opened", "loaded")
def test_the_winner_is_kept_and_taken(kept: Path) -> None:
    text = succeeds(*ARGUMENTS, "--on", "gem")
    assert "BLOCK=32 is 2.000 times as fast as the present BLOCK=16" in text and f"kept in {kept}" in text
    assert double.settle(GEM, described(100), {}) == {"BLOCK": 32}
    (entry,) = json.loads(kept.read_text())["values"]["gem"][tuned.identity(double)].values()
    assert entry["before"]["constants"] == {"BLOCK": 16} and entry["device"] == "a gem"
    assert "the present values stay: BLOCK=32" in succeeds(*ARGUMENTS, "--on", "gem")


@pytest.mark.usefixtures("opened", "loaded")
def test_a_dry_run_keeps_nothing(kept: Path) -> None:
    assert "not kept: --dry-run" in succeeds(*ARGUMENTS, "--on", "gem", "--dry-run")
    data = json.loads(succeeds(*ARGUMENTS, "--on", "gem", "--dry-run", "--json", "-"))
    assert data["winner"] == {"BLOCK": 32} and data["how"] == "timed" and data["kept"] is None
    assert {c["state"] for c in data["candidates"]} == {"final"} and not kept.exists()


@pytest.mark.usefixtures("opened", "loaded")
def test_present_values_are_kept_where_that_is_asked_for(gem: Gem, kept: Path) -> None:
    gem.shipped = {"BLOCK": 32}
    assert "kept" not in succeeds(*ARGUMENTS, "--on", "gem") and not kept.exists()
    text = succeeds(*ARGUMENTS, "--on", "gem", "--confirm")
    assert "the present values stay: BLOCK=32" in text and f"kept in {kept}" in text
    (entry,) = json.loads(kept.read_text())["values"]["gem"][tuned.identity(double)].values()
    assert entry["constants"] == entry["before"]["constants"] == {"BLOCK": 32}


@pytest.mark.usefixtures("trusting")
def test_a_simulated_target_is_predicted_only(kept: Path) -> None:
    text = succeeds("softmax", "--on", "hip:gfx950@sim", "--shape", "512,1024")
    assert (
        "predicted only: nothing was timed, and nothing is kept" in text
        and "predicted to be best: BM=" in text
    )
    assert not kept.exists() and " us" not in text and " ms" not in text, "no time is claimed"
    data = json.loads(succeeds("matmul", "--on", "cuda:sm_80@sim", "--json", "-"))
    assert data["how"] == "predicted only" and all(c["seconds"] == [] for c in data["candidates"])
    assert "more that were pruned; --json has all" in succeeds("matmul", "--on", "cuda:sm_80@sim")


@pytest.mark.usefixtures("loaded")
def test_mistakes_are_messages(monkeypatch: pytest.MonkeyPatch, gem: Gem) -> None:
    import kittens.cli.tune as command

    monkeypatch.setattr(devices, "open_device", lambda target: gem.device)
    assert "KITTENS_TUNED is empty" in fails(2, *ARGUMENTS, "--on", "gem")
    assert "and no arguments are given" in fails(2, "here:double", "--on", "gem", "--dry-run")
    assert "--shape is for kernels of the library" in fails(2, *ARGUMENTS, "--shape", "4", "--on", "gem")
    assert "no tunables that are open" in fails(
        2, "x:plain", "--arg", "float32[4]", "--on", "gem", "--dry-run"
    )
    monkeypatch.setattr(command, "find_kernel", library)
    assert "'4x4' is no shape" in fails(2, "matmul", "--on", "cuda:sm_80@sim", "--shape", "4x4")
    assert "takes a shape of M,N,K, not 4,4" in fails(2, "matmul", "--on", "cuda:sm_80@sim", "--shape", "4,4")
    assert "no target 'vulkan'" in fails(2, "matmul", "--on", "vulkan")


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be timed here" in fails(3, "matmul", "--on", "metal")
    monkeypatch.setattr(plugins, "targets", lambda: [TargetInfo("numpy", "", ("execute",))])
    assert "has no device to tune for" in fails(3, "matmul")


def test_unknown_kinds_of_error_are_not_hidden(gem: Gem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernel, "ir", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        found_on(gem)
    assert not issubclass(ZeroDivisionError, KittensError)


def test_shipped_values_are_of_tunables_that_there_are() -> None:
    kernels, checked = {tuned.identity(k): k for k in map(library, library_names())}, 0
    for target in ("cuda:sm_90a", "hip:gfx950", "metal:apple9"):
        place = plugins.manager().hook.kittens_tuned(target=parse(target))
        for shipped in tuned.load(place).values():
            for name, classes in shipped.items():
                for entry in classes.values():
                    named = kernels[name].constants
                    assert all(isinstance(named[n], Tunable) for n in entry["constants"])
                    checked += 1
    assert checked >= 3


def test_values_that_are_shipped_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITTENS_TUNED", "")
    x = kt.spec("bfloat16", (65536, 4096))
    softmax = library("softmax")
    arguments, given = softmax.bind((x, x), {"resident": True, "whole": True, "BN": 4096})
    target = parse("cuda:sm_90a")
    shipped = tuned.load(plugins.manager().hook.kittens_tuned(target=target))
    (entry,) = shipped["cuda:sm_90a"][tuned.identity(softmax)].values()
    assert softmax.settle(target, arguments, given)["BM"] == entry["constants"]["BM"]
    monkeypatch.setitem(entry["constants"], "BM", 7)
    assert softmax.settle(target, arguments, given)["BM"] == 7
