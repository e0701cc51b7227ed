"""The judge can fail: kernels and arithmetic broken in subtle ways, each of which the suite must catch."""

# ruff: noqa: E501  (tables with one mutation a line)

from __future__ import annotations

import dataclasses
import inspect
import itertools
import sys
import textwrap
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cut_products import cut_product

import kittens as kt
from kittens import kernels, runtime
from kittens.conformance import Case, In, Out, Row, all_cases, examine, select
from kittens.dtypes import as_dtype, convert
from kittens.kernel import Kernel
from kittens.opset import OPS, Call
from kittens.opset.random import philox
from kittens.targets import parse

NUMPY = parse("numpy")


def rows(pattern: str, *, limit: int | None = None) -> list[Row]:
    cases = select(all_cases().values(), pattern)
    assert cases, f"no case matches {pattern!r}"
    return [examine(case, NUMPY) for case in cases[:limit]]


def failed(found: list[Row]) -> list[Row]:
    return [row for row in found if row.verdict == "failed"]


# Wrong kernel texts, against the formula of the books; and wrong implementations of right texts, against the
# judge.


class Miscompiled(Kernel):
    """A kernel whose runs do what another one says."""

    def __init__(self, right: Kernel, wrong: Kernel):
        super().__init__(right.function, right.grid)
        self.wrong = wrong

    def __call__(self, *args: Any, on: Any = None, **constants: Any) -> runtime.Run:
        return dataclasses.replace(self.wrong(*args, on=on, **constants), kernel=self.name)


def mutant(kernel: Kernel, old: str, new: str) -> Kernel:
    """The kernel with a piece of its text changed, or else of a function that it is written with."""
    names = dict(vars(sys.modules[kernel.function.__module__]))

    def changed(function: Any) -> bool:
        source = textwrap.dedent(inspect.getsource(function))
        exec(compile(source.replace(old, new), function.__code__.co_filename, "exec"), names)
        return old in source

    used = [names[n] for n in kernel.function.__code__.co_names if inspect.isfunction(names.get(n))]
    if not changed(kernel.function):
        helper = next((f for f in used if old in inspect.getsource(f)), None)
        assert helper, f"{kernel.name} no longer says {old!r}: choose another mutation"
        names |= {n: x for n, x in helper.__globals__.items() if n not in names}
        changed(helper)
    made = names[kernel.name]
    assert isinstance(made, Kernel)
    return made


