"""Messages: each bad kernel below must be refused with the right class, naming the line marked `# error`,
with a hint.
"""

from __future__ import annotations

import pickle
import traceback

import ml_dtypes
import numpy as np
import pytest

import kittens as kt
from kittens import errors
from kittens.errors import (
    ArgumentError,
    CheckError,
    ControlFlowError,
    DTypeError,
    InternalError,
    KittensError,
    ScopeError,
    ShapeError,
    TargetError,
    UnavailableError,
)

LINES = open(__file__, encoding="utf-8").read().splitlines()  # noqa: SIM115
CASES: dict[str, tuple] = {}


def bad(kind, *words, hint=True):
    """Note a kernel body f(x, y, o, n): x, y, o float32 (8, 8), n a run-time int."""

    def note(function):
        CASES[function.__name__] = (function, kind, words, hint)
        return function

    return note


def tile(x):
    return kt.load(x, (0, 0), (4, 4))


@bad(ShapeError, "load of a tile of shape (4,)", "2 axes")
def load_rank(x, y, o, n):
    kt.load(x, (0, 0), (4,))  # error


@bad(ShapeError, "1 coordinates", "2 axes")
def coordinates_count(x, y, o, n):
    kt.load(x, (0,), (4, 4))  # error


@bad(ShapeError, "at most 3 axes")
def tile_rank(x, y, o, n):
    kt.zeros((1, 2, 3, 4), kt.float32)  # error


@bad(DTypeError, "float16 and bfloat16", "no common type")
def f16_and_bf16(x, y, o, n):
    tile(x).to(kt.float16) + tile(y).to(kt.bfloat16)  # error


@bad(DTypeError, "int32 and uint32")
def signed_and_unsigned(x, y, o, n):
    kt.arange(4) + kt.arange(4, kt.uint32)  # error


@bad(DTypeError, "int32 and float32", "no common type")
def integer_and_float(x, y, o, n):
    kt.arange(4) + tile(x)  # error


@bad(DTypeError, "the float 0.5 meets a tile of int32")
def integer_and_a_float_number(x, y, o, n):
    kt.arange(4) * 0.5  # error


@bad(DTypeError, "the bool True meets")
def a_bool_number(x, y, o, n):
    tile(x) + True  # error


@bad(DTypeError, "does not fit into int8")
def a_number_too_large(x, y, o, n):
    kt.arange(4, kt.int8) + 1000  # error


@bad(DTypeError, "add is not defined on float8_e4m3fn")
def float8_arithmetic(x, y, o, n):
    a = tile(x).to(kt.float8_e4m3fn)
    a + a  # error


@bad(DTypeError, "div is not defined on int32")
def integer_division(x, y, o, n):
    kt.arange(4) / 2  # error


@bad(DTypeError, "floordiv is not defined on float32")
def float_floor_division(x, y, o, n):
    tile(x) // 2.0  # error


@bad(ShapeError, "shapes (4, 4) and (8,) do not broadcast")
def broadcast(x, y, o, n):
    tile(x) + kt.load(x[0], 0, 8)  # error


@bad(ShapeError, "known only at run time")
def a_run_time_shape(x, y, o, n):
    kt.zeros((n, 4), kt.float32)  # error


@bad(ShapeError, "at least 1, not 0")
def an_empty_tile(x, y, o, n):
    kt.zeros((0, 4), kt.float32)  # error


@bad(ShapeError, "(4, 4) @ (8, 4) disagree")
def product_shapes(x, y, o, n):
    tile(x) @ kt.load(y, (0, 0), (8, 4))  # error


@bad(ShapeError, "two matrices")
def product_rank(x, y, o, n):
    tile(x) @ kt.load(y[0], 0, 4)  # error


@bad(DTypeError, "no product of float32 and float16")
def product_types(x, y, o, n):
    tile(x) @ tile(y).to(kt.float16)  # error


@bad(DTypeError, "accumulator")
def product_accumulator(x, y, o, n):
    kt.mma(tile(x), tile(y), kt.zeros((4, 4), kt.float16))  # error


