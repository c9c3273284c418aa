"""Do the heads of a layer differ? Similarities of their maps and of their outputs, and collapse.

A similarity is a table, ``(..., H, H)``, with ones on its diagonal: of maps from `head_similarity`,
of outputs from `cka`. `effective_heads`, `head_uniqueness` and `head_groups` read such a table,
wherever it comes from. None of them means much without the same number of an untrained model.
"""

from typing import Literal

import torch
from torch import Tensor

from mhattn.inside import checks as check
from mhattn.inside.heads import head_divergence, mean_of_rows, wide_and_seen

__all__ = [
    "cka",
    "effective_heads",
    "head_groups",
    "head_similarity",
    "head_uniqueness",
    "rank_residual",
]

ROUNDINGS = 1e-3  # a similarity that leaves [0, 1] by less is a rounded one: bfloat16 has 1/128


# --8<-- [start:head_similarity]
def head_similarity(
    weights: Tensor,
    mask: Tensor | None = None,
    *,
    measure: Literal["divergence", "cosine"] = "divergence",
) -> Tensor:
    """How alike the heads of a layer attend, pair by pair.

    Both measures compare the rows of two heads for the same query, and average over the queries
    that see two keys or more.

    Args:
        weights: floats, ``(..., H, L, S)``; each row sums to one.
        mask: booleans that broadcast to ``(..., H, L, S)``. True: may attend.
        measure: ``"divergence"`` is 1 minus `head_divergence`, the Jensen-Shannon divergence over
            ``log 2``. ``"cosine"`` is the cosine of the angle between the rows.

    Returns:
        ``(..., H, H)``, dtype of ``weights``, symmetric: 1 for equal maps, 0 for two that give
        weight to no key in common. Where no query has a choice, it is NaN.

    Raises:
        TypeError: weights is not a tensor of floats, or mask not of booleans.
        ValueError: the shapes do not fit, a row that sees a key does not sum to one, or measure
            has another name.

    Examples:
        Each query looks at itself, at the other, and at both.

        >>> own, both = torch.eye(2), torch.full((2, 2), 0.5)
        >>> maps = torch.stack([own, own.flip(0), both])
        >>> head_similarity(maps)[2]
        tensor([0.6887, 0.6887, 1.0000])
        >>> head_similarity(maps, measure="cosine")[2]
        tensor([0.7071, 0.7071, 1.0000])
    """
    if measure == "divergence":
        return 1 - head_divergence(weights, mask)
    if measure != "cosine":
        raise ValueError(f"measure must be 'divergence' or 'cosine', got {measure!r}")
    check.floats("weights", weights)
    check.axes("weights", weights, 3)
    wide, seen = wide_and_seen(weights, mask)
    rows = wide / wide.norm(dim=-1, keepdim=True).clamp(min=1e-30)  # (..., H, L, S)
    rows = rows.transpose(-3, -2)  # (..., L, H, S)
    cosines = (rows @ rows.mT).movedim(-3, -1)  # (..., H, H, L): no table of pairs and keys
    counts = (seen.sum(dim=-1) > 1).expand(weights.shape[:-1])  # (..., H, L)
    counts = counts.unsqueeze(-2) & counts.unsqueeze(-3)  # (..., H, H, L)
    return mean_of_rows(cosines, counts).to(weights.dtype)
    # --8<-- [end:head_similarity]


