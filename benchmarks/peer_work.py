"""What the peer benchmarks compute: named pieces of work, their inputs, and the right answer in float64.

Not here: the ways to compute it (peer_paths.py), clocks and memory (peer_measure.py).
"""

import dataclasses
import math
from typing import Optional

import torch
from torch import Tensor

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclasses.dataclass(frozen=True)
class Band:
    """Adjacent heads of one pattern: a query at i sees the keys from i - left to i + right; infinity: all of them."""

    heads: int
    left: float = math.inf
    right: float = math.inf

    @property
    def sees_all(self) -> bool:
        return math.isinf(self.left) and math.isinf(self.right)

    @property
    def is_causal(self) -> bool:
        return math.isinf(self.left) and self.right == 0

    @property
    def pattern(self) -> str:
        name = "global" if self.sees_all else "causal" if self.is_causal else f"sliding:{self.left:.0f}"
        return f"{name}*{self.heads}"

    def narrowed(self, factor: float) -> "Band":
        """The same with windows multiplied by `factor`, of one token at least."""
        scaled = [side if side in (0, math.inf) else max(1, round(side * factor)) for side in (self.left, self.right)]
        return dataclasses.replace(self, left=scaled[0], right=scaled[1])

    def visible(self, queries: Tensor, keys: Tensor) -> Tensor:
        """True where a query [Nq] sees a key [Nk]; [Nq, Nk]."""
        distance = keys[None, :] - queries[:, None]
        return (distance >= -self.left) & (distance <= self.right)

    def pairs(self, tokens: int) -> int:
        """Visible pairs of one head."""
        first = [max(0, i - self.left) for i in range(tokens)]
        last = [min(tokens - 1, i + self.right) for i in range(tokens)]
        return int(sum(last) - sum(first)) + tokens


def causal(heads: int) -> Band:
    return Band(heads, right=0)


def sliding(heads: int, window: int) -> Band:
    return Band(heads, window, window)


@dataclasses.dataclass(frozen=True)
class Work:
    """One call of attention in one layer. P > 1: interleaved causal heads, mixed and with a global collapse."""

    name: str
    bands: tuple[Band, ...]
    tokens: int
    pseudo_heads: int = 1
    backward: bool = False
    head_dim: int = 64

    @property
    def heads(self) -> int:
        return sum(band.heads for band in self.bands)

    @property
    def patterns(self) -> str:
        return ",".join(band.pattern for band in self.bands)

    @property
    def flops(self) -> float:
        """Needed: 4 * visible pairs * d forward; 3.5 times as many with the backward pass (seven products, not two)."""
        rows = self.tokens * self.pseudo_heads
        pairs = sum(band.heads * band.pairs(rows) for band in self.bands)
        return 4.0 * pairs * self.head_dim * (3.5 if self.backward else 1)

    def resized(self, tokens: int) -> "Work":
        """The same work on another number of tokens, windows in proportion."""
        bands = tuple(band.narrowed(tokens / self.tokens) for band in self.bands)
        return dataclasses.replace(self, bands=bands, tokens=tokens)


MIXED = (causal(4), sliding(4, 256), Band(4))
STANDARD = {
    work.name: work
    for work in (
        Work("mixed", MIXED, 4096),
        Work("window", (sliding(12, 256),), 8192),
        Work("causal", (causal(12),), 4096),
        Work("interleaved", (causal(8),), 2048, pseudo_heads=4),
        Work("interleaved-train", (causal(8),), 2048, pseudo_heads=4, backward=True),
    )
}


