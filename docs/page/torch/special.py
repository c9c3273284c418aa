"""`torch.special`, what the pages use of it."""

from typing import Any

from torch import _state
from torch._elementwise import unary
from torch._reductions import log_softmax as log_softmax, logsumexp as logsumexp, softmax as softmax
from torch._tensor import Tensor


def entr(input: Tensor) -> Tensor:
    return unary("entr", input)


def expit(input: Tensor) -> Tensor:
    return unary("sigmoid", input)


def erf(input: Tensor) -> Tensor:
    return unary("erf", input)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise _state.lacking(f"special.{name}")
