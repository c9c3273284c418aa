"""The encoder: transformers' on random weights and on the real ones, and planted files."""

import re
import struct
import unicodedata
import warnings

import numpy as np
import pytest
import torch
from mhsite.stories.source import ROOT
from torch import nn

from mhattn import padding_mask
from mhattn.models import Encoder, EncoderBlock, load_e5

V, MAX_LEN, LAYERS, HEADS, D, MLP, EPS = 101, 19, 2, 3, 7, 37, 0.1
E = HEADS * D
SIZES = {"embed_dim": E, "num_heads": HEADS, "mlp_dim": MLP, "eps": EPS}
B, L = 5, 13
ALICE = ROOT / "docs" / "data" / "texts" / "alice.en.txt"
TANG = ROOT / "docs" / "data" / "texts" / "tang.zh.txt"
ROUNDING = 2.0**-24  # float32
TEXTS = (
    ALICE.read_text(encoding="utf-8")[:2000],
    TANG.read_text(encoding="utf-8")[:1500],
    "The cat drinks milk. 猫喝牛奶，他们都很高兴！",
    "In 2026, 3.14  and\n\n\ttabs; naïve ﬁne café 🙂 ﷽ ＡＢＣ don't x=1_000",
)


@pytest.fixture(scope="module", autouse=True)
def transformers():
    """Imported once, here, so that no test is slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
        import transformers.models.bert.modeling_bert
    return transformers


def random_model(dtype=torch.float64):
    model = Encoder(V, MAX_LEN, LAYERS, **SIZES).to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.requires_grad_(False)


THEIR_NAMES = {
    "embedding.weight": "embeddings.word_embeddings.weight",
    "positions.weight": "embeddings.position_embeddings.weight",
    "norm": "embeddings.LayerNorm",
    "blocks": "encoder.layer",
    "attention.q_proj": "attention.self.query",
    "attention.k_proj": "attention.self.key",
    "attention.v_proj": "attention.self.value",
    "attention.out_proj": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}


def their_name(ours):
    parts = sorted(THEIR_NAMES, key=len, reverse=True)
    pattern = r"(?<![\w])(" + "|".join(map(re.escape, parts)) + r")(?![\w])"
    return re.sub(pattern, lambda found: THEIR_NAMES[found[0]], ours)


def their_config(transformers, **sizes):
    return transformers.BertConfig(
        hidden_act="gelu", attn_implementation="eager", pad_token_id=None, **sizes
    )


def theirs_with_weights_of(model, transformers):
    config = their_config(
        transformers,
        vocab_size=V,
        max_position_embeddings=MAX_LEN,
        hidden_size=E,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        layer_norm_eps=EPS,
        type_vocab_size=1,
    )
    theirs = transformers.BertModel(config, add_pooling_layer=False).double()
    state = {their_name(name): weight for name, weight in model.state_dict().items()}
    state["embeddings.token_type_embeddings.weight"] = torch.zeros(1, E)
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
    vectors, weights = ours(tokens, mask)
    for i, length in enumerate(lengths):
        torch.testing.assert_close(vectors[i, :length], expected[i, :length])
    assert (weights.masked_select(~mask[:, None]) == 0).all()


def test_padding_changes_nothing():
    model, tokens = random_model(), torch.randint(V, (1, L))
    alone, weights = model(tokens[:, :7])
    padded, wide = model(tokens, padding_mask(torch.tensor([7]), L))
    torch.testing.assert_close(padded[:, :7], alone)
    torch.testing.assert_close(wide[..., :7, :7], weights)


def test_order_of_tokens_matters_by_their_positions_alone():
    """Without positions, tokens in another order give the same vectors in that order."""
    model, tokens = random_model(), torch.randint(V, (1, L))
    order = torch.randperm(L)
    assert not torch.allclose(model(tokens[:, order])[0], model(tokens)[0][:, order])
    nn.init.zeros_(model.positions.weight)
    torch.testing.assert_close(model(tokens[:, order])[0], model(tokens)[0][:, order])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    wide, tokens = random_model(torch.float32), torch.randint(V, (B, L))
    for block in wide.blocks:  # scores near zero: a softmax of large ones shows every rounding
        block.attention.q_proj.weight.mul_(0.1)
        block.attention.q_proj.bias.mul_(0.1)
    expected, _ = wide(tokens)
    vectors, weights = wide.to(dtype)(tokens)
    assert vectors.dtype == weights.dtype == dtype
    torch.testing.assert_close(vectors.float(), expected, rtol=0.05, atol=0.1)


def test_gradients_reach_every_parameter():
    model = random_model().requires_grad_(True)
    model(torch.arange(L)[None])[0].sin().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # A bias of the key adds the same to all scores of a query, which softmax ignores.
        assert (parameter.grad.abs().max() > 1e-12) != name.endswith("k_proj.bias"), name


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m(torch.zeros(1, 2)), TypeError, "tokens must be a tensor of integers, got"),
        (lambda m: m([[1]]), TypeError, "tokens must be a tensor of integers, got list"),
        (lambda m: m(torch.tensor([1])), ValueError, "tokens must have 2 axes, got"),
        (
            lambda m: m(torch.zeros(1, 20, dtype=torch.int64)),
            ValueError,
            "tokens must have at most max_len=19 positions, got 20",
        ),
        (
            lambda m: m(torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, 2)),
            TypeError,
            "mask must be a tensor of booleans",
        ),
        (
            lambda m: m(torch.zeros(1, 2, dtype=torch.int64), torch.ones(3, 2, dtype=torch.bool)),
            ValueError,
            "mask must broadcast to",
        ),
        (
            lambda m: Encoder(V, MAX_LEN, 0, **SIZES),
            ValueError,
            "num_layers must be at least 1, got 0",
        ),
        (
            lambda m: Encoder(V, 0, LAYERS, **SIZES),
            ValueError,
            "max_len must be at least 1, got 0",
        ),
        (
            lambda m: Encoder(1.5, MAX_LEN, LAYERS, **SIZES),
            TypeError,
            "vocab_size must be an integer, got float",
        ),
        (
            lambda m: Encoder(V, MAX_LEN, LAYERS, **SIZES | {"embed_dim": 22}),
            ValueError,
            "num_heads must divide embed_dim, 22, got 3",
        ),
        (lambda m: EncoderBlock(E, HEADS, 0, EPS), ValueError, "mlp_dim must be at least 1, got 0"),
    ],
)
def test_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(random_model())


# Files, planted


WIDTH, WIDE = 64, 96  # two heads of 32
PIECES = {"<s>": 0, "<pad>": 0, "</s>": 0, "<unk>": 0, "▁": -3, "a": -2, "b": -2, "ab": -3.5}
PIECES |= {"▁a": -3, "é": -1, "<mask>": 0}
REPLACED = {"\x07": "", "\u200b": " ", "é": "é", "Ａ": "A"}  # bell, blank of no width


def q4_0(rows, width):
    """Blocks of 32: a scale of 2 bytes, then bytes of two numbers, the first 16 in low halves."""
    packed = bytes(a + 16 * b for a, b in zip(range(16), range(15, -1, -1), strict=True))
    return b"".join(
        struct.pack("<e", r + 1) + packed for r in range(rows) for _ in range(width // 32)
    )


def tensors():
    """For each name its bytes and kind; vectors are counted through, so no two are alike."""
    whole = {"emb.word": q4_0(11, WIDTH)}
    sizes = {"emb.pos": 5 * WIDTH, "emb.type": 2 * WIDTH, "emb.ln.w": WIDTH, "emb.ln.b": WIDTH}
    for name in ("q", "k", "v", "ao", "fo", "fi"):
        rows, width = {"fo": (WIDTH, WIDE), "fi": (WIDE, WIDTH)}.get(name, (WIDTH, WIDTH))
        whole[f"l0.{name}.w"] = q4_0(rows, width)
        sizes[f"l0.{name}.b"] = rows
    for name in ("aln", "oln"):
        sizes |= {f"l0.{name}.w": WIDTH, f"l0.{name}.b": WIDTH}
    numbers = {
        name: (np.arange(size) + 1000 * i).astype("<f4").tobytes()
        for i, (name, size) in enumerate(sizes.items())
    }
    return {name: (1, data) for name, data in whole.items()} | {
        name: (0, data) for name, data in numbers.items()
    }


def write_e5(path, version=1):
    head = struct.pack("<4sI7ifi", b"E5S1", version, WIDTH, 1, 2, WIDE, 11, 5, 2, 0.25, 32)
    pieces = [piece.encode() for piece in PIECES]
    text = b"".join(pieces)
    head += struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, len(text))
    head += np.cumsum([0, *map(len, pieces)]).astype("<u4").tobytes()
    head += np.array(list(PIECES.values()), dtype="<f4").tobytes() + text
    replaced = b"".join(
        struct.pack(f"<IB{len(by)}I", ord(character), len(by), *map(ord, by))
        for character, by in REPLACED.items()
    )
    head += struct.pack("<iI", len(REPLACED), len(replaced)) + replaced
    stored = tensors()
    head += struct.pack("<i", len(stored))
    start = len(head) + sum(2 + len(name) + 21 for name in stored)
    body = b""
    for name, (kind, data) in stored.items():
        count = len(data) // 18 * 32 if kind else len(data) // 4
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", kind, count, start + len(body), len(data))
        body += data
    path.write_bytes(head + body)
    return path


def test_planted_file_is_read(tmp_path):
    model, tokenizer = load_e5(write_e5(tmp_path / "model.bin"))
    (block,) = model.blocks
    one = torch.cat([torch.arange(16.0), torch.arange(15.0, -1, -1)]) - 8  # a block of scale 1

    def quantised(rows, width):
        return torch.stack([one.repeat(width // 32) * (r + 1) for r in range(rows)])

    def counted(start, size):
        return torch.arange(size) + 1000.0 * start

    attention = block.attention
    expected = {
        model.embedding.weight: quantised(11, WIDTH),
        model.positions.weight: counted(0, 5 * WIDTH).view(5, WIDTH) + counted(1, WIDTH),
        model.norm.weight: counted(2, WIDTH),
        model.norm.bias: counted(3, WIDTH),
    }
    for i, layer in enumerate(
        (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj)
    ):
        expected |= {layer.weight: quantised(WIDTH, WIDTH), layer.bias: counted(4 + i, WIDTH)}
    expected |= {block.down.weight: quantised(WIDTH, WIDE), block.down.bias: counted(8, WIDTH)}
    expected |= {block.up.weight: quantised(WIDE, WIDTH), block.up.bias: counted(9, WIDE)}
    for i, norm in enumerate((block.attention_norm, block.mlp_norm)):
        expected |= {norm.weight: counted(10 + 2 * i, WIDTH), norm.bias: counted(11 + 2 * i, WIDTH)}
    for parameter, numbers in expected.items():
        assert torch.equal(parameter, numbers)
    assert len(expected) == len(list(model.parameters()))
    assert {norm.eps for norm in (model.norm, block.attention_norm, block.mlp_norm)} == {0.25}
    assert attention.num_heads == 2
    assert not any(parameter.requires_grad for parameter in model.parameters())
    # a b costs 3 + 2 + 2, ▁ and ab 6.5, ▁a and b 5
    assert tokenizer.encode("ab").tokens == ["<s>", "▁a", "b", "</s>"]
    assert tokenizer.encode("a\x07b  b\u200bé").tokens[1:-1] == ["▁a", "b", "▁", "b", "▁", "é"]
    assert tokenizer.encode("bx").ids == [0, 4, 6, 3, 2]


def test_other_files_are_refused(tmp_path):
    path = write_e5(tmp_path / "model.bin", version=2)
    rule = r"model\.bin must begin with b'E5S1' and version 1, got b'E5S1' and 2"
    with pytest.raises(ValueError, match=rule):
        load_e5(path)
    path.write_bytes(b"not a model" * 10)
    with pytest.raises(ValueError, match=r"must begin with b'E5S1' .* got b'not ' and"):
        load_e5(path)
    path.write_bytes(write_e5(path).read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"model\.bin must hold \d+ bytes from byte \d+ on, got"):
        load_e5(path)
    with pytest.raises(FileNotFoundError, match=r"no\.bin"):
        load_e5(tmp_path / "no.bin")


# multilingual-e5-small


@pytest.fixture(scope="module")
def path(trained):
    return trained["multilingual-e5-small"]


@pytest.fixture(scope="module")
def e5(path):
    return load_e5(path)


def stored_weights(path):
    """Read anew, without our reader: names are searched for, and 4 bits are taken apart by hand."""
    data = path.read_bytes()
    found = {}
    for entry in re.finditer(rb"(..)((?:emb|l\d+)\.[a-z]+(?:\.[wb])?)([\0\1])", data, re.DOTALL):
        length, name, kind = entry.groups()
        if int.from_bytes(length, "little") != len(name):
            continue
        count, start, size = struct.unpack_from("<IQQ", data, entry.end())
        stored = data[start : start + size]
        if kind == b"\0":
            numbers = np.frombuffer(stored, "<f4")
        else:
            blocks = np.frombuffer(stored, np.dtype([("scale", "<f2"), ("halves", "u1", 16)]))
            low, high = blocks["halves"] % 16, blocks["halves"] // 16
            numbers = np.concatenate([low, high], axis=1).astype("f4") - 8
            numbers = (numbers * blocks["scale"][:, None].astype("f4")).ravel()
        assert len(numbers) == count
        found[name.decode()] = torch.tensor(numbers)
    return found


@pytest.fixture(scope="module")
def theirs(path, transformers):
    """BertModel with both kinds of segments, in which every token is of the first."""
    found = stored_weights(path)
    config = their_config(
        transformers,
        vocab_size=250037,
        max_position_embeddings=512,
        hidden_size=384,
        intermediate_size=1536,
        num_hidden_layers=12,
        num_attention_heads=12,
        layer_norm_eps=1e-12,
        type_vocab_size=2,
    )
    names = {
        "emb.word": "embeddings.word_embeddings.weight",
        "emb.pos": "embeddings.position_embeddings.weight",
        "emb.type": "embeddings.token_type_embeddings.weight",
        "emb.ln": "embeddings.LayerNorm",
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "ao": "attention.output.dense",
        "aln": "attention.output.LayerNorm",
        "fi": "intermediate.dense",
        "fo": "output.dense",
        "oln": "output.LayerNorm",
    }
    with torch.device("meta"):
        model = transformers.BertModel(config, add_pooling_layer=False)
    state = {}
    for name, numbers in found.items():
        layer, part, kind = re.fullmatch(r"(?:l(\d+)\.)?(.+?)(?:\.([wb]))?", name).groups()
        before = "" if layer is None else f"encoder.layer.{layer}."
        after = {"w": ".weight", "b": ".bias", None: ""}[kind]
        state[before + names[part] + after] = numbers
    shapes = {name: like.shape for name, like in model.state_dict().items()}
    state = {name: numbers.view(shapes[name]) for name, numbers in state.items()}
    model.load_state_dict(state, assign=True)
    model.embeddings.position_ids = torch.arange(512)[None]
    model.embeddings.token_type_ids = torch.zeros(1, 512, dtype=torch.int64)
    return model.requires_grad_(False).eval()


def test_e5_is_that_of_transformers(e5, theirs):
    """Apart by rounding: some 20 roundings of the largest number; 300 are let by."""
    model, tokenizer = e5
    for text in TEXTS[:3]:
        tokens = torch.tensor([tokenizer.encode(text).ids[:101]])
        expected = theirs(tokens, output_attentions=True)
        vectors, weights = model(tokens)
        largest = expected.last_hidden_state.abs().max().item()
        options = {"rtol": 0, "atol": 300 * ROUNDING * largest}
        torch.testing.assert_close(vectors, expected.last_hidden_state, **options)
        expected = torch.stack(expected.attentions, dim=1)
        torch.testing.assert_close(weights, expected, rtol=0, atol=300 * ROUNDING)


def best_sum(text, scores):
    """The best sum of scores of all ways to cut a word: SentencePiece's definition."""
    best = [0.0] + [-np.inf] * len(text)
    longest = max(map(len, scores))
    for end in range(1, len(text) + 1):
        for start in range(max(0, end - longest), end):
            if (piece := text[start:end]) in scores:
                best[end] = max(best[end], best[start] + scores[piece])
    return best[-1]


