"""The vision model of transformers' Kosmos-2.5, under sdpa.

Calls of F.scaled_dot_product_attention are counted; SigLIP's are counted the
same way. Exit 1 while Kosmos-2.5 makes none.
"""

import sys

import torch
from torch.nn import functional as F
from transformers import Kosmos2_5Config, SiglipVisionConfig, SiglipVisionModel
from transformers.models.kosmos2_5 import modeling_kosmos2_5 as kosmos

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
SIZES |= {"num_hidden_layers": 2}
calls = 0
fused = F.scaled_dot_product_attention


def counted(*given, **told):
    global calls
    calls += 1
    return fused(*given, **told)


torch.nn.functional.scaled_dot_product_attention = counted
torch.manual_seed(0)
config = Kosmos2_5Config().vision_config
own = {"head_dim": 8, "patch_embed_hidden_size": 12, "seq_len": 16, "max_num_patches": 16}
for name, size in (SIZES | own).items():
    setattr(config, name, size)
config._attn_implementation = "sdpa"
model = kosmos.Kosmos2_5VisionModel(config).eval()
places = torch.randint(1, 4, (1, 9, 2)).float()  # row and column stand before each patch
with torch.no_grad():
    model(torch.cat([places, torch.randn(1, 9, 12)], dim=-1))
of_kosmos, calls = calls, 0

siglip = SiglipVisionConfig(**SIZES, image_size=32, patch_size=8)
siglip._attn_implementation = "sdpa"
with torch.no_grad():
    SiglipVisionModel(siglip).eval()(torch.randn(1, 3, 32, 32))

layer, x = model.encoder.layer[0].attention, torch.randn(1, 5, 32)
visible = torch.ones(1, 1, 5, 5, dtype=torch.bool)
visible[..., 4] = False  # nobody may see key 4
other = x.clone()
other[:, 4] = 7.0
with torch.no_grad():
    one, two = (layer(each, attention_mask=visible)[0][:, :4] for each in (x, other))

print(f"Kosmos-2.5, 2 layers, calls of SDPA: {of_kosmos}")
print(f"SigLIP, 2 layers, calls of SDPA: {calls}")
print(f"hidden key replaced, other outputs move by: {(one - two).abs().max():.1e}")
sys.exit(of_kosmos == 0)
