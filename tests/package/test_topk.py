"""Against masks made by sorting in Python, PyTorch's dense attention, and DeepSeek's indexer."""

import math

import pytest
import torch
import torch.nn.functional as F

from mhattn import index_scores, measure_flops, top_k_attention, top_key_mask

B, H, H_KV, D, D_V = 2, 6, 3, 5, 7
LENGTHS = [(1, 1), (1, 31), (5, 7), (29, 29), (13, 37), (7, 5)]
every_length = pytest.mark.parametrize(("L", "S"), LENGTHS)
every_k = pytest.mark.parametrize("k", [1, 3, 100])
causal_or_not = pytest.mark.parametrize("is_causal", [False, True])
every_block = pytest.mark.parametrize("block", [1, 2, 5, 64])


def by_hand(scores, k, S, *, block=1, is_causal=False, mask=None):
    """The keys that each query keeps, found by sorting lists."""
    L = scores.shape[-2]
    rows = scores.reshape(-1, L, scores.shape[-1]).tolist()
    may = torch.ones(*scores.shape[:-1], S, dtype=torch.bool) if mask is None else mask
    may = may.expand(*scores.shape[:-1], S).reshape(-1, L, S).tolist()
    result = []
    for table, allowed in zip(rows, may, strict=True):
        for i, row in enumerate(table):
            seen = [allowed[i][j] and (not is_causal or j <= i + S - L) for j in range(S)]
            groups = [list(range(b, min(b + block, S))) for b in range(0, S, block)]
            open_groups = [n for n, group in enumerate(groups) if any(seen[j] for j in group)]
            open_groups = [n for n in open_groups if row[n] > -math.inf]
            best = sorted(open_groups, key=lambda n: (-row[n], n))[:k]
            kept = {j for n in best for j in groups[n] if seen[j]}
            result.append([j in kept for j in range(S)])
    return torch.tensor(result).reshape(*scores.shape[:-1], S)


def tensors(L, S, dtype=torch.float64):
    shapes = (H, L, D), (H_KV, S, D), (H_KV, S, D_V)
    return [torch.randn(B, *shape, dtype=torch.float64).to(dtype) for shape in shapes]


