"""One self-contained text: the device functions that a kernel calls, pasted in place of its #includes.

Metal compiles a single text at run time, without folders of headers. Our headers are plain enough to be cut
at their top-level declarations; those that nothing reaches stay out, so that what is left can be read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kittens.sim.vendor import DEVICE

FOLDERS = (Path(__file__).resolve().parent / "device", DEVICE)
KERNEL = "// ---- the kernel"

_INCLUDE = re.compile(r'^#include "(\w+\.h)"\n', re.M)
_FUNCTION = re.compile(r"\bKT_FN\b[^(]*?(\w+)\(")
_WORD = re.compile(r"[A-Za-z_]\w*")
_JOINED = re.compile(r"([A-Za-z_]\w*)##")


@dataclass(frozen=True)
class Piece:
    """A declaration with its comment: the names it defines (none: always wanted) and the words it uses."""

    text: str
    names: frozenset[str]
    words: frozenset[str]


def pasted(text: str) -> str:
    """`text` with its quoted #includes replaced by those of their declarations that it reaches."""
    files = _INCLUDE.findall(text)
    if not files:
        return text
    start = text.index('#include "')
    head, body = text[:start], _INCLUDE.sub("", text[start:])
    pieces = [p for f in files for p in pieces_of(f)]
    names = {name for piece in pieces for name in piece.names}
    wanted, open_ = set[int](), set(_WORD.findall(body))
    seen: set[str] = set()
    while open_:
        seen |= open_
        found = {i for i, p in enumerate(pieces) if i not in wanted and (not p.names or p.names & seen)}
        wanted |= found
        open_ = {w for i in found for w in pieces[i].words | _joined(pieces[i].text, names)} - seen
    library = "".join(pieces[i].text for i in sorted(wanted))
    return f"{head}\n{library}\n{KERNEL}\n{body}"


def own(text: str) -> str:
    """The kernel's own part of a pasted text."""
    return text.partition(f"{KERNEL}\n")[2] or text


@functools.cache
def pieces_of(file: str) -> tuple[Piece, ...]:
    """The declarations of a header and of those that it includes, in order."""
    text = next(path.read_text() for folder in FOLDERS for path in (folder / file,) if path.exists())
    out: list[Piece] = []
    macros: dict[str, tuple[list[str], str]] = {}
    for comment, piece in _cut(text):
        inner = re.match(r'#include "(\w+\.h)"', piece)
        if inner:
            out += pieces_of(inner[1])
        elif not piece.startswith("#pragma once"):
            out.append(
                Piece(
                    comment + piece,
                    frozenset(_names(piece, macros)),
                    frozenset(_WORD.findall(_uncommented(piece))),
                )
            )
    return tuple(out)


def _joined(text: str, names: set[str]) -> set[str]:
    """The names that a macro may make of a word by joining something to it."""
    starts = tuple(_JOINED.findall(text))
    return {name for name in names if starts and name.startswith(starts)}


def _cut(text: str) -> Iterator[tuple[str, str]]:
    """(comment before it, text) of each top-level piece; a conditional is one piece."""
    comment, piece, depth, conditions = "", "", 0, 0
    for line in text.splitlines(keepends=True):
        bare = _uncommented(line).strip()
        if not piece and not bare:
            comment = comment + line if line.startswith("//") and not line.startswith("// ----") else ""
            continue
        piece += line
        depth += bare.count("{") - bare.count("}")
        conditions += bare.startswith(("#if", "#ifndef")) - bare.startswith("#endif")
        directive = piece.lstrip().startswith("#") or bare.startswith("#")
        complete = (
            not bare.endswith("\\")
            if directive
            else bare.endswith((";", "}")) or re.fullmatch(r"[A-Z_0-9]+\(.*\)", bare)
        )
        if complete and (directive or depth == 0) and conditions == 0:
            yield comment, piece
            comment, piece, depth = "", "", 0


def _uncommented(text: str) -> str:
    return re.sub(r"//.*", "", text)


def _names(piece: str, macros: dict[str, tuple[list[str], str]]) -> set[str]:
    """What a piece defines. Remembers macros, since their uses define what their text does."""
    text = _uncommented(piece)
    found: set[str] = set()
    for define in re.finditer(r"#define (\w+)(?:\(([^)]*)\))?((?:.*\\\n)*.*)", text):
        macros[define[1]] = ([p.strip() for p in (define[2] or "").split(",")], define[3])
        found.add(define[1])
    if text.lstrip().startswith("#"):
        return found | set(_FUNCTION.findall(re.sub(r"#define (?:.*\\\n)*.*", "", text)))
    used = re.match(r"([A-Z_0-9]+)\((.*)\)\s*$", text)
    if used and used[1] in macros:
        parameters, body = macros[used[1]]
        arguments = dict(zip(parameters, (a.strip() for a in used[2].split(",")), strict=True))
        return {arguments.get(n, n) for n in _FUNCTION.findall(body)}
    found |= set(re.findall(r"^typedef [^;]*?(\w+);", text, re.M))
    found |= set(re.findall(r"\bstruct (\w+)", text.partition("(")[0]))
    return found | set(_FUNCTION.findall(text)[:1])
