"""The kernels of kittens.kernels over a sweep of shapes, each also against the formula of the books."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from kittens import kernels
from kittens.conformance import textbook
from kittens.conformance.case import Case, In, InOut, Out, seeded
from kittens.conformance.cases.inputs import normal
from kittens.dtypes import BY_NAME, DType

F32, F16, BF16, I32 = (BY_NAME[n] for n in ("float32", "float16", "bfloat16", "int32"))
FLOATS = (F32, F16, BF16)
SCALE = BY_NAME["float8_e8m0fnu"]


def cases() -> Iterator[Case]:
    yield from _matmuls()
    yield from _splits()
    yield from _softmaxes()
    yield from _norms()
    yield from _rotaries()
    yield from _attentions()
    yield from _backward()
    yield from _decoding()
    yield from _varlen()
    yield from _pointwise()
    yield from _sequences()


def _case(kernel, detail: str, make, cost: float, book=None, **constants) -> Case:
    name = f"library/{kernel.name}/{detail}"
    return Case(
        name, kernel, lambda: make(seeded(name)), constants, cost, book or getattr(textbook, kernel.name)
    )


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


# Products.


def _matmul(detail: str, a: DType, b: DType, shape: tuple[int, int, int], to: DType | None = None, *,
            lead=((), ()), layouts=("plain", "plain"), scales: str = "", bias: DType | None = None,
            **constants) -> Case:  # fmt: skip
    m, n, k = shape
    to = to or (F32 if a.is_float8 else I32 if a.is_integer else a)

    def make(rng):
        out = np.broadcast_shapes(*lead)
        x, y = normal(rng, (*lead[0], m, k), a), normal(rng, (*lead[1], k, n), b)
        args = {"a": In(x, layouts[0]), "b": In(y, layouts[1]), "c": Out(to, (*out, m, n))}
        if scales == "scalar":
            args |= {"a_scale": 0.37, "b_scale": 1.9}
        if scales == "tensor":
            args |= {"a_scale": In(np.float32(0.37).reshape(())), "b_scale": In(np.float32(1.9).reshape(()))}
        if scales == "rows":
            args["a_scale"] = In(rng.uniform(0.1, 2, (*lead[0], m, 1)).astype(np.float32))
            args["b_scale"] = In(rng.uniform(0.1, 2, (*lead[1], 1, n)).astype(np.float32))
        if scales == "mx":
            args["a_scale"] = In(normal(rng, (*lead[0], m, k // 32), SCALE))
            args["b_scale"] = In(normal(rng, (*lead[1], k // 32, n), SCALE))
        if bias is not None:
            args["bias"] = In(normal(rng, (n,), bias))
        return args

    cost = 2.0 * m * n * k * math.prod(np.broadcast_shapes(*lead))
    book = textbook.matmul_integers if to == I32 else textbook.matmul
    return _case(kernels.matmul, detail, make, cost, book, **constants)


def _matmuls() -> Iterator[Case]:
    types = [(d, d) for d in (*FLOATS, BY_NAME["int8"], BY_NAME["uint8"])]
    types += [(BY_NAME[f"float8_{x}"], BY_NAME[f"float8_{y}"]) for x, y in
              (("e4m3fn", "e4m3fn"), ("e4m3fn", "e5m2"), ("e5m2", "e4m3fn"), ("e4m3fnuz", "e4m3fnuz"),
              ("e5m2fnuz", "e4m3fnuz"))]  # fmt: skip
    for a, b in types:
        kind = f"{a}" if a == b else f"{a}-{b}"
        for shape in (
            (64, 64, 64),
            (65, 63, 129),
            (1, 1, 1),
            (7, 130, 33),
            (128, 1, 70),
            (0, 5, 5),
            (5, 6, 0),
        ):
            yield _matmul(f"{kind}/{_by(shape)}", a, b, shape)
        for layouts in (
            ("plain", "transposed"),
            ("transposed", "plain"),
            ("transposed", "transposed"),
            ("strided", "gapped"),
        ):
            yield _matmul(f"{kind}/{'-'.join(layouts)}", a, b, (70, 66, 80), layouts=layouts)
        for scales in ("scalar", "rows", "tensor"):
            if a.is_float:
                yield _matmul(f"{kind}/scales-{scales}", a, b, (40, 50, 60), scales=scales)
        if a.is_float8:
            for shape in ((64, 64, 128), (33, 70, 96)):
                yield _matmul(f"{kind}/mx-{_by(shape)}", a, b, shape, scales="mx")
            for how in ("fast", "promoted"):
                yield _matmul(f"{kind}/{how}", a, b, (70, 66, 80), accumulate=how)
                for scales in ("", "tensor", "rows") if kind == "float8_e4m3fn" else ("",):
                    yield _matmul(
                        f"{kind}/{how}-transposed{'-' * bool(scales)}{scales}", a, b, (150, 200, 272), BY_NAME["bfloat16"],
                        layouts=("plain", "transposed"), scales=scales, accumulate=how,
                    )  # fmt: skip
    for dtype in FLOATS:
        for activation in textbook.ACTIVATIONS:
            yield _matmul(
                f"{dtype}/bias-{activation}", dtype, dtype, (40, 70, 50), bias=dtype, activation=activation
            )
        for lead in (((2,), (2,)), ((2, 3), (2, 3)), ((2, 3), ()), ((2, 1), (3,))):
            yield _matmul(
                f"{dtype}/batch-{_by(lead[0])}-{_by(lead[1])}", dtype, dtype, (20, 30, 40), lead=lead
            )
        yield _matmul(f"{dtype}/to-float32", dtype, dtype, (65, 65, 65), F32)
        yield _matmul(f"{dtype}/blocks", dtype, dtype, (150, 140, 90), BM=128, BN=64, BK=32)


# Products in parts. (M, N, K), parts, leading axes, constants.

SPLIT: list[tuple[tuple[int, int, int], int, tuple, dict[str, Any]]] = [
    ((70, 66, 300), 3, ((), ()), {}),
    ((5, 130, 200), 9, ((), ()), {"BM": 16, "BN": 64}),  # more parts than blocks of K
    ((33, 20, 0), 2, ((), ()), {}),
    ((64, 128, 256), 2, ((2, 1), (3,)), {}),
    ((20, 33, 129), 1, ((3,), ()), {}),
    ((130, 70, 520), 4, ((), ()), {"BM": 128, "BN": 64, "BK": 64}),
]


def _splits() -> Iterator[Case]:
    types = [(d, to, "plain", "") for d, to in ((F32, F32), (F16, F32), (BF16, F32), (BY_NAME["int8"], I32))]
    types += [(BF16, F32, "transposed", "")]
    types += [
        (BY_NAME["float8_e4m3fn"], F32, "transposed", how) for how in ("full", "fast", "promoted", "mx")
    ]
    for dtype, to, layout, how in types:
        for shape, parts, lead, constants in SPLIT[:: 1 if layout == "plain" else 3]:
            detail = "-".join(filter(None, (f"{dtype}/{_by(shape)}-by-{parts}", layout, how)))
            more: dict[str, Any] = {"BK": 32, **constants}
            if how == "mx":
                shape = (*shape[:2], shape[2] // 32 * 32)
            elif how:
                more["accumulate"] = how
            yield _split(detail, dtype, to, shape, parts, lead, layout, how == "mx", more)
    for dtype in FLOATS:
        for parts in (1, 3, 37):
            for stack, scales in (((), ""), ((2, 1), "rows"), ((), "tensor")):
                detail = f"{dtype}/{parts}" + f"-{scales}" * bool(scales)
                activation = "gelu" if scales else "none"
                make = _sums(dtype, (parts, *stack, 5, 150), scales)
                yield _case(kernels.matmul_combine, detail, make, 2000.0 * parts, activation=activation)
    make = _sums(I32, (5, 3, 150), "")
    yield _case(kernels.matmul_combine, "int32/5", make, 5000.0, textbook.matmul_integer_sums)


def _split(detail: str, dtype: DType, to: DType, shape: tuple[int, int, int], parts: int, lead, layout: str, mx: bool,
           constants: dict[str, Any]) -> Case:  # fmt: skip
    m, n, k = shape
    whole = np.broadcast_shapes(*lead)

    def make(rng):
        x, y = normal(rng, (*lead[0], m, k), dtype), normal(rng, (*lead[1], k, n), dtype)
        args = {"a": In(x), "b": In(y, layout), "parts": Out(to, (parts, *whole, m, n))}
        if mx:
            args["a_scale"] = In(normal(rng, (*lead[0], m, k // 32), SCALE))
            args["b_scale"] = In(normal(rng, (*lead[1], k // 32, n), SCALE))
        return args

    book = functools.partial(textbook.matmul_split, parts=parts)
    return _case(kernels.matmul_split, detail, make, 2.0 * m * n * k * math.prod(whole), book, **constants)


def _sums(dtype: DType, shape: tuple[int, ...], scales: str):
    """Arguments for a sum of parts of a shape, that becomes a dtype."""
    *lead, m, n = shape[1:]

    def make(rng):
        if dtype == I32:
            return {"parts": In(rng.integers(-(2**31), 2**31, shape, np.int32)), "c": Out(I32, shape[1:])}
        args = {"parts": In(normal(rng, shape, F32)), "c": Out(dtype, shape[1:])}
        if scales == "rows":
            args["a_scale"] = In(rng.uniform(0.1, 2, (*lead, m, 1)).astype(np.float32))
            args["b_scale"] = In(rng.uniform(0.1, 2, (*lead, 1, n)).astype(np.float32))
        if scales == "tensor":
            args |= {"a_scale": In(np.float32(0.37).reshape(())), "b_scale": 1.9}
        return args | ({"bias": In(normal(rng, (n,), dtype))} if scales else {})

    return make


# Rows.


def _softmaxes() -> Iterator[Case]:
    for dtype in FLOATS:
        for shape in ((1, 1), (5, 100), (4, 512), (7, 1300), (2, 3, 33), (0, 8)):
            yield _case(
                kernels.softmax, f"{dtype}/{_by(shape)}", _softmax(dtype, shape), 20.0 * math.prod(shape)
            )
        for shape in ((6, 64), (3, 200)):
            wide = 1 << (shape[-1] - 1).bit_length()
            make = _softmax(dtype, shape)
            yield _case(
                kernels.softmax,
                f"{dtype}/resident-{_by(shape)}",
                make,
                20.0 * math.prod(shape),
                resident=True,
                BN=wide,
            )
        yield _case(
            kernels.softmax,
            f"{dtype}/whole",
            _softmax(dtype, (3, 768)),
            50000.0,
            resident=True,
            whole=True,
            BN=768,
        )
        yield _case(kernels.softmax, f"{dtype}/large-scores", _softmax(dtype, (5, 700), 40.0), 70000.0)
        yield _case(kernels.softmax, f"{dtype}/masked", _softmax(dtype, (6, 700), 1.0, mask=True), 70000.0)
        for rows in (1, 4):
            detail, constants = f"{dtype}/uneven-by-{rows}", {"BM": rows, "BN": 512}
            make = _softmax(dtype, (6, 1300), uneven=True)
            yield _case(kernels.softmax, detail, make, 150000.0, **constants)
            make = _entropy(dtype, (6, 1300), uneven=True)
            yield _case(kernels.cross_entropy_forward, detail, make, 150000.0, **constants)
        for shape in ((1, 1), (6, 700), (13, 40)):
            yield _case(
                kernels.cross_entropy_forward,
                f"{dtype}/{_by(shape)}",
                _entropy(dtype, shape),
                20.0 * math.prod(shape),
            )
            yield _case(
                kernels.cross_entropy_backward,
                f"{dtype}/{_by(shape)}",
                _entropy(dtype, shape, True),
                20.0 * math.prod(shape),
            )


def _uneven(x, dtype: DType):
    """Scores whose first block says little of the rest: rising, falling, far below after nothing, equal, NaN."""
    n = x.shape[1]
    ramp = np.linspace(-150, 150, n, dtype=np.float32)
    x = x.astype(np.float32)
    x[0], x[1] = x[0] + ramp, x[1] - ramp
    x[2] -= 200
    x[2, :600] = -np.inf
    x[3], x[4, n - 1], x[5] = -np.inf, np.nan, 1e4
    return x.astype(dtype.numpy)


def _softmax(
    dtype: DType, shape: tuple[int, ...], scale: float = 3.0, mask: bool = False, uneven: bool = False
):
    def make(rng):
        x = normal(rng, shape, dtype, scale)
        if uneven:
            x = _uneven(x, dtype)
        if mask:
            x[:, ::3], x[1, :600] = -np.inf, -np.inf
        return {"x": In(x), "y": Out(dtype, shape)}

    return make


def _entropy(dtype: DType, shape: tuple[int, int], backward: bool = False, uneven: bool = False):
    def make(rng):
        x = normal(rng, shape, dtype, 3.0)
        if uneven:
            x = _uneven(x, dtype)
        label = rng.integers(0, shape[1], shape[0]).astype(np.int64)
        if shape[0] > 4:
            label[1], label[4] = -100, shape[1] - 1
            if not backward:
                label[3] = shape[1]  # no column: NaN
        args = {"x": In(x), "label": In(label)}
        if not backward:
            return {**args, "loss": Out(F32, shape[:1]), "lse": Out(F32, shape[:1])}
        lse = textbook.cross_entropy_forward(x.astype(np.float64), label)["lse"].astype(np.float32)
        return {**args, "lse": In(lse), "dloss": In(normal(rng, shape[:1], F32)), "dx": Out(dtype, shape)}

    return make


def _norms() -> Iterator[Case]:
    shapes = ((1, 1), (5, 100), (4, 512), (3, 1300), (2, 3, 40))
    for dtype in FLOATS:
        for shape in shapes:
            cost = 20.0 * math.prod(shape)
            for weighted in (False, True):
                detail = f"{dtype}/{_by(shape)}" + ("-weighted" if weighted else "")
                yield _case(kernels.rms_norm, detail, _norm(dtype, shape, weighted, False), cost, eps=1e-5)
                yield _case(kernels.layer_norm, detail, _norm(dtype, shape, weighted, True), cost, eps=1e-5)
            yield _case(
                kernels.l2_normalize,
                f"{dtype}/{_by(shape)}",
                _norm(dtype, shape, False, False),
                cost,
                eps=1e-12,
            )
            for p in (0.0, 0.3, 1.0):
                make = _dropout(dtype, shape)
                yield _case(
                    kernels.dropout_residual_layer_norm,
                    f"{dtype}/{_by(shape)}/{p}",
                    make,
                    5 * cost,
                    p=p,
                    eps=1e-5,
                )
        for shape, whole in (
            ((2, 3, 512), True),
            ((5, 132), False),
        ):  # neighbours that share a block of random bits
            constants = {"p": 0.3, "eps": 1e-5, "resident": True, "whole": whole, "BN": 512 if whole else 256}
            yield _case(
                kernels.dropout_residual_layer_norm,
                f"{dtype}/resident-{_by(shape)}",
                _dropout(dtype, shape),
                60.0 * math.prod(shape),
                **constants,
            )
        for kernel, bias in ((kernels.rms_norm, False), (kernels.layer_norm, True)):
            make = _norm(dtype, (6, 90), True, bias)
            yield _case(kernel, f"{dtype}/resident", make, 8000.0, eps=1e-6, resident=True, BN=128)
            whole = _norm(dtype, (3, 768), True, bias)
            yield _case(kernel, f"{dtype}/whole", whole, 50000.0, eps=1e-6, resident=True, whole=True, BN=768)
            yield _case(kernel, f"{dtype}/offset", _norm(dtype, (6, 90), True, bias, 100.0), 8000.0, eps=1e-6)


def _norm(dtype: DType, shape: tuple[int, ...], weighted: bool, bias: bool, offset: float = 0.0):
    def make(rng):
        x = (normal(rng, shape, F32) + np.float32(offset)).astype(dtype.numpy)
        args = {"x": In(x), "y": Out(dtype, shape)}
        if weighted:
            args["weight"] = In(normal(rng, shape[-1:], dtype))
            if bias:
                args["bias"] = In(normal(rng, shape[-1:], dtype))
        return args

    return make


def _dropout(dtype: DType, shape: tuple[int, ...]):
    def make(rng):
        x, r = normal(rng, shape, dtype), normal(rng, shape, dtype)
        w, b = normal(rng, shape[-1:], dtype), normal(rng, shape[-1:], dtype)
        outs = {"y": Out(dtype, shape), "total": Out(dtype, shape)}
        return {"x": In(x), "residual": In(r), **outs, "seed": 2**40 + 7, "weight": In(w), "bias": In(b)}

    return make


def _rotaries() -> Iterator[Case]:
    for dtype in FLOATS:
        for shape, angles in (
            ((1, 2), (1, 1)),
            ((2, 3, 20, 64), (20, 32)),
            ((3, 17, 80), (17, 24)),
            ((2, 5, 9, 6), (2, 1, 9, 3)),
        ):
            for interleaved in (False, True):
                for inverse in (False, True):

                    def make(rng, shape=shape, angles=angles, dtype=dtype):
                        angle = rng.uniform(-4, 4, angles)
                        cos, sin = (f(angle).astype(np.float32) for f in (np.cos, np.sin))
                        return {
                            "x": In(normal(rng, shape, dtype)),
                            "cos": In(cos),
                            "sin": In(sin),
                            "y": Out(dtype, shape),
                        }

                    kind = ("interleaved" if interleaved else "halves") + ("-inverse" if inverse else "")
                    flags: dict[str, Any] = {"interleaved": interleaved, "inverse": inverse}
                    yield _case(
                        kernels.rotary, f"{dtype}/{_by(shape)}/{kind}", make, 10.0 * math.prod(shape), **flags
                    )
                    if not inverse:  # several matrices a program, more than there are
                        name = f"{dtype}/{_by(shape)}/{kind}-by-4"
                        yield _case(kernels.rotary, name, make, 10.0 * math.prod(shape), PARTS=4, **flags)


# Attention. (B, H, Hk, Nq, Nk, D, Dv), window (left, right); (None, 0) is causal.

ATTENTION = [
    ((1, 1, 1, 64, 64, 64, 64), (None, None)),
    ((1, 1, 1, 64, 64, 64, 64), (None, 0)),
    ((1, 2, 1, 100, 100, 32, 32), (None, 0)),
    ((2, 4, 2, 65, 63, 40, 24), (None, None)),
    ((1, 2, 2, 33, 150, 128, 128), (None, 0)),  # fewer queries than keys
    ((1, 2, 2, 150, 33, 16, 16), (None, 0)),  # more queries than keys: the first see nothing
    ((1, 1, 1, 1, 70, 80, 80), (None, None)),  # decoding
    ((1, 3, 1, 1, 1, 8, 8), (None, 0)),
    ((1, 1, 1, 130, 130, 32, 32), (20, 0)),  # a causal window
    ((1, 1, 1, 90, 130, 32, 32), (10, 30)),
    ((1, 1, 1, 20, 20, 256, 256), (None, 0)),
    ((1, 1, 1, 30, 0, 16, 16), (None, None)),  # no keys at all
]


def _attentions() -> Iterator[Case]:
    for name in ("e4m3fn", "e5m2"):  # probabilities are rounded to them
        dtype = BY_NAME[f"float8_{name}"]
        for shape, right in (((1, 4, 2, 70, 100, 64, 32), 0), ((1, 2, 2, 33, 130, 128, 128), None)):
            make, window = _attention(dtype, shape, 1.0), {"scale": 0.1, "left": None, "right": right}
            case = _case(kernels.attention_forward, f"{dtype}/{_by(shape)}/None:{right}", make, 4e6, **window)
            yield dataclasses.replace(case, textbook=None)  # which does not round them
    for dtype in FLOATS:
        for shape, (left, right) in ATTENTION:
            b, h, _, nq, nk, d, _ = shape
            for scale, size in ((d**-0.5, 1.0), (1.0, 2.0)) if d == 64 else ((d**-0.5, 1.0),):
                detail = f"{dtype}/{_by(shape)}/{left}:{right}" + ("" if size == 1 else "-sharp")
                window = {"scale": scale, "left": left, "right": right}
                yield _case(
                    kernels.attention_forward,
                    detail,
                    _attention(dtype, shape, size),
                    4.0 * b * h * nq * max(nk, 1) * d,
                    **window,
                )
        detail = f"{dtype}/blocks"
        make = _attention(dtype, (1, 1, 1, 140, 140, 64, 64), 1.0)
        yield _case(
            kernels.attention_forward, detail, make, 5e6, scale=0.125, left=None, right=0, BM=64, BN=32
        )
        make = _attention(dtype, (1, 1, 1, 140, 140, 64, 64), 2.0)  # maxima grow from block to block
        yield _case(
            kernels.attention_forward,
            f"{detail}-sharp",
            make,
            5e6,
            scale=1.0,
            left=None,
            right=0,
            BM=64,
            BN=32,
        )


def _attention(dtype: DType, shape: tuple[int, ...], size: float):
    b, h, hk, nq, nk, d, dv = shape
    out = BF16 if dtype.is_float8 else dtype

    def make(rng):
        q, k, v = (normal(rng, s, dtype, size) for s in ((b, h, nq, d), (b, hk, nk, d), (b, hk, nk, dv)))
        return {
            "q": In(q),
            "k": In(k),
            "v": In(v),
            "o": Out(out, (b, h, nq, dv)),
            "lse": Out(F32, (b, h, nq)),
        }

    return make


def _backward() -> Iterator[Case]:
    for dtype in FLOATS:
        for shape, (left, right) in ATTENTION[:11]:
            b, h, _, nq, nk, d, _ = shape
            window = {"scale": d**-0.5, "left": left, "right": right}
            detail, cost = f"{dtype}/{_by(shape)}/{left}:{right}", 8.0 * b * h * nq * nk * d
            for kernel in (kernels.attention_backward_kv, kernels.attention_backward_q):
                yield _case(kernel, detail, _gradient(kernel.name, dtype, shape, window), cost, **window)
            for turns in (False, True):
                make = _gradient("attention_backward_kv", dtype, shape, window, adds=True, turns=turns)
                how = f"{detail}/{'turns' if turns else 'adds'}"
                yield replace(_case(kernels.attention_backward_kv, how, make, cost, **window), turns=turns)
        for with_lse in (False, True):

            def make(rng, dtype=dtype, with_lse=with_lse):
                o, do = normal(rng, (1, 2, 70, 48), dtype), normal(rng, (1, 2, 70, 48), dtype)
                lse = np.where(np.arange(70) % 7 == 0, -np.inf, normal(rng, (1, 2, 70), F32)).astype(
                    np.float32
                )
                extra = {"dlse": In(normal(rng, (1, 2, 70), F32))} if with_lse else {}
                rows = {name: Out(F32, (1, 2, 70)) for name in ("delta", "l2")}
                return {"o": In(o), "do": In(do), "lse": In(lse), **rows, **extra}

            yield _case(kernels.attention_delta, f"{dtype}{'/dlse' if with_lse else ''}", make, 20000.0)


def _gradient(
    kernel: str,
    dtype: DType,
    shape: tuple[int, ...],
    window: dict,
    *,
    adds: bool = False,
    turns: bool = False,
):
    b, h, hk, nq, nk, d, dv = shape

    def make(rng):
        q, k, v, do = (
            normal(rng, s, dtype) for s in ((b, h, nq, d), (b, hk, nk, d), (b, hk, nk, dv), (b, h, nq, dv))
        )
        wide = [x.astype(np.float64) for x in (q, k, v)]
        forward = textbook.attention_forward(*wide, **window)
        seen = np.isfinite(forward["lse"])
        l2 = np.where(seen, forward["lse"] * np.log2(np.e), np.inf).astype(np.float32)
        delta = (forward["o"] * do.astype(np.float64)).sum(-1).astype(np.float32)
        args = {"q": In(q), "k": In(k), "v": In(v), "do": In(do), "l2": In(l2), "delta": In(delta)}
        if kernel == "attention_backward_q":
            return {**args, "dq": Out(dtype, q.shape)}
        if adds:
            args["dq"] = InOut(normal(rng, q.shape, F32))
        if turns:  # enough for the blocks of queries of any target
            args["turns"] = InOut(np.zeros((b, h, -(-nq // 8)), np.int32))
        return {**args, "dk": Out(dtype, k.shape), "dv": Out(dtype, v.shape)}

    return make


# Packed sequences. (H, Hk, D, Dv), lengths of queries and of keys, window.

VARLEN = [
    ((1, 1, 32, 32), ((40, 70, 9), (40, 70, 9)), (None, 0)),
    ((4, 2, 40, 24), ((33, 0, 65), (20, 50, 66)), (None, None)),  # without queries
    ((2, 1, 64, 64), ((10, 30, 1), (0, 17, 80)), (None, 0)),  # without keys, and fewer or more of them
    ((2, 2, 16, 16), ((130, 3), (130, 70)), (20, 0)),  # a causal window
    ((1, 1, 128, 128), ((31, 60), (70, 60)), (10, 30)),
]


def _varlen() -> Iterator[Case]:
    names = ("attention_varlen_forward", "attention_varlen_backward_kv", "attention_varlen_backward_q")
    for dtype in FLOATS:
        for name in names:
            kernel = getattr(kernels, name)
            for shape, lengths, (left, right) in VARLEN:
                window = {"scale": shape[2] ** -0.5, "left": left, "right": right}
                pairs = sum(nq * nk for nq, nk in zip(*lengths, strict=True))
                detail = f"{dtype}/{_by(shape)}/{'-'.join(map(_by, lengths))}/{left}:{right}"
                make = _packed(name, dtype, shape, lengths, window)
                yield _case(kernel, detail, make, 8.0 * shape[0] * shape[2] * pairs, **window)
            window = {"scale": 0.25, "left": None, "right": 0}
            shape, lengths = (2, 1, 16, 16), ((20, 35), (33, 35))
            case = _case(
                kernel, f"{dtype}/apart", _packed(name, dtype, shape, lengths, window, 5), 1e5, **window
            )
            yield dataclasses.replace(case, textbook=None)  # which would have all of the results written


def _packed(
    name: str, dtype: DType, shape: tuple[int, ...], lengths: tuple[tuple[int, ...], ...], window: dict, apart: int = 0
):  # fmt: skip
    """apart: rows of NaN before the first sequence and after the last one, which are nobody's."""
    h, hk, d, dv = shape

    def make(rng):
        cu_q, cu_k = (apart + np.cumsum((0, *x), dtype=np.int32) for x in lengths)
        tq, tk = cu_q[-1] + apart, cu_k[-1] + apart
        q, k, v, do = (normal(rng, s, dtype) for s in ((h, tq, d), (hk, tk, d), (hk, tk, dv), (h, tq, dv)))
        book = textbook.attention_varlen_forward(
            *(x.astype(np.float64) for x in (q, k, v)), cu_q, cu_k, 0, **window
        )
        l2, delta = np.full((2, h, tq), np.nan, np.float32)
        mine = slice(apart, tq - apart)
        seen = np.isfinite(book["lse"])
        l2[:, mine] = np.where(seen, book["lse"] * np.log2(np.e), np.inf)
        delta[:, mine] = (book["o"] * do[:, mine].astype(np.float64)).sum(-1)
        for x in (q, k, v, do) if apart else ():
            x[:, :apart], x[:, -apart:] = np.nan, np.nan
        args = {"q": In(q), "k": In(k), "v": In(v), "cu_q": In(cu_q), "cu_k": In(cu_k)}
        most_q, most_k = (max(x) for x in lengths)
        if name == "attention_varlen_forward":
            return {**args, "most_q": most_q, "o": Out(dtype, (h, tq, dv)), "lse": Out(F32, (h, tq))}
        args |= {"do": In(do), "l2": In(l2), "delta": In(delta)}
        if name == "attention_varlen_backward_q":
            return {**args, "most_q": most_q, "dq": Out(dtype, q.shape)}
        return {**args, "most_k": most_k, "dk": Out(dtype, k.shape), "dv": Out(dtype, v.shape)}

    return make


