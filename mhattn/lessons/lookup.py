"""Tasks that a head of a known kind solves, and a small model that has to find it.

Every task asks for something that stands at a known place: the answer's keys are part of the data.
So it is known beforehand where a head would have to look, and any head can be compared with that.
After `torch.manual_seed` the same data and the same training come out.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from mhattn.core import checks as check
from mhattn.core.modules import MultiHeadAttention
from mhattn.inside.heads import head_patterns

__all__ = [
    "SENTENCE_WORDS",
    "AttentionOnly",
    "Lookup",
    "agreeing_verbs",
    "lookup_losses",
    "matched_brackets",
    "previous_tokens",
    "repeated_tokens",
    "train_together",
]

NOT_ASKED = -100  # what PyTorch's cross-entropy ignores
SUBJECTS = ("cat", "cats", "dog", "dogs", "tree", "trees", "house", "houses")  # plurals are odd
LINKS = ("near", "behind", "above")
SENTENCE_WORDS = (*SUBJECTS, *LINKS, "is", "are", "^")
"""The words of `agreeing_verbs`, each at the place that is its token."""


class Lookup(NamedTuple):
    """Tokens, what some of them ask for, and where the answer stands.

    Attributes:
        tokens: integers, ``(B, L)``.
        target: the answer at each position, integers, ``(B, L)``; -100 where nothing is asked.
        pattern: the keys that hold the answer, booleans, ``(B, L, L)``; none where nothing is
            asked, and never one behind the query.
    """

    tokens: Tensor
    target: Tensor
    pattern: Tensor


# --8<-- [start:repeated_tokens]
def repeated_tokens(
    batch: int, length: int, *, letters: int = 26, periods: tuple[int, int] = (4, 7)
) -> Lookup:
    """Draw rounds of random letters, to be continued: the task of an induction head.

    A sequence is a start token, then some different letters, then the same letters in the same
    order again and again. From the second round on, the next letter is asked for: it is the one
    that followed the current letter before (Olsson et al. 2022, https://arxiv.org/abs/2209.11895).

    Args:
        batch: number of sequences.
        length: tokens in each.
        letters: how many there are, tokens 0 to ``letters - 1``; the start token is ``letters``.
        periods: the fewest and the most letters of a round; each number is as likely.

    Returns:
        The pattern is that of an induction head: all keys behind an earlier occurrence.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a number is less than 1, the periods are not in order, or there are not as
            many letters.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> task = repeated_tokens(1, 6, letters=3, periods=(2, 2))
        >>> task.tokens.tolist(), task.target.tolist()
        ([[3, 1, 2, 1, 2, 1]], [[-100, -100, -100, 2, 1, 2]])
        >>> task.pattern[0, 5].nonzero().flatten().tolist()  # a 2 stands after each earlier 1
        [2, 4]
    """
    check.at_least("batch", batch, 1)
    check.at_least("length", length, 1)
    check.at_least("the first of periods", periods[0], 1)
    check.at_least("the second of periods", periods[1], periods[0])
    check.at_least("letters", letters, periods[1])
    period = torch.randint(periods[0], periods[1] + 1, (batch, 1))
    order = torch.rand(batch, letters).argsort(dim=-1)  # no letter twice in a round
    rounds = order.gather(1, torch.arange(length) % period)  # (B, L)
    tokens = torch.cat([torch.full((batch, 1), letters), rounds[:, :-1]], dim=1)
    pattern = head_patterns(length, tokens=tokens)["induction"][:, 0]
    return Lookup(tokens, rounds.masked_fill(~pattern.any(dim=-1), NOT_ASKED), pattern)
    # --8<-- [end:repeated_tokens]


def previous_tokens(batch: int, length: int, *, letters: int = 26) -> Lookup:
    """Draw random letters; each position asks for the one before it.

    Args:
        batch: number of sequences.
        length: tokens in each.
        letters: how many there are.

    Returns:
        The pattern is that of a previous-token head; the first token asks for nothing.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a number is less than 1.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> task = previous_tokens(1, 5)
        >>> task.tokens.tolist(), task.target.tolist()
        ([[16, 15, 1, 16, 25]], [[-100, 16, 15, 1, 16]])
    """
    for name, number in {"batch": batch, "length": length, "letters": letters}.items():
        check.at_least(name, number, 1)
    tokens = torch.randint(letters, (batch, length))
    source = (torch.arange(length) - 1).expand(batch, -1)
    return copied(tokens, source)


# --8<-- [start:matched_brackets]
def matched_brackets(batch: int, length: int, *, kinds: int = 8, depth: int = 3) -> Lookup:
    """Draw brackets of several kinds; each closing one asks for the kind that it closes.

    All closing brackets are the same token. So the answer is the last bracket that is still
    open, which may be far back: for the last bracket of ``( [ > >`` it is ``(``.

    Args:
        batch: number of sequences.
        length: tokens in each.
        kinds: how many there are. Tokens 0 to ``kinds - 1`` open one, and ``kinds`` closes it.
        depth: how many may be open at once. Where a bracket may open or close, both are equally
            likely.

    Returns:
        The pattern has one key for each closing bracket.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a number is less than 1.

    Examples:
        >>> _ = torch.manual_seed(3)
        >>> task = matched_brackets(1, 8, kinds=2)
        >>> task.tokens.tolist(), task.target.tolist()
        ([[0, 2, 1, 2, 0, 0, 0, 2]], [[-100, 0, -100, 1, -100, -100, -100, 0]])
        >>> task.pattern[0, 7].nonzero().flatten().tolist()  # the last bracket that is open
        [6]
    """
    numbers = {"batch": batch, "length": length, "kinds": kinds, "depth": depth}
    for name, number in numbers.items():
        check.at_least(name, number, 1)
    tokens = torch.randint(kinds, (batch, length))
    source = torch.full((batch, length), -1)  # of each closing bracket
    row, open_at = torch.arange(batch), torch.zeros(batch, depth, dtype=torch.long)
    height = torch.zeros(batch, dtype=torch.long)  # how many are open
    for i in range(length):
        opens = (height == 0) | (height < depth) & (torch.rand(batch) < 0.5)
        top = torch.where(opens, height, height - 1)  # the place that is filled or freed
        source[:, i] = torch.where(opens, -1, open_at[row, top])
        open_at[row, top] = torch.where(opens, i, open_at[row, top])
        height = torch.where(opens, height + 1, height - 1)
    return copied(tokens.masked_fill(source >= 0, kinds), source)
    # --8<-- [end:matched_brackets]


# --8<-- [start:agreeing_verbs]
def agreeing_verbs(batch: int, length: int) -> Lookup:
    """Draw sentences whose verb agrees with a subject that stands farther back.

    A sentence is a subject, one or two further nouns, each behind a preposition, and a verb, as in
    ``cats near dog behind trees are``. The next one follows at once. Before each verb its form is
    asked for. The nouns between agree with it only by chance; so the nearest noun is right half of
    the time (Linzen et al. 2016, https://arxiv.org/abs/1611.01368, name them attractors).

    Args:
        batch: number of sequences.
        length: tokens in each, with the start token.

    Returns:
        Tokens of `SENTENCE_WORDS`. The pattern has one key for each question: the subject.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a number is less than 1.

    Examples:
        >>> _ = torch.manual_seed(3)
        >>> task = agreeing_verbs(1, 8)
        >>> " ".join(SENTENCE_WORDS[token] for token in task.tokens[0])
        '^ cat near trees is cats near tree'
        >>> SENTENCE_WORDS[task.target[0, 3]], task.pattern[0, 3].nonzero().flatten().tolist()
        ('is', [1])
    """
    for name, number in {"batch": batch, "length": length}.items():
        check.at_least(name, number, 1)
    singular, start = SENTENCE_WORDS.index("is"), SENTENCE_WORDS.index("^")
    row, tokens = torch.arange(batch), torch.full((batch, length), start)
    target, source = torch.full((2, batch, length), -1)
    subject = torch.zeros(batch, dtype=torch.long)  # where it stands
    place = torch.zeros(batch, dtype=torch.long)  # in the sentence
    nouns = torch.zeros(batch, dtype=torch.long)  # that follow the subject
    for i in range(1, length + 1):  # one further: the last token may ask for a verb
        begins = place == 0
        subject = torch.where(begins, i, subject)
        nouns = torch.where(begins, torch.randint(1, 3, (batch,)), nouns)
        ends = place == 2 * nouns + 1
        form = singular + tokens[row, subject.clamp(max=length - 1)] % 2
        target[:, i - 1] = torch.where(ends, form, -1)
        source[:, i - 1] = torch.where(ends, subject, -1)
        if i < length:
            noun = torch.randint(len(SUBJECTS), (batch,))
            link = len(SUBJECTS) + torch.randint(len(LINKS), (batch,))
            word = torch.where(place % 2 == 0, noun, link)
            tokens[:, i] = torch.where(ends, form, word)
        place = torch.where(ends, 0, place + 1)
    pattern = source[..., None] == torch.arange(length)
    return Lookup(tokens, target.masked_fill(source < 0, NOT_ASKED), pattern)
    # --8<-- [end:agreeing_verbs]


# --8<-- [start:AttentionOnly]
class AttentionOnly(nn.Module):
    """Layers of attention on a residual stream, and nothing else: no MLP, no LayerNorm.

    Small models of this kind can be understood head by head (Elhage et al. 2021,
    https://transformer-circuits.pub/2021/framework/index.html).

    Args:
        num_tokens: different tokens that go in and come out.
        length: positions that it knows.
        embed_dim: width of the residual stream.
        num_heads: heads of each layer.
        num_layers: how many layers.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is less than 1, or num_heads does not divide embed_dim.

    Examples:
        >>> model, tokens = AttentionOnly(26, 16), torch.zeros(2, 16, dtype=torch.long)
        >>> logits, weights = model(tokens, return_weights=True)
        >>> logits.shape, weights.shape
        (torch.Size([2, 16, 26]), torch.Size([2, 2, 4, 16, 16]))
    """

    def __init__(
        self,
        num_tokens: int,
        length: int,
        *,
        embed_dim: int = 32,
        num_heads: int = 4,
        num_layers: int = 2,
    ) -> None:
        super().__init__()
        sizes = {"num_tokens": num_tokens, "length": length, "num_layers": num_layers}
        for name, number in sizes.items():
            check.at_least(name, number, 1)
        layers = [MultiHeadAttention(embed_dim, num_heads) for _ in range(num_layers)]
        self.token = nn.Embedding(num_tokens, embed_dim)
        self.position = nn.Embedding(length, embed_dim)
        self.layers = nn.ModuleList(layers)
        self.readout = nn.Linear(embed_dim, num_tokens)
        for embedding in (self.token, self.position):
            nn.init.normal_(embedding.weight, std=0.5)

    def forward(
        self, tokens: Tensor, *, return_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Read tokens from left to right.

        Args:
            tokens: integers, ``(B, L)``, no longer than the positions that it knows.
            return_weights: also return the weights of every head.

        Returns:
            Logits, ``(B, L, num_tokens)``, or these and the weights, ``(B, layers, H, L, L)``.
        """
        x = self.token(tokens) + self.position.weight[: tokens.shape[-1]]  # (B, L, E)
        kept = []
        for layer in self.layers:
            change, weights = layer(x, is_causal=True, return_weights=True)
            x = x + change
            kept.append(weights)  # (B, H, L, L)
        logits = self.readout(x)  # (B, L, num_tokens)
        return (logits, torch.stack(kept, dim=1)) if return_weights else logits

    # --8<-- [end:AttentionOnly]


def lookup_losses(logits: Tensor, target: Tensor) -> Tensor:
    """The mean cross-entropy of the questions, in nats.

    Args:
        logits: floats, ``(..., L, num_tokens)``.
        target: integers, ``(..., L)``; -100 where nothing is asked.

    Returns:
        A number; NaN if nothing is asked.

    Raises:
        ValueError: the shapes do not fit.

    Examples:
        >>> lookup_losses(torch.zeros(1, 2, 5), torch.tensor([[-100, 3]]))  # log 5
        tensor(1.6094)
    """
    if logits.shape[:-1] != target.shape:
        rule = f"target must be {tuple(logits.shape[:-1])}, as logits without the last axis"
        raise ValueError(f"{rule}, got {tuple(target.shape)}")
    return F.cross_entropy(logits.flatten(0, -2), target.flatten(), ignore_index=NOT_ASKED)


# --8<-- [start:train_together]
def train_together(
    models: Sequence[nn.Module],
    draw: Callable[[int], Lookup],
    *,
    steps: int,
    lr: float = 0.005,
    batch: int = 16,
    every: int = 10,
    rounded: bool = False,
) -> Iterator[int]:
    """Train models of one shape side by side, with Adam, and stop from time to time.

    Their parameters are stacked along a new first axis. Adam treats every number by itself, so
    each model learns as if it were alone.

    Args:
        models: they are trained in place, and up to date whenever a step is handed out.
        draw: ``draw(n)`` makes n fresh sequences.
        steps: how often Adam steps.
        lr: the learning rate of Adam.
        batch: sequences that each model sees in a step.
        every: how many steps lie between two stops.
        rounded: whether the parameters are rounded to ten binary places after every fifth step.
            Another processor rounds sums otherwise, and where a model magnifies that from step to
            step, other parameters come out there. Like this, in float64, the same do.

    Returns:
        An iterator over the steps at which training stops, to look at the models: 0, before the
        first one, ``every``, ``2 * every``, …, and the last. It trains while one iterates.

    Raises:
        TypeError: steps, batch or every is not an integer.
        ValueError: one of them is less than 1, or there is no model.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> models = [AttentionOnly(5, 6, num_layers=1) for _ in range(2)]
        >>> draw = lambda n: previous_tokens(n, 6, letters=5)
        >>> test, losses = draw(50), []
        >>> for step in train_together(models, draw, steps=100, every=50):
        ...     found = lookup_losses(models[1](test.tokens), test.target)
        ...     losses.append(f"{step}: {found:.1f}")
        >>> losses[0], losses[2]
        ('0: 1.7', '100: 0.0')
    """
    for name, number in {"steps": steps, "batch": batch, "every": every}.items():
        check.at_least(name, number, 1)
    check.at_least("the number of models", len(models), 1)
    return training(models, draw, steps, lr, batch, every, rounded)


def training(
    models: Sequence[nn.Module],
    draw: Callable[[int], Lookup],
    steps: int,
    lr: float,
    batch: int,
    every: int,
    rounded: bool,
) -> Iterator[int]:
    params, _ = stack_module_state(list(models))  # each (N, ...)
    optimizer = torch.optim.Adam(params.values(), lr=lr)

    def loss(params: dict[str, Tensor], tokens: Tensor, target: Tensor) -> Tensor:
        return lookup_losses(functional_call(models[0], params, (tokens,)), target)

    for step in range(steps + 1):
        if step % every == 0 or step == steps:
            for i, model in enumerate(models):
                model.load_state_dict({name: stacked[i] for name, stacked in params.items()})
            yield step
        if step < steps:
            fresh = draw(len(models) * batch)
            tokens, target = (x.unflatten(0, (len(models), batch)) for x in fresh[:2])
            optimizer.zero_grad()
            vmap(loss)(params, tokens, target).sum().backward()
            optimizer.step()
            if rounded and step % 5 == 4:
                for param in params.values():
                    param.data = (param.data * 2**10).round() / 2**10
    # --8<-- [end:train_together]


def copied(tokens: Tensor, source: Tensor) -> Lookup:
    """Each position asks for the token at its source, ``(B, L)``; -1 asks for nothing."""
    target = tokens.gather(1, source.clamp(min=0)).masked_fill(source < 0, NOT_ASKED)
    return Lookup(tokens, target, source[..., None] == torch.arange(tokens.shape[1]))
