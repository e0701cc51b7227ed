"""`@kt.kernel`: a Python function as a kernel, which can be run, traced, shown and compiled."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from kittens import errors, plugins, runtime, tuned
from kittens.arguments import Argument, ScalarArg, TensorArg, adopt
from kittens.captured import Captured, captured
from kittens.dispatch import Calls, Pattern, exact
from kittens.dtypes import DType
from kittens.errors import ArgumentError, ControlFlowError, Location
from kittens.executor import running
from kittens.ir import Function, TensorType, TileType, Value
from kittens.targets import Target, parse
from kittens.tensor import Tensor
from kittens.tidy import tidy
from kittens.tile import Tile
from kittens.trace import Trace
from kittens.verify import verify


class Tunable:
    """Marks a constant whose value the target chooses. `kt.tunable(64, 128)` lists candidates, the first for
    targets that ship no value; bare `kt.tunable` leaves it to the target and the caller."""

    def __init__(self, *candidates: Any):
        self.candidates = candidates

    def __call__(self, *candidates: Any) -> Tunable:
        return Tunable(*candidates)

    def __repr__(self) -> str:
        return f"kt.tunable({', '.join(map(repr, self.candidates))})"


tunable = Tunable()


class Kernel:
    """A kernel. Call it with arrays and scalars to run it.

    Positional parameters of the function are tensors, run-time scalars or None; keyword-only ones are
    compile-time constants. `on=` chooses the target (the default is where the arrays live). The call returns
    a `Run`.
    """

    # A call goes straight to what is in this slot: a function that was written for calls like the latest one, if there is any.
    __slots__ = ("__call__", "__dict__", "__weakref__")
    __call__: Callable[..., runtime.Run]

    def __init__(self, function: Callable[..., Any], grid: Any):
        if not hasattr(function, "__code__"):
            raise ArgumentError(
                f"{function!r} cannot be a kernel",
                hint="decorate a function: @kt.kernel, or @kt.kernel(grid=...)",
            )
        self.function = function
        self.grid = grid
        self.name = function.__name__
        functools.update_wrapper(self, function)
        self.params: list[str] = []
        self.constants: dict[str, Any] = {}
        self._optional: set[str] = set()
        code = function.__code__
        self.location = Location(code.co_filename, code.co_firstlineno, self.name)
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise ControlFlowError(
                f"kernel {self.name} is a generator or a coroutine",
                hint="write results with kt.store; a kernel neither yields nor awaits",
                location=self.location,
            )
        for name, parameter in inspect.signature(function).parameters.items():
            if name == "on":
                raise ArgumentError(
                    f"kernel {self.name} has a parameter 'on'",
                    hint="that name chooses the target; use another",
                    location=self.location,
                )
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ArgumentError(
                    f"kernel {self.name} takes *{name}", hint="name every parameter", location=self.location
                )
            if parameter.kind is parameter.KEYWORD_ONLY:
                self.constants[name] = parameter.default
            else:
                self.params.append(name)
                if parameter.default is None:
                    self._optional.add(name)
                elif parameter.default is not parameter.empty:
                    raise ArgumentError(
                        f"parameter {name!r} of kernel {self.name} has a default",
                        hint="a default other than None makes sense for keyword-only constants",
                        location=self.location,
                    )
        self._traces: dict[Any, list[Function]] = {}
        self.calls = Calls()
        self._captured: Captured | None = None
        self.current: Callable[[], bool] = _never
        self.__call__ = self._whole

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(self.params)}) at {self.location}>"

    def __reduce__(self) -> str:
        """A kernel is pickled by its name, as the function that it stands for would be."""
        return self.function.__qualname__

    def _whole(self, *args: Any, on: str | Target | None = None, **constants: Any) -> runtime.Run:
        """A call of any pattern."""
        if self.current():
            run = self.calls.latest(args, on, constants)
            if run is None:
                run = self.calls.other(args, on, constants)
            if run is not None:
                self.__call__ = self.calls.direct or self._whole
                return run
        return runtime.run(self, args, constants, on)

    # Arguments.

    def bind(
        self, args: tuple[Any, ...], constants: dict[str, Any]
    ) -> tuple[dict[str, Argument], dict[str, Any]]:
        """Arguments by name, described; and the constants given. Raises ArgumentError for what does not
        fit.
        """
        if len(args) > len(self.params):
            raise ArgumentError(
                f"kernel {self.name} takes {len(self.params)} arguments, not {len(args)}",
                hint=f"they are {', '.join(self.params)}; constants are given by name",
            )
        values = dict(zip(self.params, args, strict=False))
        given = dict(constants)
        for name in self.params:
            if name in given:
                if name in values:
                    raise ArgumentError(f"argument {name!r} of kernel {self.name} is given twice")
                values[name] = given.pop(name)
            elif name not in values:
                if name not in self._optional:
                    raise ArgumentError(
                        f"kernel {self.name} misses its argument {name!r}",
                        hint=f"it takes {', '.join(self.params)}",
                    )
                values[name] = None
        for name in given:
            if name not in self.constants:
                raise ArgumentError(
                    f"kernel {self.name} has no constant {name!r}",
                    hint=f"it has {', '.join(self.constants) or 'none'}",
                )
        return {name: adopt(values[name], name) for name in self.params}, given

    def settle(
        self, target: Target | None, arguments: dict[str, Argument], given: dict[str, Any]
    ) -> dict[str, Any]:
        """Every constant's value: what the caller gave, else the default, else for tunables what was tuned on this
        machine, or what the target ships.
        """
        settled = {**self.constants, **given}
        missing = [n for n, v in settled.items() if v is inspect.Parameter.empty]
        if missing:
            raise ArgumentError(
                f"kernel {self.name} misses its constants {', '.join(missing)}", hint="give them by name"
            )
        open_ones = [n for n, v in settled.items() if isinstance(v, Tunable)]
        shipped: dict[str, int] = {}
        if open_ones and target is not None:
            # A launch is repeated with other scalars, so that they have no say.
            said = {
                n: ScalarArg(a.dtype, None) if isinstance(a, ScalarArg) else a for n, a in arguments.items()
            }
            ask = plugins.manager().hook.kittens_tunables
            shipped = ask(target=target, kernel=self.name, arguments={**said, **settled}) or {}
            closed = {n: v for n, v in settled.items() if n not in open_ones}
            shipped = {**shipped, **tuned.lookup(self, target, arguments, closed)}
        for name in open_ones:
            candidates = settled[name].candidates
            if name not in shipped and not candidates:
                raise ArgumentError(
                    f"{target or 'no target'} has no value for the tunable {name!r} of kernel {self.name}",
                    hint=f"give one: {name}=64",
                )
            settled[name] = shipped.get(name, candidates[0] if candidates else None)
        for name, value in settled.items():
            try:
                hash(value)
            except TypeError:
                raise ArgumentError(
                    f"the constant {name!r} of kernel {self.name} is a {type(value).__name__}, which "
                    "cannot be a constant",
                    hint="use a number, string, dtype or tuple",
                ) from None
        return settled

    # From Python to the tile IR and beyond.

    def forget_if_stale(self) -> None:
        """Drop what was traced if a global or closure that the kernel reads has been bound anew since."""
        if self._captured is None or not self._captured.current:
            self._traces.clear()
            self.calls.clear()
            self.__call__ = self._whole
            self._capture()

    def _capture(self) -> None:
        self._captured = captured(self.function)
        self.current = _never

    def remember(self, at: Any, pattern: Pattern) -> None:
        """Repeat calls of a pattern from now on, while every global and closure that the kernel reads is what it was; `at` is
        what `dispatch.key` says of them.
        """
        assert self._captured is not None
        if pattern.direct is None:
            pattern.write_direct(len(self.params), list(self.constants), self._captured, self._whole)
        self.calls.add(at, pattern)
        if self.current is _never:
            self.current = self._captured.test()
        self.__call__ = self.calls.direct or self._whole

    def trace(self, arguments: dict[str, Argument], constants: dict[str, Any], grid_rank: int) -> Function:
        """The tidied, verified tile IR for these arguments; traced once for all arguments of their kind.

        The kernel specialises on extents that it uses as constants. Errors of the kernel's text surface here.
        """
        self.forget_if_stale()
        types = {n: a.type for n, a in arguments.items() if a is not None}
        key = (tuple(types.items()), exact(constants), grid_rank)
        for function in self._traces.get(key, ()):
            if all(_matches(p.type, arguments[p.name]) for p in function.params):
                return function
        function = _trace(self, arguments, constants, grid_rank)
        self._capture()  # what the kernel itself changed, a log say, is no news
        self._traces.setdefault(key, []).append(function)
        return function

    def ir(self, *args: Any, on: str | Target | None = None, **constants: Any) -> Function:
        """The tile IR for arguments (arrays, scalars or `kt.spec`); print it to read it."""
        arguments, given = self.bind(args, constants)
        settled = self.settle(parse(on) if on is not None else None, arguments, given)
        return self.trace(arguments, settled, len(runtime.evaluate_grid(self, arguments, settled)))

    def plan(self, on: str | Target, *args: Any, **constants: Any) -> Any:
        """How target `on` maps the kernel to hardware; print it to read it."""
        return plugins.ask("kittens_plan", parse(on), function=self.ir(*args, on=on, **constants))

    def source(self, on: str | Target, *args: Any, **constants: Any) -> str:
        """The source that target `on` compiles."""
        return str(plugins.ask("kittens_emit", parse(on), plan=self.plan(on, *args, **constants)))

    def compile(self, on: str | Target, *args: Any, **constants: Any) -> Any:
        """The compiled object for target `on`; needs no device."""
        return plugins.ask("kittens_compile", parse(on), function=self.ir(*args, on=on, **constants))

    def resources(self, on: str | Target, *args: Any, **constants: Any) -> dict[str, Any]:
        """What the compiled object for target `on` takes: registers, spilled bytes, shared memory, ..."""
        return dict(self.compile(on, *args, **constants).resources)


def _never() -> bool:
    return False


def _matches(type: Any, argument: Argument) -> bool:
    """Whether an argument has the extents that a trace was specialised on."""
    if not isinstance(type, TensorType) or not isinstance(argument, TensorArg):
        return True
    return all(e.value is None or e.value == n for e, n in zip(type.dims, argument.shape, strict=True))


def _trace(
    kernel: Kernel, arguments: dict[str, Argument], constants: dict[str, Any], grid_rank: int
) -> Function:
    trace = Trace(grid_rank)
    with errors.noted() as swallowed, running(trace), trace:
        values = {n: None if a is None else _parameter(trace, n, a) for n, a in arguments.items()}
        for op in trace.body.ops:
            op.location = None  # extents of parameters are read by no line of the kernel
        returned = kernel.function(*values.values(), **constants)
    check_returned(kernel, returned)
    body = trace.finish()
    if swallowed:
        raise ControlFlowError(
            f"an error was swallowed while the kernel was traced: {swallowed[0].message}",
            hint="tracing cannot tell what Python would have done; avoid `try` around operations on tiles",
            location=swallowed[0].location,
        )
    for value in body.args:
        if isinstance(value.type, TensorType):
            dims = list(value.type.dims)
            for name, axis in trace.specialised:
                if name == value.name:
                    argument = arguments[name]
                    assert isinstance(argument, TensorArg)
                    dims[axis] = type(dims[axis])(argument.shape[axis])
            value.type = TensorType(value.type.dtype, tuple(dims), value.type.strides, value.type.alignment)
    function = tidy(
        Function(kernel.name, body, grid_rank, {n: _plain(v) for n, v in constants.items()}, kernel.location)
    )
    verify(function)
    return function


def check_returned(kernel: Kernel, returned: Any) -> None:
    """A kernel gives its results through stores."""
    if returned is not None:
        raise ControlFlowError(
            f"kernel {kernel.name} returns a value",
            hint="write results with kt.store; a kernel returns nothing",
            location=kernel.location,
        )


def _plain(value: Any) -> Any:
    """A constant as data that prints and reads back."""
    return (
        value
        if value is None or isinstance(value, (bool, int, float, str))
        else value.name
        if isinstance(value, DType)
        else str(value)
    )


def _parameter(trace: Trace, name: str, argument: TensorArg | ScalarArg) -> Any:
    value = trace.define(Value(argument.type, name), trace.body)
    trace.body.args.append(value)
    if isinstance(argument, ScalarArg):
        return Tile(argument.type, value, trace)
    return tensor_parameter(trace, name, argument, value)


def tensor_parameter(executor: Any, name: str, argument: TensorArg, value: Any) -> Tensor:
    """A tensor parameter with the scalars of its shape, which know their values in this call."""
    from kittens.tile import apply

    bare = Tensor(argument.type, value, (), executor)
    shape = []
    for axis, n in enumerate(argument.shape):
        (extent,) = apply("dim", (bare,), {"axis": axis})
        extent.known = (n, frozenset({(name, axis)}))
        shape.append(extent)
    return Tensor(argument.type, value, tuple(shape), executor)


def kernel(function: Callable[..., Any] | None = None, *, grid: Any = 1) -> Any:
    """Make a function a kernel: @kt.kernel(grid=lambda x, BLOCK: kt.cdiv(x.shape[0], BLOCK)).

    grid: the number of programs along each axis (1 to 3): an int, a tuple, or a function of any of the
    kernel's arguments and constants, by name, in which tensors have `shape` and `dtype` as Python values.
    """
    if function is not None:
        return Kernel(function, grid)
    return lambda f: Kernel(f, grid)


__all__ = ["Kernel", "TileType", "Tunable", "kernel", "tunable"]
