"""Calls of all kinds, to see whether two functions or layers behave alike."""

import inspect

import torch
from torch import Tensor, nn

LENGTHS = (1, 3, 5, 9, 20)


def behaviour(layer, how):
    """What came out of many calls: tensors by the names of the calls."""
    if isinstance(layer, nn.Module):
        return of_layer(layer, how)
    return of_function(layer, how)


def same(one, other):
    """Whether all of it is equal, beyond what rounding does."""
    return not different(one, other)


def different(one, other):
    """The names of the calls that differ, of those that both can take."""
    shared = [name for name in one if name in other]
    return [name for name in shared if not equal(one[name], other[name])]


def equal(x, y):
    if isinstance(x, str) or isinstance(y, str):
        return x == y if isinstance(x, str) and isinstance(y, str) else False
    if len(x) != len(y):
        return False
    return all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and torch.allclose(a, b, 1e-5, 1e-6, equal_nan=True)
        for a, b in zip(x, y, strict=True)
    )


def tried(call, *inputs, **options):
    """The tensors that come out, the gradients of the inputs, and the inputs afterwards."""
    torch.manual_seed(5)
    try:
        found = call(*inputs, **options)
        parts = (
            [found] if isinstance(found, Tensor) else [x for x in found if isinstance(x, Tensor)]
        )
        leaves = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        grads = []
        if leaves and parts[0].requires_grad:
            slope = torch.randn(parts[0].shape, generator=torch.Generator().manual_seed(3))
            grads = torch.autograd.grad(
                parts[0], leaves, slope.to(parts[0].dtype), allow_unused=True
            )
        grads = [torch.full((1,), 7.0) if g is None else g for g in grads]
        masks = [x.clone() for x in options.values() if isinstance(x, Tensor)]
        return [x.detach() for x in (*parts, *grads, *inputs, *masks)]
    except Exception as error:
        return type(error).__name__


