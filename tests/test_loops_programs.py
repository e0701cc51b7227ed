"""The property that matters most: for random kernels, what is traced computes what Python computes, bit for
bit.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import outcome, program

_common = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=220, **_common)
@given(st.data(), st.integers(1, 3), st.booleans())
def test_programs_that_must_be_accepted(data, depth, slotted):
    text, aliases = program(lambda n: data.draw(st.integers(0, n - 1)), depth=depth)
    said = outcome(text, slotted)
    assert said == "equal" or aliases, said + "\n" + text


@settings(max_examples=120, **_common)
@given(st.data(), st.integers(1, 3), st.booleans())
def test_programs_that_may_be_refused(data, depth, slotted):
    text, _ = program(lambda n: data.draw(st.integers(0, n - 1)), bad=True, depth=depth)
    outcome(text, slotted)


def test_most_programs_are_accepted():
    import random

    said = [outcome(program(random.Random(seed).randrange, depth=2)[0]) for seed in range(60)]
    assert said.count("equal") > 0.8 * len(said), said
