"""Operations that are remembered as what they launch: the same launches as the long way, on the arrays at hand."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_cuda import Fake, Tensor, aligned, install, ndarray

import kittens as kt
from kittens import ops
from kittens.backends.cuda import counters, tunables
from kittens.kernels import activation

BF16 = ml_dtypes.bfloat16


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(counters, "_zeroed", lambda size, index: SimpleNamespace(ptr=0xC000))
    yield from install(monkeypatch)
    for name in ops.__all__:
        getattr(ops, name).calls.clear()


Array = ndarray | Tensor
library = ["cupy"]  # whose arrays `a` makes


def a(*shape: int, dtype: Any = np.float32) -> Any:
    return (ndarray if library == ["cupy"] else Tensor)(aligned(shape, dtype))


def at(x: Any) -> int:
    return x.data.ptr if isinstance(x, ndarray) else x.data_ptr()


@pytest.fixture(params=["cupy", "torch"])
def of(request: pytest.FixtureRequest) -> Iterator[str]:
    """The library of arrays."""
    library[:] = [request.param]
    yield request.param
    library[:] = ["cupy"]


def heads(n: int = 16, h: int = 2) -> Any:
    return a(2, h, n, 32, dtype=BF16)


def packed() -> tuple[Any, ...]:
    return a(20, 4, 32, dtype=BF16), a(30, 2, 32, dtype=BF16), a(30, 2, 32, dtype=BF16)


def bounds() -> tuple[Any, Any]:
    return a(4, dtype=np.int32), a(4, dtype=np.int32)


CASES: list[tuple[str, Any]] = [
    ("matmul", lambda: ((a(32, 48, dtype=BF16), a(48, 16, dtype=BF16)), {})),
    (
        "matmul",
        lambda: ((a(2, 32, 48, dtype=BF16), a(48, 16, dtype=BF16)), {"bias": a(16), "activation": "gelu"}),
    ),
    ("matmul", lambda: ((a(32, 48, dtype=BF16), a(48, 16, dtype=BF16)), {"a_scale": 0.5, "b_scale": a(16)})),
    (
        "matmul",
        lambda: ((a(32, 48, dtype=BF16), a(48, 16, dtype=BF16)), {"dtype": "float32", "tune": {"BM": 16}}),
    ),
    ("matmul", lambda: ((a(3, 32, 480, dtype=BF16), a(480, 16, dtype=BF16)), {"bias": a(16), "splits": 5})),
    (
        "matmul",
        lambda: ((a(20, 16384, dtype=BF16), a(16384, 24, dtype=BF16)), {"a_scale": 0.5, "out": a(20, 24)}),
    ),
    ("attention", lambda: ((heads(), heads(), heads()), {"causal": True})),
    ("attention", lambda: ((heads()[0], heads()[0], heads()[0]), {"return_lse": True, "window": (3, 1)})),
    (
        "attention_backward",
        lambda: ((heads(), heads(), heads(), heads(), a(2, 2, 16), heads()), {}),
    ),
    ("attention_decode", lambda: ((heads(), heads(), heads()), {"splits": 1, "causal": True})),
    ("attention_decode", lambda: ((heads(1), heads(700), heads(700)), {"return_lse": True})),
    ("attention_decode", lambda: ((heads(4, 2).swapaxes(1, 2), heads(9, 2), heads(9, 2)), {"splits": 2})),
    (
        "attention_decode",
        lambda: (
            (heads(1), a(9, 16, 2, 32, dtype=BF16), a(9, 16, 2, 32, dtype=BF16)),
            {"table": a(2, 4, dtype=np.int32), "lengths": a(2, dtype=np.int32), "splits": 3, "out": heads(1)},
        ),
    ),
    ("attention_varlen", lambda: ((*packed(), *bounds(), 9), {"return_lse": True, "causal": True})),
    (
        "attention_varlen_backward",
        lambda: ((*packed(), packed()[0], a(4, 20), packed()[0], *bounds(), 9, 12), {"dlse": a(4, 20)}),
    ),
    ("softmax", lambda: ((a(2, 3, 40),), {})),
    ("softmax", lambda: ((a(40),), {"out": a(40)})),
    ("rms_norm", lambda: ((a(6, 40), a(40)), {"eps": 1e-5})),
    ("layer_norm", lambda: ((a(6, 40), a(40)), {"bias": a(40)})),
    ("dropout_residual_layer_norm", lambda: ((a(6, 40), a(6, 40), a(40), a(40)), {"p": 0.0, "seed": 7})),
    ("l2_normalize", lambda: ((a(6, 40),), {})),
    ("cross_entropy", lambda: ((a(6, 40), a(6, dtype=np.int64)), {"return_lse": True})),
    ("cross_entropy_backward", lambda: ((a(6, 40), a(6, dtype=np.int64), a(6), a(6)), {})),
    ("rotary", lambda: ((a(2, 3, 16, 32), a(16, 8), a(16, 8)), {"interleaved": True})),
    ("add", lambda: ((a(2, 6, 40), a(40)), {})),
    ("add", lambda: ((a(6, 40), a(6, 40)), {})),
    ("relu", lambda: ((a(6, 40),), {})),
    ("silu", lambda: ((a(40),), {})),
    ("gelu", lambda: ((a(6, 40),), {"approximate": "tanh"})),
    ("silu_and_mul", lambda: ((a(6, 80),), {})),
    ("gelu_and_mul", lambda: ((a(6, 40), a(6, 40)), {})),
    ("embedding", lambda: ((a(100, 40), a(2, 5, dtype=np.int32)), {})),
    ("mean_pool", lambda: ((a(2, 5, 40), a(2, 5)), {})),
]


def test_every_operation_has_a_case() -> None:
    assert {name for name, _ in CASES} == set(ops.__all__)


def launches(cuda: Fake, call: Any, args: Any, named: Any) -> tuple[list[Any], Any]:
    """What a call launches, with addresses as distances from the arrays that it was given and gave back."""
    cuda.started.clear()
    result = call(*args, **named)
    returned = result if isinstance(result, tuple) else (result,)
    arrays = [x for x in (*args, *named.values(), *returned) if isinstance(x, Array)]
    said = []
    for s in cuda.started:
        parameters = {}
        for name, value in s.parameters.items():
            if isinstance(value, bytes):  # a map, in which the stand-in says of what address it is
                value = int(value.split(b"\0")[0].split()[-1], 16)
            near = [(i, value - at(x)) for i, x in enumerate(arrays) if 0 <= value - at(x) < x.host.nbytes]
            inner = ("inner",) if value > 1 << 32 else value  # memory that the call made for itself
            parameters[name] = near[-1] if near else inner
        said.append((cuda.artifacts[s.function].source, s.blocks, s.threads, s.shared, parameters))
    return said, result


@pytest.mark.parametrize(("name", "make"), CASES, ids=[f"{n}{i}" for i, (n, _) in enumerate(CASES)])
def test_repeated_calls_launch_the_same(cuda: Fake, of: str, name: str, make: Any) -> None:
    operation = getattr(ops, name)
    recorded, _ = launches(cuda, operation, *make())
    (pattern,) = operation.calls.patterns.values()
    assert len(pattern.calls) == 1
    args, named = make()
    repeated, result = launches(cuda, operation, args, named)
    assert len(pattern.calls) == 1 and operation.calls.latest(args, None, named) is not None
    whole, other = launches(cuda, operation.__wrapped__, args, named)
    assert repeated == whole == recorded and recorded
    for x, y in zip(*([r] if isinstance(r, Array) else r for r in (result, other)), strict=True):
        assert type(x) is type(y) and x.host.dtype == y.host.dtype and x.host.strides == y.host.strides
    if "out" in named:
        assert result is named["out"]


def test_copies_of_operands_are_part_of_what_is_remembered(
    cuda: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunables, "_WORTH_COPIES", 1)
    for _ in range(3):
        cuda.started.clear()
        x, y = a(67, 93, dtype=BF16), a(93, 96, dtype=BF16)
        ops.matmul(x, y)
        first, second = cuda.started
        assert [cuda.artifacts[s.function].kernel for s in (first, second)] == ["copy", "matmul"]
        assert first.parameters["x"] == at(x)
    (pattern,) = ops.matmul.calls.patterns.values()
    assert len(pattern.calls) == 1


def test_parts_are_sums_of_the_call_at_hand(cuda: Fake) -> None:
    """A long product of few tiles is two launches; what the first writes, the second reads, whether repeated or not."""
    for _ in range(3):
        cuda.started.clear()
        x, y = a(20, 16384, dtype=BF16), a(16384, 24, dtype=BF16)
        ops.matmul(x, y)
        first, second = cuda.started
        assert [cuda.artifacts[s.function].kernel for s in (first, second)] == [
            "matmul_split",
            "matmul_combine",
        ]
        assert first.parameters["a"] == at(x) and first.parameters["parts"] == second.parameters["parts"]
    (pattern,) = ops.matmul.calls.patterns.values()
    assert len(pattern.calls) == 1


def test_no_operation_is_a_step_of_another() -> None:
    for name in ops.__all__:
        code = dis.get_instructions(getattr(ops, name).__wrapped__)
        assert not {i.argval for i in code if i.opname == "LOAD_GLOBAL"} & set(ops.__all__), name


def test_arrays_that_share_memory_are_variants(cuda: Fake) -> None:
    """Views of one array are not mistaken for views of another, whichever call came first."""
    x, y = a(16, 16, dtype=BF16), a(16, 16, dtype=BF16)
    for _ in range(3):
        for left, right in ((x, x), (x, y), (y, x), (y, y)):
            ops.matmul(left, right)
            seen = cuda.started[-1].parameters
            assert (seen["a"], seen["b"]) == (left.data.ptr, right.data.ptr)
    fused = a(2, 16, 96, dtype=BF16)
    for _ in range(2):
        parts = [fused[:, :, 32 * i : 32 * i + 32] for i in (2, 0, 1)]
        for q, k, v in (parts, parts[::-1]):
            ops.attention(q[:, None], k[:, None], v[:, None])
            seen = cuda.started[-1].parameters
            assert [seen[n] for n in "qkv"] == [t.data.ptr for t in (q, k, v)]


def test_run_time_scalars_of_operations(cuda: Fake) -> None:
    x, r = a(6, 40), a(6, 40)
    for seed in (1, 2, 2**40, -3):
        ops.dropout_residual_layer_norm(x, r, p=0.5, seed=seed)
        assert cuda.started[-1].parameters["seed"] == seed
    (pattern,) = ops.dropout_residual_layer_norm.calls.patterns.values()
    assert len(pattern.calls) == 1
    b = a(40, 16)
    for scale in (0.5, 3.0):
        ops.matmul(x, b, a_scale=scale)
        assert cuda.started[-1].parameters["a_scale"] == scale
    with pytest.raises(kt.ArgumentError, match="finite"):
        ops.matmul(x, b, a_scale=float("inf"))


def test_what_was_right_once_is_still_checked(cuda: Fake) -> None:
    x, out = a(64, 16), a(128, 16)
    ops.softmax(x, out=out[:64])
    ops.softmax(x, out=out[64:])
    assert len(cuda.started) == 2
    with pytest.raises(kt.ArgumentError, match="overlaps"):
        ops.softmax(out[:64], out=out[32:96])
    with pytest.raises(kt.ShapeError):
        ops.softmax(x, out=out)
    with pytest.raises(kt.DTypeError):
        ops.softmax(a(64, 16, dtype=np.int32))
    assert len(cuda.started) == 2
    with pytest.raises(TypeError):
        ops.softmax()


def test_a_kernel_that_forgot_is_asked_again(cuda: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    x = a(6, 40)
    ops.relu(x)
    ops.relu(x)
    before = len(cuda.launched)
    name = next(n for p, n, v, c in activation._captured.bindings if isinstance(p, dict) and callable(v))
    space = activation.function.__globals__
    original = space[name]
    monkeypatch.setitem(space, name, lambda *args, **named: original(*args, **named))
    ops.relu(x)
    assert len(cuda.launched) == before + 1
    ops.relu(x)
    assert len(cuda.launched) == before + 1


def test_host_arrays_are_not_recorded() -> None:
    x = np.ones((2, 3), np.float32)
    for _ in range(2):
        assert (ops.relu(x) == 1).all()
    assert not ops.relu.calls.patterns


def test_memory_that_is_not_aligned_as_before(cuda: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    x = a(6, 40)
    ops.relu(x)
    cupy = sys.modules["cupy"]
    odd = lambda shape, dtype: ndarray(aligned((np.prod(shape) + 1,), dtype)[1:].reshape(shape))  # noqa: E731
    monkeypatch.setattr(cupy, "ndarray", odd)
    monkeypatch.setattr(cupy, "empty", odd)
    y = ops.relu(x)
    assert cuda.started[-1].parameters["y"] == y.data.ptr and y.data.ptr % 16 == 4
    assert cuda.artifacts[cuda.started[0].function].source != cuda.artifacts[cuda.started[-1].function].source
