"""The peers: what PyTorch, and the libraries that it calls, take for the same work.

A peer takes the arrays of a workload by name and gives the call to time. torch is imported when one is made.
"""

from __future__ import annotations

import functools
from importlib.util import find_spec

from kittens.errors import UnavailableError

EPS = 1e-5
DROPPED = 0.1


def _torch():
    import torch

    return torch


def eager(formula):
    """A peer that calls a formula as it stands: formula(torch, **arrays)."""

    def peer(**arrays):
        torch = _torch()
        arrays.pop("out", None)
        return lambda: formula(torch, **arrays)

    return peer


def compiled(formula):
    """A peer that calls a formula as torch.compile makes it, once for all copies of the arrays."""

    @functools.cache
    def made():
        torch = _torch()
        return torch.compile(functools.partial(formula, torch), dynamic=False)

    def peer(**arrays):
        arrays.pop("out", None)
        call = made()
        return lambda: call(**arrays)

    return peer


def both(formula, **more):
    """The formula, eager and compiled, and other peers."""
    return {"torch": eager(formula), "torch.compile": compiled(formula), **more}


# Rows.


def _softmax(torch, x):
    return torch.softmax(x, -1)


def _gelu(torch, x):
    return torch.nn.functional.gelu(x)


def _rms_norm(torch, x, weight):
    return torch.nn.functional.rms_norm(x, weight.shape, weight, EPS)


def _layer_norm(torch, x, weight, bias):
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, EPS)


def _dropout_residual_layer_norm(torch, x, residual, weight, bias):
    total = torch.nn.functional.dropout(x, DROPPED) + residual
    return torch.nn.functional.layer_norm(total, weight.shape, weight, bias, EPS), total


def check_dropout(device, inputs, ours, theirs):
    """Our sums are residual or residual + x / (1 - p), the second as often as they should be; the norm is the sum's."""
    torch = _torch()
    (y, total), x, residual = ours, inputs["x"].float(), inputs["residual"].float()
    grown = x / (1 - DROPPED)
    kept = (total.float() - residual).abs() > (total.float() - residual - grown).abs()
    wanted = torch.where(kept, grown, 0.0) + residual
    normed = torch.nn.functional.layer_norm(
        wanted, x.shape[-1:], inputs["weight"].float(), inputs["bias"].float(), EPS
    )
    if abs(float(kept.float().mean()) - (1 - DROPPED)) > 0.01:  # an addend next to 0 looks like a dropped one
        return float("inf"), float("inf")
    found = device.difference(total, wanted.to(total.dtype)), device.difference(y, normed.to(y.dtype))
    return max(f[0] for f in found), max(f[1] for f in found)


def _rotary(torch, x, cos, sin):
    x0, x1 = x.chunk(2, -1)
    return torch.cat([x0 * cos - x1 * sin, x1 * cos + x0 * sin], -1).to(x.dtype)


def _cross_entropy(torch, logits, labels):
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def triton_softmax(x, out):
    """Whole rows by a kernel in Triton."""
    return _triton().softmax(x, out)


SOFTMAX = both(_softmax, triton=triton_softmax)
GELU = both(_gelu)
RMS_NORM = both(_rms_norm)
LAYER_NORM = both(_layer_norm)
DROPOUT_RESIDUAL_LAYER_NORM = both(_dropout_residual_layer_norm)
ROTARY = both(_rotary)
CROSS_ENTROPY = both(_cross_entropy)


# Products.


def mm(a, b, out):
    """cuBLAS, by way of torch.mm."""
    torch = _torch()
    mine = torch.empty_like(out)
    return lambda: torch.mm(a, b, out=mine)


def scaled_mm(fast):
    """cuBLASLt on float8 with scales of 1; fast: it accumulates in less than float32."""

    def peer(a, b, out):
        torch = _torch()
        one = torch.ones((), device=a.device)
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=out.dtype, use_fast_accum=fast)

    return peer


