"""Against the definition in loops, planted solutions, the proven bound, and training one by one."""

import pytest
import torch
from torch import nn

from mhattn import MultiHeadAttention
from mhattn.lessons import GatherModel, LinkedTokens, balanced, linked_tokens, train_models

SIZES = [(3, 7, 0, 1), (2, 5, 1, 1), (3, 7, 2, 2), (2, 5, 3, 3)]  # batch, length, links, content


@pytest.mark.parametrize(("batch", "length", "links", "k"), SIZES)
def test_tokens_follow_their_definition(batch, length, links, k):
    tokens = linked_tokens(batch, length, links, content_dim=k)
    relations = links + 1
    assert tokens.labels.shape == (batch, length, relations * length)
    assert tokens.content.shape == (batch, length, k)
    assert tokens.target.shape == (batch, length, relations * k)
    assert tokens.sources.shape == (batch, length, relations)
    for b in range(batch):
        for i in range(length):
            first, *linked = tokens.sources[b, i].tolist()
            assert first == (i - 1 if i else length - 1)
            assert len({i, first, *linked}) == links + 2, "a link to itself, before, or twice"
            needed = [x for j in [first, *linked] for x in tokens.content[b, j].tolist()]
            assert tokens.target[b, i].tolist() == needed
            named = [n * length + j for n, j in enumerate([i, *linked])]
            assert tokens.labels[b, i].nonzero().flatten().tolist() == named
            assert tokens.labels[b, i].sum() == relations


def test_every_allowed_link_is_equally_likely():
    links = linked_tokens(6000, 5, 2).sources[:, 3, 1:]  # of token 3: to 0, 1 or 4
    for column in links.T:
        share = column.bincount(minlength=5) / 6000
        torch.testing.assert_close(
            share, torch.tensor([1, 1, 0, 0, 1]) / 3, atol=0.03, rtol=0
        )  # five standard deviations


def test_contents_are_standard_normal():
    content = linked_tokens(3000, 5, 1, content_dim=3).content.flatten(1)  # (3000, 15)
    assert content.mean(0).abs().max() < 0.1
    assert (content.T.cov() - torch.eye(15)).abs().max() < 0.15
    assert ((content.abs() < 1).float().mean() - 0.6827).abs() < 0.02


def test_the_same_seed_gives_the_same_tokens_and_another_gives_others():
    draws = []
    for seed in (3, 3, 5):
        torch.manual_seed(seed)
        draws.append(linked_tokens(2, 7, 2))
    assert all(a.equal(b) for a, b in zip(draws[0], draws[1], strict=True))
    assert not draws[0].sources.equal(draws[2].sources)
    assert not draws[0].content.equal(draws[2].content)


@pytest.mark.parametrize("k", [1, 3])
def test_balanced_contents_have_mean_zero_and_covariance_one(k):
    tokens = linked_tokens(2, 5, 2, content_dim=k)
    tests = balanced(tokens)
    size, each = 5 * k, 10 * k
    assert tests.content.shape == (2 * each, 5, k)
    for b in range(2):
        mine = slice(b * each, (b + 1) * each)
        content = tests.content[mine].flatten(1)  # (2N, N)
        assert content.mean(0).equal(torch.zeros(size))
        torch.testing.assert_close(content.T @ content / each, torch.eye(size))
        target = tests.target[mine].flatten(0, 1)  # (2N * L, R * k)
        torch.testing.assert_close(target.T @ target / len(target), torch.eye(3 * k))
        for name in ("labels", "sources"):
            kept = getattr(tokens, name)[b].expand(each, -1, -1)
            assert getattr(tests, name)[mine].equal(kept)
    for content, target, sources in zip(tests.content, tests.target, tests.sources, strict=True):
        assert target.equal(content[sources].flatten(1))


def test_balanced_keeps_dtype():
    tokens = linked_tokens(1, 5)
    double = LinkedTokens(*(x.double() for x in tokens[:3]), tokens.sources)
    assert {x.dtype for x in balanced(double)[:3]} == {torch.float64}