def masks(B, H, L, S):
    """Booleans, True may attend; each row sees something, but for the last ones."""
    source = torch.Generator().manual_seed(11)

    def drawn(*shape):
        mask = torch.rand(*shape, L, S, generator=source) < 0.6
        mask[..., 0] = True
        return mask

    blind = drawn()
    blind[L // 2] = False
    late = torch.ones(L, S, dtype=torch.bool)
    late[:, : min(5, S - 1)] = False
    found = {
        "pairs": drawn(),
        "batch": drawn(B, 1),
        "heads": drawn(B, H),
        "blind": blind,
        "late": late,
    }
    return found | {"floats": torch.zeros(L, S).masked_fill(~found["pairs"], -torch.inf)}


def of_function(attend, how):
    H, G, D, found = how["num_heads"], how.get("num_kv_heads", how["num_heads"]), 8, {}
    takes = inspect.signature(attend).parameters

    def drawn(B, L, S, size=1.0, dtype=torch.float32):
        source = torch.Generator().manual_seed(L + 100 * S)
        shapes = (B, H, L, D), (B, G, S, D), (B, G, S, D)
        return [
            (size * torch.randn(*x, generator=source)).to(dtype).requires_grad_() for x in shapes
        ]

    pairs = [(L, L) for L in LENGTHS] + [(1, 6), (3, 7)]
    for B in (1, 3):
        for L, S in pairs:
            found[f"plain {B} {L} {S}"] = tried(attend, *drawn(B, L, S))
            if "is_causal" in takes:
                found[f"causal {B} {L} {S}"] = tried(attend, *drawn(B, L, S), is_causal=True)
    found["large"] = tried(attend, *drawn(3, 9, 9, 100.0))
    found["again"] = tried(attend, *[2 * x for x in drawn(3, 9, 9)])
    for dtype in (torch.float16, torch.float64):
        found[f"in {dtype}"] = tried(attend, *drawn(3, 9, 9, 6.0, dtype))
    found["large half"] = tried(attend, *drawn(3, 9, 9, 60.0, torch.float16))
    strange = [x.detach().transpose(-1, -2).contiguous().transpose(-1, -2) for x in drawn(3, 5, 5)]
    found["strides"] = tried(attend, *strange)
    if "attn_mask" in takes:
        for name, mask in masks(3, H, 9, 9).items():
            found[f"mask {name}"] = tried(attend, *drawn(3, 9, 9), attn_mask=mask)
            found[f"mask {name}, large"] = tried(attend, *drawn(3, 9, 9, 200.0), attn_mask=mask)
            found[f"mask {name}, causal"] = tried(
                attend, *drawn(3, 9, 9), attn_mask=mask.clone(), is_causal=True
            )
    return found


def paddings(B, L):
    """True is padding: at the end, at the beginning, in the middle, everywhere in the last."""
    end, start, middle = (torch.zeros(B, L, dtype=torch.bool) for _ in range(3))
    for b in range(B):
        end[b, L - b - 1 :] = b > 0
        start[b, : b + 1] = b > 0
        middle[b, 2 + b : 4 + b] = True
    whole = end.clone()
    whole[-1] = True
    return {"end": end, "start": start, "middle": middle, "whole": whole}


def of_layer(layer, how):
    takes = inspect.signature(layer.forward).parameters
    E, H, found = layer.embed_dim, layer.num_heads, {}

    def drawn(B, L, seed=0, dtype=torch.float32):
        source = torch.Generator().manual_seed(10 * L + seed)
        return torch.randn(B, L, E, generator=source).to(dtype).requires_grad_()

    causal = next((name for name in ("is_causal", "causal") if name in takes), None)
    for training in (False, True):
        layer.train(training)
        for B in (1, 3):
            for L in LENGTHS:
                found[f"plain {training} {B} {L}"] = tried(layer, drawn(B, L))
                if causal:
                    found[f"causal {training} {B} {L}"] = tried(
                        layer, drawn(B, L), **{causal: True}
                    )
        found[f"again {training}"] = tried(layer, 2 * drawn(3, 9))
        if "key" in takes:
            for L, S in ((5, 5), (5, 15), (3, 7)):
                inputs = drawn(3, L), drawn(3, S, 1), drawn(3, S, 2)
                found[f"cross {training} {L} {S}"] = tried(layer, *inputs)
        if name := next((name for name in ("attn_mask", "mask") if name in takes), None):
            for kind, mask in masks(3, H, 9, 9).items():
                found[f"mask {kind} {training}"] = tried(layer, drawn(3, 9), **{name: mask})
        if "key_padding_mask" in takes:
            for L in (9, 3):
                for kind, mask in paddings(3, L).items():
                    x, options = drawn(3, L), {"key_padding_mask": mask}
                    found[f"padding {kind} {L} {training}"] = tried(layer, x, **options)
                    options[causal] = True
                    found[f"padding {kind} {L} causal {training}"] = tried(layer, x, **options)
                    options |= {
                        causal: False,
                        "attn_mask": torch.ones(L, L, dtype=torch.bool).tril(1),
                    }
                    found[f"padding {kind} {L} mask {training}"] = tried(layer, x, **options)
        for of_weights in ({}, {causal: True}) if "need_weights" in takes else ():
            found[f"weights {of_weights} {training}"] = tried(
                layer, drawn(3, 9), need_weights=True, **of_weights
            )
        if "position_ids" in takes:
            for kind, ids in {
                "moved": torch.arange(5, 14),
                "far": torch.arange(300, 309),
                "turned": torch.arange(9).flip(0),
                "of each": torch.arange(9) + 3 * torch.arange(3)[:, None],
            }.items():
                ids = ids if ids.ndim == 2 else ids.expand(3, -1)
                found[f"ids {kind} {training}"] = tried(layer, drawn(3, 9), position_ids=ids)
        if "documents" in takes:
            packs = [[0] * 4 + [1] * 5, [0] * 2 + [1] * 3 + [2] * 4, [0, 1, 2, 2, 3, 3, 3, 3, 3]]
            found[f"packed {training}"] = tried(layer, drawn(3, 9), documents=torch.tensor(packs))
        for name in {"cache", "past"} & set(takes):
            found |= of_cache(layer, name, how.get("new_cache"), drawn)
    layer.eval()
    half = {"positions": torch.bfloat16} if "position_ids" in takes else {}
    for kind, dtype in half.items():
        layer.to(dtype)
        ids = torch.arange(400, 409).expand(3, -1)
        found[f"{kind} in {dtype}"] = tried(layer, drawn(3, 9, 0, dtype), position_ids=ids)
        layer.float()
    return found


def of_cache(layer, name, new_cache, drawn):
    found = {}
    with torch.no_grad():
        for round_ in (1, 2):
            for chunks in ((4, 1, 1, 1), (3, 4, 2), (1, 1, 1)):
                cache = new_cache() if new_cache else None
                for at, size in enumerate(chunks):
                    out = tried(layer, drawn(3, size, at + round_), **{name: cache})
                    found[f"cache {round_} {chunks} {at}"] = out
                    if new_cache is None and not isinstance(out, str):
                        out = layer(drawn(3, size, at + round_), **{name: cache})
                        cache = out[1]
                        found[f"cache {round_} {chunks} {at}"] = [
                            *found[f"cache {round_} {chunks} {at}"],
                            *out[1],
                        ]
                if new_cache and sum(chunks) > 6:
                    tried(cache.crop, 5)
                    found[f"crop {round_} {chunks}"] = tried(layer, drawn(3, 2), **{name: cache})
    return found
