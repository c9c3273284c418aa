"""Layers."""

from torch import _state as _state
from torch._state import lacking as _lacking
from torch.nn import functional, init
from torch.nn._attention import MultiheadAttention
from torch.nn._containers import ModuleDict, ModuleList, ParameterDict, ParameterList
from torch.nn._layers import (
    GELU,
    BatchNorm1d,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    LayerNorm,
    Linear,
    MSELoss,
    ReLU,
    RMSNorm,
    Sequential,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from torch.nn._module import Module, Parameter
from torch.nn._recurrent import GRU

__all__ = ["Module", "Parameter", "functional", "init"]

Buffer = None


class _Modules:
    """`torch.nn.modules`, as far as somebody asks for classes there."""


def __getattr__(name):
    import importlib

    from torch import _finder

    if name.startswith("__"):
        raise AttributeError(name)
    if _finder.known(f"torch.nn.{name}"):
        return importlib.import_module(f"torch.nn.{name}")
    if name in _TYPES:  # asked with isinstance, never made
        return _finder.placeholder(f"nn.{name}")
    raise _lacking(f"nn.{name}")


_TYPES = {
    "TransformerEncoderLayer",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerDecoder",
    "Transformer",
    "Conv1d",
    "Conv2d",
    "LSTM",
    "RNN",
    "Bilinear",
    "MultiheadAttention",
    "EmbeddingBag",
    "NonDynamicallyQuantizableLinear",
    "DataParallel",
}
