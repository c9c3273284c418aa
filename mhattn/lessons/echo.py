"""Echo, a small model whose heads several chapters follow.

It has two layers of attention with four heads each, and learns to continue repeated letters. For
that, heads of layer 1 look at the letter before, and heads of layer 2 at what followed the current
letter earlier. Each number gives another Echo, trained from other random numbers; one number gives
the same model in every chapter.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mhattn.core import checks as check
from mhattn.core.modules import MultiHeadAttention
from mhattn.lessons.lookup import Lookup, repeated_tokens

__all__ = ["Echo", "echo_losses", "echo_texts", "train_echo"]

LETTERS, LENGTH = 26, 20
PERIODS = (6, 10)  # the fewest and the most letters of a round


# --8<-- [start:Echo]
class Echo(nn.Module):
    """Two layers of attention on a residual stream, and nothing else, before training.

    Args:
        bias: whether its projections and its read-out have biases.

    Examples:
        >>> echo, tokens = Echo(), echo_texts(2).tokens[:, :-1]
        >>> logits, weights = echo(tokens, return_weights=True)
        >>> logits.shape, weights.shape
        (torch.Size([2, 20, 26]), torch.Size([2, 2, 4, 20, 20]))
    """

    def __init__(self, *, bias: bool = True) -> None:
        super().__init__()
        self.token = nn.Embedding(LETTERS + 1, 64)
        self.position = nn.Embedding(LENGTH, 64)
        layers = [MultiHeadAttention(64, 4, bias=bias) for _ in range(2)]
        self.layers = nn.ModuleList(layers)
        self.out = nn.Linear(64, LETTERS, bias=bias)
        for embedding in (self.token, self.position):
            nn.init.normal_(embedding.weight, std=0.5)

    def forward(
        self, tokens: Tensor, *, return_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Predict the next letter at each position.

        Args:
            tokens: integers, ``(B, L)``, at most 20 of them.
            return_weights: also return the weights of every head.

        Returns:
            Logits, ``(B, L, 26)``, or these and the weights, ``(B, layers, H, L, L)``.
        """
        x = self.token(tokens) + self.position.weight[: tokens.shape[-1]]  # (B, L, E)
        kept = []
        for layer in self.layers:
            change = layer(x, is_causal=True, return_weights=return_weights)
            if return_weights:
                change, weights = change
                kept.append(weights)  # (B, H, L, L)
            x = x + change
        logits = self.out(x)  # (B, L, 26)
        return (logits, torch.stack(kept, dim=1)) if return_weights else logits

    # --8<-- [end:Echo]


def echo_texts(batch: int) -> Lookup:
    """Draw a start token and 6 to 10 random letters, which are repeated again and again.

    Args:
        batch: number of texts.

    Returns:
        21 tokens a text: the model reads 20 of them, and predicts the last.

    Raises:
        TypeError: batch is not an integer.
        ValueError: batch is less than 1.

    Examples:
        >>> echo_texts(3).tokens.shape
        torch.Size([3, 21])
    """
    return repeated_tokens(batch, LENGTH + 1, letters=LETTERS, periods=PERIODS)


# --8<-- [start:train_echo]
def echo_losses(model: nn.Module, tokens: Tensor) -> Tensor:
    """The loss at each position, in nats.

    Args:
        model: from tokens to logits.
        tokens: integers, ``(B, L + 1)``; the last of a text is only predicted.

    Returns:
        ``(B, L)``.

    Examples:
        >>> echo_losses(Echo(), echo_texts(3).tokens).shape
        torch.Size([3, 20])
    """
    logits, following = model(tokens[:, :-1]), tokens[:, 1:]
    return F.cross_entropy(logits.mT, following, reduction="none")


def train_echo(
    number: int, *, steps: int = 300, every: int = 300, bias: bool = True
) -> Iterator[tuple[int, Echo]]:
    """Train the Echo of a number, and stop from time to time.

    Args:
        number: 1, 2, 3, …; its random numbers start from the seed below it.
        steps: how often Adam steps.
        every: how many steps lie between two stops.
        bias: whether its projections have biases.

    Returns:
        An iterator over steps and models: before the first step, after ``every`` steps,
        ``2 * every``, …, and after the last. It is one model, which trains while one iterates.

    Raises:
        TypeError: number, steps or every is not an integer.
        ValueError: one of them is less than 1.

    Examples:
        >>> tokens = torch.arange(27)[None, [26, 1, 2, 3, 4, 5, 6, 1, 2]]
        >>> for step, echo in train_echo(3, steps=2):
        ...     print(step, echo(tokens).shape)
        0 torch.Size([1, 9, 26])
        2 torch.Size([1, 9, 26])
    """
    for name, value in {"number": number, "steps": steps, "every": every}.items():
        check.at_least(name, value, 1)
    return training(number, steps, every, bias)


def training(number: int, steps: int, every: int, bias: bool) -> Iterator[tuple[int, Echo]]:
    random = torch.random.get_rng_state()
    torch.manual_seed(number - 1)
    model = Echo(bias=bias).eval()  # it has no dropout
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps + 1):
        if step % every == 0 or step == steps:
            own = torch.random.get_rng_state()
            torch.random.set_rng_state(random)  # for whoever looks
            yield step, model
            random = torch.random.get_rng_state()
            torch.random.set_rng_state(own)
        if step < steps:
            loss = echo_losses(model, echo_texts(32).tokens).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
    torch.random.set_rng_state(random)
    # --8<-- [end:train_echo]
