"""Against planted heads, sums by hand, and the means of many draws."""

import itertools

import numpy as np
import pytest
import torch

from mhattn import (
    cka,
    effective_heads,
    head_groups,
    head_similarity,
    head_uniqueness,
    rank_residual,
)
from mhattn.timing import peak_bytes

B, H, L, S, N, D1, D2 = 2, 3, 5, 7, 11, 13, 17
F64 = {"dtype": torch.float64}
MEASURES = ["divergence", "cosine"]


def maps(*shape, mask=None):
    scores = 2 * torch.randn(*shape, **F64)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0)


def grouped(*sizes, inside=1.0, outside=0.0):
    """A table of groups that lie one after the other."""
    group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    alike = torch.where(group[:, None] == group, inside, outside).double()
    return alike.fill_diagonal_(1.0)


class TestSimilarity:
    @pytest.mark.parametrize("measure", MEASURES)
    def test_equal_maps_and_maps_without_a_key_in_common(self, measure):
        first = torch.eye(6, **F64)
        found = head_similarity(torch.stack([first, first, first.roll(1, 0)]), measure=measure)
        expected = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]], **F64)
        torch.testing.assert_close(found, expected)

    def test_cosine_by_hand(self):
        mask = torch.ones(L, S).tril(S - L - 2).bool()  # the first query sees one, then 2, 3, 4, 5
        assert mask.sum(dim=-1).tolist() == [1, 2, 3, 4, 5]
        weights = maps(B, H, L, S, mask=mask)
        found = head_similarity(weights, mask, measure="cosine")
        w = weights.numpy()
        for b, i, j in itertools.product(range(B), range(H), range(H)):
            rows = []
            for query in range(1, L):
                one, other = w[b, i, query], w[b, j, query]
                rows.append(one @ other / np.sqrt((one @ one) * (other @ other)))
            assert found[b, i, j].item() == pytest.approx(np.mean(rows))

    def test_divergence_by_hand(self):
        weights = maps(B, H, L, S)
        found = head_similarity(weights)
        w = weights.numpy()
        for b, i, j in itertools.product(range(B), range(H), range(H)):
            one, other = w[b, i], w[b, j]
            middle = (one + other) / 2
            apart = (one * np.log(one / middle) + other * np.log(other / middle)).sum() / 2 / L
            assert found[b, i, j].item() == pytest.approx(1 - apart / np.log(2))

    @pytest.mark.parametrize("measure", MEASURES)
    def test_memory_does_not_grow_with_pairs_of_heads(self, measure):
        """A few tables as large as the weights, however many heads there are."""
        most = {}
        for heads in (4, 16):
            weights = maps(heads, 64, 64)
            peak = peak_bytes(lambda w=weights: head_similarity(w, measure=measure))
            most[heads] = peak / weights.nbytes
        assert most[16] < most[4] + 1
        assert most[16] < 6

    @pytest.mark.parametrize("measure", MEASURES)
    def test_rows_without_a_choice_do_not_count(self, measure):
        mask = torch.ones(B, 1, L, S, dtype=torch.bool)
        mask[0, 0, 1] = False  # a query of padding, whose row is zeros
        mask[1, 0, 2] = torch.arange(S) == 3
        weights = maps(B, H, L, S, mask=mask)
        found = head_similarity(weights, mask, measure=measure)
        for b, gone in enumerate((1, 2)):
            left = [query for query in range(L) if query != gone]
            expected = head_similarity(weights[b, :, left], measure=measure)
            torch.testing.assert_close(found[b], expected)

    @pytest.mark.parametrize("measure", MEASURES)
    def test_a_row_counts_if_both_heads_have_a_choice(self, measure):
        mask = torch.ones(H, L, S, dtype=torch.bool)
        mask[1, 3] = torch.arange(S) == 2  # only head 1, only this query
        weights = maps(H, L, S, mask=mask)
        found = head_similarity(weights, mask, measure=measure)
        left = [query for query in range(L) if query != 3]
        expected = head_similarity(weights, measure=measure)
        expected[1] = expected[:, 1] = head_similarity(weights[:, left], measure=measure)[1]
        torch.testing.assert_close(found, expected)

    @pytest.mark.parametrize("measure", MEASURES)
    def test_no_choice_at_all_is_nan(self, measure):
        mask = torch.eye(L, dtype=torch.bool)
        weights = torch.eye(L).expand(H, L, L)
        assert head_similarity(weights, mask, measure=measure).isnan().all()

    @pytest.mark.parametrize("measure", MEASURES)
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision(self, measure, dtype):
        weights = maps(B, H, L, S)
        found = head_similarity(weights.to(dtype), measure=measure)
        assert found.dtype == dtype
        expected = head_similarity(weights, measure=measure)
        torch.testing.assert_close(found.double(), expected, atol=0.02, rtol=0.0)

    @pytest.mark.parametrize("measure", MEASURES)
    def test_gradients(self, measure):
        scores = torch.randn(H, L, S, **F64, requires_grad=True)
        assert torch.autograd.gradcheck(
            lambda scores: head_similarity(scores.softmax(dim=-1), measure=measure), scores
        )

    def test_errors(self):
        weights = maps(H, L, S)
        with pytest.raises(ValueError, match="measure must be 'divergence' or 'cosine', got 'kl'"):
            head_similarity(weights, measure="kl")
        for measure in MEASURES:
            with pytest.raises(ValueError, match="weights must have at least 3 axes"):
                head_similarity(weights[0], measure=measure)
            with pytest.raises(TypeError, match="weights must be a tensor of floats"):
                head_similarity(weights > 0, measure=measure)
            with pytest.raises(ValueError, match="weights must sum to 1"):
                head_similarity(2 * weights, measure=measure)