def dense(query, key, value, seen, scale=None):
    key, value = (x.repeat_interleave(H // H_KV, dim=1) for x in (key, value))
    seen = seen.expand(*query.shape[:-1], key.shape[-2])
    output = F.scaled_dot_product_attention(query, key, value, seen, scale=scale)
    return output.masked_fill(~seen.any(-1, keepdim=True), 0.0)


def assert_equal(output, expected, atol=1e-12):
    torch.testing.assert_close(output, expected, atol=atol, rtol=0)


@every_length
@every_k
@every_block
@causal_or_not
def test_the_mask_keeps_the_best(L, S, k, block, is_causal):
    scores = torch.randint(4, (B, H, L, -(-S // block))).float()  # many ties
    may = torch.rand(B, 1, 1, S) < 0.7
    for mask in (None, may, may & (torch.rand(L, S) < 0.8)):
        options = dict(mask=mask, is_causal=is_causal, block=block)
        expected = by_hand(scores, k, S, **options)
        assert torch.equal(top_key_mask(scores, k, num_keys=S, **options), expected)


def test_a_score_of_minus_infinity_hides():
    scores = torch.tensor([[1.0, -math.inf, 0.0, -math.inf]])
    assert top_key_mask(scores, 3).tolist() == [[True, False, True, False]]


def test_without_num_keys_all_blocks_are_whole():
    mask = top_key_mask(torch.tensor([[1.0, 2.0]]), 1, block=3)
    assert mask.tolist() == [[False] * 3 + [True] * 3]


@every_length
@every_k
@every_block
@pytest.mark.parametrize("heads", [1, H])
@causal_or_not
def test_gathered_is_dense_with_the_mask(L, S, k, block, heads, is_causal):
    inputs = tensors(L, S)
    scores = torch.randn(B, heads, L, -(-S // block))
    may = torch.rand(B, 1, 1, S) < 0.7
    options = dict(mask=may, is_causal=is_causal, block=block)
    expected = dense(*inputs, by_hand(scores, k, S, **options), scale=0.3)
    assert_equal(top_k_attention(*inputs, scores, k, **options, scale=0.3), expected)


def test_one_choice_for_all_sequences():
    inputs, scores = tensors(13, 17), torch.randn(1, 1, 13, 17)
    expected = dense(*inputs, by_hand(scores, 3, 17))
    assert_equal(top_k_attention(*inputs, scores, 3), expected)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 5, 3)])
def test_any_number_of_axes(lead):
    query, key, value = (torch.randn(*lead, n, D).double() for n in (7, 11, 11))
    scores = torch.randn(*lead, 7, 11)
    mask = by_hand(scores, 3, 11, is_causal=True)
    expected = F.scaled_dot_product_attention(query, key, value, mask)
    assert_equal(top_k_attention(query, key, value, scores, 3, is_causal=True), expected)


@pytest.mark.parametrize("heads", [1, H])
def test_gradients_are_those_of_dense_attention(heads):
    inputs = [x.requires_grad_() for x in tensors(13, 17)]
    scores = torch.randn(B, heads, 13, 17, dtype=torch.float64, requires_grad=True)
    mask = by_hand(scores.detach(), 3, 17, is_causal=True)
    ours = top_k_attention(*inputs, scores, 3, is_causal=True)
    by = torch.randn_like(ours)
    expected = torch.autograd.grad(dense(*inputs, mask), inputs, by)
    found = torch.autograd.grad(ours, [*inputs, scores], by, allow_unused=True)
    assert found[-1] is None  # a choice has no gradient
    for one, other in zip(found, expected, strict=False):
        assert_equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    inputs, scores = tensors(13, 17, dtype), torch.randn(B, 1, 13, 17).to(dtype)
    ours = top_k_attention(*inputs, scores, 3)
    expected = dense(*[x.double() for x in inputs], by_hand(scores, 3, 17))
    assert ours.dtype == dtype
    assert_equal(ours.double(), expected, atol=0.03)


def test_hidden_values_are_never_touched():
    query, key, value = tensors(13, 17)
    scores = torch.randn(B, 1, 13, 17)
    scores[..., 4] = -9.0
    key[:, :, 4] = value[:, :, 4] = math.nan
    assert top_k_attention(query, key, value, scores, 16).isfinite().all()


@pytest.mark.parametrize("n", [64, 128])
def test_flops_grow_with_k_not_with_the_keys(n):
    query, key = torch.randn(1, H, n, 8), torch.randn(1, 1, n, 8)
    scores = torch.randn(1, 1, n, n)
    flops = measure_flops(lambda: top_k_attention(query, key, key, scores, 5)).total
    assert flops == H * n * 5 * (8 + 8) * 2


def test_index_scores_are_the_formula():
    query, key = torch.randn(2, 3, 5, 7).double(), torch.randn(2, 11, 7).double()
    weights = torch.randn(2, 5, 3).double()
    ours = index_scores(query, key, weights)
    for b in range(2):
        for i in range(5):
            for s in range(11):
                terms = [weights[b, i, j] * max(0, query[b, j, i] @ key[b, s]) for j in range(3)]
                assert abs(sum(terms) - ours[b, i, s]) < 1e-12
    half = index_scores(query.bfloat16(), key.bfloat16(), weights.bfloat16())
    assert half.dtype == torch.bfloat16
    assert_equal(half.double(), ours, atol=0.5)


@pytest.mark.parametrize("name", ["deepseek_v32", "glm_moe_dsa"])
@pytest.mark.parametrize("k", [5, 29])
def test_it_chooses_as_the_indexer_of_deepseek(name, k):
    pytest.importorskip("transformers")
    try:
        if name == "deepseek_v32":
            from transformers.models.deepseek_v32 import modeling_deepseek_v32 as theirs

            Config, Indexer = theirs.DeepseekV32Config, theirs.DeepseekV32Indexer
        else:
            from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as theirs

            Config, Indexer = theirs.GlmMoeDsaConfig, theirs.GlmMoeDsaIndexer
    except ImportError:
        pytest.skip(f"this version of transformers has no {name}")
    sizes = dict(index_n_heads=3, index_head_dim=10, index_topk=k, num_hidden_layers=1)
    config = Config(hidden_size=22, q_lora_rank=13, qk_rope_head_dim=4, **sizes)
    module, n = Indexer(config, 0).double(), 29
    x, residual = torch.randn(2, n, 22).double(), torch.randn(2, n, 13).double()
    angle = torch.arange(n).double()[:, None] * torch.tensor([1.0, 0.1]).repeat(2)
    seen = torch.ones(n, n).tril().bool()
    hidden = torch.zeros(1, n, n).double().masked_fill(~seen, -math.inf)
    turned = angle.cos()[None], angle.sin()[None]
    found = module(x, residual, turned, hidden, torch.arange(n)[None]).long()

    def turn(vectors):  # (..., n, 10), of which the first four are turned, in other pairs
        a, b, rest = vectors[..., :2], vectors[..., 2:4], vectors[..., 4:]
        if name == "glm_moe_dsa":
            a, b = vectors[..., 0:4:2], vectors[..., 1:4:2]
        cos, sin = angle[:, :2].cos(), angle[:, :2].sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)

    query = turn(module.wq_b(residual).unflatten(-1, (3, 10)).transpose(1, 2))
    key = turn(module.k_norm(module.wk(x)))
    scores = index_scores(query, key, module.weights_proj(x) * (3 * 10) ** -0.5)
    ours = top_key_mask(scores.float(), k, is_causal=True)
    expected = torch.zeros(2, n, n, dtype=torch.bool).scatter(-1, found, True) & seen
    assert torch.equal(ours, expected)


X = torch.randn(2, 5, 3)
WRONG = [
    (dict(k=0), ValueError, "k must be at least 1, got 0"),
    (dict(k=1.5), TypeError, "k must be an integer, got"),
    (dict(block=0), ValueError, "block must be at least 1, got 0"),
    (dict(scores=torch.ones(2, 5, 5).int()), TypeError, "scores must be a tensor of floats"),
    (dict(scores=torch.ones(2, 5, 4)), ValueError, r"scores must have ceil\(5 / 1\) = 5 last"),
    (dict(scores=torch.ones(2, 4, 5)), ValueError, r"rows as query \(2, 5, 3\).*got \(2, 4, 5\)"),
    (dict(scores=torch.ones(3, 5, 5)), ValueError, r"rows as query .*got \(3, 5, 5\)"),
    (dict(scores=torch.ones(5, 5)), ValueError, r"rows as query .*got \(5, 5\)"),
    (dict(mask=torch.ones(5, 5)), TypeError, "mask must be a tensor of booleans"),
    (dict(mask=torch.ones(5, 4) > 0), ValueError, "mask must broadcast"),
    (dict(value=torch.ones(2, 4, 3)), ValueError, "key and value must have the same axes"),
    (dict(scale=0.0), ValueError, "scale must be positive and finite, got 0"),
]


@pytest.mark.parametrize(("given", "error", "message"), WRONG)
def test_wrong_arguments_of_attention(given, error, message):
    right = dict(query=X, key=X, value=X, scores=torch.ones(2, 5, 5), k=2)
    with pytest.raises(error, match=message):
        top_k_attention(**(right | given))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (dict(num_keys=0), ValueError, "num_keys must be at least 1, got 0"),
        (dict(num_keys=6, block=2), ValueError, r"scores must have ceil\(6 / 2\) = 3 last"),
    ],
)
def test_wrong_arguments_of_the_mask(given, error, message):
    with pytest.raises(error, match=message):
        top_key_mask(torch.ones(5, 5), 2, **given)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (dict(query=torch.ones(5, 3)), ValueError, "query must have at least 3 axes"),
        (dict(key=torch.ones(4, 7, 3).int()), TypeError, "key must be a tensor of floats"),
        (dict(key=torch.ones(7, 2)), ValueError, r"key must have the shape \(7, 3\), got \(7, 2\)"),
        (dict(weights=torch.ones(2, 5)), ValueError, r"weights must have the shape \(5, 2\)"),
    ],
)
def test_wrong_arguments_of_index_scores(given, error, message):
    right = dict(query=torch.ones(2, 5, 3), key=torch.ones(7, 3), weights=torch.ones(5, 2))
    with pytest.raises(error, match=message):
        index_scores(**(right | given))


@pytest.mark.parametrize("shape", [(2, 3, 0, 4), (0, 3, 5, 4)], ids=str)
def test_no_queries(shape):
    query, key = torch.randn(shape), torch.randn(shape[0], 3, 5, 4)
    scores = torch.randn(*shape[:-1], 5)
    assert top_k_attention(query, key, key[..., :2], scores, 2).shape == (*shape[:-1], 2)
    with pytest.raises(ValueError, match=r"^k must be at least 1, got 0$"):
        top_k_attention(query, key, key, scores, 0)


def test_what_is_no_number_takes_no_place():
    nan, inf = torch.nan, torch.inf
    scores = torch.tensor([[nan, 1.0, 2.0, inf], [nan, nan, nan, 0.0], [-inf, nan, 5.0, 4.0]])
    right = [[False, False, True, True], [False] * 3 + [True], [False, False, True, True]]
    assert top_key_mask(scores, 2).tolist() == right
