"""kittens.torch: torch's own attention is the yardstick, on the CPU and, where there is one, on a GPU."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="no torch: pip install 'kittens-gpu[torch]'")

import torch.nn.functional as F  # noqa: E402

import kittens.torch as face  # noqa: E402
from kittens import ops  # noqa: E402
from kittens.errors import ArgumentError, DTypeError, ShapeError  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sdpa = F.scaled_dot_product_attention


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.device)])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    return request.param


def made(*shape: int, device: str = "cpu", dtype: Any = torch.float32, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float32)
    return x.to(device=device, dtype=dtype).requires_grad_()


def operands(
    heads: int = 2, kv_heads: int = 2, queries: int = 33, keys: int = 33, width: int = 16, **how: Any
) -> tuple[Any, Any, Any]:
    return (
        made(2, heads, queries, width, seed=1, **how),
        made(2, kv_heads, keys, width, seed=2, **how),
        made(2, kv_heads, keys, width, seed=3, **how),
    )


def with_gradients(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    """The result, and the gradients in the inputs of a sum of it with weights."""
    result = function(*inputs)
    weights = made(*result.shape, device=result.device.type, seed=9).detach().to(result.dtype)
    return [result, *torch.autograd.grad((result * weights).sum(), inputs)]


def all_close(found: list[Any], wanted: list[Any], **tolerance: float) -> None:
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


# The same as torch's own.

LENGTHS = [(33, 33), (20, 50), (50, 20), (1, 37), (65, 1)]
HEADS = [(2, 2), (4, 2), (3, 1)]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("lengths", "heads"), [*itertools.product(LENGTHS, HEADS)])
def test_it_is_a_drop_in(lengths, heads, causal, device) -> None:
    """In float32 both round differently, and torch's default tolerances for float32 hold."""
    inputs = operands(*heads, *lengths, device=device)
    options = {"is_causal": causal, "enable_gqa": heads[0] != heads[1]}
    found = with_gradients(lambda *x: face.scaled_dot_product_attention(*x, **options), *inputs)
    all_close(found, with_gradients(lambda *x: sdpa(*x, **options), *inputs), rtol=2e-5, atol=2e-5)


def test_scale_is_torchs(device) -> None:
    inputs = operands(device=device)
    found = with_gradients(lambda *x: face.scaled_dot_product_attention(*x, scale=0.7), *inputs)
    all_close(found, with_gradients(lambda *x: sdpa(*x, scale=0.7), *inputs), rtol=2e-5, atol=2e-5)
    other = face.scaled_dot_product_attention(*inputs)
    assert (found[0] - other).abs().max() > 1e-2


@pytest.mark.parametrize("axes", [2, 3])
def test_batch_and_heads_may_be_absent(axes, device) -> None:
    inputs = [made(*(3, 21, 16)[3 - axes :], seed=seed, device=device) for seed in range(3)]
    found = with_gradients(lambda *x: face.scaled_dot_product_attention(*x, is_causal=True), *inputs)
    all_close(found, with_gradients(lambda *x: sdpa(*x, is_causal=True), *inputs), rtol=2e-5, atol=2e-5)


def test_causal_and_window_count_from_the_last_key(device) -> None:
    queries, keys = 20, 50
    inputs = operands(queries=queries, keys=keys, device=device)
    position = torch.arange(queries)[:, None] + keys - queries
    seen = (torch.arange(keys) <= position) & (torch.arange(keys) > position - 7)
    found = with_gradients(lambda *x: face.attention(*x, causal=True, window=7), *inputs)
    wanted = with_gradients(lambda *x: sdpa(*x, attn_mask=seen.to(device)), *inputs)
    all_close(found, wanted, rtol=2e-5, atol=2e-5)


