"""A plain layer whose parts tests replace, and what the doctor says of it."""

import torch
from torch import nn

from mhattn.testing import check_attention

E, H = 24, 3


class Layer(nn.Module):
    """Four matrices and softmax; its parts are there to be replaced."""

    def __init__(self, slip=""):
        super().__init__()
        self.embed_dim, self.num_heads, self.slip = E, H, slip
        for name in "qkvo":
            setattr(self, f"{name}_proj", nn.Linear(E, E, bias=False))

    def three(self, query, key, value):
        given = zip("qkv", (query, key, value), strict=True)
        made = [getattr(self, f"{name}_proj")(x) for name, x in given]
        return [x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in made]

    def scores(self, q, k):
        return q @ k.mT / q.shape[-1] ** 0.5

    def merged(self, mixed):
        return self.o_proj(mixed.transpose(1, 2).flatten(2))

    def forward(self, x):
        q, k, v = self.three(x, x, x)
        return self.merged(self.scores(q, k).softmax(-1) @ v)


def report(make, slip="", **how):
    torch.manual_seed(0)
    return check_attention(make(slip), **how)


def errors(make, slip="", **how):
    return [finding.check for finding in report(make, slip, **how).errors]