# --8<-- [start:cka]
def cka(x: Tensor, y: Tensor, *, debiased: bool = True) -> Tensor:
    """How alike two representations of the same samples are: linear CKA.

    Centered kernel alignment asks whether the same samples are near each other in both. It does
    not change when either is shifted, rotated or scaled by a number, so two heads can be compared
    though neither's features have a meaning of their own (Kornblith et al. 2019,
    https://arxiv.org/abs/1905.00414).

    With few samples or many features, the plain number is far above 0 for independent ones too.
    The debiased one replaces each sum by an estimate that is right on average (Song et al. 2012,
    https://jmlr.org/papers/v13/song12a.html; used so by Nguyen et al. 2021,
    https://arxiv.org/abs/2010.15327): independent representations get 0 on average.

    Args:
        x: floats, ``(..., N, D_1)``: N samples with D_1 features each.
        y: floats, ``(..., N, D_2)``, of the same samples; its leading axes broadcast with x's.
        debiased: estimate without the bias of few samples.

    Returns:
        ``(...)``, of the wider dtype: from 0 to 1, or from -1 to 1 if debiased. NaN if all
        samples of x or y are equal.

    Raises:
        TypeError: x or y is not a tensor of floats, or not finite.
        ValueError: they differ in ``N``, or there are fewer than 4 samples (2 if not debiased).

    Examples:
        Every head of a layer with every other: `mhattn.inside.head_outputs` gives ``(B, L, H, D)``.

        >>> outputs = torch.randn(2, 50, 3, 4)
        >>> heads = outputs.flatten(0, 1).transpose(0, 1)  # (H, N, D)
        >>> cka(heads[:, None], heads).shape
        torch.Size([3, 3])

        A rotation, a scale and a shift.

        >>> turn, _ = torch.linalg.qr(torch.randn(4, 4))
        >>> print(f"{cka(heads[0], 3 * heads[0] @ turn + 1):.4f}")
        1.0000
    """
    for name, given in {"x": x, "y": y}.items():
        check_numbers(name, given)
    check.same_size(-2, "N, the last axis but one", x=x, y=y)
    check.at_least("N, the number of samples,", x.shape[-2], 4 if debiased else 2)
    dtype = torch.promote_types(x.dtype, y.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    x, y = centered(x.to(wide)), centered(y.to(wide))
    both = hsic(x, y, debiased) / (hsic(x, x, debiased) * hsic(y, y, debiased)).sqrt()
    return both.to(dtype)


def centered(x: Tensor) -> Tensor:
    """Without the mean, and so large that squares of squares stay in range; 0 / 0 if constant."""
    largest = x.abs().amax(dim=(-2, -1), keepdim=True)
    x = x - x.mean(dim=-2, keepdim=True)  # (..., N, D)
    size = x.abs().amax(dim=(-2, -1), keepdim=True)
    rounding = 8 * torch.finfo(x.dtype).eps * largest
    return x / size.where(size > rounding, 0.0)


def hsic(x: Tensor, y: Tensor, debiased: bool) -> Tensor:
    """How much two tables of dot products agree, both centered: ``(...)``."""
    total = (x.mT @ y).square().sum(dim=(-2, -1))  # all entries of X X^T times those of Y Y^T
    if not debiased:
        return total
    n = x.shape[-2]
    own, other = x.square().sum(dim=-1), y.square().sum(dim=-1)  # the diagonals: (..., N)
    same = (own * other).sum(dim=-1)
    apart = own.sum(dim=-1) * other.sum(dim=-1)
    return total - n / (n - 2) * same + apart / ((n - 1) * (n - 2))
    # --8<-- [end:cka]


# --8<-- [start:effective_heads]
def effective_heads(similarity: Tensor) -> Tensor:
    """How many different heads a layer's heads are worth.

    It is ``H**2`` over the sum of all similarities, the diversity of order 2 of Leinster and
    Cobbold (2012, https://doi.org/10.1890/10-2402.1) for heads of equal share: k groups of equal
    size, alike inside and unlike otherwise, are worth k.

    Args:
        similarity: floats in [0, 1], ``(..., H, H)``, 1 on the diagonal.

    Returns:
        ``(...)``, from 1, all heads alike, to H, none like another.

    Raises:
        TypeError: similarity is not a tensor of floats.
        ValueError: it is not square, has no head, a number outside of [0, 1], or another diagonal
            than ones.

    Examples:
        Two equal heads and a third: more than two, less than three.

        >>> alike = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> effective_heads(alike), effective_heads(torch.eye(3))
        (tensor(1.8000), tensor(3.))
    """
    check_similarity(similarity)
    H = similarity.shape[-1]
    return H * H / similarity.clamp(0, 1).sum(dim=(-2, -1))
    # --8<-- [end:effective_heads]


def head_uniqueness(similarity: Tensor) -> Tensor:
    """How far each head is from the one that is most like it.

    Args:
        similarity: floats in [0, 1], ``(..., H, H)``, 1 on the diagonal, of two heads or more.

    Returns:
        ``(..., H)``: 1 minus the largest similarity to another head; 0 if there is an equal one.

    Raises:
        TypeError: similarity is not a tensor of floats.
        ValueError: it is not square, has a number outside of [0, 1] or another diagonal than ones,
            or there are fewer than two heads.

    Examples:
        >>> similarity = torch.tensor([[1.0, 0.9, 0.2], [0.9, 1.0, 0.4], [0.2, 0.4, 1.0]])
        >>> head_uniqueness(similarity)
        tensor([0.1000, 0.1000, 0.6000])
    """
    check_similarity(similarity)
    H = similarity.shape[-1]
    check.at_least("the number of heads", H, 2)
    own = torch.eye(H, dtype=torch.bool, device=similarity.device)
    return 1 - similarity.masked_fill(own, 0.0).amax(dim=-1).clamp(0, 1)


def head_groups(similarity: Tensor, threshold: float) -> list[list[int]]:
    """Gather heads that are alike: average linkage.

    Groups begin with one head each. The two whose heads are most alike on average are merged,
    again and again, until no two reach the threshold.

    Args:
        similarity: floats in [0, 1], ``(H, H)``, symmetric, 1 on the diagonal.
        threshold: how alike two groups must be on average to be merged, from 0 to 1.

    Returns:
        The groups, the largest first; heads from 0, in order. All of them together are an order
        for a picture of the table.

    Raises:
        TypeError: similarity is not a tensor of floats.
        ValueError: it is not square and symmetric, has no head, a number outside of [0, 1] or
            another diagonal than ones, or the threshold is outside of [0, 1].

    Examples:
        >>> similarity = torch.tensor([[1.0, 0.2, 0.9], [0.2, 1.0, 0.4], [0.9, 0.4, 1.0]])
        >>> head_groups(similarity, 0.5)
        [[0, 2], [1]]
    """
    check_similarity(similarity)
    check.axes("similarity", similarity, 2, exactly=True)
    table = similarity.detach().to("cpu", torch.float64)
    if not torch.allclose(table, table.T, rtol=0.0, atol=ROUNDINGS):
        raise ValueError("similarity must be symmetric, got another number in one of its halves")
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold must be in [0, 1], got {threshold}")
    groups = [[head] for head in range(len(table))]
    table = (table + table.T) / 2  # between groups from here on: (groups, groups)
    while len(groups) > 1:
        pairs = table.tril(-1) - torch.ones_like(table).triu()  # all others below zero
        best = int(pairs.argmax())
        one, other = best % len(groups), best // len(groups)  # one < other
        if table[one, other] < threshold:
            break
        a, b = len(groups[one]), len(groups[other])
        merged = (a * table[one] + b * table[other]) / (a + b)
        table[one], table[:, one] = merged, merged
        left = [place for place in range(len(groups)) if place != other]
        table = table[left][:, left]
        groups[one] = sorted(groups[one] + groups.pop(other))
    return sorted(groups, key=lambda group: (-len(group), group))


# --8<-- [start:rank_residual]
def rank_residual(x: Tensor) -> Tensor:
    """How much of a sequence's vectors is not the same for all positions.

    The nearest matrix with equal rows, ``1 m^T``, has the mean ``m`` of the rows. What it leaves
    over, relative to the whole, is ``|x - 1 m^T| / |x|`` in the Frobenius norm. Attention alone
    drives it to zero with depth (Dong et al. 2021, https://arxiv.org/abs/2103.03404, in another
    norm): all positions end up with one vector, a matrix of rank one.

    Args:
        x: floats, ``(..., L, E)``.

    Returns:
        ``(...)``, dtype of ``x``: from 0, all positions alike, to 1, a mean of zero; NaN if x is
        zero everywhere.

    Raises:
        TypeError: x is not a tensor of floats.
        ValueError: x is empty or not finite.

    Examples:
        Two positions share 3, and differ by 4 from it, up and down.

        >>> rank_residual(torch.tensor([[3.0, 4.0], [3.0, -4.0]]))
        tensor(0.8000)
    """
    check_numbers("x", x)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    wide = wide / wide.abs().amax(dim=(-2, -1), keepdim=True)  # no square overflows
    rest = wide - wide.mean(dim=-2, keepdim=True)
    residual: Tensor = rest.norm(dim=(-2, -1)) / wide.norm(dim=(-2, -1))
    return residual.to(x.dtype)
    # --8<-- [end:rank_residual]


def check_numbers(name: str, x: Tensor) -> None:
    """That it is a table of finite floats; `checks.matrices` would warn of one with gradients."""
    check.floats(name, x)
    check.matrices(name, x.detach())


def check_similarity(similarity: Tensor) -> None:
    """That it is a table of similarities: in [0, 1], and 1 of each head with itself."""
    check_numbers("similarity", similarity)
    if similarity.shape[-1] != similarity.shape[-2]:
        raise ValueError(f"similarity must be (..., H, H), got {tuple(similarity.shape)}")
    slack = max(ROUNDINGS, 2 * torch.finfo(similarity.dtype).eps)
    similarity = similarity.detach()
    low, high = similarity.aminmax()
    if low < -slack or high > 1 + slack:
        hint = "debiased CKA below zero is chance: clamp it"
        got = low if low < -slack else high
        raise ValueError(f"similarity must be in [0, 1], got {got.item():.4g}; {hint}")
    own = similarity.diagonal(dim1=-2, dim2=-1)
    wrong = own[(own - 1).abs() > slack]
    if len(wrong):
        rule = "similarity must be 1 of each head with itself"
        raise ValueError(f"{rule}, got {wrong[0].item():.4g}")
