"""From tile IR to a plan and from a plan to C-like source, for any target that describes itself as a `Machine`.

What the vendors share is here: where tiles live (`placement`), what is staged and how often (`plan`), and the text
(`emit`). A backend brings data: its `Machine`, and device headers whose functions the text calls.
"""

from kittens.codegen.emit import emit
from kittens.codegen.machine import Dialect, Engine, Instruction, Machine, MatrixOp, Move
from kittens.codegen.plan import Plan, make_plan

__all__ = ["Dialect", "Engine", "Instruction", "Machine", "MatrixOp", "Move", "Plan", "emit", "make_plan"]
