"""From many key-value heads to few."""

import copy

from torch import Tensor

from mhattn.core import checks as check
from mhattn.core.modules import MultiHeadAttention

__all__ = ["pool_kv_heads"]


# --8<-- [start:pool_kv_heads]
def pool_kv_heads(module: MultiHeadAttention, num_kv_heads: int) -> MultiHeadAttention:
    """Make a layer with fewer key-value heads, the means of groups of heads.

    Neighbouring heads form a group: exactly those whose query heads will share the new
    head. It is how Ainslie et al. (2023), https://arxiv.org/abs/2305.13245, turn a trained
    model into a grouped one, before training it on. If the heads of a group are equal
    already, the new layer computes the same as the old one.

    Args:
        module: a layer with any number of key-value heads.
        num_kv_heads: how many the new one has; it divides the module's.

    Returns:
        A new module with weights of its own, on the same device and with the same dtype,
        in training if the module is.

    Raises:
        TypeError: module is not a `MultiHeadAttention`, or num_kv_heads not an integer.
        ValueError: num_kv_heads does not divide the module's, or is less than 1.

    Examples:
        Four key heads of width 1, whose only rows are full of 0, 1, 2 and 3.

        >>> module = MultiHeadAttention(embed_dim=4, num_heads=4)
        >>> for head, row in enumerate(module.k_proj.weight.data):
        ...     _ = row.fill_(head)
        >>> pool_kv_heads(module, num_kv_heads=2).k_proj.weight.tolist()
        [[0.5, 0.5, 0.5, 0.5], [2.5, 2.5, 2.5, 2.5]]
    """
    if not isinstance(module, MultiHeadAttention):
        got = type(module).__name__
        raise TypeError(f"module must be a MultiHeadAttention, got {got}")
    check.at_least("num_kv_heads", num_kv_heads, 1)
    theirs = "the module's num_kv_heads", module.num_kv_heads
    check.divides("num_kv_heads", num_kv_heads, *theirs)
    state = module.state_dict()
    for name, rows in state.items():
        if name.startswith(("k_proj.", "v_proj.")):  # weight and bias
            state[name] = mean_heads(rows, num_kv_heads, module.head_dim)
    pooled = MultiHeadAttention(
        module.embed_dim,
        module.num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=module.head_dim,
        kdim=module.kdim,
        vdim=module.vdim,
        bias=module.out_proj.bias is not None,
        dropout=module.dropout,
        attend=copy.deepcopy(module.attend),
        position=copy.deepcopy(module.position),
    )
    pooled.to(module.out_proj.weight)
    pooled.load_state_dict(state)
    return pooled.train(module.training)
    # --8<-- [end:pool_kv_heads]


# --8<-- [start:mean_heads]
def mean_heads(rows: Tensor, num_kv_heads: int, head_dim: int) -> Tensor:
    """Rows of a weight, or entries of a bias: mean over each group of heads."""
    sizes = (num_kv_heads, -1, head_dim)
    groups = rows.unflatten(0, sizes)  # (H_kv, group, D, ...)
    means: Tensor = groups.mean(dim=1)  # (H_kv, D, ...)
    return means.flatten(0, 1)  # (H_kv * D, ...)
    # --8<-- [end:mean_heads]