TEXTS = {
    "later parts weigh less": (
        kernels.attention_combine,
        "weight[:, None] *",
        "0.99 * weight[:, None] *",
        "float32/5",
    ),
    "parts begin too late": (
        kernels.attention_split,
        "lo + s * share",
        "lo + s * (share + 1)",
        "float32/2x2x4x1x150x32x32/None:0",
    ),
    "a page too early": (
        kernels.attention_split,
        "n - number * page",
        "n - (number + 1) * page",
        "float32/2x2x4x1x150x32x32/None:0-pages-16",
    ),
    "the keys of the neighbour": (
        kernels.attention_varlen_forward,
        "kt.load(cu[b + 1])",
        "kt.load(cu[b + 1]) + 1",
        "float32/1x1x32x32",
    ),
    "wrong scale": (
        kernels.attention_forward,
        "scale * LOG2E",
        "scale * LOG2E * 1.001",
        "float32/1x1x1x64x64x64x64/None:None",
    ),
    "dropped last block": (
        kernels.matmul,
        "kt.cdiv(a.shape[1], BK)",
        "a.shape[1] // BK",
        "float32/65x63x129",
    ),
    "the last part is too short": (
        kernels.matmul_split,
        "kt.cdiv(blocks, parts.shape[0])",
        "blocks // parts.shape[0]",
        "float32/70x66x300-by-3",
    ),
    "the last parts forgotten": (
        kernels.matmul_combine,
        "kt.cdiv(parts.shape[0], BS)",
        "parts.shape[0] // BS",
        "float32/37",
    ),
    "bf16 accumulation": (
        kernels.matmul,
        "acc = _summed(acc, x, y, accumulate)",
        "acc = _summed(acc, x, y, accumulate).to(kt.bfloat16).to(kt.float32)",
        "float32/65x63x129",
    ),
    "no maximum subtracted": (kernels.softmax, "s - base[:, None]", "s", "float32/large-scores"),
    "log-sum-exp to base 2": (
        kernels.attention_forward,
        " * math.log(2)",
        "",
        "float32/1x1x1x64x64x64x64/None:None",
    ),
    "sum not rescaled": (kernels.attention_forward, "l = l * alpha +", "l = l +", "float32/blocks-sharp"),
    "accumulator not rescaled": (
        kernels.attention_forward,
        "acc * alpha[:, None]",
        "acc",
        "float32/blocks-sharp",
    ),
    "variance over n - 1": (
        kernels.layer_norm,
        "mean_square(block, n,",
        "mean_square(block, n - 1,",
        "float32/5x100",
    ),
    "epsilon of the other sign": (kernels.rms_norm, "+ eps", "- eps", "float32/5x100"),
    "dropout keeps the scale": (
        kernels.dropout_residual_layer_norm,
        "1 / (1 - p)",
        "1.0",
        "float32/5x100/0.3",
    ),
    "dropout of another element": (
        kernels.dropout_residual_layer_norm,
        "at_least(p, seed,",
        "at_least(p, seed + 1,",
        "float32/5x100/0.3",
    ),
    "rotated the other way": (kernels.rotary, "x0 * c - x1 * s", "x0 * c + x1 * s", "float32"),
    "gradient without scale": (
        kernels.attention_backward_q,
        "dq_acc * scale",
        "dq_acc",
        "float32/1x1x1x64x64x64x64/None:0",
    ),
    "delta not subtracted": (
        kernels.attention_backward_kv,
        "- d[:, None]",
        "",
        "float32/1x1x1x64x64x64x64/None:0",
    ),
    "label off by one": (
        kernels.cross_entropy_forward,
        "kt.load(label[row])",
        "kt.load(label[row]) + 1",
        "float32/6x700",
    ),
}


#: A text that rounds more is its own business: the bounds follow it. Only an implementation may not.
ROUNDS_MORE = {"bf16 accumulation"}


@pytest.mark.parametrize("name", [name for name in TEXTS if name not in ROUNDS_MORE])
def test_a_wrong_kernel_text_is_caught_by_its_formula(name: str) -> None:
    kernel, old, new, where = TEXTS[name]
    case = next(c for c in select(all_cases().values(), f"library/{kernel.name}/{where}"))
    assert examine(case, NUMPY).verdict == "passed"
    row = examine(dataclasses.replace(case, kernel=mutant(kernel, old, new)), NUMPY)
    assert row.verdict == "failed" and "does not compute its formula" in row.message


@pytest.mark.parametrize("name", TEXTS)
def test_a_wrong_implementation_is_caught_by_the_judge(name: str) -> None:
    kernel, old, new, where = TEXTS[name]
    case = next(c for c in select(all_cases().values(), f"library/{kernel.name}/{where}"))
    row = examine(dataclasses.replace(case, kernel=Miscompiled(kernel, mutant(kernel, old, new))), NUMPY)
    assert row.verdict == "failed" and row.ratio > 1
    assert "mismatched elements" in row.message


@pytest.mark.parametrize("where", ["<", "- 1 <="])
def test_an_off_by_one_causal_mask_is_caught(where: str) -> None:
    names = {**vars(sys.modules["kittens.kernels.masks"]), **vars(sys.modules["kittens.kernels.attention"])}
    helper = textwrap.dedent(inspect.getsource(names["within_reach"]))
    assert "key <= position + right" in helper
    exec(helper.replace("key <= position + right", f"key {where} position + right"), names)
    exec(textwrap.dedent(inspect.getsource(names["visible"])), names)
    exec(textwrap.dedent(inspect.getsource(kernels.attention_forward.function)), names)
    wrong = names["attention_forward"]
    for case in select(all_cases().values(), "library/attention_forward/float32/1x2x1x100x100"):
        for kernel in (wrong, Miscompiled(kernels.attention_forward, wrong)):
            assert examine(dataclasses.replace(case, kernel=kernel), NUMPY).verdict == "failed"


# Wrong arithmetic.


