"""Attention for PyTorch: `kittens.torch.attention(q, k, v)`, an operator of torch with gradients, which `torch.compile`
takes without a break of the graph; `attention_varlen`, the same of packed sequences; `attention_decode`, without gradients;
and `scaled_dot_product_attention`, in the place of torch's own.

Tensors on a device are used where they lie, on torch's current stream. Tensors on the CPU are read and written in place
by the target that `on=` names: the reference unless given, or a simulated one. Importing this module imports torch, which
the extra `torch` brings; `import kittens` does not.

torch sees an operator for each, which also returns the log-sum-exp (kittens::attention, kittens::attention_varlen,
kittens::attention_decode), and for the gradients of the first two kittens::attention_backward and
kittens::attention_varlen_backward, which have no gradient of their own. All describe their results without running (on the
device "meta", under FakeTensorMode), with the refusals of `kittens.ops`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kittens import ops
from kittens.arguments import TensorArg
from kittens.dtypes import FLOAT8, as_dtype
from kittens.errors import ArgumentError, ShapeError
from kittens.ops import checks, heads

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "kittens.torch needs PyTorch: pip install 'kittens-gpu[torch]'", name="torch"
    ) from None

Tensor = Any  # torch.Tensor

__all__ = ["attention", "attention_decode", "attention_varlen", "scaled_dot_product_attention"]


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, window: heads.Window = None,
    scale: float | None = None, return_lse: bool = False, deterministic: bool = True, on: str | None = None,
) -> Any:  # fmt: skip
    """softmax(scale q k^T) v, as `kittens.ops.attention` has it, with gradients in q, k and v.

    q is (B, H, Nq, D), k (B, Hk, Nk, D), v (B, Hk, Nk, Dv); B, or B and H, may be absent; Hk divides H. causal: the last
    query sees all keys, each one before it a key less. The result has the strides of q if Dv is D. return_lse: also return
    log(sum(exp(scale q k^T))), which has a gradient too. deterministic: whether gradients are equal from run to run; if not,
    that in q is summed in no fixed order, which takes less time. Under autocast, inputs of other floats are converted first.
    There are no second derivatives.
    """
    left, right = heads.span(causal, window)
    q, k, v = _autocast(q, k, v)
    o, lse = _attention(q, k, v, left, right, scale, deterministic, on)
    return (o, lse) if return_lse else o


def attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int, *, causal: bool = False,
    window: heads.Window = None, scale: float | None = None, return_lse: bool = False, on: str | None = None,
) -> Any:  # fmt: skip
    """`attention` of packed sequences of different lengths, as `kittens.ops.attention_varlen` has it, with gradients.

    q is (Tq, H, D), k (Tk, Hk, D), v (Tk, Hk, Dv); cu_q and cu_k (B + 1,), int32, say where sequences begin and end, and
    max_q and max_k how long the longest are. The result is (Tq, H, Dv), the log-sum-exp (H, Tq). Neither results nor
    gradients are set in rows that belong to no sequence. The other arguments are those of `attention`.
    """
    left, right = heads.span(causal, window)
    q, k, v = _autocast(q, k, v)
    o, lse = _attention_varlen(q, k, v, cu_q, cu_k, max_q, max_k, left, right, scale, on)
    return (o, lse) if return_lse else o


def attention_decode(
    q: Tensor, k: Tensor, v: Tensor, *, lengths: Tensor = None, table: Tensor = None, causal: bool = False,
    window: heads.Window = None, scale: float | None = None, splits: int | None = None, return_lse: bool = False,
    on: str | None = None,
) -> Any:  # fmt: skip
    """`attention` of few queries over many keys, dense or in pages, as `kittens.ops.attention_decode` has it; no gradients.

    q is (B, H, Nq, D), k (B, Hk, N, D), v (B, Hk, N, Dv), and lengths (B,), int32, says how many keys each sequence has.
    With a table (B, most), int32, k is (P, page, Hk, D) and v (P, page, Hk, Dv).
    """
    left, right = heads.span(causal, window)
    q, k, v = _autocast(q, k, v)
    o, lse = _attention_decode(q, k, v, lengths, table, left, right, scale, splits, on)
    return (o, lse) if return_lse else o


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False, on: str | None = None,
) -> Any:  # fmt: skip
    """`torch.nn.functional.scaled_dot_product_attention`, run by kittens, with torch's meaning of each argument.

    is_causal: the first query sees the first key alone, each one after it a key more (`attention` counts from the other
    end, which differs if there are more keys than queries, or fewer). Masks and dropout are refused.
    """
    if attn_mask is not None:
        raise ArgumentError(
            "attn_mask is given, and these kernels take no mask",
            hint="say is_causal=True, or window= of kittens.torch.attention; else call torch's own function",
        )
    if dropout_p != 0.0:
        raise ArgumentError(
            f"dropout_p is {dropout_p!r}, and these kernels drop nothing",
            hint="pass 0.0, as in evaluation; else call torch's own function",
        )
    if not enable_gqa and query.ndim > 2 and key.ndim > 2 and query.shape[-3] != key.shape[-3]:
        raise ShapeError(
            f"{query.shape[-3]} query heads on {key.shape[-3]} key heads",
            hint="say enable_gqa=True if query heads share key heads",
        )
    if is_causal and query.ndim > 1 and key.ndim > 1:
        queries, keys = query.shape[-2], key.shape[-2]
        if keys > queries:  # nobody sees those after the last query's
            key, value = key[..., :queries, :], value[..., :queries, :]
        elif keys < queries:
            return attention(query, key, value, window=(None, queries - keys), scale=scale, on=on)
    return attention(query, key, value, causal=is_causal, scale=scale, on=on)


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the type that autocast asks for where it is on, as torch's attention has them."""
    device = tensors[0].device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return tensors
    wanted = torch.get_autocast_dtype(device)
    floats = (torch.float32, torch.float16, torch.bfloat16)
    return tuple(t.to(wanted) if t.dtype in floats else t for t in tensors)


