"""torch.ao's quantizable MultiheadAttention, with batch_first=True.

It is given the weights of an nn.MultiheadAttention and is not quantised,
so both must give the same. Exit 1 while they don't.
"""

import sys

import torch
from torch import nn
from torch.ao.nn import quantizable

torch.manual_seed(0)
gaps = {}
for batch_first in (False, True):
    plain = nn.MultiheadAttention(24, 3, batch_first=batch_first).eval()
    plain.qconfig = None
    other = quantizable.MultiheadAttention.from_float(plain).eval()
    x = torch.randn(2, 5, 24)
    with torch.no_grad():
        right, _ = plain(x, x, x)
        given = []
        other.out_proj.register_forward_pre_hook(
            lambda layer, inputs, given=given: given.append(inputs[0])
        )
        wrong, _ = other(x, x, x)
        gaps[batch_first] = (right - wrong).abs().max().item()
        if batch_first:  # what bmm gave, (B * H, L, D), merged with a transpose
            heads = given[0].reshape(2, 3, 5, 8)
            merged = heads.transpose(1, 2).reshape(2, 5, 24)
            gaps["mended"] = (right - other.out_proj(merged)).abs().max().item()

print(f"batch_first=False, largest difference: {gaps[False]:.1e}")
print(f"batch_first=True, largest difference: {gaps[True]:.1e}")
print(f"merged with a transpose, largest difference: {gaps['mended']:.1e}")
sys.exit(gaps[True] > 1e-3)
