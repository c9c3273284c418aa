"""x-transformers' attention, ours, and the bases of the mutants."""

import functools
import warnings
from typing import Any

import bases
import styles

from mhattn.testing import adapt
from rights.entries import SIZES, D, E, G, H, entered, right


# x-transformers
def x_attention(rotary: bool = False, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from x_transformers.x_transformers import Attention, RotaryEmbedding
    layer = Attention(E, dim_head=D, heads=H, **options)
    return adapt(layer, rotary=RotaryEmbedding(D)) if rotary else layer


for flash in (False, True):
    entered(f"x-transformers: flash={flash}", functools.partial(x_attention, flash=flash))
    entered(
        f"x-transformers: memory, flash={flash}",
        lambda flash=flash: adapt(x_attention(flash=flash), part="memory"),
    )
    entered(
        f"x-transformers: causal, flash={flash}",
        functools.partial(x_attention, flash=flash, causal=True),
    )
entered("x-transformers: rotary, causal", functools.partial(x_attention, True, causal=True))
entered("x-transformers: dropout", functools.partial(x_attention, dropout=0.2))
entered("x-transformers: grouped", functools.partial(x_attention, kv_heads=G))


# ours
def ours(**options: Any) -> Any:
    from mhattn import MultiHeadAttention

    return MultiHeadAttention(E, H, **options)


def kv_cache(**options: Any) -> Any:
    from mhattn import KVCache

    return KVCache(**(options or {"max_len": 64}))


OURS = {"mask_heads": "B,H,L,S", "empty_rows": "zeros", "new_cache": kv_cache}


def with_position(kind: str, **options: Any) -> Any:
    import mhattn

    made = {"Rotary": lambda: mhattn.Rotary(D), "Alibi": lambda: mhattn.Alibi(H)}[kind]()
    return ours(position=made, **options)


def with_attend(name: str, *, window: int | None = None, **options: Any) -> Any:
    import mhattn.variants

    attend = getattr(mhattn.variants, name)
    if name == "NormedAttention":
        attend = attend(D)
    return ours(attend=functools.partial(attend, window=window) if window else attend, **options)


entered("ours: MultiHeadAttention", ours, **OURS)
entered(
    "ours: MultiHeadAttention, no bias, dropout",
    functools.partial(ours, bias=False, dropout=0.2),
    **OURS,
)
entered("ours: grouped heads", functools.partial(ours, num_kv_heads=G), **OURS)
entered("ours: one head of keys", functools.partial(ours, num_kv_heads=1), **OURS)
entered("ours: heads of another width", functools.partial(ours, head_dim=10), **OURS)
entered("ours: rotary", functools.partial(with_position, "Rotary"), **OURS, positions="rotary")
entered(
    "ours: rotary, grouped",
    functools.partial(with_position, "Rotary", num_kv_heads=G),
    **OURS,
    positions="rotary",
)
entered("ours: alibi", functools.partial(with_position, "Alibi"), **OURS, positions="relative")
entered("ours: QK-norm", functools.partial(with_attend, "NormedAttention"), **OURS)
entered("ours: in tiles", functools.partial(with_attend, "tiled_attention"), **OURS, weights=False)


@right("ours: latent attention", **OURS, head_dim=D + 4, positions="relative")
def latent() -> Any:
    from mhattn.variants import LatentAttention

    return LatentAttention(E, H, kv_lora_rank=20, qk_nope_head_dim=D, qk_rope_head_dim=4)


def function(name: str, **options: Any) -> Any:
    import mhattn
    import mhattn.variants

    found = getattr(mhattn, name, None) or getattr(mhattn.variants, name)
    return functools.partial(found, **options) if options else found


FUNCTION = {"mask_heads": "B,H,L,S", "empty_rows": "zeros"}
entered("ours: attention", lambda: function("attention"), **FUNCTION)
entered(
    "ours: attention, grouped",
    lambda: function("attention"),
    **FUNCTION,
    num_heads=6,
    num_kv_heads=2,
)
entered("ours: tiled_attention", lambda: function("tiled_attention"), **FUNCTION)


def sliding(query, key, value):
    return function("local_attention")(query, key, value, window=4, is_causal=True)


entered("ours: local_attention", lambda: sliding, causal=True, window=4)


# by hand
entered("by hand: a function", bases.Attend, mask_heads="B,H,L,S", empty_rows="zeros")
entered("by hand: a layer", bases.Layer, mask_heads="B,H,L,S", weights="need_weights")
entered("by hand: a decoder", bases.Decoder, causal=True, new_cache=bases.Cache, positions="rotary")
entered(
    "by hand: a decoder, tuples", bases.TupleDecoder, causal=True, cache="past", positions="rotary"
)
entered("by hand: packed", bases.Packed, causal=True, positions="absolute")
entered("by hand: fused", bases.Fused, mask_heads="B,H,L,S")


def around() -> Any:
    from mutants.wrapped import Around

    return Around()


def called() -> Any:
    from mutants.wrapped import Called

    return Called()


entered(
    "by hand: around MHA",
    around,
    **SIZES | {"num_heads": 3, "embed_dim": 24},
    padding_true="attend",
    empty_rows="any",
    weights="return_weights",
)
entered("by hand: calls SDPA", called, **SIZES, num_kv_heads=G, causal=True, cache="past")


def normed() -> Any:
    from mutants.normed import Normed

    return Normed()


def sinks() -> Any:
    from mutants.normed import Sinks

    return Sinks()


entered("by hand: normalised heads", normed, mask_heads="B,H,L,S", weights="need_weights")
entered("by hand: sinks", sinks, num_heads=3, mask_heads="B,H,L,S", sinks=True)
for style in styles.STYLES:
    entered(f"in the style of: {style.__name__}", style, **style.told)
