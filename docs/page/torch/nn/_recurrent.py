"""A recurrent layer, for the one question that compares with it."""

import math
from typing import Any

from torch import _factories
from torch._shapes import stack
from torch._tensor import Tensor
from torch.nn import functional as F, init
from torch.nn._module import Module, Parameter

__all__ = ["GRU"]


class GRU(Module):
    """Gated recurrent units, one layer, one direction."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        **more: Any,
    ):
        from torch._state import lacking

        if num_layers != 1 or more:
            raise lacking("nn.GRU with more than one layer or direction")
        super().__init__()
        self.hidden_size, self.batch_first = hidden_size, batch_first
        for name, shape in {
            "weight_ih_l0": (3 * hidden_size, input_size),
            "weight_hh_l0": (3 * hidden_size, hidden_size),
            "bias_ih_l0": (3 * hidden_size,),
            "bias_hh_l0": (3 * hidden_size,),
        }.items():
            self.register_parameter(
                name, Parameter(_factories.empty(*shape)) if bias or "weight" in name else None
            )
        bound = 1 / math.sqrt(hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        steps = input if not self.batch_first else input.transpose(0, 1)
        state = (
            _factories.zeros(steps.shape[1], self.hidden_size, dtype=input.dtype)
            if hx is None
            else hx[0]
        )
        found = []
        for x in steps:
            r_x, z_x, n_x = F.linear(x, self.weight_ih_l0, self.bias_ih_l0).chunk(3, -1)
            r_h, z_h, n_h = F.linear(state, self.weight_hh_l0, self.bias_hh_l0).chunk(3, -1)
            keep = (z_x + z_h).sigmoid()
            state = (1 - keep) * (n_x + (r_x + r_h).sigmoid() * n_h).tanh() + keep * state
            found.append(state)
        result = stack(found, 1 if self.batch_first else 0)
        return result, state[None]
