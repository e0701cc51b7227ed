"""Attention backward by plans with roles: products made transposed, vectors dealt to lanes, what passes leave under way."""

from __future__ import annotations

import numpy as np
import pytest

import kittens as kt
from kittens import kernels, layouts, ops
from kittens.backends.cuda import tunables
from kittens.backends.cuda.compile import available
from kittens.backends.cuda.machine import machine
from kittens.codegen.placement import dealt_vector, sides
from kittens.codegen.plan import Plan, make_plan
from kittens.targets import Target

WIDTHS = (32, 64, 80, 96, 128)
SPANS = ({}, {"right": 0}, {"left": 511, "right": 0})


def arguments(width: int, heads: int = 4, kept: int = 2) -> list:
    """What attention_backward_kv takes, 2 sequences of 1000 queries and 1100 keys."""
    q, k = (kt.spec(kt.bfloat16, (2, h, n, width)) for h, n in ((heads, 1000), (kept, 1100)))
    rows = kt.spec(kt.float32, (2, heads, 1000))
    return [q, k, k, q, rows, rows, k, k]


def shipped(width: int, left: int | None = None) -> dict[str, int]:
    """The tiles that the backend chooses for it."""
    kernel = kernels.attention_backward_kv
    bound = dict(zip(("q", "k", "v", "do", "l2", "delta", "dk", "dv"), arguments(width), strict=True))
    bound["left"] = left
    return tunables.shipped(Target("cuda", arch="sm_90a"), kernel.name, bound)


def plan(width: int) -> Plan:
    function = kernels.attention_backward_kv.ir(*arguments(width), scale=0.1, **shipped(width))
    return make_plan(function, machine("sm_90a"))


@pytest.mark.parametrize("width", WIDTHS)
def test_keys_and_values_get_their_gradients_by_the_engine(width: int) -> None:
    made = plan(width)
    assert made.roles is not None and made.roles.teams == 2
    matrices = made.placement.products
    scores = [op for op, m in matrices.items() if m.swapped]
    (ends,) = made.roles.ends.values()
    assert len(scores) == 2 and [op for op in matrices if op not in scores] == ends
    assert not made.roles.late
    for op in scores:  # the engine's left operand is the tile of keys or values
        (left, turned), (right, flipped) = sides(op, swapped=True)
        assert made.staged[left].loop is None and made.staged[right].loop is not None
        assert not turned and flipped
    for op in ends:  # probabilities, and their gradients, lie where the products take them from
        (left, turned), _ = sides(op, swapped=False)
        held = made.placement.layouts[left]
        assert turned and layouts.renaming(layouts.transpose(held), matrices[op].a) == tuple(
            range(held.registers)
        )


def test_tiles_of_a_pass_share_a_ring() -> None:
    made = plan(128)
    assert made.roles is not None
    assert sorted(len(ring.tiles) for ring in made.roles.rings) == [2, 2]
    inner = next(ring for ring in made.roles.rings if ring.loop is not None)
    assert set(inner.users) == set(made.placement.products) and inner.depth >= 2


@pytest.mark.parametrize(("extent", "registers"), [(16, 1), (48, 3), (64, 2), (96, 3)])
def test_every_group_holds_a_dealt_vector(extent: int, registers: int) -> None:
    layout = dealt_vector(extent, 32, 8)
    held = layouts.elements(layout)
    assert layout.shape == (extent,) and layout.registers == registers
    for group in held:
        assert set(group.reshape(-1).tolist()) == set(range(extent))


def test_vectors_along_columns_are_dealt_and_read_from_shared_memory_of_the_group() -> None:
    made = plan(128)
    assert made.roles is not None and len(made.roles.dealt) == 2
    places = sorted(made.roles.dealt.values())
    assert places[0] + 8 * 48 * 4 <= places[1] and places[1] + 8 * 48 * 4 <= made.roles.end


def test_a_pass_hands_back_what_the_one_before_read() -> None:
    """Slots that products of the end of a pass read go back once the first product of the next has come."""
    text = str(kernels.attention_backward_kv.source("cuda:sm_90a", *arguments(64), scale=0.1, **shipped(64)))
    loop = text[text.index("KT_ONCE", text.index("kt_registers_more")) :]
    kept = loop.index("q_empty + q_read * 8")
    assert loop.index("kt_engine_wait<0>") < kept < loop.index("q_read = q_slot")
    assert loop.index("KT_EXP2_ALL") > kept


@pytest.mark.parametrize("span", SPANS, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_shipped_tiles_compile_without_spills(width: int, span: dict) -> None:
    if available():
        pytest.skip(available())
    found = kernels.attention_backward_kv.resources(
        "cuda:sm_90a", *arguments(width), scale=0.1, **span, **shipped(width, span.get("left"))
    )
    assert found["spilled_bytes"] == 0


@pytest.mark.parametrize(
    ("shape", "span"),
    [((1, 4, 2, 130, 150, 64), {"causal": True}), ((1, 2, 1, 100, 140, 128), {}),
     ((2, 2, 2, 113, 177, 96), {"causal": True, "window": 50}), ((1, 2, 2, 40, 300, 80), {"causal": True})],
    ids=str,
)  # fmt: skip
def test_gradients_by_the_engine_are_the_references(shape: tuple[int, ...], span: dict) -> None:
    import ml_dtypes

    b, h, kept, nq, nk, d = shape
    rng = np.random.default_rng(sum(shape))

    def normal(*extents: int) -> np.ndarray:
        return rng.standard_normal(extents, dtype=np.float32).astype(ml_dtypes.bfloat16)

    q, k, v, do = normal(b, h, nq, d), normal(b, kept, nk, d), normal(b, kept, nk, d), normal(b, h, nq, d)
    o, lse = ops.attention(q, k, v, return_lse=True, on="numpy", **span)
    got = ops.attention_backward(q, k, v, o, lse, do, on="cuda:sm_90a@sim", **span)
    want = ops.attention_backward(q, k, v, o, lse, do, on="numpy", **span)
    for x, y in zip(got, want, strict=True):
        x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
        assert np.abs(x - y).max() <= 2.0**-8 * np.abs(y).max()