# Decoding. (B, Hk, group, queries, N, D, Dv), lengths, parts, window. Pages hold what the lengths say, the rest is NaN.

DECODING = [
    ((1, 1, 1, 1, 70, 64, 64), None, 1, (None, None)),
    ((2, 2, 4, 1, 150, 32, 32), (150, 61), 3, (None, 0)),
    ((3, 1, 2, 3, 100, 40, 24), (0, 2, 99), 2, (None, 0)),  # nothing to see, and more queries than keys
    ((2, 1, 3, 2, 140, 128, 128), (140, 77), 4, (30, 0)),  # a causal window
    ((1, 2, 8, 8, 90, 16, 16), (90,), 7, (5, 2)),  # more parts than blocks of keys
    ((1, 1, 5, 4, 40, 256, 256), (33,), 2, (None, None)),
]


def _decoding() -> Iterator[Case]:
    for dtype in FLOATS:
        for shape, lengths, parts, (left, right) in DECODING:
            b, hk, group, queries, n, d, _ = shape
            constants = {"scale": d**-0.5, "queries": queries, "left": left, "right": right, "BN": 16}
            cost = 4.0 * b * hk * group * queries * n * d
            for page in (0, 16, 48) if lengths else (0,):
                detail = f"{dtype}/{_by(shape)}/{left}:{right}" + (f"-pages-{page}" if page else "")
                make = _decode(dtype, shape, lengths, parts, page)
                book = functools.partial(textbook.attention_split, parts=parts)
                yield _case(kernels.attention_split, detail, make, cost, book, **constants)
        make = _decode(dtype, (2, 1, 4, 1, 150, 64, 64), (150, 100), 1, 64)
        yield _case(kernels.attention_split, f"{dtype}/usual-blocks", make, 1e5, scale=0.125)
        for parts in (1, 5, 70):

            def combined(rng, dtype=dtype, parts=parts):
                lse = normal(rng, (parts, 2, 3, 2), F32, 5.0)
                lse[rng.random(lse.shape) < 0.3], lse[:, 1, 1] = -np.inf, -np.inf
                o = np.where(np.isinf(lse)[..., None], 0, normal(rng, (*lse.shape, 40), F32)).astype(
                    np.float32
                )
                outs = {"o": Out(dtype, (2, 3, 2, 40)), "lse": Out(F32, (2, 3, 2))}
                return {"parts": In(o), "part_lse": In(lse), **outs}

            yield _case(kernels.attention_combine, f"{dtype}/{parts}", combined, 2000.0 * parts)


