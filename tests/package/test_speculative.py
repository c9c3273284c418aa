"""Against what transformers writes with an assistant, exact distributions, and paths one by one."""

import itertools
import warnings

import pytest
import torch
from torch import nn

from mhattn import (
    KVCache,
    LanguageModel,
    MultiHeadAttention,
    Rotary,
    accept_drafts,
    tree_depths,
    tree_mask,
    write,
    write_with_drafts,
)

V, LAYERS, GROUP, KV_HEADS, D, MLP, BASE, EPS = 101, 3, 3, 5, 14, 37, 50.0, 0.1
HEADS = GROUP * KV_HEADS
E = HEADS * D
SIZES = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "mlp_dim": MLP, "base": BASE, "eps": EPS}
L, COUNT = 13, 29


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


def near(model, share=0.03):
    """A model that agrees often and not always."""
    other = random_model()
    for theirs, ours in zip(other.parameters(), model.parameters(), strict=True):
        theirs.copy_(ours + share * theirs)
    return other


def drafts_of(model, k):
    return lambda tokens: write(model, tokens, k)[0, tokens.shape[1] :]


PROPOSE = {
    "none": lambda model: lambda tokens: tokens[0, :0],
    "wrong": lambda model: lambda tokens: torch.full((5,), V - 1),
    "its own": lambda model: drafts_of(model, 4),
    "near": lambda model: drafts_of(near(model), 4),
    "of any number": lambda model: lambda tokens: tokens[0, : tokens.shape[1] % 4],
}


@pytest.mark.parametrize("propose", PROPOSE.values(), ids=PROPOSE)
def test_the_text_is_that_of_the_model_alone(propose):
    model, tokens = random_model(), torch.randint(V - 1, (1, L))
    expected = write(model, tokens, COUNT)
    found, passes = write_with_drafts(model, tokens, COUNT, propose(model))
    assert found.tolist() == expected.tolist()
    assert 1 <= passes <= COUNT


