"""What is made of results: files of them, comparisons between runs, plots, and `kittens bench` on a device."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from benchtools import FakeDevice, workload
from click.testing import CliRunner, Result

from kittens.bench import device as devices
from kittens.bench import plot, suite
from kittens.bench import report as results
from kittens.bench import workload as works
from kittens.bench.report import Report, Row
from kittens.bench.roofline import Roofline
from kittens.bench.timing import Method, Samples
from kittens.cli import main
from kittens.errors import ArgumentError, UnavailableError

ROOT = Path(__file__).resolve().parents[1]
SEPARATE = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")


def row(name: str = "w", ours: float = 1.0, peer: float | None = 2.0, noise: float = 0.0, **more: Any) -> Row:
    """A row with seven rounds, in which ours scatters by `noise`."""
    steps = (0.0, 1.0, -1.0, 0.5, -0.5, 0.7, -0.7)
    samples = {"kittens": Samples([ours * (1 + noise * s) for s in steps], [ours] * 3)}
    if peer is not None:
        samples["peer"] = Samples([peer] * 7, [peer] * 3)
    return Row(
        name, more.pop("flops", 1e12), 1e9, more.pop("unit", "bfloat16"), samples, {}, bound=0.25, **more
    )


def report(*rows: Row, device: str = "a gem") -> Report:
    limits = Roofline(1e12, {"bfloat16": 1e15}, {"copy": [1.0], "product.bfloat16": [1.0]})
    facts = {"device": device, "date": "2026-11-30T12:00:00", "versions": {"gemlib": "2"}}
    return Report("gem", facts, {"rounds": 7}, limits, list(rows))


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., str]:
    def write(data: Any, name: str = "results.json") -> str:
        text = (
            data
            if isinstance(data, str)
            else json.dumps(data.to_json() if isinstance(data, Report) else data)
        )
        (tmp_path / name).write_text(text, "utf-8")
        return str(tmp_path / name)

    return write


def test_a_report_is_read_as_it_was_written(save: Callable[..., str]) -> None:
    first = report(row("a"), row("b", peer=None), Row("c", 1.0, 2.0, "", {}, {}, "failed: no"))
    assert results.read(save(first)) == first


def test_kept_results_can_be_read() -> None:
    kept = sorted((ROOT / "bench/results").glob("*.json"))
    assert kept
    for path in kept:
        found = results.read(path)
        assert found.rows and found.facts["device"] and found.facts["date"], path


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: "not JSON {", "is no JSON"),
        (lambda d: [1, 2], "its format is None"),
        (lambda d: {**d, "format": "kittens bench 9"}, "its format is 'kittens bench 9'"),
        (lambda d: {k: v for k, v in d.items() if k != "rows"}, "'rows' is missing"),
        (lambda d: {**d, "rows": [{"workload": "w"}]}, "damaged: 'samples' is missing"),
        (lambda d: {**d, "rows": 7}, "damaged"),
        (lambda d: {**d, "rows": [{**d["rows"][0], "samples": {}}]}, "w has no samples of ours"),
        (lambda d: {**d, "rows": [change_hot(d["rows"][0], ["fast"])]}, "damaged: could not convert"),
        (lambda d: {**d, "rows": [change_hot(d["rows"][0], [-1.0])]}, "samples are seconds"),
        (lambda d: {**d, "rows": [change_hot(d["rows"][0], [])]}, "no hot samples"),
    ],
)
def test_files_that_are_no_results(save: Callable[..., str], damage: Any, message: str) -> None:
    path = save(damage(report(row()).to_json()))
    with pytest.raises(ArgumentError, match="results") as raised:
        results.read(path)
    assert message in str(raised.value) and path in str(raised.value)


def change_hot(data: dict[str, Any], hot: list[Any]) -> dict[str, Any]:
    return {**data, "samples": {"kittens": {"hot": hot, "burst": [], "captured": False}}}


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ArgumentError, match="cannot read the results in nowhere: No such file"):
        results.read("nowhere")


def test_parts_of_a_table_are_merged() -> None:
    whole = results.merged([report(row("a"), row("b", 1.0)), report(row("b", 3.0), row("c"))])
    assert [r.workload for r in whole.rows] == ["a", "b", "c"]
    assert whole.rows[1].seconds() == 3.0
    left = [report(row("a")), report(row("c"))]
    left[0].facts["not timed"], left[1].facts["not timed"] = ["b", "c"], ["d"]
    assert results.merged(left).facts["not timed"] == ["b", "d"]
    assert "not timed" not in results.merged([left[0], report(row("b"), row("c"))]).facts
    with pytest.raises(ArgumentError, match="a gem and of a stone"):
        results.merged([report(row()), report(row(), device="a stone")])


# Comparisons.


def test_ratios_are_compared_where_a_peer_is_common() -> None:
    (same,) = results.against(report(row(ours=1.5, peer=3.0)), report(row(ours=1.0, peer=2.0)))
    assert same.what == "ratio to peer" and not same.regressed, "a slower card is no regression"
    (slower,) = results.against(report(row(ours=1.1)), report(row(ours=1.0)))
    assert slower.regressed
    assert str(slower) == "w: ratio to peer was 2.000, now 1.818: -9.1 % (noise allows 1.0 %)"


def test_times_are_compared_where_none_is() -> None:
    (slower,) = results.against(report(row(ours=1.1e-3, peer=None)), report(row(ours=1e-3)))
    assert slower.what == "time" and slower.regressed and "was 1000 us, now 1100 us: -9.1 %" in str(slower)
    (faster,) = results.against(report(row(ours=0.9, peer=None)), report(row(ours=1.0)))
    assert not faster.regressed


def test_the_allowance_comes_from_the_samples() -> None:
    (noisy,) = results.against(report(row(ours=1.1, noise=0.04)), report(row(ours=1.0, noise=0.04)))
    assert not noisy.regressed and 0.1 < noisy.change.allowance < 0.2
    (clear,) = results.against(report(row(ours=1.4, noise=0.04)), report(row(ours=1.0, noise=0.04)))
    assert clear.regressed


def test_what_cannot_be_compared() -> None:
    failed = Row("w", 1.0, 2.0, "", {}, {}, "failed: no")
    with pytest.raises(ArgumentError, match="a gem and of a stone"):
        results.against(report(row()), report(row(), device="a stone"))
    for other in (report(row("v")), report(failed), report()):
        with pytest.raises(ArgumentError, match="no workload in common"):
            results.against(report(row()), other)
        with pytest.raises(ArgumentError, match="no workload in common"):
            results.against(other, report(row()))


# Plots.


@needs_matplotlib
def test_a_plot_shows_every_workload_and_peer(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    plot.draw(report(row("matmul.one"), row("softmax.two", flops=0.0), row("three", peer=None)), str(path))
    text = path.read_text("utf-8")
    assert text.lstrip().startswith("<?xml")
    for said in (
        "matmul.one",
        "softmax.two",
        "three",
        "peer",
        "kittens",
        "2.00",
        "1.00 TB/s",
        "bfloat16 1000 TFLOP/s",
    ):
        assert said in text, said
    first = path.read_bytes()
    plot.draw(report(row("matmul.one"), row("softmax.two", flops=0.0), row("three", peer=None)), str(path))
    assert path.read_bytes() == first, "the same results give the same file"


@needs_matplotlib
def test_a_plot_as_png_and_without_limits(tmp_path: Path) -> None:
    bare = dataclasses.replace(report(row()), roofline=None)
    plot.draw(bare, str(tmp_path / "plot.png"))
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@needs_matplotlib
def test_plots_that_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="nothing was timed"):
        plot.draw(report(Row("w", 1.0, 2.0, "", {}, {}, "failed: no")), str(tmp_path / "plot.svg"))
    with pytest.raises(ArgumentError, match="cannot write"):
        plot.draw(report(row()), str(tmp_path / "nowhere" / "plot.svg"))


def test_plots_need_a_known_format_and_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match=r"as \.svg or \.png, not as plot.pdf"):
        plot.check("plot.pdf")
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"kittens-gpu\[bench\]"):
        plot.check("plot.svg")


def test_matplotlib_and_torch_are_imported_when_they_are_needed() -> None:
    code = (
        "import sys; from kittens.bench import plot, suite, device, workload; workload.workloads();"
        "print([m for m in ('matplotlib', 'torch', 'triton', 'cupy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.strip() == "[]", done.stderr


# The command.


@pytest.fixture
def gem(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """A device that `kittens bench --on cuda` gets, with two workloads for it."""
    device = FakeDevice()
    known = [
        workload(device, "double.one", {"kittens": 2e-3, "fine": 4e-3, "rough": 2e-3}, flops=2e9, unit=""),
        workload(device, "double.two", {"kittens": 2e-3, "fine": 2e-3}),
    ]
    monkeypatch.setattr(devices, "open_device", lambda target: device)
    monkeypatch.setattr(works, "workloads", lambda: known)
    return device


def run(*arguments: str) -> Result:
    return CliRunner(**SEPARATE).invoke(main, ["bench", *arguments])  # type: ignore[arg-type, unused-ignore]


def succeeds(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(code: int, *arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == code and "Traceback" not in result.stderr, result.output
    return result.stderr


QUICK = ("--on", "cuda", "--rounds", "3", "--bursts", "2")


@pytest.mark.usefixtures("gem")
def test_the_table_has_both_ways_and_the_ratio() -> None:
    text = succeeds(*QUICK)
    rows = [line.split() for line in text.splitlines()]
    assert ["double.one", "kittens", "2", "ms", "1.0", "TFLOP/s", "0.00", "2", "ms"] in rows
    assert ["fine", "4", "ms", "0.5", "TFLOP/s", "0.00", "4", "ms", "2.000", "2.000"] in rows
    assert "limits in this run: a copy 1.07 TB/s" in text


@pytest.mark.usefixtures("gem")
def test_names_and_peers_are_chosen() -> None:
    text = succeeds(*QUICK, "double.one", "--vs", "rough")
    assert "double.two" not in text and "rough" in text and "fine" not in text
    assert "double.two" in succeeds(*QUICK, "-k", "two")
    assert "no workload 'treble'" in fails(2, *QUICK, "treble")
    assert "no workload matches 'treble'" in fails(2, *QUICK, "-k", "treble")
    assert "has a peer 'coarse'" in fails(2, *QUICK, "--vs", "rough,coarse")


@pytest.mark.usefixtures("gem")
def test_workloads_are_listed() -> None:
    assert "doubling, double.two; fine" in succeeds("--on", "cuda", "--list")
    listed = json.loads(succeeds("--on", "cuda", "--list", "double.one", "--json", "-"))
    assert [b["name"] for b in listed] == ["double.one"]


def test_the_file_is_written_after_each_workload(
    gem: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lengths = tmp_path / "r.json", []
    monkeypatch.setattr(
        gem, "release", lambda: lengths.append(len(results.read(path).rows)) if path.exists() else None
    )
    succeeds(*QUICK, "--json", str(path))
    assert lengths == [0, 1]
    found = results.read(path)
    assert [r.workload for r in found.rows] == ["double.one", "double.two"]
    assert found.method["rounds"] == 3 and len(found.rows[0].samples["fine"].hot) == 3


def test_a_wrong_result_is_an_error(gem: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = workload(gem, "bad", {"kittens": 1e-3, "fine": 1e-3}, wrong=9.0)
    monkeypatch.setattr(works, "workloads", lambda: [bad])
    result = run(*QUICK)
    assert result.exit_code == 1 and "bad failed: the result is wrong" in result.stdout


@pytest.mark.usefixtures("gem")
def test_a_budget_that_is_spent_is_said() -> None:
    text = succeeds(*QUICK, "--budget", "0.000000001")
    assert "out of time, so not timed: double.one, double.two" in text


def test_against_flags_what_got_slower(gem: FakeDevice, save: Callable[..., str]) -> None:
    before = suite.run(gem, "cuda", works.workloads(), method=Method(rounds=3, bursts=1))
    assert "2 compared" in succeeds(*QUICK, "--against", save(before))
    before.rows[1].samples["kittens"].hot = [1e-3] * 3
    result = run(*QUICK, "--against", save(before))
    assert result.exit_code == 1
    assert "1 slower" in result.stdout
    assert (
        "SLOWER double.two: ratio to fine was 2.000, now 1.000: -50.0 % (noise allows 1.0 %)" in result.stdout
    )
    before.rows.append(row("gone"))
    assert "not in this run: 1 of the older results" in run(*QUICK, "--against", save(before)).stdout
    quiet = run(*QUICK, "--against", save(before), "--json", "-")
    assert quiet.exit_code == 1 and "SLOWER double.two" in quiet.stderr and json.loads(quiet.stdout)["rows"]


def test_a_bad_file_is_refused_before_the_work(
    gem: FakeDevice, save: Callable[..., str], tmp_path: Path
) -> None:
    assert "is no JSON" in fails(2, *QUICK, "--against", save("{"))
    assert "cannot read the results" in fails(2, *QUICK, "--against", str(tmp_path / "no.json"))
    assert "a plot is written as" in fails(2, *QUICK, "--plot", str(tmp_path / "plot.gif"))
    assert "cannot write the file" in fails(2, *QUICK, "--plot", str(tmp_path / "no" / "plot.svg"))
    assert gem.samples == []


@needs_matplotlib
def test_results_are_read_again_without_a_device(save: Callable[..., str], tmp_path: Path) -> None:
    one, two = save(report(row("a"), row("b")), "one.json"), save(report(row("c", 1.1)), "two.json")
    old = save(report(row("c", 1.0)), "old.json")
    picture, whole = tmp_path / "all.svg", tmp_path / "all.json"
    result = run("--read", one, "--read", two, "--against", old, "--plot", str(picture), "--json", str(whole))
    assert result.exit_code == 1 and "SLOWER c" in result.stdout
    assert picture.exists() and [r.workload for r in results.read(whole).rows] == ["a", "b", "c"]
    assert "b" not in succeeds("--read", one, "a").split()
    assert "nothing in" in fails(2, "--read", one, "zebra")


def test_devices_need_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is a simulator" in fails(2, "--on", "hip:gfx950@sim")
    assert "cannot be timed here" in fails(3, "--on", "metal", "softmax")


@pytest.mark.parametrize("option", [("--vs", "torch"), ("--against", "x.json"), ("--plot", "x.svg")])
def test_options_of_devices_are_refused_on_the_host(option: tuple[str, str]) -> None:
    assert "is for devices, and numpy is none" in fails(2, *option)


def test_names_choose_among_the_benches_of_the_host() -> None:
    assert "host.call" in succeeds("host.call", "--list") and "host.import" not in succeeds(
        "host.call", "--list"
    )
    assert "no benchmark 'softmax' for numpy" in fails(2, "softmax")


def test_times_are_shown_in_the_unit_a_person_would_use() -> None:
    from kittens.cli.output import duration

    assert [duration(s) for s in (0.99999e-3, 0.9e-3, 1e-3, 0.99999, 2.0, float("nan"))] == [
        "1 ms",
        "900 us",
        "1 ms",
        "1 s",
        "2 s",
        "",
    ]
