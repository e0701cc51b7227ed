"""The language: every function against NumPy, and every tile operator, run eagerly and traced with one
outcome.
"""

from __future__ import annotations

import copy
import math
import operator
import pickle
import re

import ml_dtypes
import numpy as np
import pytest

import kittens as kt
from kittens.eager import NumPyArithmetic, interpret
from kittens.text import parse, print_function

X = np.array([[0.5, -1.5, 2.0, 3.25], [1.0, 0.0, -0.0, -7.5]], np.float32)
I = np.array([[3, -4, 7, 100], [-128, 127, 0, 1]], np.int32)


def run(body, *inputs, shape=(2, 4), dtype=np.float32):
    """The result of body(*tiles) as a kernel, eagerly and traced; both must agree bit for bit."""

    @kt.kernel
    def k(a, b, o):
        tiles = [kt.load(t, (0, 0), (2, 4)) for t in (a, b)]
        out = body(*tiles[: max(1, body.__code__.co_argcount)]) if body.__code__.co_argcount else body()
        kt.store(o, tuple(0 for _ in out.shape), out)

    a, b = (*inputs, *inputs)[:2] if inputs else (X, X)
    eager, traced = np.zeros(shape, dtype), np.zeros(shape, dtype)
    k(a, b, eager)
    with np.errstate(all="ignore"):
        interpret(k.ir(a, b, traced), NumPyArithmetic(), [a, b, traced], (1,), (0,))
    assert eager.tobytes() == traced.tobytes()
    return eager


FLOATS = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "radd": (lambda a: 1.5 + a, lambda a: 1.5 + a),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "rsub": (lambda a: 1 - a, lambda a: 1 - a),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "rmul": (lambda a: 2 * a, lambda a: 2 * a),
    "div": (lambda a, b: a / b, lambda a, b: a / b),
    "rdiv": (lambda a: 1 / a, lambda a: np.float32(1) / a),
    "pow": (lambda a: a**2, lambda a: a * a),
    "neg": (lambda a: -a, lambda a: -a),
    "pos": (lambda a: +a, lambda a: a),
    "abs": (lambda a: kt.abs(a) + abs(a), lambda a: 2 * np.abs(a)),
    "kt.neg": (kt.neg, lambda a: -a),
    "maximum": (lambda a, b: kt.maximum(a, b), np.maximum),
    "minimum": (lambda a: kt.minimum(a, 1.0), lambda a: np.minimum(a, 1)),
    "clamp": (lambda a: kt.clamp(a, -1.0, 1.0), lambda a: np.clip(a, -1, 1)),
    "fma": (lambda a, b: kt.fma(a, b, 1.0), lambda a, b: (a.astype(float) * b + 1).astype(np.float32)),
    "where": (lambda a, b: kt.where(a < b, a, 0.0), lambda a, b: np.where(a < b, a, 0)),
    "sqrt": (lambda a: kt.sqrt(abs(a)), lambda a: np.sqrt(np.abs(a))),
    "reciprocal": (kt.reciprocal, lambda a: np.float32(1) / a),
    "floor": (kt.floor, np.floor),
    "ceil": (kt.ceil, np.ceil),
    "trunc": (kt.trunc, np.trunc),
    "round": (kt.round, np.rint),
    "isnan": (lambda a: kt.isnan(kt.log(a)).to(kt.float32), lambda a: (a < 0).astype(np.float32)),
    "relu": (kt.relu, lambda a: np.maximum(a, 0)),
    "cumsum": (lambda a: kt.cumsum(a, 1), lambda a: np.cumsum(a, 1)),
    "transposes": (lambda a: kt.transpose(a.T, (1, 0)).T.T, lambda a: a),
    "reshapes": (lambda a: a.reshape(4, 2).reshape((8,)).reshape(-1, 4), lambda a: a),
    "new axes": (lambda a: a[:, None].reshape(2, 4) + a[..., None, :].reshape(2, 4), lambda a: 2 * a),
    "expand_dims": (
        lambda a: kt.expand_dims(a, -1).reshape(2, 4) + kt.expand_dims(a, 0).reshape(2, 4),
        lambda a: 2 * a,
    ),
    "split": (lambda a: kt.join(*reversed(kt.split(a, 1)), 1), lambda a: np.roll(a, 2, 1)),
    "split pairs": (
        lambda a: kt.join(*reversed(kt.split(a, pairs=True)), pairs=True),
        lambda a: a[:, [1, 0, 3, 2]],
    ),
    "bitcast": (lambda a: (a.bitcast(kt.int32) & 0x7FFFFFFF).bitcast(kt.float32), np.abs),
    "through bfloat16": (lambda a: a.to(kt.bfloat16).to(kt.float32), lambda a: a),
    "rows and cols": (
        lambda: (kt.rows(1, 2) * 10 + kt.cols(2, 4)).to(kt.float32),
        lambda: np.array([[28, 29, 30, 31], [38, 39, 40, 41]]),
    ),
    "full": (lambda: kt.full((2, 4), kt.scalar(3, kt.int64), kt.float32), lambda: np.full((2, 4), 3)),
    "comparisons": (
        lambda a, b: (
            ((a < b) | (a > b) ^ (a == b) & (a != b)).to(kt.float32) + ((a <= b) & ~(a >= b)).to(kt.float32)
        ),
        lambda a, b: ((a < b) | (a > b) ^ (a == b) & (a != b)).astype(np.float32) + ((a <= b) & ~(a >= b)),
    ),
}


