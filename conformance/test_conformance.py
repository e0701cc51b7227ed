"""The suite as pytest runs it, one test a case and target: `KITTENS_ON=numpy pytest --pyargs
kittens.conformance`.
"""

from __future__ import annotations

import pytest

from kittens import plugins
from kittens.conformance.cases import all_cases
from kittens.conformance.examine import examine
from kittens.targets import parse


@pytest.mark.parametrize("name", list(all_cases()))
def test_case(name: str, conformance_target: str) -> None:
    row = examine(all_cases()[name], plugins.check(parse(conformance_target)))
    if row.verdict == "refused":
        pytest.skip(row.message)
    assert row.verdict == "passed", row.message
