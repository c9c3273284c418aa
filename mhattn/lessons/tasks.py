"""Small tasks, and a model to learn them, for the experiments of the site.

Every random number comes from PyTorch's own generator: after `torch.manual_seed` the same data
and the same training come out.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from mhattn.core import checks as check
from mhattn.core.modules import MultiHeadAttention

__all__ = ["GatherModel", "LinkedTokens", "balanced", "linked_tokens", "train_models"]


class LinkedTokens(NamedTuple):
    """Tokens that need the contents of others: R relations, k numbers of content.

    Attributes:
        labels: who a token is and to whom it is linked, one-hot, ``(B, L, R * L)``.
        content: what a token carries, ``(B, L, k)``.
        target: what each token needs, its sources' contents side by side, ``(B, L, R * k)``.
        sources: the positions that these contents come from, ``(B, L, R)``.
    """

    labels: Tensor
    content: Tensor
    target: Tensor
    sources: Tensor


# --8<-- [start:linked_tokens]
def linked_tokens(
    batch: int, length: int, num_links: int = 1, *, content_dim: int = 1
) -> LinkedTokens:
    """Draw tokens that need the contents of the token before them and of those they link to.

    The tokens stand in a ring: the last one is before the first. Links are random; they lead
    neither to the token itself nor to the one before it, and no two lead to the same token.
    Contents are independent normal numbers, mean 0 and variance 1.

    Args:
        batch: number of sequences.
        length: tokens in each, at least ``num_links + 2``.
        num_links: links of each token. With the token before, ``R = num_links + 1`` relations.
        content_dim: ``k``, numbers that a token carries.

    Returns:
        The labels are the token's position and the positions of its links, one-hot.

    Raises:
        TypeError: an argument is not an integer.
        ValueError: one of them is too small.

    Examples:
        >>> tokens = linked_tokens(2, 7, num_links=3)
        >>> tokens.labels.shape, tokens.target.shape
        (torch.Size([2, 7, 28]), torch.Size([2, 7, 4]))
        >>> tokens.sources[0, :, 0].tolist()
        [6, 0, 1, 2, 3, 4, 5]
    """
    check.at_least("batch", batch, 1)
    check.at_least("num_links", num_links, 0)
    check.at_least("length", length, num_links + 2)
    check.at_least("content_dim", content_dim, 1)
    position = torch.arange(length)
    before = (position - 1) % length
    order = torch.rand(batch, length, length)
    order[:, position, position] = order[:, position, before] = 2.0  # these two come last
    links = order.argsort(dim=-1)[..., :num_links]  # (B, L, num_links)
    sources = torch.cat([before.expand(batch, -1)[..., None], links], dim=-1)  # (B, L, R)
    one_hot = torch.eye(length)
    labels = torch.cat([one_hot.expand(batch, -1, -1), one_hot[links].flatten(-2)], dim=-1)
    content = torch.randn(batch, length, content_dim)
    return LinkedTokens(labels, content, contents_at(content, sources), sources)
    # --8<-- [end:linked_tokens]


# --8<-- [start:balanced]
def balanced(tokens: LinkedTokens) -> LinkedTokens:
    """Test each set of links with contents whose mean is exactly 0 and covariance exactly 1.

    The N = L * k numbers of a sequence are replaced by 2N times N numbers: one of them is
    ``sqrt(N)`` or ``-sqrt(N)`` and the others are 0. A squared error that is quadratic in the
    contents then has the mean that it has over all contents, free of chance.

    Args:
        tokens: their links are kept, their contents are not.

    Returns:
        ``B * 2N`` sequences; those of one set of links follow each other.

    Examples:
        >>> balanced(linked_tokens(1, 2, num_links=0)).content.squeeze(-1)
        tensor([[ 1.4142,  0.0000],
                [ 0.0000,  1.4142],
                [-1.4142, -0.0000],
                [-0.0000, -1.4142]])
    """
    batch, length, content_dim = tokens.content.shape
    size = length * content_dim
    loud = math.sqrt(size) * torch.eye(size).to(tokens.content)  # (N, N)
    content = torch.cat([loud, -loud]).unflatten(-1, (length, content_dim))  # (2N, L, k)
    content = content.repeat(batch, 1, 1)  # (B * 2N, L, k)
    labels, sources = (x.repeat_interleave(2 * size, 0) for x in (tokens.labels, tokens.sources))
    return LinkedTokens(labels, content, contents_at(content, sources), sources)
    # --8<-- [end:balanced]


# --8<-- [start:GatherModel]
class GatherModel(nn.Module):
    """One attention layer and a linear read-out.

    Queries and keys come from the labels, values from the contents: labels steer, contents
    are handed over.

    Args:
        embed_dim: width of the labels.
        num_heads: heads of the attention.
        num_outputs: numbers that each token shall get.
        head_dim: width of a head. Default: ``embed_dim / num_heads``.
        content_dim: numbers that each token carries.

    Raises:
        TypeError: a size is not an integer.
        ValueError: the sizes do not fit; see `mhattn.MultiHeadAttention`.

    Examples:
        >>> tokens = linked_tokens(2, 7)
        >>> GatherModel(14, num_heads=2, num_outputs=2)(tokens.labels, tokens.content).shape
        torch.Size([2, 7, 2])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_outputs: int,
        *,
        head_dim: int | None = None,
        content_dim: int = 1,
    ) -> None:
        super().__init__()
        check.at_least("num_outputs", num_outputs, 1)
        self.attention = MultiHeadAttention(
            embed_dim, num_heads, head_dim=head_dim, vdim=content_dim
        )
        self.readout = nn.Linear(embed_dim, num_outputs)

    def forward(
        self, labels: Tensor, content: Tensor, *, return_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Give each token a mixture of contents.

        Args:
            labels: ``(B, L, embed_dim)``.
            content: ``(B, L, content_dim)``.
            return_weights: also return the weights of every head.

        Returns:
            ``(B, L, num_outputs)``, or that and the weights, ``(B, H, L, L)``.
        """
        mixed, weights = self.attention(labels, labels, content, return_weights=True)
        output = self.readout(mixed)  # (B, L, num_outputs)
        return (output, weights) if return_weights else output

    # --8<-- [end:GatherModel]


# --8<-- [start:train_models]
def train_models(
    models: Sequence[nn.Module],
    draw: Callable[[int], LinkedTokens],
    test: LinkedTokens,
    *,
    steps: int,
    lr: float,
    batch: int = 16,
    every: int = 10,
) -> Tensor:
    """Train models of one shape side by side, with Adam on the mean squared error.

    Their parameters are stacked along a new first axis. Adam treats every number by itself,
    so each model learns as if it were alone.

    Args:
        models: they are trained in place.
        draw: ``draw(n)`` makes n fresh sequences.
        test: what the error is measured on.
        steps: how often Adam steps.
        lr: the learning rate of Adam.
        batch: sequences that each model sees in a step.
        every: the error is measured before the first step and after every so many.

    Returns:
        The errors of N models, ``(1 + steps // every, N)``.

    Raises:
        TypeError: steps, batch or every is not an integer.
        ValueError: one of them is less than 1.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> models = [GatherModel(6, 1, 1) for _ in range(2)]
        >>> test = balanced(linked_tokens(1, 6, num_links=0))
        >>> draw = lambda n: linked_tokens(n, 6, num_links=0)
        >>> errors = train_models(models, draw, test, steps=200, lr=0.03, every=100)
        >>> errors.shape, (errors[-1] < 0.01).tolist()
        (torch.Size([3, 2]), [True, True])
    """
    for name, number in {"steps": steps, "batch": batch, "every": every}.items():
        check.at_least(name, number, 1)
    params, _ = stack_module_state(list(models))  # each (N, ...)
    optimizer = torch.optim.Adam(params.values(), lr=lr)

    def error(params: dict[str, Tensor], tokens: Sequence[Tensor]) -> Tensor:
        labels, content, target = tokens
        output: Tensor = functional_call(models[0], params, (labels, content))
        return (output - target).square().mean()

    measured = [vmap(error, in_dims=(0, None))(params, test[:3]).detach()]
    for step in range(1, steps + 1):
        fresh = [x.unflatten(0, (len(models), batch)) for x in draw(len(models) * batch)[:3]]
        optimizer.zero_grad()
        vmap(error)(params, fresh).sum().backward()
        optimizer.step()
        if step % every == 0:
            measured.append(vmap(error, in_dims=(0, None))(params, test[:3]).detach())
    for i, model in enumerate(models):
        model.load_state_dict({name: stacked[i] for name, stacked in params.items()})
    return torch.stack(measured)  # (1 + steps // every, N)
    # --8<-- [end:train_models]


def contents_at(content: Tensor, sources: Tensor) -> Tensor:
    """The contents at the sources, side by side: ``(B, L, R * k)``."""
    batch = torch.arange(len(content))[:, None, None]
    return content[batch, sources].flatten(-2)
