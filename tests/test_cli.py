"""The command line: what it prints, and the exit codes that --help promises."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kittens import bench, conformance, plugins
from kittens.cli import main
from kittens.conformance import Report, Row
from kittens.errors import InternalError, UnavailableError
from kittens.examples import EXAMPLES, Example, kernels, library_names
from kittens.kernel import Kernel
from kittens.targets import TargetInfo

ROOT = Path(__file__).resolve().parents[1]

KERNELS = """
import kittens as kt

@kt.kernel(grid=lambda x, BLOCK: kt.cdiv(x.shape[0], BLOCK))
def double(x, y, *, BLOCK=kt.tunable(256)):
    i = kt.program_id()
    kt.store(y, i, kt.load(x, i, BLOCK) * 2)

@kt.kernel(grid=1)
def wrong(x):
    kt.store(x, 0, kt.load(x, 0, 4) + kt.zeros((3,), kt.float32))

@kt.kernel(grid=1)
def divides(x):
    kt.store(x, 0, kt.full((4,), 1 / 0, kt.float32))

class Box:
    double = double

number = 3
"""


#: click before 8.2 mixes the two streams unless told not to.
SEPARATE = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}


def run(*arguments: str) -> Result:
    return CliRunner(**SEPARATE).invoke(main, arguments)  # type: ignore[arg-type, unused-ignore]


def fails(code: int, *arguments: str) -> str:
    """The message of a command that ends with `code`, on stderr, without a traceback."""
    result = run(*arguments)
    assert result.exit_code == code, result.output + result.stderr
    assert isinstance(result.exception, SystemExit) and "Traceback" not in result.stderr
    return result.stderr


def succeeds(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def module(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(KERNELS)
    return str(tmp_path / "mine.py")


# The command itself.


def test_version_and_help() -> None:
    assert succeeds("--version").split()[-1] == version("kittens-gpu")
    text = succeeds("--help")
    assert all(name in text for name in ("doctor", "conform", "show", "bench", "Exit codes", "130"))


def test_a_wrong_command_line_is_exit_code_2() -> None:
    assert "No such command" in fails(2, "dance")
    assert "No such option" in fails(2, "doctor", "--dance")


@pytest.mark.parametrize("start", [["-m", "kittens"], ["-c", "from kittens.cli import main; main()"]])
def test_as_a_process(start: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *start, "show", "nothing"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("kittens: the library has no kernel 'nothing'")


def test_a_fault_of_kittens_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> Report:
        raise InternalError("broken")

    monkeypatch.setattr(conformance, "run", broken)
    assert isinstance(run("conform").exception, InternalError)


# doctor


def test_doctor_tells_what_runs_and_what_is_missing() -> None:
    text = succeeds("doctor")
    rows = {line.split()[0]: line.split()[1:4] for line in text.splitlines() if line.strip()}
    assert rows["numpy"] == ["yes", "-", "-"]
    assert {info.name.removesuffix("@sim") for info in plugins.targets()} <= set(rows)


def test_doctor_tells_of_a_simulated_target_with_the_target_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    infos = [
        TargetInfo("gem:a", "a gem", (), {"execute": "no gem", "simulate": "ask gem:a@sim"}),
        TargetInfo("gem:a@sim", "a gem, simulated", ("simulate",)),
        TargetInfo("gem:b", "a gem", ("compile",)),
        TargetInfo("gem:b@sim", "a gem, simulated", (), {"simulate": "no stones"}),
    ]
    monkeypatch.setattr(plugins, "targets", lambda: infos)
    lines = succeeds("doctor").splitlines()
    rows = {line.split()[0]: line.split()[1:4] for line in lines if line.strip()}
    assert rows["gem:a"] == ["no", "yes", "-"] and rows["gem:b"] == ["-", "no", "yes"]
    assert "gem:a@sim" not in rows and "  gem, simulate: no stones" in lines
    assert not any("ask gem:a@sim" in line for line in lines)


def test_doctor_as_json_agrees_with_the_plugins() -> None:
    found = json.loads(succeeds("doctor", "--json"))
    assert found["kittens"] == version("kittens-gpu")
    assert found["libraries"]["numpy"] == version("numpy")
    told = {t["name"]: t for t in found["targets"]}
    for info in plugins.targets():
        assert told[info.name]["can"] == list(info.can)
        assert info.can or info.missing, "what does not work has a reason"
        assert all(told[info.name]["missing"].values())


def test_doctor_lists_a_backend_that_failed_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "failed", lambda: {"gem": "ImportError: no [crystal]"})
    assert "The backend gem could not be loaded: ImportError: no [crystal]" in succeeds("doctor")


@pytest.mark.parametrize("name", ["cuda", "hip", "metal"])
def test_the_light_backends_import_no_vendor_library(name: str) -> None:
    code = (
        f"import sys, kittens.backends.{name} as b; b.kittens_targets();"
        "print([m for m in ('cupy', 'cuda', 'hip', 'Metal', 'objc', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.strip() == "[]", done.stderr


# show


def test_show_the_ir_of_a_kernel_in_a_file(module: str) -> None:
    text = succeeds("show", f"{module}:double", "--arg", "float32[1000]", "--arg", "float32[1000]")
    assert text.startswith("kernel double(") and "{BLOCK=256}" in text
    text = succeeds(
        "show", f"{module}:Box.double", "--arg", "float32[9]", "--arg", "float32[9]", "--const", "BLOCK=4"
    )
    assert "{BLOCK=4}" in text


def test_show_as_json(module: str) -> None:
    arguments = ["--arg", "bfloat16[8]", "--arg", "bfloat16[8]", "--json"]
    shown = json.loads(succeeds("show", f"{module}:double", *arguments))
    assert (shown["kernel"], shown["target"], shown["stage"]) == ("double", "numpy", "ir")
    assert shown["text"].startswith("kernel double(")


def test_show_a_kernel_of_a_module(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(module).parent)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    assert succeeds("show", "mine:double", "--arg", "float32[4]", "--arg", "float32[4]").startswith(
        "kernel double"
    )
    monkeypatch.delitem(sys.modules, "mine", raising=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{m}:double"], "kernel double takes x, y, and no arguments are given"),
        (["{m}:number"], "is a int, not a kernel"),
        (["{m}:nothing"], "has no 'nothing'"),
        (["{m}:double", "--arg", "float32[4]"], "misses its argument 'y'"),
        (["{m}:double", "--arg", "float32[4]@1"], "no axis 1 of 1"),
        (["{m}:double", "--arg", "float33[4]"], "no element type 'float33'"),
        (["{m}:double", "--arg", "lots"], "'lots' is no argument"),
        (["{m}:double", "--const", "BLOCK"], "'BLOCK' is no constant"),
        (["{m}:double", "--arg", "int8[4]", "--arg", "int8[4]", "--const", "N=1"], "has no constant 'N'"),
        (["{m}:divides", "--arg", "float32[4]"], "kernel divides fails: ZeroDivisionError"),
        ([":double"], "':double' names no kernel"),
        (["{m}:"], "names no kernel"),
        (["{m}:wrong", "--arg", "float32[4]"], "shapes (4,) and (3,) do not broadcast"),
        (["{m}:double", "--on", "no such"], "'no such' is not the name of a target"),
        (["{m}:double", "--on", "vulkan"], "no target 'vulkan'"),
        (["nowhere.py:double"], "no file nowhere.py"),
        (["nowhere_at_all:double"], "nowhere_at_all cannot be imported"),
        (["nothing"], "the library has no kernel 'nothing'"),
    ],
)
def test_mistakes_are_messages(module: str, arguments: list[str], message: str) -> None:
    assert message in fails(2, "show", *(a.format(m=module) for a in arguments))


def test_an_error_in_a_kernel_shows_its_line(module: str) -> None:
    text = fails(2, "show", f"{module}:wrong", "--arg", "float32[4]")
    assert f"--> {module}:11" in text and "hint:" in text


def test_a_file_that_does_not_import_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1 / 0\n")
    text = fails(2, "show", f"{tmp_path}/bad.py:k")
    assert "ZeroDivisionError" in text and "bad.py:1" in text


def test_a_stage_that_no_backend_offers_is_exit_code_3(module: str) -> None:
    arguments = ["--arg", "float32[4]", "--arg", "float32[4]"]
    for stage in ("plan", "source", "asm", "resources"):
        assert "numpy" in fails(3, "show", f"{module}:double", "--stage", stage, *arguments)


def test_assembly_and_resources_come_from_the_compiled_kernel(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["show", f"{module}:double", "--arg", "float32[4]", "--arg", "float32[4]", "--stage"]
    compiled = SimpleNamespace(asm="mov r0, r1\n", resources={"registers": 7})
    monkeypatch.setattr(Kernel, "compile", lambda self, *args, **constants: compiled)
    assert succeeds(*arguments, "asm") == "mov r0, r1\n"
    assert succeeds(*arguments, "resources") == "registers: 7\n"
    assert json.loads(succeeds(*arguments, "resources", "--json"))["resources"] == {"registers": 7}
    compiled.asm = ""
    assert "does not give its asm" in fails(3, *arguments, "asm")


def test_show_list() -> None:
    assert succeeds("show", "list").split() == library_names()
    assert json.loads(succeeds("show", "list", "--json")) == library_names()


@pytest.mark.parametrize("name", sorted(kernels()))
def test_each_kernel_of_the_library_has_an_example_and_can_be_shown(name: str) -> None:
    assert Example.of(kernels()[name]).args, f"add {name} to kittens/examples.py"
    assert succeeds("show", name).startswith(f"kernel {kernels()[name].name}(")


def test_no_example_is_of_a_kernel_that_is_gone() -> None:
    assert set(EXAMPLES) <= {k.name for k in kernels().values()}


# conform


def row(case: str, verdict: str = "passed", ratio: float = 0.0, **more: Any) -> Row:
    return Row(
        case, more.pop("target", "numpy"), verdict, "executed" if verdict != "refused" else "", ratio, **more
    )


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Has `kittens conform` get the given rows; returns what it asked for."""

    def install(*rows: Row, error: BaseException | None = None) -> dict[str, Any]:
        asked: dict[str, Any] = {}

        def fake(targets: list[str], **options: Any) -> Report:
            asked.update(options, targets=targets)
            for done, r in enumerate(rows, 1):
                options["progress"](done, len(rows), r)
            if error is not None:
                raise error
            return Report(list(rows), 1.5, {"seed": "none"})

        monkeypatch.setattr(conformance, "run", fake)
        return asked

    return install


