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
    found["floats"] = torch.zeros(L, S).masked_fill(~found["pairs"], -torch.inf)
    return found | {"finite": torch.randn(L, S, generator=source)}


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


class Probe:
    """Calls a layer with one sequence, or with two."""

    def __init__(self, layer, how):
        self.layer, self.how = layer, how
        self.takes = inspect.signature(layer.forward).parameters
        self.width = next(m.in_features for m in layer.modules() if isinstance(m, nn.Linear))
        self.heads = how.get("num_heads", getattr(layer, "num_heads", 3))
        required = [name for name, p in self.takes.items() if p.default is p.empty]
        self.times = len(required)

    def drawn(self, B, L, seed=0, dtype=torch.float32):
        source = torch.Generator().manual_seed(10 * L + seed)
        x = torch.randn(B, L, self.width, generator=source).to(dtype)
        x = x.transpose(0, 1).contiguous() if self.how.get("batch_first") is False else x
        return x.requires_grad_()

    def __call__(self, B, L, seed=0, dtype=torch.float32, factor=1, **options):
        x = self.drawn(B, L, seed, dtype) * factor
        return tried(self.layer, *[x] * self.times, **options)

    def name(self, *names):
        return next((name for name in names if name in self.takes), None)


def of_layer(layer, how):
    probe, found = Probe(layer, how), {}
    kinds = of_lengths, of_masks, of_padding, of_ids
    for training in (False, True):
        layer.train(training)
        for kind in kinds:
            found |= {f"{name} {training}": out for name, out in kind(probe).items()}
        for name in {"cache", "past"} & set(probe.takes):
            found |= of_cache(layer, name, how.get("new_cache"), probe.drawn)
    layer.eval()
    if "position_ids" in probe.takes:
        ids = torch.arange(400, 409).expand(3, -1)
        layer.to(torch.bfloat16)
        found["positions in bfloat16"] = probe(3, 9, 0, torch.bfloat16, position_ids=ids)
        layer.float()
    return found


def of_lengths(probe):
    found = {"again": probe(3, 9, factor=2), "many": probe(17, 3)}
    causal = probe.name("is_causal", "causal")
    if causal:
        found["long"] = probe(2, 60, **{causal: True})
    for B in (1, 3):
        for L in LENGTHS:
            found[f"plain {B} {L}"] = probe(B, L)
            if causal:
                found[f"causal {B} {L}"] = probe(B, L, **{causal: True})
    if probe.name("key", "context"):
        for L, S in ((5, 5), (5, 15), (3, 7)):
            inputs = probe.drawn(3, L), probe.drawn(3, S, 1), probe.drawn(3, S, 2)
            inputs = inputs if "key" in probe.takes else inputs[:2]
            found[f"cross {L} {S}"] = tried(probe.layer, *inputs)
    if weights := probe.name("need_weights", "output_attentions"):
        for options in {}, {causal: True} if causal else {}:
            found[f"weights {len(options)}"] = probe(3, 9, **{weights: True}, **options)
    return found


def of_masks(probe):
    found = {}
    if name := probe.name("attn_mask", "mask", "attention_mask"):
        for kind, mask in masks(3, probe.heads, 9, 9).items():
            if name == "attention_mask":  # floats only
                is_float = mask.is_floating_point()
                mask = mask if is_float else torch.zeros(mask.shape).masked_fill(~mask, -1e9)
            found[f"mask {kind}"] = probe(3, 9, **{name: mask})
    return found


def of_padding(probe):
    found, causal = {}, probe.name("is_causal")
    name = probe.name("key_padding_mask", "padding_mask")
    for L in (9, 3) if name else ():
        for kind, mask in paddings(3, L).items():
            options = {name: mask}
            found[f"padding {kind} {L}"] = probe(3, L, **options)
            pairs = options | {"attn_mask": torch.ones(L, L, dtype=torch.bool).tril(1)}
            found[f"padding {kind} {L} mask"] = probe(3, L, **pairs)
            if causal:
                found[f"padding {kind} {L} causal"] = probe(3, L, **{causal: True}, **options)
    return found


def of_ids(probe):
    found = {}
    if "position_ids" in probe.takes:
        places = {
            "moved": torch.arange(5, 14),
            "far": torch.arange(300, 309),
            "turned": torch.arange(9).flip(0),
            "of each": torch.arange(9) + 3 * torch.arange(3)[:, None],
        }
        for kind, ids in places.items():
            ids = ids if ids.ndim == 2 else ids.expand(3, -1)
            found[f"ids {kind}"] = probe(3, 9, position_ids=ids)
    if "documents" in probe.takes:
        packs = [[0] * 4 + [1] * 5, [0] * 2 + [1] * 3 + [2] * 4, [0, 1, 2, 2, 3, 3, 3, 3, 3]]
        found["packed"] = probe(3, 9, documents=torch.tensor(packs))
    return found


def of_cache(layer, name, new_cache, drawn):
    found = {}
    with torch.no_grad():
        for round_ in (1, 2):
            for chunks in ((4, 1, 1, 1), (3, 4, 2), (1, 1, 1)):
                cache = new_cache() if new_cache else None
                for at, size in enumerate(chunks):
                    where, x = f"cache {round_} {chunks} {at}", drawn(3, size, at + round_)
                    found[where] = out = tried(layer, x, **{name: cache})
                    if new_cache is None and not isinstance(out, str):
                        _, cache = layer(x, **{name: cache})
                        found[where] = [*out, *(cache or ())]
                if new_cache and sum(chunks) > 6:
                    tried(cache.crop, 5)
                    found[f"crop {round_} {chunks}"] = tried(layer, drawn(3, 2), **{name: cache})
                    tried(cache.crop, 4)
                    found[f"crop {round_} {chunks} 2"] = tried(layer, drawn(3, 2), **{name: cache})
    return found
