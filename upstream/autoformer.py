"""transformers' Autoformer, in eval(): a sequence alone and in a batch.

No sequence may depend on its neighbours. Exit 1 while one does.
"""

import inspect
import re
import sys

import torch
from transformers import AutoformerConfig, AutoformerModel
from transformers.models.autoformer import modeling_autoformer as autoformer

SIZES = {"prediction_length": 4, "context_length": 8, "label_length": 4}
for part in ("encoder", "decoder"):
    SIZES |= {f"{part}_layers": 1, f"{part}_attention_heads": 2, f"{part}_ffn_dim": 16}


def gap_of_layer(heads):
    """The most by which a sequence alone differs from itself in a batch of three."""
    torch.manual_seed(0)
    layer = autoformer.AutoformerAttention(embed_dim=16, num_heads=heads).eval()
    x = torch.randn(3, 11, 16)
    with torch.no_grad():
        together = layer(x)[0]
        alone = torch.cat([layer(x[b : b + 1])[0] for b in range(3)])
    return (together - alone).abs().max().item()


def gap_of_model():
    """The same of the whole model, as a share of its largest output."""
    torch.manual_seed(0)
    config = AutoformerConfig(
        d_model=16, input_size=1, lags_sequence=[1, 2], num_time_features=1, init_std=0.5, **SIZES
    )
    model = AutoformerModel(config).eval()
    inputs = {
        "past_values": torch.randn(3, 10),
        "past_time_features": torch.randn(3, 10, 1),
        "past_observed_mask": torch.ones(3, 10),
        "future_values": torch.randn(3, 4),
        "future_time_features": torch.randn(3, 4, 1),
    }
    parts = [{name: x[b : b + 1] for name, x in inputs.items()} for b in range(3)]
    with torch.no_grad():
        together = model(**inputs).last_hidden_state
        alone = torch.cat([model(**part).last_hidden_state for part in parts])
    return ((together - alone).abs().max() / alone.abs().max()).item()


found = gap_of_layer(2)
print(f"layer, 2 heads, alone and in a batch: {found:.1e}")
print(f"layer, 1 head, alone and in a batch: {gap_of_layer(1):.1e}")
print(f"whole model, of its largest output: {gap_of_model():.1e}")

# The same class with `repeat_interleave` for `repeat`, twice
source = inspect.getsource(autoformer.AutoformerAttention)
wrong = r"\.view\(-1, 1, 1\)\.repeat\(\s*self\.num_heads"
right = ".repeat_interleave(self.num_heads).view(-1, 1, 1).repeat(1"
source, places = re.subn(wrong, right, source)
assert places == 2, places
exec(source, vars(autoformer))
print(f"layer, mended: {gap_of_layer(2):.1e}")
print(f"whole model, mended: {gap_of_model():.1e}")
sys.exit(found > 1e-3)