@pytest.mark.parametrize("k", [0, 1, 4, 50])
def test_right_drafts_save_passes(k):
    model, tokens = random_model(), torch.randint(V, (1, L))
    propose = drafts_of(model, k) if k else PROPOSE["none"](model)
    _, passes = write_with_drafts(model, tokens, COUNT, propose)
    assert passes == -(-COUNT // (k + 1))  # each pass: k drafts and one more


def test_every_pass_has_the_new_tokens_only():
    model, tokens, lengths = random_model(), torch.randint(V, (1, L)), []
    model.embedding.register_forward_pre_hook(lambda _, given: lengths.append(given[0].shape[1]))
    wrong = torch.full((3,), V - 1)
    _, passes = write_with_drafts(model, tokens, 7, lambda tokens: wrong)
    assert lengths == [L + 3, *[1 + 3] * 3, 1 + 2, 1 + 1, 1]
    assert passes == 7


def test_assisted_generation_of_transformers(transformers):
    model = random_model()
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
        bos_token_id=None,
        eos_token_id=None,
    )
    names = {
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

    def theirs(ours):
        state = {
            "model." + ".".join(names.get(part, part) for part in name.split(".")): weight
            for name, weight in ours.state_dict().items()
        }
        copy = transformers.LlamaForCausalLM(config).double()
        copy.load_state_dict(state | {"lm_head.weight": ours.embedding.weight})
        return copy.requires_grad_(False).eval()

    draft, tokens = near(model), torch.randint(V, (1, L))
    options = {"max_new_tokens": COUNT, "do_sample": False, "pad_token_id": 0}
    options |= {"attention_mask": torch.ones_like(tokens)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs(model).generate(tokens, assistant_model=theirs(draft), **options)
    found, passes = write_with_drafts(model, tokens, COUNT, drafts_of(draft, 5))
    assert found.tolist() == expected.tolist()
    assert len(set(found[0, L:].tolist())) > 1, "a test with one token again and again is none"
    assert passes < COUNT, "a test without accepted drafts is none"


def exact(p, q, k):
    """The chance of each number of kept drafts and each token behind them, all words alike in p."""
    both = p.minimum(q)
    kept, chances = both.sum().item(), {}
    missing = (p - q).clamp(min=0)
    for number in range(k):
        for token in range(len(p)):
            chances[number, token] = kept**number * missing[token].item()
    for token in range(len(p)):
        chances[k, token] = kept**k * p[token].item()
    return chances


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_numbers_and_tokens_have_their_exact_chances(dtype):
    p, q = torch.tensor([0.5, 0.25, 0.125, 0.125]), torch.tensor([0.125, 0.5, 0.375, 0.0])
    N, k, generator = 40_000, 3, torch.Generator().manual_seed(0)
    drafts = q.multinomial(N * k, replacement=True, generator=generator).view(N, k)
    given = p.to(dtype).expand(N, k + 1, 4), q.to(dtype).expand(N, k, 4)
    number, token = accept_drafts(*given, drafts, generator=generator)
    statistic, cells = 0.0, 0
    for (n, t), chance in exact(p, q, k).items():
        count = ((number == n) & (token == t)).sum().item()
        if chance == 0:
            assert count == 0
            continue
        statistic += (count - N * chance) ** 2 / (N * chance)
        cells += 1
    assert statistic < cells + 5 * (2 * cells) ** 0.5  # chi-square: mean and deviation


def test_the_text_is_distributed_as_the_target_whatever_was_drafted():
    """Two tokens, where the second depends on the first: all 9 pairs."""
    N, generator = 60_000, torch.Generator().manual_seed(1)
    start, follow = torch.rand(3).softmax(-1), torch.randn(3, 3).softmax(-1)
    q = torch.tensor([0.7, 0.2, 0.1])
    drafts = q.multinomial(N, replacement=True, generator=generator)[:, None]
    target = torch.stack([start.expand(N, 3), follow[drafts[:, 0]]], dim=1)
    number, token = accept_drafts(target, q.expand(N, 1, 3), drafts, generator=generator)
    first = drafts[:, 0].where(number == 1, token)
    later = follow[first].multinomial(1, generator=generator)[:, 0]  # the next step
    second = token.where(number == 1, later)
    statistic = 0.0
    for a, b in itertools.product(range(3), range(3)):
        expected = N * (start[a] * follow[a, b]).item()
        statistic += (((first == a) & (second == b)).sum().item() - expected) ** 2 / expected
    assert statistic < 8 + 5 * 4


def test_equal_distributions_keep_all_drafts():
    p = torch.randn(7, 3, 11).softmax(-1)
    tokens = p.flatten(0, 1).multinomial(1).view(7, 3)
    target = torch.cat([p, torch.eye(11)[4].expand(7, 1, 11)], dim=1)
    number, token = accept_drafts(target, p, tokens)
    assert number.tolist() == [3] * 7
    assert token.tolist() == [4] * 7


def test_a_draft_that_neither_would_write_is_rejected():
    """p = q = 0: whatever the chance, 0 is not less than 0."""
    p, q = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.75, 0.25, 0.0])
    drafts = torch.full((100, 1), 2)
    number, token = accept_drafts(p.expand(100, 2, 3), q.expand(100, 1, 3), drafts)
    assert not number.any()
    assert token.tolist() == [1] * 100  # q gives it too rarely


def test_a_rejected_draft_where_nothing_is_missing():
    """p is q but for a rounding down, so a rejected draft leaves no max(p - q, 0) to draw from."""
    N, generator = 10_000, torch.Generator().manual_seed(0)
    q = torch.tensor([0.5, 0.5], dtype=torch.bfloat16)
    p = torch.tensor([0.5 - 2**-9, 0.5], dtype=torch.bfloat16)
    drafts = torch.zeros(N, 1, dtype=torch.long)
    given = p.expand(N, 2, 2), q.expand(N, 1, 2)
    number, token = accept_drafts(*given, drafts, generator=generator)
    rejected = token[number == 0]
    assert 0 < len(rejected) < N / 100
    assert rejected.unique().tolist() == [0, 1]  # from p


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_more_words_than_a_byte_has(dtype):
    p = torch.eye(300)[[7, 299]]
    number, token = accept_drafts(p, p[:1], torch.tensor([7], dtype=dtype))
    assert (number.item(), token.item()) == (1, 299)


PARENTS = [-1, 0, 1, 0, 3, 3, -1, 6]
PATHS = [[0, 1, 2], [0, 3, 4], [0, 3, 5], [6, 7], [0, 1]]