def test_balanced_error_is_the_error_over_many_random_contents():
    """As long as the weights do not depend on the contents."""
    torch.manual_seed(1)
    model = GatherModel(14, 2, 2)
    tokens = linked_tokens(1, 7)
    tests = balanced(tokens)
    content = torch.randn(20_000, 7, 1)
    labels, sources = (x.expand(20_000, -1, -1) for x in (tokens.labels, tokens.sources))
    target = content[torch.arange(20_000)[:, None, None], sources].squeeze(-1)
    with torch.no_grad():
        exact = (model(*tests[:2]) - tests.target).square().mean()
        sampled = (model(labels, content) - target).square().mean()
    torch.testing.assert_close(sampled, exact, rtol=0.02, atol=0)


def plant(model, length, queries):
    """Head h asks ``queries[h]`` of the labels; keys are positions, values contents."""
    layer = model.attention
    dim, k = layer.head_dim, layer.vdim
    for parameter in model.parameters():
        parameter.detach().zero_()
    for h, query in enumerate(queries):
        layer.q_proj.weight.data[h * dim : h * dim + length] = 1e4 * query
        layer.k_proj.weight.data[h * dim : h * dim + length, :length] = torch.eye(length)
        layer.v_proj.weight.data[h * dim : h * dim + k] = torch.eye(k)
        layer.out_proj.weight.data[h * k : h * k + k, h * dim : h * dim + k] = torch.eye(k)
    outputs = len(model.readout.weight)
    model.readout.weight.data[:, :outputs] = torch.eye(outputs)


@pytest.mark.parametrize(("links", "k"), [(1, 1), (2, 2)])
def test_as_many_planted_heads_as_relations_solve_the_task_exactly(links, k):
    length, relations = 7, links + 1
    embed_dim = relations * length
    tokens = linked_tokens(3, length, links, content_dim=k)
    model = GatherModel(embed_dim, relations, relations * k, content_dim=k)
    queries = torch.zeros(relations, length, embed_dim)
    queries[0, :, :length] = torch.eye(length).roll(1, dims=1)
    for n in range(1, relations):
        queries[n, :, n * length : (n + 1) * length] = torch.eye(length)
    plant(model, length, queries)
    output, weights = model(tokens.labels, tokens.content, return_weights=True)
    torch.testing.assert_close(output, tokens.target)
    truth = nn.functional.one_hot(tokens.sources.mT, length).float()  # (B, R, L, L)
    torch.testing.assert_close(weights, truth)
    assert output.equal(model(tokens.labels, tokens.content))


@pytest.mark.parametrize(("heads", "links", "k"), [(1, 1, 1), (1, 2, 3), (2, 3, 1)])
def test_too_few_heads_stay_above_the_bound(heads, links, k):
    """Whatever the model does: here it is drawn at random and then trained."""
    length, relations = 5, links + 1
    tests = balanced(linked_tokens(3, length, links, content_dim=k))
    sizes = {"head_dim": 4, "content_dim": k}
    models = [GatherModel(relations * length, heads, relations * k, **sizes) for _ in range(3)]
    errors = train_models(
        models,
        lambda n: linked_tokens(n, length, links, content_dim=k),
        tests,
        steps=150,
        lr=0.03,
    )
    bound = 1 - heads / relations
    assert errors.min() > bound - 1e-5
    assert errors[-1].max() < bound + 0.15, "and they come close"