def test_the_log_sum_exp_has_a_gradient(device) -> None:
    q, k, v = operands(device=device)

    def ours(q: Any, k: Any, v: Any) -> Any:
        o, lse = face.attention(q, k, v, return_lse=True)
        return o.sum(-1) + lse

    def plain(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.transpose(-1, -2) / 4
        return (scores.softmax(-1) @ v).sum(-1) + scores.logsumexp(-1)

    all_close(with_gradients(ours, q, k, v), with_gradients(plain, q, k, v), rtol=2e-5, atol=2e-5)


def test_a_gradient_through_the_log_sum_exp_alone(device) -> None:
    q, k, v = operands(device=device)
    dq, dv = torch.autograd.grad(face.attention(q, k, v, return_lse=True)[1].sum(), (q, v))
    (wanted,) = torch.autograd.grad((q @ k.transpose(-1, -2) / 4).logsumexp(-1).sum(), (q,))
    torch.testing.assert_close(dq, wanted, rtol=2e-5, atol=2e-5)
    assert not dv.any()


def test_gradients_that_come_as_one_number_everywhere(device) -> None:
    """The gradient of a sum has strides of 0."""
    inputs = operands(device=device)
    all_close(
        list(torch.autograd.grad(face.attention(*inputs).sum(), inputs)),
        list(torch.autograd.grad(sdpa(*inputs).sum(), inputs)),
        rtol=2e-5,
        atol=2e-5,
    )


# The same as kittens.ops.

BITS = {"bfloat16": np.int16, "float16": np.int16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_on_the_cpu_it_gives_what_ops_gives(name) -> None:
    tensors = [t.detach().to(getattr(torch, name)) for t in operands(width=32)]
    bits = BITS[name]
    torch_bits = {np.int16: torch.int16, np.uint8: torch.uint8}[bits]
    numpy_dtype = np.dtype("float16") if name == "float16" else np.dtype(getattr(ml_dtypes, name))
    arrays = [t.view(torch_bits).numpy().view(numpy_dtype) for t in tensors]
    o, lse = face.attention(*tensors, causal=True, return_lse=True)
    wanted, wanted_lse = ops.attention(*arrays, causal=True, return_lse=True)
    assert o.dtype == (torch.float16 if name == "float16" else torch.bfloat16)
    assert np.array_equal(o.view(torch.int16).numpy(), wanted.view(np.int16))
    assert np.array_equal(lse.numpy(), wanted_lse)
    if name.startswith("float8"):
        return
    inputs = [t.requires_grad_() for t in tensors]
    do = made(*o.shape, seed=5).detach().to(o.dtype)
    found = torch.autograd.grad(face.attention(*inputs, causal=True), inputs, do)
    do_array = do.view(torch.int16).numpy().view(numpy_dtype)
    expected = ops.attention_backward(*arrays, wanted, wanted_lse, do_array, causal=True)
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a.view(torch.int16).numpy(), b.view(np.int16))


@pytest.mark.sim
@pytest.mark.parametrize("on", ["cuda:sm_80@sim", "hip:gfx950@sim", "metal@sim"])
def test_a_simulated_target_by_name(on) -> None:
    pytest.importorskip("ziglang")
    inputs = operands(4, 2, 20, 33)
    found = with_gradients(lambda *x: face.attention(*x, causal=True, on=on), *inputs)
    wanted = with_gradients(lambda *x: face.attention(*x, causal=True), *inputs)
    all_close(found, wanted, rtol=2e-5, atol=2e-5)


def test_heads_split_from_rows_are_joined_without_a_copy(device) -> None:
    rows = made(2, 19, 3 * 4 * 16, device=device)
    q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in rows.chunk(3, -1))
    o = face.attention(q, k, v)
    joined = o.transpose(1, 2).flatten(2)
    assert joined.data_ptr() == o.data_ptr()
    torch.testing.assert_close(o, sdpa(q, k, v), rtol=2e-5, atol=2e-5)


