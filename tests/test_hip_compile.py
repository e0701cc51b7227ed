"""Every library kernel compiles for every AMD architecture at its shipped tile sizes, without spills."""

from __future__ import annotations

import pytest

from kittens.backends.hip.compile import available
from kittens.backends.hip.fragments import LANES
from kittens.examples import EXAMPLES, library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(available()), reason=available() or "the compiler is there"),
]


@pytest.mark.parametrize("arch", LANES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_compiles_without_spills(name, arch):
    example = EXAMPLES[name]
    compiled = library(name).compile(f"hip:{arch}", *example.args, **example.constants)
    assert compiled.resources["spilled"] == compiled.resources["scratch_bytes"] == 0
    assert compiled.code.startswith(b"\x7fELF")
    assert compiled.asm
