"""Multi-head attention, written to be read.

What one needs every day is here: attention as a function and as a layer, masks, positions, a cache,
tables and pictures. All else has its package:

- `mhattn.core`: attention, masks, positions, the cache, the layer: read this first.
- `mhattn.variants`: other ways to attend.
- `mhattn.parallel`: one layer, or one long text, over several processes.
- `mhattn.models`: whole models around the layer, and how they write.
- `mhattn.inside`: what heads do in a model, and what a run takes.
- `mhattn.costs`: parameters, FLOPs, bytes, by counting; loads no torch.
- `mhattn.show`: tables and pictures.
- `mhattn.testing`: checks that find silent mistakes in anybody's layer.
- `mhattn.lessons`: tasks and small models of the site's chapters.

A module is imported when one of its names is asked for: counting costs loads no torch, and nothing
but drawing loads matplotlib.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from mhattn.door import lazy

NAMES = {
    "core.masks": "causal_mask padding_mask sink_mask strided_mask window_mask",
    "core.functional": (
        "attention attention_scores attention_weights masked_softmax merge_heads repeat_heads "
        "softmax_over_keys split_heads"
    ),
    "core.positions": "Alibi Rotary sinusoidal_positions",
    "core.cache": "KVCache",
    "core.modules": "MultiHeadAttention",
    "models.packing": "pack_linears",
    "inside.observe": "attention_maps",
    "inside.tracing": "trace",
    "show.tables": "table",
    "show.plots": "COLORS HEAD_COLORS plot_heads plot_weights",
}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.core.cache import (
        KVCache as KVCache,
    )
    from mhattn.core.functional import (
        attention as attention,
        attention_scores as attention_scores,
        attention_weights as attention_weights,
        masked_softmax as masked_softmax,
        merge_heads as merge_heads,
        repeat_heads as repeat_heads,
        softmax_over_keys as softmax_over_keys,
        split_heads as split_heads,
    )
    from mhattn.core.masks import (
        causal_mask as causal_mask,
        padding_mask as padding_mask,
        sink_mask as sink_mask,
        strided_mask as strided_mask,
        window_mask as window_mask,
    )
    from mhattn.core.modules import (
        MultiHeadAttention as MultiHeadAttention,
    )
    from mhattn.core.positions import (
        Alibi as Alibi,
        Rotary as Rotary,
        sinusoidal_positions as sinusoidal_positions,
    )
    from mhattn.inside.observe import (
        attention_maps as attention_maps,
    )
    from mhattn.inside.tracing import (
        trace as trace,
    )
    from mhattn.models.packing import (
        pack_linears as pack_linears,
    )
    from mhattn.show.plots import (
        COLORS as COLORS,
        HEAD_COLORS as HEAD_COLORS,
        plot_heads as plot_heads,
        plot_weights as plot_weights,
    )
    from mhattn.show.tables import (
        table as table,
    )
else:
    __all__, __getattr__, __dir__ = lazy(__name__, NAMES)

try:
    __version__ = version("mhattn")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"
