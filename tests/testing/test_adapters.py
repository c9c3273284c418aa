"""Attention of other libraries is recognised, read rightly, and mistakes in it are found."""

import re
from pathlib import Path

import pytest
import torch
from rights.entries import RIGHT, D, E, G, H
from rights.hub import config, model
from rights.of_transformers import bart, bert, t5, turned
from torch import nn

from mhattn.testing import adapt, check_attention

DOCS = Path(__file__).parents[2] / "docs"
SIZES = {"hidden_size": E, "num_attention_heads": H, "num_key_value_heads": G, "head_dim": D}


def llama(kind="Llama", base=None, **options):
    if base:
        options["rope_parameters"] = {"rope_type": "default", "rope_theta": base}
    settings = config(f"{kind}Config", "eager", **SIZES, **options)
    return model(kind.lower(), f"{kind}Attention")(settings, layer_idx=0)


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda: llama(base=500.0), {"positions": "rotary", "rotary": ("halves", 500.0)}),
        (lambda: llama("Cohere", 3000.0), {"rotary": ("interleaved", 3000.0)}),
        (lambda: turned("Phi", "phi", "sdpa", 0.5), {"positions": "relative", "causal": True}),
        (lambda: llama("Mistral", sliding_window=7), {"window": 7, "num_kv_heads": G}),
        (lambda: llama("Mistral", sliding_window=4096), {"window": None}),
        (lambda: t5(True), {"scale": 1.0, "positions": "relative", "position_ids": False}),
        (lambda: bert("sdpa", "BertSelfAttention"), {"causal": False, "inputs": "x"}),
        (lambda: bert("eager", "BertCrossAttention"), {"inputs": "qk", "weights": "need_weights"}),
        (lambda: bart("sdpa", "decoder"), {"causal": True, "cache": "cache", "head_dim": D}),
    ],
)
def test_sizes_positions_and_forms_are_read(make, read):
    how = adapt(make()).how
    assert {name: how[name] for name in read} == read


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_names_the_classes_that_are_examined_with_nothing_said(language):
    def plain(names):
        return {re.sub(r"\W|_", "", name).lower() for name in names}

    text = (DOCS / language / "doctor.md").read_text(encoding="utf-8")
    [named] = re.findall(r"[(（](Llama,[^)）]*|Llama、[^)）]*)[)）]", text)
    silent = [name for name, each in RIGHT.items() if not each.how]
    examined = [re.findall(r"^transformers: ([\w.-]+)", name) for name in silent]
    assert plain(re.split("[,、]", named)) == plain(name for names in examined for name in names)


def test_the_layer_is_called_as_its_model_calls_it():
    import transformers

    settings = config("LlamaConfig", "eager", **SIZES, num_hidden_layers=1, vocab_size=7)
    whole = transformers.LlamaModel(settings).eval()
    tokens, seen = torch.randint(7, (2, 5)), {}

    def note(_, given, options, found):
        seen.update(x=(*given, options.get("hidden_states"))[0], output=found[0], weights=found[1])

    layer = whole.layers[0].self_attn
    layer.register_forward_hook(note, with_kwargs=True)
    whole(tokens)
    expected = dict(seen)
    output, weights = adapt(layer)(expected["x"], need_weights=True)
    torch.testing.assert_close(output, expected["output"])
    torch.testing.assert_close(weights, expected["weights"])


def test_the_report_says_what_was_assumed():
    report = check_attention(llama(), only=["shape"], num_heads=H)
    text = " ".join(str(report).split())
    assert "positions come from LlamaRotaryEmbedding" in text
    assert f"embed_dim={E}" in text
    assert "num_heads=" not in text  # that was told
    assert str(report).startswith("LlamaAttention: 0 mistakes")


def test_mistakes_in_a_subclass_are_found():
    base = model("llama", "LlamaAttention")
    settings = config("LlamaConfig", "eager", **SIZES)

    class NoMask(base):
        def forward(self, hidden_states, position_embeddings, attention_mask=None, **options):
            return super().forward(hidden_states, position_embeddings, None, **options)

    class Exchanged(base):
        def forward(self, hidden_states, position_embeddings, attention_mask=None, **options):
            cos, sin = position_embeddings
            return super().forward(hidden_states, (cos, -sin), attention_mask, **options)

    class LastHead(base):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            self.o_proj.register_forward_pre_hook(lambda _, x: (x[0].roll(D, dims=-1),))

    names = {"only": ["future", "formula", "heads-apart"]}
    for kind, check in ((NoMask, "future"), (Exchanged, "formula"), (LastHead, "heads-apart")):
        report = check_attention(kind(settings, 0), **names)
        assert check in {each.check for each in report.errors}, str(report)


def test_strange_arguments_are_errors():
    with pytest.raises(TypeError, match="layer must be a module, got int"):
        adapt(3)
    with pytest.raises(ValueError, match=r"part must be one of 'self', 'memory', got 'both'"):
        adapt(llama(), part="both")
    with pytest.raises(ValueError, match="got Linear"):
        adapt(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="part must be 'self': LlamaAttention takes no memory"):
        adapt(llama(), part="memory")
    with pytest.raises(TypeError, match="mask must be booleans for an adapter"):
        adapt(llama())(torch.zeros(1, 3, E), mask=torch.zeros(3, 3))
