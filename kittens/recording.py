"""Operations on arrays that are remembered as what they launch.

An operation checks its arguments, makes outputs, and launches kernels on views of both. All of that follows from the
pattern and the key of its call (`dispatch`). So the first call of a kind is recorded, and later ones make the same outputs
and repeat the launches, at the same distances from the beginnings of their own arrays, with no view made.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kittens import dispatch, plugins, runtime
from kittens.arguments import Argument, ScalarArg, TensorArg, adopt, overlap
from kittens.dtypes import DType
from kittens.kernel import Kernel


@dataclass
class Recording:
    """What an operation did. given: its arguments. made: new arrays, with the argument that each is like, shape and type."""

    given: list[Any]
    made: list[tuple[Any, int, tuple[int, ...], DType]] = field(default_factory=list)
    launches: list[tuple[Kernel, list[Any], dict[str, Argument], runtime.Again]] = field(default_factory=list)
    whole: bool = True  # whether everything that was done is written down


_local = threading.local()
#: Variants of a call, by what memory its arrays share, that are remembered.
_VARIANTS = 4


def launch(kernel: Kernel, *args: Any, **constants: Any) -> None:
    """Run a kernel as a step of an operation."""
    now: Recording | None = getattr(_local, "recording", None)
    if now is None:
        kernel(*args, **constants)
        return
    on = constants.pop("on", None)
    run = runtime.run(kernel, args, constants, on)
    if run.again is None:
        now.whole = False
    else:
        arguments, _ = kernel.bind(args, constants)
        passed = [x for x in args if x is not None]
        now.whole &= len(passed) == sum(a is not None for a in arguments.values())
        now.launches.append(
            (kernel, passed, {n: a for n, a in arguments.items() if a is not None}, run.again)
        )


def empty(like: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """A new array as a step of an operation: its elements not set, of the library and on the device of `like`; None if no
    backend makes one.
    """
    made = plugins.manager().hook.kittens_empty(like=like, shape=shape, dtype=dtype)
    now: Recording | None = getattr(_local, "recording", None)
    if now is not None:
        places = [i for i, x in enumerate(now.given) if x is like]
        now.whole &= bool(places)
        now.made.append((made, places[0] if places else -1, shape, dtype))
    return made


def operation(scalars: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for functions whose every step is a check, a view, `empty` or `launch`, and which return arrays that they
    were given or made. scalars: parameters that reach kernels as run-time scalars, under the same names.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        calls = dispatch.Calls()
        positional = function.__code__.co_varnames[: function.__code__.co_argcount]

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            result = calls.latest(args, None, named)
            if result is None:
                result = calls.other(args, None, named)
            if result is not None:
                return result
            return _record(function, calls, positional, scalars, args, named)

        call.calls = calls  # type: ignore[attr-defined]
        return call

    return decorate


def _record(
    function: Callable[..., Any], calls: dispatch.Calls, positional: Sequence[str], scalars: Sequence[str],
    args: tuple[Any, ...], named: dict[str, Any],
) -> Any:  # fmt: skip
    """Call an operation, and remember what it did if that can be repeated."""
    given = [*args, *named.values()]
    names = [*positional[: len(args)], *named]
    reads = [_read(x, n in scalars) for n, x in zip(names, given, strict=False)]
    at = dispatch.key(args, None, named)
    if None in reads or len(reads) != len(given) or not any(r.address for r in reads if r) or _recording():
        return function(*args, **named)
    now = _local.recording = Recording(given)
    try:
        result = function(*args, **named)
    finally:
        _local.recording = None
    known = [r for r in reads if r is not None]
    pattern = calls.patterns.get(at)
    if pattern is None:
        passed = [f"kt_v{i}" for i in range(sum(bool(r.value) for r in known))]
        objects = [*(f"a{i}" for i in range(len(args))), *(f"n{i}" for i in range(len(named)))]
        call = ", ".join([*objects, *passed])
        tail = [f"return kt_found({call})"]
        pattern = dispatch.Pattern(list(map(type, given)), list(named), None, known, tail)
        calls.add(at, pattern)
    key, values = pattern.read(args, None, named) or (None, ())
    with contextlib.suppress(_Unrepeatable):
        if key is None:
            raise _Unrepeatable
        repeat = _Repeat(now, names, known, values, result).written()
        before = pattern.calls.get(key)
        pattern.remember(key, repeat if before is None else _Variants(repeat, before))
    return result


class _Variants:
    """Functions of which the first that can repeats a call: what memory its arrays share makes variants of it."""

    def __init__(self, repeat: Callable[..., Any], before: Callable[..., Any]):
        older = before.repeats if isinstance(before, _Variants) else (before,)
        self.repeats: tuple[Callable[..., Any], ...] = (repeat, *older)[:_VARIANTS]

    def __call__(self, *values: Any) -> Any:
        return next((r for repeat in self.repeats if (r := repeat(*values)) is not None), None)


def _recording() -> bool:
    return getattr(_local, "recording", None) is not None


def _read(x: Any, scalar: bool) -> dispatch.Read | None:
    """How an argument of an operation is read; None if calls with such a one cannot be remembered."""
    if scalar and type(x) in dispatch.NUMBERS:
        return dispatch.number(type(x), constant=False, finite=True)
    if dispatch.is_constant(x):
        return dispatch.constant(type(x))
    found = dispatch.array(x)
    if found is None and not hasattr(x, "shape") and not hasattr(x, "__dlpack__"):
        return dispatch.constant(type(x))  # told from others by what it is, such as another library's dtype
    return found


@dataclass(frozen=True)
class _Base:
    """An array that others may be views of: the name that its address has in the function, the address, and its memory."""

    name: str
    address: int
    span: tuple[Any, int, int]


class _Unrepeatable(Exception):
    """What was recorded does not follow from the pattern and the key of the call."""


class _Repeat:
    """Writes the function that does again what was recorded: `repeat` takes the arguments and the values read from them."""

    def __init__(
        self,
        now: Recording,
        names: Sequence[str],
        reads: Sequence[dispatch.Read],
        values: Sequence[Any],
        result: Any,
    ):
        self.now, self.result = now, result
        numbers = iter(range(len(values)))
        places = [next(numbers) if r.value else None for r in reads]
        self.parameters = [*(f"x{i}" for i in range(len(reads))), *(f"v{i}" for i in range(len(values)))]
        #: run-time scalars by name
        self.numbers = {
            n: f"v{v}" for n, r, v in zip(names, reads, places, strict=True) if r.value and not r.address
        }
        self.scope: dict[str, Any] = {}
        self.lines: list[str] = []
        self.bases: list[_Base] = []
        for r, x, v in zip(reads, now.given, places, strict=True):
            if r.address and v is not None:
                self._base(f"v{v}", values[v], x)

    def written(self) -> Callable[..., Any]:
        """The function. Raises _Unrepeatable."""
        if not (self.now.whole and self.now.launches):
            raise _Unrepeatable
        for n, kernel in enumerate({id(k): k for k, *_ in self.now.launches}.values()):
            self.scope[f"current{n}"] = kernel.current
            self.lines.append(f"if not current{n}(): return None")
        for n, (array, like, shape, dtype) in enumerate(self.now.made):
            self._make(n, array, like, shape, dtype)
        starts = [self._launch(n, *launch) for n, launch in enumerate(self.now.launches)]
        self.lines += [*starts, f"return {self._result(self.result)}"]
        make: Callable[..., Callable[..., Any]] = _maker(
            tuple(self.scope), tuple(self.parameters), tuple(self.lines)
        )
        return make(**self.scope)

    def _base(self, name: str, address: int, x: Any) -> None:
        a = adopt(x, name)
        if not isinstance(a, TensorArg) or a.span is None:
            raise _Unrepeatable  # an array without elements lies nowhere, so that views of it cannot be told
        # Nor can views of arrays that share memory. But at the same distance from each other it makes no difference.
        for b in self.bases:
            if overlap(a.span, b.span):
                self.scope[f"from_{b.name}_to_{name}"] = address - b.address
                self.lines.append(f"if {name} - {b.name} != from_{b.name}_to_{name}: return None")
        self.bases.append(_Base(name, address, a.span))

    def _make(self, n: int, array: Any, like: int, shape: tuple[int, ...], dtype: DType) -> None:
        """Make an array like one that was made."""
        ask = plugins.manager().hook.kittens_reader
        maker, reader = ask(array=self.now.given[like]), ask(array=array)
        if maker is None or maker.empty is None or reader is None:
            raise _Unrepeatable
        address = dispatch.address(reader, array)
        if address & 15:
            raise _Unrepeatable
        self._base(f"w{n}", address, array)
        self.scope[f"make{n}"] = maker.empty(shape, dtype, self.now.given[like])
        self.scope |= reader.names
        self.lines += [f"y{n} = make{n}(x{like})", f"w{n} = {reader.address.format(x=f'y{n}')}"]
        self.lines.append(f"if w{n} & 15: return None")

    def _launch(
        self,
        n: int,
        kernel: Kernel,
        arrays: Sequence[Any],
        arguments: dict[str, Argument],
        again: runtime.Again,
    ) -> str:
        """The line that repeats a launch; before it, those that look whether it may be."""
        operands: list[str] = []
        found: dict[str, tuple[_Base, int]] = {}
        for (name, a), x in zip(arguments.items(), arrays, strict=True):
            if isinstance(a, ScalarArg):
                operands.append(self._number(n, name, a))
                continue
            assert isinstance(a, TensorArg)
            base = next((b for b in self.bases if a.span and overlap(a.span, b.span)), None)
            reader = plugins.manager().hook.kittens_reader(array=x)
            if base is None or reader is None:
                raise _Unrepeatable
            offset = dispatch.address(reader, x) - base.address
            found[name] = base, offset
            operands.append(f"{base.name} + offset{n}_{name}" if offset else base.name)
            self.scope |= {f"offset{n}_{name}": offset} if offset else {}
        for one, other in itertools.combinations(found, 2):
            self._apart(f"{n}_{one}_{other}", arguments, again, (one, *found[one]), (other, *found[other]))
        self.scope[f"run{n}"] = again.run
        return f"run{n}({', '.join(operands)})"

    def _number(self, n: int, name: str, a: ScalarArg) -> str:
        if name in self.numbers:
            return f"{'float' if a.dtype.is_float else 'int'}({self.numbers[name]})"
        self.scope[f"number{n}_{name}"] = a.value
        return f"number{n}_{name}"

    def _apart(
        self, tag: str, arguments: dict[str, Argument], again: runtime.Again, one: tuple[str, _Base, int],
        other: tuple[str, _Base, int],
    ) -> None:  # fmt: skip
        """Have a call go the whole way if two arrays, at least one of which is written, share memory."""
        (m, a, i), (n, b, j) = one, other
        written = m in again.written or n in again.written
        if not written or a is b or a.name.startswith("w") or b.name.startswith("w"):
            return  # new memory is nobody else's; the rest is known from the recorded call
        low, high = runtime.apart(arguments[m], a.address + i, arguments[n], b.address + j)
        self.scope |= {f"low{tag}": low + i - j, f"high{tag}": high + i - j}
        self.lines.append(f"if low{tag} < {b.name} - {a.name} < high{tag}: return None")

    def _result(self, result: Any) -> str:
        if isinstance(result, tuple):
            return f"({', '.join(map(self._result, result))},)"
        for n, (array, *_) in enumerate(self.now.made):
            if result is array:
                return f"y{n}"
        for i, x in enumerate(self.now.given):
            if result is x:
                return f"x{i}"
        raise _Unrepeatable


@functools.lru_cache(1024)
def _maker(
    names: tuple[str, ...], parameters: tuple[str, ...], lines: tuple[str, ...]
) -> Callable[..., Callable[..., Any]]:
    body = "\n    ".join([f"  def repeat({', '.join(parameters)}):", *lines])
    made: dict[str, Any] = {}
    exec(
        compile(
            f"def make({', '.join(names)}):\n{body}\n  return repeat",
            f"<repeat, written by {__name__}>",
            "exec",
        ),
        made,
    )
    return made["make"]
