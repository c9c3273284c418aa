"""What checks do to a layer: change tokens, and see what moves."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mhattn.testing.subject import Subject

__all__: list[str] = []


def said(number: float) -> str:
    """A number for a reader: two digits."""
    return f"{number:.2g}"


def apart(subject: Subject, one: Tensor, other: Tensor) -> Tensor:
    """How far two outputs are from each other at each token, in units of a usual output.

    Args:
        subject: the layer that they come from.
        one: ``(B, L, E)`` or ``(B, H, L, D)``.
        other: the same shape.

    Returns:
        ``(B, L)``; infinite where one of them is NaN and the other isn't.
    """
    one, other = one.detach().double(), other.detach().double()
    if one.shape != other.shape:
        return torch.full((one.shape[0], one.shape[-2]), torch.inf)
    gap = (one - other).abs()
    # NaN on both sides is no difference. Whether there should be NaN is asked by another check.
    gap[one.isnan() & other.isnan()] = 0
    gap = torch.nan_to_num(gap, nan=torch.inf, posinf=torch.inf)
    # In units of a usual output, so that one tolerance serves layers of any scale; a layer that
    # gives zeros alone has no unit, and any difference from it is large.
    usual = one[one.isfinite()].square().mean().sqrt().clamp(min=1e-9).nan_to_num(1.0)
    gap = gap.amax(dim=-1) / usual
    return gap.amax(dim=1) if subject.is_heads else gap


def influence(
    subject: Subject,
    inputs: list[Tensor],
    *,
    seed: int = 0,
    where: str = "self",
    size: float = 1.0,
    **asked: object,
) -> Tensor:
    """Replace one token after the other, and see which outputs move.

    Args:
        subject: the layer.
        inputs: queries, keys and values; one tensor three times is replaced in all three.
        seed: of the layer's own chance, as dropout.
        where: ``"self"``: the token is query, key and value; ``"keys"``: keys and values alone;
            ``"queries"``.
        size: of the new tokens.
        **asked: what the layer is called with.

    Returns:
        ``(B, L, S)``: by how much output ``i`` moves when token ``j`` is another, in units of a
        usual output.
    """
    before = subject(*inputs, seed=seed, **asked).output
    # On the CPU, whatever the layer's device: one seed gives other numbers on a GPU.
    source = torch.Generator().manual_seed(77)
    moved = []
    place = {"self": (0, 1, 2), "keys": (1, 2), "queries": (0,)}[where]
    for j in range(inputs[place[0]].shape[-2]):
        changed = list(inputs)
        new: dict[int, Tensor] = {}
        for i in place:
            x = inputs[i]
            # A tensor that was given three times stays one: layers ask if the key is the query.
            if id(x) not in new:
                y = x.clone()
                fresh = (
                    torch.randn(y[..., j, :].shape, generator=source, dtype=torch.float64) * size
                )
                y[..., j, :] = fresh.to(y.device, y.dtype)
                new[id(x)] = y
            changed[i] = new[id(x)]
        moved.append(apart(subject, before, subject(*changed, seed=seed, **asked).output))
    return torch.stack(moved, dim=-1)


def causal(subject: Subject) -> bool:
    """Whether the layer can be asked to be causal, or always is."""
    return bool(subject.calls.causal)


def allowed(
    subject: Subject, rows: int, columns: int, corner: str | None = None, is_causal: bool = True
) -> Tensor:
    """Who may see whom, ``(L, S)``, under the layer's causal mask, window and pattern."""
    if subject.calls.outputs:
        return torch.ones(subject.calls.outputs, columns, dtype=torch.bool)
    own, keys = subject.fixed
    rows, columns = own or rows, keys or columns
    late = columns - rows if (corner or subject.calls.corner) != "upper left" else 0
    far = torch.arange(rows)[:, None] + late - torch.arange(columns)
    seen = torch.ones(rows, columns, dtype=torch.bool)
    if pattern := subject.calls.seen:
        sees = [[pattern(i + late, j) for j in range(columns)] for i in range(rows)]
        seen = torch.tensor(sees, dtype=torch.bool)
    if is_causal:
        seen &= far >= 0
    if subject.calls.window and is_causal:
        seen &= far < subject.calls.window
    elif subject.calls.window:
        seen &= far.abs() < subject.calls.window
    return seen


def modes(subject: Subject) -> Iterator[tuple[str, bool]]:
    """Evaluation, training, and evaluation with gradients off; and whether it is training."""
    for name, trains, grads in (
        ("eval()", False, True),
        ("train()", True, True),
        ("eval(), no_grad()", False, False),
    ):
        subject.train(trains)
        with torch.set_grad_enabled(grads):
            yield name, trains
    subject.train(False)


def pair(seen: Tensor) -> tuple[int, ...]:
    """The first place, batch, query and key, that is set."""
    return tuple(seen.nonzero()[0].tolist())


def spread(x: Tensor, heads: int, groups: str) -> Tensor:
    """Keys or values, ``(B, G, S, D)``, once for each head: 0 0 1 1 or, tiled, 0 1 0 1."""
    times = heads // x.shape[1]
    return x.repeat_interleave(times, 1) if groups == "repeat" else x.repeat(1, times, 1, 1)