def test_a_tree_is_each_path_alone():
    past, layers = 5, [MultiHeadAttention(24, 6, num_kv_heads=2, position=Rotary(4)).double()]
    layers.append(MultiHeadAttention(24, 6, num_kv_heads=3, position=Rotary(4)).double())
    text = torch.randn(1, past, 24, dtype=torch.float64)
    nodes = torch.randn(1, len(PARENTS), 24, dtype=torch.float64)
    parents = torch.tensor(PARENTS)
    mask, depths = tree_mask(parents, past), tree_depths(parents)

    def run(x, positions, mask, caches):
        for layer, cache in zip(layers, caches, strict=True):
            options = {"positions": positions, "mask": mask, "is_causal": True}
            x = x + layer(x, cache=cache, **options)
        return x

    caches = [KVCache(max_len=past + len(PARENTS)) for _ in layers]
    run(text, torch.arange(past), None, caches)
    found = run(nodes, past + depths, mask, caches)
    for path in PATHS:
        alone = torch.cat([text, nodes[:, path]], dim=1)
        expected = run(alone, torch.arange(past + len(path)), None, [None, None])
        torch.testing.assert_close(found[:, path], expected[:, past:])


def test_masks_and_depths_by_hand():
    def line(node):
        return [] if node < 0 else [*line(PARENTS[node]), node]

    parents = torch.tensor(PARENTS)
    mask = tree_mask(parents, past=3)
    assert mask.dtype == torch.bool
    for node, row in enumerate(mask):
        assert row.nonzero().flatten().tolist() == [0, 1, 2, *(3 + i for i in line(node))]
        assert tree_depths(parents)[node] == len(line(node)) - 1
    chain = torch.arange(7) - 1
    assert tree_mask(chain).equal(torch.ones(7, 7).tril().bool())
    assert tree_mask(torch.full((4,), -1)).equal(torch.eye(4).bool())


P, Q, X = torch.full((4, 3), 1 / 3), torch.full((3, 3), 1 / 3), torch.zeros(3, dtype=torch.long)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: accept_drafts([1.0], Q, X), TypeError, "target must be a tensor of floats"),
        (lambda: accept_drafts(P, Q.long(), X), TypeError, "draft must be a tensor of floats"),
        (
            lambda: accept_drafts(Q, Q, X),
            ValueError,
            r"target must be \(..., k \+ 1, V\) = \(4, 3\), got \(3, 3\)",
        ),
        (
            lambda: accept_drafts(P, (9 * Q).log() - 2, X),
            ValueError,
            "draft must be probabilities, at least 0, got -0.9014; take the softmax of logits",
        ),
        (
            lambda: accept_drafts(2 * P, Q, X),
            ValueError,
            "target must be probabilities that sum to 1, got 2",
        ),
        (
            lambda: accept_drafts(P, Q * torch.nan, X),
            ValueError,
            "draft must be probabilities that sum to 1, got nan",
        ),
        (lambda: accept_drafts(P, Q, X + 3), ValueError, "from 0 to V - 1 = 2, got 3"),
        (lambda: accept_drafts(P, Q, X - 1), ValueError, "from 0 to V - 1 = 2, got -1"),
        (lambda: accept_drafts(P, Q, X[:2]), ValueError, r"tokens must be .* = \(3,\), got \(2,\)"),
        (lambda: accept_drafts(P, Q, X.float()), TypeError, "integers, got torch.float32"),
        (lambda: accept_drafts(P, Q, [0]), TypeError, "tensor of integers, got list"),
        (lambda: tree_mask([0]), TypeError, "parents must be a tensor of integers, got list"),
        (lambda: tree_mask(X.float()), TypeError, "integers, got torch.float32"),
        (lambda: tree_mask(X[None]), ValueError, "parents must have 1 axes"),
        (lambda: tree_mask(X), ValueError, "from -1 to -1 at node 0, got 0"),
        (lambda: tree_mask(X - 2), ValueError, "from -1 to -1 at node 0, got -2"),
        (lambda: tree_mask(X - 1, -1), ValueError, "past must be at least 0, got -1"),
        (
            lambda: write_with_drafts(None, X[None, :].repeat(2, 1), 1, None),
            ValueError,
            "got .2, 3",
        ),
        (lambda: write_with_drafts(None, X[None], 0, None), ValueError, "count must be at least 1"),
        (lambda: write_with_drafts(None, [[1]], 1, None), TypeError, "got list"),
    ],
)
def test_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_drafts_with_two_axes_are_refused():
    model, tokens = random_model(), torch.randint(V, (1, L))
    with pytest.raises(ValueError, match="drafts must have 1 axes"):
        write_with_drafts(model, tokens, 5, lambda tokens: tokens)
