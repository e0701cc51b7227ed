"""Values of tunables found by `kittens tune`: files that kernels look into before they ask a target's rules.

There is one of this machine: $KITTENS_TUNED, or `kittens/tuned.json` in the user's folder of settings; an empty $KITTENS_TUNED
means none. And one that a backend ships, `tuned.json` beside its code. Both are the same in kind: what is found on a machine
is shipped by naming the backend's file in $KITTENS_TUNED. Entries go by target with its architecture, kernel, and class of
shapes: arguments of one class are tuned alike.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kittens import plugins
from kittens.arguments import Argument, TensorArg
from kittens.dtypes import DType
from kittens.errors import ArgumentError
from kittens.targets import Target
from kittens.whole import write_whole

if TYPE_CHECKING:
    from kittens.kernel import Kernel

FORMAT = "kittens tuned 1"
#: Last extents up to this are told apart exactly: they are often extents of tiles.
_EXACT = 512
_read: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}


def path() -> Path | None:
    """Where tuned values are kept; None if the user wants none, or has no home."""
    named = os.environ.get("KITTENS_TUNED")
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return None if base.startswith("~") else Path(base) / "kittens" / "tuned.json"


def lookup(
    kernel: Kernel, target: Target, arguments: dict[str, Argument], constants: dict[str, Any]
) -> dict[str, Any]:
    """The values found for a kernel on arguments like these, given its settled constants, on this machine or else by the
    backend; empty if there are none.

    Raises ArgumentError if a file is there and cannot be read.
    """
    for place in (path(), plugins.manager().hook.kittens_tuned(target=target)):
        values = {} if place is None else load(place)
        entry = values.get(architecture(target), {}).get(identity(kernel), {}) if values else {}
        found = entry.get(shape_class(arguments, constants)) if entry else None
        if found:
            return dict(found["constants"])
    return {}


def save(
    kernel: Kernel,
    target: Target,
    arguments: dict[str, Argument],
    constants: dict[str, Any],
    found: dict[str, int],
    facts: dict[str, Any],
) -> Path:
    """Keep the values found for a kernel, with facts about how; returns the file. What else it holds stays.

    Raises ArgumentError if there is no file to be, or it cannot be read or written.
    """
    place = path()
    if place is None:
        raise ArgumentError(
            "there is nowhere to keep tuned values: KITTENS_TUNED is empty, or not set for a user without a home",
            hint="name a file in it",
        )
    values = json.loads(json.dumps(load(place)))
    kernels = values.setdefault(architecture(target), {}).setdefault(identity(kernel), {})
    kernels[shape_class(arguments, constants)] = {"constants": found, **facts}
    text = json.dumps({"format": FORMAT, "values": values}, indent=1, sort_keys=True) + "\n"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text.encode())
    except OSError as error:
        raise ArgumentError(f"cannot write the tuned values in {place}: {error.strerror or error}") from None
    kernel.calls.clear()
    return place


def architecture(target: Target) -> str:
    """The target with its architecture and nothing else: simulated or not, it takes the same values."""
    arch = plugins.manager().hook.kittens_architecture(target=target) or target.arch
    return str(Target(target.backend, arch))


def identity(kernel: Kernel) -> str:
    """The kernel's function by module and name."""
    return f"{kernel.function.__module__}:{kernel.function.__qualname__}"


def shape_class(arguments: dict[str, Argument], constants: dict[str, Any]) -> str:
    """What tuned values depend on: types, extents by their powers of two, which axis is contiguous, constants.

    Of an extent that is no multiple of 16, the class says so. Numbers that a kernel computes with are told apart from 0 only.
    """
    parts = []
    for name, a in arguments.items():
        if isinstance(a, TensorArg):
            last = len(a.shape) - 1
            extents = ",".join(_extent(n, i == last) for i, n in enumerate(a.shape))
            unit = ",".join(str(i) for i, s in enumerate(a.strides) if s == 1)
            parts.append(f"{name}:{a.dtype.name}[{extents}]@{unit}")
        elif a is not None:
            parts.append(f"{name}:{a.dtype.name}")
    parts += [f"{name}={_constant(value)}" for name, value in sorted(constants.items())]
    return " ".join(parts)


def _extent(n: int, last: bool) -> str:
    if n <= 1 or (last and n <= _EXACT):
        return str(n)
    rest = n & -n
    return f"{1 << (n.bit_length() - 1)}+" + (f"/{rest}" if rest < 16 else "")


def _constant(value: Any) -> str:
    if isinstance(value, float):
        return "0.0" if value == 0 else "x"
    return value.name if isinstance(value, DType) else repr(value)


def load(place: Path) -> dict[str, Any]:
    """What a file holds, by target, kernel and class; read anew when it has changed, empty if there is no file.

    Raises ArgumentError if it cannot be read.
    """
    try:
        stat = os.stat(place)
    except OSError:
        return {}
    stamp = (stat.st_mtime_ns, stat.st_size)
    known = _read.get(place)
    if known is None or known[0] != stamp:
        _read[place] = known = (stamp, _parsed(place))
    return known[1]


def _parsed(place: Path) -> dict[str, Any]:
    hint = "delete the file, or set KITTENS_TUNED to nothing to do without"
    try:
        data = json.loads(place.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"the tuned values in {place} cannot be read: {error}", hint=hint) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or not _sound(data.get("values")):
        raise ArgumentError(f"{place} holds no tuned values as this version keeps them", hint=hint)
    values: dict[str, Any] = data["values"]
    return values


def _sound(values: Any) -> bool:
    """Whether the values are what `save` writes: {target: {kernel: {class: {"constants": {name: integer}}}}}."""
    try:
        return all(
            isinstance(value, int) and not isinstance(value, bool) and value > 0
            for kernels in values.values()
            for classes in kernels.values()
            for entry in classes.values()
            for value in entry["constants"].values()
        )
    except (AttributeError, KeyError, TypeError):
        return False
