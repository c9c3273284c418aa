"""The layers that the pages use."""

import math
from typing import Any

from torch import _factories
from torch._autograd import no_grad
from torch._tensor import Tensor, tensor
from torch.nn import functional as F, init
from torch.nn._containers import Sequential as Sequential
from torch.nn._module import Module, Parameter


class Identity(Module):
    def __init__(self, *_: Any, **__: Any):
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(
            _factories.empty(out_features, in_features, dtype=dtype, device=device)
        )
        if bias:
            self.bias = Parameter(_factories.empty(out_features, dtype=dtype, device=device))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    pass


class Embedding(Module):
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx = (
            num_embeddings,
            embedding_dim,
            padding_idx,
        )
        self.weight = Parameter(
            _factories.empty(num_embeddings, embedding_dim, dtype=dtype, device=device)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True) -> "Embedding":
        made = cls(*embeddings.shape)
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class _Norm(Module):
    def __init__(self, shape: Any, eps: Any, affine: bool, bias: bool, device: Any, dtype: Any):
        super().__init__()
        self.normalized_shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.eps, self.elementwise_affine = eps, affine
        make = (
            Parameter(_factories.ones(*self.normalized_shape, device=device, dtype=dtype))
            if affine
            else None
        )
        self.register_parameter("weight", make)
        if bias:
            self.bias = Parameter(
                _factories.zeros(*self.normalized_shape, device=device, dtype=dtype)
            )

    def reset_parameters(self) -> None:
        if self.elementwise_affine:
            init.ones_(self.weight)
            if getattr(self, "bias", None) is not None:
                init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class LayerNorm(_Norm):
    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(
            normalized_shape, eps, elementwise_affine, elementwise_affine and bias, device, dtype
        )
        if not (elementwise_affine and bias):
            self.register_parameter("bias", None)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bias={self.bias is not None}"


class RMSNorm(_Norm):
    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(normalized_shape, eps, elementwise_affine, False, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)


class BatchNorm1d(Module):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum, self.affine = (
            num_features,
            eps,
            momentum,
            affine,
        )
        self.weight = Parameter(_factories.ones(num_features)) if affine else None
        self.bias = Parameter(_factories.zeros(num_features)) if affine else None
        self.register_buffer("running_mean", _factories.zeros(num_features))
        self.register_buffer("running_var", _factories.ones(num_features))
        self.register_buffer("num_batches_tracked", tensor(0))

    def forward(self, input: Tensor) -> Tensor:
        dims = [0, *range(2, input.ndim)]
        shape = [-1 if d == 1 else 1 for d in range(input.ndim)]
        if self.training:
            mean, var = input.mean(dims), input.var(dims, unbiased=False)
            with no_grad():
                count = input.numel() // input.shape[1]
                spread = var * (count / (count - 1))
                self.running_mean.copy_(
                    (1 - self.momentum) * self.running_mean + self.momentum * mean
                )
                self.running_var.copy_(
                    (1 - self.momentum) * self.running_var + self.momentum * spread
                )
                self.num_batches_tracked += 1
        else:
            mean, var = self.running_mean, self.running_var
        normed = (input - mean.reshape(shape)) / (var.reshape(shape) + self.eps).sqrt()
        return (
            normed
            if self.weight is None
            else normed * self.weight.reshape(shape) + self.bias.reshape(shape)
        )

    def extra_repr(self) -> str:
        options = f"eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
        return f"{self.num_features}, {options}, track_running_stats=True"


class Dropout(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


def _activation(name: str, function: Any) -> Any:
    def forward(self: Module, input: Tensor) -> Tensor:
        return function(input)

    return type(
        name,
        (Module,),
        {
            "forward": forward,
            "__init__": lambda self, *_, **__: Module.__init__(self),
            "__module__": __name__,
        },
    )


ReLU, SiLU, Sigmoid, Tanh = (
    _activation(name, function)
    for name, function in (
        ("ReLU", F.relu),
        ("SiLU", F.silu),
        ("Sigmoid", F.sigmoid),
        ("Tanh", F.tanh),
    )
)


class GELU(Module):
    def __init__(self, approximate: str = "none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Softmax(Module):
    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Flatten(Module):
    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


class CrossEntropyLoss(Module):
    def __init__(self, **options: Any):
        super().__init__()
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(input, target, **self.options)


class MSELoss(Module):
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target)
