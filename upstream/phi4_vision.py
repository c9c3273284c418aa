"""The vision tower of transformers' Phi-4 multimodal, under sdpa and eager.

Both must give the same, and a picture has no order in which to read it.
Exit 1 while they differ.
"""

import sys

import torch
from transformers.models.phi4_multimodal import modeling_phi4_multimodal as phi4

torch.manual_seed(0)
config = phi4.Phi4MultimodalVisionConfig(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    image_size=32,
    crop_size=32,
    patch_size=8,
)
model = phi4.Phi4MultimodalVisionModel(config).eval()
for parameter in model.parameters():
    if parameter.ndim > 1:  # as large as in a trained model
        torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
picture = torch.randn(1, 3, 32, 32)
other = picture.clone()
other[..., -8:, -8:] = torch.randn(1, 3, 8, 8)  # another last patch


def outputs(way):
    """All patches' outputs, and by how much the first moves with the last patch."""
    model.set_attn_implementation(way)
    with torch.no_grad():
        one, two = (model(pixel_values=x).last_hidden_state for x in (picture, other))
    return one, (one - two)[:, 0].abs().max().item()


print("default:", model.config._attn_implementation)
fused, moved = outputs("sdpa")
eager, moved_in_eager = outputs("eager")
gap = (fused - eager).abs().max().item()
print(f"sdpa, first patch moves with the last by: {moved:.1e}")
print(f"eager, first patch moves with the last by: {moved_in_eager:.1e}")
print(f"outputs, sdpa and eager: {gap:.1e}")

for module in model.modules():
    if isinstance(module, phi4.Phi4MultimodalVisionAttention):
        module.is_causal = False
mended, _ = outputs("sdpa")
print(f"outputs, sdpa with is_causal = False and eager: {(mended - eager).abs().max():.1e}")
sys.exit(gap > 1e-3)
