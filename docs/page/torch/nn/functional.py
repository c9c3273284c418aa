"""Functions of layers."""

import math
from array import array
from typing import Any

from torch import _kernels, _products, _random, _reductions, _shapes, _state
from torch._autograd import record
from torch._dtypes import BOOL, INT64
from torch._elementwise import unary, where
from torch._factories import full, ones
from torch._tensor import Tensor, new

linear = _products.linear
KERNELS: list[Any] = [None]  # which of torch's kernels may compute attention; None: any
softmax = _reductions.softmax
log_softmax = _reductions.log_softmax


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    return unary("relu", input)


def sigmoid(input: Tensor) -> Tensor:
    return unary("sigmoid", input)


def tanh(input: Tensor) -> Tensor:
    return unary("tanh", input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    return input * unary("sigmoid", input)


def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return unary("softplus", input * beta) / beta


def logsigmoid(input: Tensor) -> Tensor:
    return -unary("softplus", -input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    return where(input > 0, input, alpha * unary("expm1", input))


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    return where(input > 0, input, negative_slope * input)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return 0.5 * input * (1 + (0.7978845608028654 * (input + 0.044715 * input**3)).tanh())
    return unary("gelu", input)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    return 1.0507009873554805 * elu(input, 1.6732632423543772)


def embedding(input: Tensor, weight: Tensor, padding_idx: Any = None, **_: Any) -> Tensor:
    if input.dtype.is_floating_point or input.dtype is BOOL:
        names = {
            "float32": "torch.FloatTensor",
            "float64": "torch.DoubleTensor",
            "bool": "torch.BoolTensor",
        }
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar "
            "types: Long, Int; but got "
            f"{names.get(input.dtype.name, input.dtype.name)} instead (while checking arguments "
            "for embedding)"
        )
    if input.numel() and not (min(input.flat()) >= 0 and max(input.flat()) < weight.shape[0]):
        raise IndexError("index out of range in self")
    made = weight[input] if input.ndim else weight[input.reshape(1)].reshape(weight.shape[1:])
    if made._node is not None:
        made._node._name = "EmbeddingBackward0"
    return made


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    numbers = tensor.flat().tolist()
    size = max(numbers, default=0) + 1 if num_classes == -1 else num_classes
    if any(i < 0 or i >= size for i in numbers):
        raise RuntimeError("Class values must be smaller than num_classes.")
    out = array("q", bytes(8 * size * len(numbers)))
    for at, i in enumerate(numbers):
        out[at * size + i] = 1
    return new(out, (*tensor.shape, size), INT64)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0
    scale = 1 / (1 - p)
    kept = new(
        [scale if keep else 0.0 for keep in _random.kept(input.numel(), 1 - p)],
        input.shape,
        input.dtype,
    )
    return input * kept


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    shape = tuple(normalized_shape)
    if input.shape[len(input.shape) - len(shape) :] != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*, "
            f"{', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )
    m = math.prod(shape)
    normed, scales = _kernels.norm_rows(input.flat(), m, eps)
    lead = input.shape[: input.ndim - len(shape)]
    kept = new(normed, input.shape, input.dtype)
    spread = new(scales, (*lead, *(1 for _ in shape)), input.dtype)
    dims = list(range(len(lead), input.ndim))

    def back(g: Tensor) -> tuple[Tensor]:
        return (spread * (g - g.mean(dims, True) - kept * (g * kept).mean(dims, True)),)

    plain = new(normed, input.shape, input.dtype)
    made = record(plain, "NativeLayerNorm", (input,), back)
    if weight is not None:
        made = made * weight
    if bias is not None:
        made = made + bias
    if made._node is not None:
        made._node._name = "NativeLayerNormBackward0"
    return made


def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    dims = list(range(input.ndim - len(tuple(normalized_shape)), input.ndim))
    eps = {"d": 2.0**-52}.get(input.dtype.code, 2.0**-23) if eps is None else eps
    normed = input * (unary("square", input).mean(dims, True) + eps).rsqrt()
    return normed if weight is None else normed * weight


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    return input / input.norm(p, dim, True).clamp(eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    return (x1 * x2).sum(dim) / (x1.norm(2, dim).clamp(eps) * x2.norm(2, dim).clamp(eps))


def _mean_of(loss: Tensor, reduction: str) -> Tensor:
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean", **_: Any) -> Tensor:
    return _mean_of((input - target).square(), reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", **_: Any) -> Tensor:
    return _mean_of((input - target).abs(), reduction)


def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False, **_: Any
) -> Tensor:
    parts = (
        target.exp() * (target - input) if log_target else -unary("entr", target) - target * input
    )
    return parts.sum() / input.shape[0] if reduction == "batchmean" else _mean_of(parts, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, reduction: str = "mean", **_: Any
) -> Tensor:
    return _mean_of(unary("softplus", input) - input * target, reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    if weight is not None or label_smoothing:
        raise _state.lacking("nn.functional.cross_entropy(weight=…, label_smoothing=…)")
    at = 0 if input.ndim == 1 else 1
    logs = _reductions.log_softmax(input, at)
    if target.dtype.is_floating_point:
        return (
            _mean_of(-(logs * target).sum(at), reduction)
            if reduction != "mean"
            else -(logs * target).sum() / (input.numel() // input.shape[at])
        )
    return nll_loss(logs, target, ignore_index=ignore_index, reduction=reduction)


def nll_loss(
    input: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    weight: Any = None,
) -> Tensor:
    at = 0 if input.ndim == 1 else 1
    expected = (*input.shape[:at], *input.shape[at + 1 :])
    if target.shape != expected:
        if input.ndim == 2 and target.ndim == 1:
            raise ValueError(
                f"Expected input batch_size ({input.shape[0]}) to match target batch_size "
                f"({target.shape[0]})."
            )
        raise RuntimeError(f"Expected target size {list(expected)}, got {list(target.shape)}")
    seen = target != ignore_index
    all_seen = 0 not in seen.flat()
    safe = target if all_seen else target.masked_fill(~seen, 0)
    classes = input.shape[at]
    for number in safe.flat():
        if not 0 <= number < classes:
            raise IndexError(f"Target {number} is out of bounds.")
    losses = -input.gather(at, safe.unsqueeze(at)).squeeze(at)
    if not all_seen:
        losses = losses.masked_fill(~seen, 0.0)
    if reduction == "none":
        return losses
    made = (
        losses.sum()
        if reduction == "sum"
        else losses.sum() / seen.sum().item()
        if not all_seen
        else losses.mean()
    )
    if made._node is not None:
        made._node._name = "NllLossBackward0" if input.ndim < 3 else "NllLoss2DBackward0"
    return made


def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    if mode != "constant":
        raise _state.lacking(f"nn.functional.pad(mode={mode!r})")
    number = 0 if value is None else value
    for i in range(len(pad) // 2):
        at = input.ndim - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        parts = [
            input.narrow(at, max(0, -before), input.shape[at] - max(0, -before) - max(0, -after))
        ]
        for width, place in (before, 0), (after, len(parts) + 1):
            if width > 0:
                shape = [width if d == at else size for d, size in enumerate(parts[0].shape)]
                if place == 0:
                    parts.insert(0, full(tuple(shape), number, dtype=input.dtype))
                else:
                    shape = [width if d == at else size for d, size in enumerate(input.shape)]
                    parts.append(full(tuple(shape), number, dtype=input.dtype))
        input = _shapes.cat(parts, at) if len(parts) > 1 else parts[0].clone()
    return input


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{_name(query)} key.dtype: {_name(key)} and value.dtype: {_name(value)} instead."
        )
    if KERNELS[0] is not None and not KERNELS[0] & {0, 1}:
        raise RuntimeError("No available kernel. Aborting execution.")
    if _state.cast_to[0] is not None:
        query, key, value = (x.to(_state.cast_to[0]) for x in (query, key, value))
    kind = query.dtype
    if kind.shorten:  # as the kernel: 32 bits inside
        query, key, value = query.float(), key.float(), value.float()
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = _products.matmul(query, key.transpose(-2, -1)) * (
        1 / math.sqrt(query.shape[-1]) if scale is None else scale
    )
    if is_causal:
        if attn_mask is not None:
            raise RuntimeError(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
                "is_causal=True"
            )
        attn_mask = ones(*scores.shape[-2:], dtype=BOOL).tril()
    empty = None
    if attn_mask is not None and attn_mask.dtype is BOOL:
        scores = scores.masked_fill(~attn_mask, -math.inf)
        empty = ~attn_mask.any(-1, True)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = _reductions.softmax(scores, -1)
    if empty is not None and 1 in empty.flat():  # a row that may see nothing is zero
        weights = weights.masked_fill(empty, 0.0)
    weights = dropout(weights, dropout_p) if dropout_p else weights
    made = _products.matmul(weights, value)
    if made._node is not None and KERNELS[0] == {1}:
        made._node.back = _once_only(made._node.back)
    if made._node is not None:
        made._node._name = "ScaledDotProductFlashAttentionForCpuBackward0"
    return made.to(kind)


def _once_only(back: Any) -> Any:
    """The fused kernel's gradient has none of its own."""

    def once(g: Tensor) -> Any:
        if _state.grad[0]:
            raise RuntimeError(
                "derivative for aten::_scaled_dot_product_flash_attention_for_cpu_backward is "
                "not implemented"
            )
        return back(g)

    return once


def _name(x: Tensor) -> str:
    return {
        "float32": "float",
        "float64": "double",
        "float16": "c10::Half",
        "bfloat16": "c10::BFloat16",
    }.get(x.dtype.name, x.dtype.name)


def multi_head_attention_forward(*_: Any, **__: Any) -> Any:
    raise _state.lacking("nn.functional.multi_head_attention_forward")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise _state.lacking(f"nn.functional.{name}")
