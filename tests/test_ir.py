"""The tile IR: its text, its verifier, tidying, and what tracing specialises on."""

from __future__ import annotations

import importlib
import pkgutil
import random
import sys

import numpy as np
import pytest
from programs import OUTPUTS, build, program

import kittens as kt
from kittens import opset, text, tidy
from kittens.eager import NumPyArithmetic, interpret
from kittens.errors import ArgumentError, InternalError
from kittens.ir import Extent, Function, Op, Region, TensorType, TileType, Value, same
from kittens.kernel import Kernel
from kittens.trace import Trace
from kittens.verify import verify


def traced(seed: int, depth: int = 2) -> Function:
    words, risky = program(random.Random(seed).randrange, depth=depth)
    if risky:
        return traced(seed + 1000, depth)
    return build(words)().ir(np.zeros(8, np.float32), np.zeros(OUTPUTS, np.float32), 1, 1)


@kt.kernel(grid=lambda x: kt.cdiv(x.shape[0], 4))
def everything(x, y, o, ints, n, f, *, flag=True):
    i = kt.program_id()
    a = kt.load(x, (i, 0), (4, 8), pad=-kt.inf)
    b = kt.load(y.T, (0, i), (8, 4))
    acc = kt.full((4, 4), kt.nan, kt.float32) * -0.0
    view = o[:, 1:-1] if flag else o
    for k in kt.range(n, unroll=2):
        acc = acc + a @ b
        for _ in kt.when(k > 1):
            acc = kt.where(acc > f, kt.exp2(acc), -acc)
    low, high = kt.split(a, 1, pairs=True)
    top = kt.join(low, high).max(axis=1).reshape(2, 2)
    kt.device_print("top, {}: do (x)", top)
    kt.device_assert(top < kt.inf, "a {bad} one: -> (here), 'there'")
    kt.store(view, (i, 0), acc)
    kt.store_add(ints, i, kt.random_bits(n, kt.arange(4)).bitcast(kt.int32) >> 3)


def example() -> Function:
    f32, i32 = np.float32, np.int32
    return everything.ir(
        np.zeros((8, 8), f32), np.zeros((8, 8), f32), np.zeros((8, 8), f32), np.zeros(8, i32), 3, 0.5
    )


