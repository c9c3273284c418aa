"""Multi-head attention, written to be read."""

from importlib.metadata import PackageNotFoundError, version

from mhattn.cache import KVCache
from mhattn.costs import AttentionCost, attention_cost
from mhattn.functional import (
    attention,
    attention_scores,
    attention_weights,
    fold_heads,
    merge_heads,
    split_heads,
    unfold_heads,
)
from mhattn.gradients import AttentionGradients, attention_gradients
from mhattn.grouping import pool_kv_heads
from mhattn.latent import LatentAttention, latent_attention
from mhattn.linear import (
    LinearAttention,
    elu_plus_one,
    linear_attention,
    linear_attention_weights,
)
from mhattn.masks import causal_mask, padding_mask, sink_mask, strided_mask, window_mask
from mhattn.modules import MultiHeadAttention
from mhattn.sparse import SparseAttention, local_attention, strided_attention
from mhattn.tiled import Sums, block_sums, merge_sums, tiled_attention, tiles
from mhattn.tracing import Trace, trace

__all__ = [
    "AttentionCost",
    "AttentionGradients",
    "KVCache",
    "LatentAttention",
    "LinearAttention",
    "MultiHeadAttention",
    "SparseAttention",
    "Sums",
    "Trace",
    "attention",
    "attention_cost",
    "attention_gradients",
    "attention_scores",
    "attention_weights",
    "block_sums",
    "causal_mask",
    "elu_plus_one",
    "fold_heads",
    "latent_attention",
    "linear_attention",
    "linear_attention_weights",
    "local_attention",
    "merge_heads",
    "merge_sums",
    "padding_mask",
    "pool_kv_heads",
    "sink_mask",
    "split_heads",
    "strided_attention",
    "strided_mask",
    "tiled_attention",
    "tiles",
    "trace",
    "unfold_heads",
    "window_mask",
]

try:
    __version__ = version("mhattn")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"
