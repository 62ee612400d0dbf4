"""The attention variants that are options of the operator, each against its formula in torch operations.

    PYTHONPATH=python build/venv/bin/python examples/series.py
"""

import math
import sys

import torch

import iha

N, D = 64, 16
I, J = torch.arange(N)[:, None], torch.arange(N)[None, :]
EVERYTHING = torch.ones(N, N, dtype=torch.bool)


def formula(query, key, value, sees):
    """softmax(q k^T / sqrt(d)) v over the keys that `sees` [N, Nk] shows, key heads repeated in place."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[3])
    return scores.masked_fill(~sees, -math.inf).softmax(-1) @ value


def heads(count, tokens=N):
    return torch.randn(1, count, tokens, D, dtype=torch.float64)


def rows():
    """Name, result, what it should be."""
    q, k, v = heads(4), heads(4), heads(4)
    causal = J <= I
    yield "multi-head, global", iha.attention(q, k, v), formula(q, k, v, EVERYTHING)
    yield "causal", iha.attention(q, k, v, patterns="causal"), formula(q, k, v, causal)
    yield "sliding", iha.attention(q, k, v, patterns="sliding:5"), formula(q, k, v, (I - J).abs() <= 5)
    yield "chunked", iha.attention(q, k, v, patterns="chunked:10"), formula(q, k, v, I // 10 == J // 10)
    yield "cross", iha.attention(q[:, :, :7], k, v), formula(q[:, :, :7], k, v, EVERYTHING[:7])
    for name, count in (("multi-query", 1), ("grouped-query", 2)):
        k, v = heads(count), heads(count)
        yield name, iha.attention(q, k, v, patterns="causal"), formula(q, k, v, causal)
    k, v = heads(4), heads(4)
    mixed = torch.stack([causal, causal, (I - J).abs() <= 5, EVERYTHING])
    yield "a pattern a head", iha.attention(q, k, v, patterns="causal*2,sliding:5,global"), formula(q, k, v, mixed)


def main():
    torch.manual_seed(0)
    off = 0
    for name, result, expected in rows():
        difference = (result - expected).abs().max().item()
        print(f"{name:20} off the formula by {difference:.1e}")
        off += not difference < 1e-13
    return off


if __name__ == "__main__":
    sys.exit(main())
