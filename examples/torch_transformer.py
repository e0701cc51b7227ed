"""A small transformer in PyTorch, trained twice from the same seed: with attention by kittens, and with torch's own.

    pip install 'kittens-gpu[torch]'
    python examples/torch_transformer.py
    python examples/torch_transformer.py --device cuda --width 512 --layers 4 --heads 8 --kv-heads 2 --context 1024

It predicts the next letter of sentences that it makes up itself. Both runs see the same batches, so their losses differ by
rounding alone. On a GPU (torch calls it "cuda", whoever made it) autocast computes in bfloat16. On the CPU attention runs
on the reference of kittens, or on the target that --on names, such as hip:gfx950@sim.
"""

from __future__ import annotations

import argparse
import functools
import random
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import kittens.torch

Attend = Callable[..., torch.Tensor]


def made_up_text(letters: int, seed: int = 0) -> str:
    """Simple sentences, one after another."""
    rng = random.Random(seed)
    nouns = ["cat", "kitten", "dog", "puppy", "bird", "mouse", "fox", "horse"]
    adjectives = ["small", "old", "quick", "sleepy", "brave", "grey"]
    verbs = ["sees", "follows", "greets", "chases", "forgets"]
    places = ["by the river", "in the garden", "under the stairs", "at noon"]
    text = ""
    while len(text) < letters:
        one, other = rng.sample(nouns, 2)
        text += f"the {rng.choice(adjectives)} {one} {rng.choice(verbs)} the {other} {rng.choice(places)}. "
    return text[:letters]


class Block(nn.Module):
    """Attention and a feed-forward part, each on normalised inputs and added to them."""

    def __init__(self, width: int, heads: int, kv_heads: int, attend: Attend):
        super().__init__()
        self.head, self.attend = width // heads, attend
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.split = [width, kv_heads * self.head, kv_heads * self.head]
        self.qkv, self.out = nn.Linear(width, sum(self.split), bias=False), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (-1, self.head)).transpose(1, 2)  # (batch, heads, letters, head)
            for part in self.qkv(self.norm(x)).split(self.split, -1)
        )
        seen = self.attend(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.feed(self.norm2(x))


class Transformer(nn.Module):
    """Letters in, logits of the next letter out."""

    def __init__(self, vocabulary: int, options: argparse.Namespace, attend: Attend):
        super().__init__()
        width = options.width
        self.letters, self.places = nn.Embedding(vocabulary, width), nn.Embedding(options.context, width)
        blocks = (Block(width, options.heads, options.kv_heads, attend) for _ in range(options.layers))
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.letters(ids) + self.places.weight[: ids.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def train(attend: Attend, text: str, options: argparse.Namespace) -> tuple[list[float], float]:
    """The loss of each step, and the median time of a step in milliseconds."""
    alphabet = sorted(set(text))
    ids = torch.tensor([alphabet.index(letter) for letter in text])
    torch.manual_seed(options.seed)
    model: Any = Transformer(len(alphabet), options, attend).to(options.device)
    if options.compile:
        model = torch.compile(model, fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    chosen = torch.Generator().manual_seed(options.seed)
    low = options.device != "cpu"
    losses, times = [], []
    for _ in range(options.steps):
        starts = torch.randint(len(ids) - options.context, (options.batch,), generator=chosen)
        rows = torch.stack([ids[i : i + options.context + 1] for i in starts.tolist()]).to(options.device)
        begun = time.perf_counter()
        with torch.autocast(options.device, torch.bfloat16, enabled=low):
            logits = model(rows[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())  # waits for the device
        times.append(time.perf_counter() - begun)
    return losses, 1e3 * sorted(times)[len(times) // 2]


def parsed(args: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default, what in (
        ("steps", 30, "steps of training"),
        ("layers", 2, "blocks of the model"),
        ("width", 64, "numbers for each letter"),
        ("heads", 4, "query heads"),
        ("kv-heads", 2, "key heads, of which the number of query heads is a multiple"),
        ("context", 64, "letters that the model looks at"),
        ("batch", 4, "texts in a step"),
        ("seed", 0, "of the first weights and of the batches"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=what)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--device", default="cpu", help="of torch: cpu or cuda")
    parser.add_argument("--on", help="the target of kittens; where the tensors are, unless given")
    parser.add_argument("--compile", action="store_true", help="torch.compile(model, fullgraph=True)")
    return parser.parse_args(args)


def main(args: list[str] | None = None) -> float:
    """Train both ways and print the losses side by side; returns their largest difference."""
    options = parsed(args)
    text = made_up_text(max(20_000, 4 * options.context))
    ours = functools.partial(kittens.torch.scaled_dot_product_attention, on=options.on)
    losses, times = {}, {}
    for name, attend in (("kittens", ours), ("torch", F.scaled_dot_product_attention)):
        losses[name], times[name] = train(attend, text, options)
    print(f"{'step':>5} {'kittens':>10} {'torch':>10} {'difference':>11}")
    for step, (a, b) in enumerate(zip(losses["kittens"], losses["torch"], strict=True)):
        print(f"{step:>5} {a:>10.5f} {b:>10.5f} {a - b:>11.1e}")
    worst = max(abs(a - b) for a, b in zip(losses["kittens"], losses["torch"], strict=True))
    print(f"largest difference {worst:.1e}")
    print(f"median step: kittens {times['kittens']:.1f} ms, torch {times['torch']:.1f} ms")
    return worst


if __name__ == "__main__":
    main()
