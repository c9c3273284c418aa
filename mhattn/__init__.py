"""Multi-head attention, written to be read."""

from importlib.metadata import PackageNotFoundError, version

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
from mhattn.masks import causal_mask, padding_mask, window_mask
from mhattn.modules import MultiHeadAttention
from mhattn.tracing import Trace, trace

__all__ = [
    "AttentionCost",
    "MultiHeadAttention",
    "Trace",
    "attention",
    "attention_cost",
    "attention_scores",
    "attention_weights",
    "causal_mask",
    "fold_heads",
    "merge_heads",
    "padding_mask",
    "split_heads",
    "trace",
    "unfold_heads",
    "window_mask",
]

try:
    __version__ = version("mhattn")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"
