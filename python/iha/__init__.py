"""Pseudo-head attention for PyTorch: the operators of libiha_torch, loaded once and given names and types.

The library is the one the C++ code uses; nothing is computed here. It is looked for in IHA_LIBRARY (the path of
libiha_torch.so), then inside this package, then in build/release/lib of the source tree. After `import iha` the
operators are also `torch.ops.iha.attention` and so on. Formulas and rules: docs/operator.md.
"""

import os
import pathlib
from typing import Optional, TypedDict, Unpack

import torch
from torch import Tensor

__all__ = ["Options", "attention", "attention_weights", "attention_with_lse", "library_path"]

_NAME = "libiha_torch.so"


def library_path() -> pathlib.Path:
    """The library that `import iha` loads. Raises ImportError naming every place looked at."""
    package = pathlib.Path(__file__).resolve().parent
    chosen = os.environ.get("IHA_LIBRARY")
    places = [pathlib.Path(chosen)] if chosen else [
        package / _NAME,
        package / "lib" / _NAME,
        package.parents[1] / "build" / "release" / "lib" / _NAME,
    ]
    for place in places:
        if place.is_file():
            return place
    raise ImportError(f"iha: no {_NAME} at {', '.join(map(str, places))}; build it or set IHA_LIBRARY to its path")


torch.ops.load_library(str(library_path()))


class Options(TypedDict, total=False):
    """Keyword arguments of the operators. B batch, Hq query heads, Hkv key heads, P pseudo-heads, Nk keys, d channels."""

    patterns: str  #: one entry for all heads or one a head, as in "causal*4,sliding:64*4"; default "global"
    alpha_q: Optional[Tensor]  #: [Hq, Hq, P], source head x head x pseudo-head; default identity
    alpha_k: Optional[Tensor]  #: [Hkv, Hkv, P]
    alpha_v: Optional[Tensor]  #: [Hkv, Hkv, P]
    collapse: Optional[Tensor]  #: absent: mean; [Hq, P]: per head; [Hq, Hq, P]: global
    layout: str  #: "interleaved" (default) or "parallel"
    order: str  #: "flat" (default) or "token"
    rope: str  #: "none" (default), "token" or "virtual"
    rope_theta: float  #: default 10000
    rope_freqs: Optional[Tensor]  #: [r / 2] radians per position, instead of rope_theta; float64 is best
    rope_style: str  #: "half" (default) or "adjacent"
    scale: Optional[float]  #: default 1 / sqrt(d)
    query_offset: Optional[Tensor]  #: int64, one element or [B]: position of query 0; default Nk - Nq
    key_lengths: Optional[Tensor]  #: int64 [B]: keys at or past it do not exist
    documents: Optional[Tensor]  #: int64 [B, Nk]: a query sees keys of its own document only
    sinks: Optional[Tensor]  #: [Hq]: logits that take weight and have no value
    mode_weights: Optional[Tensor]  #: [Hq, M]: of the candidates of learned heads
    block_weights: Optional[Tensor]  #: [B, Hq, Nq, ceil(Nk / block)]: of the blocks of dynamic heads
    dropout_p: float  #: of the attention weights; default 0
    dropout_seed: Optional[int]  #: default: drawn from torch's generator at every call


def attention(query: Tensor, key: Tensor, value: Tensor, **options: Unpack[Options]) -> Tensor:
    """Attention of heads with patterns of their own and P pseudo-heads each.

    query [B, Hq, Nq, d], key [B, Hkv, Nk, d] and value [B, Hkv, Nk, dv] share one dtype (float64, float32, bfloat16 or
    float16); any strides. Returns [B, Hq, Nq, dv] over token-major memory: `out.transpose(1, 2).flatten(2)` copies
    nothing. A query that sees no key gives 0. Differentiable once in query, key, value, alpha_*, collapse, sinks,
    mode_weights and block_weights.
    Raises ValueError naming what was found and what was expected.

    >>> q = k = v = torch.randn(1, 4, 128, 32)
    >>> iha.attention(q, k, v, patterns="causal*2,causal_sliding:16*2").shape
    torch.Size([1, 4, 128, 32])
    """
    return torch.ops.iha.attention(query, key, value, **options)


def attention_with_lse(query: Tensor, key: Tensor, value: Tensor, **options: Unpack[Options]) -> tuple[Tensor, Tensor]:
    """The parts [B, Hq, Nq, P, dv] before the collapse, and lse [B, Hq, Nq, P], the natural log of each softmax's sum.

    Both are differentiable. A pseudo-query that sees no key has part 0 and lse -inf (with sinks: sinks[h]). lse is
    float32, float64 for float64 inputs. Arguments as in `attention`.
    """
    return torch.ops.iha.attention_with_lse(query, key, value, **options)


def attention_weights(query: Tensor, key: Tensor, rows: Tensor, **options: Unpack[Options]) -> Tensor:
    """Softmax weights of the query rows `rows` (int64 [R]): [B, Hq, R, P, Nk, P]. For looking, not for speed.

    Takes the options of `attention` but alpha_v, collapse and dropout. Not differentiable.
    """
    return torch.ops.iha.attention_weights(query, key, rows, **options)
