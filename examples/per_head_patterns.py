"""A torch module whose heads differ, trained for a few steps: half of its heads look back at 8 tokens, half at all.

    PYTHONPATH=python build/venv/bin/python examples/per_head_patterns.py
"""

import sys

import torch
from torch import nn

import iha


class Attention(nn.Module):
    """Self-attention of `heads` heads; `patterns` as in docs/patterns.md, one entry a head."""

    def __init__(self, width, heads, patterns):
        super().__init__()
        self.heads, self.patterns = heads, patterns
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(iha.attention(q, k, v, patterns=self.patterns).transpose(1, 2).flatten(2))


def main():
    torch.manual_seed(0)
    layer = Attention(32, 4, "causal_sliding:8*2,causal*2")
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    x = torch.randn(8, 64, 32)
    target = x.roll(3, dims=1)  # the token three places back
    target[:, :3] = 0
    losses = []
    for _ in range(30):
        loss = (layer(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {len(losses)} steps")

    # Causal as its patterns say: another last token changes no bit of the others.
    before = layer(x)
    x[:, -1] = 5
    same = torch.equal(before[:, :-1], layer(x)[:, :-1])
    print("earlier tokens do not see the last one" if same else "OFF: earlier tokens see the last one")
    return not (same and losses[-1] < losses[0])


if __name__ == "__main__":
    sys.exit(main())