@bad(DTypeError, "fast accumulation is that of float8 operands")
def fast_product_types(x, y, o, n):
    kt.mma(tile(x), tile(y), accumulate="fast")  # error


@bad(ArgumentError, "products do not accumulate 'quick'")
def product_mode(x, y, o, n):
    kt.mma(tile(x), tile(y), accumulate="quick")  # error


@bad(DTypeError, "float8 operands")
def scaled_product(x, y, o, n):
    s = kt.zeros((4, 1), kt.float8_e8m0fnu)
    kt.mma_scaled(tile(x), s, tile(y), s)  # error


@bad(DTypeError, "kt.store takes a tile, not the number 0.0")
def store_a_number(x, y, o, n):
    kt.store(o, (0, 0), 0.0)  # error


@bad(DTypeError, "a tile of int32 into a tensor of float32")
def store_dtype(x, y, o, n):
    kt.store(o[0], 0, kt.arange(4))  # error


@bad(DTypeError, "takes a tensor first")
def load_from_a_tile(x, y, o, n):
    kt.load(tile(x), (0, 0), (2, 2))  # error


@bad(DTypeError, "operators work on tiles")
def arithmetic_on_a_tensor(x, y, o, n):
    x + y  # error


@bad(DTypeError, "a tensor is used where a tile is needed")
def tensor_as_tile(x, y, o, n):
    kt.maximum(x, 1.0)  # error


@bad(ArgumentError, "pad is a Python number")
def run_time_pad(x, y, o, n):
    kt.load(x, (0, 0), (4, 4), pad=n)  # error


@bad(ShapeError, "3 indices for a tensor of 2 axes", hint=False)
def too_many_indices(x, y, o, n):
    x[0, 0, 0]  # error


@bad(ShapeError, "takes no step")
def a_step_of_a_slice(x, y, o, n):
    x[::2]  # error


@bad(DTypeError, "an index of a tensor is an integer", hint=False)
def a_float_index(x, y, o, n):
    x[0.5]  # error


@bad(ControlFlowError, "the truth of a run-time value")
def if_(x, y, o, n):
    if tile(x).max(axis=0).max(axis=0) > 0:  # error
        pass


@bad(ControlFlowError, "the truth of a run-time value")
def and_(x, y, o, n):
    return n > 0 and n < 4  # error


@bad(ControlFlowError, "where Python needs an integer")
def range_(x, y, o, n):
    for _ in range(n):  # error
        pass


@bad(ControlFlowError, "no len()")
def len_(x, y, o, n):
    len(tile(x))  # error


@bad(ControlFlowError, "cannot be iterated over")
def unpack(x, y, o, n):
    a, b = tile(x)  # error  # noqa: RUF059


@bad(ControlFlowError, "cannot be assigned into")
def assign_into(x, y, o, n):
    a = tile(x)
    a[0] = 0.0  # error


@bad(ControlFlowError, "not a NumPy array")
def numpy_function(x, y, o, n):
    np.asarray(tile(x))  # error


@bad(ControlFlowError, "kt.store(tensor")
def assign_into_a_tensor(x, y, o, n):
    o[0] = tile(x)  # error


@bad(ShapeError, "cannot be indexed with 0")
def index_a_tile(x, y, o, n):
    tile(x)[0]  # error


@bad(ControlFlowError, "assigned only in the body")
def used_after_its_loop(x, y, o, n):
    for _ in kt.range(n):
        a = tile(x)
    kt.store(o, (0, 0), a)  # error


@bad(ArgumentError, "the step of kt.range is at least 1, not -1")
def negative_step(x, y, o, n):
    for _ in kt.range(4, 0, -1):  # error
        pass


@bad(ArgumentError, "1 to 3 bounds", hint=False)
def no_bounds(x, y, o, n):
    for _ in kt.range():  # error
        pass


@bad(ArgumentError, "unroll is a Python integer", hint=False)
def unroll(x, y, o, n):
    for _ in kt.range(4, unroll=0):  # error
        pass


@bad(DTypeError, "a bound of kt.range is an integer", hint=False)
def float_bound(x, y, o, n):
    for _ in kt.range(1.5):  # error
        pass


