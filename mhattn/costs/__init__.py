"""What attention costs, by counting: exact integers, and no torch.

- `attention`: parameters, multiplications and cache of one layer, step by step.
- `model_costs`: a whole model; `layer_costs`: one layer of every kind; `layer_peaks`: its memory.
- `model_sizes`: the sizes of known models with their sources, and what follows from them;
  `layer_sizes`: those of their parts.
- `serving`: memory and least time of a served model, its MLPs, experts and vocabulary included;
  `kind_costs`: its layers, kind by kind.
- `hardware`: peaks of accelerators, from their data sheets; `links`: what connects them, and what
  a sum over several machines takes.
- `replica`: one copy of a model over several machines; `pages`: who has which page of its cache;
  `engine`: requests that come and go, and what each waits for.
- `integers`: what refuses sizes that do not fit.

What a run takes is measured, not counted, in `mhattn.inside`.
"""

from typing import TYPE_CHECKING

from mhattn.door import lazy

NAMES = {
    "attention": (
        "AttentionCost CostStep attention_cost kv_cache_bytes kv_cache_numbers "
        "latent_multiplications latent_parameters"
    ),
    "model_costs": "ModelCost kept_bytes model_cost visible_pairs",
    "kind_costs": "KindCost kind_cost",
    "serving": "ServingCost serving_cost",
    "layer_costs": "LayerCost",
    "layer_peaks": "peak_activation_bytes training_peak_bytes",
    "hardware": "Accelerator known_accelerator known_accelerators",
    "layer_sizes": "CompressedSizes IndexSizes LatentSizes LayerSizes MlpSizes",
    "model_sizes": "ModelSizes known_model known_models",
    "links": "Link all_reduce_nanoseconds known_link known_links",
    "pages": "PagePool",
    "replica": "Chunk Replica",
    "engine": "Request Served Span Step serve serve_apart",
}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.costs.attention import *
    from mhattn.costs.engine import *
    from mhattn.costs.hardware import *
    from mhattn.costs.kind_costs import *
    from mhattn.costs.layer_costs import *
    from mhattn.costs.layer_peaks import *
    from mhattn.costs.layer_sizes import *
    from mhattn.costs.links import *
    from mhattn.costs.model_costs import *
    from mhattn.costs.model_sizes import *
    from mhattn.costs.pages import *
    from mhattn.costs.replica import *
    from mhattn.costs.serving import *
else:
    __all__, __getattr__, __dir__ = lazy(__name__, NAMES)
