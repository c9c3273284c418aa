"""Patching: against hooks by hand, a model written out, and runs on the other input."""

import pytest
import torch
from architecture_table import tried
from architectures import KIND_OF, made
from torch import nn
from torch.nn import functional as F

from mhattn.core import attention, split_heads
from mhattn.inside import (
    attention_layers,
    head_outputs,
    layers,
    mlp_outputs,
    patch_heads,
    patch_mlps,
    patch_path,
    patch_qkv,
    patch_stream,
    residual_cache,
)
from mhattn.models import LanguageModel

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers has many
L, H, KV, D, E = 7, 6, 2, 4, 24
ALL = ["query", "key", "value"]


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    kept = {}
    monkeypatch.setattr(layers, "REGISTERED", kept)
    monkeypatch.setattr("architecture_table.REGISTERED", kept)


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def close(found, expected, atol=1e-5):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=atol)


def differ(x, y):
    return (x - y).abs().max().item() > 1e-3


def small(dtype=torch.float32):
    """The package's Llama, as SmolLM2 is one, with three query heads to each of key and value."""
    torch.manual_seed(0)
    sizes = {"num_heads": H, "num_kv_heads": KV, "mlp_dim": 29}
    model = LanguageModel(11, 3, embed_dim=E, **sizes, base=100.0, eps=1e-5).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.4)
    return model.to(dtype), *torch.randint(11, (2, 2, L))


