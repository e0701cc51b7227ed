"""Which targets pytest runs the suite on: those of --on, else of the environment variable KITTENS_ON, else
numpy.

pytest knows --on where it sees this file before it reads its options: `pytest conformance --on numpy` in a
checkout, `pytest -p kittens.conformance.conftest --pyargs kittens.conformance --on numpy` elsewhere.
KITTENS_ON works always.
"""

from __future__ import annotations

import contextlib
import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "target to run the kittens conformance suite on; may be repeated (default: KITTENS_ON, or numpy)"
    with contextlib.suppress(ValueError):  # this file was named with -p as well, and is read twice
        parser.addoption("--on", action="append", metavar="TARGET", help=text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "conformance_target" in metafunc.fixturenames:
        given = metafunc.config.getoption("--on", None) or os.environ.get("KITTENS_ON", "numpy").split(",")
        metafunc.parametrize("conformance_target", given, scope="session")
