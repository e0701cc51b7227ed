"""What the main loop of a compiled kernel executes on an AMD GPU, counted in its assembly.

    python -m kittens.bench.amd_counts matmul hip:gfx950 BM=256 BN=256 BK=32

The main loop is the innermost loop with the most matrix instructions. Counts are of one pass of one group of
lanes; blocks that a branch may skip are counted as executed. bench/NOTES.md keeps what was found.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence

from kittens.examples import Example, library

_KINDS = (
    ("matrix", r"v_(mfma|wmma|smfmac)"),
    ("accumulator copies", r"v_accvgpr"),
    ("lane moves", r"(ds_bpermute|ds_permute|ds_swizzle|v_permlane|v_readlane|v_writelane)"),
    ("transcendental", r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_"),
    ("vector", r"v_"),
    ("direct to LDS", r"(buffer|global)_load.*\blds\b"),
    ("LDS reads", r"ds_(read|load)"),
    ("LDS writes", r"ds_(write|store)"),
    ("global loads", r"(buffer|global|flat|scratch)_load"),
    ("global stores", r"(buffer|global|flat|scratch)_store"),
    ("barriers", r"s_barrier"),
    ("waits", r"s_wait"),
    ("nops", r"s_(nop|delay)"),
    ("scalar", r"s_"),
)


def blocks(asm: str) -> dict[str, list[str]]:
    """The instructions of the kernel, by label of their block, in order."""
    found: dict[str, list[str]] = {"entry": []}
    label = "entry"
    for line in asm.split(".Lfunc_end0:")[0].splitlines():
        text = line.split(";")[0].split("//")[0].strip()
        if re.match(r"[.\w$]+:$", text):
            label = text[:-1]
            found[label] = []
        elif text and not text.startswith("."):
            found[label].append(text)
    return found


def loops(asm: str) -> list[list[str]]:
    """The instructions of every loop: all blocks from the target of a backward branch to the branch."""
    found = blocks(asm)
    order = list(found)
    out = []
    for i, label in enumerate(order):
        for text in found[label]:
            match = re.match(r"s_c?branch\w*\s+([.\w$]+)", text)
            if match and match[1] in found and order.index(match[1]) <= i:
                out.append([t for name in order[order.index(match[1]) : i + 1] for t in found[name]])
    return out


def main_loop(asm: str) -> list[str]:
    """The innermost loop with the most matrix instructions."""

    def matrices(loop: Sequence[str]) -> int:
        return sum("mfma" in t or "wmma" in t for t in loop)

    return max(
        loops(asm),
        key=lambda loop: (matrices(loop) / len(loop) > 0.02, matrices(loop), -len(loop)),
        default=[],
    )


def count(instructions: Sequence[str]) -> Counter[str]:
    """Instructions by kind."""
    out: Counter[str] = Counter()
    for text in instructions:
        out[next((kind for kind, pattern in _KINDS if re.match(pattern, text)), "other")] += 1
    out["waits for all loads"] = sum("vmcnt(0)" in t or "s_wait_loadcnt 0x0" in t for t in instructions)
    return out


def report(name: str, target: str, constants: dict[str, int]) -> str:
    """The counts of a library kernel's main loop as text, with the ratios to matrix instructions."""
    kernel = library(name)
    example = Example.of(kernel)
    compiled = kernel.compile(target, *example.args, **{**example.constants, **constants})
    counts = count(main_loop(compiled.asm))
    matrix = counts["matrix"] or 1
    rows = [f"{name} on {target} {constants}: {compiled.resources}"]
    rows += [
        f"  {kind:20s} {n:5d}  {n / matrix:6.3f} a matrix instruction" for kind, n in counts.items() if n
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    print(report(sys.argv[1], sys.argv[2], {k: int(v) for k, v in (x.split("=") for x in sys.argv[3:])}))
