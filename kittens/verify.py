"""The verifier: what every function of the tile IR satisfies, whoever made it."""

from __future__ import annotations

from kittens import opset
from kittens.errors import InternalError
from kittens.ir import Function, Op, Region, TensorType, Value


def verify(function: Function) -> None:
    """Raise InternalError unless names are known, values are defined before use and in scope, and types
    are as inferred.
    """
    _region(function, function.body, set())


def _fail(function: Function, op: Op | None, message: str) -> InternalError:
    where = f" at {op.name}" if op is not None else ""
    return InternalError(
        f"the tile IR of {function.name} is not valid{where}: {message}", location=op.location if op else None
    )


def _region(function: Function, region: Region, scope: set[Value]) -> None:
    scope = scope | set(region.args)
    for position, op in enumerate(region.ops):
        if op.name not in opset.OPS:
            raise _fail(function, op, "no such operation")
        for value in op.operands:
            if value not in scope:
                raise _fail(function, op, f"operand {value.name or value.type} is not in scope")
        if op.name == "yield" and (region is function.body or position != len(region.ops) - 1):
            raise _fail(function, op, "a yield ends a nested region and stands nowhere else")
        try:
            call = opset.infer(op.name, [v.type for v in op.operands], op.attrs)
        except Exception as error:  # attributes and operand counts may be anything
            raise _fail(function, op, f"{type(error).__name__}: {error}") from error
        if list(call.results) != [v.type for v in op.results]:
            raise _fail(
                function,
                op,
                f"results are {[str(v.type) for v in op.results]}, inferred {[str(t) for t in call.results]}",
            )
        if (op.name in ("loop", "when")) != (len(op.regions) == 1):
            raise _fail(function, op, f"has {len(op.regions)} regions")
        for inner in op.regions:
            _structured(function, op, inner)
            _region(function, inner, scope)
        if any(isinstance(v.type, TensorType) for v in op.results) and op.name not in (
            "index",
            "slice",
            "permute",
        ):
            raise _fail(function, op, "gives a tensor")
        scope |= set(op.results)


def _structured(function: Function, op: Op, region: Region) -> None:
    """A loop's or branch's region takes and yields the carried values."""
    carried = [v.type for v in op.results]
    args = [v.type for v in region.args]
    if args != [v.type for v in op.operands[: 1 if op.name == "loop" else 0]] + carried:
        raise _fail(function, op, "the arguments of its region do not match what it carries")
    if (
        not region.ops
        or region.ops[-1].name != "yield"
        or [v.type for v in region.ops[-1].operands] != carried
    ):
        raise _fail(function, op, "its region does not yield what it carries")