@bad(ControlFlowError, "for run-time conditions")
def when_of_a_python_bool(x, y, o, n):
    for _ in kt.when(True):  # error
        pass


@bad(DTypeError, "kt.when takes a bool scalar, not bool[4,4]")
def when_of_a_tile(x, y, o, n):
    for _ in kt.when(tile(x) > 0):  # error
        pass


@bad(DTypeError, "kt.when takes a bool scalar", hint=False)
def when_of_a_number(x, y, o, n):
    for _ in kt.when(3):  # error
        pass


@bad(ArgumentError, "no approximation 'fast' of gelu")
def gelu(x, y, o, n):
    kt.gelu(tile(x), "fast")  # error


@bad(ArgumentError, "only be raised to the power 2")
def power(x, y, o, n):
    tile(x) ** 3  # error


@bad(DTypeError, "exp is not defined on int32")
def exp_of_integers(x, y, o, n):
    kt.exp(kt.arange(4))  # error


@bad(DTypeError, "exp takes a tile")
def exp_of_a_number(x, y, o, n):
    kt.exp(1.0)  # error


@bad(DTypeError, "kt.where takes a bool tile first")
def where_of_floats(x, y, o, n):
    kt.where(tile(x), 1.0, tile(x))  # error


@bad(ShapeError, "kt.where: shapes (4,) and (8, 8)")
def where_shapes(x, y, o, n):
    kt.where(kt.arange(4) > 1, kt.load(x, (0, 0), (8, 8)), 0)  # error


@bad(DTypeError, "needs at least one tile", hint=False)
def maximum_of_numbers(x, y, o, n):
    kt.maximum(1.0, 2.0)  # error


@bad(DTypeError, "no element type 'float31'")
def unknown_dtype(x, y, o, n):
    tile(x).to("float31")  # error


@bad(DTypeError, "bitcast from float32 (32 bits) to float16")
def bitcast(x, y, o, n):
    tile(x).bitcast(kt.float16)  # error


@bad(ShapeError, "cannot reshape (4, 4)")
def reshape(x, y, o, n):
    tile(x).reshape(3, 5)  # error


@bad(ShapeError, "only one extent", hint=False)
def reshape_wild(x, y, o, n):
    tile(x).reshape(-1, -1)  # error


@bad(ShapeError, "no axis 2 in a tile of shape (4, 4)")
def axis(x, y, o, n):
    tile(x).sum(axis=2)  # error


@bad(ShapeError, "transpose of a tile")
def transpose(x, y, o, n):
    kt.transpose(tile(x), (0, 0))  # error


@bad(ShapeError, ".T is the transpose of a matrix")
def transpose_vector(x, y, o, n):
    kt.arange(4).T  # error


@bad(ShapeError, "even extent", hint=False)
def split(x, y, o, n):
    kt.split(kt.load(x, (0, 0), (3, 3)), 1)  # error


@bad(ShapeError, "join takes two tiles of one type", hint=False)
def join(x, y, o, n):
    kt.join(tile(x), kt.load(x, (0, 0), (2, 2)), 1)  # error


@bad(ShapeError, "no place 5", hint=False)
def expand_dims(x, y, o, n):
    kt.expand_dims(tile(x), 5)  # error


@bad(DTypeError, "any and all take a bool tile")
def any_of_floats(x, y, o, n):
    tile(x).any(axis=0)  # error


@bad(ArgumentError, "no program order 'fast'")
def order(x, y, o, n):
    kt.program_id(order="fast")  # error


@bad(ShapeError, "no axis 1 in a grid of 1", hint=False)
def grid_axis(x, y, o, n):
    kt.program_id(1)  # error


@bad(DTypeError, "kt.device_assert takes a bool tile")
def device_assert(x, y, o, n):
    kt.device_assert(tile(x))  # error


@bad(ArgumentError, "has not one {}", hint=False)
def device_print(x, y, o, n):
    kt.device_print("x", tile(x))  # error


@bad(DTypeError, "counts in integers")
def arange(x, y, o, n):
    kt.arange(4, kt.float32)  # error


