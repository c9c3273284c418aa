"""What heads look at: statistics of attention weights, and roles that chance does not explain.

Weights are ``(..., L, S)``, their leading axes batch, layers, heads or none, and each function
returns one number for each map, ``(...)``. Query ``i`` stands at position ``i + (S - L)``. A mask,
True = may attend, says which keys a query could have chosen; without it, all of them.
`head_divergence` compares maps and returns a number for each pair.

A statistic is a mean over the queries that have a choice: a query that sees one key gives it
everything in any head, and says nothing about this one. Where no query has a choice, it is NaN.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from mhattn.core.masks import sink_mask, window_mask
from mhattn.inside import checks as check

__all__ = [
    "Role",
    "attention_distance",
    "attention_entropy",
    "attention_share",
    "find_roles",
    "find_token_roles",
    "head_divergence",
    "head_patterns",
    "largest_weight",
]

ROUNDINGS = 1e-5  # a share that is larger than another by less is as large


def attention_share(weights: Tensor, pattern: Tensor, mask: Tensor | None = None) -> Tensor:
    """How much of its attention a head gives to the keys of a pattern.

    A query counts if it sees a key of the pattern and another one besides.

    Args:
        weights: floats, ``(..., L, S)``; each row sums to one.
        pattern: booleans that broadcast to ``(..., L, S)``: the keys in question, as those of
            `head_patterns`.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend.

    Returns:
        ``(...)``, dtype of ``weights``; from 0, nothing, to 1, everything.

    Raises:
        TypeError: weights is not a tensor of floats, or pattern or mask not of booleans.
        ValueError: the shapes do not fit, or a row that sees a key does not sum to one.

    Examples:
        Half of what the second and third query have goes to the key before them. The first has
        none before it, so it does not count.

        >>> weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
        >>> attention_share(weights, head_patterns(3)["previous"])
        tensor(0.5000)
    """
    check.pattern("pattern", pattern, weights)
    wide, seen = wide_and_seen(weights, mask)
    share = (wide * pattern).sum(dim=-1)  # (..., L)
    return mean_of_rows(share, has_choice(pattern, seen)).to(weights.dtype)


def attention_distance(weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """How far from its own position a head looks on average.

    Args:
        weights: floats, ``(..., L, S)``; each row sums to one.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend.

    Returns:
        ``(...)``, dtype of ``weights``: the mean of ``|i + (S - L) - j|``, in positions, over
        the queries that see two keys or more.

    Raises:
        TypeError: weights is not a tensor of floats, or mask not of booleans.
        ValueError: the shapes do not fit, or a row that sees a key does not sum to one.

    Examples:
        >>> attention_distance(torch.full((3, 3), 1 / 3))  # 1, 2/3 and 1
        tensor(0.8889)
    """
    wide, seen = wide_and_seen(weights, mask)
    L, S = weights.shape[-2:]
    far = distance(L, S, weights.device).abs()  # (L, S)
    rows = (wide * far).sum(dim=-1)  # (..., L)
    return mean_of_rows(rows, seen.sum(dim=-1) > 1).to(weights.dtype)


def attention_entropy(
    weights: Tensor, mask: Tensor | None = None, *, relative: bool = False
) -> Tensor:
    """How evenly a head spreads its attention.

    Args:
        weights: floats, ``(..., L, S)``; each row sums to one.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend.
        relative: divide the entropy of each row by the largest that it could have, ``log n``
            for ``n`` visible keys.

    Returns:
        ``(...)``, dtype of ``weights``: the mean entropy, in nats, of the queries that see two
        keys or more; from 0, one key, to the mean of ``log n``, or to 1 if relative.

    Raises:
        TypeError: weights is not a tensor of floats, or mask not of booleans.
        ValueError: the shapes do not fit, or a row that sees a key does not sum to one.

    Examples:
        >>> weights = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
        >>> attention_entropy(weights)  # 0 and log 4
        tensor(0.6931)
        >>> attention_entropy(weights, relative=True)
        tensor(0.5000)
    """
    wide, seen = wide_and_seen(weights, mask)
    rows = entropy_of_rows(wide)  # (..., L)
    visible = seen.sum(dim=-1)  # (..., L)
    if relative:
        rows = rows / visible.clamp(min=2).to(rows.dtype).log()
    return mean_of_rows(rows, visible > 1).to(weights.dtype)


def largest_weight(weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """How much a head gives to the key that gets most.

    Args:
        weights: floats, ``(..., L, S)``; each row sums to one.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend.

    Returns:
        ``(...)``, dtype of ``weights``: the mean of each row's largest weight, over the queries
        that see two keys or more; at least the mean of ``1 / n``, at most 1.

    Raises:
        TypeError: weights is not a tensor of floats, or mask not of booleans.
        ValueError: the shapes do not fit, or a row that sees a key does not sum to one.

    Examples:
        >>> largest_weight(torch.tensor([[0.9, 0.1], [0.3, 0.7]]))
        tensor(0.8000)
    """
    wide, seen = wide_and_seen(weights, mask)
    return mean_of_rows(wide.amax(dim=-1), seen.sum(dim=-1) > 1).to(weights.dtype)


def head_divergence(weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """How differently the heads of a layer attend, pair by pair.

    The Jensen-Shannon divergence of two heads' rows is the entropy of their mean, less the mean of
    their entropies (Lin 1991, https://doi.org/10.1109/18.61115). It is divided by the largest
    that it can be, ``log 2``, and averaged over the queries that see two keys or more.

    Args:
        weights: floats, ``(..., H, L, S)``; each row sums to one.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend.

    Returns:
        ``(..., H, H)``, dtype of ``weights``, symmetric: 0 for two equal maps, 1 for two that
        give weight to no key in common.

    Raises:
        TypeError: weights is not a tensor of floats, or mask not of booleans.
        ValueError: the shapes do not fit, a row that sees a key does not sum to one, or weights has
            no axis of heads.

    Examples:
        Each query looks at itself, at the other, and at both.

        >>> own, both = torch.eye(2), torch.full((2, 2), 0.5)
        >>> head_divergence(torch.stack([own, own.flip(0), both]))
        tensor([[0.0000, 1.0000, 0.3113],
                [1.0000, 0.0000, 0.3113],
                [0.3113, 0.3113, 0.0000]])
    """
    check.floats("weights", weights)
    check.axes("weights", weights, 3)
    wide, seen = wide_and_seen(weights, mask)
    apart = entropy_of_rows(wide)  # (..., H, L)
    apart = (apart.unsqueeze(-2) + apart.unsqueeze(-3)) / 2  # (..., H, H, L)
    heads = wide.split(1, dim=-3)  # one after the other: no table of pairs and keys
    pairs = [entropy_of_rows((wide + head) / 2) for head in heads]  # (..., H, L) each
    together = torch.stack(pairs, dim=-3)  # (..., H, H, L)
    counts = (seen.sum(dim=-1) > 1).expand(weights.shape[:-1])  # (..., H, L)
    counts = counts.unsqueeze(-2) & counts.unsqueeze(-3)  # (..., H, H, L)
    return (mean_of_rows(together - apart, counts) / math.log(2)).to(weights.dtype)


def head_patterns(
    L: int,
    S: int | None = None,
    *,
    window: int = 3,
    tokens: Tensor | None = None,
    device: torch.device | str | None = None,
) -> dict[str, Tensor]:
    """Where a head of each role would look.

    Args:
        L: number of queries, the last ``L`` positions.
        S: number of keys. Default: ``L``.
        window: up to how far away a key is local.
        tokens: integers, ``(B, S)``, for ``"induction"``.
        device: where the patterns are made. Default: that of the tokens.

    Returns:
        Booleans, ``(L, S)``: ``"self"``, ``"previous"`` and ``"next"``, the own position and
        those beside it; ``"local"`` and ``"far"``, at most ``window`` away and farther;
        ``"backward"`` and ``"forward"``, all positions before and after; ``"first"``, the
        first key. With tokens also ``"induction"``, ``(B, 1, L, S)``: the keys that follow an
        earlier occurrence of the query's token (Olsson et al. 2022,
        https://arxiv.org/abs/2209.11895).

    Raises:
        TypeError: L, S or window is not an integer, or tokens not a tensor of integers.
        ValueError: one of the numbers is negative, or tokens is not ``(B, S)`` with ``S >= L``.

    Examples:
        The last token has occurred at position 0; so an induction head looks at position 1.

        >>> patterns = head_patterns(1, 3, tokens=torch.tensor([[7, 5, 7]]))
        >>> print(*patterns)
        self previous next local far backward forward first induction
        >>> patterns["previous"].tolist(), patterns["induction"].tolist()
        ([[False, True, False]], [[[[False, True, False]]]])
    """
    S = L if S is None else S
    check.lengths_of_table(L, S)
    check.at_least("window", window, 0)
    if tokens is not None:
        check.tokens_of_keys(tokens, L, S)
        device = tokens.device if device is None else device
    away = distance(L, S, device)  # (L, S)
    local = window_mask(L, S, window + 1, device=device)  # (L, S)
    patterns = {
        "self": away == 0,
        "previous": away == -1,
        "next": away == 1,
        "local": local,
        "far": ~local,
        "backward": away < 0,
        "forward": away > 0,
        "first": sink_mask(L, S, 1, device=device),
    }
    if tokens is not None:
        same = tokens[:, S - L :, None] == tokens[:, None, :-1]  # (B, L, S - 1)
        follows = torch.nn.functional.pad(same, (1, 0))  # one key further on: (B, L, S)
        patterns["induction"] = (follows.to(away.device) & (away <= 0))[:, None]
    return patterns


class Role(NamedTuple):
    """A head's attention to a pattern, beside what chance gives.

    Attributes:
        share: its `attention_share`, ``(...)``.
        chance: the mean share of random patterns, ``(...)``.
        threshold: the share that only few random patterns exceed, ``(...)``.
        found: whether the share is above the threshold, booleans, ``(...)``.
    """

    share: Tensor
    chance: Tensor
    threshold: Tensor
    found: Tensor


def find_roles(
    weights: Tensor,
    patterns: Mapping[str, Tensor],
    mask: Tensor | None = None,
    *,
    rate: float = 0.01,
    draws: int = 199,
    generator: torch.Generator | None = None,
) -> dict[str, Role]:
    """Which patterns get more of a head's attention than random ones.

    A random pattern has as many visible keys in each row as the true one, elsewhere. So the
    threshold depends on length, mask and pattern, and on how sharp the head is. If a head's
    weights stood in random order, each row for itself, it would be found with a probability of
    ``rate`` at most, for each pattern: the true pattern is then one of ``draws + 1`` equally
    good ones. Rows that depend on each other break that promise; compare with an untrained model,
    or, for patterns of tokens, with other texts: `find_token_roles`.

    Args:
        weights: floats, ``(..., L, S)``; each row sums to one.
        patterns: each pattern by its name, as from `head_patterns`.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend.
        rate: how often a head without a role may be found.
        draws: how many random patterns; all maps are compared with the same ones.
        generator: of the random patterns, on the device of ``weights``. Default: PyTorch's own.

    Returns:
        A `Role` for each name. Where no query has a choice, the numbers are NaN and nothing
        is found.

    Raises:
        TypeError: weights is not a tensor of floats, a pattern or mask not of booleans, or draws is
            not an integer.
        ValueError: the shapes do not fit, a row that sees a key does not sum to one, rate is not
            between 0 and 1, or draws is less than ``1 / rate - 1``.

    Examples:
        Two heads: one looks at the position before, one everywhere.

        >>> weights = torch.stack([torch.eye(16).roll(-1, 1), torch.full((16, 16), 1 / 16)])
        >>> draw = torch.Generator().manual_seed(0)
        >>> roles = find_roles(weights, head_patterns(16), generator=draw)
        >>> roles["previous"].found.tolist(), roles["next"].found.tolist()
        ([True, False], [False, False])
    """
    allowed = check.rate(rate, draws)  # random patterns that may reach the true one
    for name, pattern in patterns.items():
        check.pattern(f"patterns[{name!r}]", pattern, weights)
    wide, seen = wide_and_seen(weights, mask)
    pairs = {name: torch.broadcast_tensors(x, seen) for name, x in patterns.items()}
    random: dict[str, list[Tensor]] = {name: [] for name in patterns}
    for _ in range(draws):
        ranks: dict[torch.Size, Tensor] = {}  # of the visible keys of each row, in random order
        for name, (pattern, visible) in pairs.items():
            if visible.shape not in ranks:
                ranks[visible.shape] = random_ranks(visible, generator)
            size = (pattern & visible).sum(dim=-1, keepdim=True)  # (..., L, 1)
            moved = ranks[visible.shape] < size  # as many keys, elsewhere: (..., L, S)
            share = (wide * moved).sum(dim=-1)  # (..., L)
            random[name].append(mean_of_rows(share, has_choice(pattern, visible)))
    roles = {}
    for name, pattern in patterns.items():
        share = attention_share(wide, pattern, mask)
        roles[name] = role_of(share, random[name], allowed, weights.dtype)
    return roles


def find_token_roles(
    weights: Tensor,
    patterns: Mapping[str, Tensor],
    mask: Tensor | None = None,
    *,
    rate: float = 0.01,
    draws: int = 199,
    generator: torch.Generator | None = None,
) -> dict[str, Role]:
    """Which patterns of tokens get more of a head's attention than those of other texts.

    For patterns that differ from text to text, as ``"induction"``. A random pattern is the true one
    of another text: all texts keep their maps and exchange their patterns. So a preference for
    positions, which every text shares, gives the random patterns as much as the true ones, and
    rows may depend on each other. If a head's maps had nothing to do with the patterns of their
    own texts, it would be found with a probability of ``rate`` at most, for each pattern.

    Args:
        weights: floats, ``(B, ..., L, S)``, of ``B`` texts; each row sums to one.
        patterns: each pattern by its name, booleans that broadcast to ``(B, ..., L, S)`` and have
            the axis of texts.
        mask: booleans that broadcast to ``(B, ..., L, S)``, the same for all texts. True: may
            attend.
        rate: how often a head without a role may be found.
        draws: how many random orders of the texts; all maps are compared with the same ones.
        generator: of the random orders, on the device of ``weights``. Default: PyTorch's own.

    Returns:
        A `Role` for each name, its numbers ``(...)``: over the queries of all texts. Where no query
        has a choice, they are NaN and nothing is found.

    Raises:
        TypeError: weights is not a tensor of floats, a pattern or mask not of booleans, or draws is
            not an integer.
        ValueError: the shapes do not fit, a pattern or the mask has the wrong axis of texts, a row
            that sees a key does not sum to one, rate is not between 0 and 1, or draws is less than
            ``1 / rate - 1``.

    Examples:
        Eight texts that repeat after 3 to 6 tokens. One head looks behind the earlier occurrences
        of its token, the other four positions back in every text.

        >>> tokens = torch.arange(16) % torch.tensor([3, 4, 5, 6] * 2)[:, None]
        >>> pattern = head_patterns(16, tokens=tokens)["induction"]  # (8, 1, 16, 16)
        >>> looks = (4.0 * pattern).softmax(dim=-1)
        >>> back = torch.eye(16).roll(-4, 1).expand_as(looks)
        >>> draw = torch.Generator().manual_seed(0)
        >>> both = torch.cat([looks, back], dim=1)  # (8, 2, 16, 16)
        >>> find_token_roles(both, {"induction": pattern}, generator=draw)["induction"].found
        tensor([ True, False])
    """
    allowed = check.rate(rate, draws)
    check.axes("weights", weights, 3)
    for name, pattern in patterns.items():
        check.pattern(f"patterns[{name!r}]", pattern, weights)
        if pattern.ndim != weights.ndim or len(pattern) != len(weights):
            rule = f"must have the axis of texts, B={len(weights)}"
            raise ValueError(f"patterns[{name!r}] {rule}, got shape {tuple(pattern.shape)}")
    wide, seen = wide_and_seen(weights, mask)
    if mask is not None and mask.ndim == weights.ndim and len(mask) > 1:
        got = f"got shape {tuple(mask.shape)}"
        raise ValueError(f"mask must be the same for all texts, without their axis, {got}")
    device = weights.device
    orders = [torch.randperm(len(weights), generator=generator, device=device)
              for _ in range(draws)]  # fmt: skip
    roles = {}
    for name, pattern in patterns.items():
        share = share_of_texts(wide, pattern, seen)
        random = [share_of_texts(wide, pattern[order], seen) for order in orders]
        roles[name] = role_of(share, random, allowed, weights.dtype)
    return roles


def share_of_texts(wide: Tensor, pattern: Tensor, seen: Tensor) -> Tensor:
    """The share of a pattern over the queries of all texts: ``(B, ..., L, S)`` to ``(...)``."""
    rows = (wide * pattern).sum(dim=-1)  # (B, ..., L)
    counts = has_choice(pattern, seen).expand(rows.shape)
    together = (x.movedim(0, -2).flatten(-2) for x in (rows, counts))  # (..., B L) each
    return mean_of_rows(*together)


def role_of(share: Tensor, random: list[Tensor], allowed: int, dtype: torch.dtype) -> Role:
    """A share beside those of the random patterns, of which so many may reach the truth."""
    shares = torch.stack(random)  # (draws, ...)
    threshold = shares.sort(dim=0, descending=True).values[allowed - 1]
    found = share > threshold + ROUNDINGS
    return Role(share.to(dtype), shares.mean(dim=0).to(dtype), threshold.to(dtype), found)


def random_ranks(visible: Tensor, generator: torch.Generator | None) -> Tensor:
    """The place of each key of a row in a random order, visible keys first: ``(..., L, S)``."""
    noise = torch.rand(visible.shape, generator=generator, device=visible.device)
    return noise.masked_fill(~visible, 2.0).argsort(dim=-1).argsort(dim=-1)


def wide_and_seen(weights: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The weights in float32 at least; and which keys a query sees, ``(..., L, S)``."""
    check.weights(weights, mask)
    wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
    L, S = weights.shape[-2:]
    seen = torch.ones(L, S, dtype=torch.bool, device=weights.device) if mask is None else mask
    return wide, seen.expand(*seen.shape[:-2], L, S)  # its own leading axes, all rows


def entropy_of_rows(wide: Tensor) -> Tensor:
    """The entropy of each row in nats, ``(..., L)``; 0 log 0 is 0, and so is its gradient."""
    some = wide.masked_fill(wide == 0, 1.0)  # 1 log 1 = 0
    return -(some * some.log()).sum(dim=-1)


def has_choice(pattern: Tensor, seen: Tensor) -> Tensor:
    """Queries that see a key of the pattern and one that is not of it: ``(..., L)``."""
    return (pattern & seen).any(dim=-1) & (~pattern & seen).any(dim=-1)


def mean_of_rows(rows: Tensor, counts: Tensor) -> Tensor:
    """The mean over the queries that count, ``(..., L)`` to ``(...)``; NaN if none does."""
    return (rows * counts).sum(dim=-1) / counts.sum(dim=-1)


def distance(L: int, S: int, device: torch.device | str | None) -> Tensor:
    """How far key ``j`` is from query ``i``, negative before it: ``(L, S)``."""
    position = torch.arange(S - L, S, device=device)[:, None]
    return torch.arange(S, device=device) - position
