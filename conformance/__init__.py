"""The same cases on every target, judged by error bounds.

    report = kittens.conformance.run(["numpy"], pattern="matmul")
    report.ok, report.summary(), report.to_json()

Each case is run in an arithmetic that tracks errors (`judge`), which gives what every element must be and how
far an implementation that honours the numerics contract may be from it. The result of a case is the largest
observed/bound.
"""

from __future__ import annotations

from kittens.conformance.case import Case, In, InOut, Out, select
from kittens.conformance.cases import all_cases
from kittens.conformance.examine import Row, examine
from kittens.conformance.runner import Report, Summary, run

__all__ = ["Case", "In", "InOut", "Out", "Report", "Row", "Summary", "all_cases", "examine", "run", "select"]
