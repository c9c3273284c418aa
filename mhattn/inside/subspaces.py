"""The subspaces that heads read and write, and their two circuits.

All matrices hold their vectors in rows, as `torch.nn.Linear` does: ``(D, E)`` stands for the
subspace of E dimensions that its D rows span. What is below float32 is computed in float32.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mhattn.core.modules import MultiHeadAttention
from mhattn.inside import checks as check

__all__ = [
    "DirectSum",
    "HeadProjections",
    "RandomOverlap",
    "Spectrum",
    "chordal_distance",
    "circuit_core",
    "circuit_eigenvalues",
    "direct_sum",
    "grassmann_distance",
    "head_projections",
    "principal_angles",
    "random_overlap",
    "spectrum",
    "subspace_overlap",
]


class HeadProjections(NamedTuple):
    """The four matrices of every head of a layer, without biases.

    The QK circuit of head ``i`` is ``query[i].mT @ key[i]`` and its OV circuit
    ``value[i].mT @ output[i]``; see `circuit_core`.

    Attributes:
        query: ``(H, D, E)``: a token ``x``, ``(E,)``, has the query ``query[i] @ x`` in head i.
        key: ``(H, D, kdim)``.
        value: ``(H, D, vdim)``.
        output: ``(H, D, E)``: a head's result ``z``, ``(D,)``, adds ``z @ output[i]`` to the sum.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


