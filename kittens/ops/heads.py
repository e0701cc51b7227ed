"""Attention: forward, backward, of few queries, of packed sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kittens import kernels, plugins
from kittens.arguments import TensorArg, adopt
from kittens.dtypes import FLOAT8, DType, bfloat16, float32, int32
from kittens.errors import ArgumentError, ShapeError
from kittens.kernels.attention_backward import LEAST
from kittens.ops import checks, splitting
from kittens.ops.checks import Array, On, Tune
from kittens.recording import empty, launch, operation
from kittens.runtime import choose_target

Window = int | tuple[int | None, int | None] | None

ATTENDED = (*checks.FLOATS, *FLOAT8)  # what attention takes
INDICES = (int32,)  # of lengths, bounds of sequences and pages
#: Keys of a part, at least, where they are split among programs.
PART_KEYS = 256
#: Queries of a program, as the number of parts reckons with.
TILE_ROWS = 64
#: Keys of a page are a multiple of this.
PAGE_STEP = 16


@operation()
def attention(
    q: Array, k: Array, v: Array, *, causal: bool = False, window: Window = None, scale: float | None = None,
    return_lse: bool = False, dtype: Any = None, out: Array = None, on: On = None, tune: Tune = None,
) -> Any:  # fmt: skip
    """softmax(scale q k^T) v for q (B, H, Nq, D), k (B, Hk, Nk, D), v (B, Hk, Nk, Dv); B, or B and H, may be
    absent.

    Hk divides H; query head h reads key head h // (H / Hk). Head dimensions are at most 256. causal: query i
    sees keys up to i + Nk - Nq, so that the last query sees all. window: w keys up to the query's own
    position (as many after it, if not causal), or (left, right), how many keys before and after it are seen,
    None for all. scale is 1 / sqrt(D) unless given. Queries that see nothing give 0. return_lse: also return
    log(sum(exp(scale q k^T))) in float32, (B, H, Nq), -inf for those. Floats and float8; the result is of
    `dtype`, by default that of q, bfloat16 for float8.
    """
    x, y = dense(q, k, v, ATTENDED)
    left, right = span(causal, window)
    o = checks.output(
        out,
        q,
        (*x.shape[:-1], y.shape[-1]),
        dtype or (bfloat16 if x.dtype.is_float8 else x.dtype),
        (*checks.FLOATS, *FLOAT8),
    )
    lse = checks.output(None, q, x.shape[:-1], float32) if return_lse else None
    views = [_raised(t, 4 - x.ndim) for t in (q, k, v, o, lse)]
    launch(
        kernels.attention_forward,
        *views,
        scale=_scale(scale, x),
        left=left,
        right=right,
        on=on,
        **(tune or {}),
    )
    return (o, lse) if return_lse else o


@operation()
def attention_backward(
    q: Array, k: Array, v: Array, o: Array, lse: Array, do: Array, *, dlse: Array = None,
    causal: bool = False, window: Window = None, scale: float | None = None, deterministic: bool = True,
    on: On = None, tune: Tune = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The gradients dq, dk, dv of `attention`, from its results o and lse and the gradients do (and dlse) of
    these.

    The other arguments are those of `attention`; floats only. Results are equal from run to run. deterministic=False lets dq
    be summed in no fixed order where that is faster: its bits may differ from run to run.
    """
    x, y = dense(q, k, v, checks.FLOATS)
    left, right = span(causal, window)
    for name, t in (("o", o), ("do", do)):
        checks.expect(
            checks.described(t, name, (x.dtype,)),
            name,
            (*x.shape[:-1], y.shape[-1]),
            "the result of attention",
        )
    for name, t in (("lse", lse), ("dlse", dlse)):
        if t is not None or name == "lse":
            checks.expect(
                checks.described(t, name, (float32,)), name, x.shape[:-1], "the log-sum-exp of attention"
            )
    shapes = [adopt(t, "q").shape for t in (q, k, v)]  # type: ignore[union-attr]
    grads = [checks.output(None, q, shape, x.dtype) for shape in shapes]
    # Rows of numbers begin at multiples of 16 bytes, so that engines can copy them.
    nq = x.shape[-2]
    delta, l2 = (
        checks.output(None, q, (*x.shape[:-2], -(-nq // 4) * 4), float32)[..., :nq] for _ in range(2)
    )
    up = 4 - x.ndim
    q4, k4, v4, o4, do4, lse4, dlse4, delta4, l24 = (
        _raised(t, up) for t in (q, k, v, o, do, lse, dlse, delta, l2)
    )
    dq, dk, dv = (_raised(t, up) for t in grads)
    constants: dict[str, Any] = {
        "scale": _scale(scale, x),
        "left": left,
        "right": right,
        "on": on,
        **(tune or {}),
    }
    given = dict(zip(("q", "k", "v", "do"), (adopt(x, "q") for x in (q4, k4, v4, do4)), strict=True))
    one = plugins.manager().hook.kittens_adds(
        target=choose_target(given, on),
        kernel=kernels.attention_backward_kv.name,
        arguments={**given, "left": left},
    )
    if not one or (tune or {}).get("BM", LEAST) < LEAST:
        launch(kernels.attention_delta, o4, do4, lse4, delta4, l24, dlse4, on=on)
        launch(kernels.attention_backward_kv, q4, k4, v4, do4, l24, delta4, dk, dv, **constants)
        launch(kernels.attention_backward_q, q4, k4, v4, do4, l24, delta4, dq, **constants)
    else:
        sums, turns = _raised(checks.output(None, q, shapes[0], float32), up), None
        shared = right is not None and x.shape[-3:-2] != y.shape[-3:-2]  # heads: then in turn is faster
        if deterministic or shared:
            blocks = (*x.shape[:-2], -(-nq // LEAST))
            turns = _raised(checks.output(None, q, blocks, int32, (int32,)), up)
        launch(kernels.attention_delta, o4, do4, lse4, delta4, l24, dlse4, sums, turns, on=on)
        launch(kernels.attention_backward_kv, q4, k4, v4, do4, l24, delta4, dk, dv, sums, turns, **constants)
        launch(kernels.copy, sums, dq, scale=constants["scale"], on=on)
    return grads[0], grads[1], grads[2]


@operation()
def attention_decode(
    q: Array, k: Array, v: Array, *, lengths: Array = None, table: Array = None, causal: bool = False,
    window: Window = None, scale: float | None = None, splits: int | None = None, return_lse: bool = False,
    dtype: Any = None, out: Array = None, on: On = None, tune: Tune = None,
) -> Any:  # fmt: skip
    """`attention` of few queries over many keys, as in decoding: q (B, H, Nq, D), k (B, Hk, N, D), v (B, Hk, N, Dv).

    lengths (B,), int32: how many keys each sequence has (its queries' own included), at most N; all unless given. With a
    table (B, most), int32, keys lie in pages: k (P, page, Hk, D), v (P, page, Hk, Dv), and row b names the pages of
    sequence b in their order; lengths are at most most * page, and page is a multiple of 16. What lies beyond a length is
    never read, nor are its entries of the table. Values of lengths and table are not checked: a length outside its range is
    cut to it, a page that there is not holds zeros.

    Keys are split into `splits` parts for programs of their own, unless given as many as keep the target's processors busy,
    at most 128, and the results of these are combined. The number follows from shapes and target, so results repeat. All
    heads of a group and their queries read keys and values once. If they are not evenly spaced in q, that is copied first.
    The other arguments, and the results, are those of `attention`.
    """
    x, hk, keys, dv = decoded(q, k, v, lengths, table)
    left, right = span(causal, window)
    b, h, nq, _ = x.shape
    o = checks.output(
        out,
        q,
        (b, h, nq, dv),
        dtype or (bfloat16 if x.dtype.is_float8 else x.dtype),
        (*checks.FLOATS, *FLOAT8),
    )
    lse = checks.output(None, q, (b, h, nq), float32) if return_lse else None
    group = h // max(hk, 1)
    grouped = (b, hk, group * nq)
    if splits is not None:
        splits = checks.count(splits, "splits", 1)
    else:
        splits = splitting.parts(
            b * hk * -(-grouped[2] // TILE_ROWS), keys, choose_target({"q": x}, on), PART_KEYS
        )
    rows = q
    if not _rows_merge(x, group):
        rows = empty(q, x.shape, x.dtype)
        if rows is None:
            raise ArgumentError(f"the queries of a group (strides {x.strides}) are not evenly spaced",
                                hint="pass a contiguous copy of q")  # fmt: skip
        launch(kernels.copy, q, rows, on=on)
    out_array = adopt(o, "out")
    assert isinstance(out_array, TensorArg)
    whole = splits == 1 and _rows_merge(out_array, group)
    parts = o if whole else checks.output(None, q, (splits, b, h, nq, dv), float32)
    part_lse = lse if whole else checks.output(None, q, (splits, b, h, nq), float32)
    constants: dict[str, Any] = {
        "scale": _scale(scale, x),
        "queries": nq,
        "left": left,
        "right": right,
        **(tune or {}),
    }
    launch(
        kernels.attention_split,
        rows.reshape((*grouped, x.shape[3])),
        k,
        v,
        parts.reshape((splits, *grouped, dv)),
        None if part_lse is None else part_lse.reshape((splits, *grouped)),
        lengths,
        table,
        on=on,
        **constants,
    )
    if not whole:
        launch(kernels.attention_combine, parts, part_lse, o, lse, on=on)
    return (o, lse) if return_lse else o


def decoded(q: Array, k: Array, v: Array, lengths: Array, table: Array) -> tuple[TensorArg, int, int, int]:
    """q described, how many key heads there are and keys of a sequence at most, and the width of v, once all fit together."""
    x = checks.described(q, "q", ATTENDED, ndim=4)
    b = x.shape[0]
    if lengths is not None:
        checks.expect(
            checks.described(lengths, "lengths", INDICES, ndim=1), "lengths", (b,), f"q of shape {x.shape}"
        )
    if table is None:
        _, y = dense(q, k, v, ATTENDED)
        return x, y.shape[1], y.shape[2], y.shape[3]
    if lengths is None:
        raise ArgumentError("table is given and lengths is not", hint="say how many keys each sequence has")
    pages = checks.described(table, "table", INDICES, ndim=2)
    checks.expect(pages, "table", (b, pages.shape[1]), f"a batch of {b}")
    y, z = checks.described(k, "k", (x.dtype,), ndim=4), checks.described(v, "v", (x.dtype,), ndim=4)
    checks.expect(z, "v", (*y.shape[:-1], z.shape[-1]), f"k of shape {y.shape}")
    _widths(x, y, z)
    _groups(x.shape[1], y.shape[2])
    if y.shape[1] % PAGE_STEP or not y.shape[1]:
        raise ShapeError(
            f"pages of {y.shape[1]} keys (k has shape {y.shape})",
            hint=f"they have a multiple of {PAGE_STEP}, and k is (pages, page, heads, width)",
        )
    return x, y.shape[2], y.shape[1] * pages.shape[1], z.shape[3]


def _rows_merge(x: TensorArg, group: int) -> bool:
    """Whether the queries (axis 2) of the heads of a group (of axis 1) can be viewed as one axis."""
    return group == 1 or x.shape[2] == 1 or 0 in x.shape or x.strides[1] == x.shape[2] * x.strides[2]


@operation()
def attention_varlen(
    q: Array, k: Array, v: Array, cu_q: Array, cu_k: Array, max_q: int, *, causal: bool = False,
    window: Window = None, scale: float | None = None, return_lse: bool = False, dtype: Any = None,
    out: Array = None, on: On = None, tune: Tune = None,
) -> Any:  # fmt: skip
    """`attention` of B sequences of different lengths, packed: q (Tq, H, D), k (Tk, Hk, D), v (Tk, Hk, Dv).

    Sequence b has the queries from cu_q[b] to cu_q[b + 1] and the keys from cu_k[b] to cu_k[b + 1]; cu_q and cu_k are
    (B + 1,), int32, and a sequence may be empty. max_q: how many queries one has at most. The result is (Tq, H, Dv), the
    log-sum-exp (H, Tq); both are left as they are where no sequence has a query, nor are such rows read.

    Whether the numbers in cu_q and cu_k go up, and max_q is no less than a length, is not checked, as they may lie on a
    device: bounds are cut to what there is, rows of a sequence beyond its first max_q (up to whole tiles) are not computed.
    The other arguments are those of `attention`.
    """
    x, y = packed(ATTENDED, q, k, v, cu_q, cu_k, max_q=max_q)
    left, right = span(causal, window)
    kind = dtype or (bfloat16 if x.dtype.is_float8 else x.dtype)
    o = checks.output(out, q, (*x.shape[:-1], y.shape[-1]), kind, (*checks.FLOATS, *FLOAT8))
    lse = checks.output(None, q, (x.shape[1], x.shape[0]), float32) if return_lse else None
    q3, k3, v3, o3 = (t.swapaxes(0, 1) for t in (q, k, v, o))
    constants: dict[str, Any] = {"scale": _scale(scale, x), "left": left, "right": right, **(tune or {})}
    most_q = min(max_q, x.shape[0])
    launch(kernels.attention_varlen_forward, q3, k3, v3, cu_q, cu_k, most_q, o3, lse, on=on, **constants)
    return (o, lse) if return_lse else o


@operation()
def attention_varlen_backward(
    q: Array, k: Array, v: Array, o: Array, lse: Array, do: Array, cu_q: Array, cu_k: Array, max_q: int, max_k: int, *,
    dlse: Array = None, causal: bool = False, window: Window = None, scale: float | None = None, on: On = None,
    tune: Tune = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The gradients dq, dk, dv of `attention_varlen`, from its results o and lse and the gradients do (and dlse) of these.

    max_k: how many keys a sequence has at most. The other arguments are those of `attention_varlen`; floats only. Results
    are equal from run to run, and not set where there is no sequence.
    """
    x, y = packed(checks.FLOATS, q, k, v, cu_q, cu_k, max_q=max_q, max_k=max_k)
    left, right = span(causal, window)
    for name, t in (("o", o), ("do", do)):
        wanted = (*x.shape[:-1], y.shape[-1])
        checks.expect(checks.described(t, name, (x.dtype,)), name, wanted, "the result of attention_varlen")
    for name, t in (("lse", lse), ("dlse", dlse)):
        if t is not None or name == "lse":
            wanted = (x.shape[1], x.shape[0])
            checks.expect(
                checks.described(t, name, (float32,)), name, wanted, "the log-sum-exp of attention_varlen"
            )
    shapes = [adopt(t, "q").shape for t in (q, k, v)]  # type: ignore[union-attr]
    grads = [checks.output(None, q, shape, x.dtype) for shape in shapes]
    delta, l2 = (checks.output(None, q, (x.shape[1], x.shape[0]), float32) for _ in range(2))
    q3, k3, v3, o3, do3, dq, dk, dv = (t.swapaxes(0, 1) for t in (q, k, v, o, do, *grads))
    constants: dict[str, Any] = {"scale": _scale(scale, x), "left": left, "right": right, **(tune or {})}
    rows = (x[None] for x in (o3, do3, lse, delta, l2))
    launch(kernels.attention_delta, *rows, _raised(dlse, 1), on=on)
    given, most_q, most_k = (q3, k3, v3, cu_q, cu_k), min(max_q, x.shape[0]), min(max_k, y.shape[0])
    launch(kernels.attention_varlen_backward_kv, *given, most_k, do3, l2, delta, dk, dv, on=on, **constants)
    launch(kernels.attention_varlen_backward_q, *given, most_q, do3, l2, delta, dq, on=on, **constants)
    return grads[0], grads[1], grads[2]


def packed(
    dtypes: Sequence[DType], q: Array, k: Array, v: Array, cu_q: Array, cu_k: Array, **most: Any
) -> tuple[TensorArg, TensorArg]:
    """q and v described, once all that makes packed sequences fits together."""
    x = checks.described(q, "q", dtypes, ndim=3)
    y, z = checks.described(k, "k", (x.dtype,), ndim=3), checks.described(v, "v", (x.dtype,), ndim=3)
    _widths(x, y, z)
    checks.expect(z, "v", (*y.shape[:-1], z.shape[-1]), f"k of shape {y.shape}")
    _groups(x.shape[1], y.shape[1])
    bounds = checks.described(cu_q, "cu_q", INDICES, ndim=1)
    if not bounds.shape[0]:
        raise ShapeError("cu_q is empty", hint="it has one number more than there are sequences, the first 0")
    checks.expect(
        checks.described(cu_k, "cu_k", INDICES, ndim=1), "cu_k", bounds.shape, f"cu_q of shape {bounds.shape}"
    )
    for name, n in most.items():
        checks.count(n, name, 0)
    return x, z


def dense(q: Array, k: Array, v: Array, dtypes: Sequence[DType]) -> tuple[TensorArg, TensorArg]:
    """q and v described, once q, k and v fit together."""
    x = checks.described(q, "q", dtypes, least=2)
    if x.ndim > 4:
        raise ShapeError(
            f"q has {x.ndim} axes (shape {x.shape}); attention takes (B, H, N, D)",
            hint="reshape the leading axes into one",
        )
    y, z = (
        checks.described(k, "k", (x.dtype,), ndim=x.ndim),
        checks.described(v, "v", (x.dtype,), ndim=x.ndim),
    )
    _widths(x, y, z)
    checks.expect(z, "v", (*y.shape[:-1], z.shape[-1]), f"k of shape {y.shape}")
    if x.shape[:-3] != y.shape[:-3]:
        raise ShapeError(
            f"q has a batch of {x.shape[:-3]}, k and v of {y.shape[:-3]}", hint="they have to be equal"
        )
    if x.ndim > 2:
        _groups(x.shape[-3], y.shape[-3])
    return x, z


def _widths(q: TensorArg, k: TensorArg, v: TensorArg) -> None:
    """Check the last axes of what attention is given."""
    d, dv = q.shape[-1], v.shape[-1]
    if k.shape[-1] != d:
        raise ShapeError(
            f"the head dimension of q is {d} (shape {q.shape}), that of k is {k.shape[-1]} (shape {k.shape})",
            hint="they have to be equal",
        )
    if not 1 <= d <= 256 or not 1 <= dv <= 256:
        raise ShapeError(f"head dimensions of {d} and {dv}", hint="they are from 1 to 256")


def _groups(queries: int, keys: int) -> None:
    """Check numbers of heads."""
    if queries % keys if keys else queries:
        raise ShapeError(
            f"{queries} query heads on {keys} key heads",
            hint="the number of query heads is a multiple of that of key heads",
        )


def span(causal: bool, window: Any) -> tuple[int | None, int | None]:
    """How many keys before and after its own position a query sees; None for all."""
    if window is None:
        return None, 0 if causal else None
    if isinstance(window, tuple) and len(window) == 2:
        left, right = window
        if any(w is not None and (not isinstance(w, int) or isinstance(w, bool) or w < 0) for w in window):
            raise ArgumentError(
                f"window is {window!r}", hint="(left, right) are integers of at least 0, or None for all keys"
            )
        return left, 0 if causal else right
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        raise ArgumentError(
            f"window is {window!r}", hint="it is a number of keys, at least 1, or a pair (left, right)"
        )
    return window - 1, 0 if causal else window - 1


def _scale(scale: float | None, q: TensorArg) -> float:
    return (
        1 / math.sqrt(q.shape[-1])
        if scale is None
        else checks.constant(scale, "scale", 0, math.inf, open_low=True)
    )


def _raised(x: Array, axes: int) -> Array:
    """The view of an array with `axes` more axes of extent 1 in front; None stays None."""
    for _ in range(axes if x is not None else 0):
        x = x[None]
    return x