@dataclasses.dataclass
class Inputs:
    """query, key, value [1, H, N, d] over token-major memory, as projections leave them; mixing where P > 1."""

    query: Tensor
    key: Tensor
    value: Tensor
    alpha_q: Optional[Tensor] = None  # [H, H, P], source head x head x pseudo-head
    alpha_k: Optional[Tensor] = None
    alpha_v: Optional[Tensor] = None
    collapse: Optional[Tensor] = None  # [H, H, P]
    upstream: Optional[Tensor] = None  # gradient of the output, where the backward pass belongs to the work

    def learned(self) -> list[Tensor]:
        """What has a gradient, in the order in which gradients are returned."""
        tensors = (self.query, self.key, self.value, self.alpha_q, self.alpha_k, self.alpha_v, self.collapse)
        return [tensor for tensor in tensors if tensor is not None]


def draw(work: Work, dtype: torch.dtype) -> Inputs:
    """The same inputs for the same work, whatever was drawn before."""
    generator = torch.Generator().manual_seed(0)

    def tokens() -> Tensor:
        shape = (1, work.tokens, work.heads, work.head_dim)
        return torch.randn(shape, generator=generator).to(dtype).transpose(1, 2)

    def mixing() -> Tensor:
        noise = torch.randn((work.heads, work.heads, work.pseudo_heads), generator=generator)
        return (torch.eye(work.heads).unsqueeze(2) + 0.3 * noise).to(dtype)

    inputs = Inputs(tokens(), tokens(), tokens())
    if work.pseudo_heads > 1:
        inputs.alpha_q, inputs.alpha_k, inputs.alpha_v = mixing(), mixing(), mixing()
        inputs.collapse = mixing() / work.pseudo_heads
    if work.backward:
        inputs.upstream = tokens()
        for tensor in inputs.learned():
            tensor.requires_grad_()
    return inputs


def interleave(x: Tensor, alpha: Tensor) -> Tensor:
    """[B, H, N, d] mixed by alpha [H, H, P] into pseudo-tokens [B, H, N * P, d], row n * P + p."""
    return torch.einsum("bmnd,mhp->bhnpd", x, alpha).flatten(2, 3)


def collapsed(parts: Tensor, collapse: Tensor) -> Tensor:
    """[B, H, N * P, d] to [B, H, N, d] by the global collapse [H, H, P]."""
    return torch.einsum("bmnpd,hmp->bhnd", parts.unflatten(2, (-1, collapse.size(2))), collapse)


def with_gradients(output: Tensor, inputs: Inputs) -> tuple[Tensor, ...]:
    """(output,), and the gradients of everything learned where the work has a backward pass."""
    if inputs.upstream is None:
        return (output,)
    return (output.detach(), *torch.autograd.grad(output, inputs.learned(), inputs.upstream))


def reference(work: Work, inputs: Inputs, rows: Tensor) -> tuple[Tensor, ...]:
    """The exact answer for the queries `rows` by dense float64 formulas: (output[:, :, rows], gradients...)."""
    exact = Inputs(*(
        None if tensor is None else tensor.detach().double().requires_grad_(work.backward)
        for tensor in (getattr(inputs, field.name) for field in dataclasses.fields(Inputs))
    ))
    query, key, value = exact.query[:, :, rows], exact.key, exact.value
    row_of, key_of = rows, torch.arange(work.tokens)
    if work.pseudo_heads > 1:
        query, key, value = (interleave(*pair) for pair in (
            (query, exact.alpha_q), (key, exact.alpha_k), (value, exact.alpha_v)))
        pseudo = torch.arange(work.pseudo_heads)
        row_of = (rows[:, None] * work.pseudo_heads + pseudo).flatten()
        key_of = torch.arange(work.tokens * work.pseudo_heads)
    outputs, first = [], 0
    for band in work.bands:
        heads = slice(first, first + band.heads)
        first += band.heads
        scores = query[:, heads] @ key[:, heads].transpose(2, 3) / math.sqrt(work.head_dim)
        weights = scores.masked_fill(~band.visible(row_of, key_of), -math.inf).softmax(-1)
        outputs.append(weights @ value[:, heads])
    output = torch.cat(outputs, 1)
    return with_gradients(output if exact.collapse is None else collapsed(output, exact.collapse), exact)
