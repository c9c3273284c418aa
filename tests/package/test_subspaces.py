"""Against planted subspaces, closed forms, and the explicit E x E product in float64."""

import math

import pytest
import torch
from torch import nn

from mhattn import MultiHeadAttention, attention_weights, split_heads
from mhattn.inside import (
    chordal_distance,
    circuit_core,
    circuit_eigenvalues,
    direct_sum,
    grassmann_distance,
    head_projections,
    principal_angles,
    random_overlap,
    spectrum,
    subspace_overlap,
)
from mhattn.variants import LatentAttention

B, L, S, H, D, E = 2, 5, 7, 3, 4, 23
KDIM, VDIM = 17, 19

LAYERS = {
    "ours": lambda: MultiHeadAttention(E, H, head_dim=D),
    "ours, kdim and vdim": lambda: MultiHeadAttention(E, H, head_dim=D, kdim=KDIM, vdim=VDIM),
    "ours, grouped": lambda: MultiHeadAttention(E, 6, num_kv_heads=2, head_dim=D),
    "ours, one key-value head": lambda: MultiHeadAttention(E, 6, num_kv_heads=1, head_dim=D),
    "torch": lambda: nn.MultiheadAttention(21, H, batch_first=True),
    "torch, kdim and vdim": lambda: nn.MultiheadAttention(
        21, H, kdim=KDIM, vdim=VDIM, batch_first=True
    ),
}
every_layer = pytest.mark.parametrize("layer", LAYERS)
every_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def orthonormal(count, width=E):
    """Rows at right angles, in a random direction."""
    return torch.linalg.qr(normal(width, count)).Q.T


def at_angles(angles):
    """Two subspaces whose principal angles are these, each with a random basis."""
    angles = torch.as_tensor(angles, dtype=torch.float64)[:, None]
    axes = orthonormal(2 * len(angles))
    first, others = axes[: len(angles)], axes[len(angles) :]
    second = angles.cos() * first + angles.sin() * others
    return mixed(first), mixed(second)


def mixed(rows):
    """Another basis of the same subspace, skewed and scaled."""
    count = rows.shape[-2]
    change = torch.eye(count, dtype=torch.float64) + 0.4 * normal(count, count) / count**0.5
    return 3 * change @ rows


def close(found, expected, **tolerance):
    expected = torch.as_tensor(expected, dtype=torch.float64).expand_as(found)
    torch.testing.assert_close(
        found.double(), expected, **{"atol": 1e-12, "rtol": 1e-12, **tolerance}
    )


# The projections of each head


@every_layer
def test_the_pieces_put_together_are_the_layer(layer):
    """Each head by its own matrices, added up, against the forward pass."""
    module = LAYERS[layer]().double()
    for name, parameter in module.named_parameters():
        nn.init.zeros_(parameter) if "bias" in name else nn.init.normal_(parameter, std=0.3)
    heads = head_projections(module)
    query, key, value = (normal(B, n, x.shape[-1]) for n, x in zip((L, S, S), heads, strict=False))
    q, k, v = (
        torch.einsum("hde,ble->bhld", w, x)
        for w, x in zip(heads, (query, key, value), strict=False)
    )
    parts = attention_weights(q, k) @ v @ heads.output  # (B, H, L, E)
    expected = module(query, key, value)
    close(parts.sum(dim=1), expected[0] if isinstance(expected, tuple) else expected)


def test_each_circuit_is_that_of_its_head():
    """The weights of each head alone, from E x E products, for grouped heads."""
    module = LAYERS["ours, grouped"]().double()
    heads = head_projections(module)
    x = normal(B, L, E)
    scores = x[:, None] @ (heads.query.mT @ heads.key) @ x[:, None].mT / D**0.5
    _, weights = module(x, return_weights=True)
    close(scores.softmax(dim=-1), weights.detach())


