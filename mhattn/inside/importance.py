"""Which heads matter: what each adds to the output, and what is lost without it.

Heads are changed where they still lie side by side, at the input of the output projection: behind
it their sum is all that is left. So every function is given that projection, a module that is
called with ``(B, L, H * D)``: ``out_proj`` of `mhattn.MultiHeadAttention`, ``o_proj`` or ``c_proj``
of many layers in transformers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from mhattn.core import checks as check

__all__ = [
    "ablation_effects",
    "edit_heads",
    "gradient_scores",
    "head_shares",
    "head_terms",
    "pruning_curve",
    "replace_heads",
]

Edit = Callable[[Tensor], Tensor]
Head = tuple[int, int]


# --8<-- [start:edit_heads]
@contextmanager
def edit_heads(projection: nn.Module, num_heads: int, edit: Edit) -> Iterator[None]:
    """Change what the heads of a layer give, before the output projection mixes them.

    Args:
        projection: the output projection of an attention layer.
        num_heads: H, the heads of the query; a layer with fewer KV heads has as many here.
        edit: takes the heads, ``(B, L, H, D)``, and returns as many. It may store them, scale
            them or return others; gradients pass through it.

    Returns:
        A context, in which the layer is called.

    Raises:
        TypeError: num_heads is not an integer.
        ValueError: num_heads is less than 1 or does not divide the width of the projection, edit
            returns another shape, or the projection was not called: `torch.nn.MultiheadAttention`
            reads the weight of its ``out_proj`` and never calls it; see
            `MultiHeadAttention.from_torch`.

    Examples:
        >>> from mhattn import MultiHeadAttention
        >>> layer = MultiHeadAttention(12, 3)
        >>> with edit_heads(layer.out_proj, 3, torch.zeros_like):
        ...     output = layer(torch.randn(2, 5, 12))
        >>> torch.equal(output, layer.out_proj.bias.expand(2, 5, 12))
        True
    """
    check.at_least("num_heads", num_heads, 1)
    called = False

    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        nonlocal called
        called = True
        (merged,) = inputs  # (B, L, H * D)
        check.divides("num_heads", num_heads, "the width of projection", merged.shape[-1])
        heads = merged.unflatten(-1, (num_heads, -1))  # (B, L, H, D)
        edited = edit(heads)
        if edited.shape != heads.shape:
            rule = f"edit must return the shape {tuple(heads.shape)}"
            raise ValueError(f"{rule}, got {tuple(edited.shape)}")
        return edited.flatten(-2)

    handle = projection.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()
    if not called:
        got = type(projection).__name__
        raise ValueError(f"projection must be called while its heads are edited, got {got}")
    # --8<-- [end:edit_heads]


@contextmanager
def replace_heads(
    projections: Sequence[nn.Module],
    num_heads: int,
    heads: Sequence[Head],
    by: Edit = torch.zeros_like,
) -> Iterator[None]:
    """Replace what some heads of a model give, wherever they are.

    Args:
        projections: the output projection of each layer.
        num_heads: H, of every layer.
        heads: pairs of layer and head, both counted from 0.
        by: takes a head, ``(B, L, D)``, and returns what replaces it, which broadcasts to the
            same shape: zeros, or for instance its mean, or the head of another sequence.

    Returns:
        A context, in which the model is called.

    Raises:
        ValueError: a head does not exist or is named twice, or see `edit_heads`.

    Examples:
        >>> from mhattn import MultiHeadAttention
        >>> model = nn.Sequential(*[MultiHeadAttention(12, 3) for _ in range(2)])
        >>> projections = [layer.out_proj for layer in model]
        >>> with replace_heads(projections, 3, [(1, 0), (1, 1), (1, 2)]):
        ...     output = model(torch.randn(2, 5, 12))
        >>> torch.equal(output, model[1].out_proj.bias.expand(2, 5, 12))
        True
    """
    check_heads(projections, num_heads, heads)

    def replaced(gone: list[int]) -> Edit:
        def edit(given: Tensor) -> Tensor:
            # A copy, for the layer's own backward pass needs what it has computed.
            edited = given.clone()
            for head in gone:
                edited[..., head, :] = by(given[..., head, :])
            return edited

        return edit

    # Of every layer that loses a head a context, and all of them end even if the model raises an
    # error.
    with ExitStack() as stack:
        for layer, projection in enumerate(projections):
            if gone := [head for of, head in heads if of == layer]:
                stack.enter_context(edit_heads(projection, num_heads, replaced(gone)))
        yield


def head_terms(heads: Tensor, weight: Tensor) -> Tensor:
    """What each head adds to the layer's output: its block of the output projection, applied.

    The terms add up to the output without its bias (Elhage et al. 2021,
    https://transformer-circuits.pub/2021/framework/index.html).

    Args:
        heads: the heads side by side, ``(..., H, D)``, as `edit_heads` hands them out.
        weight: of the output projection, ``(E, H * D)``, as `torch.nn.Linear` stores it. GPT-2 in
            transformers stores the transpose.

    Returns:
        ``(..., H, E)``.

    Raises:
        ValueError: heads has fewer than two axes, or the weight has not H * D columns.

    Examples:
        Two heads of width 1, and three features.

        >>> weight = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> head_terms(torch.tensor([[10.0], [1.0]]), weight)
        tensor([[10., 30., 50.],
                [ 2.,  4.,  6.]])
    """
    check.axes("heads", heads, 2)
    num_heads, head_dim = heads.shape[-2:]
    if weight.ndim != 2 or weight.shape[1] != num_heads * head_dim:
        rule = f"weight must be (E, H * D) = (E, {num_heads} * {head_dim})"
        raise ValueError(f"{rule}, got shape {tuple(weight.shape)}")
    # The output projection is a sum over heads: each has a block of columns to itself.
    blocks = weight.unflatten(1, (num_heads, head_dim))  # (E, H, D)
    return torch.einsum("...hd,ehd->...he", heads, blocks)


def head_shares(terms: Tensor) -> Tensor:
    """The part that each head has in the sum of all heads.

    The share is the term's projection onto the sum, as part of it: ``term . sum / (sum . sum)``.
    Shares add up to 1. A term at right angles to the sum has share 0, a term against it a
    negative one. Norms add up to nothing: two terms may cancel, and both be long.

    Args:
        terms: ``(..., H, E)``, as `head_terms` gives them.

    Returns:
        ``(..., H)``. NaN where the sum is zero.

    Raises:
        ValueError: terms has fewer than two axes.

    Examples:
        >>> head_shares(torch.tensor([[3.0, 1.0], [1.0, -1.0]]))
        tensor([0.7500, 0.2500])
        >>> head_shares(torch.tensor([[5.0, 0.0], [-3.0, 0.0]]))
        tensor([ 2.5000, -1.5000])
    """
    check.axes("terms", terms, 2)
    total = terms.sum(dim=-2, keepdim=True)  # (..., 1, E)
    return (terms * total).sum(dim=-1) / total.square().sum(dim=-1)


def ablation_effects(
    loss: Callable[[], float],
    projections: Sequence[nn.Module],
    num_heads: int,
    by: Edit = torch.zeros_like,
) -> Tensor:
    """By how much the loss rises when one head is replaced, for each head by itself.

    Args:
        loss: calls the model and returns its loss.
        projections: the output projection of each layer.
        num_heads: H, of every layer.
        by: takes a head, ``(B, L, D)``, and returns what replaces it: zeros by default.

    Returns:
        ``(layers, H)`` in float64, in the unit of the loss. Below zero: the loss falls.

    Raises:
        ValueError: see `edit_heads`.

    Examples:
        >>> from mhattn import MultiHeadAttention
        >>> layer, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
        >>> ablation_effects(lambda: layer(x).mean().item(), [layer.out_proj], 3).shape
        torch.Size([1, 3])
    """
    heads, whole, effects = heads_of(projections, num_heads), loss(), []
    for head in heads:
        with replace_heads(projections, num_heads, [head], by):
            effects.append(loss() - whole)
    return torch.tensor(effects, dtype=torch.float64).view(-1, num_heads)


# --8<-- [start:gradient_scores]
def gradient_scores(
    losses: Callable[[], Tensor], projections: Sequence[nn.Module], num_heads: int
) -> Tensor:
    """How steeply the loss depends on each head, from one backward pass.

    Each head is multiplied by a gate of 1. The score is the size of the loss's derivative with
    respect to the gate, the mean over sequences (Michel et al. 2019, section 4.1,
    https://arxiv.org/abs/1905.10650): to first order, what zeros for the head would do.

    Args:
        losses: calls the model on a batch and returns one loss for each sequence, ``(B,)``.
        projections: the output projection of each layer.
        num_heads: H, of every layer.

    Returns:
        ``(layers, H)``, none below zero. The gradients of the parameters stay as they are.

    Raises:
        ValueError: there is no projection, losses returns another shape, or see `edit_heads`.

    Examples:
        >>> from mhattn import MultiHeadAttention
        >>> layer, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
        >>> gradient_scores(lambda: layer(x).mean(dim=(1, 2)), [layer.out_proj], 3).shape
        torch.Size([1, 3])
    """
    check.at_least("the number of projections", len(projections), 1)
    gates: dict[int, Tensor] = {}

    def gated(layer: int) -> Edit:
        def edit(heads: Tensor) -> Tensor:
            gate = heads.new_ones(len(heads), 1, num_heads, 1, requires_grad=True)
            return heads * gates.setdefault(layer, gate)  # the same if a layer is called again

        return edit

    with ExitStack() as stack:
        for layer, projection in enumerate(projections):
            stack.enter_context(edit_heads(projection, num_heads, gated(layer)))
        found = losses()
    size = len(gates[0])
    if found.shape != (size,):
        raise ValueError(f"losses must return the shape ({size},), got {tuple(found.shape)}")
    each = torch.autograd.grad(found.sum(), [gates[layer] for layer in range(len(gates))])
    return torch.stack([gradient.abs().mean(dim=0).flatten() for gradient in each])
    # --8<-- [end:gradient_scores]


def pruning_curve(
    loss: Callable[[], float],
    projections: Sequence[nn.Module],
    num_heads: int,
    order: Sequence[Head],
    by: Edit = torch.zeros_like,
) -> Tensor:
    """The loss while heads are replaced, one more at each step.

    Args:
        loss: calls the model and returns its loss.
        projections: the output projection of each layer.
        num_heads: H, of every layer.
        order: pairs of layer and head, the first to go first.
        by: takes a head, ``(B, L, D)``, and returns what replaces it: zeros by default.

    Returns:
        ``(len(order) + 1,)`` in float64: the loss of the whole model, then with 1, 2, … heads gone.

    Raises:
        ValueError: a head does not exist or is named twice, or see `edit_heads`.

    Examples:
        >>> from mhattn import MultiHeadAttention
        >>> layer, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
        >>> loss, order = lambda: layer(x).square().mean().item(), [(0, 2), (0, 0), (0, 1)]
        >>> curve = pruning_curve(loss, [layer.out_proj], 3, order)
        >>> curve.shape, curve[-1].item()
        (torch.Size([4]), 0.0)
    """
    check_heads(projections, num_heads, order)  # before hours are spent on the first of them
    curve = []
    for gone in range(len(order) + 1):
        with replace_heads(projections, num_heads, order[:gone], by):
            curve.append(loss())
    return torch.tensor(curve, dtype=torch.float64)


def heads_of(projections: Sequence[nn.Module], num_heads: int) -> list[Head]:
    """All pairs of layer and head."""
    check.at_least("num_heads", num_heads, 1)
    return [(layer, head) for layer in range(len(projections)) for head in range(num_heads)]


def check_heads(projections: Sequence[nn.Module], num_heads: int, heads: Sequence[Head]) -> None:
    """That each head exists, and is named once."""
    there = set(heads_of(projections, num_heads))
    for place, head in enumerate(heads):
        if head not in there:
            rule = f"heads must be of {len(projections)} layers with {num_heads} heads"
            raise ValueError(f"{rule}, counted from 0, got {head}")
        # A head named twice would be replaced once, and the second step of a curve show nothing.
        if head in heads[:place]:
            raise ValueError(f"heads must not be named twice, got {head}")
