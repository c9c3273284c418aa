"""The language model: transformers' on random weights and on the real ones, and planted files."""

import inspect
import struct
import warnings

import gguf
import numpy as np
import pytest
import torch
from measuring import peers
from mhsite.stories.source import ROOT
from torch import nn

from mhattn import KVCache
from mhattn.models import LanguageModel, LanguageModelBlock, load_gguf, write
from mhattn.models.gguf_file import read_gguf

V, LAYERS, GROUP, KV_HEADS, D, MLP, BASE, EPS = 101, 3, 3, 5, 14, 37, 50.0, 0.1
HEADS = GROUP * KV_HEADS
E = HEADS * D
SIZES = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "mlp_dim": MLP, "base": BASE, "eps": EPS}
B, L = 2, 13
ALICE = ROOT / "docs" / "data" / "texts" / "alice.en.txt"
TANG = ROOT / "docs" / "data" / "texts" / "tang.zh.txt"
ROUNDING = 2.0**-24  # float32


@pytest.fixture(scope="module", autouse=True)
def transformers():
    """Imported once, here, so that no test is slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
        import transformers.models.llama.modeling_llama
    return transformers


def random_model():
    model = LanguageModel(V, LAYERS, embed_dim=E, **SIZES).double()
    for name, parameter in model.named_parameters():  # a large embedding predicts the token again
        nn.init.normal_(parameter, std=0.03 if name == "embedding.weight" else 0.3)
    return model.requires_grad_(False)


THEIR_NAMES = {
    "embedding": "embed_tokens",
    "blocks": "layers",
    "attention_norm": "input_layernorm",
    "attention": "self_attn",
    "out_proj": "o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def theirs_with_weights_of(model, transformers):
    config = transformers.LlamaConfig(
        vocab_size=V,
        hidden_size=E,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        rms_norm_eps=EPS,
        rope_parameters={"rope_type": "default", "rope_theta": BASE},
        tie_word_embeddings=True,
        attn_implementation="eager",
        bos_token_id=None,
        eos_token_id=None,
    )
    theirs = transformers.LlamaForCausalLM(config).double()
    state = {
        "model." + ".".join(THEIR_NAMES.get(part, part) for part in name.split(".")): weight
        for name, weight in model.state_dict().items()
    }
    theirs.load_state_dict(state | {"lm_head.weight": model.embedding.weight})
    return theirs.requires_grad_(False).eval()


def test_random_model_is_that_of_transformers(transformers):
    ours = random_model()
    theirs = theirs_with_weights_of(ours, transformers)
    tokens = torch.randint(V, (B, L))
    expected = theirs(tokens, output_attentions=True)
    logits, weights = ours(tokens, return_weights=True)
    assert logits.shape == (B, L, V)
    assert weights.shape == (B, LAYERS, HEADS, L, L)
    # Their norms and rotary angles are rounded to float32 even in a model of float64.
    options = {"rtol": 0, "atol": 1000 * ROUNDING * expected.logits.abs().max().item()}
    torch.testing.assert_close(logits, expected.logits, **options)
    torch.testing.assert_close(ours(tokens), expected.logits, **options)
    expected = torch.stack(expected.attentions, dim=1)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1000 * ROUNDING)


def test_the_signature_names_all_sizes():
    """Those of a block and of the encoder's twin; what is missing is named."""
    sizes = {"embed_dim", "num_heads", "num_kv_heads", "mlp_dim", "base", "eps"}
    kinds = {name: it.kind for name, it in inspect.signature(LanguageModel).parameters.items()}
    assert kinds.keys() == {"vocab_size", "num_layers"} | sizes
    assert {name for name, kind in kinds.items() if kind.name == "KEYWORD_ONLY"} == sizes
    assert inspect.signature(LanguageModelBlock).parameters.keys() == sizes
    rule = "^LanguageModel.__init__.. missing .* 'num_kv_heads', 'mlp_dim', and 'base'$"
    with pytest.raises(TypeError, match=rule):
        LanguageModel(5, 1, embed_dim=4, eps=1e-5, num_heads=2)
    with pytest.raises(TypeError, match=r"^LanguageModel.* unexpected .* 'head_dim'$"):
        LanguageModel(5, 1, **dict.fromkeys(sizes, 2), head_dim=1)


