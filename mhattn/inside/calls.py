"""Attention as calls of PyTorch: their weights.

`torch.nn.functional.scaled_dot_product_attention` returns no weights, but its arguments say which
they are: queries, keys, mask and scale. A layer that weighs by hand calls a softmax. PyTorch lets
others watch both calls, whatever class makes them (`torch.overrides.TorchFunctionMode`).
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

__all__ = ["weights_of_call"]

PARAMETERS = inspect.signature(F.multi_head_attention_forward)
PRODUCTS = (torch.matmul, torch.bmm, torch.einsum, torch.Tensor.matmul, torch.Tensor.bmm)
SOFTMAXES = (torch.softmax, torch.special.softmax, F.softmax, torch.Tensor.softmax)


# --8<-- [start:weights_of_call]
def weights_of_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The weights of a call of `torch.nn.functional.scaled_dot_product_attention`.

    Args:
        query: floats, ``(..., H, L, D)``.
        key: floats, ``(..., S, D)``, with as many heads, or fewer with enable_gqa.
        value: has no part in the weights.
        attn_mask: booleans, True = may attend, or floats that are added to the scores; they
            broadcast to ``(..., H, L, S)``.
        dropout_p: 0, since dropout changes weights in each call.
        is_causal: query ``i`` sees the keys up to ``i``, both counted from the first.
        scale: what the scores are multiplied by. Default: ``1 / sqrt(D)``.
        enable_gqa: consecutive heads of the query share a head of the key.

    Returns:
        ``(..., H, L, S)``, dtype of ``query``. A row that sees no key is all zeros.

    Raises:
        ValueError: dropout_p is not 0, or query is a nested tensor.

    Examples:
        >>> query, (key, value) = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 3, 7, 8)
        >>> weights = weights_of_call(query, key, value, enable_gqa=True)
        >>> output = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        >>> torch.allclose(weights @ value.repeat_interleave(2, dim=1), output, atol=1e-5)
        True
    """
    if dropout_p:
        raise ValueError(f"dropout_p must be 0, as dropout changes weights, got {dropout_p}")
    if query.is_nested:
        raise ValueError("query must be padded, got a nested tensor")
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    wide = torch.promote_types(query.dtype, torch.float32)
    factor: float = query.shape[-1] ** -0.5 if scale is None else scale
    scores = factor * query.to(wide) @ key.to(wide).mT  # (..., H, L, S)
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    blind = (scores == -torch.inf).all(dim=-1, keepdim=True)
    weights = scores.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)
    return weights.to(query.dtype)
    # --8<-- [end:weights_of_call]


# --8<-- [start:WatchedCalls]
class WatchedCalls(TorchFunctionMode):
    """While it is entered, the weights of each call go to ``found``, with four axes or more.

    With ``by_hand``, softmaxes over the last of four axes count as well, when a matrix product
    takes them; with ``num_heads``, also those of three axes, ``(B * H, L, S)``. What is computed
    stays as it is.
    """

    def __init__(
        self,
        found: Callable[[Tensor], None],
        name: Callable[[], str],
        by_hand: bool = False,
        num_heads: int | None = None,
    ) -> None:
        super().__init__()
        self.found, self.name, self.by_hand, self.num_heads = found, name, by_hand, num_heads
        self.waiting: dict[int, tuple[Tensor, Tensor]] = {}  # weights and what is made of them

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func in WEIGHTS_OF:
            weights = getattr(result, "weights", None)  # see ThroughWeights
            weights = self.named(WEIGHTS_OF[func], args, kwargs) if weights is None else weights
            self.found(with_heads(weights, self.num_heads))
        elif self.by_hand and func in SOFTMAXES and over_last_axis(*args, **kwargs):
            if result.ndim >= (4 if self.num_heads is None else 3):
                self.waiting[memory_of(result)] = result, result
        elif self.waiting:
            self.follow(func, args, result)
        return result

    def named(self, weights_of: Callable[..., Tensor], args: Any, kwargs: Any) -> Tensor:
        try:
            return weights_of(*args, **kwargs)
        except ValueError as error:
            raise ValueError(f"the call in {self.name()!r}: {error}") from error

    def follow(self, func: Any, args: Any, result: Any) -> None:
        """Weights stay weights in another view or type, until a product takes them."""
        for x in (x for arg in args for x in (arg if isinstance(arg, list | tuple) else [arg])):
            if not (isinstance(x, Tensor) and memory_of(x) in self.waiting):
                continue
            weights, _ = self.waiting[memory_of(x)]
            if func in PRODUCTS:
                kept = self.waiting.items()
                self.waiting = {i: pair for i, pair in kept if pair[0] is not weights}
                self.found(with_heads(weights, self.num_heads))
            elif isinstance(result, Tensor) and result.shape == x.shape:
                self.waiting[memory_of(result)] = weights, result

    # --8<-- [end:WatchedCalls]


def memory_of(x: Tensor) -> int:
    """The same for all views of a tensor, as long as one of them is kept."""
    return x.untyped_storage()._cdata if x.layout is torch.strided else id(x)


def weights_of_layer(*args: Any, **kwargs: Any) -> Tensor:
    """Those of `torch.nn.functional.multi_head_attention_forward`, called again for all heads."""
    given = PARAMETERS.bind(*args, **kwargs)
    given.apply_defaults()
    if given.arguments["training"] and given.arguments["dropout_p"]:
        got = given.arguments["dropout_p"]
        raise ValueError(f"dropout_p must be 0, as dropout changes weights, got {got}")
    given.arguments |= {"need_weights": True, "average_attn_weights": False}
    weights = F.multi_head_attention_forward(*given.args, **given.kwargs)[1]
    assert isinstance(weights, Tensor)  # since they are needed
    return weights if weights.ndim == 4 else weights[None]  # one sequence


WEIGHTS_OF: dict[Any, Callable[..., Tensor]] = {
    F.scaled_dot_product_attention: weights_of_call,
    F.multi_head_attention_forward: weights_of_layer,
}


class ThroughWeights(TorchFunctionMode):
    """The fused call by its definition; its weights are left on the result."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        weights = weights_of_call(*args, **kwargs)
        value: Tensor = args[2] if len(args) > 2 else kwargs["value"]
        if kwargs.get("enable_gqa"):
            value = value.repeat_interleave(weights.shape[-3] // value.shape[-3], dim=-3)
        result: Any = weights @ value
        result.weights = weights
        return result


def over_last_axis(input: Tensor, dim: int | None = None, *args: Any, **kwargs: Any) -> bool:
    return dim == -1 or dim == input.ndim - 1


def with_heads(weights: Tensor, num_heads: int | None) -> Tensor:
    """``(B, H, L, S)`` from ``(B * H, L, S)``, or from the maps of one head."""
    if weights.ndim >= 4:
        return weights
    weights = weights[None] if weights.ndim == 2 else weights
    if num_heads is None or len(weights) % num_heads:
        return weights[:, None]
    return weights.reshape(-1, num_heads, *weights.shape[1:])
