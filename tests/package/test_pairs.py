"""Orders of rotary pairs against the classes of transformers and x-transformers that have them."""

import functools
import itertools
import warnings

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from mhattn import Rotary
from mhattn.core import reorder_pairs, rotary_frequencies, rotary_pairs

D, T, H, L, E = 22, 10, 3, 7, 66  # of transformers' classes E is H * D in some
PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.nn.functional.scaled_dot_product_attention)
PART = {"rope_theta": 10_000.0, "rope_type": "default", "partial_rotary_factor": T / D}
WHOLE = PART | {"partial_rotary_factor": 1.0}
LATENT = {
    "q_lora_rank": 13,
    "kv_lora_rank": 14,  # even, for complex numbers behind it
    "qk_rope_head_dim": T,
    "qk_nope_head_dim": D - T,
    "v_head_dim": 17,
    "head_dim": None,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 19,
    "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
}
# model type, its other settings, the projection of queries, rotary_pairs' arguments
CLASSES = {
    "Llama": ("llama", {"rope_parameters": WHOLE}, "q_proj", (D,), {}),
    "Cohere": ("cohere", {"rope_parameters": WHOLE}, "q_proj", (D, D, "neighbours"), {}),
    "NanoChat": ("nanochat", {"rope_parameters": WHOLE}, "q_proj", (D,), {"backwards": True}),
    "RoFormer": ("roformer", {"embedding_size": E}, "query", (D, D, "neighbours"), {}),
    "GPT-NeoX": ("gpt_neox", {"rope_parameters": PART}, "query_key_value", (D, T), {}),
    "StableLM": ("stablelm", {"rope_parameters": PART}, "q_proj", (D, T), {}),
    "GLM": ("glm", {"rope_parameters": PART}, "q_proj", (D, T, "neighbours"), {}),
    "GPT-J": ("gptj", {"rotary_dim": T}, "q_proj", (D, T, "neighbours"), {}),
    "DeepSeek-V2": ("deepseek_v2", LATENT, "q_b_proj", (D, T, "neighbours"), {"end": "last"}),
    "DeepSeek-V3": ("deepseek_v3", LATENT, "q_b_proj", (D, T, "neighbours"), {"end": "last"}),
}


class Products(TorchFunctionMode):
    """Keeps the four-axis arguments of the first product of heads."""

    kept: tuple = ()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        heads = [x for x in args if isinstance(x, torch.Tensor) and x.ndim == 4]
        if not self.kept and func in PRODUCTS and len(heads) > 1:
            self.kept = tuple(heads)
        return func(*args, **(kwargs or {}))


@functools.cache
def model(name):
    import transformers  # two seconds, which not every collection has to wait

    kind, more, *_ = CLASSES[name]
    sizes = {
        "vocab_size": 29,
        "hidden_size": E,
        "intermediate_size": 19,
        "num_hidden_layers": 1,
        "num_attention_heads": H,
        "num_key_value_heads": H,
        "head_dim": D,
        "max_position_embeddings": 31,
        "pad_token_id": 0,
    }
    given = {key: x for key, x in (sizes | more).items() if x is not None}
    config = transformers.AutoConfig.for_model(kind, **given)
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(config, attn_implementation="eager").eval()


def turned(name, queries):
    """(B, L, H, D) queries, which the class's projection gives, as its scores see them."""
    whole, projection = model(name), CLASSES[name][2]
    layer = next(m for n, m in whole.named_modules() if n.endswith(projection))

    def planted(module, given, out):
        width = out.shape[-1] // H  # of a head's own queries, keys and values
        rest = out.new_zeros(*queries.shape[:2], H, width - D)
        return torch.cat([queries.to(out.dtype), rest], dim=-1).flatten(2)

    with torch.no_grad(), Products() as products:
        handle = layer.register_forward_hook(planted)
        whole(input_ids=torch.full(queries.shape[:2], 5))
        handle.remove()
    return products.kept[0].transpose(1, 2)  # (B, L, H, D)


def pairs(name):
    given, more = CLASSES[name][3:]
    return rotary_pairs(*given, **more)


def as_one_matrix(x):
    """(B, L, H, D) as the rows of a projection, (H * D, B * L), and back."""
    return x.permute(2, 3, 0, 1).flatten(2).flatten(0, 1)


def reordered(x, source, target):
    rows = reorder_pairs(as_one_matrix(x), D, source, target)
    return rows.reshape(H, D, *x.shape[:2]).permute(2, 3, 0, 1)


def scores(x, name):
    """Of queries with themselves: x is the queries and the keys."""
    x = turned(name, x)
    return torch.einsum("blhd,bmhd->bhlm", x, x)