def test_conform_prints_a_table_by_group(suite: Callable[..., dict[str, Any]]) -> None:
    elementwise = (row("elementwise/add"), row("elementwise/exp", ratio=0.25))
    asked = suite(*elementwise, row("product/mma", ratio=0.5), row("product/f8", "refused"))
    text = succeeds("conform", "-k", "a b", "-j", "3")
    assert (asked["targets"], asked["pattern"], asked["jobs"], asked["stop_first"]) == (
        ["numpy"],
        "a b",
        3,
        False,
    )
    lines = [line.split() for line in text.splitlines()]
    assert ["numpy", "elementwise", "2", "2", "0.25", "elementwise/exp"] in lines
    assert ["numpy", "product", "2", "1", "1", "0.5", "product/mma"] in lines
    assert (
        "numpy (executed): 4 cases, 3 passed, 0 failed, 1 refused; largest error / bound 0.5 at product/mma"
        in text
    )


def test_conform_shows_failures_and_ends_with_1(suite: Callable[..., dict[str, Any]]) -> None:
    suite(row("a/b"), row("a/c", "failed", 3.5, message="y: mismatched\n  worst at y[0]"))
    result = run("conform", "-x")
    assert result.exit_code == 1
    assert "FAILED a/c on numpy\n  y: mismatched\n    worst at y[0]" in result.stdout