def by_hand(x, y):
    """Linear CKA with all tables of dot products, as Kornblith et al. write it."""
    n = len(x)
    H = np.eye(n) - np.ones((n, n)) / n
    tables = [H @ (z @ z.T) @ H for z in (x, y)]

    def hsic(K, L):
        return sum(K[i, j] * L[i, j] for i in range(n) for j in range(n))

    K, L = tables
    return hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L))


def debiased_by_hand(x, y):
    """Song et al. (2012), equation 5, on tables with zeros on their diagonals."""
    n = len(x)
    K, L = (z @ z.T for z in (x, y))
    for table in (K, L):
        np.fill_diagonal(table, 0.0)
    one = np.ones(n)

    def hsic(K, L):
        sums = np.trace(K @ L)
        sums += (one @ K @ one) * (one @ L @ one) / ((n - 1) * (n - 2))
        sums -= 2 / (n - 2) * (one @ K @ L @ one)
        return sums / (n * (n - 3))

    return hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L))


class TestCka:
    @pytest.mark.parametrize(("debiased", "truth"), [(False, by_hand), (True, debiased_by_hand)])
    def test_by_hand(self, debiased, truth):
        x = torch.randn(B, N, D1, **F64) + 3
        y = torch.randn(B, N, D2, **F64) + x.sum(dim=-1, keepdim=True) / 4
        found = cka(x, y, debiased=debiased)
        for b in range(B):
            expected = truth(x[b].numpy(), y[b].numpy())
            assert found[b].item() == pytest.approx(expected)

    @pytest.mark.parametrize("debiased", [False, True])
    def test_what_it_does_not_see(self, debiased):
        """Rotations, shifts, scales and the order of the samples."""
        x, y = torch.randn(N, D1, **F64), torch.randn(N, D2, **F64)
        y[:, :D1] += x
        turn = torch.linalg.qr(torch.randn(D1, D1, **F64)).Q
        expected = cka(x, y, debiased=debiased)
        order = torch.randperm(N)
        for other in (x @ turn, 1e3 * x, -x, x + 5, torch.cat([x, torch.zeros(N, 2)], dim=1)):
            torch.testing.assert_close(cka(other, y, debiased=debiased), expected)
        torch.testing.assert_close(cka(x[order], y[order], debiased=debiased), expected)
        torch.testing.assert_close(cka(y, x, debiased=debiased), expected)
        one = torch.ones((), **F64)
        torch.testing.assert_close(cka(x, 2 * x @ turn + 1, debiased=debiased), one)

    def test_it_sees_a_linear_map_that_is_no_rotation(self):
        x = torch.randn(200, 2, **F64)
        stretched = x * torch.tensor([1.0, 10.0])
        assert cka(x, stretched) < 0.9

    def test_orthogonal_samples(self):
        """Two contrasts of eight samples that have nothing to do with each other."""
        x = torch.tensor([1.0, -1.0]).repeat(4)[:, None]
        y = torch.tensor([1.0, -1.0]).repeat_interleave(4)[:, None]
        assert cka(x, y, debiased=False) == 0
        assert abs(cka(x, y)) < 0.2

    @pytest.mark.parametrize("features", [2, 64])
    def test_independent_draws(self, features):
        """Debiased: zero on average, whatever the number of features. Biased: far above."""
        torch.manual_seed(0)
        x, y = torch.randn(2, 4000, 12, features, **F64)
        found = cka(x, y)
        error = found.std() / len(found) ** 0.5
        assert abs(found.mean()) < 4 * error
        assert error < 0.005
        assert cka(x, y, debiased=False).mean() > 0.1 + 0.6 * (features > 12)

    def test_planted_half(self):
        """Half of the features are shared: sums of squares say how alike both are."""
        torch.manual_seed(0)
        shared, *own = torch.randn(3, 4000, 6, **F64)
        x, y = (torch.cat([shared, part], dim=1) for part in own)
        assert cka(x, y).item() == pytest.approx(0.5, abs=0.02)

    def test_axes_broadcast(self):
        heads = torch.randn(B, H, N, D1, **F64)
        found = cka(heads[:, :, None], heads[:, None])
        assert found.shape == (B, H, H)
        for b, i, j in itertools.product(range(B), range(H), range(H)):
            torch.testing.assert_close(found[b, i, j], cka(heads[b, i], heads[b, j]))

    @pytest.mark.parametrize("debiased", [False, True])
    def test_constant_samples_are_nan(self, debiased):
        x = torch.randn(N, D1)
        for constant in (torch.zeros(N, 2), torch.full((N, 2), 0.1), torch.full((N, 2), 1e4 / 3)):
            assert cka(x, constant, debiased=debiased).isnan()
            assert cka(constant, x, debiased=debiased).isnan()

    def test_large_and_small_numbers(self):
        x, y = torch.randn(N, D1), torch.randn(N, D2)
        torch.testing.assert_close(cka(1e15 * x, 1e-15 * y), cka(x, y))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision(self, dtype):
        x = torch.randn(4000, D1).to(dtype)  # sums beyond what float16 holds
        y = x @ torch.randn(D1, D2).to(dtype)
        found = cka(100 * x, y)
        assert found.dtype == dtype
        expected = cka(x.float(), y.float())
        torch.testing.assert_close(found, expected.to(dtype), atol=0.01, rtol=0.0)

    def test_gradients(self):
        x, y = torch.randn(5, 2, **F64, requires_grad=True), torch.randn(5, 3, **F64)
        assert torch.autograd.gradcheck(lambda x: cka(x, y), x)

    def test_fewest_samples(self):
        x = torch.randn(4, D1, **F64)
        assert cka(x, x).item() == pytest.approx(1)
        assert cka(x[:2], x[:2], debiased=False).item() == pytest.approx(1)

    def test_errors(self):
        x = torch.randn(N, D1)
        with pytest.raises(ValueError, match="x and y must have the same N"):
            cka(x, x[1:])
        with pytest.raises(
            ValueError, match=r"N, the number of samples, must be at least 4, got 3"
        ):
            cka(x[:3], x[:3])
        with pytest.raises(
            ValueError, match=r"N, the number of samples, must be at least 2, got 1"
        ):
            cka(x[:1], x[:1], debiased=False)
        with pytest.raises(TypeError, match="y must be a tensor of floats"):
            cka(x, x.int())
        with pytest.raises(ValueError, match="x must be finite"):
            cka(x / 0, x)


