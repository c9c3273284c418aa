"""Several tokens in one step of a language model: drafts, their check, and a mask for trees."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from mhattn.core.cache import KVCache
from mhattn.models import checks as check
from mhattn.models.language_model import LanguageModel

__all__ = ["accept_drafts", "tree_depths", "tree_mask", "write_with_drafts"]


# --8<-- [start:write_with_drafts]
@torch.no_grad()
def write_with_drafts(
    model: LanguageModel,
    tokens: Tensor,
    count: int,
    propose: Callable[[Tensor], Tensor],
) -> tuple[Tensor, int]:
    """Append the token with the highest score, again and again, several in one pass.

    Drafts that the model agrees with stay; behind them comes its own next token. The rows of the
    others are taken out of the cache. The text is that of `write`, whatever the drafts are, but
    for tokens whose scores differ by less than rounding. Leviathan et al. (2023),
    https://arxiv.org/abs/2211.17192.

    Args:
        model: it is called with all tokens that its cache does not hold, and the drafts.
        tokens: integers ``(1, L)``.
        count: how many tokens are appended.
        propose: from all tokens so far, ``(1, L + n)``, to drafts of the next ones, integers
            ``(k,)``; none, too, are allowed.

    Returns:
        ``(1, L + count)``, and how many times the model was called.

    Raises:
        TypeError: tokens is not a tensor of integers, or count not an integer.
        ValueError: tokens is not one sequence, count is less than 1, or drafts have not one axis.

    Examples:
        >>> from mhattn.models import write
        >>> sizes = {"num_heads": 2, "num_kv_heads": 1, "mlp_dim": 9}
        >>> model = LanguageModel(5, 1, embed_dim=4, **sizes, base=100.0, eps=1e-5)
        >>> tokens = torch.tensor([[0, 1, 2]])
        >>> text, passes = write_with_drafts(model, tokens, 7, lambda tokens: tokens[0, -2:])
        >>> text.equal(write(model, tokens, 7))
        True
    """
    check.tokens(tokens)
    check.at_least("count", count, 1)
    if tokens.shape[0] != 1:
        raise ValueError(f"tokens must be one sequence, (1, L), got {tuple(tokens.shape)}")
    end, passes = tokens.shape[1] + count, 0
    caches = [KVCache(max_len=end) for _ in model.blocks]
    while (length := tokens.shape[1]) < end:
        drafts = propose(tokens)[: end - length - 1].to(tokens)  # (k,)
        check.axes("drafts", drafts, 1, exactly=True)
        new = torch.cat([tokens[0, caches[0].seen :], drafts])
        logits = model(new[None], caches=caches)  # (1, n + k, V)
        passes += 1
        best = logits[0, len(new) - len(drafts) - 1 :].argmax(dim=-1)  # (k + 1,)
        agreed = int((best[:-1] == drafts).long().cumprod(dim=0).sum())
        kept = torch.cat([drafts[:agreed], best[agreed : agreed + 1]])
        tokens = torch.cat([tokens, kept[None]], dim=1)
        for cache in caches:
            cache.crop(tokens.shape[1] - 1)  # the last token has not been in the model
    return tokens, passes
    # --8<-- [end:write_with_drafts]


# --8<-- [start:accept_drafts]
def accept_drafts(
    target: Tensor,
    draft: Tensor,
    tokens: Tensor,
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Keep sampled drafts so that the text is distributed as if the target had written it.

    Each draft ``x`` is accepted with probability ``min(1, p(x) / q(x))``, up to the first that is
    not. In its place comes a token from what the drafts give too rarely, ``max(p - q, 0)``; behind
    the last draft, one from ``p``. Leviathan et al. (2023), https://arxiv.org/abs/2211.17192, and
    Chen et al. (2023), https://arxiv.org/abs/2302.01318.

    Args:
        target: the model's probabilities p, ``(..., k + 1, V)``: for each draft and the next token.
        draft: probabilities q that the drafts were drawn with, ``(..., k, V)``.
        tokens: the drafts, integers ``(..., k)``.
        generator: of random numbers. Default: torch's own.

    Returns:
        How many drafts stay, integers ``(...)`` from 0 to k, and the token behind them, ``(...)``.

    Raises:
        TypeError: target or draft is not a tensor of floats, or tokens not one of integers.
        ValueError: the shapes do not fit, target or draft are no probabilities, such as logits
            before a softmax, or a draft is not from 0 to ``V - 1``.

    Examples:
        Probabilities of 0 and 1: the text of the highest score, token by token.

        >>> target, draft = torch.eye(3)[[2, 0, 1]], torch.eye(3)[[2, 1]]
        >>> number, token = accept_drafts(target, draft, torch.tensor([2, 1]))
        >>> number.item(), token.item()
        (1, 0)
    """
    check_drafts(target, draft, tokens)
    chosen = tokens[..., None].long()
    p = target[..., :-1, :].gather(-1, chosen).squeeze(-1)  # (..., k)
    q = draft.gather(-1, chosen).squeeze(-1)  # (..., k)
    chance = torch.rand(q.shape, generator=generator, device=q.device)
    number = (chance * q < p).long().cumprod(dim=-1).sum(dim=-1)  # (...)
    none = F.pad(draft, (0, 0, 0, 1))  # behind the last draft, nothing is to be made up for
    rest = (target - none).clamp(min=0)  # (..., k + 1, V)
    rest = torch.where(rest.sum(dim=-1, keepdim=True) > 0, rest, target)  # p = q
    at = number[..., None, None].expand(*number.shape, 1, rest.shape[-1])
    missing = rest.gather(-2, at).squeeze(-2)  # (..., V)
    rows = missing.float().reshape(-1, missing.shape[-1])
    token = torch.multinomial(rows, 1, generator=generator)
    return number, token.reshape(number.shape)
    # --8<-- [end:accept_drafts]


