"""Multi-head attention as a module: it holds the projections and calls `mhattn.core.functional`."""

from collections.abc import Callable
from typing import Any, Literal, Self, overload

import torch
from torch import Tensor, nn

from mhattn.core import checks as check
from mhattn.core.asking import Asked, arguments_of, name_of, taking_all
from mhattn.core.cache import KVCache, LinearState, keep_to_one_layer
from mhattn.core.functional import attention, merge_heads, split_heads
from mhattn.core.positions import Attended, Position, Positions

__all__ = ["MultiHeadAttention"]

Cache = KVCache | LinearState


def reset_projections(*projections: nn.Linear) -> None:
    """Xavier uniform, each matrix by its own size; biases are zero."""
    for proj in projections:
        nn.init.xavier_uniform_(proj.weight)
        if proj.bias is not None:
            nn.init.zeros_(proj.bias)


# --8<-- [start:MultiHeadAttention]
class MultiHeadAttention(nn.Module):
    """Attend with several heads at once, each in its own projection of the input.

    Self-attention and cross-attention; multi-head (Vaswani et al. 2017, section 3.2.2,
    https://arxiv.org/abs/1706.03762), grouped-query (Ainslie et al. 2023,
    https://arxiv.org/abs/2305.13245) and multi-query attention (Shazeer 2019,
    https://arxiv.org/abs/1911.02150).

    Each of the four weight matrices is initialised Xavier uniform by its own size, biases
    are zero. A fused matrix for query, key and value, as `torch.nn.MultiheadAttention`
    has, would get another bound, since Xavier looks at the matrix' shape.

    Args:
        embed_dim: width of the query and of the output.
        num_heads: number of heads of the query.
        num_kv_heads: number of heads of the key and value; it divides ``num_heads``.
            Default: ``num_heads``; 1 is multi-query attention.
        head_dim: width of a head. Default: ``embed_dim / num_heads``.
        kdim: width of the key. Default: ``embed_dim``.
        vdim: width of the value. Default: ``embed_dim``.
        bias: whether the four projections add a bias.
        dropout: share of the weights set to zero, in training only.
        attend: how each head attends: `mhattn.attention`, or another function of query,
            key and value, as ``functools.partial(local_attention, window=64)`` or
            `mhattn.variants.linear_attention`. By name it gets ``mask``, ``bias``, ``is_causal``,
            ``dropout`` and ``return_weights``, as far as it takes them; what it does not take
            can't be asked of the layer. It may be a `torch.nn.Module` with parameters; if it has
            a ``head_dim`` or ``num_kv_heads``, they must be the layer's. ``attend`` and
            ``position`` may be set to others later.
        position: how positions enter, from `mhattn.core.positions`. Default: they do not.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        TypeError: a width or a number of heads is not an integer, position no `Position`, or
            attend not a function whose arguments Python knows.
        ValueError: one of them is less than 1, num_heads does not divide embed_dim and no
            head_dim is given, num_kv_heads does not divide num_heads, dropout is not
            in [0, 1), attend can't take the dropout or the position, or attend or position
            was made for heads of another width or number.

    Examples:
        >>> mha = MultiHeadAttention(embed_dim=12, num_heads=3)
        >>> mha(torch.zeros(2, 5, 12)).shape
        torch.Size([2, 5, 12])
        >>> output, weights = mha(torch.zeros(2, 5, 12), torch.zeros(2, 7, 12), return_weights=True)
        >>> weights.shape
        torch.Size([2, 3, 5, 7])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        attend: Callable[..., Attended] = attention,
        position: Position | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check.at_least("embed_dim", embed_dim, 1)
        check.at_least("num_heads", num_heads, 1)
        if head_dim is None:
            check.divides("num_heads", num_heads, "embed_dim", embed_dim)
        check.dropout(dropout)
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.head_dim = embed_dim // num_heads if head_dim is None else head_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout = dropout
        for name in ("num_kv_heads", "head_dim", "kdim", "vdim"):
            check.at_least(name, getattr(self, name), 1)
        check.divides("num_kv_heads", self.num_kv_heads, "num_heads", num_heads)

        q_width, kv_width = num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(embed_dim, q_width, bias, device, dtype)
        self.k_proj = nn.Linear(self.kdim, kv_width, bias, device, dtype)
        self.v_proj = nn.Linear(self.vdim, kv_width, bias, device, dtype)
        self.out_proj = nn.Linear(q_width, embed_dim, bias, device, dtype)
        self.attend = attend
        self.position = position
        reset_projections(self.q_proj, self.k_proj, self.v_proj, self.out_proj)

    def reset_parameters(self) -> None:
        """Initialise the projections anew, the position, and what attends, if it is a module."""
        reset_projections(self.q_proj, self.k_proj, self.v_proj, self.out_proj)
        if self.position is not None:
            self.position.reset_parameters()
        if isinstance(self.attend, nn.Module):
            reset_module(self.attend)

    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = ...,
        value: Tensor | None = ...,
        *,
        mask: Tensor | None = ...,
        is_causal: bool = ...,
        positions: Tensor | None = ...,
        cache: Cache | None = ...,
        return_weights: Literal[False] = ...,
    ) -> Tensor: ...
    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = ...,
        value: Tensor | None = ...,
        *,
        mask: Tensor | None = ...,
        is_causal: bool = ...,
        positions: Tensor | None = ...,
        cache: Cache | None = ...,
        return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        is_causal: bool = False,
        positions: Tensor | None = None,
        return_weights: bool = False,
        cache: Cache | None = None,
    ) -> Attended:
        """Attend from the query to the key and value.

        Args:
            query: ``(B, L, embed_dim)``.
            key: ``(B, S, kdim)``. Default: the query, which is self-attention.
            value: ``(B, S, vdim)``. Default: the key.
            mask: booleans that broadcast to ``(B, H, L, S)``. True: may attend
                (`torch.nn.MultiheadAttention` means the opposite). With three axes the first
                is that of the heads: of a mask for each sequence, pass ``mask[:, None]``.
            is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``.
            positions: where each token of the query stands, integers ``(L,)`` or ``(B, L)``: for
                sequences that are padded on the left, or several in one. For self-attention;
                masks and ``is_causal`` go by the order of the tokens all the same.
            return_weights: also return the weights of every head, if attend can.
            cache: holds the keys and values of earlier tokens, and takes in those of this call:
                S then counts all of them. One for each layer, for causal self-attention. If it
                has sinks, positions are those among the S keys: nothing stands between the
                sinks and the window. With linear attention a `mhattn.core.LinearState` holds
                their sums: S, and so the mask, then counts the keys of this call.

        Returns:
            ``(B, L, embed_dim)``, or that and the weights as they were applied,
            ``(B, H, L, S)``.

        Raises:
            TypeError: an input is not a tensor of floats of the parameters' dtype, mask not of
                booleans, or positions not of integers.
            ValueError: the shapes do not fit, there is a value but no key, positions or a cache
                beside a key of its own, a cache without ``is_causal`` or with another layer's
                tokens, or something is asked of attend that it can't do.
        """
        check_inputs(self, query, key, value, positions, cache, is_causal)
        key = query if key is None else key
        value = key if value is None else value
        check.sequence("query", query, "embed_dim", self.embed_dim, self.q_proj)
        check.sequence("key", key, "kdim", self.kdim, self.k_proj)
        check.sequence("value", value, "vdim", self.vdim, self.v_proj)
        query = split_heads(self.q_proj(query), self.num_heads)  # (B, H, L, D)
        key = split_heads(self.k_proj(key), self.num_kv_heads)  # (B, H_kv, S, D)
        value = split_heads(self.v_proj(value), self.num_kv_heads)  # (B, H_kv, S, D)
        if self.position is not None:
            start = 0 if cache is None else cache.seen  # position of the first key
            given = {} if positions is None else {"positions": positions}
            query = self.position.rotate(query, start + key.shape[2] - query.shape[2], **given)
            key = self.position.rotate(key, start, **given)
        key_positions = positions
        if cache is not None:
            keep_to_one_layer(cache, self)
        if cache is not None and not isinstance(cache, LinearState):
            move = None if self.position is None else self.position.move
            key, value = cache.append(key, value, move=move, positions=positions)
            key_positions = cache.positions
        heads, weights = attend_in_heads(
            self,
            (query, key, value),
            None if positions is None or key_positions is None else (positions, key_positions),
            cache,
            Asked(
                mask=mask,
                is_causal=is_causal,
                dropout=self.dropout if self.training else 0.0,
                return_weights=return_weights,
            ),
        )  # (B, H, L, D), (B, H, L, S)
        output: Tensor = self.out_proj(merge_heads(heads))  # (B, L, E)
        return output if weights is None else (output, weights)

    # --8<-- [end:MultiHeadAttention]

    def __setattr__(self, name: str, value: Any) -> None:
        # What attends and the position go together, whenever one of them is set.
        if name in ("attend", "position"):
            parts = {"attend": getattr(self, "attend", attention), name: value}
            parts.setdefault("position", getattr(self, "position", None))
            check_together(self, **parts)
        if name == "attend":
            self.takes = arguments_of(value)
            if not isinstance(value, nn.Module):
                self._modules.pop(name, None)  # torch lets no function take a module's place
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        sizes = ("embed_dim", "num_heads", "num_kv_heads", "head_dim", "dropout")
        names = [f"{name}={getattr(self, name)}" for name in sizes]
        if self.attend is not attention and not isinstance(self.attend, nn.Module):
            names.append(f"attend={name_of(self.attend)}")
        return ", ".join(names)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> Self:
        """Take over PyTorch's module: the same function, with weights of its own.

        Two things stay different. This class puts the batch first, whatever the module's
        ``batch_first``; and its masks are the opposite of the module's: pass ``~mask``.

        Args:
            module: with any ``bias``, ``kdim``, ``vdim``, ``dropout``, dtype and device.

        Returns:
            A new module with copies of the weights, on the same device and with the same
            dtype, in training if the module is.

        Raises:
            TypeError: module is not a `torch.nn.MultiheadAttention`.
            ValueError: it uses ``add_bias_kv`` or ``add_zero_attn``, which have no
                counterpart here.

        Examples:
            >>> theirs = nn.MultiheadAttention(12, 3, batch_first=True)
            >>> ours = MultiHeadAttention.from_torch(theirs)
            >>> x = torch.randn(2, 5, 12)
            >>> torch.allclose(ours(x), theirs(x, x, x)[0], atol=1e-6)
            True
        """
        if not isinstance(module, nn.MultiheadAttention):
            got = type(module).__name__
            raise TypeError(f"module must be a torch.nn.MultiheadAttention, got {got}")
        options = {"add_bias_kv": module.bias_k is not None, "add_zero_attn": module.add_zero_attn}
        for option, used in options.items():
            if used:
                raise ValueError(f"module must not use {option}, got {option}=True")
        ours = cls(
            module.embed_dim,
            module.num_heads,
            kdim=module.kdim,
            vdim=module.vdim,
            bias=module.in_proj_bias is not None,
            dropout=module.dropout,
        )
        ours.to(module.out_proj.weight)
        ours.load_state_dict(to_our_names(module.state_dict()))
        return ours.train(module.training)

    def to_torch(self, *, batch_first: bool = True) -> nn.MultiheadAttention:
        """Hand the weights to PyTorch's module; undoes `from_torch`.

        Args:
            batch_first: whether the result takes ``(B, L, E)`` or ``(L, B, E)``.

        Returns:
            A new module with copies of the weights, on the same device and with the same
            dtype, in training if this one is. Its masks are the opposite: pass ``~mask``.

        Raises:
            ValueError: num_kv_heads is not num_heads, head_dim not embed_dim / num_heads, attend
                not attention, or there is a position, which PyTorch's module does not have.

        Examples:
            >>> MultiHeadAttention(12, 3).to_torch().in_proj_weight.shape
            torch.Size([36, 12])
        """
        if self.num_kv_heads != self.num_heads:
            rule = f"num_kv_heads must be num_heads, {self.num_heads}"
            raise ValueError(f"for PyTorch's module {rule}, got {self.num_kv_heads}")
        if self.head_dim * self.num_heads != self.embed_dim:
            rule = f"head_dim must be embed_dim / num_heads, {self.embed_dim} / {self.num_heads}"
            raise ValueError(f"for PyTorch's module {rule}, got {self.head_dim}")
        if self.attend is not attention:
            got = name_of(self.attend)
            raise ValueError(f"for PyTorch's module attend must be attention, got {got}")
        if self.position is not None:
            got = type(self.position).__name__
            raise ValueError(f"for PyTorch's module position must be None, got {got}")
        theirs = nn.MultiheadAttention(
            self.embed_dim,
            self.num_heads,
            self.dropout,
            bias=self.out_proj.bias is not None,
            kdim=self.kdim,
            vdim=self.vdim,
            batch_first=batch_first,
        )
        theirs.to(self.out_proj.weight)
        theirs.load_state_dict(to_their_names(self.state_dict(), theirs.in_proj_weight is not None))
        return theirs.train(self.training)


# --8<-- [start:attend_in_heads]
def attend_in_heads(
    layer: MultiHeadAttention,
    inputs: tuple[Tensor, Tensor, Tensor],
    positions: Positions | None,
    cache: Cache | None,
    asked: Asked,
) -> tuple[Tensor, Tensor | None]:
    """Let the position attend in its own way, or call the layer's ``attend`` with its bias.

    Returns ``(B, H, L, D)``, and the weights if they were asked for.
    """
    position, (query, key, _) = layer.position, inputs
    if position is not None and position.attend is not None:
        given = {} if positions is None else {"positions": positions}
        attended = position.attend(
            *inputs,
            mask=asked.mask,
            is_causal=asked.is_causal,
            dropout=asked.dropout,
            return_weights=asked.return_weights,
            **given,
        )
    else:
        bias = None if position is None else position.bias_for(query, key, positions=positions)
        earlier = {}
        if isinstance(cache, LinearState):
            earlier = {"state": cache.state, "return_state": True}
        attended = taking_all(layer.attend, layer.takes, **earlier)(
            *inputs,
            mask=asked.mask,
            bias=bias,
            is_causal=asked.is_causal,
            dropout=asked.dropout,
            return_weights=asked.return_weights,
        )
    heads, more = attended if isinstance(attended, tuple) else (attended, None)
    if isinstance(cache, LinearState) and more is not None:
        cache.update(more, key.shape[2])
        return heads, None
    return heads, more

    # --8<-- [end:attend_in_heads]


def reset_module(module: nn.Module) -> None:
    """By its own ``reset_parameters``, or by those of its parts."""
    if callable(reset := getattr(module, "reset_parameters", None)):
        reset()
        return
    for part in module.children():
        reset_module(part)


def check_inputs(
    layer: MultiHeadAttention,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    positions: Tensor | None,
    cache: Cache | None,
    is_causal: bool,
) -> None:
    """That the inputs of a call go together, and with the layer."""
    if key is None and value is not None:
        raise ValueError("value needs a key, got a value and key=None")
    if positions is not None and layer.position is None:
        raise ValueError("positions need a layer with a position, got position=None")
    check.cache_is_causal(cache, is_causal)
    if isinstance(cache, LinearState) and "state" not in layer.takes:
        got = f"attend={name_of(layer.attend)}, got LinearState"
        raise ValueError(f"cache must be a KVCache with {got}")
    if key is not None and key is not query:
        check.only_without_key(cache=cache, positions=positions)


def check_together(
    layer: MultiHeadAttention, attend: Callable[..., Attended], position: Position | None
) -> None:
    """That attend takes the dropout, goes with the position, and both with the layer's heads."""
    takes, name, got = arguments_of(attend), name_of(attend), type(position).__name__
    if not isinstance(position, Position | None):
        raise TypeError(f"position must be a mhattn.core.Position, got {got}")
    if layer.dropout > 0 and "dropout" not in takes:
        raise ValueError(f"dropout must be 0 with attend={name}, got {layer.dropout}")
    check_sizes(layer, "attend", attend, "num_kv_heads")
    check_sizes(layer, "position", position, "num_heads")
    if position is None:
        return
    if position.attend is not None and attend is not attention:
        raise ValueError(f"position must not attend itself with attend={name}, got {got}")
    if type(position).bias_for is not Position.bias_for and "bias" not in takes:
        raise ValueError(f"position must add nothing to the scores with attend={name}, got {got}")