def test_heads_of_a_group_share_key_and_value_and_nothing_else():
    heads = head_projections(LAYERS["ours, grouped"]())
    for shared in (heads.key, heads.value):
        same = [[a.equal(b) for b in shared] for a in shared]
        assert same == [[i // 3 == j // 3 for j in range(6)] for i in range(6)]
    for own in (heads.query, heads.output):
        assert [[a.equal(b) for b in own] for a in own] == torch.eye(6, dtype=torch.bool).tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
@every_layer
def test_dtype_is_kept_and_gradients_are_not(layer, dtype):
    for x in head_projections(LAYERS[layer]().to(dtype)):
        assert x.dtype == dtype
        assert not x.requires_grad


def test_rows_are_those_that_make_a_heads_numbers():
    module = LAYERS["ours"]().double()
    nn.init.zeros_(module.q_proj.bias)
    x = normal(B, L, E)
    expected = split_heads(module.q_proj(x), H).detach()
    close(x[:, None] @ head_projections(module).query.mT, expected)


# Spectrum


@every_dtype
def test_planted_singular_values(dtype):
    planted = torch.tensor([5.0, 2.0, 0.5, 0.1], dtype=torch.float64)
    matrices = torch.stack(
        [orthonormal(D, D).T @ (planted[:, None] * orthonormal(D)) for _ in range(H)]
    )
    found = spectrum(matrices.to(dtype))
    assert found.singular_values.dtype == dtype
    eps = torch.finfo(dtype).eps
    close(found.singular_values, planted, atol=50 * eps, rtol=0)
    close(found.condition_number, 50.0, atol=0, rtol=5000 * eps)
    assert found.rank.tolist() == [D] * H


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
@pytest.mark.parametrize("rank", [1, 3, 7])
def test_rank_does_not_count_rounding(rank, dtype):
    """The rank is that of the numbers before they were rounded, whichever way the matrix lies."""
    for rows, columns in [(16, 64), (64, 16), (16, 1024)]:
        matrix = (normal(5, rows, rank) @ normal(5, rank, columns)).to(dtype)
        found = spectrum(matrix)
        assert found.rank.tolist() == [rank] * 5
        assert found.condition_number.isinf().all()
        assert found.singular_values.dtype == torch.promote_types(dtype, torch.float32)


def test_the_tolerance_is_a_share_of_the_largest():
    matrix = torch.diag(torch.tensor([1000.0, 100.0, 10.0])).double()
    ranks = [spectrum(matrix, rtol=rtol).rank.item() for rtol in (0.0, 0.009, 0.011, 0.09, 0.11)]
    assert ranks == [3, 3, 2, 2, 1]
    assert spectrum(matrix, rtol=0.05).condition_number == math.inf
    close(spectrum(matrix).condition_number, 100.0)


def test_a_matrix_of_zeros_has_rank_0():
    found = spectrum(torch.zeros(D, E))
    assert found.rank == 0
    assert found.condition_number == math.inf


# Circuits


@pytest.mark.parametrize(
    ("d", "e", "f"), [(4, 23, 23), (4, 23, 17), (11, 7, 13), (11, 13, 7), (1, 5, 5)]
)
def test_the_core_has_the_singular_values_of_the_product(d, e, f):
    left, right = normal(H, d, e), normal(H, d, f)
    core = circuit_core(left, right)
    assert core.shape == (H, min(d, e), min(d, f))
    full = torch.linalg.svdvals(left.mT @ right)  # (H, min(e, f))
    found = spectrum(core).singular_values
    close(found, full[..., : found.shape[-1]], atol=1e-11)
    assert (full[..., found.shape[-1] :] < 1e-11).all()
    close(found[..., 0], torch.linalg.matrix_norm(left.mT @ right, ord=2), atol=1e-11)


@every_layer
def test_both_circuits_of_every_layer(layer):
    heads = head_projections(LAYERS[layer]().double())
    for left, right in [(heads.query, heads.key), (heads.value, heads.output)]:
        full = torch.linalg.svdvals(left.mT @ right)
        found = spectrum(circuit_core(left, right))
        size = found.singular_values.shape[-1]
        close(found.singular_values, full[:, :size])
        assert found.rank.tolist() == torch.linalg.matrix_rank(left.mT @ right).tolist()


def test_a_circuit_of_lower_rank_than_its_factors():
    """The left matrix reads what the right one never writes, but for one direction."""
    axes = orthonormal(8)
    left, right = axes[:4], torch.zeros(4, E, dtype=torch.float64)
    right[0] = 7 * axes[5]
    found = spectrum(circuit_core(left, right))
    close(found.singular_values, [7.0, 0, 0, 0])
    assert found.rank == 1


def test_eigenvalues_are_those_of_the_product_without_its_zeros():
    value, output = normal(H, D, E), normal(H, D, E)
    found = circuit_eigenvalues(value, output)
    assert found.shape == (H, D)
    product = value.mT @ output
    full = torch.linalg.eigvals(product)  # (H, E)
    for some, every in zip(found, full, strict=True):
        far = torch.cdist(torch.view_as_real(some), torch.view_as_real(every)).amin(dim=1)
        assert (far < 1e-10).all()
    assert (full.abs().sort(dim=-1).values[:, : E - D] < 1e-10).all()
    trace = product.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    close(found.sum(dim=-1).real, trace, atol=1e-11)
    close(found.sum(dim=-1).imag, 0.0, atol=1e-11)
    close(found.prod(dim=-1).real, torch.linalg.det(output @ value.mT), atol=1e-9)


def test_a_basis_within_the_head_changes_no_circuit_and_no_subspace():
    heads = head_projections(LAYERS["ours"]().double())
    M, N = normal(2, H, D, D)  # invertible
    query, key = M @ heads.query, M.inverse().mT @ heads.key
    value, output = N @ heads.value, N.inverse().mT @ heads.output
    pairs = [(heads.query, heads.key, query, key), (heads.value, heads.output, value, output)]
    for left, right, new_left, new_right in pairs:
        assert (new_left - left).abs().max() > 0.1
        expected = spectrum(circuit_core(left, right)).singular_values
        close(spectrum(circuit_core(new_left, new_right)).singular_values, expected, atol=1e-10)
        for old, new in [(left, new_left), (right, new_right)]:
            close(principal_angles(old, new), 0.0, atol=1e-10)
            close(subspace_overlap(new, new), subspace_overlap(old, old), atol=1e-10)
            assert direct_sum(new)[:3] == direct_sum(old)[:3]
    old, new = (circuit_eigenvalues(*x).abs().sort().values for x in [pairs[1][:2], pairs[1][2:]])
    close(new, old, atol=1e-10)


def test_another_order_of_heads_is_another_order_of_results():
    heads = head_projections(LAYERS["ours"]().double())
    order = torch.tensor([2, 0, 1])
    shuffled = [x[order] for x in heads]
    core, new_core = circuit_core(*heads[:2]), circuit_core(*shuffled[:2])
    assert new_core.equal(core[order])
    overlap = subspace_overlap(heads.query, heads.query)
    close(subspace_overlap(shuffled[0], shuffled[0]), overlap[order][:, order])


# Angles and distances

PLANTED = {
    "equal": [0.0, 0.0, 0.0],
    "orthogonal": [math.pi / 2] * 3,
    "partly shared": [0.0, 0.0, math.pi / 2],
    "in between": [0.1, 0.7, 1.4],
    "nearly equal": [1e-9, 1e-7, 1e-5],
    "nearly orthogonal": [1.0, math.pi / 2 - 1e-5, math.pi / 2 - 1e-9],
}
every_planted = pytest.mark.parametrize("angles", PLANTED.values(), ids=PLANTED)


@every_planted
def test_planted_angles(angles):
    first, second = at_angles(angles)
    expected = torch.tensor(angles, dtype=torch.float64)
    close(principal_angles(first, second), expected, atol=1e-14, rtol=1e-6)
    close(principal_angles(second, first), expected, atol=1e-14, rtol=1e-6)
    close(grassmann_distance(first, second), expected.norm(), atol=1e-14, rtol=1e-6)
    close(chordal_distance(first, second), expected.sin().norm(), atol=1e-14, rtol=1e-6)
    overlap = subspace_overlap(first[None], second[None]).squeeze()
    close(overlap, expected.cos().square().mean())
    close(chordal_distance(first, second).square(), 3 * (1 - overlap))


@every_planted
def test_chordal_distance_is_that_of_the_projections(angles):
    first, second = at_angles(angles)
    projections = [torch.linalg.pinv(x) @ x for x in (first, second)]
    expected = torch.linalg.matrix_norm(projections[0] - projections[1]) / 2**0.5
    close(chordal_distance(first, second), expected)


def test_small_angles_in_float32_keep_their_digits():
    """An arc cosine could not tell these from 0 or from 3e-4."""
    first = torch.eye(2, 5)
    for angle in (1e-6, 1e-5, 1e-4):
        second = first.clone()
        second[1, 4] = math.tan(angle)
        close(principal_angles(first, second), [0, angle], atol=1e-10, rtol=1e-5)


def test_nested_subspaces_have_no_angle():
    large = normal(7, E)
    small = normal(3, 7) @ large
    for pair in [(small, large), (large, small)]:
        close(principal_angles(*pair), torch.zeros(3))
        close(subspace_overlap(pair[0][None], pair[1][None]), 1.0)


def test_subspaces_too_large_for_the_space_share_the_excess():
    angles = principal_angles(normal(15, E), normal(12, E))
    assert angles.shape == (12,)
    assert (angles[:4] < 1e-12).all()
    assert (angles[4:] > 0.01).all()


def test_lines_have_the_angle_of_their_vectors():
    first, second = normal(H, 1, E), normal(H, 1, E)
    cosine = nn.functional.cosine_similarity(first, second, dim=-1)
    close(principal_angles(first, second), cosine.abs().acos())


def test_grassmann_distance_is_the_length_of_the_path():
    """The way from one subspace to the other, in a thousand chords."""
    angles = torch.tensor([0.3, 0.9, 1.2]).double()
    first, second = at_angles(angles)
    steps = torch.linspace(0, 1, 1001, dtype=torch.float64)[:, None, None]
    start, end = (torch.linalg.qr(x.T).Q.T for x in (first, second))
    left, _, right = torch.linalg.svd(start @ end.T)
    start, end = left.T @ start, right @ end  # aligned: row i of both at angle i
    across = nn.functional.normalize(end - angles.cos()[:, None] * start, dim=-1)
    path = (steps * angles[:, None]).cos() * start + (steps * angles[:, None]).sin() * across
    chords = chordal_distance(path[:-1], path[1:])
    close(grassmann_distance(first, second), chords.sum(), rtol=1e-5)


# Overlap


def test_overlap_of_all_pairs_is_that_of_each_pair():
    first, second = normal(2, 5, D, E), normal(2, 7, D + 2, E)
    found = subspace_overlap(first, second)
    assert found.shape == (2, 5, 7)
    for b in range(2):
        for i in range(5):
            for j in range(7):
                cosines = principal_angles(first[b, i], second[b, j]).cos()
                close(found[b, i, j], cosines.square().mean())


def test_overlap_of_planted_subspaces():
    axes = orthonormal(8)
    planes = torch.stack([mixed(axes[i : i + 4]) for i in (0, 0, 1, 3, 4)])
    shared = torch.tensor([4, 4, 3, 1, 0])
    close(subspace_overlap(planes, planes)[0], shared / 4)


@pytest.mark.parametrize(
    ("d", "other"), [(1, 1), (1, 6), (6, 6), (6, 17), (17, 17), (22, 22), (5, 23)]
)
def test_random_overlap_is_what_chance_gives(d, other):
    """Mean and variance of 4000 pairs within 4 standard errors (of the mean, of the variance)."""
    pairs = 4000
    cosines = principal_angles(normal(pairs, d, E), normal(pairs, other, E)).cos()
    found = cosines.square().mean(dim=-1)
    mean, deviation = random_overlap(E, d, other)
    assert abs(found.mean() - mean) <= 4 * deviation / pairs**0.5 + 1e-12
    moved = (found - mean).square()
    assert abs(moved.mean() - deviation**2) <= 4 * moved.std() / pairs**0.5 + 1e-12
    assert random_overlap(E, other, d) == (mean, deviation)


@pytest.mark.parametrize("d", [1, 5, 22])
def test_random_overlap_of_a_line_is_a_beta_distribution(d):
    mean, deviation = random_overlap(E, 1, d)
    a, b = d / 2, (E - d) / 2
    assert mean == pytest.approx(a / (a + b), abs=1e-14)
    assert deviation**2 == pytest.approx(a * b / ((a + b) ** 2 * (a + b + 1)), abs=1e-14)


def test_untrained_heads_overlap_like_random_ones():
    """Xavier's uniform numbers are not normal; at this width one can't tell."""
    heads = head_projections(MultiHeadAttention(96, 12)).query  # D = 8
    overlap = subspace_overlap(heads, heads)
    pairs = overlap[*torch.triu_indices(12, 12, offset=1)]
    mean, deviation = random_overlap(96, 8, 8)
    assert abs(pairs.mean() - mean) < 4 * deviation / len(pairs) ** 0.5


# Direct sums


def test_three_lines_in_a_plane_meet_in_pairs_nowhere_and_are_no_direct_sum():
    plane = orthonormal(2)
    lines = [torch.tensor([[math.cos(a), math.sin(a)]]).double() @ plane for a in (0.0, 1.0, 2.0)]
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        assert principal_angles(lines[i], lines[j]) > 0.9
        assert direct_sum([lines[i], lines[j]]).is_direct
    assert direct_sum(lines) == (False, 2, 3, 0.0)


def test_direct_sums_of_all_sizes():
    axes = mixed(orthonormal(9))
    parts = axes.split([2, 4, 3])
    found = direct_sum(parts)
    assert found[:3] == (True, 9, 9)
    assert direct_sum([*parts, axes[1:3].sum(dim=0)[None]])[:3] == (False, 9, 10)
    assert direct_sum(orthonormal(9).split([2, 4, 3])).smallest == pytest.approx(1, abs=1e-12)


def test_dependent_rows_count_once_and_small_heads_as_much_as_large():
    axes = orthonormal(4)
    twice = torch.cat([axes[:2], axes[:2]])  # rank 2
    assert direct_sum([twice, 1e-20 * axes[2:]])[:3] == (True, 4, 4)
    assert direct_sum([twice, 1e-20 * axes[1:3]])[:3] == (False, 3, 4)
    zero = torch.zeros_like(axes)
    assert direct_sum([axes, zero])[:3] == (True, 4, 4)


def test_the_smallest_singular_value_is_that_of_the_closest_directions():
    """Two lines at an angle a: the values are sqrt(1 + cos a) and sqrt(1 - cos a)."""
    for angle in (1e-3, 0.5, 1.5):
        first, second = at_angles([angle])
        found = direct_sum([first, second])
        assert found.smallest == pytest.approx((1 - math.cos(angle)) ** 0.5, rel=1e-6)
        ratio = math.tan(angle / 2)  # of the two
        verdicts = [direct_sum([first, second], rtol=x * ratio).is_direct for x in (0.99, 1.01)]
        assert verdicts == [True, False]


def test_heads_that_fill_the_width():
    heads = head_projections(MultiHeadAttention(30, 5).double())
    for x in heads:
        assert direct_sum(x)[:3] == (True, 30, 30)
    shared = head_projections(MultiHeadAttention(30, 5, num_kv_heads=1).double())
    assert direct_sum(shared.key)[:3] == (False, 6, 30)


# Precision and speed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_float32(dtype):
    first, second = normal(H, D, E).to(dtype), normal(H, D, E).to(dtype)
    wide = first.float(), second.float()
    for function in (
        circuit_core,
        circuit_eigenvalues,
        principal_angles,
        grassmann_distance,
        chordal_distance,
        subspace_overlap,
    ):
        assert function(first, second).equal(function(*wide))
    assert spectrum(first).singular_values.equal(spectrum(wide[0]).singular_values)
    first[1, 3] = first[1, :3].sum(dim=0)  # exact only before rounding
    assert spectrum(first).rank.tolist() == [4, 3, 4]
    assert direct_sum(first)[1:3] == (11, 11)


def test_float32_is_close_to_float64():
    first, second = normal(H, 16, 64), normal(H, 16, 64)
    for function in (principal_angles, grassmann_distance, chordal_distance, subspace_overlap):
        found = function(first.float(), second.float())
        assert found.dtype == torch.float32
        close(found, function(first, second), atol=2e-5, rtol=0)
    values = spectrum(circuit_core(first.float(), second.float())).singular_values
    exact = spectrum(circuit_core(first, second)).singular_values
    close(values, exact, atol=1e-5 * exact.max().item(), rtol=0)


def test_no_large_product_is_formed():
    """At this width the product would have 10^10 numbers, 80 GB."""
    left, right = normal(2, 100_000), normal(2, 100_000)
    found = spectrum(circuit_core(left, right)).singular_values
    gram = torch.linalg.eigvals((left @ left.mT) @ (right @ right.mT)).real  # their squares
    close(found.square(), gram.sort(descending=True).values, rtol=1e-9)
    assert circuit_eigenvalues(left, right).shape == (2,)


# Bad input

X = torch.zeros(H, D, E).normal_()
FINITE = "must be finite, got nan"
BAD = X.clone()
BAD[1, 2, 3] = math.nan
DEPENDENT = X.clone()
DEPENDENT[2, 0] = DEPENDENT[2, 1]
PAIR = (circuit_core, circuit_eigenvalues)
SPACES = (principal_angles, grassmann_distance, chordal_distance, subspace_overlap)


def wrong_arguments():
    for function in PAIR:
        yield (
            function,
            (X, X[:, :2]),
            {},
            "left and right must have the same D, the last axis but one",
        )
        yield function, (X.int(), X), {}, "left must be a tensor of floats, got torch.int32"
        yield function, (X, [[1.0]]), {}, "right must be a tensor of floats, got list"
        yield function, (X[0, 0], X), {}, "left must have at least 2 axes, got shape (23,)"
        yield function, (X, X[:, :0]), {}, "right must not be empty, got shape (3, 0, 23)"
        yield function, (X, BAD), {}, f"right {FINITE}"
    yield (
        circuit_eigenvalues,
        (X, X[..., :5]),
        {},
        "left and right must have the same E, the last axis",
    )
    for function in SPACES:
        yield function, (X, X[..., :5]), {}, "first and second must have the same E, the last axis"
        yield function, (X.bool(), X), {}, "first must be a tensor of floats, got torch.bool"
        yield function, (BAD, X), {}, f"first {FINITE}"
        rule = "must have 4 linearly independent rows in each matrix, got rank 3"
        yield function, (DEPENDENT, X), {}, f"first {rule}"
        yield function, (X, DEPENDENT), {}, f"second {rule}"
        tall = torch.ones(H, 5, 3)
        yield function, (tall, tall), {}, "first must have 5 linearly independent rows"
    for function in (grassmann_distance, chordal_distance):
        yield (
            function,
            (X, X[:, :2]),
            {},
            "first and second must have the same D, the last axis but one",
        )
    yield subspace_overlap, (X[0], X), {}, "first must have at least 3 axes, got shape (4, 23)"
    yield spectrum, (X.long(),), {}, "matrices must be a tensor of floats, got torch.int64"
    yield spectrum, (X[0, 0],), {}, "matrices must have at least 2 axes, got shape (23,)"
    yield spectrum, (BAD,), {}, f"matrices {FINITE}"
    yield spectrum, (X[:0],), {}, "matrices must not be empty, got shape (0, 4, 23)"
    for rtol in (-0.1, 1.0, math.nan):
        yield spectrum, (X,), {"rtol": rtol}, f"rtol must be in [0, 1), got {rtol}"
        yield direct_sum, (X,), {"rtol": rtol}, f"rtol must be in [0, 1), got {rtol}"
    yield direct_sum, ([],), {}, "subspaces must have at least one, got none"
    yield (
        direct_sum,
        ([X[0], X[0].int()],),
        {},
        "subspaces[1] must be a tensor of floats, got torch.int32",
    )
    yield direct_sum, ([X[0], X],), {}, "subspaces[1] must have 2 axes, got shape (3, 4, 23)"
    yield direct_sum, ([X[0], X[0, :, :5]],), {}, "subspaces[1] must have E=23 last, got (4, 5)"
    yield direct_sum, (BAD,), {}, f"subspaces[1] {FINITE}"
    yield direct_sum, (torch.zeros(2, 3, 4),), {}, "subspaces must not all be zero, got only zeros"
    latent = LatentAttention(12, 3, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=2)
    rule = "module must be a MultiHeadAttention of mhattn or torch, got "
    yield head_projections, (latent,), {}, rule + "LatentAttention"
    yield head_projections, (X,), {}, rule + "Tensor"
    yield random_overlap, (8, 9, 1), {}, "first_dim must be at most embed_dim=8, got 9"
    yield random_overlap, (8, 1, 0), {}, "second_dim must be at least 1, got 0"
    yield random_overlap, (8.0, 1, 1), {}, "embed_dim must be an integer, got float"


@pytest.mark.parametrize(("function", "args", "options", "message"), list(wrong_arguments()))
def test_errors_name_argument_rule_and_value(function, args, options, message):
    kind = (
        TypeError
        if "tensor of" in message or "integer" in message or "module" in message
        else ValueError
    )
    with pytest.raises(kind) as caught:
        function(*args, **options)
    assert str(caught.value).startswith(message)
