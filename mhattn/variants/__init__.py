"""Other ways to attend: fewer keys, fewer numbers for each key, no table of scores.

- `grouping`: from many key-value heads to few.
- `sparse`: a window or a stride; `topk`: the keys that score best;
  `compressed`: one entry for several tokens.
- `tiled`: exact attention that never holds the whole table.
- `linear`: features in place of the softmax; `delta`: a state that corrects itself and forgets.
- `latent`: keys and values from one small vector.
- `normed`: scores kept in bounds.
- `relative`: distances that are learned; `relative_blocks`: their fast forms.
- `flex`: masks and biases for `torch.nn.attention.flex_attention`.
- `checks`: what refuses their arguments.

Each is an ``attend`` or a ``position`` of `mhattn.MultiHeadAttention`, or a layer beside it. Added
and turned positions are in `mhattn.core`.
"""

from typing import TYPE_CHECKING

from mhattn.door import lazy

NAMES = {
    "grouping": "pool_kv_heads",
    "sparse": "local_attention strided_attention",
    "topk": "index_scores top_k_attention top_key_mask",
    "compressed": "compress_rows compressed_attention compressed_mask",
    "tiled": "Sums block_sums merge_sums tiled_attention tiles",
    "linear": "elu_plus_one linear_attention linear_attention_weights recurrent_linear_attention",
    "delta": "GatedDelta gated_delta_attention",
    "latent": (
        "LatentAttention latent_attention latent_attention_absorbed latent_attention_expanded"
    ),
    "normed": "NormedAttention soft_capped_attention",
    "relative": "LearnedBias RelativePosition relative_attention",
    "flex": "alibi_mod causal_mod padding_mod strided_mod window_block_mask window_mod",
}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.variants.compressed import *
    from mhattn.variants.delta import *
    from mhattn.variants.flex import *
    from mhattn.variants.grouping import *
    from mhattn.variants.latent import *
    from mhattn.variants.linear import *
    from mhattn.variants.normed import *
    from mhattn.variants.relative import *
    from mhattn.variants.sparse import *
    from mhattn.variants.tiled import *
    from mhattn.variants.topk import *
else:
    __all__, __getattr__, __dir__ = lazy(__name__, NAMES)