class TestEffectiveHeads:
    @pytest.mark.parametrize(("groups", "size"), [(1, 7), (7, 1), (3, 5), (5, 2)])
    def test_equal_groups_count_once(self, groups, size):
        assert effective_heads(grouped(*[size] * groups)).item() == pytest.approx(groups)

    def test_unequal_groups(self):
        """1 over the sum of squared shares, Simpson's index."""
        expected = 1 / sum((size / 11) ** 2 for size in (7, 3, 1))
        assert effective_heads(grouped(7, 3, 1)).item() == pytest.approx(expected)

    def test_mean_similarity(self):
        similarity = torch.rand(B, H, H, **F64)
        similarity = (similarity + similarity.mT) / 2
        similarity.diagonal(dim1=-2, dim2=-1)[:] = 1
        found = effective_heads(similarity)
        for b in range(B):
            mean = sum(similarity[b, i, j] for i in range(H) for j in range(H) if i != j)
            expected = H / (1 + mean / H)
            torch.testing.assert_close(found[b], expected)

    @pytest.mark.parametrize("read", [effective_heads, head_uniqueness])
    def test_gradients(self, read):
        scores = torch.randn(H, L, S, **F64, requires_grad=True)
        assert torch.autograd.gradcheck(
            lambda scores: read(head_similarity(scores.softmax(dim=-1))), scores
        )

    @pytest.mark.parametrize("read", [effective_heads, head_uniqueness])
    def test_errors(self, read):
        with pytest.raises(ValueError, match=r"similarity must be \(..., H, H\), got \(2, 3\)"):
            read(torch.ones(2, 3))
        low, high = torch.eye(H), torch.eye(H)
        low[0, 1], high[0, 1] = -0.01, 1.01
        with pytest.raises(ValueError, match=r"must be in \[0, 1\], got -0.01; debiased CKA"):
            read(low)
        with pytest.raises(ValueError, match=r"must be in \[0, 1\], got 1.01"):
            read(high)
        with pytest.raises(ValueError, match=r"of each head with itself, got 0.5"):
            read(torch.eye(H) / 2)
        with pytest.raises(ValueError, match="similarity must be finite"):
            read(torch.full((H, H), torch.nan))

    def test_rounded_numbers_pass(self):
        weights = maps(H, L, S).bfloat16()
        similarity = head_similarity(weights[[0, 0, 1]])
        assert 1 <= effective_heads(similarity) <= H
        assert effective_heads(torch.ones(H, H) + 1e-6) == 1


