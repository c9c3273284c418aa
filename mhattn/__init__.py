"""Multi-head attention, written to be read."""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from mhattn.cache import KVCache, LinearState
from mhattn.costs import AttentionCost, CostStep, attention_cost
from mhattn.flex import (
    alibi_mod,
    causal_mod,
    padding_mod,
    strided_mod,
    window_block_mask,
    window_mod,
)
from mhattn.functional import (
    attention,
    attention_scores,
    attention_weights,
    fold_heads,
    masked_softmax,
    merge_heads,
    repeat_heads,
    softmax_over_keys,
    split_heads,
    unfold_heads,
)
from mhattn.fused import attend_in_groups, fused_attention
from mhattn.gradients import AttentionGradients, attention_gradients
from mhattn.grouping import pool_kv_heads
from mhattn.latent import (
    LatentAttention,
    latent_attention,
    latent_attention_absorbed,
    latent_attention_expanded,
)
from mhattn.linear import (
    elu_plus_one,
    linear_attention,
    linear_attention_weights,
    recurrent_linear_attention,
)
from mhattn.masks import causal_mask, padding_mask, sink_mask, strided_mask, window_mask
from mhattn.model_sizes import LatentSizes, ModelSizes, known_model, known_models
from mhattn.modules import MultiHeadAttention
from mhattn.positions import Alibi, Position, Rotary, sinusoidal_positions
from mhattn.relative import LearnedBias, RelativePosition, relative_attention
from mhattn.sparse import local_attention, strided_attention
from mhattn.tables import table
from mhattn.tasks import GatherModel, LinkedTokens, balanced, linked_tokens, train_models
from mhattn.tiled import Sums, block_sums, merge_sums, tiled_attention, tiles
from mhattn.timing import measure_seconds, peak_bytes
from mhattn.tracing import Trace, TraceStep, trace

if TYPE_CHECKING:
    from mhattn.plots import plot_heads, plot_weights


__all__ = [
    "Alibi",
    "AttentionCost",
    "AttentionGradients",
    "CostStep",
    "GatherModel",
    "KVCache",
    "LatentAttention",
    "LatentSizes",
    "LearnedBias",
    "LinearState",
    "LinkedTokens",
    "ModelSizes",
    "MultiHeadAttention",
    "Position",
    "RelativePosition",
    "Rotary",
    "Sums",
    "Trace",
    "TraceStep",
    "alibi_mod",
    "attend_in_groups",
    "attention",
    "attention_cost",
    "attention_gradients",
    "attention_scores",
    "attention_weights",
    "balanced",
    "block_sums",
    "causal_mask",
    "causal_mod",
    "elu_plus_one",
    "fold_heads",
    "fused_attention",
    "known_model",
    "known_models",
    "latent_attention",
    "latent_attention_absorbed",
    "latent_attention_expanded",
    "linear_attention",
    "linear_attention_weights",
    "linked_tokens",
    "local_attention",
    "masked_softmax",
    "measure_seconds",
    "merge_heads",
    "merge_sums",
    "padding_mask",
    "padding_mod",
    "peak_bytes",
    "plot_heads",
    "plot_weights",
    "pool_kv_heads",
    "recurrent_linear_attention",
    "relative_attention",
    "repeat_heads",
    "sink_mask",
    "sinusoidal_positions",
    "softmax_over_keys",
    "split_heads",
    "strided_attention",
    "strided_mask",
    "strided_mod",
    "tiled_attention",
    "tiles",
    "trace",
    "train_models",
    "unfold_heads",
    "window_block_mask",
    "window_mask",
    "window_mod",
]

try:
    __version__ = version("mhattn")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Import what draws when it is asked for: importing the package doesn't load matplotlib."""
    if name in ("plot_heads", "plot_weights"):
        return getattr(importlib.import_module("mhattn.plots"), name)
    raise AttributeError(f"module 'mhattn' has no attribute {name!r}")
