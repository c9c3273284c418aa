"""Masks of a model, and masks of the doctor in their place, in the form that a layer takes."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.adapted import Adapted, visible
from mhattn.testing.pairs import is_whole
from mhattn.testing.subject import Skip
from mhattn.testing.watched import Call

__all__: list[str] = []

TOKENS = 67  # so many are tried for what a layer sees: more than the checks' longest text


class OwnMasks(Adapted):
    """A layer whose model may give it masks."""

    call: Call
    mask_name: str
    memories: list[str]
    is_fixed: bool
    batch: int
    length: int

    @abstractmethod
    def _at(self, batch: int, length: int, keys: int) -> dict[str, Any]:
        """What the model gives for these numbers of sequences, tokens and tokens of a memory."""

    def _takes_masks(self) -> bool:
        """Whether masks of the doctor may stand where the model's do."""
        if not self.mask_name or self.memories or self.call.keys - self.length not in (0, 1):
            return False  # keys besides, such as compressed ones, have masks of their own
        mask = self.call.given[self.mask_name]
        if mask is None:  # the layer itself decides, and is known to take another
            return self._form() is not None
        return isinstance(self.layer, nn.MultiheadAttention) or mask.ndim == 4

    def _hides(self, mask: Tensor | None) -> bool:
        """Whether True hides in a mask of booleans: no query of a model is kept from itself."""
        if mask is None or mask.dtype != torch.bool or mask.shape[-2] != mask.shape[-1]:
            return False
        return not mask.diagonal(dim1=-2, dim2=-1).any()

    def _shown(self, mask: Tensor) -> Tensor:
        """True where a mask lets a query attend."""
        if self._hides(mask):
            return ~mask
        return mask > -1 if mask.is_floating_point() and _is_added(mask) else mask.bool()

    def _form(self) -> torch.dtype | None:
        """What the layer's masks are made of, where its model gives it none."""
        way = getattr(getattr(self.layer, "config", None), "_attn_implementation", None)
        if isinstance(self.layer, nn.MultiheadAttention) or way == "sdpa":
            return torch.bool
        return torch.float32 if way == "eager" else None

    def _shown_by_mask(self) -> Tensor | None:
        """What the model's own mask shows, if that is neither all nor a triangle."""
        if not self._takes_masks() or self.is_fixed:
            return None
        mask: Any = self._at(self.batch, TOKENS, 0)[self.mask_name]
        if not isinstance(mask, Tensor) or mask.shape[-2:] != (TOKENS, TOKENS):
            return None
        seen = self._shown(mask)
        if not (seen == seen[:1, :1]).all():
            raise Skip("its model's mask isn't the same for all sequences")
        return None if is_whole(seen[0, 0]) else seen[0, 0]

    def _mask(self, given: Tensor | None, mask: Tensor, x: Tensor) -> Tensor:
        """A mask of booleans beside what the model's mask hides, in the model's form."""
        seen = visible(mask, x.shape[1], x.shape[1], causal=False, window=None, on=x)
        assert seen is not None
        if isinstance(self.layer, nn.MultiheadAttention):  # True hides there
            hidden = ~seen if given is None else ~seen | given
            return hidden.expand(x.shape[0], self.how["num_heads"], -1, -1).flatten(0, 1)
        own = self.call.given[self.mask_name]
        if given is not None:
            seen = seen & self._shown(given)
        elif self.how["causal"]:
            seen = seen.tril()
        seen = seen.expand(x.shape[0], -1, -1, -1)
        form = self._form() if own is None else own.dtype
        if form is not None and (not form.is_floating_point or not _is_added(own)):
            return ~seen if self._hides(own) else seen.to(form)
        zeros = torch.zeros(seen.shape, dtype=x.dtype, device=x.device)
        return zeros.masked_fill(~seen, torch.finfo(x.dtype).min)


def _is_added(mask: Tensor | None) -> bool:
    """Whether a mask of floats is added to scores; some are one where a query may attend."""
    return mask is None or bool(mask.max() <= 0)
