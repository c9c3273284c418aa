"""Whole models around the layer, and how they write.

- `language_model`: the Llama architecture, and its published weights.
- `gguf_file`: what is read of the file of a published one.
- `encoder`: the architecture of BERT, and its published weights.
- `reactions`: the architecture of ALBERT, and published weights that read chemical reactions.
- `speculative`: several tokens in one step: drafts, their check, a mask for trees.
- `quantisation`: keys and values in few bits.
- `packing`: projections through oneDNN, for inference on a CPU.
- `checks`: what refuses tokens and caches that do not fit.

The small models that chapters train are in `mhattn.lessons`.
"""

from typing import TYPE_CHECKING

from mhattn.door import lazy

NAMES = {
    "language_model": "LanguageModel LanguageModelBlock load_gguf write",
    "encoder": "Encoder EncoderBlock load_e5",
    "reactions": "SharedEncoder load_rxnmapper",
    "speculative": "accept_drafts tree_depths tree_mask write_with_drafts",
    "quantisation": "Quantised quantise",
    "packing": "PackedLinear pack_linears",
}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.models.encoder import *
    from mhattn.models.language_model import *
    from mhattn.models.packing import *
    from mhattn.models.quantisation import *
    from mhattn.models.reactions import *
    from mhattn.models.speculative import *
else:
    __all__, __getattr__, __dir__ = lazy(__name__, NAMES)
