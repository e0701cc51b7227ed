"""Example arguments for the kernels of the library: what `kittens show` and the benches look at.

Arguments are `kt.spec`s, so nothing is allocated. A new kernel gets one line in `EXAMPLES`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from dataclasses import dataclass, field
from typing import Any

from kittens.arguments import spec
from kittens.errors import ArgumentError
from kittens.kernel import Kernel


@dataclass(frozen=True)
class Example:
    """Arguments and constants with which a kernel can be traced."""

    args: tuple[Any, ...] = ()
    constants: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(kernel: Kernel) -> Example:
        """The example of a kernel of the library; an empty one if there is none."""
        return EXAMPLES.get(kernel.name, Example())


EXAMPLES: dict[str, Example] = {}


@functools.cache
def kernels() -> dict[str, Kernel]:
    """The kernels of the library, by name."""
    package = importlib.import_module("kittens.kernels")
    modules = [package]
    modules += [
        importlib.import_module(f"kittens.kernels.{m.name}") for m in pkgutil.iter_modules(package.__path__)
    ]
    return {name: v for m in modules for name, v in sorted(vars(m).items()) if isinstance(v, Kernel)}


def library_names() -> list[str]:
    """Names of the kernels of the library."""
    return sorted(kernels())


def library(name: str) -> Kernel:
    """The kernel of the library called `name`. Raises ArgumentError, with the names, if there is none."""
    if name not in kernels():
        raise ArgumentError(
            f"the library has no kernel {name!r}",
            hint=f"it has {', '.join(library_names())}; others are named module:name or file.py:name",
        )
    return kernels()[name]


_ = spec
