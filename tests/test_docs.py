"""The documentation runs, and leaves nothing out."""

from __future__ import annotations

import inspect
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

import kittens as kt
from kittens import opset, plugins
from kittens.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass
class Block:
    """A fenced block: its language, its text, and the line of the page on which the text starts."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    found, language, start = [], None, 0
    lines = page.read_text("utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            continue
        if language is None:
            language, start = line[3:].strip(), number
        else:
            found.append(Block(language, "".join(lines[start : number - 1]), start + 1))
            language = None
    assert language is None, f"{page.name}:{start}: a block that does not end"
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_snippets_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Snippets of one page are one session. They keep their line numbers, so a failure names its line."""
    if page.stem == "torch":
        pytest.importorskip("torch", reason="no torch: pip install 'kittens-gpu[torch]'")
    scope: dict[str, Any] = {"__name__": f"docs_{page.stem}"}
    for block in blocks(page):
        if block.language == "python":
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            exec(code, scope)
    printed = capsys.readouterr().out
    for block in blocks(page):
        if block.language == "text" and block.text.startswith("kernel "):
            assert block.text in printed, f"{page.name}:{block.line} shows an IR that no snippet prints"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_console_snippets_name_commands_that_exist(page: Path) -> None:
    for block in blocks(page):
        assert block.language in ("python", "console", "text", "toml"), f"{page.name}:{block.line}"
        if block.language != "console":
            continue
        for line in block.text.splitlines():
            for command in line.removeprefix("$ ").split("&&"):
                words = shlex.split(command, comments=True)
                if words and words[0] == "kittens":
                    check_command(words[1:])


def check_command(words: list[str]) -> None:
    """The command and its options exist and parse; nothing runs."""
    context = click.Context(main, info_name="kittens")
    if words[0].startswith("-"):
        main.make_parser(context).parse_args(list(words))
        return
    _, command, rest = main.resolve_command(context, words)
    assert command is not None, words
    command.make_context(command.name, rest, parent=context)


def test_the_check_of_console_snippets_can_fail() -> None:
    with pytest.raises(click.UsageError):
        check_command(["dance"])
    with pytest.raises(click.UsageError):
        check_command(["conform", "--dance"])


def public_names() -> list[str]:
    return [name for name in kt.__all__ if not isinstance(getattr(kt, name), ModuleType)]


@pytest.mark.parametrize("name", public_names())
def test_the_language_reference_has_every_public_name(name: str) -> None:
    text = (ROOT / "docs/language.md").read_text("utf-8")
    value = getattr(kt, name)
    wanted = f"`kt.{name}`"
    if callable(value) and not inspect.isclass(value):
        signature = inspect.signature(value)
        bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        plain = signature.replace(parameters=bare, return_annotation=signature.empty)
        wanted = f"`kt.{name}{str(plain).replace('kittens.', 'kt.')}`"
    assert wanted in text


def test_the_language_reference_has_every_ready_operation() -> None:
    text = (ROOT / "docs/language.md").read_text("utf-8")
    assert [name for name in kt.ops.__all__ if f"| `{name}(" not in text] == []


def methods(cls: type) -> list[str]:
    return [
        n for n, v in vars(cls).items() if not n.startswith("_") and (callable(v) or isinstance(v, property))
    ]


@pytest.mark.parametrize("cls", [kt.Tile, kt.Tensor, kt.Kernel])
def test_the_language_reference_has_every_method(cls: type) -> None:
    text = (ROOT / "docs/language.md").read_text("utf-8")
    internal = {"bind", "forget_if_stale", "remember", "settle", "trace"} if cls is kt.Kernel else set()
    missing = [n for n in methods(cls) if not re.search(rf"\.{n}\b", text) and n not in internal]
    assert missing == []


def test_the_guide_to_backends_has_every_hook() -> None:
    text = (ROOT / "docs/writing-a-backend.md").read_text("utf-8")
    hooks = {n: v for n, v in vars(plugins.Hooks).items() if n.startswith("kittens_")}
    wanted = [f"`{n}({', '.join(list(inspect.signature(v).parameters)[1:])})`" for n, v in hooks.items()]
    assert [w for w in wanted if w not in text] == []


CLASSES = {"exact": True, "ulp": False, "any order": False}


def semantics_rows() -> dict[str, list[str]]:
    """The rows of the tables of operations in semantics.md, by operation."""
    rows: dict[str, list[str]] = {}
    for line in (ROOT / "docs/semantics.md").read_text("utf-8").splitlines():
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if re.fullmatch(r"`[a-z_0-9]+`", cells[0]) and len(cells) >= 4 and any(c in CLASSES for c in cells):
            name = cells[0].strip("`")
            assert name not in rows, name
            rows[name] = cells
    return rows


def test_semantics_has_every_operation_and_no_other() -> None:
    assert sorted(semantics_rows()) == sorted(opset.OPS)


@pytest.mark.parametrize("name", sorted(opset.OPS))
def test_semantics_gives_each_operation_the_class_that_its_definition_has(name: str) -> None:
    (stated,) = [c for c in semantics_rows()[name] if c in CLASSES]
    assert CLASSES[stated] == opset.OPS[name].exact


def prose(page: Path) -> str:
    """A page without its blocks and code."""
    return re.sub(r"```.*?```|`[^`]*`", "", page.read_text("utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)\)", prose(page)):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_readme_promises_two_commands() -> None:
    """What .ci/run takes from the README and runs."""
    pairs = [
        b.text.splitlines()
        for b in blocks(ROOT / "README.md")
        if "python -m pytest" in b.text and b.language == "console"
    ]
    assert len(pairs) == 1 and len(pairs[0]) == 2
    assert "kittens conform --on numpy" in pairs[0][0]
    assert pairs[0][1].split() == ["python", "-m", "pytest"]