def library() -> dict[str, Function]:
    """Functions that the kernel library has traced in this process, whoever asked."""
    import kittens.kernels

    found = {}
    for info in pkgutil.iter_modules(kittens.kernels.__path__, "kittens.kernels."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if isinstance(value, Kernel):
                found[name] = value  # noqa: PERF403
    return found


def attention() -> Function:
    q = kt.spec("bfloat16", (1, 2, 100, 64))
    return library()["attention_forward"].ir(q, q, q, q, scale=1.0, BM=64, BN=64, right=0)


@pytest.mark.parametrize(
    "make", [example, attention, *(lambda seed=seed: traced(seed) for seed in range(12))]
)
def test_text_reads_back(make):
    function = make()
    words = str(function)
    again = text.parse(words)
    assert str(again) == words
    assert same(function.body, again.body) and again.grid_rank == function.grid_rank
    verify(again)


def test_text_of_the_library():
    from kittens import ops

    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    ops.softmax(x)
    kernels = library()
    assert kernels
    for kernel in kernels.values():
        for function in (f for fs in kernel._traces.values() for f in fs):
            assert str(text.parse(str(function))) == str(function)


@kt.kernel(grid=1)
def asserting(x, y):
    assert x.shape[1] * 2 is not None  # pytest makes variables of its parts, whose names no text can hold
    kt.store(y, (0, 0), kt.load(x, (0, 0), (8, 8)) * (x.shape[1] * 2).to(kt.float32))


def test_values_have_names_that_people_gave():
    spec = kt.spec(kt.float32, (8, 8))
    function = asserting.ir(spec, spec)
    assert "py_assert" not in str(function)
    assert str(text.parse(str(function))) == str(function)


def test_locations_are_printed_on_demand():
    lines = text.print_function(example(), locations=True).splitlines()
    assert sum(f"# {__file__}:" in line for line in lines) > 10


def test_tracing_is_deterministic():
    for make in (example, attention, lambda: traced(3)):
        first = str(make())
        for kernel in (everything, library()["attention_forward"]):
            kernel._traces.clear()
        assert str(make()) == first


def test_tracing_takes_calls_in_proportion_to_what_is_traced():
    """How long tracing takes is a bench (`kittens bench`); how much work it is, is a property of the code."""
    if sys.getprofile() or sys.gettrace() or "coverage" in sys.modules:
        pytest.skip("something else watches calls")
    library()["attention_forward"]._traces.clear()
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function = attention()
    finally:
        sys.setprofile(None)
    operations = sum(1 for _ in function.body.walk())
    assert operations > 50 and calls < 450 * operations


@pytest.mark.parametrize(
    "words", ["", "hello", "kernel k() grid 1\n  what is this", "kernel k() grid 1\n  %a = neg(%b) : float32"]
)
def test_text_that_cannot_be_read(words):
    with pytest.raises(ArgumentError):
        text.parse(words)
    with pytest.raises(ArgumentError):
        text.parse_type("float31[2]")


def test_types_read_back():
    for t in (
        TileType(kt.float32),
        TileType(kt.float8_e8m0fnu, (2, 3)),
        TensorType(
            kt.int8, (Extent(3), Extent(None, 8), Extent()), (Extent(None, 4), Extent(1), Extent()), 4
        ),
        TensorType(kt.bool, (), ()),
    ):
        assert text.parse_type(str(t)) == t


# The verifier.


def _ops(function: Function) -> dict[str, Op]:
    return {op.name: op for op in function.body.walk()}


def _break_name(f):
    _ops(f)["neg"].name = "negg"


def _break_scope(f):
    loop = _ops(f)["loop"]
    inside = loop.regions[0].ops[0].results[0]
    store = f.body.ops[-1]
    store.operands[-1] = inside


def _break_order(f):
    f.body.ops.reverse()


def _break_type(f):
    _ops(f)["neg"].results[0].type = TileType(kt.float16, (4, 4))


def _break_yield(f):
    _ops(f)["loop"].regions[0].ops.pop()


def _break_yield_operands(f):
    _ops(f)["when"].regions[0].ops[-1].operands.clear()


def _break_arguments(f):
    _ops(f)["loop"].regions[0].args.pop()


def _break_regions(f):
    _ops(f)["loop"].regions.clear()


def _break_extra_region(f):
    _ops(f)["neg"].regions.append(Region())


def _break_outer_yield(f):
    f.body.ops.append(Op("yield", [], {}, []))


def _break_operands(f):
    _ops(f)["where"].operands[1] = f.params[-1]


def _break_attrs(f):
    _ops(f)["max"].attrs["axis"] = 5


def _break_tensor(f):
    f.body.ops.append(Op("dim", [f.params[0]], {"axis": 0}, [Value(f.params[0].type)]))


def _break_results(f):
    _ops(f)["neg"].results.clear()


BREAKS = [v for k, v in globals().items() if k.startswith("_break")]


@pytest.mark.parametrize("breaks", BREAKS, ids=lambda f: f.__name__)
def test_the_verifier_notices(breaks):
    everything._traces.clear()
    function = example()
    verify(function)
    breaks(function)
    with pytest.raises(InternalError, match="not valid"):
        verify(function)
    everything._traces.clear()


# Tidying.


@pytest.mark.parametrize("seed", range(25))
def test_tidying_keeps_the_meaning(seed, monkeypatch):
    monkeypatch.setattr(sys.modules["kittens.kernel"], "tidy", lambda function: function)
    plain = traced(seed)
    monkeypatch.undo()
    tidied = traced(seed)
    assert sum(1 for _ in tidied.body.walk()) < sum(1 for _ in plain.body.walk())
    x = np.linspace(-2, 3, 8).astype(np.float32)
    for trips in ((0, 0), (2, 1), (1, 3)):
        outs = np.zeros((2, OUTPUTS), np.float32)
        for function, out in zip((plain, tidied), outs, strict=True):
            with np.errstate(all="ignore"):
                interpret(function, NumPyArithmetic(), [x, out, *map(np.int64, trips)], (1,), (0,))
        assert outs[0].tobytes() == outs[1].tobytes()
    before = str(tidied)
    assert str(tidy.tidy(tidied)) == before


def test_tidying_drops_shares_and_folds():
    @kt.kernel
    def k(x, o, n):
        unused = kt.load(x, 0, 4) + 1.0
        a = kt.load(x, 0, 4)
        for _ in kt.range(n):
            unused = unused * 2.0
        b, c = a * 3.0, a * 3.0
        kt.store(o, (kt.static(x.shape[0]) + kt.scalar(2, kt.int64)) // 3 - 3, b + c)

    function = k.ir(np.zeros(8, np.float32), np.zeros(8, np.float32), 3)
    names = [op.name for op in function.body.walk()]
    assert "loop" not in names and names.count("load") == 1 and names.count("mul") == 1
    assert "floordiv" not in names


def test_a_store_between_two_loads_is_seen():
    @kt.kernel
    def k(x, o):
        a = kt.load(o, 0, 4)
        kt.store(o, 0, kt.load(x, 0, 4))
        kt.store(o, 1, a + kt.load(o, 0, 4))

    x = np.ones(4, np.float32)
    eager, out = np.zeros((2, 8), np.float32)
    k(x, eager)
    interpret(k.ir(x, out), NumPyArithmetic(), [x, out], (1,), (0,))
    assert out.tolist() == eager.tolist() == [1, 1, 1, 1, 1, 1, 1, 1]


# Specialisation.


def test_specialisation_and_the_cache():
    traces = []

    @kt.kernel
    def k(x, n, *, scale=1.0):
        traces.append(1)
        kt.store(x, (0, 0), kt.zeros((4, x.shape[1]), kt.float32) + scale)

    def ir(rows, columns, n=1, **constants):
        return k.ir(np.zeros((rows, columns), np.float32), n, **constants)

    first = ir(8, 16)
    assert ir(8, 16) is first and ir(8, 16, n=7) is first
    assert ir(8 + 16, 16) is first or len(traces) == 1  # only a run-time extent differs
    assert ir(24, 16) is first and len(traces) == 1
    assert ir(8, 48) is not first and len(traces) == 2  # the columns are constant in the kernel
    assert ir(8, 16) is first and len(traces) == 2
    assert ir(8, 16, scale=2.0) is not first
    assert ir(8, 16, scale=1) is not first  # 1 and 1.0 are two constants
    assert first.params[0].type.dims[1].value == 16 and first.params[0].type.dims[0].value is None
    assert k.ir(np.zeros((8, 16), np.float16), 1) is not first


def test_a_view_knows_what_became_known():
    @kt.kernel
    def k(x):
        view = x.T
        kt.store(view, (0, 0), kt.zeros((x.shape[1], 4), kt.float32))

    function = k.ir(np.zeros((8, 16), np.float32))
    (view,) = (op.result for op in function.body.walk() if op.name == "permute")
    assert view.type.dims[0].value == 16


def test_ir_helpers():
    function = example()
    assert function.stored() == {"o", "ints"} and function.loaded() == {"x", "y"}
    assert all(op.name in opset.OPS for op in function.body.walk())
    assert "being traced" in repr(_tile())


def _tile():
    trace = Trace(1)
    value = trace.define(Value(TileType(kt.float32, (2,)), "v"), trace.body)
    return kt.Tile(value.type, value, trace)


def test_what_is_not_the_same():
    a = example()
    for change in (
        lambda f: f.body.ops.pop(),
        lambda f: f.body.args.pop(),
        lambda f: _ops(f)["max"].attrs.update(axis=0),
        lambda f: _ops(f)["mul"].operands.reverse(),
        lambda f: setattr(_ops(f)["neg"], "name", "abs"),
        lambda f: _ops(f)["loop"].regions[0].ops.pop(),
        lambda f: setattr(_ops(f)["neg"].results[0], "type", TileType(kt.int8)),
    ):
        everything._traces.clear()
        b = example()
        assert same(a.body, b.body)
        change(b)
        assert not same(a.body, b.body)
    everything._traces.clear()
