"""Calls of all kinds, to see whether two functions or layers behave alike."""

import inspect
import itertools

import torch
from torch import Tensor, nn

LENGTHS = (1, 3, 5, 9, 20)


def behaviour(layer, how):
    """Many calls, one after the other: the name of each, and the tensors that came out."""
    return of_layer(layer, how) if isinstance(layer, nn.Module) else of_function(layer, how)


def difference(layer, how, other):
    """The first call that gives something else than the other did, of those that both can take.

    The calls after it aren't made: one difference is enough, and most mutants show it soon.
    """
    for name, result in behaviour(layer, how):
        if name in other and not equal(result, other[name]):
            return name
    return None


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
        return [x.detach().clone() for x in (*parts, *grads, *inputs, *masks)]  # as it is now
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
    H, G, D = how["num_heads"], how.get("num_kv_heads", how["num_heads"]), 8
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
            yield f"plain {B} {L} {S}", tried(attend, *drawn(B, L, S))
            if "is_causal" in takes:
                yield f"causal {B} {L} {S}", tried(attend, *drawn(B, L, S), is_causal=True)
    yield "large", tried(attend, *drawn(3, 9, 9, 100.0))
    yield "again", tried(attend, *[2 * x for x in drawn(3, 9, 9)])
    for dtype in (torch.float16, torch.float64):
        yield f"in {dtype}", tried(attend, *drawn(3, 9, 9, 6.0, dtype))
    yield "large half", tried(attend, *drawn(3, 9, 9, 60.0, torch.float16))
    strange = [x.detach().transpose(-1, -2).contiguous().transpose(-1, -2) for x in drawn(3, 5, 5)]
    yield "strides", tried(attend, *strange)
    if "attn_mask" in takes:
        for name, mask in masks(3, H, 9, 9).items():
            yield f"mask {name}", tried(attend, *drawn(3, 9, 9), attn_mask=mask)
            yield f"mask {name}, large", tried(attend, *drawn(3, 9, 9, 200.0), attn_mask=mask)
            both = {"attn_mask": mask.clone(), "is_causal": True}
            yield f"mask {name}, causal", tried(attend, *drawn(3, 9, 9), **both)


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
    probe = Probe(layer, how)
    for training in (False, True):
        layer.train(training)
        kinds = [kind(probe) for kind in (of_lengths, of_masks, of_padding, of_ids)]
        for name in {"cache", "past"} & set(probe.takes):
            kinds.append(of_cache(layer, name, how.get("new_cache"), probe.drawn))
        for name, result in itertools.chain(*kinds):
            yield f"{name} {training}", result
    layer.eval()
    if "position_ids" in probe.takes:
        ids = torch.arange(400, 409).expand(3, -1)
        layer.to(torch.bfloat16)
        yield "positions in bfloat16", probe(3, 9, 0, torch.bfloat16, position_ids=ids)
        layer.float()


def of_lengths(probe):
    yield "again", probe(3, 9, factor=2)
    yield "many", probe(17, 3)
    causal = probe.name("is_causal", "causal")
    if causal:
        yield "long", probe(2, 60, **{causal: True})
    for B in (1, 3):
        for L in LENGTHS:
            yield f"plain {B} {L}", probe(B, L)
            if causal:
                yield f"causal {B} {L}", probe(B, L, **{causal: True})
    if probe.name("key", "context"):
        for L, S in ((5, 5), (5, 15), (3, 7)):
            inputs = probe.drawn(3, L), probe.drawn(3, S, 1), probe.drawn(3, S, 2)
            inputs = inputs if "key" in probe.takes else inputs[:2]
            yield f"cross {L} {S}", tried(probe.layer, *inputs)
    if weights := probe.name("need_weights", "output_attentions"):
        for options in {}, {causal: True} if causal else {}:
            yield f"weights {len(options)}", probe(3, 9, **{weights: True}, **options)


def of_masks(probe):
    if name := probe.name("attn_mask", "mask", "attention_mask"):
        for kind, mask in masks(3, probe.heads, 9, 9).items():
            if name == "attention_mask":  # floats only
                is_float = mask.is_floating_point()
                mask = mask if is_float else torch.zeros(mask.shape).masked_fill(~mask, -1e9)
            yield f"mask {kind}", probe(3, 9, **{name: mask})


def of_padding(probe):
    causal = probe.name("is_causal")
    name = probe.name("key_padding_mask", "padding_mask")
    for L in (9, 3) if name else ():
        for kind, mask in paddings(3, L).items():
            options = {name: mask}
            yield f"padding {kind} {L}", probe(3, L, **options)
            pairs = options | {"attn_mask": torch.ones(L, L, dtype=torch.bool).tril(1)}
            yield f"padding {kind} {L} mask", probe(3, L, **pairs)
            if causal:
                yield f"padding {kind} {L} causal", probe(3, L, **{causal: True}, **options)


def of_ids(probe):
    if "position_ids" in probe.takes:
        places = {
            "moved": torch.arange(5, 14),
            "far": torch.arange(300, 309),
            "turned": torch.arange(9).flip(0),
            "of each": torch.arange(9) + 3 * torch.arange(3)[:, None],
        }
        for kind, ids in places.items():
            ids = ids if ids.ndim == 2 else ids.expand(3, -1)
            yield f"ids {kind}", probe(3, 9, position_ids=ids)
    if "documents" in probe.takes:
        packs = [[0] * 4 + [1] * 5, [0] * 2 + [1] * 3 + [2] * 4, [0, 1, 2, 2, 3, 3, 3, 3, 3]]
        yield "packed", probe(3, 9, documents=torch.tensor(packs))


def of_cache(layer, name, new_cache, drawn):
    for round_ in (1, 2):
        for chunks in ((4, 1, 1, 1), (3, 4, 2), (1, 1, 1)):
            cache = new_cache() if new_cache else None
            for at, size in enumerate(chunks):
                x = drawn(3, size, at + round_)
                with torch.no_grad():
                    result = tried(layer, x, **{name: cache})
                    if new_cache is None and not isinstance(result, str):
                        _, cache = layer(x, **{name: cache})
                        result = [*result, *(x.clone() for x in cache or ())]
                yield f"cache {round_} {chunks} {at}", result
            if new_cache and sum(chunks) > 6:
                for kept, again in ((5, ""), (4, " 2")):
                    with torch.no_grad():
                        tried(cache.crop, kept)
                        result = tried(layer, drawn(3, 2), **{name: cache})
                    yield f"crop {round_} {chunks}{again}", result