def row_scaled_mm(fast):
    """cuBLASLt (or what torch takes for it) on float8 with a scale for each row of a and column of b."""

    def peer(a, b, a_scale, b_scale, out):
        torch = _torch()
        rows, columns = a_scale[:, None], b_scale[None, :]
        return lambda: torch._scaled_mm(a, b, rows, columns, out_dtype=out.dtype, use_fast_accum=fast)

    return peer


def _matmul_gelu(torch, a, b, bias):
    return torch.nn.functional.gelu(torch.addmm(bias, a, b), approximate="tanh")


MATMUL_GELU = both(_matmul_gelu)


def triton_matmul(a, b, out):
    """A plain tiled product in Triton."""
    return _triton().matmul(a, b, _torch().empty_like(out))


def _triton():
    if find_spec("triton") is None:
        raise UnavailableError(
            "the peer triton is missing: pip install triton", hint="or leave it out of --vs"
        )
    from kittens.bench.workloads import triton_peers

    return triton_peers


# Attention.


def _attention(torch, q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )


def _cudnn(torch):
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION)


def attention(causal):
    """cuDNN's attention, and whatever torch itself chooses."""

    def cudnn(q, k, v, out):
        import torch
        import torch.nn.attention

        def call():
            with _cudnn(torch):
                return _attention(torch, q, k, v, causal)

        return call

    def own(q, k, v, out):
        torch = _torch()
        return lambda: _attention(torch, q, k, v, causal)

    return {"cudnn": cudnn, "torch": own}


def attention_backward(causal):
    """The gradients, by torch's own differentiation of cuDNN's attention and of its own."""

    def peer(choose):
        def made(q, k, v, do):
            import torch
            import torch.nn.attention

            inputs = [x.detach().requires_grad_() for x in (q, k, v)]
            with choose(torch):
                o = _attention(torch, *inputs, causal)
            return lambda: torch.autograd.grad(o, inputs, do, retain_graph=True)

        return made

    return {"cudnn": peer(_cudnn), "torch": peer(_anything)}


def _anything(torch):
    return torch.nn.attention.sdpa_kernel(
        [torch.nn.attention.SDPBackend.FLASH_ATTENTION, torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION]
    )


def packed_attention(causal):
    """Of packed sequences, FlashAttention as torch has it."""

    def made(q, k, v, cu, longest, out):
        torch = _torch()
        return lambda: _flash(torch, q, k, v, cu, longest, causal)[0]

    return {"torch": made}


def packed_attention_backward(causal):
    """Its gradients."""

    def made(q, k, v, cu, longest, do):
        torch = _torch()
        o, lse, *seeds = _flash(torch, q, k, v, cu, longest, causal)[:4]
        given = (do, q, k, v, o, lse, cu, cu, longest, longest, 0.0, causal, *seeds)
        return lambda: torch.ops.aten._flash_attention_backward(*given)

    return {"torch": made}


def _flash(torch, q, k, v, cu, longest, causal):
    return torch.ops.aten._flash_attention_forward(q, k, v, cu, cu, longest, longest, 0.0, causal, False)


# Launches.


def _torch_increment(x, y):
    torch = _torch()
    mine = torch.empty_like(y)
    return lambda: torch.add(x, 1.0, out=mine)


def cupy():
    """CuPy. Raises UnavailableError if it is not installed."""
    if find_spec("cupy") is None:
        raise UnavailableError(
            "CuPy is missing: pip install 'kittens-gpu[cuda]'", hint="or leave it out of --vs"
        )
    import cupy as library

    return library


def _cupy_increment(x, y):
    library = cupy()
    text = (
        'extern "C" __global__ void f(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1.0f; }'
    )
    kernel = library.RawKernel(text, "f")
    mine = _torch().empty_like(y)
    source, result = library.from_dlpack(x), library.from_dlpack(mine)

    def call():
        kernel((1,), (256,), (source, result))
        return mine

    return call


def _triton_increment(x, y):
    return _triton().increment(x, _torch().empty_like(y))


INCREMENT = {"torch": _torch_increment, "cupy": _cupy_increment, "triton": _triton_increment}
