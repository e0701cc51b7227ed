"""The functional face: what is refused and how that is said, outputs, views, targets, tunables."""

import inspect

import ml_dtypes
import numpy as np
import pytest

import kittens as kt
from kittens import ops, plugins
from kittens.targets import Target

F32, BF16 = np.float32, ml_dtypes.bfloat16
E4M3, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu


def zeros(*shape, dtype=F32):
    return np.zeros(shape, dtype)


Q, K = zeros(2, 4, 5, 8), zeros(2, 2, 7, 8)

REFUSED = {
    # A call, the error, and words of its message.
    "no array": (lambda: ops.softmax([1.0, 2.0]), kt.ArgumentError, ["'x'", "list", "NumPy"]),
    "a number": (lambda: ops.softmax(1.0), kt.ArgumentError, ["x", "float", "not an array"]),
    "dtype": (
        lambda: ops.softmax(zeros(3, dtype=np.int32)),
        kt.DTypeError,
        ["x is int32", "float32", "convert"],
    ),
    "rank": (lambda: ops.matmul(zeros(3), zeros(3, 4)), kt.ShapeError, ["a has 1 axes", "a[None]"]),
    "columns": (lambda: ops.matmul(zeros(3, 4), zeros(3, 4)), kt.ShapeError, ["a (3, 4)", "b (3, 4)", "a.T"]),
    "batches": (
        lambda: ops.matmul(zeros(2, 3, 4), zeros(3, 4, 5)),
        kt.ShapeError,
        ["do not broadcast", "or 1"],
    ),
    "mixed product": (
        lambda: ops.matmul(zeros(3, 4), zeros(4, 5, dtype=BF16)),
        kt.DTypeError,
        ["float32 and bfloat16", ".to("],
    ),
    "bias": (lambda: ops.matmul(zeros(3, 4), zeros(4, 5), bias=zeros(3)), kt.ShapeError, ["bias", "(5,)"]),
    "activation": (
        lambda: ops.matmul(zeros(3, 4), zeros(4, 5), activation="swish"),
        kt.ArgumentError,
        ["swish", "silu"],
    ),
    "scale shape": (
        lambda: ops.matmul(zeros(3, 4), zeros(4, 5), a_scale=zeros(4)),
        kt.ShapeError,
        ["a_scale", "(3,)"],
    ),
    "column scale": (
        lambda: ops.matmul(zeros(3, 4), zeros(4, 5), b_scale=zeros(5, 1)),
        kt.ShapeError,
        ["b_scale", "(1, 5)"],
    ),
    "one block scale": (
        lambda: ops.matmul(
            zeros(3, 32, dtype=E4M3), zeros(32, 5, dtype=E4M3), a_scale=zeros(3, 1, dtype=E8M0)
        ),
        kt.ArgumentError,
        ["only a_scale", "both"],
    ),
    "block scale of floats": (
        lambda: ops.matmul(zeros(3, 32), zeros(32, 5), a_scale=zeros(3, 1, dtype=E8M0)),
        kt.DTypeError,
        ["a_scale", "float8 operands", "32"],
    ),
    "integer result": (
        lambda: ops.matmul(zeros(3, 4), zeros(4, 5), dtype="int32"),
        kt.DTypeError,
        ["int32", "float32"],
    ),
    "out shape": (
        lambda: ops.softmax(zeros(3, 4), out=zeros(4, 3)),
        kt.ShapeError,
        ["out", "(4, 3)", "(3, 4)"],
    ),
    "out overlaps": (lambda: (lambda x: ops.softmax(x, out=x))(zeros(3, 4)), kt.ArgumentError, ["overlaps"]),
    "out dtype": (lambda: ops.softmax(zeros(3), out=zeros(3, dtype=np.int8)), kt.DTypeError, ["out is int8"]),
    "head dimension": (lambda: ops.attention(Q, zeros(2, 2, 7, 9), K), kt.ShapeError, ["q is 8", "k is 9"]),
    "v": (lambda: ops.attention(Q, K, zeros(2, 2, 6, 8)), kt.ShapeError, ["v has shape", "k of shape"]),
    "big head": (
        lambda: ops.attention(zeros(1, 257), zeros(1, 257), zeros(1, 257)),
        kt.ShapeError,
        ["257", "1 to 256"],
    ),
    "heads": (
        lambda: ops.attention(zeros(2, 3, 5, 8), K, K),
        kt.ShapeError,
        ["3 query heads on 2", "multiple"],
    ),
    "batch": (lambda: ops.attention(zeros(1, 4, 5, 8), K, K), kt.ShapeError, ["batch", "(1,)", "(2,)"]),
    "k dtype": (lambda: ops.attention(Q, K.astype(BF16), K), kt.DTypeError, ["k is bfloat16", "float32"]),
    "k rank": (lambda: ops.attention(Q, K[0], K), kt.ShapeError, ["k has 3 axes", "4"]),
    "five axes": (
        lambda: ops.attention(Q[None], K[None], K[None]),
        kt.ShapeError,
        ["5 axes", "(B, H, N, D)"],
    ),
    "softmax scale": (
        lambda: ops.attention(Q, K, K, scale=0.0),
        kt.ArgumentError,
        ["scale is 0.0", "above 0"],
    ),
    "scale nan": (lambda: ops.attention(Q, K, K, scale=float("nan")), kt.ArgumentError, ["scale is nan"]),
    "window": (lambda: ops.attention(Q, K, K, window=0), kt.ArgumentError, ["window is 0", "at least 1"]),
    "window pair": (
        lambda: ops.attention(Q, K, K, window=(-1, 2)),
        kt.ArgumentError,
        ["window is (-1, 2)", "None"],
    ),
    "lse": (
        lambda: ops.attention_backward(Q, K, K, Q, zeros(2, 4, 6), Q),
        kt.ShapeError,
        ["lse", "(2, 4, 5)"],
    ),
    "do": (
        lambda: ops.attention_backward(Q, K, K, Q, zeros(2, 4, 5), K),
        kt.ShapeError,
        ["do", "(2, 4, 5, 8)"],
    ),
    "lse dtype": (
        lambda: ops.attention_backward(Q, K, K, Q, zeros(2, 4, 5, dtype=BF16), Q),
        kt.DTypeError,
        ["lse is bfloat16"],
    ),
    "weight": (lambda: ops.rms_norm(zeros(3, 4), zeros(3)), kt.ShapeError, ["weight has shape (3,)", "(4,)"]),
    "eps": (lambda: ops.layer_norm(zeros(3, 4), eps=-1.0), kt.ArgumentError, ["eps is -1.0", "at least 0"]),
    "eps array": (lambda: ops.layer_norm(zeros(3, 4), eps=zeros(1)), kt.ArgumentError, ["eps is a number"]),
    "residual": (
        lambda: ops.dropout_residual_layer_norm(zeros(3, 4), zeros(4)),
        kt.ShapeError,
        ["residual", "(3, 4)"],
    ),
    "p": (
        lambda: ops.dropout_residual_layer_norm(zeros(3, 4), zeros(3, 4), p=1.5),
        kt.ArgumentError,
        ["p is 1.5", "at most 1"],
    ),
    "seed": (
        lambda: ops.dropout_residual_layer_norm(zeros(3, 4), zeros(3, 4), seed=0.5),
        kt.ArgumentError,
        ["seed", "0.5"],
    ),
    "sin": (lambda: ops.rotary(zeros(5, 8), zeros(5, 4), zeros(5, 3)), kt.ShapeError, ["sin", "(5, 4)"]),
    "table rows": (
        lambda: ops.rotary(zeros(5, 8), zeros(9, 4), zeros(9, 4)),
        kt.ShapeError,
        ["5 rows", "cos[:5]"],
    ),
    "table axes": (
        lambda: ops.rotary(zeros(2, 5, 8), zeros(3, 5, 4), zeros(3, 5, 4)),
        kt.ShapeError,
        ["do not broadcast"],
    ),
    "labels": (
        lambda: ops.cross_entropy(zeros(3, 4), np.zeros(4, int)),
        kt.ShapeError,
        ["labels has shape (4,)", "(3,)"],
    ),
    "labels dtype": (
        lambda: ops.cross_entropy(zeros(3, 4), zeros(3)),
        kt.DTypeError,
        ["labels is float32", "int64"],
    ),
    "uneven rows": (
        lambda: ops.cross_entropy(zeros(4, 3, 5).swapaxes(0, 1), np.zeros((3, 4), int)),
        kt.ArgumentError,
        ["rows of logits", "contiguous copy"],
    ),
    "odd gate": (lambda: ops.silu_and_mul(zeros(3, 5)), kt.ShapeError, ["(3, 5)", "halves"]),
    "up": (lambda: ops.gelu_and_mul(zeros(3, 4), zeros(4)), kt.ShapeError, ["up", "(3, 4)"]),
    "gelu": (lambda: ops.gelu(zeros(3), approximate="sigmoid"), kt.ArgumentError, ["sigmoid", "'tanh'"]),
    "addend": (lambda: ops.add(zeros(3, 4), zeros(3, 1)), kt.ShapeError, ["b of shape (3, 1)", "one row"]),
    "ids": (lambda: ops.embedding(zeros(3, 4), zeros(2)), kt.DTypeError, ["ids is float32", "int32"]),
    "table": (lambda: ops.embedding(zeros(3), np.zeros(2, int)), kt.ShapeError, ["table has 1 axes"]),
    "mask": (lambda: ops.mean_pool(zeros(2, 3, 4), zeros(2, 4)), kt.ShapeError, ["mask", "(2, 3)"]),
    "target": (lambda: ops.softmax(zeros(3), on="nowhere"), kt.TargetError, ["nowhere"]),
    "tunable": (lambda: ops.softmax(zeros(3), tune={"BK": 3}), kt.ArgumentError, ["no constant 'BK'", "BN"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_argument_and_the_remedy(case):
    call, error, words = REFUSED[case]
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_every_operation_is_documented_and_takes_a_target():
    for name in ops.__all__:
        function = getattr(ops, name)
        assert inspect.getdoc(function), name
        assert {"on", "tune"} <= set(inspect.signature(function).parameters), name


def test_inputs_are_neither_copied_nor_changed():
    x = np.arange(12, dtype=F32).reshape(3, 4)
    x.flags.writeable = False
    before = x.copy()
    ops.softmax(x), ops.matmul(x, x.T), ops.layer_norm(x, x[0], x[1]), ops.silu_and_mul(x), ops.add(x, x)
    assert (x == before).all()


def test_out_is_written_and_returned():
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(F32)
    for call in (ops.softmax, ops.rms_norm, ops.layer_norm, ops.l2_normalize, ops.gelu, ops.silu, ops.relu):
        out = np.full((8, 6), 7, F32).T[::2]
        assert call(x, out=out) is out
        assert (out == call(x)).all()
    out = zeros(3, 8, dtype=BF16)
    assert (ops.softmax(x, out=out) == ops.softmax(x, dtype=BF16)).all()
    q, o = Q + 1, zeros(2, 4, 5, 8)
    assert ops.attention(q, K, K + 2, out=o) is o
    assert np.allclose(o, 2)


def test_an_error_leaves_the_output_as_it_was():
    out = np.full((3, 4), 7, F32)
    with pytest.raises(kt.ShapeError):
        ops.rms_norm(zeros(3, 4), zeros(5), out=out)
    assert (out == 7).all()


def test_targets_by_name_and_parsed():
    x = np.ones((2, 4), F32)
    assert (ops.softmax(x, on="numpy") == 0.25).all()
    assert (ops.softmax(x, on=Target("numpy")) == 0.25).all()


def test_new_arrays_come_from_the_backend_of_the_first_input():
    made = plugins.manager().hook.kittens_empty(like=zeros(1), shape=(2, 3), dtype=kt.bfloat16)
    assert isinstance(made, np.ndarray) and made.shape == (2, 3) and made.dtype == BF16
    assert plugins.manager().hook.kittens_empty(like="no array", shape=(2,), dtype=kt.float32) is None


def test_an_array_that_no_backend_makes_needs_out():
    spec = kt.spec("float32", (3, 4))
    with pytest.raises(kt.UnavailableError, match="out="):
        ops.softmax(spec)


def test_rows_longer_than_one_tile_and_tuned_widths():
    x = np.random.default_rng(1).standard_normal((2, 50)).astype(F32)
    for width in (16, 50, 64):
        assert np.allclose(ops.softmax(x, tune={"BN": width}), ops.softmax(x), rtol=1e-6)
