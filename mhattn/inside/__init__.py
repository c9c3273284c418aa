"""Looking inside: what heads do in a model, and what a run takes.

- `observe`: the weights and outputs of all heads of a model that others wrote.
- `capture`: the weights of any model, from the calls that it makes; `calls`: those of one call.
- `layers`: which parts of a model are attention, classes of your own among them.
- `heads`: statistics of weights, and roles that chance does not explain.
- `importance`: what each head adds, and what is lost without it.
- `diversity`: do heads differ?
- `attribution`: rollout over layers, and what a head adds to a logit; `direct`: on which way.
- `patching`: the stream, MLPs or one path from another call; `operands`: queries, keys and values.
- `blocks`: where a block adds what its MLP gives.
- `stream`: the residual stream, and queries, keys, values, weights and outputs, of one call.
- `subspaces`: what heads read and write, and their two circuits.
- `tracing`: the shape after each step; `timing`: seconds, bytes and FLOPs of a call.
- `checks`: what refuses weights and patterns that do not fit.

Nothing here draws: `mhattn.show` does.
"""

from typing import TYPE_CHECKING

from mhattn.door import lazy

NAMES = {
    "observe": (
        "AttentionMaps ablate_heads attention_maps call_projections head_outputs patch_heads"
    ),
    "capture": "captured_maps fed_heads with_sinks",
    "calls": "weights_of_call",
    "layers": "AttentionLayer attention_layers register",
    "heads": (
        "Role attention_distance attention_entropy attention_share find_roles find_token_roles "
        "head_divergence head_patterns largest_weight"
    ),
    "importance": (
        "ablation_effects edit_heads gradient_scores head_shares head_terms pruning_curve "
        "replace_heads"
    ),
    "diversity": "cka effective_heads head_groups head_similarity head_uniqueness rank_residual",
    "attribution": "LogitAttribution attention_rollout logit_attribution",
    "operands": "patch_qkv",
    "patching": "mlp_outputs patch_mlps patch_path patch_stream",
    "stream": "LayerCache NAMES_ELSEWHERE ResidualCache residual_cache",
    "subspaces": (
        "DirectSum HeadProjections RandomOverlap Spectrum chordal_distance circuit_core "
        "circuit_eigenvalues direct_sum grassmann_distance head_projections principal_angles "
        "random_overlap spectrum subspace_overlap"
    ),
    "tracing": "Trace TraceStep trace",
    "timing": "Flops held_bytes measure_flops measure_seconds peak_bytes",
}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.inside.attribution import *
    from mhattn.inside.calls import *
    from mhattn.inside.capture import *
    from mhattn.inside.diversity import *
    from mhattn.inside.heads import *
    from mhattn.inside.importance import *
    from mhattn.inside.layers import *
    from mhattn.inside.observe import *
    from mhattn.inside.operands import *
    from mhattn.inside.patching import *
    from mhattn.inside.stream import *
    from mhattn.inside.subspaces import *
    from mhattn.inside.timing import *
    from mhattn.inside.tracing import *
else:
    __all__, __getattr__, __dir__ = lazy(__name__, NAMES)