def check_sizes(layer: MultiHeadAttention, name: str, part: Any, heads: str) -> None:
    """That the part was made for heads of this width and number, if it says for which."""
    for size in ("head_dim", heads):
        own, other = getattr(layer, size), getattr(part, size, None)
        if isinstance(other, int) and other != own:
            got = f"{type(part).__name__} with {size}={other}"
            raise ValueError(f"{name} must have the layer's {size}={own}, got {got}")


PROJECTIONS = ("q_proj", "k_proj", "v_proj")


# --8<-- [start:separate]
def to_our_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """From PyTorch's names to ours, where ``in_proj`` is three projections in one."""
    ours: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name.startswith("in_proj_"):
            parts = zip(PROJECTIONS, tensor.chunk(3), strict=True)
            ours |= {f"{proj}.{name.removeprefix('in_proj_')}": part for proj, part in parts}
        else:
            ours[name.replace("_proj_", "_proj.")] = tensor
    return ours
    # --8<-- [end:separate]


# --8<-- [start:fuse]
def to_their_names(state: dict[str, Tensor], fuse_weights: bool) -> dict[str, Tensor]:
    """From our names to PyTorch's."""
    theirs = {name: state[name] for name in state if name.startswith("out_proj.")}
    if fuse_weights:
        theirs["in_proj_weight"] = torch.cat([state[f"{proj}.weight"] for proj in PROJECTIONS])
    else:
        theirs |= {f"{proj}_weight": state[f"{proj}.weight"] for proj in PROJECTIONS}
    if "out_proj.bias" in state:
        theirs["in_proj_bias"] = torch.cat([state[f"{proj}.bias"] for proj in PROJECTIONS])
    return theirs
    # --8<-- [end:fuse]
