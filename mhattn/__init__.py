"""Multi-head attention, written to be read.

A module of the package is imported when one of its names is asked for: counting costs loads no
torch, and nothing but drawing loads matplotlib.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

NAMES = {  # of each module, what the package exports
    "attribution": "LogitAttribution attention_rollout logit_attribution",
    "cache": "KVCache LinearState",
    "costs": (
        "AttentionCost CostStep attention_cost kv_cache_bytes kv_cache_numbers "
        "latent_multiplications latent_parameters"
    ),
    "delta": "GatedDelta gated_delta_attention",
    "diversity": ("cka effective_heads head_groups head_similarity head_uniqueness rank_residual"),
    "encoder": "Encoder EncoderBlock load_e5",
    "flex": "alibi_mod causal_mod padding_mod strided_mod window_block_mask window_mod",
    "frequencies": ("llama3_frequencies ntk_base rotary_frequencies yarn_frequencies yarn_scale"),
    "functional": (
        "attention attention_scores attention_weights fold_heads masked_softmax merge_heads "
        "repeat_heads softmax_over_keys split_heads unfold_heads"
    ),
    "fused": "attend_in_groups fused_attention",
    "gallery": "write_gallery",
    "gradients": "AttentionGradients attention_gradients",
    "grouping": "pool_kv_heads",
    "heads": (
        "Role attention_distance attention_entropy attention_share find_roles head_divergence "
        "head_patterns largest_weight"
    ),
    "importance": (
        "ablation_effects edit_heads gradient_scores head_shares head_terms pruning_curve "
        "replace_heads"
    ),
    "language_model": "LanguageModel LanguageModelBlock load_gguf write",
    "latent": (
        "LatentAttention latent_attention latent_attention_absorbed latent_attention_expanded"
    ),
    "layer_costs": "LayerCost",
    "layer_peaks": "peak_activation_bytes training_peak_bytes",
    "linear": "elu_plus_one linear_attention linear_attention_weights recurrent_linear_attention",
    "lookup": (
        "AttentionOnly Lookup agreeing_verbs lookup_losses matched_brackets previous_tokens "
        "repeated_tokens train_together"
    ),
    "masks": "causal_mask padding_mask sink_mask strided_mask window_mask",
    "model_costs": "ModelCost kept_bytes model_cost visible_pairs",
    "model_sizes": "IndexSizes LatentSizes LayerSizes ModelSizes known_model known_models",
    "modules": "MultiHeadAttention",
    "normed": "NormedAttention soft_capped_attention",
    "observe": (
        "AttentionLayer AttentionMaps ablate_heads attention_layers attention_maps "
        "call_projections head_outputs patch_heads"
    ),
    "packing": "PackedLinear pack_linears",
    "plots": "plot_heads plot_weights",
    "positions": "Alibi Position Rotary sinusoidal_positions",
    "quantisation": "Quantised quantise",
    "recall": "RecallModel named_values shares_right train_recall",
    "relative": "LearnedBias RelativePosition relative_attention",
    "sparse": "local_attention strided_attention",
    "speculative": "accept_drafts tree_depths tree_mask write_with_drafts",
    "subspaces": (
        "DirectSum HeadProjections RandomOverlap Spectrum chordal_distance circuit_core "
        "circuit_eigenvalues direct_sum grassmann_distance head_projections principal_angles "
        "random_overlap spectrum subspace_overlap"
    ),
    "tables": "table",
    "tasks": "GatherModel LinkedTokens balanced linked_tokens train_models",
    "tiled": "Sums block_sums merge_sums tiled_attention tiles",
    "timing": "Flops held_bytes measure_flops measure_seconds peak_bytes",
    "topk": "index_scores top_k_attention top_key_mask",
    "tracing": "Trace TraceStep trace",
}
MODULE_OF = {name: module for module, names in NAMES.items() for name in names.split()}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.attribution import *
    from mhattn.cache import *
    from mhattn.costs import *
    from mhattn.delta import *
    from mhattn.diversity import *
    from mhattn.encoder import *
    from mhattn.flex import *
    from mhattn.frequencies import *
    from mhattn.functional import *
    from mhattn.fused import *
    from mhattn.gallery import *
    from mhattn.gradients import *
    from mhattn.grouping import *
    from mhattn.heads import *
    from mhattn.importance import *
    from mhattn.language_model import *
    from mhattn.latent import *
    from mhattn.layer_costs import *
    from mhattn.layer_peaks import *
    from mhattn.linear import *
    from mhattn.lookup import *
    from mhattn.masks import *
    from mhattn.model_costs import *
    from mhattn.model_sizes import *
    from mhattn.modules import *
    from mhattn.normed import *
    from mhattn.observe import *
    from mhattn.packing import *
    from mhattn.plots import *
    from mhattn.positions import *
    from mhattn.quantisation import *
    from mhattn.recall import *
    from mhattn.relative import *
    from mhattn.sparse import *
    from mhattn.speculative import *
    from mhattn.subspaces import *
    from mhattn.tables import *
    from mhattn.tasks import *
    from mhattn.tiled import *
    from mhattn.timing import *
    from mhattn.topk import *
    from mhattn.tracing import *
else:
    __all__ = sorted(MODULE_OF)

try:
    __version__ = version("mhattn")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Import the module that has the name, or that is called so."""
    if name in NAMES:
        return importlib.import_module(f"mhattn.{name}")
    if name in MODULE_OF:
        return getattr(importlib.import_module(f"mhattn.{MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'mhattn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULE_OF})