def test_conform_shows_only_the_first_of_many_failures(suite: Callable[..., dict[str, Any]]) -> None:
    suite(*(row(f"a/{i}", "failed", float("inf"), message="no") for i in range(30)))
    assert "... and 10 more failures" in run("conform").stdout


def test_a_run_that_executed_nothing_fails(suite: Callable[..., dict[str, Any]]) -> None:
    suite()
    result = run("conform", "-k", "nothing")
    assert result.exit_code == 1 and "no case was selected" in result.stdout
    suite(row("a/b", "refused", message="no"))
    assert run("conform").exit_code == 1


def test_conform_writes_json(suite: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    suite(row("a/b", ratio=0.5))
    path = tmp_path / "report.json"
    assert "a/b" in succeeds("conform", "--json", str(path))
    assert json.loads(path.read_text())["rows"][0]["case"] == "a/b"
    assert json.loads(succeeds("conform", "--json", "-"))["summary"]["numpy"]["passed"] == 1
    assert "report.json" in fails(2, "conform", "--json", str(tmp_path / "no/report.json"))


def test_conform_on_several_targets(
    suite: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = [
        TargetInfo("numpy", "", ("execute",)),
        TargetInfo("gem", "", ("simulate",)),
        TargetInfo("gem@sim", "", ("simulate",)),
    ]
    monkeypatch.setattr(plugins, "targets", lambda: infos)
    asked = suite(row("a/b"), row("a/b", target="gem@sim"))
    text = succeeds("conform", "--on", "numpy", "--on", "gem@sim")
    assert asked["targets"] == ["numpy", "gem@sim"] and "gem@sim" in text


def test_conform_on_a_target_that_cannot_run_is_exit_code_3(
    suite: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite(row("a/b"))
    infos = [TargetInfo("gem", "", ("compile",), {"execute": "no gem in this machine"})]
    monkeypatch.setattr(plugins, "targets", lambda: infos)
    for name in ("gem", "gem:0"):
        assert f"{name} cannot run kernels here: no gem in this machine" in fails(3, "conform", "--on", name)


def test_a_target_that_goes_away_is_exit_code_3(suite: Callable[..., dict[str, Any]]) -> None:
    suite(row("a/b"), error=UnavailableError("the driver went away"))
    assert "the driver went away" in fails(3, "conform")


def test_conform_on_an_unknown_target_is_exit_code_2() -> None:
    assert "no target 'vulkan'" in fails(2, "conform", "--on", "vulkan")


def test_an_interrupt_is_clean(suite: Callable[..., dict[str, Any]]) -> None:
    suite(row("a/b"), error=KeyboardInterrupt())
    assert fails(130, "conform") == "kittens: interrupted\n"


def test_conform_really_runs() -> None:
    text = succeeds("conform", "-k", "elementwise add", "-j", "1")
    assert "numpy (executed): " in text and " 0 failed" in text


# bench


@pytest.fixture
def benches(monkeypatch: pytest.MonkeyPatch) -> None:
    bench.select()  # so that the real ones are not registered into the copy
    monkeypatch.setattr(bench, "BENCHES", {})
    bench.bench("fast", "nothing", limit=10.0)(lambda target: lambda: None)
    bench.bench("slow", "too long", limit=1.0)(lambda target: bench.Timed(lambda: 2.0))


@pytest.mark.usefixtures("benches")
def test_bench_prints_times_and_limits() -> None:
    text = succeeds("bench", "-k", "fast", "--seconds", "0")
    assert "fast" in text and "10 s" in text
    result = run("bench", "--seconds", "0")
    assert result.exit_code == 1 and "over" in result.stdout


@pytest.mark.usefixtures("benches")
def test_bench_as_json() -> None:
    result = run("bench", "--seconds", "0", "--json", "-")
    found = {r["name"]: r for r in json.loads(result.stdout)["results"]}
    assert result.exit_code == 1
    assert found["slow"]["median"] == 2.0 and found["slow"]["runs"] == 3 and not found["slow"]["within"]
    assert found["fast"]["within"]


@pytest.mark.usefixtures("benches")
def test_bench_lists() -> None:
    assert [line.split()[0] for line in succeeds("bench", "--list").splitlines()] == [
        "benchmark",
        "fast",
        "slow",
    ]
    listed = json.loads(succeeds("bench", "--list", "--json", "-"))
    assert [b["name"] for b in listed] == ["fast", "slow"]
    assert "matches 'zebra'" in fails(2, "bench", "-k", "zebra")


@pytest.mark.parametrize("command", ["conform", "bench"])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(command: str, tmp_path: Path) -> None:
    for place in (tmp_path / "nowhere" / "report.json", tmp_path):
        assert "cannot write the file" in fails(2, command, "--json", str(place))


def test_the_benches_of_the_host_exist() -> None:
    names = {b.name for b in bench.select()}
    assert {"host.import", "host.call", "host.matmul.512", "host.trace.attention"} <= names
    (call,) = bench.select("host.call")
    assert bench.measure(call, seconds=0).median < 1


def test_two_benches_of_one_name_are_refused() -> None:
    bench.select()
    with pytest.raises(ValueError, match="two benchmarks"):
        bench.bench("host.call", "again")(lambda target: lambda: None)
