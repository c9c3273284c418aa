"""Attention of whole models, as the models call it: what is right passes, what is wrong is found.

Models of torch, of transformers and of our own, in their usual forms and with one slip each.
"""

import json
import warnings

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F
from transformers.models.kosmos2_5 import modeling_kosmos2_5 as kosmos
from transformers.models.phi4_multimodal import modeling_phi4_multimodal as phi4

from mhattn import MultiHeadAttention
from mhattn.testing import check_model, tiny_model
from mhattn.testing.__main__ import main

V, E, H = 97, 24, 3
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": V,
}
TEXT = SMALL | {"num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
BART = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "vocab_size": V,
}


class Attention(nn.Module):
    """Causal self-attention with rotary positions from its model, and one slip or none."""

    def __init__(self, slip=""):
        super().__init__()
        self.slip, self.kept = slip, None
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(E, E, bias=False) for _ in range(4)
        )

    def turn(self, x, cos, sin):
        one, two = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-two, one], dim=-1) * sin

    def forward(self, x, position_embeddings):
        B, L, _ = x.shape
        heads = (p(x).view(B, L, H, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj))
        q, k = (self.turn(h, *position_embeddings) for h in heads)
        v = self.v_proj(x).view(B, L, H, -1).transpose(1, 2)
        scale = {"scale missing": 1.0, "scale": 0.5}.get(self.slip)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        mixed = mixed if self.slip == "merge" else mixed.transpose(1, 2)
        mixed = mixed.reshape(B, L, E)
        if self.slip == "batch":
            mixed = mixed + 0.1 * mixed.mean(dim=0)
        if self.slip == "kept":
            self.kept = mixed[:, :1] if self.kept is None else self.kept
            mixed = mixed + self.kept[:1, :1].detach()
        return self.out_proj(mixed)


class Neighbours(Attention):
    """Turns features that stand side by side, by angles that come in halves."""

    def turn(self, x, cos, sin):
        cos, sin = (
            angles.chunk(2, dim=-1)[0].repeat_interleave(2, dim=-1) for angles in (cos, sin)
        )
        other = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
        return x * cos + other * sin


class Model(nn.Module):
    """Two blocks on token numbers, which compute the angles for all of them."""

    def __init__(self, slip="", make=Attention):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(V, E)
        self.blocks = nn.ModuleList(make(slip) for _ in range(2))

    def forward(self, ids):
        D = E // H
        speeds = 10000.0 ** -(torch.arange(0, D, 2) / D)
        angles = torch.arange(ids.shape[1])[:, None] * speeds
        angles = torch.cat([angles, angles], dim=-1)
        x = self.embedding(ids)
        for block in self.blocks:
            x = x + block(x, (angles.cos()[None], angles.sin()[None]))
        return x


def ids(batch=2, length=11):
    return torch.randint(3, V, (batch, length), generator=torch.Generator().manual_seed(1))


def padded():
    """Two sequences, of which the second one is shorter: 1 is a token."""
    return (torch.arange(11) < torch.tensor([[11], [8]])).long()


def text(name, **options):
    torch.manual_seed(0)
    settings = getattr(transformers, f"{name}Config")(**TEXT | options)
    return transformers.AutoModel.from_config(settings), (ids(),), {}


def encoder(name, **options):
    torch.manual_seed(0)
    settings = getattr(transformers, f"{name}Config")(**SMALL | options)
    return transformers.AutoModel.from_config(settings), (ids(),), {}


def bart():
    torch.manual_seed(0)
    options = {"decoder_input_ids": ids(2, 7)}
    return transformers.BartModel(transformers.BartConfig(**BART)), (ids(),), options


def t5():
    sizes = {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 1, "num_heads": 4}
    settings = transformers.T5Config(**sizes, vocab_size=V)
    return transformers.T5Model(settings), (ids(),), {"decoder_input_ids": ids(2, 7)}


def mpt():
    settings = transformers.MptConfig(vocab_size=V, d_model=32, n_heads=4, n_layers=1)
    return transformers.MptModel(settings), (ids(),), {}


def vit():
    sizes = {k: SMALL[k] for k in SMALL if k != "vocab_size"}
    settings = transformers.ViTConfig(**sizes, image_size=32, patch_size=8)
    return transformers.ViTModel(settings), (torch.randn(2, 3, 32, 32),), {}