class TestUniqueness:
    def test_by_hand(self):
        similarity = grouped(2, 3, inside=0.75, outside=0.25)
        similarity[0, 1] = similarity[1, 0] = 0.5
        assert head_uniqueness(similarity).tolist() == [0.5, 0.5, 0.25, 0.25, 0.25]

    def test_batches(self):
        similarity = torch.stack([grouped(2, 1), grouped(1, 1, 1)])
        assert head_uniqueness(similarity).tolist() == [[0, 0, 1], [1, 1, 1]]

    def test_a_single_head(self):
        with pytest.raises(ValueError, match="the number of heads must be at least 2, got 1"):
            head_uniqueness(torch.ones(1, 1))


class TestGroups:
    @pytest.mark.parametrize("sizes", [(4, 3, 2), (5, 1, 1), (1, 1), (6,)])
    def test_planted_groups_in_any_order(self, sizes):
        similarity = grouped(*sizes, inside=0.8, outside=0.3)
        order = torch.randperm(sum(sizes))
        found = head_groups(similarity[order][:, order], 0.6)
        assert [len(group) for group in found] == list(sizes)
        ends = np.cumsum([0, *sizes])
        planted = {frozenset(range(*pair)) for pair in itertools.pairwise(ends)}
        assert {frozenset(order[group].tolist()) for group in found} == planted
        assert all(group == sorted(group) for group in found)

    def test_the_mean_counts(self):
        """A chain: 0 is like 1 and 1 like 2, but 0 is not like 2. Means: 0.9, then 0.5."""
        similarity = torch.tensor([[1.0, 0.9, 0.2], [0.9, 1.0, 0.8], [0.2, 0.8, 1.0]])
        assert head_groups(similarity, 0.51) == [[0, 1], [2]]
        assert head_groups(similarity, 0.49) == [[0, 1, 2]]

    def test_the_mean_of_unequal_groups(self):
        """The mean over pairs of heads, not over groups: (0.6 + 0.6 + 0) / 3 = 0.4, not 0.3."""
        similarity = grouped(3, inside=0.9)
        similarity = torch.block_diag(similarity, torch.ones(1, 1, **F64))
        similarity[0, 1] = similarity[1, 0] = 1.0  # these two first, then head 2
        for head, alike in enumerate((0.6, 0.6, 0.0)):
            similarity[3, head] = similarity[head, 3] = alike
        assert head_groups(similarity, 0.41) == [[0, 1, 2], [3]]
        assert head_groups(similarity, 0.39) == [[0, 1, 2, 3]]

    def test_thresholds(self):
        similarity = grouped(2, 2, inside=0.5, outside=0.1)
        assert head_groups(similarity, 1.0) == [[0], [1], [2], [3]]
        assert head_groups(similarity, 0.5) == [[0, 1], [2, 3]]
        assert head_groups(similarity, 0.0) == [[0, 1, 2, 3]]

    def test_the_table_stays(self):
        similarity = grouped(2, 3, inside=0.7)
        before = similarity.clone()
        head_groups(similarity, 0.5)
        assert torch.equal(similarity, before)

    def test_errors(self):
        similarity = grouped(2, 1)
        for threshold in (-0.1, 1.1):
            with pytest.raises(ValueError, match=r"threshold must be in \[0, 1\], got"):
                head_groups(similarity, threshold)
        with pytest.raises(ValueError, match="similarity must have 2 axes"):
            head_groups(similarity[None], 0.5)
        similarity[0, 2] = 0.5
        with pytest.raises(ValueError, match="similarity must be symmetric"):
            head_groups(similarity, 0.5)


