"""A task in which names get values and are asked for them, and a small model that learns it.

To answer, a model has to find the tokens with the right name, a matter of content, and among them
the nearest or the first, a matter of position. So the task tells what kinds of positions are good
for, and how far. After `torch.manual_seed` the same data and the same training come out.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mhattn.core import checks as check
from mhattn.core.modules import MultiHeadAttention
from mhattn.core.positions import Position, sinusoidal_positions
from mhattn.lessons.lookup import NOT_ASKED, Lookup, train_together

__all__ = ["RecallModel", "named_values", "shares_right", "train_recall"]

NAMES, VALUES = 4, 8  # a token is a name and a value, or a name and a question


# --8<-- [start:named_values]
def named_values(batch: int, length: int, *, first: bool = False) -> Lookup:
    """Draw tokens that give a name a value or ask for the name's value, half of each.

    There are four names and eight values; token ``9 n + v`` gives name n the value v, and token
    ``9 n + 8`` asks for it.

    Args:
        batch: number of sequences.
        length: tokens in each.
        first: whether the answer is the first value that the name was given, or the latest one.

    Returns:
        The target is a value, 0 to 7; the pattern is the one key that holds it.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a number is less than 1.

    Examples:
        >>> _ = torch.manual_seed(2)
        >>> task = named_values(1, 6)
        >>> ["abcd"[t // 9] + "01234567?"[t % 9] for t in task.tokens[0]]
        ['a?', 'd3', 'b0', 'a7', 'c2', 'd?']
        >>> task.target[0].tolist(), task.pattern[0, 5].tolist()
        ([-100, -100, -100, -100, -100, 3], [False, True, False, False, False, False])
    """
    check.at_least("batch", batch, 1)
    check.at_least("length", length, 1)
    names = torch.randint(NAMES, (batch, length))
    values = torch.randint(VALUES, (batch, length))
    asks = torch.rand(batch, length) < 0.5
    same = names[:, :, None] == names[:, None]  # (B, L, S)
    holds = (same & ~asks[:, None]).tril(diagonal=-1)  # a value of this name, given before
    order = torch.arange(length, 0, -1) if first else torch.arange(1, length + 1)
    source = (holds * order).argmax(dim=-1)  # (B, L)
    known = asks & holds.any(dim=-1)
    target = values.gather(1, source).masked_fill(~known, NOT_ASKED)
    pattern = known[..., None] & (source[..., None] == torch.arange(length))
    tokens = names * (VALUES + 1) + values.masked_fill(asks, VALUES)
    return Lookup(tokens, target, pattern)
    # --8<-- [end:named_values]


# --8<-- [start:RecallModel]
class RecallModel(nn.Module):
    """A few layers of attention and a linear read-out, to answer `named_values`.

    Layers before the last one are added to their input.

    Args:
        positions: how positions enter in each layer; None: they do not. As many layers as here.
        added: whether sinusoidal positions are added to the tokens.
        embed_dim: width of the model.
        num_heads: heads of each layer.

    Raises:
        TypeError: a size is not an integer, or one of positions is neither None nor a `Position`.
        ValueError: positions is empty, or the sizes do not fit; see `mhattn.MultiHeadAttention`.

    Examples:
        >>> model = RecallModel([None])
        >>> model(torch.zeros(2, 5, dtype=torch.long)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        positions: Sequence[Position | None],
        *,
        added: bool = False,
        embed_dim: int = 32,
        num_heads: int = 4,
    ) -> None:
        super().__init__()
        check.at_least("the number of positions", len(positions), 1)
        layers = [MultiHeadAttention(embed_dim, num_heads, position=p) for p in positions]
        self.added = added
        self.name = nn.Embedding(NAMES, embed_dim)
        self.value = nn.Embedding(VALUES + 1, embed_dim)
        self.layers = nn.ModuleList(layers)
        self.readout = nn.Linear(embed_dim, VALUES)

    def forward(self, tokens: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Read tokens from left to right.

        Args:
            tokens: integers, ``(B, L)``, as `named_values` draws them.
            mask: booleans that broadcast to ``(B, H, L, L)``, for every layer. True: may attend.

        Returns:
            Logits of the values, ``(B, L, 8)``.
        """
        x = self.embed(tokens)  # (B, L, E)
        for layer in list(self.layers)[:-1]:
            x = x + layer(x, mask=mask, is_causal=True)
        x = self.layers[-1](x, mask=mask, is_causal=True)
        logits: Tensor = self.readout(x)  # (B, L, 8)
        return logits

    def embed(self, tokens: Tensor) -> Tensor:
        """What the first layer gets.

        Args:
            tokens: integers, ``(B, L)``.

        Returns:
            ``(B, L, E)``.

        Examples:
            >>> RecallModel([None]).embed(torch.zeros(2, 5, dtype=torch.long)).shape
            torch.Size([2, 5, 32])
        """
        x: Tensor = self.name(tokens // (VALUES + 1)) + self.value(tokens % (VALUES + 1))
        return x + sinusoidal_positions(*x.shape[1:], device=x.device) if self.added else x

    # --8<-- [end:RecallModel]


# --8<-- [start:train_recall]
def train_recall(
    models: Sequence[nn.Module],
    *,
    length: int = 32,
    steps: int = 300,
    lr: float = 0.01,
    batch: int = 16,
    first: bool = False,
    rounded: bool = False,
) -> None:
    """Train models of one shape side by side on `named_values`, in place, with Adam.

    Args:
        models: each sees data of its own.
        length: tokens in a sequence.
        steps: how often Adam steps.
        lr: the learning rate of Adam.
        batch: sequences that each model sees in a step.
        first: whether the answer is the first value that the name was given, or the latest one.
        rounded: whether the parameters are rounded from time to time, as in `train_together`.

    Raises:
        TypeError: length, steps or batch is not an integer.
        ValueError: one of them is less than 1, or there is no model.

    Examples:
        >>> models = [RecallModel([None]) for _ in range(2)]
        >>> train_recall(models, length=8, steps=2)
    """
    check.at_least("length", length, 1)
    draw = partial(named_values, length=length, first=first)
    train = partial(train_together, steps=steps, lr=lr, batch=batch, every=steps, rounded=rounded)
    with sdpa_kernel(SDPBackend.MATH):  # fused kernels can't be stacked
        for _ in train(models, draw):
            pass
    # --8<-- [end:train_recall]


# --8<-- [start:shares_right]
@torch.no_grad()
def shares_right(
    models: Sequence[nn.Module],
    test: Lookup,
    ranges: Sequence[tuple[int, int]],
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """How many of the questions in each range of places a model answers right.

    Args:
        models: they take tokens and a mask, and give logits.
        test: from `named_values`.
        ranges: first place and the one behind the last.
        mask: for the models.

    Returns:
        Shares from 0 to 1, ``(models, ranges)``; NaN where nothing is asked.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> shares_right([RecallModel([None])], named_values(5, 32), [(0, 16), (16, 32)]).shape
        torch.Size([1, 2])
    """
    asked, rows = test.target != NOT_ASKED, list[Tensor]()  # (B, L)
    for model in models:
        right = model(test.tokens, mask=mask).argmax(dim=-1) == test.target  # (B, L)
        shares = [right[:, a:b][asked[:, a:b]].double().mean() for a, b in ranges]
        rows.append(torch.stack(shares))
    return torch.stack(rows)  # (models, ranges)
    # --8<-- [end:shares_right]