@bad(DTypeError, "tile of float16 into a tensor of int32")
def store_add(x, y, o, n):
    kt.store_add(Keep.integers(o), (0, 0), tile(x).to(kt.float16))  # error


class Keep:
    @staticmethod
    def integers(o):
        from kittens.ir import TensorType
        from kittens.tensor import Tensor

        return Tensor(TensorType(kt.int32, o.type.dims, o.type.strides), o.value, o.shape, o.executor)


def make(function):
    @kt.kernel(grid=1)
    def kernel(x, y, o, n):
        function(x, y, o, n)

    return kernel


def check(caught, function, words, hint):
    error, message = caught.value, str(caught.value)
    for word in words:
        assert word in message, message
    first = function.__code__.co_firstlineno
    line = next(i for i in range(first, len(LINES)) if LINES[i - 1].split("  # noqa")[0].endswith("# error"))
    assert error.location is not None and (error.location.file, error.location.line) == (__file__, line), (
        message
    )
    text = message.splitlines()
    at = next(i for i, row in enumerate(text) if row.startswith("  --> "))
    assert text[at] == f"  --> {__file__}:{line}, in {function.__name__}"
    assert text[at + 2] == f"{line} | {LINES[line - 1]}"
    if error.location.column >= 0:
        assert set(text[at + 3].split("|", 1)[1].strip()) == {"^"}
    assert bool(error.hint) == ("hint: " in message)
    if hint:
        assert error.hint, message


@pytest.mark.parametrize("name", CASES)
def test_while_tracing(name):
    function, kind, words, hint = CASES[name]
    x = np.ones((8, 8), np.float32)
    with pytest.raises(kind) as caught:
        make(function).ir(x, x.copy(), x.copy(), 2)
    assert type(caught.value) is kind
    check(caught, function, words, hint)


@pytest.mark.parametrize("name", [n for n in CASES if n != "used_after_its_loop"])
def test_while_running(name):
    """The same class and line when Python runs the kernel, and nothing is written."""
    function, kind, words, hint = CASES[name]
    x = np.ones((8, 8), np.float32)
    with pytest.raises(kind) as caught:
        make(function)(x, x.copy(), x.copy(), 2)
    check(caught, function, words, hint)


def test_enough():
    assert len(CASES) >= 60


# Calls.


@kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
def double(x, o, n=None, *, B=4):
    i = kt.program_id()
    kt.store(o, i, kt.load(x, i, B) * 2)


@kt.kernel(grid=1)
def tuned(x, *, B=kt.tunable):
    kt.load(x, 0, B)


@kt.kernel(grid=1)
def needs(x, *, B):
    kt.load(x, 0, B)


def X(n=8, dtype=np.float32):
    return np.arange(n).astype(dtype)


def readonly():
    a = X()
    a.flags.writeable = False
    return a


def grid(value):
    @kt.kernel(grid=value)
    def kernel(x):
        pass

    return kernel