def test_random_model_writes_what_transformers_writes(transformers):
    ours = random_model()
    theirs = theirs_with_weights_of(ours, transformers)
    tokens = torch.randint(V, (B, L))
    options = {"max_new_tokens": 17, "do_sample": False, "pad_token_id": 0}
    expected = theirs.generate(tokens, attention_mask=torch.ones_like(tokens), **options)
    found = write(ours, tokens, count=17)
    assert found.tolist() == expected.tolist()
    assert len(set(found[0, L:].tolist())) > 2, "a test with one token again and again is none"


def test_caches_change_nothing():
    model, tokens = random_model(), torch.randint(V, (B, L))
    caches = [KVCache(max_len=L) for _ in model.blocks]
    parts = [model(part, caches=caches) for part in tokens.split([5, 1, 7], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m(torch.zeros(1, 2)), TypeError, "tokens must be a tensor of integers, got"),
        (lambda m: m(torch.tensor([1])), ValueError, "tokens must have 2 axes, got"),
        (
            lambda m: m(torch.tensor([[1]]), caches=[]),
            ValueError,
            "one for each of 3 blocks, got 0",
        ),
        (lambda m: write(m, torch.tensor([[1]]), 0), ValueError, "count must be at least 1, got 0"),
        (lambda m: write(m, [[1]], 1), TypeError, "tokens must be a tensor of integers, got list"),
        (
            lambda m: LanguageModel(V, 1, embed_dim=7, **SIZES),
            ValueError,
            "num_heads must divide embed_dim, 7, got 15",
        ),
        (
            lambda m: LanguageModel(V, 0, embed_dim=E, **SIZES),
            ValueError,
            "num_layers must be at least 1, got 0",
        ),
    ],
)
def test_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(random_model())


# Files, planted


WIDTH = 32  # two heads of 16, one head for keys and values, an MLP of 64
FIELDS = {
    "block_count": 1,
    "embedding_length": WIDTH,
    "feed_forward_length": 64,
    "head_count": 2,
    "head_count_kv": 1,
    "layer_norm_rms_eps": 0.25,
    "rope_freq_base": 70.0,
    "vocab_size": 5,
}


def write_gguf(path, architecture="llama", pre="smollm"):
    """A model of one block in which each row is its number, but for the rows that are planted."""
    from gguf import GGMLQuantizationType as Type, GGUFWriter

    file = GGUFWriter(path, architecture)
    for name, number in FIELDS.items():
        getattr(file, f"add_{name}")(number)
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre(pre)
    file.add_token_list(["a", "b", "c", "ab", "<end>"])
    file.add_token_types([1, 1, 1, 1, 3])
    file.add_token_merges(["a b"])

    def rows(count, width=WIDTH):
        return np.arange(count, dtype=np.float32)[:, None].repeat(width, axis=1)

    file.add_tensor("token_embd.weight", q8_0(range(5)), raw_dtype=Type.Q8_0)
    file.add_tensor("output_norm.weight", np.full(WIDTH, 1.5, dtype=np.float32))
    file.add_tensor("blk.0.attn_norm.weight", np.full(WIDTH, 2.5, dtype=np.float32))
    file.add_tensor("blk.0.ffn_norm.weight", np.full(WIDTH, 3.5, dtype=np.float32))
    file.add_tensor("blk.0.attn_q.weight", rows(32))
    file.add_tensor("blk.0.attn_k.weight", rows(16))
    file.add_tensor("blk.0.attn_v.weight", q4_1(range(16)), raw_dtype=Type.Q4_1)
    file.add_tensor("blk.0.attn_output.weight", rows(32).astype(np.float16))
    file.add_tensor("blk.0.ffn_gate.weight", rows(64))
    file.add_tensor("blk.0.ffn_up.weight", rows(64) + 100)
    file.add_tensor("blk.0.ffn_down.weight", rows(32, 64))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