# --8<-- [start:head_projections]
def head_projections(module: MultiHeadAttention | nn.MultiheadAttention) -> HeadProjections:
    """Cut the weights of a layer into those of its heads.

    A `torch.nn.Linear` stores (out, in): head i has the rows ``i * D`` to ``(i + 1) * D`` of the
    query's weight, and these columns of the output's. A key-value head stands once for every
    query head that uses it.

    Args:
        module: a layer of this package or of PyTorch.

    Returns:
        Tensors without gradients, on the device and with the dtype of the module.

    Raises:
        TypeError: module is neither.

    Examples:
        Six query heads, two key-value heads: heads 0, 1 and 2 share a key.

        >>> heads = head_projections(MultiHeadAttention(12, 6, num_kv_heads=2))
        >>> heads.key.shape, heads.output.shape
        (torch.Size([6, 2, 12]), torch.Size([6, 2, 12]))
        >>> heads.key[0].equal(heads.key[2]), heads.key[0].equal(heads.key[3])
        (True, False)
    """
    weights = *input_weights(module), module.out_proj.weight.mT  # (H * D or H_kv * D, ...)
    sizes = (-1, module.head_dim)
    heads = [weight.detach().unflatten(0, sizes) for weight in weights]  # (H or H_kv, D, ...)
    return HeadProjections(*(x.repeat_interleave(module.num_heads // len(x), 0) for x in heads))
    # --8<-- [end:head_projections]


def input_weights(module: MultiHeadAttention | nn.MultiheadAttention) -> tuple[Tensor, ...]:
    """Of query, key and value: ``(H * D or H_kv * D, ...)``."""
    if isinstance(module, MultiHeadAttention):
        return module.q_proj.weight, module.k_proj.weight, module.v_proj.weight
    if not isinstance(module, nn.MultiheadAttention):
        got = type(module).__name__
        raise TypeError(f"module must be a MultiHeadAttention of mhattn or torch, got {got}")
    if module.in_proj_weight is not None:  # kdim = vdim = embed_dim
        return module.in_proj_weight.chunk(3)
    return module.q_proj_weight, module.k_proj_weight, module.v_proj_weight


class Spectrum(NamedTuple):
    """How strongly a matrix passes on its directions.

    Attributes:
        singular_values: ``(..., min(D, E))``, the largest first.
        rank: ``(...)``, integers: how many of them exceed the tolerance times the largest.
        condition_number: ``(...)``: the largest over the smallest, infinite if the rank is less
            than min(D, E).
    """

    singular_values: Tensor
    rank: Tensor
    condition_number: Tensor


# --8<-- [start:spectrum]
def spectrum(matrices: Tensor, *, rtol: float | None = None) -> Spectrum:
    """Compute singular values, rank and condition number of each matrix.

    Args:
        matrices: floats, ``(..., D, E)``.
        rtol: singular values count as zero up to this share of the largest. Default: what
            rounding alone can produce, ``max(D, E)`` times the precision of the computation (as
            `torch.linalg.matrix_rank` has it) plus ``sqrt(min(D, E)) / 2`` times the precision
            that the numbers are stored in: rounding changes no entry by more than half of that,
            hence no singular value by more than this share.

    Returns:
        The singular values in float32 at least. A matrix of zeros has rank 0.

    Raises:
        TypeError: matrices is not a tensor of floats.
        ValueError: it has fewer than 2 axes or no entry, or rtol is not in [0, 1).

    Examples:
        >>> found = spectrum(torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]]))
        >>> found.singular_values.tolist(), found.rank.item()
        ([4.0, 3.0], 2)
        >>> print(f"{found.condition_number:.4f}")
        1.3333
    """
    check.matrices("matrices", matrices)
    rtol = rounding(matrices.shape, matrices.dtype) if rtol is None else rtol
    check.fraction("rtol", rtol)
    values = torch.linalg.svdvals(wide(matrices))
    rank = rank_of(values, rtol)
    ratio = values[..., 0] / values[..., -1]
    return Spectrum(values, rank, ratio.where(rank == values.shape[-1], math.inf))
    # --8<-- [end:spectrum]


# --8<-- [start:circuit_core]
def circuit_core(left: Tensor, right: Tensor) -> Tensor:
    """Find a small matrix with the singular values of the large product ``left.mT @ right``.

    The QK circuit of a head is ``query.mT @ key``, its OV circuit ``value.mT @ output``: E x E
    numbers, but rank D at most. With ``left.mT = Q_1 R_1`` and ``right.mT = Q_2 R_2`` the product
    is ``Q_1 (R_1 R_2^T) Q_2^T``, and multiplying by matrices with orthonormal columns changes no
    singular value. So those of ``R_1 R_2^T`` are all but the zeros: `spectrum` has them, the
    first is the spectral norm. Small ones have the error of rounding numbers as large as
    ``|left| |right|``. The circuits are those of Elhage et al. (2021),
    https://transformer-circuits.pub/2021/framework/index.html.

    Biases are left out. With rotary positions the product belongs to a query and a key at the
    same place; at a distance a rotation stands between them.

    Args:
        left: floats, ``(..., D, E)``.
        right: floats, ``(..., D, F)``.

    Returns:
        ``(..., min(D, E), min(D, F))``, in float32 at least.

    Raises:
        TypeError: left or right is not a tensor of floats.
        ValueError: they differ in ``D``, or one has fewer than 2 axes or no entry.

    Examples:
        Each key is three times as long in the first direction and twice in the second.

        >>> query = torch.eye(2, 64)
        >>> key = torch.tensor([[3.0], [2.0]]) * query
        >>> circuit_core(query, key).abs()
        tensor([[3., 0.],
                [0., 2.]])
    """
    check_factors(left, right)
    _, first = torch.linalg.qr(wide(left).mT, mode="r")  # (..., min(D, E), D)
    _, second = torch.linalg.qr(wide(right).mT, mode="r")  # (..., min(D, F), D)
    core: Tensor = first @ second.mT
    return core
    # --8<-- [end:circuit_core]


# --8<-- [start:circuit_eigenvalues]
def circuit_eigenvalues(left: Tensor, right: Tensor) -> Tensor:
    """Find the eigenvalues of the large product ``left.mT @ right``, all but its zeros.

    ``A B`` and ``B A`` have the same eigenvalues but for zeros, so those of ``right @ left.mT``,
    ``D x D``, are enough. Their sum is the trace of either. In the OV circuit a positive one
    belongs to a direction that the head adds to where it is attended from: it copies.

    Args:
        left: floats, ``(..., D, E)``.
        right: floats, ``(..., D, E)``.

    Returns:
        Complex numbers, ``(..., D)``, in no order, in single precision at least. If D exceeds E,
        some of them are further zeros.

    Raises:
        TypeError: left or right is not a tensor of floats.
        ValueError: they differ in ``D`` or ``E``, or one has fewer than 2 axes or no entry.

    Examples:
        >>> value = torch.eye(2, 64)
        >>> circuit_eigenvalues(value, 5 * value).tolist()
        [(5+0j), (5+0j)]
    """
    check_factors(left, right)
    check.same_size(-1, "E, the last axis", left=left, right=right)
    values: Tensor = torch.linalg.eigvals(wide(right) @ wide(left).mT)
    return values
    # --8<-- [end:circuit_eigenvalues]


# --8<-- [start:principal_angles]
def principal_angles(first: Tensor, second: Tensor) -> Tensor:
    """Measure the angles between the subspaces that two sets of rows span.

    The cosines are the singular values of the product of two orthonormal bases, the sines those
    of what the product leaves over (Björck and Golub 1973,
    https://doi.org/10.1090/S0025-5718-1973-0348991-3). An angle near 0 comes from its sine and
    one near a right angle from its cosine, so both are right to the last digits.

    Args:
        first: floats, ``(..., D_1, E)``, each with independent rows.
        second: floats, ``(..., D_2, E)``, each with independent rows.

    Returns:
        ``(..., min(D_1, D_2))`` in radians, from 0 to pi / 2, the smallest first.

    Raises:
        TypeError: first or second is not a tensor of floats.
        ValueError: they differ in ``E``, have fewer than 2 axes or no entry, or the rows of one
            are linearly dependent (by the tolerance of `spectrum`).

    Examples:
        Both contain the first axis; the other two directions are at 60 degrees.

        >>> first = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> second = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 3**0.5]])
        >>> principal_angles(first, second).rad2deg().round()
        tensor([ 0., 60.])
    """
    check_subspaces(first, second)
    small, large = row_spaces("first", first), row_spaces("second", second)
    if small.shape[-2] > large.shape[-2]:
        small, large = large, small
    product = small @ large.mT  # (..., D_1, D_2)
    cosines = torch.linalg.svdvals(product)  # from the smallest angle to the largest
    sines = torch.linalg.svdvals(small - product @ large).flip(-1)
    return torch.atan2(sines, cosines)
    # --8<-- [end:principal_angles]


# --8<-- [start:grassmann_distance]
def grassmann_distance(first: Tensor, second: Tensor) -> Tensor:
    """Measure how far one subspace must turn to become the other.

    It is the square root of the sum of the squared `principal_angles`: the length of the shortest
    path between them on the Grassmannian, from 0 to ``pi / 2 * sqrt(D)`` (Edelman, Arias and
    Smith 1998, section 4.3, https://doi.org/10.1137/S0895479895290954).

    Args:
        first: floats, ``(..., D, E)``, each with independent rows.
        second: floats, ``(..., D, E)``, each with independent rows.

    Returns:
        ``(...)``, in radians.

    Raises:
        TypeError: first or second is not a tensor of floats.
        ValueError: they differ in ``D``: a line in a plane would have distance 0 from it. Or
            `principal_angles` has a reason to raise.

    Examples:
        >>> first, second = torch.eye(4)[:2], torch.eye(4)[1:3]
        >>> print(f"{grassmann_distance(first, second):.4f}")
        1.5708
    """
    check_subspaces(first, second)
    check.same_size(-2, "D, the last axis but one", first=first, second=second)
    distance: Tensor = principal_angles(first, second).square().sum(dim=-1).sqrt()
    return distance
    # --8<-- [end:grassmann_distance]


# --8<-- [start:chordal_distance]
def chordal_distance(first: Tensor, second: Tensor) -> Tensor:
    """Measure how far the projections onto two subspaces differ.

    It is the square root of the sum of the squared sines of the `principal_angles`: the Frobenius
    norm of the difference of the two orthogonal projections over the square root of 2, from 0 to
    ``sqrt(D)``. Its square is D times what `subspace_overlap` leaves of 1.

    Args:
        first: floats, ``(..., D, E)``, each with independent rows.
        second: floats, ``(..., D, E)``, each with independent rows.

    Returns:
        ``(...)``.

    Raises:
        TypeError: first or second is not a tensor of floats.
        ValueError: they differ in ``D``, or `principal_angles` has a reason to raise.

    Examples:
        >>> first, second = torch.eye(4)[:2], torch.eye(4)[1:3]
        >>> print(f"{chordal_distance(first, second):.4f}")
        1.0000
    """
    check_subspaces(first, second)
    check.same_size(-2, "D, the last axis but one", first=first, second=second)
    distance: Tensor = principal_angles(first, second).sin().square().sum(dim=-1).sqrt()
    return distance
    # --8<-- [end:chordal_distance]


# --8<-- [start:subspace_overlap]
def subspace_overlap(first: Tensor, second: Tensor) -> Tensor:
    """Compare every subspace of one set with every subspace of another, in one product.

    The overlap of two subspaces is the mean squared cosine of their principal angles: 1 if one
    contains the other, 0 if they are at right angles. `random_overlap` is what chance gives.

    Args:
        first: floats, ``(..., N, D_1, E)``, N subspaces, each with independent rows.
        second: floats, ``(..., M, D_2, E)``, as first; the same tensor for all pairs of a set.

    Returns:
        ``(..., N, M)``, from 0 to 1.

    Raises:
        TypeError: first or second is not a tensor of floats.
        ValueError: they differ in ``E``, have fewer than 3 axes or no entry, or the rows of one
            are linearly dependent (by the tolerance of `spectrum`).

    Examples:
        Three planes in a space of four dimensions: equal, half shared, at right angles.

        >>> axes = torch.eye(4)
        >>> planes = torch.stack([axes[:2], axes[1:3], axes[2:]])
        >>> subspace_overlap(planes[:1], planes)
        tensor([[1.0000, 0.5000, 0.0000]])
    """
    check_subspaces(first, second, axes=3)
    first, second = row_spaces("first", first), row_spaces("second", second)
    product = first.flatten(-3, -2) @ second.flatten(-3, -2).mT  # (..., N * D_1, M * D_2)
    blocks = product.unflatten(-1, second.shape[-3:-1]).unflatten(-3, first.shape[-3:-1])
    squares: Tensor = blocks.square().sum(dim=(-3, -1))  # of (..., N, D_1, M, D_2)
    return squares / min(first.shape[-2], second.shape[-2])
    # --8<-- [end:subspace_overlap]


class RandomOverlap(NamedTuple):
    """The overlap of random subspaces.

    Attributes:
        mean: over all pairs of random subspaces.
        deviation: the standard deviation of one pair.
    """

    mean: float
    deviation: float


# --8<-- [start:random_overlap]
def random_overlap(embed_dim: int, first_dim: int, second_dim: int) -> RandomOverlap:
    """Tell what `subspace_overlap` gives for two random subspaces.

    Random: every direction is as likely as any other, as for the rows of a matrix of independent
    normal numbers. A vector then keeps, on average, ``second_dim / embed_dim`` of its squared
    norm. If one subspace is a line, the overlap has a Beta distribution with the parameters
    ``d / 2`` and ``(embed_dim - d) / 2``, where d is the dimension of the other.

    Args:
        embed_dim: dimensions of the space.
        first_dim: dimensions of one subspace.
        second_dim: dimensions of the other.

    Returns:
        Mean and standard deviation.

    Raises:
        TypeError: an argument is not an integer.
        ValueError: one is less than 1, or a subspace is larger than the space.

    Examples:
        >>> mean, deviation = random_overlap(64, 16, 16)
        >>> print(f"{mean:.3f} {deviation:.3f}")
        0.250 0.016
    """
    check.at_least("embed_dim", embed_dim, 1)
    for name, size in (("first_dim", first_dim), ("second_dim", second_dim)):
        check.at_least(name, size, 1)
        if size > embed_dim:
            raise ValueError(f"{name} must be at most embed_dim={embed_dim}, got {size}")
    if embed_dim == max(first_dim, second_dim):
        return RandomOverlap(1.0, 0.0)
    rest = (embed_dim - first_dim) * (embed_dim - second_dim)
    total = first_dim * second_dim / embed_dim  # mean of the sum of the squared cosines
    variance = 2 * total * rest / (embed_dim * (embed_dim - 1) * (embed_dim + 2))
    smaller = min(first_dim, second_dim)
    return RandomOverlap(total / smaller, math.sqrt(variance) / smaller)
    # --8<-- [end:random_overlap]


class DirectSum(NamedTuple):
    """Whether subspaces together span as many dimensions as they have one by one.

    Attributes:
        is_direct: whether they do: each vector of their sum is then a sum of one part from each
            in one way only.
        rank: dimensions of their sum.
        dimensions: the sum of their dimensions.
        smallest: how far they are from overlapping: the smallest singular value of all their
            orthonormal bases stacked, 1 if all are at right angles, 0 if the sum is not direct.
    """

    is_direct: bool
    rank: int
    dimensions: int
    smallest: float


# --8<-- [start:direct_sum]
def direct_sum(subspaces: Sequence[Tensor] | Tensor, *, rtol: float | None = None) -> DirectSum:
    """Test whether subspaces form a direct sum.

    The rank of all bases stacked is compared with the sum of the ranks. It is not enough that no
    two of the subspaces intersect: three lines in a plane don't. An orthonormal basis stands for
    each, so a small head counts as much as a large one.

    Args:
        subspaces: floats, each ``(D_i, E)``; their rows may be linearly dependent.
        rtol: singular values of each of them, and of the stack, count as zero up to this share of
            the largest. Default: what rounding alone can produce; `spectrum` says how much that is.

    Returns:
        The verdict, and the numbers that it rests on.

    Raises:
        TypeError: one of them is not a tensor of floats.
        ValueError: there is none, they differ in ``E``, one has other than 2 axes or no entry, or
            all are zero, or rtol is not in [0, 1).

    Examples:
        Three lines in a plane: any two form a direct sum, all three don't.

        >>> lines = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 1.0]]])
        >>> [direct_sum(lines[pair]).is_direct for pair in ([0, 1], [0, 2], [1, 2])]
        [True, True, True]
        >>> direct_sum(lines)[:3]
        (False, 2, 3)
    """
    if len(subspaces) == 0:
        raise ValueError("subspaces must have at least one, got none")
    if rtol is not None:
        check.fraction("rtol", rtol)
    for i, rows in enumerate(subspaces):
        check.matrices(f"subspaces[{i}]", rows, 2, exactly=True)
        check.last_axis(f"subspaces[{i}]", rows, "E", subspaces[0].shape[-1])
    parts = []
    for rows in subspaces:
        _, values, directions = torch.linalg.svd(wide(rows), full_matrices=False)
        share = rounding(rows.shape, rows.dtype) if rtol is None else rtol
        parts.append(directions[: rank_of(values, share)])  # (rank, E)
    stack = torch.cat(parts)  # (dimensions, E)
    if len(stack) == 0:
        raise ValueError("subspaces must not all be zero, got only zeros")
    share = max(rounding(stack.shape, rows.dtype) for rows in subspaces) if rtol is None else rtol
    values, rank, _ = spectrum(stack, rtol=share)
    is_direct = int(rank) == len(stack)
    smallest = float(values[-1]) if is_direct else 0.0
    return DirectSum(is_direct, int(rank), len(stack), smallest)
    # --8<-- [end:direct_sum]


def check_factors(left: Tensor, right: Tensor) -> None:
    check.matrices("left", left)
    check.matrices("right", right)
    check.same_size(-2, "D, the last axis but one", left=left, right=right)


def check_subspaces(first: Tensor, second: Tensor, axes: int = 2) -> None:
    check.matrices("first", first, axes)
    check.matrices("second", second, axes)
    check.same_size(-1, "E, the last axis", first=first, second=second)


def row_spaces(name: str, rows: Tensor) -> Tensor:
    """Orthonormal rows ``(..., D, E)`` that span what these do, which must be independent."""
    _, values, directions = torch.linalg.svd(wide(rows), full_matrices=False)
    rank = rank_of(values, rounding(rows.shape, rows.dtype))
    if (rank < rows.shape[-2]).any():
        rule = f"{rows.shape[-2]} linearly independent rows in each matrix"
        raise ValueError(f"{name} must have {rule}, got rank {int(rank.min())}")
    basis: Tensor = directions
    return basis


def rank_of(singular_values: Tensor, rtol: float) -> Tensor:
    rank: Tensor = (singular_values > rtol * singular_values[..., :1]).sum(dim=-1)
    return rank


def rounding(shape: Sequence[int], dtype: torch.dtype) -> float:
    """The share of the largest singular value that rounding alone can produce."""
    small, large = sorted(shape[-2:])
    computed, stored = torch.finfo(at_least_float32(dtype)).eps, torch.finfo(dtype).eps
    return large * computed + math.sqrt(small) * stored / 2


def wide(x: Tensor) -> Tensor:
    """There is no decomposition of floats smaller than float32."""
    return x.to(at_least_float32(x.dtype))


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