class TestResidual:
    def test_by_hand(self):
        x = torch.randn(B, L, D1, **F64) + 1
        found = rank_residual(x)
        for b, given in enumerate(x.numpy()):
            rest = given - given.mean(axis=0)
            expected = np.sqrt((rest**2).sum() / (given**2).sum())
            assert found[b].item() == pytest.approx(expected)

    def test_no_other_row_is_nearer(self):
        x = torch.randn(L, D1, **F64) + 1
        for _ in range(20):
            other = x.mean(dim=0) + 0.1 * torch.randn(D1, **F64)
            assert rank_residual(x) < (x - other).norm() / x.norm()

    def test_extremes(self):
        row = torch.randn(D1, **F64)
        assert rank_residual(row.expand(L, D1)) < 1e-15
        x = torch.randn(L, D1, **F64)
        assert rank_residual(x - x.mean(dim=0)).item() == pytest.approx(1)
        assert rank_residual(torch.zeros(L, D1)).isnan()

    @pytest.mark.parametrize("scale", [1e-30, 1e30])
    def test_scale(self, scale):
        x = torch.randn(L, D1) + 1
        torch.testing.assert_close(rank_residual(scale * x), rank_residual(x))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision(self, dtype):
        x = (torch.randn(L, D1) + 1).to(dtype)
        found = rank_residual(x)
        assert found.dtype == dtype
        torch.testing.assert_close(found.float(), rank_residual(x.float()), atol=0.01, rtol=0.0)

    def test_gradients(self):
        x = torch.randn(4, 3, **F64, requires_grad=True)
        assert torch.autograd.gradcheck(rank_residual, x)

    def test_errors(self):
        with pytest.raises(ValueError, match="x must not be empty"):
            rank_residual(torch.zeros(0, 3))
        with pytest.raises(TypeError, match="x must be a tensor of floats"):
            rank_residual(torch.ones(2, 3, dtype=torch.int64))
