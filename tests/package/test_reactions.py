"""The encoder with one block: transformers' on random weights and on those of RXNMapper."""

import ast
import io
import json
import re
import warnings
import zipfile

import pytest
import torch
from torch import nn

from mhattn import padding_mask
from mhattn.models import SharedEncoder, load_rxnmapper

V, MAX_LEN, LAYERS, HEADS, D, WIDTH, MLP, EPS = 101, 19, 3, 5, 7, 11, 37, 0.1
E = HEADS * D
SIZES = {"token_dim": WIDTH, "embed_dim": E, "num_heads": HEADS, "mlp_dim": MLP, "eps": EPS}
B, L = 5, 13
ROUNDING = 2.0**-24  # float32
HOME = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
REACTIONS = (
    "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "CC[O-]~[Na+].BrCC>>CCOCC",
    "C[C@@H]1CN(Cc2ccc(F)cc2)CC1/C=C/Cl.c1cc%10ccc1CC%10>[Pd]>C#C\\C*",
)


@pytest.fixture(scope="module", autouse=True)
def transformers():
    """Imported once, here, so that no test is slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
        import transformers.models.albert.modeling_albert
    return transformers


BLOCK = "encoder.albert_layer_groups.0.albert_layers.0."
THEIR_NAMES = {
    "embedding": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "norm": "embeddings.LayerNorm",
    "widen": "encoder.embedding_hidden_mapping_in",
    "blocks.0.attention.q_proj": BLOCK + "attention.query",
    "blocks.0.attention.k_proj": BLOCK + "attention.key",
    "blocks.0.attention.v_proj": BLOCK + "attention.value",
    "blocks.0.attention.out_proj": BLOCK + "attention.dense",
    "blocks.0.attention_norm": BLOCK + "attention.LayerNorm",
    "blocks.0.up": BLOCK + "ffn",
    "blocks.0.down": BLOCK + "ffn_output",
    "blocks.0.mlp_norm": BLOCK + "full_layer_layer_norm",
}


def random_model():
    model = SharedEncoder(V, MAX_LEN, LAYERS, **SIZES).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.requires_grad_(False)


def theirs_with_weights_of(model, transformers):
    config = transformers.AlbertConfig(
        vocab_size=V,
        embedding_size=WIDTH,
        max_position_embeddings=MAX_LEN,
        hidden_size=E,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        layer_norm_eps=EPS,
        type_vocab_size=1,
        hidden_act="gelu",
        attn_implementation="eager",
    )
    theirs = transformers.AlbertModel(config, add_pooling_layer=False).double()
    state = {"embeddings.token_type_embeddings.weight": torch.zeros(1, WIDTH)}
    for name, weight in model.state_dict().items():
        part, kind = name.rsplit(".", 1)
        state[f"{THEIR_NAMES[part]}.{kind}"] = weight
    theirs.load_state_dict(state)
    return theirs.requires_grad_(False).eval()


def test_random_model_is_that_of_transformers(transformers):
    ours = random_model()
    theirs = theirs_with_weights_of(ours, transformers)
    tokens = torch.randint(V, (B, L))
    expected = theirs(tokens, output_attentions=True)
    vectors, weights = ours(tokens)
    assert vectors.shape == (B, L, E)
    assert weights.shape == (B, LAYERS, HEADS, L, L)
    torch.testing.assert_close(vectors, expected.last_hidden_state)
    torch.testing.assert_close(weights, torch.stack(expected.attentions, dim=1))


def test_padded_batch_is_that_of_transformers(transformers):
    ours = random_model()
    theirs = theirs_with_weights_of(ours, transformers)
    tokens, lengths = torch.randint(V, (B, L)), torch.tensor([13, 2, 7, 1, 11])
    mask = padding_mask(lengths, L)  # (B, 1, 1, L)
    expected = theirs(tokens, attention_mask=mask[:, 0, 0].long()).last_hidden_state
    vectors, _ = ours(tokens, mask)
    for i, length in enumerate(lengths):
        torch.testing.assert_close(vectors[i, :length], expected[i, :length])


def test_gradients_of_all_layers_meet_in_one_block():
    model = random_model().requires_grad_(True)
    model(torch.arange(L)[None])[0].sin().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # A bias of the key adds the same to all scores of a query, which softmax ignores.
        assert (parameter.grad.abs().max() > 1e-12) != name.endswith("k_proj.bias"), name


def test_parameters_do_not_grow_with_the_layers():
    one, many = (SharedEncoder(V, MAX_LEN, n, **SIZES) for n in (1, 9))
    count = (V + MAX_LEN) * WIDTH + 2 * WIDTH + E * WIDTH + E
    count += 4 * (E * E + E) + 2 * 2 * E + 2 * E * MLP + MLP + E
    for model in (one, many):
        assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"token_dim": 0}, ValueError, "token_dim must be at least 1, got 0"),
        ({"token_dim": 1.5}, TypeError, "token_dim must be an integer, got float"),
        ({"embed_dim": 36}, ValueError, "num_heads must divide embed_dim, 36, got 5"),
        ({"mlp_dim": 0}, ValueError, "mlp_dim must be at least 1, got 0"),
    ],
)
def test_wrong_sizes(change, error, message):
    with pytest.raises(error, match=message):
        SharedEncoder(V, MAX_LEN, LAYERS, **SIZES | change)


def test_wrong_number_of_layers():
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        SharedEncoder(V, MAX_LEN, 0, **SIZES)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "some.whl"
    with pytest.raises(FileNotFoundError, match=r"some\.whl"):
        load_rxnmapper(path)
    path.write_bytes(b"not a wheel" * 10)
    rule = r"some\.whl must be a wheel with one pytorch_model\.bin, got"
    with pytest.raises(ValueError, match=rule + " no zip"):
        load_rxnmapper(path)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("a/config.json", "{}")
    with pytest.raises(ValueError, match=rule + " 0"):
        load_rxnmapper(path)


class Runs:
    def __reduce__(self):
        return print, ("run",)


def test_code_in_the_weights_does_not_run(tmp_path, capsys):
    path = tmp_path / "some.whl"
    weights = io.BytesIO()
    torch.save({"weight": Runs()}, weights)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("a/pytorch_model.bin", weights.getvalue())
    with pytest.raises(Exception, match="Weights only load failed"):
        load_rxnmapper(path)
    assert "run" not in capsys.readouterr().out


# RXNMapper


@pytest.fixture(scope="module")
def path(trained):
    return trained["RXNMapper"]


@pytest.fixture(scope="module")
def rxnmapper(path):
    return load_rxnmapper(path)


@pytest.fixture(scope="module")
def theirs(path, transformers):
    """AlbertForMaskedLM from the files of the wheel, as transformers reads them."""
    with zipfile.ZipFile(path) as wheel:
        config = json.loads(wheel.read(f"{HOME}/config.json"))
        stored = io.BytesIO(wheel.read(f"{HOME}/pytorch_model.bin"))
    config = transformers.AlbertConfig(**config, attn_implementation="eager")
    model = transformers.AlbertForMaskedLM(config)
    state = torch.load(stored, map_location="cpu", weights_only=True)
    missing, unknown = model.load_state_dict(state, strict=False)
    assert not missing
    assert all("pooler" in name for name in unknown)
    return model.requires_grad_(False).eval()


def queries_first(weights):
    return weights.permute(0, 3, 1, 2, 4)  # (B, L, layers, H, L)


def test_rxnmapper_is_that_of_transformers(rxnmapper, theirs):
    """Apart by rounding: some 20 roundings of the largest number; 300 are let by."""
    model, guess, tokenizer = rxnmapper
    rows = tokenizer.encode_batch(REACTIONS)
    tokens = torch.tensor([row.ids for row in rows])
    real = torch.tensor([row.attention_mask for row in rows])
    expected = theirs.albert(tokens, real, output_attentions=True)
    vectors, weights = model(tokens, padding_mask(real.sum(dim=-1), tokens.shape[1]))
    scores = guess(vectors)
    theirs_scores = theirs(tokens, real).logits
    for i, length in enumerate(real.sum(dim=-1).tolist()):
        for found, right in (
            (vectors, expected.last_hidden_state),
            (scores, theirs_scores),
            (queries_first(weights), queries_first(torch.stack(expected.attentions, dim=1))),
        ):
            found, right = found[i, :length], right[i, :length]
            assert found.shape == right.shape
            atol = 300 * ROUNDING * right.abs().max().item()
            torch.testing.assert_close(found, right, rtol=0, atol=atol)


def test_tokens_are_those_of_the_packages_own_pattern(rxnmapper, path):
    """Its source is read, not run."""
    with zipfile.ZipFile(path) as wheel:
        source = wheel.read("rxnmapper/smiles_utils.py").decode()
        vocabulary = wheel.read(f"{HOME}/vocab.txt").decode().split()
    pattern = ast.literal_eval(re.search(r"SMI_REGEX_PATTERN = (r\".*\")", source)[1])
    tokenizer = rxnmapper[2]
    for text in (*REACTIONS, "CXZCl Br@?$:%12\\+-3[nH]", "CC[unheard]"):
        cut = re.findall(pattern, text)
        known = [token if token in vocabulary else "[UNK]" for token in cut]
        assert tokenizer.encode(text).tokens == ["[CLS]", *known, "[SEP]"]
        numbers = [vocabulary.index(token) for token in known]
        assert tokenizer.encode(text).ids[1:-1] == numbers


def test_hidden_tokens_are_guessed(rxnmapper):
    """Nine of ten atoms of a product, hidden one by one: what the model was trained for."""
    model, guess, tokenizer = rxnmapper
    (hidden,) = tokenizer.encode("[MASK]", add_special_tokens=False).ids
    row = tokenizer.encode(REACTIONS[0])
    start = row.tokens.index(">>") + 1
    places = [i for i in range(start, len(row.ids) - 1)]
    tokens = torch.tensor(row.ids).repeat(len(places), 1)
    tokens[torch.arange(len(places)), places] = hidden
    guessed = guess(model(tokens)[0]).argmax(dim=-1)[torch.arange(len(places)), places]
    assert (guessed == torch.tensor(row.ids)[places]).float().mean() > 0.8