def cast_with(rounding: Any) -> Any:
    def change(reference: Any) -> Any:
        def cast(call: Call, x: np.ndarray) -> np.ndarray:
            changed = rounding(call.result.dtype, x)
            return reference(call, x) if changed is None else changed

        return cast

    return change


def truncating(to: Any, x: np.ndarray) -> np.ndarray | None:
    if to != kt.bfloat16 or x.dtype != np.float32:
        return None
    return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(ml_dtypes.bfloat16)


def half_away(to: Any, x: np.ndarray) -> np.ndarray | None:
    if to != kt.bfloat16 or x.dtype != np.float32:
        return None
    bits = x.view(np.uint32)
    up = np.where(np.isfinite(x), (bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000), bits)
    return up.astype(np.uint32).view(np.float32).astype(ml_dtypes.bfloat16)


def unsaturated(to: Any, x: np.ndarray) -> np.ndarray | None:
    return x.astype(to.numpy) if to == kt.float8_e4m3fn and x.dtype == np.float32 else None


def by_way_of_float16(to: Any, x: np.ndarray) -> np.ndarray | None:
    if not to.is_float8 or x.dtype != np.float32:
        return None
    with np.errstate(over="ignore"):
        return convert(x.astype(np.float16), to)


def wrapping_integers(to: Any, x: np.ndarray) -> np.ndarray | None:
    if to != kt.int32 or x.dtype != np.float32:
        return None
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(x), x, 0).astype(np.int64).astype(np.int32)


def result(f: Any) -> Any:
    """A change of an operation's result."""
    return lambda reference: lambda call, *xs: f(reference(call, *xs), *xs)


def instead(f: Any) -> Any:
    return lambda reference: lambda call, *xs: f(call, *xs)


def flush(y: np.ndarray, *_: Any) -> np.ndarray:
    return np.where(np.abs(y) < 2.0**-126, np.zeros((), y.dtype), y) if y.dtype == np.float32 else y


def sum_in_float16(call: Call, x: np.ndarray) -> np.ndarray:
    return (
        np.add.accumulate(x, axis=call.attrs["axis"], dtype=x.dtype)
        .take(-1, call.attrs["axis"])
        .astype(call.result.dtype.numpy)
    )


def product_in(dtype: Any) -> Any:
    def product(call: Call, a: np.ndarray, b: np.ndarray, *c: np.ndarray) -> np.ndarray:
        out = np.zeros((a.shape[0], b.shape[1]), np.float32)
        with np.errstate(all="ignore"):
            for k in range(a.shape[1]):
                out = (
                    (out + a[:, k : k + 1].astype(np.float32) * b[k : k + 1].astype(np.float32))
                    .astype(dtype)
                    .astype(np.float32)
                )
            return (out + c[0].astype(np.float32) if c else out).astype(call.result.dtype.numpy)

    return product


def two_bits_less(call: Call, a: np.ndarray, b: np.ndarray, *c: np.ndarray) -> np.ndarray:
    """Fast accumulation with 11 bits behind the leading one where 13 are asked for."""
    types = call.tile(0).dtype, call.tile(1).dtype
    return cut_product(a, b, c[0] if c else None, types, bits=11, group=32).astype(np.float32)


def tf32(x: np.ndarray) -> np.ndarray:
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if x.dtype == np.float32 else x


def nine_rounds(call: Call, seed: np.ndarray, counter: np.ndarray) -> np.ndarray:
    from unittest import mock

    with mock.patch("kittens.opset.random.ROUNDS", 9):
        return RANDOM(call, seed, counter)


