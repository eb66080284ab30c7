"""Train a small transformer with DDP. Nothing here knows of stretto but one import and one string.

    python train.py BACKEND RANK RANKS FOLDER STEPS WIDTH

The task is to continue arithmetic progressions modulo a prime. Losses and seconds of every step go to
FOLDER/BACKEND.RANK.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import stretto.torch  # noqa: F401  the import ...

PRIME, LENGTH, BATCH = 61, 16, 4


class Transformer(nn.Module):
    """A causal language model over numbers below PRIME."""

    def __init__(self, width: int, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(PRIME, width)
        self.place = nn.Parameter(torch.zeros(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, PRIME)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.head(self.body(self.embed(tokens) + self.place, mask=mask, is_causal=True))


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Progressions, and their next numbers."""
    start, step = torch.randint(PRIME, (2, BATCH, 1), generator=generator)
    numbers = (start + step * torch.arange(LENGTH + 1)) % PRIME
    return numbers[:, :-1], numbers[:, 1:]


def main() -> None:
    backend, folder = sys.argv[1], sys.argv[4]
    rank, ranks, steps, width = (int(sys.argv[i]) for i in (2, 3, 5, 6))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(backend, init_method=f"file://{folder}/{backend}", rank=rank, world_size=ranks)  # ... and
    model = DistributedDataParallel(Transformer(width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    losses, seconds = [], []
    for _ in range(steps):
        began = time.monotonic()
        tokens, following = batch(generator)
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / ranks)
        seconds.append((began, time.monotonic()))
    Path(folder, f"{backend}.{rank}.json").write_text(json.dumps({"loss": losses, "steps": seconds}))
    dist.destroy_process_group()
    if backend == "gloo":
        os._exit(0)  # its threads may outlive its groups, and then abort an interpreter that is torn down


if __name__ == "__main__":
    main()