# --8<-- [start:tree_mask]
def tree_mask(parents: Tensor, past: int = 0) -> Tensor:
    """Let each node of a tree of drafts see the text so far, its ancestors and itself.

    With it, several drafts are checked in one pass: Miao et al. (2024),
    https://arxiv.org/abs/2305.09781.

    Args:
        parents: integers ``(n,)``: the node before each one, which stands before it in the list;
            -1 for the first tokens of drafts.
        past: how many tokens stand before the tree.

    Returns:
        Booleans ``(n, past + n)``. True: may attend.

    Raises:
        TypeError: parents is not a tensor of integers, or past not an integer.
        ValueError: parents does not have one axis, past is negative, or a parent does not stand
            before its node.

    Examples:
        Two drafts with the same first token.

        >>> tree_mask(torch.tensor([-1, 0, 0])).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 0, 1]], dtype=torch.int32)
    """
    check_parents(parents)
    check.at_least("past", past, 0)
    lines = torch.eye(len(parents), dtype=torch.bool, device=parents.device)
    for node, parent in enumerate(parents.tolist()):
        if parent >= 0:
            lines[node] |= lines[parent]
    return F.pad(lines, (past, 0), value=True)
    # --8<-- [end:tree_mask]


# --8<-- [start:tree_depths]
def tree_depths(parents: Tensor) -> Tensor:
    """How many nodes stand before each one on its own path: positions, counted from the tree.

    Args:
        parents: integers ``(n,)``, as for `tree_mask`.

    Returns:
        Integers ``(n,)``.

    Raises:
        TypeError: parents is not a tensor of integers.
        ValueError: parents does not have one axis, or a parent does not stand before its node.

    Examples:
        >>> tree_depths(torch.tensor([-1, 0, 0, 2]))
        tensor([0, 1, 1, 2])
    """
    return tree_mask(parents).sum(dim=-1) - 1
    # --8<-- [end:tree_depths]


def check_drafts(target: Tensor, draft: Tensor, tokens: Tensor) -> None:
    for name, given in {"target": target, "draft": draft}.items():
        check.floats(name, given)
        check_probabilities(name, given)
    check.axes("draft", draft, 2)
    *batch, number, words = draft.shape
    if tuple(target.shape) != (*batch, number + 1, words):
        rule = f"(..., k + 1, V) = {(*batch, number + 1, words)}"
        raise ValueError(f"target must be {rule}, got {tuple(target.shape)}")
    if not isinstance(tokens, Tensor) or tokens.dtype not in check.INTEGERS:
        got = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"tokens must be a tensor of integers, got {got}")
    if tuple(tokens.shape) != (*batch, number):
        rule = f"(..., k) = {(*batch, number)}"
        raise ValueError(f"tokens must be {rule}, got {tuple(tokens.shape)}")
    numbers = tokens.long()  # a byte has no 300 to compare with
    wrong = numbers[(numbers < 0) | (numbers >= words)]
    if len(wrong):
        raise ValueError(f"tokens must be from 0 to V - 1 = {words - 1}, got {wrong[0].item()}")


def check_probabilities(name: str, given: Tensor) -> None:
    """That rows are of at least 0 and sum to 1, as a softmax makes them in any precision."""
    given = given.detach().to(torch.promote_types(given.dtype, torch.float32))
    if (given < 0).any():
        got = f"{given.min().item():.4g}; take the softmax of logits"
        raise ValueError(f"{name} must be probabilities, at least 0, got {got}")
    sums = given.sum(dim=-1)
    wrong = sums[~((sums - 1).abs() < 0.01)]  # NaN is wrong, too
    if len(wrong):
        raise ValueError(f"{name} must be probabilities that sum to 1, got {wrong[0].item():.4g}")


def check_parents(parents: Tensor) -> None:
    if not isinstance(parents, Tensor) or parents.dtype not in check.INTEGERS:
        got = parents.dtype if isinstance(parents, Tensor) else type(parents).__name__
        raise TypeError(f"parents must be a tensor of integers, got {got}")
    check.axes("parents", parents, 1, exactly=True)
    for node, parent in enumerate(parents.tolist()):
        if not -1 <= parent < node:
            rule = f"parents must be from -1 to {node - 1} at node {node}"
            raise ValueError(f"{rule}, got {parent}")
