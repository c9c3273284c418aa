"""The additive attention of transformers' SwiftFormer.

Its softmax runs over an axis of size one, so each weight is 1, and the vector
w_g that decides the weights has no effect. Exit 1 while it has none.
"""

import sys

import torch
from transformers import SwiftFormerConfig
from transformers.models.swiftformer import modeling_swiftformer

torch.manual_seed(0)
kind = modeling_swiftformer.SwiftFormerEfficientAdditiveAttention
layer = kind(SwiftFormerConfig(), dim=32).eval()
x = torch.randn(2, 7, 32)
weights = []
softmax = torch.Tensor.softmax
torch.Tensor.softmax = lambda *given, **told: weights.append(softmax(*given, **told)) or weights[-1]
output = layer(x)
output.square().sum().backward()
gradient = layer.w_g.grad.abs().max().item()
with torch.no_grad():
    layer.w_g.mul_(-5)
    moved = (layer(x) - output).abs().max().item()

print(f"smallest weight: {weights[0].min():.1f}")
print(f"largest weight: {weights[0].max():.1f}")
print(f"w_g times -5, the output moves by: {moved:.1e}")
print(f"largest gradient of w_g: {gradient:.1e}")
sys.exit(moved == 0)
