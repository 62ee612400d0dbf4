"""The ways to compute a piece of work that are timed against each other, each a function without arguments.

A path is prepared once (masks, compilation, sessions) and then called; what it keeps between calls is counted as its
memory. A path whose package is absent, or that cannot compute the work, raises Unavailable with the reason.
"""

import dataclasses
import functools
import math
import pathlib
import sys
from typing import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor

from peer_work import Band, Inputs, Work, collapsed, interleave, with_gradients

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import iha  # noqa: E402

sdpa = functional.scaled_dot_product_attention


class Unavailable(Exception):
    """Why a path cannot run here."""


@dataclasses.dataclass
class Path:
    forward: Callable[[], Tensor]
    held: list[Tensor] = dataclasses.field(default_factory=list)  # kept between calls
    compiles: bool = False  # the first call compiles for these sizes

    @property
    def held_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.held)


def engine(work: Work, x: Inputs) -> Path:
    mixing = {} if x.collapse is None else {
        "alpha_q": x.alpha_q, "alpha_k": x.alpha_k, "alpha_v": x.alpha_v, "collapse": x.collapse}
    return Path(lambda: iha.attention(x.query, x.key, x.value, patterns=work.patterns, **mixing))


def plain(work: Work, x: Inputs) -> Path:
    """torch's attention with is_causal; after einsum and interleaving where P > 1. One pattern for all heads."""
    if len(work.bands) > 1 or not (work.bands[0].is_causal or work.bands[0].sees_all):
        raise Unavailable("is_causal cannot say these patterns")
    attend = functools.partial(sdpa, is_causal=work.bands[0].is_causal)
    if work.pseudo_heads == 1:
        return Path(lambda: attend(x.query, x.key, x.value))
    return Path(lambda: collapsed(attend(
        interleave(x.query, x.alpha_q), interleave(x.key, x.alpha_k), interleave(x.value, x.alpha_v)), x.collapse))


def head_slices(work: Work) -> list[tuple[Band, slice]]:
    ends = [sum(band.heads for band in work.bands[:at + 1]) for at in range(len(work.bands))]
    return [(band, slice(end - band.heads, end)) for band, end in zip(work.bands, ends)]


def masked(work: Work, x: Inputs) -> Path:
    """torch's attention with a boolean mask, made beforehand: [N, N], or [1, H, N, N] where heads differ (without the
    batch in front torch takes a slower way)."""
    at = torch.arange(work.tokens)
    masks = [band.visible(at, at) for band in work.bands]
    mask = masks[0]
    if len(masks) > 1:
        mask = torch.cat([each.expand(band.heads, -1, -1) for each, band in zip(masks, work.bands)])[None]
    return Path(lambda: sdpa(x.query, x.key, x.value, attn_mask=mask), [mask])


def grouped(work: Work, x: Inputs, block: int = 256) -> Path:
    """What one writes by hand: heads grouped by pattern, and for a window the keys that a block of queries can see.

    A group without a window is one call. Blocks of 256 queries were no slower than 128 or 512, and additive masks no
    slower than boolean ones; blocks whose keys lie the same way share one.
    """
    masks: dict[tuple, Tensor] = {}

    def windowed(band: Band, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        pieces = []
        for begin in range(0, work.tokens, block):
            end = min(begin + block, work.tokens)
            first, last = int(max(0, begin - band.left)), int(min(work.tokens, end + band.right))
            lies = (band, end - begin, first - begin, last - begin)
            if lies not in masks:
                visible = band.visible(torch.arange(begin, end), torch.arange(first, last))
                masks[lies] = torch.zeros(visible.shape, dtype=query.dtype).masked_fill_(~visible, -math.inf)
            keys = slice(first, last)
            pieces.append(sdpa(query[:, :, begin:end], key[:, :, keys], value[:, :, keys], attn_mask=masks[lies]))
        return torch.cat(pieces, 2)

    def forward() -> Tensor:
        outputs = []
        for band, heads in head_slices(work):
            group = (x.query[:, heads], x.key[:, heads], x.value[:, heads])
            if band.sees_all or band.is_causal:
                outputs.append(sdpa(*group, is_causal=band.is_causal))
            else:
                outputs.append(windowed(band, *group))
        return torch.cat(outputs, 1)

    return Path(forward)


def per_head(work: Work, x: Inputs) -> Path:
    """The published layer of per-head modes: dense scores of one head at a time plus a mask of 0 and -1e9.

    Kinder than the original, whose masks are float32 for any input and filled entry by entry in every call: here they
    have the inputs' dtype and are made beforehand, one a pattern.
    """
    at = torch.arange(work.tokens)
    masks = {
        band: torch.zeros(work.tokens, work.tokens, dtype=x.query.dtype).masked_fill_(~band.visible(at, at), -1e9)
        for band in work.bands if not band.sees_all
    }
    scale = 1 / math.sqrt(work.head_dim)

    def forward() -> Tensor:
        outputs = []
        for band, heads in head_slices(work):
            for head in range(heads.start, heads.stop):
                scores = x.query[:, head] @ x.key[:, head].transpose(1, 2) * scale
                if band in masks:
                    scores = scores + masks[band]
                outputs.append(scores.softmax(-1) @ x.value[:, head])
        return torch.stack(outputs, 1)

    return Path(forward, list(masks.values()))


def flex(work: Work, x: Inputs) -> Path:
    """Compiled FlexAttention with a block mask made beforehand."""
    from torch.nn.attention import flex_attention as module

    alike = len(work.bands) == 1

    def mask_mod(batch, head, query, key):
        seen = query < 0
        for band, heads in head_slices(work):
            part = query >= 0
            if band.left != math.inf:
                part = part & (key >= query - int(band.left))
            if band.right != math.inf:
                part = part & (key <= query + int(band.right))
            seen = seen | (part if alike else part & (head >= heads.start) & (head < heads.stop))
        return seen

    torch._dynamo.reset()  # else sizes compiled before make it compile for any size, which is slower
    heads = None if alike else work.heads
    mask = module.create_block_mask(mask_mod, None, heads, work.tokens, work.tokens, device="cpu")
    attend = torch.compile(module.flex_attention, dynamic=False)

    def forward() -> Tensor:
        with torch.no_grad():
            return attend(x.query, x.key, x.value, block_mask=mask)

    return Path(forward, [part for part in mask.as_tuple() if isinstance(part, Tensor)], compiles=True)


def onnx_runtime(work: Work, x: Inputs) -> Path:
    from peer_onnx import grouped_query_attention

    return Path(grouped_query_attention(work, x))


# Per work: name of the path -> how to prepare it. The first is what the others are compared with.
_PATTERNS = {"iha": engine, "grouped": grouped, "flex": flex, "masked": masked, "per-head": per_head}
PATHS: dict[str, dict[str, Callable[[Work, Inputs], Path]]] = {
    "mixed": _PATTERNS,
    "window": _PATTERNS,
    "causal": {"iha": engine, "torch": plain, "onnxruntime": onnx_runtime},
    "interleaved": {"iha": engine, "torch": plain},
    "interleaved-train": {"iha": engine, "torch": plain},
}
NAMES = sorted({name for paths in PATHS.values() for name in paths})


def prepare(name: str, work: Work, inputs: Inputs) -> tuple[Path, Callable[[], tuple[Tensor, ...]]]:
    """The path, and its call: (output,) or (output, gradients...). Raises Unavailable."""
    path = PATHS[work.name][name](work, inputs)
    return path, lambda: with_gradients(path.forward(), inputs)