@pytest.fixture(scope="module")
def pieces(path):
    """The scores of the pieces, read anew."""
    data = path.read_bytes()
    count, *_, size = struct.unpack_from("<5iQ", data, 44)
    ends = np.frombuffer(data, "<u4", count + 1, offset=72)
    scores = np.frombuffer(data, "<f4", count, offset=72 + ends.nbytes)
    text = data[72 + ends.nbytes + scores.nbytes :][:size]
    bounds = zip(ends[:-1], ends[1:], scores.tolist(), strict=True)
    return {text[a:b].decode(): score for a, b, score in bounds if score}


def test_every_word_is_cut_in_the_best_way(e5, pieces):
    """Of the pieces, as far as texts consist of them."""
    _, tokenizer = e5
    words = {word for text in TEXTS for word in text.split()}
    words = {unicodedata.normalize("NFKC", word).replace(" ", "") for word in words}
    known = [word for word in words if set(word) <= pieces.keys() and "▁" not in word]
    assert len(known) > 300
    for word in known:
        cut = tokenizer.encode(word).tokens
        assert (cut[0], cut[-1]) == ("<s>", "</s>")
        assert "".join(cut[1:-1]) == "▁" + word
        total = sum(pieces[piece] for piece in cut[1:-1])
        assert total == pytest.approx(best_sum("▁" + word, pieces), abs=1e-4), word


def test_texts_are_replaced_as_the_file_says(e5, path):
    """Each character by itself; NFKC also joins marks to the letter before, as Unicode asks."""
    from mhattn.models.encoder import Fields, replacements_of

    data = path.read_bytes()
    count, *_, size = struct.unpack_from("<5iQ", data, 44)
    file = Fields(data, path)
    file.cut(72 + 4 * (2 * count + 1) + size)
    replaced = replacements_of(file)
    assert len(replaced) == 4837
    normalizer = e5[1].normalizer
    for character, by in replaced.items():
        assert normalizer.normalize_str(character) == by, hex(ord(character))
    assert normalizer.normalize_str("，！：（") == ",!:("
    assert normalizer.normalize_str("猫。。 \u200b狗") == "猫。。 狗"
