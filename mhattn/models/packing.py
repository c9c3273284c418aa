"""Projections with their matrices in oneDNN's own order, for inference on a CPU."""

import copy
from typing import Any, Self, TypeVar, overload

import torch
from torch import Tensor, nn

from mhattn.core import checks as check

__all__ = ["PackedLinear", "pack_linears"]

Module = TypeVar("Module", bound=nn.Module)
UNSAVED = "a PackedLinear can't be saved: save the module that was packed, and pack it again"


# --8<-- [start:PackedLinear]
class PackedLinear(nn.Module):
    """What a `torch.nn.Linear` computes, with a copy of its weight that oneDNN has reordered.

    A processor multiplies fastest if the numbers that it needs next lie next to each other. BLAS
    reorders them in every call; here it is done once. It is the product that `torch.compile` uses
    when it may freeze the weights, without a compiler.

    It is for inference: it has no parameters, gives no gradients, and can't be saved. Copies share
    its weight, which nothing changes.

    Args:
        linear: a layer on the CPU, in float32: in half precision, torch itself calls oneDNN. Later
            changes of its weight change nothing here.
        num_tokens: with how many tokens in all, ``B * L``, it will mostly be called: the best
            order depends on it, the result does not.

    Raises:
        TypeError: linear is not a `torch.nn.Linear`, or num_tokens not an integer.
        ValueError: linear is not on the CPU or has another dtype, num_tokens is less than 1, or
            this torch was built without oneDNN.

    Examples:
        >>> linear, x = nn.Linear(8, 12), torch.randn(2, 5, 8)
        >>> packed = PackedLinear(linear, num_tokens=10)
        >>> with torch.no_grad():
        ...     torch.allclose(packed(x), linear(x), atol=1e-5)
        True
    """

    def __init__(self, linear: nn.Linear, *, num_tokens: int = 1024) -> None:
        super().__init__()
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"linear must be a torch.nn.Linear, got {type(linear).__name__}")
        check.at_least("num_tokens", num_tokens, 1)
        weight, bias = linear.weight.detach(), linear.bias
        if not weight.is_cpu or weight.dtype != torch.float32:
            got = f"{weight.dtype} on {weight.device}"
            raise ValueError(f"linear must be in float32 on the CPU, got {got}")
        if not torch.backends.mkldnn.is_available():
            raise ValueError("linear needs a torch that was built with oneDNN, got one without")
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.clone(), num_tokens)
        self.bias = None if bias is None else bias.detach().clone()

    def forward(self, x: Tensor) -> Tensor:
        """Project each token.

        Args:
            x: float32, ``(..., L, in_features)``.

        Returns:
            ``(..., L, out_features)``.

        Raises:
            TypeError: x is not a tensor of float32.
            ValueError: the last axis of x is not in_features, or x needs a gradient.
        """
        check.floats("x", x)
        if x.dtype != torch.float32:
            raise TypeError(f"x must be a tensor of torch.float32, got {x.dtype}")
        if x.shape[-1] != self.in_features:
            raise ValueError(f"x must be (..., {self.in_features}), got {tuple(x.shape)}")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError("x must not need a gradient of a packed layer, got requires_grad=True")
        output: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, "none", [], ""
        )
        return output

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        memo[id(self.weight)] = self.weight  # its order has no storage that could be copied
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__dict__ = copy.deepcopy(self.__dict__, memo)
        return copied

    def get_extra_state(self) -> Any:
        """Refuse to be saved: oneDNN's order fits one machine.

        Raises:
            TypeError: always, as by `torch.nn.Module.state_dict`.
        """
        raise TypeError(UNSAVED)

    def __getstate__(self) -> Any:
        raise TypeError(UNSAVED)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"

    # --8<-- [end:PackedLinear]


# A Linear comes back as another class, every other module as its own: type checkers know both.
@overload
def pack_linears(module: nn.Linear, *, num_tokens: int = ...) -> PackedLinear: ...
@overload
def pack_linears(module: Module, *, num_tokens: int = ...) -> Module: ...
# --8<-- [start:pack_linears]
def pack_linears(module: nn.Module, *, num_tokens: int = 1024) -> nn.Module:
    """Copy a module for inference, with each `torch.nn.Linear` in it replaced by a `PackedLinear`.

    Args:
        module: a layer, a block or a whole model, on the CPU; of a `torch.nn.Linear` itself, the
            result is its `PackedLinear`.
        num_tokens: with how many tokens in all, ``B * L``, it will mostly be called: the best
            order depends on it, the result does not.

    Returns:
        A module that computes the same, in evaluation mode. It shares no memory with the first.
        It can be copied, but not saved: `torch.nn.Module.state_dict` raises a TypeError.

    Raises:
        TypeError: module is not a `torch.nn.Module`, or num_tokens not an integer.
        ValueError: there is no `torch.nn.Linear` in it, one is not in float32 on the CPU,
            num_tokens is less than 1, or this torch was built without oneDNN.

    Examples:
        >>> from mhattn import MultiHeadAttention
        >>> layer, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
        >>> fast = pack_linears(layer)
        >>> with torch.no_grad():
        ...     torch.allclose(fast(x), layer(x), atol=1e-5)
        True
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    if type(module) is nn.Linear:
        return PackedLinear(module, num_tokens=num_tokens).eval()
    packed = copy.deepcopy(module)
    found = False
    for parent in list(packed.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child, num_tokens=num_tokens))
                found = True
    if not found:
        raise ValueError(f"module must hold a torch.nn.Linear, got {type(module).__name__}")
    return packed.eval()
    # --8<-- [end:pack_linears]
