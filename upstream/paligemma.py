"""transformers' PaliGemma on text alone, under sdpa and eager.

Both must give the same. Exit 1 while sdpa, the default, reads ahead.
"""

import sys

import torch
from transformers import GemmaConfig, PaliGemmaConfig, PaliGemmaModel, SiglipVisionConfig

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4}
text = GemmaConfig(**SIZES, num_key_value_heads=2, head_dim=8, vocab_size=97, pad_token_id=0)
vision = SiglipVisionConfig(**SIZES, image_size=32, patch_size=8)
torch.manual_seed(0)
config = PaliGemmaConfig(
    text_config=text, vision_config=vision, projection_dim=32, image_token_id=96
)
model = PaliGemmaModel(config).eval()
ids = torch.randint(3, 96, (1, 11))
other = ids.clone()
other[0, -1] = (ids[0, -1] + 1) % 90 + 3  # another last token

moved, outputs = {}, {}
for way in ("sdpa", "eager"):
    model.set_attn_implementation(way)
    with torch.no_grad():
        one, two = (model(input_ids=each).last_hidden_state for each in (ids, other))
    outputs[way], moved[way] = one, (one - two)[:, :-1].abs().max().item()
    print(f"{way}, earlier outputs move with the last token by: {moved[way]:.1e}")
gap = (outputs["sdpa"] - outputs["eager"]).abs().max().item()
print(f"outputs, sdpa and eager: {gap:.1e}")
sys.exit(moved["sdpa"] > 1e-3)