WHOLES = [name for name, row in CLASSES.items() if len(pairs(name)) == D // 2]
PARTS = [name for name in CLASSES if name not in WHOLES]
BOTH = [*itertools.permutations(WHOLES, 2), *itertools.permutations(PARTS, 2)]


def normed(x, names):
    """NanoChat norms its queries after they are turned."""
    if "NanoChat" not in names:
        return x
    return x / x.square().mean(-1, keepdim=True).sqrt()


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_turns_the_pairs_that_are_said(name):
    """A feature alone becomes its cosine, and its sine in the second of the pair."""
    one = torch.eye(D)[:, None, None].expand(D, L, H, D).contiguous()  # (B, L, H, D), B = D
    first, later = turned(name, one)[:, 0, 1], turned(name, one)[:, 1, 1]
    turn = torch.nn.functional.normalize(first) @ torch.nn.functional.normalize(later).T
    expected = torch.eye(D)
    for (i, j), angle in zip(pairs(name), rotary_frequencies(2 * len(pairs(name))), strict=True):
        expected[i, i] = expected[j, j] = angle.cos()
        expected[j, i], expected[i, j] = angle.sin(), -angle.sin()
    frequencies = [expected[j, i] for i, j in pairs(name)]
    assert len({*map(float, frequencies)}) == len(frequencies)
    torch.testing.assert_close(turn, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("source", "target"), BOTH)
def test_rows_go_from_any_class_to_any(source, target):
    x = normed(torch.randn(2, L, H, D), (source, target))
    expected = scores(x, source)
    moved = reordered(x, pairs(source), pairs(target))
    torch.testing.assert_close(scores(moved, target), expected, rtol=1e-4, atol=1e-3)
    if not pairs(source).equal(pairs(target)):
        assert (scores(x, target) - expected).abs().max() > 1
        wrong = pairs(target).clone()
        wrong[[0, 1]] = wrong[[1, 0]]  # two pairs in the other's place: a broken permutation
        assert (scores(reordered(x, pairs(source), wrong), target) - expected).abs().max() > 0.1


@pytest.mark.parametrize("name", CLASSES)
def test_rows_come_to_our_rotary(name):
    """The rest of the head turns at a frequency of zero."""
    frequencies = torch.zeros(D // 2, dtype=torch.float64)
    count = len(pairs(name))
    frequencies[:count] = rotary_frequencies(2 * count)
    x = normed(torch.randn(2, L, H, D), [name])
    moved = reordered(x, pairs(name), rotary_pairs(D, 2 * count, "whole")).transpose(1, 2)
    ours = Rotary(D, frequencies=frequencies).rotate(moved)
    torch.testing.assert_close(ours @ ours.mT, scores(x, name), rtol=1e-4, atol=1e-3)


def test_weights_of_llama_serve_cohere():
    """Real rows, not planted ones: queries and keys of the same input, with fewer key heads."""
    import transformers
    from transformers.models.cohere import modeling_cohere as cohere
    from transformers.models.llama import modeling_llama as llama

    sizes = {"hidden_size": 42, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": D}
    sizes |= {"attention_bias": True, "rope_parameters": WHOLE}
    theirs = llama.LlamaAttention(transformers.LlamaConfig(**sizes), 0)
    other = cohere.CohereAttention(transformers.CohereConfig(**sizes), 0)
    for x in theirs.parameters():
        nn.init.normal_(x, std=0.3)
    halves, neighbours = rotary_pairs(D), rotary_pairs(D, layout="neighbours")
    state = theirs.state_dict()
    other.load_state_dict(state)
    x, at = torch.randn(2, L, 42), torch.arange(L)[None]

    def out(layer, module, rotary):
        layer.config._attn_implementation = "eager"
        where = rotary(layer.config)(x, at)
        return layer(x, position_embeddings=where, attention_mask=None)[0]

    expected = out(theirs, llama, llama.LlamaRotaryEmbedding)
    assert (out(other, cohere, cohere.CohereRotaryEmbedding) - expected).abs().max() > 0.1
    for name in ("q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias"):
        state[name] = reorder_pairs(state[name], D, halves, neighbours)
    other.load_state_dict(state)
    found = out(other, cohere, cohere.CohereRotaryEmbedding)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_x_transformers_turns_neighbours():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks torch for what is deprecated
        import x_transformers.x_transformers as theirs

    x = torch.randn(2, H, L, D)
    frequencies, scale = theirs.RotaryEmbedding(T)(torch.arange(L))
    found = theirs.apply_rotary_pos_emb(x, frequencies, scale)
    rows = x.transpose(1, 2)
    moved = reordered(rows, rotary_pairs(D, T, "neighbours"), rotary_pairs(D, T, "whole"))
    zeros = torch.cat([rotary_frequencies(T), torch.zeros((D - T) // 2)])
    ours = Rotary(D, frequencies=zeros).rotate(moved.transpose(1, 2))
    torch.testing.assert_close(ours @ ours.mT, found @ found.mT, rtol=1e-4, atol=1e-4)


ORDERS = [
    rotary_pairs(D, T, layout, end=end, backwards=backwards)
    for layout in ("halves", "neighbours", "whole")
    for end in ("first", "last")
    for backwards in (False, True)
    if (layout, end) != ("whole", "last")
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8])
def test_there_and_back_is_the_same_bit_for_bit(dtype):
    weight = torch.randint(-99, 99, (H * D, 37)).to(dtype)
    for source, target in itertools.permutations(ORDERS, 2):
        there = reorder_pairs(weight, D, source, target)
        assert there.dtype == dtype
        assert not there.equal(weight)
        assert reorder_pairs(there, D, target, source).equal(weight)


def test_the_orders_differ_and_the_rest_keeps_its_order():
    assert len({str(order.tolist()) for order in ORDERS}) == len(ORDERS) == 10
    row = torch.arange(float(D))
    moved = reorder_pairs(row, D, ORDERS[0], ORDERS[-2])  # whole: 0 to 4 and 11 to 15
    assert moved.tolist() == [*range(5), *range(10, 16), *range(5, 10), *range(16, 22)]


def test_each_head_is_reordered_alike_and_the_weight_stays():
    weight = torch.randn(H * D, 37)
    before = weight.clone()
    moved = reorder_pairs(weight, D, ORDERS[0], ORDERS[5])
    assert weight.equal(before)
    for h in range(H):
        rows = slice(h * D, h * D + D)
        assert moved[rows].equal(reorder_pairs(weight[rows], D, ORDERS[0], ORDERS[5]))


@pytest.mark.parametrize(
    ("error", "text", "use"),
    [
        (
            ValueError,
            "turned must be even and at most head_dim = 8, got 3",
            lambda: rotary_pairs(8, 3),
        ),
        (
            ValueError,
            "turned must be even and at most head_dim = 8, got 10",
            lambda: rotary_pairs(8, 10),
        ),
        (ValueError, "turned must be at least 2, got 0", lambda: rotary_pairs(8, 0)),
        (TypeError, "head_dim must be an integer, got float", lambda: rotary_pairs(8.0)),
        (
            ValueError,
            "layout must be one of halves, neighbours, whole, got 'half'",
            lambda: rotary_pairs(8, layout="half"),
        ),
        (
            ValueError,
            "end must be 'first' or 'last', got 'left'",
            lambda: rotary_pairs(8, end="left"),
        ),
        (
            ValueError,
            "needs an even head_dim and end='first', got head_dim=9, end='first'",
            lambda: rotary_pairs(9, 4, "whole"),
        ),
        (
            ValueError,
            "needs an even head_dim and end='first', got head_dim=8, end='last'",
            lambda: rotary_pairs(8, 4, "whole", end="last"),
        ),
        (
            TypeError,
            "weight must be a tensor, got list",
            lambda: reorder_pairs([1.0], 2, ORDERS[0], ORDERS[0]),
        ),
        (
            ValueError,
            r"head_dim must divide the rows of weight, \(5, 3\), got 2",
            lambda: reorder_pairs(torch.ones(5, 3), 2, ORDERS[0], ORDERS[0]),
        ),
        (
            TypeError,
            "source must be a tensor of integers, got list",
            lambda: reorder_pairs(torch.ones(4), 2, [[0, 1]], torch.tensor([[0, 1]])),
        ),
        (
            TypeError,
            "target must be a tensor of integers, got torch.float32",
            lambda: reorder_pairs(torch.ones(4), 2, torch.tensor([[0, 1]]), torch.ones(1, 2)),
        ),
        (
            ValueError,
            r"target must be \(T / 2, 2\), got \(2,\)",
            lambda: reorder_pairs(torch.ones(4), 2, torch.tensor([[0, 1]]), torch.tensor([0, 1])),
        ),
        (
            ValueError,
            r"source must name different features from 0 to 3, got \[\[0, 0\]\]",
            lambda: reorder_pairs(torch.ones(4), 4, torch.tensor([[0, 0]]), torch.tensor([[0, 1]])),
        ),
        (
            ValueError,
            r"source must name different features from 0 to 3, got \[\[0, 4\]\]",
            lambda: reorder_pairs(torch.ones(4), 4, torch.tensor([[0, 4]]), torch.tensor([[0, 1]])),
        ),
        (
            ValueError,
            "source and target must have as many pairs, got 2 and 1",
            lambda: reorder_pairs(torch.ones(4), 4, rotary_pairs(4), rotary_pairs(4, 2)),
        ),
    ],
)
def test_what_does_not_fit_is_refused(error, text, use):
    with pytest.raises(error, match=text):
        use()
