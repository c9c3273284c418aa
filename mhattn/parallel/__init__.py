"""One layer, or one long text, on several processes (`torch.distributed`).

- `heads`: each process has some of the heads.
- `ring`: each process has some of the tokens: a ring, an all-to-all, a sum over split keys.
- `bytes`: what they send, counted and in closed form.
- `local`: processes of this machine that start, agree and end together.
- `demo`: all of it beside one process, `python -m torch.distributed.run … -m mhattn.parallel.demo`.
"""

from typing import TYPE_CHECKING

from mhattn.door import lazy

NAMES = {
    "heads": "share_heads",
    "ring": "exchange_attention held_tokens ring_attention split_attention",
    "bytes": "SentBytes exchange_bytes ring_bytes visible_scores",
    "local": "agree note run",
    "demo": "compare_heads compare_tokens",
}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.parallel.bytes import *
    from mhattn.parallel.demo import *
    from mhattn.parallel.heads import *
    from mhattn.parallel.local import *
    from mhattn.parallel.ring import *
else:
    __all__, __getattr__, __dir__ = lazy(__name__, NAMES)