def q8_0(rows):
    """Blocks of 32: a scale of 2 bytes, then signed bytes. Row r has the scale r + 1."""
    blocks = [struct.pack("<e32b", r + 1, *range(-16, 16)) for r in rows]
    return np.stack([np.frombuffer(block, dtype=np.uint8) for block in blocks])


def q4_1(rows):
    """Blocks of 32: scale, least, then bytes of two numbers, the first 16 in their low halves."""
    low, high = range(16), range(15, -1, -1)
    packed = [a + 16 * b for a, b in zip(low, high, strict=True)]
    blocks = [struct.pack("<2e16B", 0.5, -r, *packed) for r in rows]
    return np.stack([np.frombuffer(block, dtype=np.uint8) for block in blocks])


def test_planted_file_is_read(tmp_path):
    model, tokenizer = load_gguf(write_gguf(tmp_path / "model.gguf"))
    block = model.blocks[0]
    whole = torch.arange(-16.0, 16.0)
    assert torch.equal(model.embedding.weight, torch.stack([whole * (r + 1) for r in range(5)]))
    norms = [norm.weight for norm in (model.norm, block.attention_norm, block.mlp_norm)]
    assert [(w.min().item(), w.max().item()) for w in norms] == [(1.5, 1.5), (2.5, 2.5), (3.5, 3.5)]
    halves = torch.cat([torch.arange(16.0), torch.arange(15.0, -1, -1)]) / 2
    values = torch.stack([halves - r for r in range(16)])
    assert torch.equal(block.attention.v_proj.weight, values)
    in_order = [[*range(0, 16, 2), *range(1, 16, 2)], [*range(16, 32, 2), *range(17, 32, 2)]]
    assert block.attention.q_proj.weight[:, 0].tolist() == in_order[0] + in_order[1]
    assert block.attention.k_proj.weight[:, 0].tolist() == in_order[0]
    assert block.attention.out_proj.weight[:, 0].tolist() == list(range(32))
    assert block.gate.weight[:, 0].tolist() == list(range(64))
    assert block.up.weight[:, 0].tolist() == list(range(100, 164))
    assert block.down.weight[:, 0].tolist() == list(range(32))
    assert block.attention.position.base == 70.0
    assert model.norm.eps == block.mlp_norm.eps == block.attention_norm.eps == 0.25
    assert (block.attention.num_heads, block.attention.num_kv_heads) == (2, 1)
    assert tokenizer.encode("abba<end>").ids == [3, 1, 0, 4]
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"architecture": "gemma"}, r"general.architecture in .*gguf must be 'llama', got 'gemma'"),
        ({"pre": "qwen2"}, r"tokenizer.ggml.pre in .*gguf must be 'smollm', got 'qwen2'"),
    ],
)
def test_other_files_are_refused(tmp_path, changed, message):
    path = write_gguf(tmp_path / "model.gguf", **changed)
    with pytest.raises(ValueError, match=message):
        load_gguf(path)


def test_missing_and_damaged_files(tmp_path):
    path = tmp_path / "model.gguf"
    with pytest.raises(FileNotFoundError, match=r"model\.gguf"):
        load_gguf(path)
    path.write_bytes(b"not a model" * 10)
    with pytest.raises(ValueError, match=r"gguf must begin with b'GGUF'.* got b'not '"):
        load_gguf(path)
    whole = write_gguf(path).read_bytes()
    path.write_bytes(b"GGUF" + struct.pack(">I", 3) + whole[8:])
    with pytest.raises(ValueError, match="version 2 or 3, little-endian"):
        load_gguf(path)
    for end in (6, 200, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"model\.gguf must hold \d+ bytes from byte \d+ on"):
            load_gguf(path)
    kind = whole.index(b"general.architecture") + len("general.architecture")
    path.write_bytes(whole[:kind] + struct.pack("<I", 13) + whole[kind + 4 :])
    with pytest.raises(ValueError, match=r"a field in .*gguf must be of \[0, .*\], got 13"):
        load_gguf(path)


