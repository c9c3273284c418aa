"""Multi-head attention itself: what one reads first, from the masks to the layer.

- `masks`: who may attend to whom, as booleans.
- `functional`: attention as a formula, its scores and its weights, heads split and merged.
- `fused`: the same by torch's kernels, which never hold all scores.
- `positions`: how a layer learns where its tokens stand; `frequencies`: how fast rotary pairs turn;
  `pairs`: which features are a pair, and weights from one order to another.
- `cache`: what is kept of earlier tokens.
- `modules`: `MultiHeadAttention`, the layer that puts all of this together; `asking`: how it calls
  what it attends with.
- `gradients`: the backward pass, by hand.
- `checks`: what refuses arguments that do not fit; `steps`: what a trace names.

Other ways to attend are in `mhattn.variants`, whole models in `mhattn.models`.
"""

from typing import TYPE_CHECKING

from mhattn.door import lazy

NAMES = {
    "masks": "causal_mask padding_mask sink_mask strided_mask window_mask",
    "functional": (
        "attention attention_scores attention_weights fold_heads masked_softmax merge_heads "
        "repeat_heads softmax_over_keys split_heads unfold_heads"
    ),
    "fused": "attend_in_groups fused_attention",
    "positions": "Alibi Position Rotary sinusoidal_positions",
    "frequencies": "llama3_frequencies ntk_base rotary_frequencies yarn_frequencies yarn_scale",
    "pairs": "reorder_pairs rotary_pairs",
    "cache": "KVCache LinearState",
    "modules": "MultiHeadAttention",
    "gradients": "AttentionGradients attention_gradients",
}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.core.cache import *
    from mhattn.core.frequencies import *
    from mhattn.core.functional import *
    from mhattn.core.fused import *
    from mhattn.core.gradients import *
    from mhattn.core.masks import *
    from mhattn.core.modules import *
    from mhattn.core.pairs import *
    from mhattn.core.positions import *
else:
    __all__, __getattr__, __dir__ = lazy(__name__, NAMES)
