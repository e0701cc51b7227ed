"""How benches time: the engine on a made-up clock, statistics, checks before timing, workloads as data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from benchtools import FakeClock, FakeDevice, workload

from kittens.bench import race as races
from kittens.bench import stats, suite
from kittens.bench.device import HostClock, open_device
from kittens.bench.roofline import Roofline
from kittens.bench.timing import Contender, Method, Samples, race
from kittens.bench.workload import choose, choose_peers, matches, workloads
from kittens.errors import ArgumentError, UnavailableError
from kittens.targets import parse

METHOD = Method(rounds=4, bursts=3, capture_below=0.0)


def two(clock: FakeClock, ours: float = 1e-3, peer: float = 2e-3) -> list[Contender]:
    return [Contender("kittens", [clock.call("k", ours)]), Contender("peer", [clock.call("p", peer)])]


def timed(clock: FakeClock, seconds: float) -> list[str]:
    """The contenders of samples of about that length, in order."""
    return [name for name, _, took in clock.samples if 0.6 * seconds < took < 1.5 * seconds]


def test_samples_are_seconds_of_one_call() -> None:
    clock = FakeClock()
    found = race(clock, two(clock), METHOD)
    assert found["kittens"].hot == pytest.approx([1e-3] * 4)
    assert found["peer"].hot == pytest.approx([2e-3] * 4)
    assert found["peer"].burst == pytest.approx([2e-3] * 3)
    assert not found["kittens"].captured


def test_contenders_take_turns_in_an_order_that_is_reversed() -> None:
    clock = FakeClock()
    race(clock, two(clock), METHOD)
    assert timed(clock, 0.08) == list("kppkkppkkp")  # one round more than is counted


def test_bursts_come_after_pauses_and_are_short() -> None:
    clock = FakeClock()
    race(clock, two(clock), METHOD)
    assert clock.rests == [0.15] * 6
    assert timed(clock, 0.004) == list("kppkkp")


def test_the_first_hot_round_is_not_counted() -> None:
    clock = FakeClock()

    def cooling() -> float:  # as on a card that slows down when it is at work
        return 1e-3 if clock.busy < 0.05 else 2e-3

    found = race(clock, [Contender("kittens", [clock.call("k", cooling)])], METHOD)
    assert found["kittens"].burst[0] < found["kittens"].hot[0]
    assert found["kittens"].hot == pytest.approx([2e-3] * 4)


def test_calls_go_through_the_copies_of_their_inputs() -> None:
    clock = FakeClock()
    race(clock, [Contender("kittens", [clock.call(c, 1e-3) for c in "abc"])], METHOD)
    assert "".join(clock.log).startswith("abcabc")
    assert set("".join(clock.log).replace("abc", "")) <= set("abc") and len(clock.log) > 300
    assert all(a != b for a, b in zip(clock.log, clock.log[1:], strict=False)), (
        "never one copy twice in a row"
    )


def test_short_calls_are_recorded_so_that_the_host_does_not_count() -> None:
    clock = FakeClock()
    clock.host = 50e-6
    found = race(clock, two(clock, 10e-6, 20e-6), dataclasses.replace(METHOD, capture_below=3e-4))
    assert clock.recorded == 2 and found["kittens"].captured and found["peer"].captured
    assert found["kittens"].hot == pytest.approx([10e-6] * 4)
    assert found["peer"].burst == pytest.approx([20e-6] * 3)


@pytest.mark.parametrize("calls", [1, 3])
def test_recordings_hold_whole_rotations(calls: int) -> None:
    clock = FakeClock()
    contender = Contender("kittens", [clock.call(str(i), 10e-6) for i in range(calls)])
    race(clock, [contender], dataclasses.replace(METHOD, capture_below=3e-4))
    assert all(count % calls == 0 for _, count, _ in clock.samples[-3:])


def test_all_are_recorded_or_none() -> None:
    clock = FakeClock()
    one_refuses = iter([clock.capture, lambda work: None])
    clock.capture = lambda work: next(one_refuses)(work)  # type: ignore[method-assign]
    found = race(clock, two(clock, 10e-6, 20e-6), dataclasses.replace(METHOD, capture_below=3e-4))
    assert not found["kittens"].captured and not found["peer"].captured
    clock = FakeClock()
    race(clock, two(clock), dataclasses.replace(METHOD, capture_below=3e-4))
    assert clock.recorded == 0, "long calls are not recorded"


def test_samples_can_be_limited_in_calls() -> None:
    clock = FakeClock()
    race(clock, two(clock, 1e-6, 1e-6), dataclasses.replace(METHOD, most_calls=200))
    assert max(count for _, count, _ in clock.samples) == 200


def test_the_clock_of_the_host_counts_no_waiting() -> None:
    now, waited = [0.0], [0]

    def wait() -> None:
        waited[0] += 1
        now[0] += 100.0

    def work() -> None:
        now[0] += 0.5

    clock = HostClock(wait, lambda: now[0])
    assert clock.time(work) == 0.5 and waited[0] == 2
    assert clock.capture(work) is None


# Statistics.


def test_scatter_is_a_deviation_that_one_outlier_does_not_move() -> None:
    samples = np.random.default_rng(0).normal(1.0, 0.01, 2001).tolist()
    assert stats.scatter(samples) == pytest.approx(0.01, rel=0.1)
    assert stats.scatter([1.0, 1.0, 1.0, 1.0, 9.0]) == 0.0


def test_the_ratio_says_how_many_times_as_fast_we_are() -> None:
    assert stats.ratio([1.0, 2.0, 3.0], [4.0, 4.0, 4.0]) == 2.0
    assert stats.ratios([1.0, 2.0], [4.0, 4.0]) == [4.0, 2.0]


@pytest.mark.parametrize(
    ("noise", "factor", "regressed"),
    [(0.0, 0.995, False), (0.0, 0.98, True), (0.02, 0.96, False), (0.02, 0.8, True), (0.0, 1.5, False)],
)
def test_a_regression_is_more_than_noise(noise: float, factor: float, regressed: bool) -> None:
    random = np.random.default_rng(1)
    old = random.normal(1.0, noise, 101).tolist()
    new = random.normal(factor, noise * factor, 101).tolist()
    change = stats.change(1.0, factor, old, new)
    assert change.regressed == regressed
    assert change.allowance == pytest.approx(max(0.01, 3 * noise * math.sqrt(2)), rel=0.3)


# A workload on a device.


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


def test_inputs_are_copied_past_the_cache(device: FakeDevice) -> None:
    work = workload(device, "w", {"kittens": 1e-3, "peer": 1e-3})
    assert len(races.copies(device, work)) == 7  # of 320 bytes, for twice 1000
    assert len(races.copies(device, dataclasses.replace(work, host=True))) == 1
    device.cache_bytes = 100
    assert len(races.copies(device, work)) == 1


def test_a_right_result_is_timed(device: FakeDevice) -> None:
    row = races.run(device, workload(device, "w", {"kittens": 1e-3, "peer": 3e-3}), ["peer"], "gem", METHOD)
    assert row.ratio("peer") == pytest.approx(3.0) and row.ratio("peer", "burst") == pytest.approx(3.0)
    assert row.check["against"] == "peer" and row.error == ""


@pytest.mark.parametrize("wrong", [1.0, math.nan, math.inf])
def test_a_wrong_result_is_not_timed(device: FakeDevice, wrong: float) -> None:
    work = workload(device, "w", {"kittens": 1e-3, "peer": 1e-3}, wrong)
    with pytest.raises(races.WrongResult, match="the result is wrong"):
        races.run(device, work, ["peer"], "gem", METHOD)
    assert device.samples == []


def test_one_wrong_element_is_enough(device: FakeDevice) -> None:
    x = np.zeros(10**6)
    bad = x.copy()
    bad[7] = 100.0
    work = workload(device, "w", {"kittens": 1e-3, "peer": 1e-3})
    assert races.check(device, work, {}, x, x) == (0.0, 0.0)
    with pytest.raises(races.WrongResult, match="100 at the worst"):
        races.check(device, work, {}, bad, x)
    with pytest.raises(ValueError, match="zip"):
        races.check(device, work, {}, (x, x), x)


def test_the_first_peer_is_the_judge_also_when_it_is_not_timed(device: FakeDevice) -> None:
    work = workload(device, "w", {"kittens": 1e-3, "judge": 1e-3, "peer": 2e-3}, wrong=1.0)
    with pytest.raises(races.WrongResult):
        races.run(device, work, ["peer"], "gem", METHOD)
    row = races.run(device, dataclasses.replace(work, tolerance=2.0), ["peer"], "gem", METHOD)
    assert row.peers == ["peer"] and row.check["against"] == "judge"


def test_a_check_of_its_own(device: FakeDevice) -> None:
    work = workload(device, "w", {"kittens": 1e-3, "peer": 1e-3}, wrong=5.0)
    row = races.run(device, dataclasses.replace(work, check=lambda *_: (0.1, 0.2)), [], "gem", METHOD)
    assert (row.check["typical"], row.check["worst"]) == (0.1, 0.2)


def test_work_of_the_host_is_timed_by_its_clock(device: FakeDevice) -> None:
    work = workload(device, "w", {"kittens": 1e-6, "peer": 1e-6}, host=True, bytes=0.0)
    races.run(device, work, ["peer"], "gem", METHOD)
    assert device.hosts == 1 and max(c for _, c, _ in device.samples) == races.HOST_CALLS


def missing(*on: str, x: object) -> Callable[[], object]:
    raise UnavailableError("no such library")


def test_peers_that_are_not_installed(device: FakeDevice) -> None:
    work = workload(device, "w", {"kittens": 1e-3, "peer": 1e-3})
    work = dataclasses.replace(work, peers={**work.peers, "rare": missing})
    assert suite.run(device, "gem", [work], method=METHOD).rows[0].peers == ["peer"]
    (row,) = suite.run(device, "gem", [work], ["peer", "rare"], METHOD).rows
    assert row.error == "refused: no such library"


def test_a_failure_does_not_stop_the_others(device: FakeDevice) -> None:
    good = workload(device, "good", {"kittens": 1e-3, "peer": 2e-3})
    wrong = workload(device, "wrong", {"kittens": 1e-3, "peer": 2e-3}, wrong=9.0)
    broken = dataclasses.replace(
        workload(device, "broken", {"kittens": 1e-3, "peer": 1e-3}), ours=lambda on, x: 1 / 0
    )
    seen: list[int] = []
    report = suite.run(
        device, "gem", [broken, wrong, good], method=METHOD, progress=lambda n, r: seen.append(n)
    )
    assert [r.error.partition(":")[0] for r in report.rows] == ["failed", "failed", ""]
    assert "ZeroDivisionError" in report.rows[0].error and "the result is wrong" in report.rows[1].error
    assert seen == [0, 1, 2, 3]
    assert report.facts["device"] == "a gem" and report.facts["versions"]["gemlib"] == "2"


def test_limits_are_measured_in_the_same_run(device: FakeDevice) -> None:
    report = suite.run(device, "gem", [workload(device, "w", {"kittens": 4e-3, "peer": 1e-3})], method=METHOD)
    assert report.roofline is not None
    assert report.roofline.bandwidth == pytest.approx(2**30 / 1e-3)
    assert report.rows[0].fraction() == pytest.approx(1e6 / 2**30 / 4)
    assert report.rows[0].fraction("peer") == pytest.approx(1e6 / 2**30)


def test_the_bound_is_the_nearer_limit() -> None:
    limits = Roofline(bandwidth=10.0, products={"float16": 100.0}, samples={})
    assert limits.bound(flops=1000.0, moved=20.0, unit="float16") == 10.0
    assert limits.bound(flops=1000.0, moved=500.0, unit="float16") == 50.0
    assert limits.bound(flops=1000.0, moved=20.0, unit="") == 2.0


def test_a_budget_leaves_out_and_says_so(device: FakeDevice) -> None:
    works = [workload(device, n, {"kittens": 1e-3, "peer": 1e-3}) for n in "abc"]
    ticks = iter([0.0, 1.0, 6.0])
    report = suite.run(device, "gem", works, method=METHOD, budget=5.0, now=lambda: next(ticks))
    assert [r.workload for r in report.rows] == ["a"] and report.facts["not timed"] == ["b", "c"]


# Workloads as data.


def test_the_workloads_are_those_of_the_measures() -> None:
    names = {w.name for w in workloads()}
    wanted = {"softmax.65536x4096", "rms_norm.65536x4096", "layer_norm.65536x4096", "gelu.65536x4096",
              "dropout_residual_layer_norm.16x4096x2048", "rotary.16x16x2048x128", "launch.increment"}  # fmt: skip
    wanted |= {f"matmul.bf16.{t}.{n}" for t in ("nn", "nt") for n in (2048, 4096, 8192, 16384, "8192x28672x8192",
               "8192x8192x28672", "4096x4096x512", "128x8192x8192", "16x8192x8192", "4097x4095x4093")}  # fmt: skip
    wanted |= {
        f"matmul.fp8{how}.nt.{n}" for how in ("", "-fast", "-promoted") for n in (2048, 4096, 8192, 16384)
    }
    wanted |= {
        f"attention.{w}.d{d}.{m}.{n}"
        for w in ("forward", "backward")
        for d in (64, 128)
        for m in ("causal", "full")
        for n in (1024, 2048, 4096, 8192, 16384)
    }
    wanted |= {
        f"attention.{w}.gqa.d128.{m}.8192" for w in ("forward", "backward") for m in ("causal", "full")
    }
    wanted |= {
        f"attention.packed.{w}.d{d}.{m}.{mix}"
        for w in ("forward", "backward")
        for d in (64, 128)
        for m in ("causal", "full")
        for mix in ("even", "ragged")
    }
    assert wanted <= names


def test_work_is_counted_as_everybody_counts() -> None:
    by_name = {w.name: w for w in workloads()}
    assert by_name["matmul.bf16.nn.4096"].flops == 2 * 4096**3
    assert by_name["matmul.bf16.nn.4096"].bytes == 3 * 2 * 4096**2
    assert by_name["softmax.65536x4096"].bytes == 2 * 2 * 65536 * 4096
    assert by_name["dropout_residual_layer_norm.16x4096x2048"].bytes == 4 * 2 * 16 * 4096 * 2048
    full, causal = (by_name[f"attention.forward.d128.{m}.4096"].flops for m in ("full", "causal"))
    assert full == 4 * 16384 * 4096 * 2048 and causal == full / 2
    assert by_name["attention.backward.d128.full.4096"].flops == 2.5 * full
    assert by_name["attention.packed.forward.d128.full.even"].flops == full / 2  # of 8 sequences of 2048


def test_names_choose_workloads() -> None:
    assert matches("a.b.c", "a.b") and matches("a.b.c", "a.*") and matches("a.b", "a.b")
    assert not matches("ab.c", "a") and not matches("a.b", "a.b.c")
    known = workloads()
    assert [w.name for w in choose(known, ["softmax"])] == ["softmax.65536x4096"]
    assert choose(known, []) == known
    with pytest.raises(ArgumentError, match="no workload 'softmacks'"):
        choose(known, ["softmax", "softmacks"])


def test_names_choose_peers() -> None:
    known = choose(workloads(), ["matmul.fp8.nt.4096", "softmax"])
    assert choose_peers(known, ["cublas"]) == {
        "matmul.fp8.nt.4096": ["cublas", "cublas-fast"],
        "softmax.65536x4096": [],
    }
    assert choose_peers(known, ["torch"])["softmax.65536x4096"] == ["torch"], "torch.compile is another"
    assert choose_peers(known, [])["softmax.65536x4096"] == ["torch", "torch.compile", "triton"]
    with pytest.raises(ArgumentError, match="has a peer 'cudnn'"):
        choose_peers(known, ["torch", "cudnn"])


def test_devices_that_cannot_be_timed() -> None:
    with pytest.raises(ArgumentError, match="is a simulator"):
        open_device(parse("cuda:sm_90a@sim"))
    with pytest.raises(UnavailableError, match="cannot be timed here"):
        open_device(parse("hip"))


def test_no_samples_give_no_figure() -> None:
    row = races.failed(workload(FakeDevice(), "w", {"kittens": 1.0, "p": 1.0}), ValueError("no"))
    row.samples["kittens"] = Samples()
    assert math.isnan(row.seconds()) and row.error == "failed: ValueError: no"
