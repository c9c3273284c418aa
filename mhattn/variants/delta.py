"""The gated delta rule: a state of fixed size that corrects what it holds, and forgets.

Linear attention adds ``k v^T`` to its state. Here each position first lets the whole state fade,
and then writes only the difference between its value and what is stored under its key already.
Yang, Kautz and Hatamizadeh (2024), https://arxiv.org/abs/2412.06464. With chunks of one it is the
recurrence; longer chunks give the same numbers in fewer and larger products.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhattn.core.functional import repeat_heads
from mhattn.core.steps import step
from mhattn.variants import checks as check
from mhattn.variants.linear import chunks

__all__ = ["GatedDelta", "gated_delta_attention"]


@overload
def gated_delta_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    decay: Tensor | float = ...,
    log_decay: Tensor | None = ...,
    beta: Tensor | float = ...,
    erase: bool = ...,
    state: Tensor | None = ...,
    chunk_size: int = ...,
    return_state: Literal[False] = ...,
) -> Tensor: ...
@overload
def gated_delta_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    decay: Tensor | float = ...,
    log_decay: Tensor | None = ...,
    beta: Tensor | float = ...,
    erase: bool = ...,
    state: Tensor | None = ...,
    chunk_size: int = ...,
    return_state: Literal[True],
) -> tuple[Tensor, Tensor]: ...
# --8<-- [start:gated_delta_attention]
def gated_delta_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    decay: Tensor | float = 1.0,
    log_decay: Tensor | None = None,
    beta: Tensor | float = 1.0,
    erase: bool = True,
    state: Tensor | None = None,
    return_state: bool = False,
    chunk_size: int = 64,
) -> Tensor | tuple[Tensor, Tensor]:
    """Read from a state that each position decays, corrects and writes to.

    ``S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T``, read as ``q_t^T S_t``: the gated
    delta rule of Yang, Kautz and Hatamizadeh (2024), https://arxiv.org/abs/2412.06464, whose
    state is the transpose of this one. Causal: a position reads what it and those before wrote.
    Without ``erase`` it is ``S_t = a_t S_{t-1} + b_t k_t v_t^T``, linear attention with a decay.

    Neither features nor a denominator, and no scale. Keys should have length 1: the state can
    grow without bound where ``b_t k_t . k_t`` is above 2. Computed in float32 at least.

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., L, D)``; grouped ``(B, H_kv, L, D)``, repeated for each query head.
        value: floats, ``(..., L, D_v)``; grouped ``(B, H_kv, L, D_v)``.
        decay: ``a_t``, the share of the state that a position keeps, from 0 to 1: a number, or
            floats that broadcast to ``(..., L)``, as the key has heads.
        log_decay: ``log(a_t)`` instead of the decay, for one that is learned: bfloat16 knows no
            number between 0.996 and 1, but the logarithm of 0.999. ``-inf`` clears the state.
        beta: ``b_t``, the share of the difference that is written, likewise. With 0 a position
            writes nothing.
        erase: whether what is stored under the key makes way for the value.
        state: what an earlier call returned, ``(..., D, D_v)``. Default: zeros.
        return_state: also return the state after the last position.
        chunk_size: how many positions are computed at once; no size changes the result, up to
            rounding.

    Returns:
        ``(..., L, D_v)``, dtype of ``query``; or that and the state, ``(..., D, D_v)``.

    Raises:
        TypeError: an input is not a tensor of floats, or decay or beta not a number either, or
            query, key and value differ in dtype.
        ValueError: the shapes do not fit, decay is a number outside of 0 to 1, there is a
            log_decay beside another decay, or chunk_size is less than 1.

    Examples:
        The same key gets 3 and then 5. A sum would answer 8.

        >>> key, value = torch.ones(2, 1), torch.tensor([[3.0], [5.0]])
        >>> gated_delta_attention(key, key, value).flatten().tolist()
        [3.0, 5.0]
    """
    check.query_and_key(query, key)
    check.value(value, key)
    check.as_long_as_key(query, key)
    check.at_least("chunk_size", chunk_size, 1)
    wide = torch.promote_types(query.dtype, torch.float32)
    fading = rate("decay", decay, key, most=1.0)
    if log_decay is not None:
        check_log_decay(log_decay, decay)
        fading = rate("log_decay", log_decay, key)
    rates = fading, rate("beta", beta, key)
    heads = [repeat_heads(x, query).to(wide) for x in (key, value, *rates)]
    shape = (*query.shape[:-2], query.shape[-1], value.shape[-1])  # (..., D, D_v)
    last = query.new_zeros(shape) if state is None else checked(state, shape)
    last, outputs = last.to(wide), []
    for parts in chunks(chunk_size, query.to(wide), *heads):
        output, last = attend_chunk(parts, last, erase, log_decay is not None)
        outputs.append(output)  # (..., C, D_v)
    output = torch.cat(outputs, dim=-2).to(query.dtype)
    return (output, last) if return_state else output
    # --8<-- [end:gated_delta_attention]


step(gated_delta_attention, "mix", in_blocks=True)


# --8<-- [start:attend_chunk]
def attend_chunk(
    parts: Sequence[Tensor], state: Tensor, erase: bool, in_logs: bool
) -> tuple[Tensor, Tensor]:
    """All positions of a chunk at once, from the state before it; their output, the state after it.

    ``since_start[i]`` is what the decays leave of that state at position i, and ``kept[i, j]`` of
    what position j wrote. Position i writes ``k_i u_i^T`` with ``u_i = b_i (v_i - what it reads
    under k_i)``, which depends on the u before: a triangular system.
    """
    query, key, value, decay, beta = parts  # (..., C, ...)
    kept = decays(decay, in_logs)  # (..., C, C)
    first = decay[..., :1, :].exp() if in_logs else decay[..., :1, :]
    since_start = kept[..., :1] * first  # (..., C, 1)
    written = beta * value  # (..., C, D_v)
    if erase:
        stored = since_start * (key @ state)  # (..., C, D_v)
        system = beta * kept * (key @ key.mT)  # (..., C, C): below the diagonal, with ones on it
        written = torch.linalg.solve_triangular(
            system, beta * (value - stored), upper=False, unitriangular=True
        )
    output = since_start * (query @ state) + kept * (query @ key.mT) @ written
    to_last = kept[..., -1:, :].mT  # (..., C, 1)
    return output, since_start[..., -1:, :] * state + (to_last * key).mT @ written
    # --8<-- [end:attend_chunk]


# --8<-- [start:decays]
def decays(decay: Tensor, in_logs: bool = False) -> Tensor:
    """Entry ``[i, j]``: the product of the decays after j up to i; zero where j comes after i.

    Each from its own first factor: no quotient of two small products. Of logarithms, the sum.
    """
    length = decay.shape[-2]
    rows = decay.expand(*decay.shape[:-1], length)  # (..., C, C): row i, a_i
    if in_logs:
        return rows.tril(-1).cumsum(dim=-2).exp().tril()
    below = torch.ones(length, length, dtype=torch.bool, device=decay.device).tril(-1)
    return rows.where(below, 1.0).cumprod(dim=-2).tril()
    # --8<-- [end:decays]


# --8<-- [start:GatedDelta]
class GatedDelta(nn.Module):
    """The gated delta rule as the ``attend`` of a `MultiHeadAttention`, with learned gates.

    Queries and keys get length 1. Decay and beta depend on the token through its key: a sigmoid
    of one linear map of the key for each head. At the start beta is 1/2, and head h decays by
    ``1 - 2^(-5 - h)`` as in RetNet (Sun et al. 2023, https://arxiv.org/abs/2307.08621). Norms and
    gates are computed in float32 at least, and the decay as its logarithm.

    Args:
        num_heads: heads of the key and value, the layer's ``num_kv_heads``.
        head_dim: width of a head.
        chunk_size: how many positions are computed at once.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is less than 1.

    Examples:
        >>> from mhattn import MultiHeadAttention
        >>> from mhattn.core import LinearState
        >>> layer = MultiHeadAttention(12, 3, attend=GatedDelta(3, 4))
        >>> x, cache = torch.randn(2, 5, 12), LinearState()
        >>> layer(x, is_causal=True, cache=cache).shape, cache.state.shape
        (torch.Size([2, 5, 12]), torch.Size([2, 3, 4, 4]))
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        chunk_size: int = 64,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = {"num_heads": num_heads, "head_dim": head_dim, "chunk_size": chunk_size}
        for name, number in sizes.items():
            check.at_least(name, number, 1)
        self.num_kv_heads = num_heads
        self.head_dim = head_dim
        self.chunk_size = chunk_size
        empty = torch.empty(2, num_heads, head_dim, device=device, dtype=dtype)
        self.gates = nn.Parameter(empty)  # of decay and beta
        self.bias = nn.Parameter(empty[..., 0].clone())  # (2, H)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Gates that do not depend on the key yet."""
        nn.init.zeros_(self.gates)
        nn.init.zeros_(self.bias)
        for head in range(self.bias.shape[1]):  # sigmoid(x) = 1 - 2^(-5 - h)
            nn.init.constant_(self.bias[0, head], math.log(2 ** (5 + head) - 1))

    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        is_causal: bool = ...,
        state: Tensor | None = ...,
        return_state: Literal[False] = ...,
    ) -> Tensor: ...
    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        is_causal: bool = ...,
        state: Tensor | None = ...,
        return_state: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        is_causal: bool = True,
        state: Tensor | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Gate, normalise, attend.

        Args:
            query: floats, ``(B, H, L, D)``.
            key: floats, ``(B, H_kv, L, D)``.
            value: floats, ``(B, H_kv, L, D_v)``.
            is_causal: must be True: a state can only be read after it was written.
            state: what an earlier call returned, ``(B, H, D, D_v)``.
            return_state: also return the state.

        Returns:
            ``(B, H, L, D_v)``, or that and the state, ``(B, H, D, D_v)``.

        Raises:
            TypeError: an input is not a tensor of floats.
            ValueError: the shapes do not fit, or is_causal is False.
        """
        if not is_causal:
            raise ValueError(f"with GatedDelta, is_causal must be True, got {is_causal}")
        check.query_and_key(query, key)
        check.value(value, key)
        sizes = key.shape[1], key.shape[-1]
        if sizes != self.gates.shape[1:]:
            rule = f"(H_kv, D) = {tuple(self.gates.shape[1:])}"
            raise ValueError(f"gates must fit the key's heads and width, {rule}, got {sizes}")
        wide = torch.promote_types(key.dtype, torch.float32)  # 1 - 2^-9 is no bfloat16
        q, k, v = (x.to(wide) for x in (query, key, value))
        gates, bias = self.gates.to(wide), self.bias.to(wide)
        logits = torch.einsum("bhld,ghd->gbhl", k, gates) + bias[:, None, :, None]
        output, last = gated_delta_attention(
            F.normalize(q, dim=-1),
            F.normalize(k, dim=-1),
            v,
            log_decay=F.logsigmoid(logits[0]),  # (B, H_kv, L)
            beta=logits[1].sigmoid(),
            state=state,
            return_state=True,
            chunk_size=self.chunk_size,
        )
        output = output.to(query.dtype)
        return (output, last) if return_state else output

    def extra_repr(self) -> str:
        return f"{self.num_kv_heads}, {self.head_dim}, chunk_size={self.chunk_size}"

    # --8<-- [end:GatedDelta]


def rate(name: str, x: Tensor | float, key: Tensor, *, most: float = math.inf) -> Tensor:
    """Decay or beta, one number for each key: ``(..., L, 1)``."""
    if not isinstance(x, Tensor):
        if isinstance(x, bool) or not isinstance(x, (int, float)):
            got = type(x).__name__
            raise TypeError(f"{name} must be a number or a tensor of floats, got {got}")
        if not 0 <= x <= most or x == math.inf:
            rule = "at least 0 and finite" if most == math.inf else f"from 0 to {most:g}"
            raise ValueError(f"{name} must be {rule}, got {x}")
        wide = torch.promote_types(key.dtype, torch.float32)  # 0.999 is no bfloat16
        return torch.full_like(key[..., :1], x, dtype=wide)
    if not x.is_floating_point():
        raise TypeError(f"{name} must be a number or a tensor of floats, got {x.dtype}")
    shape = key.shape[:-1]
    if not check.fits(x.shape, shape):
        rule = f"broadcast to (..., L) = {tuple(shape)}"
        raise ValueError(f"{name} must {rule}, got {tuple(x.shape)}")
    return x.expand(shape)[..., None]


def check_log_decay(log_decay: Any, decay: Tensor | float) -> None:
    if not isinstance(log_decay, Tensor):
        raise TypeError(f"log_decay must be a tensor of floats, got {type(log_decay).__name__}")
    if isinstance(decay, Tensor) or decay != 1:
        got = "a tensor" if isinstance(decay, Tensor) else decay
        raise ValueError(f"with log_decay, decay must be left at 1, got {got}")


def checked(state: Tensor, shape: tuple[int, ...]) -> Tensor:
    check.floats("state", state)
    if state.shape != shape:
        raise ValueError(f"state must be (..., D, D_v) = {shape}, got {tuple(state.shape)}")
    return state
