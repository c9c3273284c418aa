"""What a module of rotary positions gives, read from its cosines and sines."""

import inspect
import sys
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

__all__: list[str] = []


def rotary_of(layer: nn.Module) -> nn.Module:
    """The module of positions that belongs to a layer of transformers, by its class's name.

    Raises:
        ValueError: there is none beside the layer's class, or it can't be made.
    """
    name = type(layer).__name__
    for kind in type(layer).__mro__:
        beside = vars(sys.modules.get(kind.__module__, torch))
        found = [key for key in beside if key.endswith("RotaryEmbedding")]
        found = [key for key in found if inspect.isclass(beside[key])]
        if found and not kind.__module__.startswith("torch"):
            # Several models share a file at times: LlamaAttention and LlamaRotaryEmbedding belong
            # together.
            best = max(found, key=lambda key: _shared(key, name))
            try:
                return cast(nn.Module, beside[best](layer.config))
            except Exception as error:
                raise ValueError(f"rotary must be given: {best} raised {error}") from error
    raise ValueError(f"rotary must be given: no class of positions was found beside {name}")


def turned_at(rotary: nn.Module, layer: nn.Module, x: Tensor, ids: Tensor) -> Any:
    """The cosines and sines of a layer's tokens; some models have others for each kind of layer."""
    asked: dict[str, Any] = {}
    if "layer_type" in inspect.signature(rotary.forward).parameters:
        kinds = getattr(getattr(layer, "config", None), "layer_types", None)
        at = getattr(layer, "layer_idx", None) or 0
        asked["layer_type"] = getattr(layer, "layer_type", None) or (kinds and kinds[at])
    return rotary(x, ids, **asked)


def _shared(one: str, other: str) -> int:
    """How many letters two names have in common at their beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


@dataclass(frozen=True)
class Turns:
    """The positions of a layer, as `Calls` names them."""

    positions: str | None = None
    layout: str = "halves"
    base: float = 10000.0
    is_given: bool = True
    turned: int | None = None  # features of a head, the first ones; None: all

    def how(self) -> dict[str, Any]:
        """Arguments of `check_attention`."""
        given = self.positions is not None and self.is_given
        return {
            "positions": self.positions,
            "position_ids": "position_ids" if given else False,
            "rotary": (self.layout, self.base, *([self.turned] if self.turned else [])),
        }

    @classmethod
    def of(cls, rotary: nn.Module, layer: nn.Module) -> "Turns":
        """Layout and base, from the angles at position 1; relative where no base fits."""
        dim = getattr(layer, "head_dim", None) or getattr(layer, "head_size", None)
        try:
            one = torch.ones(1, 1, dtype=torch.long)
            found = turned_at(rotary, layer, torch.zeros(1, 1, 8), one)
            cos, sin = (x.detach().double().flatten() for x in found)
        except Exception:  # another form than cosines and sines
            return cls("relative")
        return cls.read(cos, sin, dim)

    @classmethod
    def read(
        cls, cos: Tensor, sin: Tensor, dim: int | None, *, may_be_part: bool = False
    ) -> "Turns":
        """Layout and base from the cosines and sines at position 1, of heads as wide as dim.

        Where they may be those of a part, it is the first features that they turn.
        """
        one = torch.ones_like(cos)
        if dim is None or not torch.allclose(cos**2 + sin**2, one):
            return cls("relative")
        layout, speeds, turned = _layout(torch.atan2(sin, cos))
        if not (turned == dim or (may_be_part and turned < dim)):
            return cls("relative")
        is_speed = len(speeds) > 1 and speeds[1] > 0
        base = speeds[1].item() ** (-turned / 2) if is_speed else 10000.0
        places = torch.arange(0, turned, 2, dtype=torch.float64) / turned
        if not torch.allclose(speeds, base**-places, rtol=1e-4, atol=1e-6):
            return cls("relative")
        # Angles are float32, and bases round numbers: four digits are what they tell.
        part = turned if turned < dim else None
        return cls("rotary", layout, float(f"{base:.4g}"), turned=part)


def _layout(angles: Tensor) -> tuple[str, Tensor, int]:
    """How features are paired, the angles of the pairs, and how many features they turn."""
    first, second = angles[: len(angles) // 2], angles[len(angles) // 2 :]
    # Each angle is there twice, for the two features that it turns: in the other half, or beside
    # it. Where each is there once, nothing tells.
    if len(first) == len(second) and torch.allclose(first, second):
        return "halves", first, len(angles)
    if len(first) == len(second) and torch.allclose(angles[::2], angles[1::2]):
        return "interleaved", angles[::2], len(angles)
    return "halves", angles, 2 * len(angles)