BIG = np.zeros(16, np.float32)
CALLS = {
    "too many": (lambda: double(X(), X(), 1, 2), ArgumentError, "takes 3 arguments, not 4"),
    "too few": (lambda: double(X()), ArgumentError, "misses its argument 'o'"),
    "twice": (lambda: double(X(), X(), x=X()), ArgumentError, "given twice"),
    "unknown constant": (lambda: double(X(), X(), C=3), ArgumentError, "no constant 'C'"),
    "no value for a tunable": (lambda: tuned(X()), ArgumentError, "no value for the tunable 'B'"),
    "missing constant": (lambda: needs(X()), ArgumentError, "misses its constants B"),
    "non-hashable constant": (
        lambda: double(X(), X(), B=[4]),
        ArgumentError,
        "is a list, which cannot be a constant",
    ),
    "bool argument": (lambda: double(X(), X(), True), ArgumentError, "is the bool True"),
    "numpy bool": (lambda: double(X(), X(), np.True_), ArgumentError, "is the bool True"),
    "large integer": (lambda: double(X(), X(), 2**63), ArgumentError, "does not fit into int64"),
    "scalar dtype": (lambda: double(X(), X(), np.int8(3)), ArgumentError, "scalar argument 'n' is int8"),
    "object array": (lambda: double(X(), X().astype(object)), DTypeError, "arrays of object"),
    "complex": (lambda: double(X(8, complex), X()), DTypeError, "arrays of complex128"),
    "a list": (lambda: double([1.0], X()), ArgumentError, "which no installed backend takes"),
    "a text": (lambda: double("x", X()), ArgumentError, "builtins.str"),
    "read-only output": (lambda: double(X(), readonly()), ArgumentError, "'o', which is read-only"),
    "broadcast output": (lambda: double(X(), np.broadcast_to(np.float32(0), 8)), ArgumentError, "writes 'o'"),
    "aliasing": (lambda: (lambda a: double(a, a))(X()), ArgumentError, "overlaps 'x'"),
    "overlap": (lambda: double(BIG[:8], BIG[7:15]), ArgumentError, "overlaps 'x'"),
    "unknown target": (lambda: double(X(), X(), on="cudo"), TargetError, "no target 'cudo'"),
    "malformed target": (lambda: double(X(), X(), on="CUDA 7"), TargetError, "is not the name of a target"),
    "target of a wrong type": (lambda: double(X(), X(), on=3), TargetError, "is not the name of a target"),
    "no arrays": (lambda: grid(1)(None), ArgumentError, "nothing says where to run"),
    "no plan": (lambda: double.plan("numpy", X(), X()), UnavailableError, "does not offer plan"),
    "no source": (lambda: double.source("numpy", X(), X()), UnavailableError, "does not offer plan"),
    "grid of floats": (
        lambda: grid(lambda x: x.shape[0] / 4)(X()),
        ArgumentError,
        "the grid of kernel is (2.0,)",
    ),
    "grid of four axes": (lambda: grid((1, 1, 1, 1))(X()), ArgumentError, "has 4 axes"),
    "negative grid": (lambda: grid(-1)(X()), ArgumentError, "at least 0"),
    "grid asks": (lambda: grid(lambda z: 1)(X()), ArgumentError, "asks for z"),
    "grid fails": (lambda: grid(lambda x: x.shape[3])(X()), ArgumentError, "IndexError"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    call, kind, words = CALLS[name]
    with pytest.raises(kind, match=None) as caught:
        call()
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert caught.value.hint or kind is UnavailableError or name in ("twice", "large integer", "grid fails")


def test_definitions():
    with pytest.raises(ArgumentError, match=r"takes \*xs") as caught:

        @kt.kernel
        def star(*xs):
            pass

    assert caught.value.location.function == "star"
    with pytest.raises(ArgumentError, match="has a parameter 'on'"):

        @kt.kernel
        def on_(x, on):
            pass

    with pytest.raises(ArgumentError, match="has a default"):

        @kt.kernel
        def default(x, n=3):
            pass


def test_outside_a_kernel():
    with pytest.raises(ScopeError, match="only inside a kernel"):
        kt.zeros(4, kt.float32)
    with pytest.raises(ScopeError, match="only inside a kernel"):
        kt.program_id()


@pytest.mark.parametrize("trace", [True, False])
def test_a_tile_of_another_kernel(trace):
    kept = []

    @kt.kernel
    def keeps(x):
        kept.append(kt.load(x, 0, 4))
        kept.append(x)

    @kt.kernel
    def uses(x, o):
        kt.store(o, 0, kept[0] + kt.load(x, 0, 4))  # error

    @kt.kernel
    def views(x, o):
        kt.load(kept[1], 0, 4)  # error

    @kt.kernel
    def indexes(x, o):
        kept[1][0]  # error

    run = (lambda k, *a: k.ir(*a)) if trace else (lambda k, *a: k(*a))
    run(keeps, X())
    for kernel in (uses, views, indexes):
        with pytest.raises(ScopeError) as caught:
            run(kernel, X(), X())
        check(caught, kernel.function, ("of another kernel",), True)


@pytest.mark.parametrize("trace", [True, False])
def test_returning_a_value(trace):
    @kt.kernel
    def returns(x):
        return kt.load(x, 0, 4)

    with pytest.raises(ControlFlowError, match="returns a value"):
        returns.ir(X()) if trace else returns(X())


def test_a_device_assert_names_its_program_and_nothing_is_written():
    @kt.kernel(grid=4)
    def asserts(x, o):
        i = kt.program_id()
        kt.store(o, i, kt.load(x, i, 2))
        kt.device_assert(i < 3, "too far")  # error

    out = np.full(8, 7.0, np.float32)
    with pytest.raises(CheckError, match=r"program \(3,\): too far") as caught:
        asserts(X(), out)
    assert LINES[caught.value.location.line - 1].split("  # noqa")[0].endswith("# error")
    assert (out == 7.0).all()


def test_an_error_of_python_in_a_later_program_leaves_outputs():
    @kt.kernel(grid=2)
    def fails(x, o):
        i = kt.program_id()
        kt.store(o, i, kt.load(x, i, 4))
        assert int(i.numpy()) < 1

    out = np.full(8, 7.0, np.float32)
    with pytest.raises(AssertionError):
        fails(X(), out)
    assert (out == 7.0).all()


def test_unavailable_device():
    try:
        answer = double(X(), X(), on="cuda")
    except (UnavailableError, TargetError) as error:
        assert "cuda" in str(error)  # noqa: PT017
    else:
        assert answer.how == "executed"


# How errors look.


def test_text_of_an_error():
    location = errors.Location(__file__, 1, "f", 0, 3)
    error = ShapeError("it is wrong", hint="do otherwise", location=location)
    assert str(error).splitlines() == [
        "it is wrong",
        f"  --> {__file__}:1, in f",
        "  |",
        f"1 | {LINES[0]}",
        "  | ^^^",
        "hint: do otherwise",
    ]
    assert str(ShapeError("it is wrong")) == "it is wrong"
    assert isinstance(error, ValueError) and isinstance(DTypeError("x"), TypeError)
    assert "bug in kittens" in str(InternalError("x"))


def test_carets_under_wide_characters_and_tabs(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("\t漢 = boom(1)\n", encoding="utf-8")
    raw = file.read_bytes()
    location = errors.Location(str(file), 1, "f", raw.index(b"boom"), raw.index(b"boom") + 7)
    assert location.render().splitlines()[-1] == "  | \t     ^^^^^^^"
    assert str(location) == f"{file}:1"


def test_errors_travel_between_processes():
    error = ShapeError("it is wrong", hint="do otherwise", location=errors.Location("f.py", 3))
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is ShapeError and str(other) == str(error)


def test_a_kernel_without_source_text():
    scope = {"kt": kt}
    exec(compile("def k(x):\n    kt.load(x, (0, 0), 4)\n", "<typed in>", "exec"), scope)
    with pytest.raises(ShapeError) as caught:
        kt.kernel(scope["k"]).ir(X())
    assert "  --> <typed in>:2, in k" in str(caught.value)


def test_the_users_line_is_named_in_a_helper_of_the_user():
    def helper(x):
        return kt.load(x, (0, 0), 4)  # error

    @kt.kernel
    def k(x):
        helper(x)

    with pytest.raises(ShapeError) as caught:
        k.ir(X())
    check(caught, helper, (), True)
    assert "helper" in "".join(traceback.format_tb(caught.value.__traceback__))


def test_every_error_is_both_ours_and_pythons():
    for kind in (
        DTypeError,
        ShapeError,
        ControlFlowError,
        ScopeError,
        ArgumentError,
        TargetError,
        UnavailableError,
        CheckError,
    ):
        assert issubclass(kind, KittensError)
        assert any(issubclass(kind, b) for b in (TypeError, ValueError, LookupError, RuntimeError))
    assert ml_dtypes is not None


def test_reductions_of_numpy_on_tiles_name_ours() -> None:
    @kt.kernel
    def total(x):
        np.sum(kt.load(x, 0, 8))

    with pytest.raises(kt.DTypeError, match=r"np\.sum does not work on tiles") as caught:
        total(np.ones(8, np.float32))
    assert "x.sum(axis=1)" in str(caught.value)
