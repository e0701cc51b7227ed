"""A compiled kernel as a thing of its own: code, source, signature and what it takes of the machine. Saved and loaded.

kernel.compile("cuda:sm_90a", *args).save("matmul.kittens")
matmul = kittens.load("matmul.kittens")
matmul(a, b, c, grid=(32, 32))
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kittens import plugins, runtime
from kittens.arguments import Argument, ScalarArg, TensorArg, adopt
from kittens.errors import ArgumentError
from kittens.ir import TensorType, TileType, Type
from kittens.targets import Target, parse
from kittens.text import parse_type
from kittens.whole import write_whole

_FORMAT = 5

#: Axes that a map has at most.
MOST_AXES = 5
#: Axes that a map of slices has beside the tensor's.
SLICED = 2
#: Rows in a map of slices, more than a tensor may have: those of a slice are the last ones.
SLICE_ROWS = 1 << 30
_SLICE_ENDS = 0x7FFF0000  # more than any coordinate


@dataclass(frozen=True)
class TileMap:
    """How hardware that knows a tensor's extents and strides copies tiles of it: what a parameter of kind "map" holds.

    axes: of the tensor, from the contiguous one outwards. box: the elements of a copied tile along each of them. swizzle:
    bytes within which 16-byte parts of a row change places in shared memory (32, 64 or 128; 0: they do not). cut: of a tensor
    with fewer rows than the box no more are copied than it has, in eights. sliced: the rows of a tile (the second axis) are
    those of a slice whose bounds are known at run time; beyond them nothing is read or written.

    The map of slices is the one of Triton's `ragged_tma.py`. Its rows are SLICE_ROWS = 2^30, and it has SLICED = 2 axes more,
    of s and 2^34 - s bytes, where s is the stride of a row. Row r of the slice from first to last is row 2^30 - (last - first)
    + r of it, at last and 2^30 along the two. So the hardware finds the slice's end where the rows end, and addresses, which
    wrap around at 2^64, are right: s (2^30 - last + first + r) + s last + (2^34 - s) 2^30 = s (first + r) + 2^64.
    """

    tensor: str
    axes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    cut: bool = False
    sliced: bool = False

    def copied(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The box for a tensor of this shape; its rows are those of `kt_cut_rows` in kernels."""
        more = (1,) * SLICED if self.sliced else ()
        if not self.cut:
            return self.box + more
        columns, rows, *others = self.box
        return (columns, min(rows, max(-(-shape[self.axes[1]] // 8) * 8, 8)), *others, *more)

    def dims(self, shape: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
        """The map's extents and strides in bytes for a tensor with such extents and strides in bytes."""
        extents, steps = [shape[a] for a in self.axes], [strides[a] for a in self.axes]
        if not self.sliced:
            return extents, steps
        if extents[1] == 1:  # a stride that is never used, but has to be one that maps can have
            steps[1] = 16
        extents[1] = SLICE_ROWS
        return [*extents, _SLICE_ENDS, _SLICE_ENDS], [*steps, steps[1], (1 << 34) - steps[1]]


@dataclass(frozen=True)
class Parameter:
    """A parameter of emitted code: kind is "pointer", "extent", "stride", "map", "scalar", "grid", "counter", "first" or "log".

    `name` and `axis` say whose pointer, extent or stride, `map` how a map copies `name`; `ctype` and `text` how the source
    declares it. A counter is the address of 32 bits of zeros, which the kernel leaves at zero; first is the program that a
    launch begins with, where programs are launched one by one; a log is an empty one of `codegen.printing`.
    """

    kind: str
    name: str
    axis: int
    ctype: str
    text: str
    map: TileMap | None = None


@dataclass(frozen=True)
class Artifact:
    """A kernel compiled for a target.

    signature: the kernel's parameters with the types the code was made for. written: names of its outputs. unordered: those of
    them that floats are added to in no fixed order. resources: what
    the compiled object says of itself (registers, spilled bytes, shared memory, ...). code is empty where the target
    compiles its source text at load time. packed: the kernel takes all pointers first, then one structure of the rest.
    persistent: programs are dealt to at most that many blocks for each processor (0: a block for each program). cluster:
    how many blocks run side by side and reach each other's memory. early: blocks may start before the launch before this
    one has ended, and wait for it themselves. messages: what the records of a log say, as `codegen.printing` has them.
    """

    kernel: str
    target: str
    code: bytes = field(repr=False)
    source: str = field(repr=False)
    entry: str = ""
    parameters: tuple[Parameter, ...] = field(default=(), repr=False)
    threads: int = 0
    shared_bytes: int = 0
    grid_rank: int = 1
    signature: tuple[tuple[str, str], ...] = ()
    written: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()
    constants: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    asm: str = field(default="", repr=False)
    packed: bool = False
    persistent: int = 0
    cluster: int = 1
    early: bool = False
    messages: tuple[str, ...] = ()

    def blocks(self, programs: int, processors: int) -> int:
        """How many blocks to start for so many programs on a device of so many processors: a multiple of the cluster."""
        wanted = -(-programs // self.cluster) * self.cluster
        if not self.persistent:
            return wanted
        return min(wanted, max(processors * self.persistent // self.cluster, 1) * self.cluster)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to a file, whole or not at all. Raises OSError."""
        write_whole(Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The artifact as `from_bytes` reads it: a zip of code, source, assembly and a description."""
        about = {k: v for k, v in asdict(self).items() if k not in ("code", "source", "asm")}
        about["format"] = _FORMAT
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("kernel.json", json.dumps(about, indent=1, default=str))
            archive.writestr("code", self.code)
            archive.writestr("source", self.source)
            archive.writestr("asm", self.asm)
        return out.getvalue()

    def __call__(
        self, *args: Any, grid: int | Sequence[int], on: str | Target | None = None, **named: Any
    ) -> runtime.Run:
        """Run the code on arrays and scalars. `grid` is the number of programs along each axis.

        Raises ArgumentError for arguments that the code was not made for.
        """
        names = [name for name, _ in self.signature]
        if len(args) > len(names):
            raise ArgumentError(
                f"{self.kernel} takes {len(names)} arguments, not {len(args)}",
                hint=f"they are {', '.join(names)}",
            )
        values = {**dict(zip(names, args, strict=False)), **named}
        if twice := [n for n in names[: len(args)] if n in named]:
            raise ArgumentError(f"argument {twice[0]!r} of {self.kernel} is given twice")
        if sorted(values) != sorted(names):
            raise ArgumentError(f"{self.kernel} takes {', '.join(names)}, not {', '.join(values)}")
        arguments: dict[str, Argument] = {n: adopt(values[n], n) for n in names}
        for name, type in self.signature:
            _check(self.kernel, name, parse_type(type), arguments[name])
        extents = runtime.grid_extents(grid, self.kernel)
        if len(extents) != self.grid_rank:
            raise ArgumentError(f"{self.kernel} runs on a grid of {self.grid_rank} axes, not {grid!r}")
        made, target = parse(self.target), parse(self.target if on is None else on)
        if target.backend != made.backend or target.arch not in ("", made.arch):
            raise ArgumentError(
                f"{self.kernel} was compiled for {made}, not for {target}", hint=f"compile it for {target}"
            )
        run = plugins.ask("kittens_run", target, artifact=self, arguments=arguments, grid=extents)
        assert isinstance(run, runtime.Run)
        return run


def load(path: str | os.PathLike[str]) -> Artifact:
    """The artifact in a file that `Artifact.save` wrote. Raises ArgumentError for any other file."""
    return from_bytes(Path(path).read_bytes(), os.fspath(path))


def from_bytes(data: bytes, name: str = "this") -> Artifact:
    """The artifact that `Artifact.to_bytes` gave. Raises ArgumentError for anything else, by `name`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            about = json.loads(archive.read("kernel.json"))
            parts = {part: archive.read(part) for part in ("code", "source", "asm")}
        made = _described(about, parts) if about.pop("format", "") == _FORMAT else None
    except Exception as error:  # a damaged archive fails in many ways
        raise ArgumentError(
            f"{name} is not a saved kernel: {type(error).__name__}: {error}",
            hint="kernel.compile(target, ...).save(path) writes one",
        ) from error
    if made is None:
        raise ArgumentError(
            f"{name} was saved by another version of kittens", hint="compile and save it again"
        )
    return made


def _described(about: dict[str, Any], parts: dict[str, bytes]) -> Artifact:
    """The artifact of a description and what it is of."""
    return Artifact(
        code=parts["code"],
        source=parts["source"].decode(),
        asm=parts["asm"].decode(),
        **{
            **about,
            "parameters": tuple(map(_parameter, about["parameters"])),
            "signature": tuple((n, t) for n, t in about["signature"]),
            "written": tuple(about["written"]),
            "unordered": tuple(about["unordered"]),
            "messages": tuple(about["messages"]),
        },
    )


def _parameter(about: dict[str, Any]) -> Parameter:
    """A parameter from what `asdict` and JSON made of it."""
    of = about.pop("map")
    tile = None if of is None else TileMap(**{**of, "axes": tuple(of["axes"]), "box": tuple(of["box"])})
    return Parameter(**about, map=tile)


def _check(kernel: str, name: str, type: Type, argument: Argument) -> None:
    """Raise ArgumentError unless an argument is of the kind that code was compiled for."""
    if isinstance(type, TileType):
        if not isinstance(argument, ScalarArg) or argument.dtype != type.dtype:
            raise ArgumentError(f"{kernel} takes a {type} as {name!r}, not {argument}")
        return
    assert isinstance(type, TensorType)
    if not isinstance(argument, TensorArg) or argument.dtype != type.dtype or argument.ndim != type.rank:
        raise ArgumentError(
            f"{kernel} was compiled for {name!r} as {type}", hint="compile it again for these arguments"
        )
    for what, extents, known in (
        ("extent", argument.shape, type.dims),
        ("stride", argument.strides, type.strides),
    ):
        for axis, (n, e) in enumerate(zip(extents, known, strict=False)):
            if (e.value is not None and n != e.value) or n % e.divisor:
                said = f"= {e.value}" if e.value is not None else f"a multiple of {e.divisor}"
                raise ArgumentError(
                    f"{kernel} was compiled for {what} {axis} of {name!r} {said}, and it is {n}",
                    hint="compile it again for these arguments",
                )
    if argument.alignment < type.alignment:
        raise ArgumentError(
            f"{kernel} was compiled for {name!r} aligned to {type.alignment} bytes",
            hint="compile it again for this array",
        )
