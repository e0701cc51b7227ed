"""A sample of the conformance suite on every simulated target, spread over its themes; the whole is `kittens conform`."""

from __future__ import annotations

import pytest

from kittens import plugins
from kittens.conformance.cases import all_cases
from kittens.conformance.examine import examine
from kittens.targets import parse

TARGETS = ("cuda:sm_80@sim", "cuda:sm_90a@sim", "hip:gfx942@sim", "hip:gfx950@sim", "metal@sim")
#: Cases a theme, on each target. Which ones changes from target to target, so that together they cover more.
SAMPLE = 5


def sample(number: int) -> list[str]:
    """Names of cheap cases, evenly spread over each theme, starting at another one for each target."""
    themes: dict[str, list[str]] = {}
    for case in all_cases().values():
        if case.cost <= 1e6:
            themes.setdefault(case.name.split("/")[0], []).append(case.name)
    chosen = []
    for names in themes.values():
        step = max(1, len(names) // SAMPLE)
        chosen += names[number * step // len(TARGETS) :: step][:SAMPLE]
    return chosen


CASES = [(target, name) for number, target in enumerate(TARGETS) for name in sample(number)]


@pytest.mark.sim
@pytest.mark.parametrize(("target", "name"), CASES, ids=[f"{t}-{n}" for t, n in CASES])
def test_simulated(target: str, name: str) -> None:
    infos = {info.name: info for info in plugins.targets()}
    if target not in infos or "simulate" not in infos[target].can:
        why = infos[target].missing.get("simulate", "") if target in infos else "no such target"
        pytest.skip(f"{target} cannot be simulated here: {why}")
    row = examine(all_cases()[name], parse(target))
    assert row.verdict in ("passed", "refused"), row.message
    if row.verdict == "refused":
        assert any(x in row.message for x in ("float64", "64-bit", "do not wait")), row.message