RANDOM: Any = OPS["random_bits"].reference
ARITHMETIC: dict[str, tuple[str, Any, str]] = {
    # what: (operation, change, cases that must notice)
    "truncating conversion": ("cast", cast_with(truncating), "conversions/float32-bfloat16"),
    "truncation of computed values": ("cast", cast_with(truncating), "conversions/computed/float32-bfloat16"),
    "rounding half away": ("cast", cast_with(half_away), "conversions/float32-bfloat16"),
    "float8 without saturation": ("cast", cast_with(unsaturated), "conversions/float32-float8_e4m3fn"),
    "float8 rounded twice": ("cast", cast_with(by_way_of_float16), "conversions/float32-float8_e5m2"),
    "integers that wrap": ("cast", cast_with(wrapping_integers), "conversions/float32-int32"),
    "fast exp": ("exp", result(lambda y, x: (y * (1 + 2.0**-10)).astype(y.dtype)), "elementwise/exp/float32"),
    "fast exp2": ("exp2", result(lambda y, x: (y * (1 + 2.0**-20)).astype(y.dtype)), "elementwise/exp2/float32"),
    "sine without range reduction": ("sin", result(lambda y, x: np.where(np.abs(x.astype(float)) > 1e4, 0, y).astype(y.dtype)), "elementwise/sin/float32/special"),
    "approximate division": ("div", result(lambda y, *x: np.nextafter(y, y * 0) if y.dtype == np.float32 else y), "elementwise/div/float32"),
    "flushed subnormals": ("mul", result(flush), "elementwise/mul/float32/special"),
    "fused multiply-add": ("mul", result(lambda y, a, b: y + y * np.asarray(2.0**-23, y.dtype) if y.dtype == np.float32 else y), "elementwise/contraction/float32"),
    "NaN swallowed by max": ("maximum", instead(lambda call, a, b: np.where(a > b, a, b)), "elementwise/maximum/float32/special"),
    "NaN swallowed by a reduction": ("max", instead(lambda call, x: np.fmax.reduce(x, axis=call.attrs["axis"])), "reductions/max/float32/axis1/special"),
    "-0 lost": ("neg", instead(lambda call, x: (0 - x).astype(x.dtype)), "elementwise/neg/float32"),
    "sum of float16 in float16": ("sum", instead(sum_in_float16), "reductions/sum/float16/axis1"),
    "sum without its last term": ("sum", lambda r: lambda call, x: r(call, np.where(np.arange(x.shape[-1]) < x.shape[-1] - 1, x, np.zeros((), x.dtype))), "reductions/sum/float32/axis1/normal-32x32"),
    "argmax of the last tie": ("argmax", instead(lambda call, x: (x.shape[-1] - 1 - np.argmax(x[..., ::-1], -1)).astype(np.int32)), "reductions/argmax/float32/axis1/ties"),
    "products accumulated in bf16": ("mma", instead(product_in(ml_dtypes.bfloat16)), "products/bfloat16/nn/45x37x51"),
    "products accumulated in f16": ("mma", instead(product_in(np.float16)), "products/float16/nn/3x2x200"),
    "products in tf32": ("mma", lambda r: lambda call, a, b, *c: r(call, tf32(a), tf32(b), *c), "products/float32/nn/45x37x51"),
    "fast products accumulated in bf16": ("mma", instead(product_in(ml_dtypes.bfloat16)), "products/fast/float8_e4m3fn-float8_e4m3fn/uneven/45x37x51"),
    "fast products of two bits less": ("mma", instead(two_bits_less), "products/fast/float8_e5m2-float8_e5m2/uneven/45x37x51"),
    "integers counted in float32": ("mma", instead(product_in(np.float32)), "products/int8/exact-past-2^24"),
    "scale of the next block": ("mma_scaled", lambda r: lambda call, a, sa, *rest: r(call, a, np.roll(sa, 1, -1), *rest), "products/scaled/float8_e4m3fn-float8_e4m3fn/32x32x64"),
    "division truncates": ("floordiv", instead(lambda call, a, b: np.where(b == 0, 0, np.fix(a / np.where(b == 0, 1, b))).astype(a.dtype)), "elementwise/floordiv/int32"),
    "shift counts modulo 32": ("shl", instead(lambda call, a, n: np.left_shift(a, n & 31)), "elementwise/shl/int32/special"),
    "arithmetic shift of unsigned": ("shr", instead(lambda call, a, n: np.right_shift(a.view(np.int32), n.view(np.int32).clip(0, 31)).view(np.uint32)), "elementwise/shr/uint32"),
    "Philox of nine rounds": ("random_bits", instead(nine_rounds), "tiles/random/0/0"),
    "halves for pairs": ("split", lambda r: lambda call, x: r(dataclasses.replace(call, attrs={**call.attrs, "pairs": False}), x), "tiles/halves/float32/axis1-pairs"),
    "where chooses the other": ("where", instead(lambda call, c, a, b: np.where(c, b, a)), "elementwise/where/float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", ARITHMETIC)
def test_wrong_arithmetic_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, change, where = ARITHMETIC[name]
    assert not failed(rows(where))
    monkeypatch.setitem(OPS, op, dataclasses.replace(OPS[op], reference=change(OPS[op].reference)))
    with np.errstate(all="ignore"):
        found = failed(rows(where))
    assert found, f"{name} went unnoticed in {where}"
    assert all("mismatched elements" in row.message for row in found), found[0].message


@pytest.mark.parametrize("op", [name for name, d in OPS.items() if d.reference is not None])
def test_every_reference_can_be_found_wrong(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change one element of the result of each operation: some case notices."""

    def change(y: Any) -> Any:
        parts = y if isinstance(y, tuple) else (y,)
        out = []
        for part in parts:
            z = np.array(part, order="C")
            first = z.reshape(-1)[:1]
            if z.dtype == np.bool_:
                first[...] = ~first
            else:
                bits = first.view(f"u{z.dtype.itemsize}")
                bits[...] ^= 1 << (z.dtype.itemsize * 8 - 2)
            out.append(z)
        return tuple(out) if isinstance(y, tuple) else out[0]

    original = OPS[op]
    wrong = dataclasses.replace(original, reference=lambda call, *xs: change(original.reference(call, *xs)))  # type: ignore[misc]
    pattern = {
        "const": "tiles/filled/float32", "arange": "tiles/counting/int32", "cast": "conversions/float32-int16",
        "bitcast": "conversions/bitcast/float32-int32", "broadcast": "tiles/outer/float32", "reshape": "tiles/reshaped/float32",
        "transpose": "tiles/reshaped/float32/4x6x32", "split": "tiles/halves/float32", "join": "tiles/halves/float32",
        "mma": "products/float32/nn", "mma_scaled": "products/scaled", "random_bits": "tiles/random/1",
    }.get(op, f"reductions/{op}/" if op in ("sum", "max", "min", "argmax", "any", "all", "cumsum") else f"elementwise/{op}/")  # fmt: skip
    monkeypatch.setitem(OPS, op, wrong)
    with np.errstate(all="ignore"):
        assert failed(rows(pattern, limit=6)), op


# Wrong conduct.


@kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
def doubled(x, out, *, B=16):
    i = kt.program_id()
    kt.store(out, i, kt.load(x, i, B) * 2)


@kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
def unwritten_tail(x, out, *, B=16):
    i = kt.program_id()
    for _ in kt.when((i + 1) * B <= x.shape[0]):
        kt.store(out, i, kt.load(x, i, B) * 2)


def vector_case(kernel: Kernel, dtype: str = "float32", n: int = 40) -> Case:
    def make() -> dict[str, Any]:
        x = np.arange(n).astype(as_dtype(dtype).numpy)
        return {"x": In(x), "out": Out(as_dtype(dtype), (n,))}

    return Case("test", kernel, make, {"B": 16})


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "bfloat16", "int64"])
def test_an_unwritten_tail_is_caught_whatever_the_type(dtype: str) -> None:
    assert examine(vector_case(doubled, dtype), NUMPY).verdict == "passed"
    row = examine(vector_case(Miscompiled(doubled, unwritten_tail), dtype), NUMPY)
    assert row.verdict == "failed"
    assert "mismatched elements: 8 / 40 (20%)" in row.message and "8 elements" in row.message


class Faithless(Kernel):
    """A kernel whose call does what a test says."""

    def __init__(self, right: Kernel, act: Any):
        super().__init__(right.function, right.grid)
        self.right, self.act = right, act

    def __call__(self, *args: Any, on: Any = None, **named: Any) -> Any:
        return self.act(lambda: self.right(*args, on=on, **named), named)


def only_says_so(run: Any, named: dict[str, Any]) -> runtime.Run:
    return runtime.Run("doubled", "numpy", "executed", (3,), {"B": 16})


def writes_before(run: Any, named: dict[str, Any]) -> Any:
    done, out = run(), named["out"]
    np.ndarray((1,), out.dtype, out.base, (out.ctypes.data - out.base.ctypes.data) - out.itemsize)[...] = 1.25
    return done


def writes_behind(run: Any, named: dict[str, Any]) -> Any:
    done, out = run(), named["out"]
    np.ndarray((1,), out.dtype, out.base, (out.ctypes.data - out.base.ctypes.data) + out.nbytes)[...] = 1.25
    return done


def writes_input(run: Any, named: dict[str, Any]) -> Any:
    done = run()
    named["x"][3] = 17
    return done


def raises(run: Any, named: dict[str, Any]) -> Any:
    raise RuntimeError("device lost")


CONDUCT = {
    "says it ran and did not": (only_says_so, "mismatched elements: 40 / 40"),
    "returns nothing": (lambda run, named: None, "nothing was run"),
    "ran elsewhere": (
        lambda run, named: dataclasses.replace(run(), target="cuda:0"),
        "asked for numpy, ran on cuda:0",
    ),
    "simulated": (lambda run, named: dataclasses.replace(run(), how="simulated"), "the run was 'simulated'"),
    "only compiled": (
        lambda run, named: dataclasses.replace(run(), how="compiled"),
        "the run was 'compiled'",
    ),
    "another grid": (lambda run, named: dataclasses.replace(run(), grid=(2,)), "judged (3,)"),
    "other constants": (lambda run, named: dataclasses.replace(run(), constants={"B": 8}), "judged"),
    "writes before the array": (writes_before, "outside the array"),
    "writes behind the array": (writes_behind, "outside the array"),
    "changes its input": (writes_input, "does not store to"),
    "raises": (raises, "RuntimeError: device lost"),
}


@pytest.mark.parametrize("name", CONDUCT)
def test_wrong_conduct_is_caught(name: str) -> None:
    act, message = CONDUCT[name]
    row = examine(vector_case(Faithless(doubled, act)), NUMPY)
    assert row.verdict == "failed" and message in row.message


@kt.kernel(grid=1)
def unknowable(x, out, *, B=16):
    """inf - inf or not, as rounding will have it."""
    t = kt.load(x, 0, B)
    kt.store(out, 0, kt.log(kt.exp(t) - kt.exp(t) * 1.0))


def test_a_case_that_cannot_be_judged_is_a_failure_of_its_design() -> None:
    row = examine(vector_case(unknowable, n=16), NUMPY)
    assert row.verdict == "failed" and "cannot be judged" in row.message


@kt.kernel(grid=1)
def rounding_decides(x, out, *, B=16):
    for _ in kt.when(kt.exp(kt.load(x, 0, B)).sum(0) >= 16.0):
        kt.store(out, 0, kt.load(x, 0, B))


def test_control_flow_on_rounding_errors_cannot_be_judged() -> None:
    def make() -> dict[str, Any]:
        return {"x": In(np.zeros(16, np.float32)), "out": Out(as_dtype("float32"), (16,))}

    row = examine(Case("test", rounding_decides, make, {}), NUMPY)
    assert row.verdict == "failed" and "depends on rounding errors" in row.message


def test_reading_an_unwritten_output_cannot_be_judged() -> None:
    @kt.kernel(grid=1)
    def reads(x, out, *, B=16):
        kt.store(out, 0, kt.load(out, 0, B) + kt.load(x, 0, B))

    row = examine(vector_case(reads, n=16), NUMPY)
    assert row.verdict == "failed" and "nothing has stored" in row.message


def test_philox_agrees_with_the_known_answers_of_random123() -> None:
    from kittens.conformance.judge.random import block

    def words(f: Any, counter: int, key: int) -> str:
        c, k = (np.full(4, counter, np.uint64), key)
        return f(c, k)

    zero, ones = 0, 0xFFFFFFFF
    for counter, expected in (
        (zero, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (ones, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ):
        ours = block(np.full(4, counter, np.uint64), (counter, counter))
        word = np.uint64(counter)
        theirs = philox((word, word), (word, word, word, word))  # type: ignore[arg-type]
        for found in (ours, theirs):
            assert " ".join(f"{int(w):08x}" for w in found) == expected


def test_names_and_counts() -> None:
    assert len(all_cases()) >= 1500
    themes = [k for k, _ in itertools.groupby(all_cases(), lambda name: name.split("/")[0])]
    assert len(themes) == len(set(themes)) == 8
