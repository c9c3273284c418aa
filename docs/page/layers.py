"""Answers to tasks as layers, which the doctor of `mhattn.testing` can examine.

Of each task whose answer attends, or is a part of attention: its call of the page's test, what
makes a layer of the answer, and how the doctor is told to call it. Layers are small, and take short
texts alone, since a page computes slowly.
"""

import os

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["LAYERS", "examined", "told"]

LONGEST = 8  # tokens of a text; the doctor leaves out what needs longer ones
E, H = 12, 2  # the width of a token, and heads
PLAIN = {"embed_dim": E, "num_heads": H, "causal": True, "scale": (E // H) ** -0.5}
# Not asked: what a page is too slow for, and what the stand-in has no kernels of its own for.
CHECKS = [
    "shape",
    "repeat",
    "dropout",
    "future",
    "past",
    "batch",
    "order",
    "padding",
    "cache",
    "empty-rows",
    "constant-values",
    "formula",
    "like",
    "heads-apart",
    "gradients",
]


class Answer(nn.Module):
    """A layer whose way from tokens to outputs is the reader's.

    Args:
        parts: a module with the layer's weights.
        attend: what makes outputs, ``(B, L, E)``, of these and tokens.
    """

    def __init__(self, parts, attend):
        super().__init__()
        self.parts, self.attend = parts, attend

    def forward(self, x):
        from mhattn.testing.subject import Skip

        if x.shape[1] > LONGEST:
            raise Skip(f"it is called with {LONGEST} tokens at most")
        return self.attend(self.parts, x)


def _parts(**options):
    from mhattn import MultiHeadAttention

    return MultiHeadAttention(E, H, bias=False, **options)


def _heads(parts, x):
    """Queries, keys and values of all heads, (B, H, L, D)."""
    for proj in (parts.q_proj, parts.k_proj, parts.v_proj):
        yield proj(x).unflatten(-1, (H, -1)).transpose(1, 2)


def _attended(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def _merged(parts, heads):
    return parts.out_proj(heads.transpose(1, 2).flatten(2))


def soft_head(answer):
    """One head, whose scores are divided by T = 3."""
    D, parts = E - 4, nn.Module()
    for name in ("W_q", "W_k", "W_v"):
        setattr(parts, name, nn.Parameter(torch.randn(E, D) / E**0.5))
    parts.W_o = nn.Parameter(torch.randn(D, E) / D**0.5)

    def attend(parts, x):
        matrices = parts.W_q, parts.W_k, parts.W_v
        return torch.stack([answer(each, *matrices, T=3.0) for each in x]) @ parts.W_o

    how = {"embed_dim": E, "num_heads": 1, "head_dim": D, "scale": D**-0.5 / 3}
    return Answer(parts, attend), how


def causal(answer):
    """A layer with the answer as its mask."""

    def attend(parts, x):
        query, key, value = _heads(parts, x)
        mask = answer(x.shape[1])[None, None]  # of all texts and heads
        return _merged(parts, F.scaled_dot_product_attention(query, key, value, mask))

    return Answer(_parts(), attend), PLAIN


def merge(answer):
    """A layer that merges its heads by the answer."""

    def attend(parts, x):
        return parts.out_proj(answer(_attended(*_heads(parts, x))))

    return Answer(_parts(), attend), PLAIN


def by_loops(answer):
    """A layer with the weights that the answer is handed."""
    return Answer(_parts(), answer), PLAIN


def at_once(answer):
    """The same, with PyTorch's own kernel between."""
    layer = Answer(_parts(), lambda parts, x: answer(parts, x, _attended))
    return layer, PLAIN


def turn(answer):
    """A layer whose queries and keys the answer turns: all rows in one call, each at its place."""

    def turned(heads):
        B, H, L, D = heads.shape
        places = torch.arange(L).repeat(B * H)
        return answer(heads.reshape(-1, D), places).reshape(B, H, L, D)

    def attend(parts, x):
        query, key, value = _heads(parts, x)
        return _merged(parts, _attended(turned(query), turned(key), value))

    return Answer(_parts(), attend), PLAIN | {"positions": "rotary"}


def grouped(answer):
    """The answer's own layer, beside one with the means of the same heads."""
    from mhattn import MultiHeadAttention, Rotary
    from mhattn.variants import pool_kv_heads

    old = MultiHeadAttention(24, 6, bias=False, position=Rotary(4, base=100.0))
    right = pool_kv_heads(old, 2)
    made = answer(old, 2)
    if not isinstance(made, nn.Module):
        raise TypeError(f"no layer but {type(made).__name__}")

    def attend(layer):
        return Answer(layer, lambda parts, x: parts(x, is_causal=True))

    how = {"embed_dim": 24, "num_heads": 6, "num_kv_heads": 2, "causal": True}
    how |= {"like": attend(right), "positions": "rotary", "rotary": ("halves", 100.0)}
    return attend(made), how


def mended(answer):
    """The suspect of the lab, called as its page says."""
    how = {"embed_dim": 24, "num_heads": 6, "num_kv_heads": 2, "causal": True}
    how |= {"padding": "keep", "padding_true": "attend", "cache": "cache"}
    return answer(24, 6, 2), how | {"empty_rows": "finite"}


LAYERS = {
    "test(soft_head)": soft_head,
    "test(causal)": causal,
    "test(merge)": merge,
    "test_loops(by_loops)": by_loops,
    "test_at_once(at_once)": at_once,
    "test_turned(turn)": turn,
    "test_layer(grouped)": grouped,
    "test_mended(Mended)": mended,
}


def examined(call, answer):
    """The doctor's report on the layer that an answer makes.

    Args:
        call: the call of the page's test, as in `LAYERS`.
        answer: what the test is handed.
    """
    from mhattn.testing import check_attention

    torch.manual_seed(0)
    layer, how = LAYERS[call](answer)
    return check_attention(layer, only=CHECKS, **how)


def told(call, answer, language):
    """What a page shows of the report, in its language.

    Returns:
        ``findings``, of each its ``check``, ``rows`` of two texts and ``page``; ``also``, what
        follows from these; ``count`` of the checks that ran.
    """
    kept = os.environ.get("MHATTN_LANGUAGE")
    os.environ["MHATTN_LANGUAGE"] = language
    try:
        return _in_words(examined(call, answer))
    finally:
        os.environ.pop("MHATTN_LANGUAGE")
        os.environ |= {} if kept is None else {"MHATTN_LANGUAGE": kept}


def _in_words(report):
    from mhattn.testing import Report
    from mhattn.testing.language import label, translated

    def rows(finding):
        told = {name: translated(getattr(finding, name)) for name in ("did", "got", "expected")}
        if finding.case:
            told["did"] = label("{} ({})").format(told["did"], translated(finding.case))
        return [[label(name), text] for name, text in told.items()]

    shown, rest = Report(report.layer, report.errors).folded()
    also = label("also found, as a rule for the same reason")
    also = label("{}: {}").format(also, label(", ").join(rest)) if rest else ""
    findings = [{"check": x.check, "rows": rows(x), "page": x.page} for x in shown]
    return {"findings": findings, "also": also, "count": len(report.checked)}
