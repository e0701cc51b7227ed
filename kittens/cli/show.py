"""`kittens show`: what becomes of a kernel, stage by stage."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kittens import plugins
from kittens.arguments import spec
from kittens.cli import options
from kittens.cli.output import dump
from kittens.errors import ArgumentError, KittensError, UnavailableError
from kittens.examples import Example, library, library_names
from kittens.kernel import Kernel
from kittens.targets import Target, parse

STAGES = ("ir", "plan", "source", "asm", "resources")


def find_kernel(name: str) -> Kernel:
    """The kernel called `name`: one of the library, or `module:name`, or `file.py:name`."""
    place, colon, attribute = name.rpartition(":")
    if not colon:
        return library(name)
    if not place or not attribute:
        raise ArgumentError(f"{name!r} names no kernel", hint="say module:name or file.py:name")
    value = _import(place)
    for part in attribute.split("."):
        if not hasattr(value, part):
            known = [n for n, v in vars(value).items() if isinstance(v, Kernel)]
            raise ArgumentError(
                f"{place} has no {part!r}", hint=f"its kernels are {', '.join(known) or 'none'}"
            )
        value = getattr(value, part)
    if not isinstance(value, Kernel):
        raise ArgumentError(
            f"{name} is a {type(value).__name__}, not a kernel", hint="decorate it with @kt.kernel"
        )
    return value


def _import(place: str) -> Any:
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise ArgumentError(f"no file {place}")
        found = importlib.util.spec_from_file_location(Path(place).stem, place)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules.setdefault(found.name, module)
        return _loaded(place, lambda: found.loader.exec_module(module) or module)  # type: ignore[union-attr]
    sys.path.insert(0, "")  # as `python -m` does
    try:
        return _loaded(place, lambda: importlib.import_module(place))
    finally:
        sys.path.remove("")


def _loaded(place: str, load: Callable[[], Any]) -> Any:
    """What `load` gives; an error in the user's text becomes a message that names where it was raised."""
    try:
        return load()
    except KittensError:
        raise
    except Exception as error:
        raise ArgumentError(f"{place} cannot be imported: {_said(error)}") from None


def _said(error: Exception) -> str:
    """An error in the user's text, and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"


def read_argument(text: str) -> Any:
    """An argument as the command line spells it: float32[1024,64], float32[], a number, or none. float32[1024,64]@0 lies in
    memory with its axis 0 innermost.
    """
    match = re.fullmatch(r"(\w+)\[([\d,\s]*)\](?:@(\d+))?", text)
    if match:
        extents = tuple(int(n) for n in match[2].split(",") if n.strip())
        return spec(match[1], extents, _strides(extents, int(match[3])) if match[3] else None)
    value = _literal(text)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise ArgumentError(
            f"{text!r} is no argument", hint="say float32[1024,64] for a tensor, 3 or 0.5, or none"
        )
    return value


def _strides(extents: tuple[int, ...], innermost: int) -> tuple[int, ...]:
    """Strides of an array whose axis `innermost` is contiguous, and the others in their order around it."""
    if innermost >= len(extents):
        raise ArgumentError(
            f"no axis {innermost} of {len(extents)}", hint="axes are counted from 0: float32[1024,64]@0"
        )
    strides, size = [0] * len(extents), 1
    for axis in (innermost, *(i for i in reversed(range(len(extents))) if i != innermost)):
        strides[axis], size = size, size * extents[axis]
    return tuple(strides)


def read_constant(text: str) -> tuple[str, Any]:
    """A constant as the command line spells it: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ArgumentError(f"{text!r} is no constant", hint="say NAME=VALUE, as in BM=64")
    return name, _literal(value)


def _literal(text: str) -> Any:
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def render(kernel: Kernel, example: Example, target: Target, stage: str) -> str | dict[str, Any]:
    """One stage: text, or figures for resources. Raises UnavailableError if a backend stops short of it."""
    args, constants = example.args, example.constants
    if stage == "ir":
        return str(kernel.ir(*args, on=target, **constants)).rstrip()
    if stage == "plan":
        return str(kernel.plan(target, *args, **constants)).rstrip()
    if stage == "source":
        return kernel.source(target, *args, **constants).rstrip()
    compiled = kernel.compile(target, *args, **constants)
    shown = getattr(compiled, stage, None)
    if not shown and stage == "asm":
        shown = plugins.manager().hook.kittens_assembly(target=target, artifact=compiled)
    if not shown:
        raise UnavailableError(
            f"the backend of {target} compiles {kernel.name}, but does not give its {stage}"
        )
    return dict(shown) if stage == "resources" else str(shown).rstrip()


@click.command()
@click.argument("kernel")
@click.option("--on", default="numpy", show_default=True, metavar="TARGET", help="The target to look at.")
@click.option("--stage", type=click.Choice(STAGES), default="ir", show_default=True, help="What to show.")
@options.arguments
@options.constants
@options.as_json
def show(
    kernel: str, on: str, stage: str, args: tuple[str, ...], constants: tuple[str, ...], as_json: bool
) -> None:
    """Show what becomes of KERNEL: its tile IR, a target's plan, source, assembly or resources.

    KERNEL is a name of the library (`kittens show list` prints them), or module:name, or file.py:name.
    Kernels of the library come with example arguments; others need --arg for each parameter.
    """
    if kernel == "list":
        names = library_names()
        click.echo(dump(names) if as_json else "\n".join(names))
        return
    target = plugins.check(parse(on))
    found = find_kernel(kernel)
    example = Example.of(found) if ":" not in kernel else Example()
    if args:
        example = Example(tuple(read_argument(a) for a in args), example.constants)
    example = Example(example.args, {**example.constants, **dict(map(read_constant, constants))})
    if not example.args and found.params:
        raise ArgumentError(
            f"kernel {found.name} takes {', '.join(found.params)}, and no arguments are given",
            hint="describe each, in order: --arg float32[1024,64] --arg 3",
        )
    try:
        shown = render(found, example, target, stage)
    except KittensError:
        raise
    except Exception as error:
        files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
        if ":" not in kernel or found.location.file not in files:
            raise  # a fault of ours
        raise ArgumentError(f"kernel {found.name} fails: {_said(error)}") from None
    if as_json:
        what = "text" if isinstance(shown, str) else stage
        click.echo(dump({"kernel": found.name, "target": str(target), "stage": stage, what: shown}))
    elif isinstance(shown, str):
        click.echo(shown)
    else:
        for name, figure in shown.items():
            click.echo(f"{name}: {figure}")