def _decode(dtype: DType, shape: tuple[int, ...], lengths: tuple[int, ...] | None, parts: int, page: int):
    b, hk, group, queries, n, d, dv = shape

    def make(rng):
        q, k, v = (
            normal(rng, s, dtype) for s in ((b, hk, group * queries, d), (b, hk, n, d), (b, hk, n, dv))
        )
        args = {"q": In(q)}
        if lengths is not None:
            args["lengths"] = In(np.array(lengths, np.int32))
            for x, end in [(x[i], end) for i, end in enumerate(lengths) for x in (k, v)]:
                x[:, end:] = np.nan
        if page:
            table, (k, v) = _paged(rng, page, lengths, k, v)
            args["table"] = In(table)
        rows = (parts, b, hk, group * queries)
        out = dtype if parts == 1 else F32
        return {**args, "k": In(k), "v": In(v), "parts": Out(out, (*rows, dv)), "lse": Out(F32, rows)}

    return make


def _paged(rng, page: int, lengths, *tensors):
    """A table, and the tensors (B, Hk, N, D) in pages of so many rows; entries that are not needed name none, or one of NaN."""
    b, _, n, _ = tensors[0].shape
    most = -(-n // page) + 1
    table = rng.permutation(b * most + 1)[: b * most].reshape(b, most).astype(np.int32)
    paged = []
    for x in tensors:
        pages = np.full((b * most + 1, page, x.shape[1], x.shape[3]), np.nan).astype(x.dtype)
        for i in range(b):
            for number in range(-(-lengths[i] // page)):
                rows = x[i, :, number * page : (number + 1) * page].swapaxes(0, 1)
                pages[table[i, number], : len(rows)] = rows
        paged.append(pages)
    for i, end in enumerate(lengths):
        table[i, -(-end // page) + 1 :] = -1 if i % 2 else 2**31 - 1
    return table, paged


# Element by element, and the ends of a model.


def _transposes(dtype: DType) -> Iterator[Case]:
    for wider in (0, 5):

        def make(rng, wider=wider):
            return {"x": In(normal(rng, (2, 130, 77), dtype)), "y": Out(dtype, (2, 77, 130 + wider))}

        book = functools.partial(textbook.transpose, wider=wider)
        yield _case(kernels.transpose, f"{dtype}/{wider}-wider", make, 20000.0, book)


def _pointwise() -> Iterator[Case]:
    yield from _transposes(BY_NAME["float8_e4m3fn"])
    for dtype in FLOATS:
        for function in textbook.ACTIVATIONS:

            def one(rng, dtype=dtype):
                return {"x": In(normal(rng, (30, 300), dtype, 3.0)), "y": Out(dtype, (30, 300))}

            def two(rng, dtype=dtype):
                g, u = normal(rng, (2, 17, 70), dtype, 3.0), normal(rng, (2, 17, 70), dtype)
                return {"gate": In(g, "strided"), "up": In(u, "strided"), "y": Out(dtype, (2, 17, 70))}

            yield _case(kernels.activation, f"{dtype}/{function}", one, 90000.0, function=function)
            yield _case(kernels.gated, f"{dtype}/{function}", two, 30000.0, function=function)
        for wider in (0, 5):

            def same(rng, dtype=dtype, wider=wider):
                return {"x": In(normal(rng, (2, 30, 299), dtype)), "y": Out(dtype, (2, 30, 299 + wider))}

            book = functools.partial(textbook.copy, wider=wider)
            yield _case(kernels.copy, f"{dtype}/{wider}-wider", same, 20000.0, book)
        yield from _transposes(dtype)
        for shape in ((33, 300), (300,), (1, 33, 300)):

            def three(rng, dtype=dtype, shape=shape):
                return {
                    "a": In(normal(rng, (2, 33, 300), dtype)),
                    "b": In(normal(rng, shape, dtype)),
                    "y": Out(dtype, (2, 33, 300)),
                }

            yield _case(kernels.add, f"{dtype}/{_by(shape)}", three, 20000.0)


def _sequences() -> Iterator[Case]:
    for dtype in FLOATS:

        def rows(rng, dtype=dtype):
            ids = rng.integers(0, 50, (3, 7)).astype(np.int64)
            ids[0, 0], ids[1, 1], ids[2, 2] = 50, -1, 49
            return {"table": In(normal(rng, (50, 70), dtype)), "ids": In(ids), "y": Out(dtype, (3, 7, 70))}

        def pooled(rng, dtype=dtype):
            mask = (rng.uniform(size=(3, 100)) < 0.6).astype(np.int32)
            return {"x": In(normal(rng, (3, 100, 70), dtype)), "mask": In(mask), "y": Out(dtype, (3, 70))}

        yield _case(kernels.embedding, f"{dtype}", rows, 3000.0)
        yield _case(kernels.mean_pool, f"{dtype}", pooled, 40000.0)
