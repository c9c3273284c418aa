"""Three models of transformers whose attention_probs_dropout_prob does nothing.

Each layer makes an nn.Dropout and never calls it. In train(), with half of the
weights to be dropped, two calls must differ, as BERT's do. Exit 1 while they don't.
"""

import importlib
import sys

import torch
from transformers import BertConfig, MraConfig, NystromformerConfig, YosoConfig

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "attention_probs_dropout_prob": 0.5}
MODELS = {
    "Bert": BertConfig(**SIZES, attn_implementation="eager"),
    "Nystromformer": NystromformerConfig(**SIZES, segment_means_seq_len=64, num_landmarks=64),
    "Yoso": YosoConfig(**SIZES, max_position_embeddings=64),
    "Mra": MraConfig(**SIZES, max_position_embeddings=64),
}
gaps = {}
for name, config in MODELS.items():
    module = importlib.import_module(f"transformers.models.{name.lower()}.modeling_{name.lower()}")
    torch.manual_seed(0)
    layer = getattr(module, f"{name}SelfAttention")(config).train()
    x = torch.randn(2, 64, 32)
    mask = torch.zeros(2, 64) if name == "Yoso" else torch.zeros(2, 1, 64, 64)
    outputs = []
    for _ in range(2):
        torch.manual_seed(len(outputs))  # YOSO draws hashes as well, but not by torch's dropout
        with torch.no_grad():
            outputs.append(layer(x, attention_mask=mask)[0])
    gaps[name] = (outputs[0] - outputs[1]).abs().max().item()
    print(f"{name}, two calls in train() differ by: {gaps[name]:.1e}")
sys.exit(gaps.pop("Bert") > 0 == max(gaps.values()))