def test_fields_are_those_that_gguf_reads(tmp_path):
    """Of every kind, nested in no list and in one."""
    path = tmp_path / "fields.gguf"
    file = gguf.GGUFWriter(path, "llama")
    file.add_int8("a", -3)
    file.add_uint16("b", 60000)
    file.add_int16("c", -300)
    file.add_int64("d", -(2**40))
    file.add_uint64("e", 2**63)
    file.add_float64("f", 0.1)
    file.add_float32("g", 0.1)
    file.add_bool("h", True)
    file.add_string("i", "两 words")
    file.add_array("j", ["a", "", "é"])
    file.add_array("k", [1.5, -2.5])
    file.add_custom_alignment(64)
    file.add_tensor("t", np.arange(6, dtype=np.float32).reshape(2, 3))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    fields, tensors = read_gguf(path)
    theirs = gguf.GGUFReader(path)
    known = {name: field.contents() for name, field in theirs.fields.items() if name[0] != "G"}
    assert fields == known
    assert {type(fields[name]) for name in "hij"} == {bool, str, list}
    assert {name: tensor.tolist() for name, tensor in tensors} == {"t": [[0, 1, 2], [3, 4, 5]]}


# SmolLM2


@pytest.fixture(scope="module")
def path(trained):
    return trained["SmolLM2-135M-Instruct"]


@pytest.fixture(scope="module")
def smollm2(path):
    return load_gguf(path)


@pytest.fixture(scope="module")
def theirs(path, transformers):
    """With weights that transformers' own reader found in the file."""
    return peers.llama_from_gguf(path)


@pytest.mark.slow
def test_smollm2_is_that_of_transformers(smollm2, theirs):
    """Apart by rounding: some 30 roundings of the largest logit, 80 of a weight; 500 are let by.

    A wrong convention is no rounding: with a rotary base that is 1 % too large, weights differ by
    100,000 roundings and logits by 10,000.
    """
    model, tokenizer = smollm2
    tokens = torch.tensor([tokenizer.encode(ALICE.read_text(encoding="utf-8")[:700]).ids])
    expected = theirs(tokens, output_attentions=True)
    logits, weights = model(tokens, return_weights=True)
    largest = expected.logits.abs().max().item()
    atol = 500 * ROUNDING
    torch.testing.assert_close(logits, expected.logits, rtol=0, atol=atol * largest)
    torch.testing.assert_close(model(tokens), expected.logits, rtol=0, atol=atol * largest)
    expected = torch.stack(expected.attentions, dim=1)
    torch.testing.assert_close(weights, expected, rtol=0, atol=atol)


def test_smollm2_writes_what_transformers_writes(smollm2, theirs):
    model, tokenizer = smollm2
    tokens = torch.tensor([tokenizer.encode("Once upon a time").ids])
    options = {"attention_mask": torch.ones_like(tokens), "pad_token_id": 2}
    expected = theirs.generate(tokens, max_new_tokens=40, do_sample=False, **options)
    assert tokenizer.decode(write(model, tokens, 40)[0].tolist()) == tokenizer.decode(
        expected[0].tolist()
    )


def test_tokens_are_those_of_transformers(smollm2, path, transformers):
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    tokenizer = smollm2[1]
    for text in (
        ALICE.read_text(encoding="utf-8"),
        TANG.read_text(encoding="utf-8")[:5000],
        "In 2026, 3.14  and\n\n\ttabs; naïve café — 床前明月光 🙂 don't I'LL x=1_000 ",
        "<|im_start|>user\nHello<|im_end|>\n",
    ):
        tokens = tokenizer.encode(text).ids
        assert tokens == theirs(text)["input_ids"]
        assert tokenizer.decode(tokens, skip_special_tokens=False) == text