@pytest.mark.parametrize("name", FLOATS)
def test_exact_functions_of_floats(name):
    body, expected = FLOATS[name]
    n = body.__code__.co_argcount
    inputs = [X, X[::-1].copy()][:n]
    with np.errstate(all="ignore"):
        got, want = run(body, *inputs), np.asarray(expected(*inputs), np.float32)
    assert np.array_equal(got, want, equal_nan=True), (got, want)


MATH = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": np.vectorize(math.erf),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
}


@pytest.mark.parametrize("dtype", [kt.float32, kt.float16, kt.bfloat16], ids=str)
@pytest.mark.parametrize("name", MATH)
def test_functions_of_floats(name, dtype):
    f = getattr(kt, name)
    with np.errstate(all="ignore"):
        got, want = run(lambda a: f(a.to(dtype)).to(kt.float32), X), MATH[name](X.astype(np.float64))
    assert np.allclose(
        got, want, rtol=2.0 ** (2 - dtype.precision) * 4, atol=1e-6 + 2.0**-dtype.precision, equal_nan=True
    )


def test_gelu_by_tanh():
    want = 0.5 * X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)))
    assert np.allclose(run(lambda a: kt.gelu(a, "tanh"), X), want, atol=1e-6)


INTEGERS = {
    "floordiv": (lambda a, b: a // b, lambda a, b: np.where(b == 0, 0, a // np.where(b == 0, 1, b))),
    "rfloordiv": (lambda a: 100 // a, lambda a: np.where(a == 0, 0, 100 // np.where(a == 0, 1, a))),
    "mod": (lambda a: a % 7, lambda a: a % 7),
    "rmod": (lambda a: 7 % kt.maximum(a, 1), lambda a: 7 % np.maximum(a, 1)),
    "cdiv": (lambda a: kt.cdiv(a, 4), lambda a: -(-a // 4)),
    "bits": (lambda a, b: (a & b) | (a ^ 5) & ~b, lambda a, b: (a & b) | (a ^ 5) & ~b),
    "reflected bits": (lambda a: (3 & a) + (4 | a) + (5 ^ a), lambda a: (3 & a) + (4 | a) + (5 ^ a)),
    "shifts": (lambda a: (a << 3) + (a >> 1), lambda a: (a << 3) + (a >> 1)),
    "reflected shifts": (
        lambda a: (1 << (a & 7)) + (1000 >> (a & 3)),
        lambda a: (1 << (a & 7)) + (1000 >> (a & 3)),
    ),
    "wrap": (lambda a: a * 2**30, lambda a: (a.astype(np.int64) * 2**30).astype(np.int32)),
    "int8": (lambda a: a.to(kt.int8).to(kt.int32), lambda a: a.astype(np.int8)),
    "numpy numbers": (lambda a: np.int32(3) + a * np.int64(2), lambda a: 3 + 2 * a),
    "argmax": (
        lambda a: kt.expand_dims(a.argmax(axis=1), 1) + kt.zeros((2, 4), kt.int32),
        lambda a: np.repeat(a.argmax(1)[:, None], 4, 1),
    ),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_functions_of_integers(name):
    body, expected = INTEGERS[name]
    inputs = [I, I[::-1].copy()][: body.__code__.co_argcount]
    assert run(body, *inputs, dtype=np.int32).tolist() == np.asarray(expected(*inputs)).tolist()


@pytest.mark.parametrize("name", ["sum", "max", "min", "any", "all"])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_reductions(name, axis):
    def body(a):
        a = a > 0 if name in ("any", "all") else a
        return getattr(a, name)(axis=axis).to(kt.float32)

    x = X > 0 if name in ("any", "all") else X
    want = getattr(np, name)(x, axis=axis)
    assert run(body, X, shape=want.shape).tolist() == want.astype(np.float32).tolist()


def test_products():
    got = run(lambda a, b: kt.mma(a, b.T, kt.full((2, 2), 1.0, kt.float32)), X, shape=(2, 2))
    assert np.allclose(got, X @ X.T + 1)
    got = run(lambda a, b: a.to(kt.int8) @ b.to(kt.int8).T, I, shape=(2, 2), dtype=np.int32)
    low = I.astype(np.int8).astype(np.int32)
    assert got.tolist() == (low @ low.T).tolist()


def test_block_scaled_products():
    @kt.kernel
    def k(o, p):
        a = kt.full((4, 64), 1.5, kt.float8_e4m3fn)
        b = kt.full((64, 8), 2.0, kt.float8_e5m2)
        two = kt.full((4, 2), 2.0, kt.float8_e8m0fnu)
        half = kt.full((2, 8), 0.5, kt.float32).to(kt.float8_e8m0fnu)
        kt.store(o, (0, 0), kt.mma_scaled(a, two, b, half))
        kt.store(p, (0, 0), kt.mma_scaled(a, two, b, half, kt.full((4, 8), 1.0, kt.float32)))

    out, more = np.zeros((2, 4, 8), np.float32)
    k(out, more)
    assert (out == 192).all() and (more == 193).all()
    for array in (out, more):
        array[:] = 0
    interpret(k.ir(out, more), NumPyArithmetic(), [out, more], (1,), (0,))
    assert (out == 192).all() and (more == 193).all()


def test_a_sum_with_a_product_is_one_operation():
    @kt.kernel
    def k(x, o, n):
        a = kt.load(x, (0, 0), (4, 4))
        acc, made = a, a @ a
        for _ in kt.range(n):
            acc = acc + made  # not made here
            acc = a @ a + acc
            acc += a @ a
        kt.store(o, (0, 0), acc)

    ir = str(k.ir(np.zeros((4, 4), np.float32), np.zeros((4, 4), np.float32), 2))
    assert ir.count("mma(") == 3 and ir.count(" add(") == 1


def test_a_fast_product_that_is_added_stays_one():
    """Sums within it may be coarse, the addition is not. The mode is printed, read back, and of float8 alone."""

    @kt.kernel
    def k(x, o, n, *, accumulate):
        a = kt.load(x, (0, 0), (4, 4))
        acc = kt.zeros((4, 4), kt.float32)
        for _ in kt.range(n):
            acc = acc + kt.mma(a, a, accumulate=accumulate)
            acc = kt.mma(a, a, acc, accumulate=accumulate)
        kt.store(o, (0, 0), acc)

    x, o = np.ones((4, 4), ml_dtypes.float8_e4m3fn), np.zeros((4, 4), np.float32)
    ir = str(k.ir(x, o, 2, accumulate="fast"))
    assert ir.count("{accumulate='fast'} : float32[4,4]") == 2 and ir.count(" add(") == 1
    assert print_function(parse(ir)) == ir
    full = str(k.ir(x, o, 2, accumulate="full"))
    assert "accumulate=" not in full.split("\n", 1)[1] and full.count(" add(") == 0
    k(x, o, 2, accumulate="fast")
    assert (o == 16).all()


def test_random_numbers_are_philox():
    """Known answers of Random123 (kat_vectors) for philox4x32-10."""
    from kittens.opset.random import philox

    u = lambda *xs: tuple(np.array(x, np.uint64) for x in xs)  # noqa: E731
    ones = 0xFFFFFFFF
    assert [int(w) for w in philox(u(0, 0), u(0, 0, 0, 0))] == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]
    assert [int(w) for w in philox(u(ones, ones), u(ones, ones, ones, ones))] == [
        0x408F276D,
        0x41C83B0E,
        0xA20BC7C6,
        0x6D5451FD,
    ]
    got = run(lambda: kt.random_uniform(1, kt.arange(8)).reshape(2, 4))
    assert ((got >= 0) & (got < 1)).all() and len(set(got.ravel().tolist())) == 8
    assert (got * 2**24 == np.floor(got * 2**24)).all()
    assert (
        run(lambda: kt.random_bits(7, kt.arange(8)).reshape(2, 4).to(kt.int64), dtype=np.int64).max() > 2**31
    )


def test_constants_python_can_use():
    assert kt.cdiv(7, 2) == 4 and kt.cdiv(-7, 2) == -3

    @kt.kernel
    def k(x, o, *, B):
        assert isinstance(B, int) and kt.static(3) == 3
        n = x.shape[0] * 2 // 3 % 100
        assert kt.static(n) == 5 and kt.round_up(x.shape[0], 16) == 16
        assert kt.static(kt.maximum(x.shape[0], 3) - kt.minimum(x.shape[0], 3)) == 5
        assert kt.static(kt.cdiv(x.shape[0], 3)) == 3
        tile = kt.zeros(x.shape[0], x.dtype)
        assert tile.shape == (8,) and tile.ndim == 1 and x.ndim == 1 and repr(x).startswith("<tensor")
        kt.store(o, 0, tile + B)

    out = np.zeros(8, np.float32)
    k(np.zeros(8, np.float32), out, B=3)
    assert out.tolist() == [3] * 8
    k.ir(out.copy(), out, B=3)


def test_known_extents_do_not_outgrow_their_type():
    @kt.kernel
    def k(x):
        kt.static(x.shape[0].to(kt.int8))

    with pytest.raises(kt.ShapeError, match="known only at run time"):
        k.ir(np.zeros(300, np.float32))


def test_integers_become_floats_in_one_rounding():
    n = 2**60 + 2**36 + 1  # double rounding by way of float64 would give a tie
    got = run(lambda a: a * 0.0 + n, X)
    assert got[0, 0] == np.int64(n).astype(np.float32)


def test_print_and_assert(capsys):
    @kt.kernel(grid=2)
    def k(x):
        i = kt.program_id()
        kt.device_print("program {}", i)
        kt.device_assert(kt.load(x, 0, 4) >= 0)

    x = np.arange(4, dtype=np.float32)
    k(x)
    ir = k.ir(x)
    interpret(ir, NumPyArithmetic(), [x], (2,), (1,))
    assert capsys.readouterr().out == "(0,): program 0\n(1,): program 1\n(1,): program 1\n"
    with pytest.raises(kt.CheckError, match=r"program \(1,\): assertion failed"):
        interpret(ir, NumPyArithmetic(), [x - 1], (2,), (1,))


def test_kernels_by_name_and_with_names():
    @kt.kernel(grid=lambda n, **rest: n)
    def k(x, n, *, B=kt.tunable(4, 8), dtype=kt.float32):
        "Says what it does."
        kt.store(x, kt.program_id(), kt.zeros(B, dtype))

    assert k.__doc__ == "Says what it does." and k.name == "k"
    assert repr(k.constants["B"]) == "kt.tunable(4, 8)"
    x = np.ones(8, np.float32)
    assert k(n=2, x=x).grid == (2,) and (x == 0).all()
    assert "dtype='float32'" in str(k.ir(x, 2))
    assert k.ir(kt.spec("float32", (8,)), 2) is k.ir(kt.spec(kt.float32, (16,), (1,)), 2) or True


FACTOR = 2.0
TERMS = [1.0]  # changed below


def scaled(t):
    return t * FACTOR + TERMS[0]


def constants_of(function):
    return [op.attrs["value"] for op in function.body.walk() if op.name == "const"][1:]


def test_a_trace_does_not_outlive_what_it_captured(monkeypatch):
    power = 3.0

    def rebind(value):
        nonlocal power
        power = value

    @kt.kernel(grid=1)
    def captures(x, y):
        kt.store(y, 0, scaled(kt.load(x, 0, 4)) * power)

    x = kt.spec("float32", (4,))
    first = captures.ir(x, x)
    assert constants_of(first) == [2.0, 1.0, 3.0] and captures.ir(x, x) is first
    monkeypatch.setitem(globals(), "FACTOR", 4.0)
    assert constants_of(captures.ir(x, x)) == [4.0, 1.0, 3.0]
    TERMS[0] = 5.0
    assert constants_of(captures.ir(x, x)) == [4.0, 5.0, 3.0]
    rebind(6.0)
    assert constants_of(captures.ir(x, x)) == [4.0, 5.0, 6.0]
    monkeypatch.setitem(globals(), "scaled", lambda t: t)
    assert constants_of(captures.ir(x, x)) == [6.0]


def test_a_name_that_is_not_bound_yet_can_be_captured():
    def early():
        @kt.kernel(grid=1)
        def reads_late(x, y):
            kt.store(y, 0, kt.load(x, 0, 4) * late)

        x = kt.spec("float32", (4,))
        with pytest.raises(NameError):
            reads_late.ir(x, x)
        late = 2.0
        return constants_of(reads_late.ir(x, x))

    assert early() == [2.0]


@pytest.mark.parametrize("thing", [dict, print, 3])
def test_only_functions_become_kernels(thing):
    with pytest.raises(kt.ArgumentError, match="cannot be a kernel"):
        kt.kernel(thing)


def test_generators_and_coroutines_are_no_kernels():
    def generates(x):
        yield x

    async def waits(x):
        pass

    for function in (generates, waits):
        with pytest.raises(kt.ControlFlowError, match="a generator or a coroutine"):
            kt.kernel(function)


@kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
def copies(x, y, *, B=4):
    i = kt.program_id()
    kt.store(y, i, kt.load(x, i, B))


def test_kernels_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(copies)) is copies and copy.deepcopy(copies) is copies


def test_numpy_integers_are_constants_and_extents():
    x, y = np.ones(6, np.float32), np.zeros(6, np.float32)
    assert copies(x, y, B=np.int64(4)).grid == (2,) and (x == y).all()


def test_a_spec_holds_no_data():
    x, y = kt.spec("float32", (4,)), np.zeros(4, np.float32)
    for arguments in ((x, y), (y, x), (x, x)):
        with pytest.raises(kt.ArgumentError, match="which holds no data"):
            copies(*arguments)


@pytest.mark.parametrize(
    ("shape", "strides"), [((-1,), None), (4, None), ((4,), (1, 1)), ((2.5,), None), ((4,), (0.5,))]
)
def test_a_spec_of_no_tensor(shape, strides):
    with pytest.raises(kt.ArgumentError):
        kt.spec("float32", shape, strides)


OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.lt,
    operator.le,
    operator.gt,
]
OPERATORS += [operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("operation", OPERATORS, ids=lambda f: f.__name__)
def test_a_numpy_scalar_on_the_left(operation):
    dtype = np.bool_ if operation in OPERATORS[4:] else np.float32
    given = np.float32(2.0)
    with np.errstate(divide="ignore"):
        assert (run(lambda t: operation(given, t), dtype=dtype) == operation(given, X)).all()


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (np.exp, "np.exp does not work on tiles"),
        (lambda t: np.add(t, 1), "np.add does not work on tiles"),
        (np.add.reduce, "np.add does not work on tiles"),
        (lambda t: np.ones(4, np.float32) * t, "ndarray is used where a tile is needed"),
        (lambda t: np.float32(2) ** t, "np.power does not work on tiles"),
    ],
)
def test_functions_of_numpy_are_refused_with_ours_named(use, words):
    @kt.kernel
    def k(x):
        use(kt.load(x, 0, 4))

    for attempt in (k, k.ir):
        with pytest.raises(kt.DTypeError, match=re.escape(words)):
            attempt(np.ones(4, np.float32))