def projected(block, x):
    """What the heads of a block weigh, written out: (B, H, L, D) each."""
    own, normed = block.attention, block.attention_norm(x)
    query, key, value = (
        split_heads(part(normed), heads)
        for part, heads in ((own.q_proj, H), (own.k_proj, KV), (own.v_proj, KV))
    )
    query, key = own.position.rotate(query, 0), own.position.rotate(key, 0)
    return query, *(x.repeat_interleave(H // KV, dim=1) for x in (key, value))


def behind_mlp(block, x):
    normed = block.mlp_norm(x)
    return x + block.down(F.silu(block.gate(normed)) * block.up(normed))


def run(model, tokens, heads_of=None, start=0, x=None):
    """The model written out; heads_of(layer, x) may say what heads give: (B, H, L, D)."""
    x = model.embedding(tokens) if x is None else x
    for layer, block in list(enumerate(model.blocks))[start:]:
        heads = None if heads_of is None else heads_of(layer, x)
        heads = attention(*projected(block, x), is_causal=True) if heads is None else heads
        x = x + block.attention.out_proj(heads.transpose(1, 2).flatten(2))
        x = behind_mlp(block, x)
    return model.norm(x) @ model.embedding.weight.T


def streams(model, tokens):
    """In front of each block, and behind the last."""
    found = [model.embedding(tokens)]
    for block in model.blocks:
        found.append(block(found[-1])[0])
    return found


class TestStream:
    @pytest.mark.parametrize("block", [0, 1, 2])
    def test_one_position_by_hand(self, block):
        model, tokens, other = small()
        x, y = streams(model, tokens)[block].clone(), streams(model, other)[block]
        x[:, 3] = y[:, 3]
        with patch_stream(model, [block], residual_cache(model, other), [3]):
            patched = model(tokens)
        close(patched, run(model, tokens, start=block, x=x))
        assert not differ(patched[:, :3], model(tokens)[:, :3])
        assert differ(patched[:, 3:], model(tokens)[:, 3:])

    def test_behind_the_last_block(self):
        model, tokens, other = small()
        with patch_stream(model, ["3"], residual_cache(model, other), [-1], behind=True):
            patched = model(tokens)
        close(patched[:, -1], model(other)[:, -1])
        assert torch.equal(patched[:, :-1], model(tokens)[:, :-1])

    def test_embeddings_of_one_position_are_another_token(self):
        model, tokens, other = small()
        mixed = tokens.clone()
        mixed[:, 2:4] = other[:, 2:4]
        with patch_stream(model, [0], residual_cache(model, other), slice(2, 4)):
            close(model(tokens), model(mixed))

    @pytest.mark.parametrize("batch_first", [True, False])
    def test_positions_of_either_layout(self, batch_first):
        block = nn.TransformerEncoderLayer(12, 3, 17, batch_first=batch_first)
        model = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
        x, other = torch.randn(2, 5, 4, 12)
        mixed = x.clone()
        at = (slice(None), 1) if batch_first else (1,)
        mixed[at] = other[at]
        with patch_stream(model, [0], residual_cache(model, other), [1]):
            close(model(x), model(mixed))

    def test_nothing_is_left_behind(self):
        model, tokens, other = small()
        before, source = model(tokens), residual_cache(model, other)
        with pytest.raises(RuntimeError), patch_stream(model, [1], source):
            raise RuntimeError
        with patch_stream(model, [1], source):
            model(tokens)
        assert torch.equal(model(tokens), before)
        for part in model.modules():
            assert not part._forward_hooks
            assert not part._forward_pre_hooks


class TestInputsOfHeads:
    @pytest.mark.parametrize("parts", ["query", "key", "value", ["query", "key"], ALL])
    def test_one_head_by_hand(self, parts):
        """Head 2.5 alone, whose key and value are those of 2.4 and 2.6 as well."""
        model, tokens, other = small()
        theirs = streams(model, other)[1]

        def heads_of(layer, x):
            if layer != 1:
                return None
            mixed, whole = [], projected(model.blocks[1], x)
            for part, own, new in zip(ALL, whole, projected(model.blocks[1], theirs), strict=True):
                mixed.append(new if part in parts else own)
            heads = attention(*whole, is_causal=True)
            heads[:, 4] = attention(*mixed, is_causal=True)[:, 4]
            return heads

        with patch_qkv(model, ["2.5"], residual_cache(model, other), parts):
            patched = model(tokens)
        close(patched, run(model, tokens, heads_of))
        assert differ(patched, model(tokens))

    def test_positions_are_of_keys(self):
        model, tokens, other = small()
        theirs = streams(model, other)[2]

        def heads_of(layer, x):
            if layer != 2:
                return None
            query, key, value = projected(model.blocks[2], x)
            new = projected(model.blocks[2], theirs)[2]
            value[:, 3, [1, 4]] = new[:, 3, [1, 4]]
            return attention(query, key, value, is_causal=True)

        with patch_qkv(model, [(2, 3)], residual_cache(model, other), "value", [1, 4]):
            close(model(tokens), run(model, tokens, heads_of))

    @pytest.mark.parametrize(
        "options",
        [{}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True},
         {"add_bias_kv": True, "add_zero_attn": True}],
    )  # fmt: skip
    def test_layers_of_torch(self, options):
        """All inputs of a head are the head; and a query is what the projection makes of it."""

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = nn.MultiheadAttention(12, 3, batch_first=True, **options)

            def forward(self, x):
                mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
                return x + self.attention(x, x, x, attn_mask=mask)[0]

        model, (x, other) = nn.Sequential(Block(), Block()).eval(), torch.randn(2, 2, 5, 12)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
        source, heads = residual_cache(model, other), head_outputs(model, other)
        with patch_qkv(model, [(0, 1)], source, ALL):
            patched = model(x)
        with patch_heads(model, [(0, 1)], heads):
            close(patched, model(x))
        assert differ(patched, model(x))
        layer = model[0].attention
        with patch_qkv(model, [(0, 0), (0, 1), (0, 2)], source, "query"):
            [first, _] = residual_cache(model, x).layers
        mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
        close(first.added, layer(other, x, x, attn_mask=mask)[0])


MLPS = {  # the module whose output is added, and where the list of blocks is
    "Llama": "layers.{}.mlp",
    "Mixtral": "layers.{}.mlp",
    "GPT2": "h.{}.mlp",
    "GPTJ": "h.{}.mlp",
    "GPTNeoX": "layers.{}.mlp",
    "Falcon": "h.{}.mlp",
    "Cohere": "layers.{}.mlp",
    "OPT": "decoder.layers.{}.fc2",
    "Gemma2": "layers.{}.post_feedforward_layernorm",
    "Olmo2": "layers.{}.post_feedforward_layernorm",
    "Bert": "encoder.layer.{}.output.dense",
    "DistilBert": "transformer.layer.{}.ffn",
    "ViT": "layers.{}.mlp",
}


class TestMlps:
    def test_by_hand(self):
        model, tokens, other = small()
        kept = []
        for block in model.blocks:
            block.down.register_forward_hook(lambda m, a, y: kept.append(y))
        model(other)
        for found, expected in zip(mlp_outputs(model, other), kept[:3], strict=True):
            close(found, expected)
        for block in model.blocks:
            block.down._forward_hooks.clear()
        source = mlp_outputs(model, other)
        handle = model.blocks[1].down.register_forward_hook(lambda m, a, y: kept[1])
        expected = model(tokens)
        handle.remove()
        with patch_mlps(model, [1], source):
            close(model(tokens), expected)
        assert differ(expected, model(tokens))

    @pytest.mark.parametrize("name", MLPS)
    def test_against_hooks(self, name):
        model, inputs = made(name)
        other = {key: x.flip(0) for key, x in inputs.items()}
        modules = [model.get_submodule(MLPS[name].format(i)) for i in range(2)]
        kept = []
        handles = [x.register_forward_hook(lambda m, a, y: kept.append(y.clone())) for x in modules]
        model(**other)
        for handle in handles:
            handle.remove()
        source = mlp_outputs(model, **other)
        for found, expected in zip(source, kept, strict=True):
            close(found, expected.view_as(found))  # OPT's has batch and length as one
        theirs = kept[1].view_as(source[1])

        def put(module, args, result):
            mixed = result.view_as(theirs).clone()
            mixed[:, [0, -1]] = theirs[:, [0, -1]]
            return mixed.view_as(result)

        handle = modules[1].register_forward_hook(put)
        expected = model(**inputs)[0]
        handle.remove()
        with patch_mlps(model, [1], source, [0, -1]):
            close(model(**inputs)[0], expected)
        assert differ(expected, model(**inputs)[0])


class TestPath:
    @pytest.mark.parametrize("anew", [False, True])
    @pytest.mark.parametrize("part", ALL)
    def test_from_the_first_layer_to_the_last_by_hand(self, part, anew):
        """Head 1.2 to 3.5: a single edge, or with what MLPs between make of it."""
        model, tokens, other = small()
        first, second, third = model.blocks
        whole = streams(model, tokens)
        mine, theirs = head_outputs(model, tokens), head_outputs(model, other)
        change = (theirs[0] - mine[0])[:, :, 1] @ first.attention.out_proj.weight[:, D : 2 * D].T
        read = whole[2] + change
        if anew:  # both MLPs see the change, the heads of the second layer don't
            x = whole[0] + first.attention.out_proj(mine[0].flatten(2)) + change
            x = behind_mlp(first, x)
            read = behind_mlp(second, x + second.attention.out_proj(mine[1].flatten(2)))

        def heads_of(layer, x):
            if layer != 2:
                return None
            own, new = projected(third, x), projected(third, read)
            heads = attention(*own, is_causal=True)
            mixed = [b if name == part else a for name, a, b in zip(ALL, own, new, strict=True)]
            heads[:, 4] = attention(*mixed, is_causal=True)[:, 4]
            return heads

        found = patch_path(
            model, tokens, senders=["1.2"], receivers=["3.5"], source=theirs, parts=part,
            recompute_mlps=anew,
        )  # fmt: skip
        close(found, run(model, tokens, heads_of))
        assert differ(found, model(tokens))

    def test_to_the_output(self):
        """What a head adds directly: the last stream with its change in it."""
        model, tokens, other = small()
        mine, theirs = head_outputs(model, tokens), head_outputs(model, other)
        change = (theirs[1] - mine[1])[:, :, 2]
        change[:, :5] = 0
        change = change @ model.blocks[1].attention.out_proj.weight[:, 2 * D : 3 * D].T
        last = model.norm(streams(model, tokens)[3] + change)
        found = patch_path(
            model, tokens, senders=["2.3"], receivers=None, source=theirs, positions=[5, 6]
        )
        close(found, last @ model.embedding.weight.T)

    @pytest.mark.parametrize(
        ("name", "norm", "projection", "columns"),
        [
            ("Llama", "layers.1.input_layernorm", "layers.1.self_attn.q_proj", slice(16, 24)),
            ("GPT2", "h.1.ln_1", "h.1.attn.c_attn", slice(16, 24)),
            # In NeoX each head has its query, key and value side by side.
            ("GPTNeoX", "layers.1.input_layernorm", "layers.1.attention.query_key_value",
             slice(48, 56)),
        ],
    )  # fmt: skip
    def test_a_query_of_other_libraries_by_hand(self, name, norm, projection, columns):
        """Head 1.2 to the query of 2.3: hooks change eight columns of one projection."""
        model, inputs = made(name)
        other = {key: x.flip(0) for key, x in inputs.items()}
        mine, theirs = head_outputs(model, **inputs), head_outputs(model, **other)
        weight = attention_layers(model)[0].projection.weight
        block = weight[8:16] if name == "GPT2" else weight[:, 8:16].T
        change = (theirs[0] - mine[0])[:, :, 1] @ block
        norm, projection = model.get_submodule(norm), model.get_submodule(projection)
        kept = []

        def keep(module, args):
            kept.append(args[0])

        def put(module, args, result):
            if kept:
                forward = type(projection).forward
                result = result.clone()
                result[..., columns] = forward(projection, norm.forward(kept[0] + change))[
                    ..., columns
                ]
            return result

        handles = [norm.register_forward_pre_hook(keep), projection.register_forward_hook(put)]
        expected = model(**inputs)[0]
        for handle in handles:
            handle.remove()
        found = patch_path(
            model, senders=["1.2"], receivers=["2.3"], source=theirs, **inputs
        )[0]  # fmt: skip
        close(found, expected)
        assert differ(found, model(**inputs)[0])

    def test_nothing_to_send_changes_nothing(self):
        model, tokens, other = small()
        own = head_outputs(model, tokens)
        path = {"senders": ["1.2", "1.3"], "receivers": ["2.1", "3.6"], "parts": ALL}
        close(patch_path(model, tokens, **path, source=own), model(tokens))
        path["senders"] = []
        close(patch_path(model, tokens, **path, source=head_outputs(model, other)), model(tokens))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    """In the dtype of the model, and with nothing but roundings of its own."""
    model, tokens, other = small(dtype)
    source = residual_cache(model, other)
    with patch_stream(model, [1], source):
        assert torch.equal(model(tokens), model(other))
    with patch_mlps(model, [0, 1, 2], mlp_outputs(model, tokens)):
        assert torch.equal(model(tokens), model(tokens))
    heads = [(1, head) for head in range(H)]
    with patch_qkv(model, heads, source, ALL):
        patched = model(tokens)
    with patch_heads(model, heads, head_outputs(model, other)):
        expected = model(tokens)
    assert patched.dtype == dtype
    apart = (patched - expected).float().abs().max()
    assert apart < 0.1 * (expected - model(tokens)).float().abs().max()
    found = patch_path(
        model, tokens, senders=["1.1"], receivers=["2.1"], source=head_outputs(model, other)
    )
    assert found.dtype == dtype
    assert differ(found.float(), model(tokens).float())


# Architectures of transformers

NO_CACHE = {"Bloom", "DiffLlama", "GptOss", "MiMoV2Flash", "DebertaV2", "XLM", "XLNet", "Funnel"}
NO_CACHE |= {"SqueezeBert", "Longformer", "LED", "WavLM", "Mamba", "FNet", "Rwkv", "Yoso"}
SEVERAL_CALLS = {"Albert", "HrmText"}  # of a layer that is shared
IN_FRONT = {"MobileBert", "Timesformer", "Wav2Vec2Conformer"}  # something else is added first
NO_MLP = {*SEVERAL_CALLS, *IN_FRONT, "Zamba2", "MiniMax"}
BESIDE = {"Zamba2", "T5Gemma", "CLIP", "Siglip"}  # the block sees more than its stream, or two
NOT_ALL = {
    "Wav2Vec2Conformer": "scores of positions come from the query by a product of their own",
    "Perceiver": "the first layer, of cross-attention, stands in no block",
    "Qwen3Next": "a gate that comes from the stream stands behind the heads",
    "ConvBert": "convolutions stand beside the heads",
    "ProphetNet": "a layer of the decoder is called twice",
}


@pytest.mark.parametrize("name", [name for name in KIND_OF if name not in NO_CACHE])
def test_architecture(name):
    """From the other input all that a block gets; from the own one nothing new."""
    model, inputs = made(name)
    other = {key: x.flip(0) for key, x in inputs.items()}
    source = tried(lambda: residual_cache(model, **other), model)[0]
    own, clean = residual_cache(model, **inputs), model(**inputs)[0]

    def outcome(*contexts):
        found = []
        for context in contexts:
            with context:
                found.append(model(**inputs)[0])
        return found

    if name in SEVERAL_CALLS:
        with pytest.raises(ValueError, match="once, got"):
            outcome(patch_stream(model, [0], source))
    elif name in IN_FRONT:
        with pytest.raises(ValueError, match="something is added in front of it"):
            outcome(patch_stream(model, [0], own))
    else:
        [same, moved, last] = outcome(
            patch_stream(model, [0], own),
            patch_stream(model, [0], source),
            patch_stream(model, [0], source, behind=True),
        )
        assert torch.equal(same, clean)
        if name not in BESIDE and "decoder_input_ids" not in inputs:
            close(moved, model(**other)[0])
            assert differ(moved, clean)
            close(last, model(**other)[0])  # which all later blocks read
    if name in NO_MLP:
        with pytest.raises(ValueError, match=r"must be (added|called) once"):
            mlp_outputs(model, **other)
    else:
        mine, theirs = mlp_outputs(model, **inputs), mlp_outputs(model, **other)
        every = range(len(mine))
        same, moved = outcome(patch_mlps(model, every, mine), patch_mlps(model, every, theirs))
        assert torch.equal(same, clean)
        assert differ(moved, clean)
    if name in NOT_ALL or name in SEVERAL_CALLS:
        return
    heads = [(0, head) for head in range(attention_layers(model)[0].num_heads)]
    same, moved, expected = outcome(
        patch_qkv(model, heads, own, ALL),
        patch_qkv(model, heads, source, ALL),
        patch_heads(model, heads, head_outputs(model, **other)),
    )
    close(same, clean)
    close(moved, expected)
    assert differ(moved, clean)


@pytest.mark.parametrize("name", ["Llama", "GPT2", "GPTNeoX", "Bert", "T5"])
def test_weights_by_hand_as_well(name):
    """With eager attention, which multiplies, as with the fused call."""
    model, inputs = made(name)
    other = {key: x.flip(0) for key, x in inputs.items()}
    eager, _ = made(name, attn_implementation="eager")
    eager.load_state_dict(model.state_dict())
    for part in ALL:
        found = []
        for which in (model, eager):
            with patch_qkv(which, [(0, 1), (1, 2)], residual_cache(which, **other), part):
                found.append(which(**inputs)[0])
        close(*found)
        assert differ(found[0], model(**inputs)[0])


class TestRefused:
    def refused(self, rule, call, kind=ValueError):
        with pytest.raises(kind, match=rule), call():
            small()[0](torch.zeros(2, L, dtype=torch.long))

    @pytest.mark.parametrize(
        ("blocks", "kind", "rule"),
        [
            ([3], ValueError, r"^blocks must be of 3, from 0, got 3$"),
            ([-1], ValueError, r"^blocks must be of 3, from 0, got -1$"),
            (["4"], ValueError, r"^blocks must be of 3, from 0, got '4'$"),
            ([1, "2"], ValueError, r"^blocks must not be named twice, got '2'$"),
            (["0"], TypeError, r"^blocks must be numbers, .* got '0'$"),
            (["1.2"], TypeError, r"or names such as \"24\", from 1, got '1.2'$"),
            ([True], TypeError, r"got True$"),
        ],
    )
    def test_blocks(self, blocks, kind, rule):
        model, _, other = small()
        source = residual_cache(model, other), mlp_outputs(model, other)
        for call in (
            lambda: patch_stream(model, blocks, source[0]),
            lambda: patch_mlps(model, blocks, source[1]),
        ):
            self.refused(rule, call, kind)

    def test_positions(self):
        model, tokens, other = small()
        cache = residual_cache(model, other)
        rule = r"^positions must be in \[-7, 7\), got 7$"
        for context in (
            patch_stream(model, [0], cache, [7]),
            patch_mlps(model, [0], mlp_outputs(model, other), [7]),
            patch_qkv(model, ["1.1"], cache, "key", [7]),
        ):
            with pytest.raises(ValueError, match=rule), context:
                model(tokens)
        rule = r"^positions must be a slice or a list of integers, got 3$"
        with pytest.raises(TypeError, match=rule), patch_stream(model, [0], cache, 3):
            model(tokens)

    def test_sources(self):
        model, tokens, other = small()
        cache = residual_cache(model, other[:, :5])
        rule = r"^source of 'blocks.0' must be \(2, 7, 24\), as in this call, got \(2, 5, 24\)$"
        with pytest.raises(ValueError, match=rule), patch_stream(model, [0], cache):
            model(tokens)
        rule = r"^source must have the query of 'blocks.0.attention', \(2, 6, 7, 4\), got \(2, 6, 5"
        with pytest.raises(ValueError, match=rule), patch_qkv(model, ["1.1"], cache, "query"):
            model(tokens)
        rule = r"^source must be what mhattn.inside.residual_cache returns, got list$"
        self.refused(rule, lambda: patch_stream(model, [0], [1]), TypeError)
        self.refused(rule, lambda: patch_qkv(model, ["1.1"], [1], "key"), TypeError)
        rule = r"^source must be of 3 blocks, got 2$"
        self.refused(rule, lambda: patch_mlps(model, [0], mlp_outputs(model, other)[:2]))
        rule = r"^source must have 'blocks.1.attention' once, got 0 times$"
        cache = cache._replace(layers=cache.layers[:1])
        self.refused(rule, lambda: patch_stream(model, [1], cache))

    def test_parts(self):
        model, _, other = small()
        rule = r"^parts must be of 'query', 'key', 'value', got 'map'$"
        cache = residual_cache(model, other)
        self.refused(rule, lambda: patch_qkv(model, ["1.1"], cache, "map"))
        self.refused(rule, lambda: patch_qkv(model, ["1.1"], cache, ["key", "map"]))

    def test_paths(self):
        model, tokens, other = small()
        source = head_outputs(model, other)
        rule = r"^receivers must be of layers behind 1, that of a sender, from 0, got 1$"
        with pytest.raises(ValueError, match=rule):
            patch_path(model, tokens, senders=["2.1"], receivers=["2.2"], source=source)
        with pytest.raises(ValueError, match=r"^source must be of 3 layers, got 2$"):
            patch_path(model, tokens, senders=["2.1"], receivers=None, source=source[:2])
        rule = r"^source\[1\] must be \(2, 7, 6, 4\), as in this call, got \(2, 5, 6, 4\)$"
        short = head_outputs(model, other[:, :5])
        with pytest.raises(ValueError, match=rule):
            patch_path(model, tokens, senders=["2.1"], receivers=None, source=short)

    def test_training(self):
        model, tokens, _ = small()
        with pytest.raises(ValueError, match="model must be in evaluation mode"):
            mlp_outputs(model.train(), tokens)

    def test_no_block(self):
        layer = small()[0].blocks[0].attention
        with pytest.raises(ValueError, match=r"must be in an item of a ModuleList or Sequential"):
            mlp_outputs(layer, torch.randn(2, L, E))

    def test_a_block_without_an_mlp(self):
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = nn.MultiheadAttention(12, 3, batch_first=True)

            def forward(self, x):
                return x + self.attention(x, x, x)[0]

        rule = r"^the MLP of '0' must be added once, behind attention, got 0 such sums$"
        with pytest.raises(ValueError, match=rule):
            mlp_outputs(nn.Sequential(Block()).eval(), torch.randn(2, 5, 12))

    def test_an_attention_that_weighs_twice(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.num_heads, self.out_proj = 3, nn.Linear(12, 12)
                self.times = 1

            def forward(self, x):
                y = x.unflatten(-1, (3, 4)).transpose(1, 2)
                for _ in range(self.times):
                    y = F.scaled_dot_product_attention(y, y, y)
                return x + self.out_proj(y.transpose(1, 2).flatten(2))

        layers.register(Twice)
        model, x = nn.Sequential(nn.Sequential(Twice())).eval(), torch.randn(2, 5, 12)
        source = residual_cache(model, x)
        model[0][0].times = 2
        rule = r"^'0.0' must weigh once in a call of it, as in source, got 2 calls$"
        with pytest.raises(ValueError, match=rule), patch_qkv(model, ["1.1"], source, "key"):
            model(x)
