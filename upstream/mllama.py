"""Two attention classes of transformers' Mllama, called without a mask.

Neither sets `is_causal`, and sdpa takes a missing one for True: pictures and
cross-attention become causal. Exit 1 while an output misses a key.
"""

import sys

import torch
from transformers.models.mllama import configuration_mllama, modeling_mllama

torch.manual_seed(0)
picture = configuration_mllama.MllamaVisionConfig(hidden_size=32, attention_heads=4)
text = configuration_mllama.MllamaTextConfig(
    hidden_size=32, num_attention_heads=4, num_key_value_heads=2
)
vision = modeling_mllama.MllamaVisionAttention(picture).eval()
cross = modeling_mllama.MllamaTextCrossAttention(text, layer_idx=0).eval()
x, memory = torch.randn(1, 7, 32), torch.randn(1, 7, 32)
other, other_memory = x.clone(), memory.clone()
other[:, -1] = other_memory[:, -1] = 3.0  # another last token

lowest = []
for way in ("eager", "sdpa"):
    picture._attn_implementation = text._attn_implementation = way
    with torch.no_grad():
        one, two = (vision(each)[0][:, 0] for each in (x, other))
        three, four = (
            cross(x, cross_attention_states=each)[0][:, 0] for each in (memory, other_memory)
        )
    moved = (one - two).abs().max().item(), (three - four).abs().max().item()
    print(f"{way}, vision, output 0 moves with the last token by: {moved[0]:.1e}")
    print(f"{way}, cross, output 0 moves with the last key by: {moved[1]:.1e}")
    lowest.append(min(moved))
sys.exit(lowest[0] > 1e-3 > lowest[1])
