"""One layer, or one long text, on several processes (`torch.distributed`).

- `heads`: each process has some of the heads.
- `latent`: the same of a layer that keeps latents.
- `checkpoints`: files of a layer that any number of processes can read.
- `places`: which tokens each process has, and what they may see.
- `ring`: each process has some of the tokens: a ring, an all-to-all, a sum over split keys.
- `bytes`: what they send, counted and in closed form.
- `local`: processes of this machine that start, agree and end together.
- `compare`: some plans beside one process.
- `equalities`: a table of what is equal to one process.
- `demo`: all of it beside one process, `python -m torch.distributed.run … -m mhattn.parallel.demo`.
"""

from typing import TYPE_CHECKING

from mhattn.door import lazy

NAMES = {
    "heads": "share_heads",
    "latent": "share_latent_heads",
    "checkpoints": "load_shares save_shares",
    "places": "held_tokens",
    "ring": "exchange_attention ring_attention split_attention",
    "bytes": "SentBytes exchange_bytes ring_bytes visible_scores",
    "local": "agree note run",
    "compare": "compare_heads compare_tokens",
    "equalities": (
        "compare_all compare_context_parallel compare_decoding compare_latent compare_rounded "
        "compare_seen compare_training train_on"
    ),
}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.parallel.bytes import *
    from mhattn.parallel.checkpoints import *
    from mhattn.parallel.compare import *
    from mhattn.parallel.equalities import *
    from mhattn.parallel.heads import *
    from mhattn.parallel.latent import *
    from mhattn.parallel.local import *
    from mhattn.parallel.places import *
    from mhattn.parallel.ring import *
else:
    __all__, __getattr__, __dir__ = lazy(__name__, NAMES)