# The operators.


def _forward(
    q: Tensor, k: Tensor, v: Tensor, left: int | None, right: int | None, scale: float | None, deterministic: bool,
    on: str | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    o = _result(q, v)
    _, lse = ops.attention(
        *map(_array, (q, k, v)), window=(left, right), scale=scale, return_lse=True, out=_array(o), on=on
    )
    return o, _tensor(lse, torch.float32)


def _backward(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, dlse: Tensor, left: int | None,
    right: int | None, scale: float | None, deterministic: bool, on: str | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    given = (_array(t) for t in (q, k, v, o, lse, _spread(do)))
    grads = ops.attention_backward(
        *given, dlse=_array(dlse), window=(left, right), scale=scale, deterministic=deterministic, on=on
    )
    return tuple(_tensor(g, q.dtype) for g in grads)


def _varlen_forward(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int, left: int | None,
    right: int | None, scale: float | None, on: str | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    o, given = _result(q, v), map(_array, (q, k, v, cu_q, cu_k))
    options: dict[str, Any] = {"window": (left, right), "scale": scale, "on": on}
    _, lse = ops.attention_varlen(*given, max_q, return_lse=True, out=_array(o), **options)
    return o, _tensor(lse, torch.float32)


def _varlen_backward(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, dlse: Tensor, cu_q: Tensor, cu_k: Tensor,
    max_q: int, max_k: int, left: int | None, right: int | None, scale: float | None, on: str | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    given = map(_array, (q, k, v, o, lse, _spread(do), cu_q, cu_k))
    options: dict[str, Any] = {"window": (left, right), "scale": scale, "on": on}
    grads = ops.attention_varlen_backward(*given, max_q, max_k, dlse=_array(dlse), **options)
    return tuple(_tensor(g, q.dtype) for g in grads)


def _decode(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, table: Tensor, left: int | None, right: int | None,
    scale: float | None, splits: int | None, on: str | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    o, options = _result(q, v), {"window": (left, right), "scale": scale, "splits": splits, "on": on}
    options |= {"lengths": _array(lengths), "table": _array(table), "out": _array(o)}
    _, lse = ops.attention_decode(*map(_array, (q, k, v)), return_lse=True, **options)
    return o, _tensor(lse, torch.float32)


def _result(q: Tensor, v: Tensor) -> Tensor:
    """A new tensor for the result: laid out as q is, so that heads split from rows of a model are joined with no copy."""
    dtype = torch.bfloat16 if as_dtype(_name(q)) in FLOAT8 else q.dtype
    if v.shape[-1] == q.shape[-1]:
        return torch.empty_like(q, dtype=dtype)
    return q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=dtype)


def _spread(t: Tensor) -> Tensor:
    """The tensor with memory of its own for each element: gradients of sums come as one number seen everywhere."""
    return t.contiguous() if 0 in t.stride() else t


def _name(t: Tensor) -> str:
    return str(t.dtype)[6:]  # without "torch."


def _array(t: Tensor) -> Any:
    """What kittens is given: a tensor of a device as it is, the memory of one on the CPU as a NumPy array."""
    if t is None or t.device.type != "cpu":
        return t
    dtype, t = as_dtype(_name(t)).numpy, t.detach().resolve_neg()
    bits = {1: torch.uint8, 2: torch.int16}.get(t.element_size())
    return t.view(bits).numpy().view(dtype) if bits else t.numpy()


def _tensor(x: Any, dtype: Any) -> Tensor:
    """A result of kittens as a tensor of this type."""
    if not isinstance(x, np.ndarray):
        return x
    return torch.from_numpy(x.view(np.int16)).view(dtype) if x.itemsize == 2 else torch.from_numpy(x)


# What their results are, without running.


def _described(t: Tensor) -> Any:
    """What `kittens.ops` checks of an argument."""
    return None if t is None else TensorArg(as_dtype(_name(t)), tuple(t.shape), ())


def _forward_fake(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    heads.dense(_described(q), _described(k), _described(v), heads.ATTENDED)
    return _result(q, v), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _backward_fake(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, ...]:
    heads.dense(_described(q), _described(k), _described(v), checks.FLOATS)
    return tuple(t.new_empty(t.shape) for t in (q, k, v))


def _varlen_fake(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    heads.packed(heads.ATTENDED, *map(_described, (q, k, v, cu_q, cu_k)))
    return _result(q, v), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


def _decode_fake(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, table: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    heads.decoded(*map(_described, (q, k, v, lengths, table)))
    return _result(q, v), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _varlen_backward_fake(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return tuple(t.new_empty(t.shape) for t in (q, k, v))


# How they are differentiated.


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Note what the gradient is computed from."""
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:3], *output)
    ctx.constants = inputs[3:]


def _gradient(ctx: Any, do: Tensor, dlse: Tensor) -> tuple[Any, ...]:
    """The gradients in the inputs; None for constants."""
    q, k, v, o, lse = ctx.saved_tensors
    do = torch.zeros_like(o) if do is None else do
    return (*_attention_backward(q, k, v, o, lse, do, dlse, *ctx.constants), None, None, None, None, None)


def _varlen_keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:5], *output)
    ctx.constants = inputs[5:]


def _varlen_gradient(ctx: Any, do: Tensor, dlse: Tensor) -> tuple[Any, ...]:
    q, k, v, cu_q, cu_k, o, lse = ctx.saved_tensors
    do = torch.zeros_like(o) if do is None else do
    grads = _attention_varlen_backward(q, k, v, o, lse, do, dlse, cu_q, cu_k, *ctx.constants)
    return (*grads, *(None,) * (2 + len(ctx.constants)))


_WINDOW = "SymInt? left, SymInt? right, float? scale"
_CONSTANTS = f"{_WINDOW}, bool deterministic, str? on"
#: Results have strides that follow from those of q: torch.compile is not to change these.
_TAGS = (torch.Tag.needs_exact_strides,)

_attention = torch.library.custom_op(
    "kittens::attention",
    _forward,
    mutates_args=(),
    schema=f"(Tensor q, Tensor k, Tensor v, {_CONSTANTS}) -> (Tensor, Tensor)",
    tags=_TAGS,
)
_attention_backward = torch.library.custom_op(
    "kittens::attention_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor do, Tensor? dlse,"
    f" {_CONSTANTS}) -> (Tensor, Tensor, Tensor)",
    tags=_TAGS,
)
_PACKED = "Tensor cu_q, Tensor cu_k, SymInt max_q, SymInt max_k"
_attention_varlen = torch.library.custom_op(
    "kittens::attention_varlen",
    _varlen_forward,
    mutates_args=(),
    schema=f"(Tensor q, Tensor k, Tensor v, {_PACKED}, {_WINDOW}, str? on) -> (Tensor, Tensor)",
    tags=_TAGS,
)
_attention_varlen_backward = torch.library.custom_op(
    "kittens::attention_varlen_backward",
    _varlen_backward,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor do, Tensor? dlse,"
    f" {_PACKED}, {_WINDOW}, str? on) -> (Tensor, Tensor, Tensor)",
    tags=_TAGS,
)
_attention_decode = torch.library.custom_op(
    "kittens::attention_decode",
    _decode,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor? lengths, Tensor? table, SymInt? left, SymInt? right,"
    " float? scale, SymInt? splits, str? on) -> (Tensor, Tensor)",
    tags=_TAGS,
)
_attention_varlen.register_fake(_varlen_fake)
_attention_varlen_backward.register_fake(_varlen_backward_fake)
_attention_varlen.register_autograd(_varlen_gradient, setup_context=_varlen_keep)
_attention_decode.register_fake(_decode_fake)
_attention.register_fake(_forward_fake)
_attention_backward.register_fake(_backward_fake)
_attention.register_autograd(_gradient, setup_context=_keep)