def test_training_together_is_training_one_by_one():
    torch.manual_seed(2)
    together = [GatherModel(15, 3, 3) for _ in range(3)]
    alone = [GatherModel(15, 3, 3) for _ in range(3)]
    for a, b in zip(together, alone, strict=True):
        b.load_state_dict(a.state_dict())
    tests, seen = linked_tokens(4, 5, 2), []

    def draw(batch):
        seen.append(linked_tokens(batch, 5, 2))
        return seen[-1]

    errors = train_models(together, draw, tests, steps=20, lr=0.01, batch=7, every=5)
    assert errors.shape == (5, 3)
    assert {len(tokens.labels) for tokens in seen} == {21}
    for i, model in enumerate(alone):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(21):
            with torch.no_grad():
                error = (model(*tests[:2]) - tests.target).square().mean()
            if step % 5 == 0:
                torch.testing.assert_close(errors[step // 5, i], error)
            if step == 20:
                break
            labels, content, target, _ = (x[7 * i : 7 * i + 7] for x in seen[step])
            optimizer.zero_grad()
            (model(labels, content) - target).square().mean().backward()
            optimizer.step()
        for name, parameter in together[i].state_dict().items():
            if name == "attention.k_proj.bias":
                continue  # softmax cancels it: its gradient is rounding, which Adam makes steps of
            torch.testing.assert_close(parameter, model.state_dict()[name], atol=1e-5, rtol=1e-4)
    assert not errors.requires_grad


def test_training_finds_two_relations_with_two_heads():
    torch.manual_seed(0)
    models = [GatherModel(10, 2, 2) for _ in range(2)]
    tests = balanced(linked_tokens(4, 5))
    errors = train_models(
        models, lambda n: linked_tokens(n, 5), tests, steps=300, lr=0.03, every=300
    )
    assert errors.shape == (2, 2)
    assert errors[-1].max() < 0.01


def test_model_is_attention_with_labels_as_queries_and_contents_as_values():
    model = GatherModel(10, 2, 3, head_dim=4, content_dim=2)
    assert isinstance(model.attention, MultiHeadAttention)
    theirs = nn.MultiheadAttention(10, 2, vdim=2, batch_first=True)
    model = GatherModel(10, 2, 3, content_dim=2)
    model.attention = MultiHeadAttention.from_torch(theirs)
    labels, content = torch.randn(2, 5, 10), torch.randn(2, 5, 2)
    mixed, weights = theirs(labels, labels, content, average_attn_weights=False)
    output, ours = model(labels, content, return_weights=True)
    torch.testing.assert_close(output, model.readout(mixed))
    torch.testing.assert_close(ours, weights)


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 12), (2, 6), (3, 4), (12, 1)])
def test_equal_width_is_equal_parameters(heads, head_dim):
    model = GatherModel(10, heads, 3, head_dim=head_dim)
    projections = 2 * 10 * 12 + 12 + 12 * 10 + 3 * 12 + 10
    assert sum(p.numel() for p in model.parameters()) == projections + 10 * 3 + 3


def short(**changes):
    options = {"steps": 5, "lr": 0.01, "batch": 2, "every": 5} | changes
    models = [GatherModel(10, 1, 2)]
    return train_models(models, lambda n: linked_tokens(n, 5), linked_tokens(1, 5), **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: linked_tokens(0, 5), ValueError, "batch must be at least 1, got 0"),
        (lambda: linked_tokens(2, 4, 3), ValueError, "length must be at least 5, got 4"),
        (lambda: linked_tokens(2, 5, -1), ValueError, "num_links must be at least 0, got -1"),
        (
            lambda: linked_tokens(2, 5, content_dim=0),
            ValueError,
            "content_dim must be at least 1, got 0",
        ),
        (lambda: linked_tokens(2, 5.0), TypeError, "length must be an integer, got float"),
        (lambda: GatherModel(10, 2, 0), ValueError, "num_outputs must be at least 1, got 0"),
        (
            lambda: GatherModel(10, 3, 2),
            ValueError,
            "num_heads must divide embed_dim, 10, got 3",
        ),
        (lambda: short(steps=0), ValueError, "steps must be at least 1, got 0"),
        (lambda: short(batch=0), ValueError, "batch must be at least 1, got 0"),
        (lambda: short(every=2.5), TypeError, "every must be an integer, got float"),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value) == message