def test_values_of_another_width_than_keys(device) -> None:
    q, k, _ = operands(device=device)
    v = made(2, 2, 33, 24, seed=4, device=device)
    found = with_gradients(face.attention, q, k, v)
    all_close(found, with_gradients(sdpa, q, k, v), rtol=2e-5, atol=2e-5)


# An operator as torch wants it.


@pytest.mark.parametrize("strided", [False, True], ids=["whole", "views"])
@pytest.mark.parametrize(
    "constants", [(None, None, None, True, None), (3, 0, 0.5, False, None)], ids=["full", "window"]
)
def test_torchs_own_checks_of_operators(constants, strided, device) -> None:
    q, k, v = operands(4, 2, 9, 17, device=device)
    if strided:
        q, k, v = (
            t.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for t in (q, k, v)
        )
    torch.library.opcheck(face._attention, (q, k, v, *constants))
    o, lse = face._attention(q, k, v, *constants)
    given = [t.detach() for t in (q, k, v, o, lse, o, lse)]
    torch.library.opcheck(face._attention_backward, (*given, *constants))
    torch.library.opcheck(face._attention_backward, (*given[:6], None, *constants))


def graphs_of(function: Callable[..., Any], **how: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The function compiled as one graph, and a list of the graphs that torch has made of it."""
    graphs: list[Any] = []

    def note(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.backends.debugging.aot_eager(graph, inputs)

    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=note, **how), graphs


@pytest.mark.parametrize("autocast", [False, True])
def test_it_compiles_as_one_graph(autocast, device) -> None:
    def model(q: Any, k: Any, v: Any) -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            o, lse = face.attention(q * 2, k, v, causal=True, window=9, return_lse=True)
            other = face.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return o + other * lse[..., None].to(o.dtype)

    inputs = operands(4, 2, device=device)
    compiled, graphs = graphs_of(model)
    found = with_gradients(compiled, *inputs)
    assert len(graphs) == 1
    called = [n for n in graphs[0].graph.nodes if "kittens" in str(n.target)]
    assert len(called) == 2, "both calls are operators of the graph"
    assert found[0].dtype == (torch.bfloat16 if autocast else torch.float32)
    all_close(found, with_gradients(model, *inputs), rtol=0, atol=0)


@pytest.mark.parametrize("more", [0, 5, -5], ids=["square", "more keys", "fewer keys"])
def test_one_graph_serves_all_lengths(more) -> None:
    compiled, graphs = graphs_of(
        lambda *x: face.scaled_dot_product_attention(*x, is_causal=True), dynamic=True
    )
    first = 0
    for n in (33, 21, 70):
        inputs = operands(queries=n, keys=n + more)
        found = with_gradients(compiled, *inputs)
        all_close(found, with_gradients(lambda *x: sdpa(*x, is_causal=True), *inputs), rtol=2e-5, atol=2e-5)
        first = first or len(graphs)  # torch may need more than one attempt at the first
    assert len(graphs) == first


def test_autocast_converts_as_for_torchs_own(device) -> None:
    inputs = operands(device=device)
    with torch.autocast(device, torch.bfloat16):
        found = with_gradients(face.scaled_dot_product_attention, *inputs)
        wanted = sdpa(*inputs)
    assert found[0].dtype == wanted.dtype == torch.bfloat16
    assert {g.dtype for g in found[1:]} == {torch.float32}
    exact = sdpa(*(t.detach().to(torch.bfloat16).double() for t in inputs))
    worst = (found[0].double() - exact).abs().max()
    assert worst <= 2**-7 * exact.abs().max()


def test_shapes_are_known_without_running() -> None:
    q = torch.empty(2, 4, 33, 16, device="meta", dtype=torch.float16)
    k, v = q[:, :2], torch.empty(2, 2, 33, 24, device="meta", dtype=torch.float16)
    o, lse = face.attention(q, k, v, return_lse=True)
    assert (o.shape, o.dtype) == ((2, 4, 33, 24), torch.float16)
    assert (lse.shape, lse.dtype) == ((2, 4, 33), torch.float32)


def test_there_is_no_second_derivative() -> None:
    q, k, v = operands()
    (dq,) = torch.autograd.grad(face.attention(q, k, v).square().sum(), (q,), create_graph=True)
    with pytest.raises(RuntimeError, match="attention_backward"):
        dq.sum().backward()


# What is refused.


@pytest.mark.parametrize("on", ["cpu", "meta"])
def test_shapes_and_types_that_do_not_fit(on) -> None:
    q, k, v = (t.detach().to(on) for t in operands())
    with pytest.raises(ShapeError, match="head dimension"):
        face.attention(q, k[..., :8], v)
    with pytest.raises(ShapeError, match="query heads"):
        face.attention(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1))
    with pytest.raises(DTypeError, match="float64"):
        face.attention(q.double(), k.double(), v.double())
    with pytest.raises(DTypeError, match="k is bfloat16"):
        face.attention(q, k.bfloat16(), v)


def test_what_the_kernels_do_not_do_is_refused() -> None:
    q, k, v = operands(4, 2)
    with pytest.raises(ArgumentError, match=r"no mask(.|\n)*is_causal=True"):
        face.scaled_dot_product_attention(q, k, v, torch.ones(33, 33, dtype=torch.bool))
    with pytest.raises(ArgumentError, match=r"dropout_p is 0\.1"):
        face.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
    with pytest.raises(ShapeError, match="enable_gqa=True"):
        face.scaled_dot_product_attention(q, k, v)
    with pytest.raises(ArgumentError, match="window"):
        face.attention(q, k, v, window=0)
    with pytest.raises(ArgumentError, match="scale"):
        face.attention(q, k, v, scale=-1.0)


# Packed sequences, and decoding.

QUERIES, KEYS = (20, 0, 33, 7), (20, 5, 50, 3)


def packed(device: str = "cpu", **how: Any) -> tuple[list[Any], list[Any]]:
    """q, k and v, and what says where sequences lie and how long they are."""
    cu = [
        torch.tensor((0, *itertools.accumulate(n)), dtype=torch.int32, device=device) for n in (QUERIES, KEYS)
    ]
    tensors = [made(sum(QUERIES), 4, 16, seed=1, device=device, **how)]
    tensors += [made(sum(KEYS), 2, 16, seed=seed, device=device, **how) for seed in (2, 3)]
    return tensors, [*cu, max(QUERIES), max(KEYS)]


def one_by_one(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """Attention of each sequence by itself, packed again."""
    pieces = zip(q.split(QUERIES), k.split(KEYS), v.split(KEYS), strict=True)
    found = [face.attention(*(t.transpose(0, 1) for t in piece), **options) for piece in pieces]
    return torch.cat([o.transpose(0, 1) for o in found])


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (9, 2), "scale": 0.5}], ids=str)
def test_packed_sequences_do_not_see_each_other(options, device) -> None:
    tensors, layout = packed(device)
    found = with_gradients(lambda *x: face.attention_varlen(*x, *layout, **options), *tensors)
    all_close(found, with_gradients(lambda *x: one_by_one(*x, **options), *tensors), rtol=2e-5, atol=2e-5)


def test_the_log_sum_exp_of_packed_sequences_has_a_gradient(device) -> None:
    tensors, layout = packed(device)

    def ours(q: Any, k: Any, v: Any) -> Any:
        return face.attention_varlen(q, k, v, *layout, return_lse=True)[1].T

    def plain(q: Any, k: Any, v: Any) -> Any:
        pieces = zip(q.split(QUERIES), k.split(KEYS), v.split(KEYS), strict=True)
        found = [face.attention(*(t.transpose(0, 1) for t in x), return_lse=True)[1].T for x in pieces]
        return torch.cat(found) + 0 * v.sum()

    all_close(with_gradients(ours, *tensors), with_gradients(plain, *tensors), rtol=2e-5, atol=2e-5)


def test_torchs_own_checks_of_the_operator_of_packed_sequences(device) -> None:
    tensors, layout = packed(device)
    torch.library.opcheck(face._attention_varlen, (*tensors, *layout, None, 0, None, None))


def test_packed_sequences_compile_as_one_graph(device) -> None:
    tensors, layout = packed(device)
    compiled, graphs = graphs_of(lambda *x: face.attention_varlen(*x, *layout, causal=True))
    found = with_gradients(compiled, *tensors)
    wanted = with_gradients(lambda *x: face.attention_varlen(*x, *layout, causal=True), *tensors)
    all_close(found, wanted, rtol=0, atol=0)
    assert len(graphs) == 1


@pytest.mark.parametrize("splits", [None, 3])
@pytest.mark.parametrize("paged", [False, True], ids=["dense", "paged"])
def test_decoding_is_attention_to_the_keys_that_there_are(paged, splits, device) -> None:
    q, k, v = (t.detach() for t in operands(4, 2, 3, 80, device=device))
    lengths = torch.tensor([80, 37], dtype=torch.int32, device=device)
    options: dict[str, Any] = {"lengths": lengths, "causal": True, "splits": splits}
    if paged:
        table = torch.randperm(10).view(2, 5).to(device=device, dtype=torch.int32)
        pages = [torch.empty(10, 16, 2, 16, device=device) for _ in range(2)]
        for page, t in zip(pages, (k, v), strict=True):
            page[table.flatten().long()] = t.unflatten(2, (5, 16)).permute(0, 2, 3, 1, 4).flatten(0, 1)
        found = face.attention_decode(q, *pages, table=table, **options)
    else:
        found = face.attention_decode(q, k, v, **options)
    wanted = [face.attention(q[b], k[b, :, :n], v[b, :, :n], causal=True) for b, n in enumerate((80, 37))]
    torch.testing.assert_close(found, torch.stack(wanted), rtol=2e-5, atol=2e-5)


def test_torchs_own_checks_of_decoding(device) -> None:
    q, k, v = (t.detach() for t in operands(4, 2, 1, 40, device=device))
    lengths = torch.tensor([40, 7], dtype=torch.int32, device=device)
    torch.library.opcheck(face._attention_decode, (q, k, v, lengths, None, None, 0, None, 2, None))
    q, k, v = (t.to("meta") for t in (q, k, v))
    assert face.attention_decode(q, k, v).shape == q.shape
    with pytest.raises(ShapeError, match="query heads"):
        face.attention_decode(q[:, :3], k, v)


def test_bounds_of_sequences_are_int32() -> None:
    q = torch.empty(9, 2, 16, device="meta")
    with pytest.raises(DTypeError, match="cu_q is int64"):
        face.attention_varlen(q, q, q, *2 * (torch.empty(2, device="meta", dtype=torch.int64),), 1, 1)


# A model.


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("torch_transformer", ROOT / "examples/torch_transformer.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_transformer"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_transformer_learns_the_same(example, monkeypatch, capsys, compiled) -> None:
    """The losses of eight steps go down, and are those of torch's attention."""
    calls: list[Any] = []
    real = ops.attention_backward
    monkeypatch.setattr(ops, "attention_backward", lambda *a, **n: calls.append(a) or real(*a, **n))
    if compiled:
        plain = torch.compile
        monkeypatch.setattr(torch, "compile", lambda *a, **how: plain(*a, **how, backend="aot_eager"))
    options = ["--steps", "8", "--context", "32", "--width", "32", "--batch", "1", "--rate", "0.01"]
    worst = example.main([*options, *(["--compile"] if compiled else [])])
    assert len(calls) == 16, "two blocks, eight steps"
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:9]]
    assert float(rows[-1][1]) < float(rows[0][1]) - 0.5
    assert worst < 1e-4