def of_torch(**options):
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(E, H, 48, **options)
    return nn.TransformerEncoder(block, 2, enable_nested_tensor=False)


class Ours(nn.Module):
    def __init__(self, slip):
        super().__init__()
        self.attention = MultiHeadAttention(E, H)

    def forward(self, x, position_embeddings):
        return self.attention(x, is_causal=True)


def of_x(**options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it calls torch.jit while it is imported
        import x_transformers
    torch.manual_seed(0)
    layers = x_transformers.Decoder(dim=E, depth=1, heads=H, attn_dim_head=8, **options)
    sizes = {"num_tokens": V, "max_seq_len": 128}
    return x_transformers.TransformerWrapper(**sizes, attn_layers=layers), (ids(),), {}


RIGHT = {
    "own": lambda: (Model(), (ids(),), {}),
    "own, side by side": lambda: (Model(make=Neighbours), (ids(),), {}),
    "mhattn": lambda: (Model(make=Ours), (ids(),), {}),
    "torch": lambda: (of_torch(batch_first=True), (torch.randn(2, 7, E),), {}),
    "torch, (L, B, E)": lambda: (of_torch(), (torch.randn(7, 2, E),), {}),
    "torch, both": lambda: (
        nn.Transformer(E, 4, 1, 1, 48, batch_first=True),
        (torch.randn(2, 7, E), torch.randn(2, 5, E)),
        {},
    ),
    "Llama": lambda: text("Llama"),
    "Llama, eager": lambda: text("Llama", attn_implementation="eager"),
    "Qwen3": lambda: text("Qwen3"),
    "Gemma2": lambda: text("Gemma2", sliding_window=5),
    "Gemma3": lambda: text("Gemma3Text", sliding_window=5),
    "Cohere2": lambda: text("Cohere2", layer_types=["sliding_attention", "full_attention"]),
    "OLMo2": lambda: text("Olmo2"),
    "Bloom": lambda: (
        transformers.BloomModel(transformers.BloomConfig(vocab_size=V, hidden_size=32, n_head=4)),
        (ids(),),
        {},
    ),
    "GPT-2": lambda: (
        transformers.GPT2Model(
            transformers.GPT2Config(vocab_size=V, n_embd=32, n_layer=1, n_head=4)
        ),
        (ids(),),
        {},
    ),
    "MPT": mpt,
    "x, plain": of_x,
    "x, ALiBi": lambda: of_x(alibi_pos_bias=True),
    "x, T5's bias": lambda: of_x(rel_pos_bias=True),
    "x, rotary": lambda: of_x(rotary_pos_emb=True, rotary_emb_dim=8),
    "x, unit vectors": lambda: of_x(attn_qk_norm=True),
    "x, keys of its own": lambda: of_x(attn_num_mem_kv=2),
    "x, gates": lambda: of_x(attn_gate_values=True),
    "x, attention on attention": lambda: of_x(attn_on_attn=True),
    "BERT": lambda: encoder("Bert"),
    "DeBERTa": lambda: encoder("Deberta"),
    "DiffLlama": lambda: text("DiffLlama"),
    "BERT, padded": lambda: (*encoder("Bert")[:2], {"attention_mask": padded()}),
    "DeBERTa, padded": lambda: (*encoder("Deberta")[:2], {"attention_mask": padded()}),
    "torch, padded": lambda: (
        of_torch(batch_first=True),
        (torch.randn(2, 11, E),),
        {"src_key_padding_mask": padded() == 0},
    ),
    "Helium": lambda: text("Helium"),
    "BART": bart,
    "T5": t5,
    "ViT": vit,
}


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found_in_right_models(name):
    model, inputs, options = RIGHT[name]()
    found = check_model(model, *inputs, **options)
    assert found.ok, str(found)
    assert found.reports
    assert not found.unexamined
    assert all(len(report.checked) >= 12 for report in found.reports.values())


@pytest.mark.parametrize(
    "name", ["own", "own, side by side", "Llama", "Helium", "Qwen3", "Cohere2", "Gemma2", "ViT"]
)
def test_the_formula_is_compared_with_nothing_said(name):
    model, inputs, options = RIGHT[name]()
    found = check_model(model, *inputs, **options)
    assert all("formula" in report.checked for report in found.reports.values()), str(found)


@pytest.mark.parametrize(
    ("slip", "check"),
    [
        ("scale missing", "formula"),
        ("scale", "formula"),
        ("merge", "heads-apart"),
        ("batch", "batch"),
        ("kept", "lengths"),
    ],
)
def test_a_slip_is_found_inside_a_model(slip, check):
    [report] = check_model(Model(slip), ids()).reports.values()
    assert check in {finding.check for finding in report.errors}, str(report)


class Block(nn.Module):
    """What torch.ao gives in place of `nn.MultiheadAttention`: heads merged by view."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(2)
        self.attention, self.out = kind(E, H, batch_first=True), nn.Linear(E, E)

    def forward(self, x):
        return self.out(x + self.attention(x, x, x)[0])


def test_heads_merged_by_view_are_found():
    x = torch.randn(3, 7, E)
    assert check_model(Block(nn.MultiheadAttention), x).ok
    found = check_model(Block(torch.ao.nn.quantizable.MultiheadAttention), x)
    assert "it is exactly that of: heads merged by view alone" in found.errors[0].got


class Pictures(nn.Module):
    """A picture's patches for a layer that takes the first axis for that of the tokens, or not."""

    def __init__(self, batch_first):
        super().__init__()
        torch.manual_seed(2)
        self.patches = nn.Conv2d(3, E, 8, 8)
        self.attention = nn.MultiheadAttention(E, H, batch_first=batch_first)

    def forward(self, pictures):
        x = self.patches(pictures).flatten(2).mT
        return self.attention(x, x, x)[0]


def test_pictures_of_a_batch_that_attend_to_each_other_are_found():
    pictures = torch.randn(3, 3, 32, 32)
    assert check_model(Pictures(True), pictures).ok
    found = check_model(Pictures(False), pictures)
    assert "batch" in {finding.check for finding in found.errors}


def autoformer():
    sizes = {"prediction_length": 4, "context_length": 8, "label_length": 4, "d_model": 16}
    sizes |= {f"{part}_layers": 1 for part in ("encoder", "decoder")}
    sizes |= {f"{part}_attention_heads": 2 for part in ("encoder", "decoder")}
    sizes |= {f"{part}_ffn_dim": 16 for part in ("encoder", "decoder")}
    settings = transformers.AutoformerConfig(
        input_size=1, lags_sequence=[1, 2], num_time_features=1, init_std=0.5, **sizes
    )
    inputs = {"past_values": torch.randn(3, 10), "future_values": torch.randn(3, 4)}
    inputs |= {"past_time_features": torch.randn(3, 10, 1)}
    inputs |= {"future_time_features": torch.randn(3, 4, 1)}
    inputs |= {"past_observed_mask": torch.ones(3, 10)}
    return transformers.AutoformerModel(settings), inputs


def test_autoformers_mixed_batch_is_found():
    model, inputs = autoformer()
    found = check_model(model, **inputs)
    for report in found.reports.values():
        assert "batch" in {finding.check for finding in report.errors}


def phi4_vision():
    settings = phi4.Phi4MultimodalVisionConfig(
        **{k: SMALL[k] for k in SMALL if k != "vocab_size"},
        image_size=32,
        crop_size=32,
        patch_size=8,
    )
    return phi4.Phi4MultimodalVisionModel(settings), torch.randn(2, 3, 32, 32)


def test_a_tower_that_is_causal_under_one_implementation_is_found():
    model, pictures = phi4_vision()
    [finding] = check_model(model, pixel_values=pictures).findings
    assert finding.check == "kernels"
    assert "first in encoder.layers.0.self_attn" in finding.got
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False
    assert check_model(model, pixel_values=pictures).findings == []


def test_a_model_that_reads_ahead_under_one_implementation_is_found():
    """PaliGemma on text alone: its layers aren't causal, and only eager is given a mask."""
    model, inputs = tiny_model("paligemma")
    other = {"input_ids": torch.cat([inputs["input_ids"][:, :-1], ids()[:, :1]], dim=1)}
    moved = {}
    for way in ("eager", "sdpa"):
        model.set_attn_implementation(way)
        with torch.no_grad():
            one, two = (model(**each).last_hidden_state for each in (inputs, other))
        moved[way] = (one - two)[:, 0].abs().max().item()
    assert moved["eager"] == 0 < 1e-3 < moved["sdpa"], "without the doctor"
    [finding] = check_model(model, **inputs).findings
    assert finding.check == "kernels"
    assert "first in language_model.layers.0.self_attn" in finding.got


def test_a_dropout_that_is_made_and_never_called_is_found():
    for name in ("nystromformer", "yoso"):
        model, inputs = tiny_model(name)
        [report] = check_model(model, **inputs).reports.values()
        assert "dropout" in {finding.check for finding in report.errors}


def test_an_implementation_that_never_runs_is_found():
    settings = transformers.Kosmos2_5Config().vision_config
    sizes = {k: SMALL[k] for k in SMALL if k != "vocab_size"} | {"head_dim": 8}
    sizes |= {"patch_embed_hidden_size": 12, "max_num_patches": 16, "seq_len": 16}
    for name, size in sizes.items():
        setattr(settings, name, size)
    places = torch.cartesian_prod(torch.arange(1.0, 4), torch.arange(1.0, 4)).expand(2, -1, -1)
    patches = torch.cat([places, torch.randn(2, 9, 12)], dim=-1)
    found = check_model(kosmos.Kosmos2_5VisionModel(settings), patches)
    [finding] = found.findings
    assert finding.got == "F.scaled_dot_product_attention was never called"


def test_the_model_stays_as_it_was():
    model = Model().train()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    drawn = torch.random.get_rng_state()
    check_model(model, ids())
    assert torch.equal(drawn, torch.random.get_rng_state())
    assert model.training
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_each_kind_is_examined_once_and_named():
    model = transformers.AutoModel.from_config(
        transformers.Gemma2Config(**TEXT | {"num_hidden_layers": 4}, sliding_window=5)
    )
    found = check_model(model, ids())
    assert [len(names) for names in found.layers.values()] == [2, 2]
    text = str(found)
    assert "layers.0.self_attn: Gemma2Attention × 2, ok" in text
    assert text.startswith("Gemma2Model: 4 layers of attention, of 2 kinds")


def test_weights_too_small_to_tell_are_drawn_anew():
    model = Model("merge")
    for p in model.blocks.parameters():
        nn.init.normal_(p, std=1e-10)
    [report] = check_model(model, ids()).reports.values()
    assert not report.ok
    assert "drawn anew" in report.assumed[-1]


def test_what_cannot_be_examined_says_why():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(8, E)

        def forward(self, query_states, value_states):
            weights = (query_states @ query_states.mT).softmax(-1)
            return self.out(weights @ value_states)

    class Narrow(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attention()

        def forward(self, x):
            return self.attention(x, x[..., :8])

    found = check_model(Narrow(), torch.randn(2, 7, E))
    why = "its value_states has another width than its query_states"
    assert found.unexamined == {"attention": why}
    assert found.ok
    assert f"not examined: {why}" in str(found)


class CrossAttention(nn.Module):
    """Attention to a memory under a name of its own, or to none at all."""

    def __init__(self, width):
        super().__init__()
        self.q_proj = nn.Linear(E, E)
        self.k_proj, self.v_proj = (nn.Linear(width, E) for _ in range(2))

    def forward(self, x, cross_states=None):
        if cross_states is None:
            return x
        q, k, v = self.q_proj(x), self.k_proj(cross_states), self.v_proj(cross_states)
        q, k, v = (each.unflatten(-1, (H, -1)).transpose(1, 2) for each in (q, k, v))
        weights = (q @ k.mT / (E // H) ** 0.5).softmax(-1)
        return x + (weights @ v).transpose(1, 2).flatten(2)


class Reader(nn.Module):
    """Gives its layer a memory of this width; of width 0: none."""

    def __init__(self, width):
        super().__init__()
        self.mixes = nn.MultiheadAttention(E, H, batch_first=True)
        self.attention, self.width = CrossAttention(width or E), width

    def forward(self, x):
        x = x + self.mixes(x, x, x)[0]
        return self.attention(x, x[:, :5, : self.width] if self.width else None)


@pytest.mark.parametrize(
    ("width", "why"),
    [
        (8, "its cross_states has another width than its x"),
        (0, "no output depends on another token, and its keys are none of them"),
    ],
)
def test_a_layer_that_reads_elsewhere_is_not_accused_of_blindness(width, why):
    found = check_model(Reader(width), torch.randn(2, 7, E))
    assert found.unexamined == {"attention": why}
    assert found.ok


def test_heads_wider_than_their_share_are_measured():
    """As in x-transformers, whose three heads of a width of 24 have 64 features each."""
    library = pytest.importorskip("x_transformers")
    layer = library.Encoder(dim=E, depth=1, heads=H)
    model = library.TransformerWrapper(num_tokens=V, max_seq_len=64, attn_layers=layer)
    [report] = check_model(model, ids()).reports.values()
    assert any("head_dim=64" in line for line in report.assumed)
    assert report.ok


def test_no_finding_and_no_note_in_either_layout_of_angles():
    for make in (Attention, Neighbours):
        [report] = check_model(Model(make=make), ids()).reports.values()
        assert report.findings == []
        assert "formula" in report.checked


class Indexed(Attention):
    """Attention with a part that weighs tokens as well, as indexers do."""

    def __init__(self, slip):
        super().__init__(slip)
        self.indexer = Indexer()

    def forward(self, x, position_embeddings):
        return super().forward(x, position_embeddings) + 0 * self.indexer(x)


class Indexer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weigh = nn.Linear(E, E)

    def forward(self, x):
        return (self.weigh(x) @ x.mT).softmax(-1) @ x


def test_a_part_that_weighs_is_examined_with_its_whole():
    found = check_model(Model(make=Indexed), ids())
    assert list(found.layers) == ["blocks.0"]


@pytest.mark.parametrize(
    ("model", "inputs", "error", "says"),
    [
        (len, (), TypeError, "model must be a torch.nn.Module"),
        (nn.Linear(2, 2), (torch.randn(2, 2),), ValueError, "model must attend, got Linear"),
        (nn.Linear(2, 2), (torch.randn(2, 3),), ValueError, "model raised with these inputs"),
    ],
)
def test_nonsense_is_refused(model, inputs, error, says):
    with pytest.raises(error, match=says):
        check_model(model, *inputs)


def test_only_some_checks_may_be_asked_for():
    [report] = check_model(Model("batch"), ids(), only=["batch"]).reports.values()
    assert report.checked == ["batch"]
    with pytest.raises(ValueError, match="only must name checks, got 'nothing'"):
        check_model(Model(), ids(), only=["nothing"])


@pytest.mark.parametrize("of", ["qwen3", "gemma3_text", "bert", "bart", "vit", "deepseek_v4"])
def test_a_small_model_of_a_configuration_is_examined(of):
    model, inputs = tiny_model(of)
    assert sum(p.numel() for p in model.parameters()) < 1_000_000
    again, _ = tiny_model(of)
    pairs = zip(model.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    found = check_model(model, **inputs)
    assert found.ok, str(found)
    assert found.reports
    assert not any("indexer" in name for name in found.layers), "a part is examined with its whole"


def test_a_configuration_that_is_a_file_is_shrunk(tmp_path):
    settings = {"model_type": "llama", "hidden_size": 4096, "rope_theta": 500000.0}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    model, inputs = tiny_model(str(path))
    [report] = check_model(model, **inputs).reports.values()
    assert model.config.hidden_size == 32
    assert "500000.0" in " ".join(report.assumed)
    path.write_text(json.dumps({"model_type": "nothing"}), encoding="utf-8")
    with pytest.raises(ValueError, match="must name a model_type of transformers, got 'nothing'"):
        tiny_model(str(path))


@pytest.mark.parametrize(
    ("of", "says"),
    [
        ("qwen33", "no configuration 'qwen33' in transformers; like it: qwen3"),
        ("nowhere.json", "no configuration 'nowhere.json': there is no such file"),
        ("bark", "no inputs for BarkModel are known here: it takes input_ids"),
    ],
)
def test_what_cannot_be_built_says_why(of, says):
    with pytest.raises(ValueError, match=says):
        tiny_model(of)


def test_the_command_examines_a_model_and_says_it_in_its_status(capsys):
    assert main(["transformers:qwen3"]) == 0
    assert capsys.readouterr().out.startswith("Qwen3Model: 2 layers of attention, of 1 kind")
    assert main(["transformers:qwen3", "--format", "json"]) == 0
    [told] = json.loads(capsys.readouterr().out)
    assert list(told["layers"].values()) == [["layers.0.self_attn", "layers.1.self_attn"]]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["transformers:qwen33"], "like it: qwen3"),
        (["transformers:qwen3", "--embed-dim", "32"], "--embed-dim is for a layer"),
    ],
)
def test_the_command_refuses_nonsense(arguments, says, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert says in capsys.readouterr().err
