"""The part of torch that this site's pages use, in plain Python, for a reader's browser, where
torch itself is not to be had.

It prints what torch prints: the same shapes, types, views, broadcasting, rounding to 32 bits
after each operation, gradients,
random numbers and error messages, as far as it goes; `tests/site/test_page_torch.py` holds it
against torch. What it lacks
raises an error that names it. The loops over numbers are in `_kernels`, where a page can put
faster ones.
"""

import importlib as _importlib
import math as _math
import sys as _sys
from typing import Any

from torch import (  # the order of imports is that of what they need
    _dtypes,
    _finder,
    _random,
    _state,
)
from torch._autograd import enable_grad, inference_mode, no_grad, set_grad_enabled
from torch._complex import FUNCTIONS as _COMPLEX
from torch._dtypes import dtype, promote_types
from torch._factories import (
    arange,
    as_tensor,
    cartesian_prod,
    combinations,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    logspace,
    meshgrid,
    ones,
    ones_like,
    scalar_tensor,
    tril_indices,
    triu_indices,
    zeros,
    zeros_like,
)
from torch._methods import FUNCTIONS as _FUNCTIONS
from torch._printing import set_printoptions
from torch._random import (
    Generator,
    default_generator,
    manual_seed,
    multinomial,
    normal_of as normal,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
)
from torch._shapes import broadcast_shapes, broadcast_tensors
from torch._state import device
from torch._tensor import Size, Tensor, tensor

__version__ = "2.13.0+page"
inf, nan, pi, e, newaxis = _math.inf, _math.nan, _math.pi, _math.e, None
strided, contiguous_format, preserve_format, channels_last = (
    "torch.strided",
    "contiguous",
    "preserve",
    "channels_last",
)
for _name, _function in (_FUNCTIONS | _COMPLEX).items():
    globals()[_name] = _function
for _name, _kind in _dtypes.DTYPES.items():
    globals()[_name] = _kind
float, double, half, long, int, short = (
    _dtypes.DTYPES[_name] for _name in ("float32", "float64", "float16", "int64", "int32", "int16")
)
from_numpy = tensor


def set_default_dtype(d: Any) -> None:
    """The type of floats whose type nobody named."""
    _dtypes.set_default(d)


get_default_dtype = _dtypes.default


def set_num_threads(number: Any) -> None:
    """A page has one."""


set_num_interop_threads = set_num_threads


def get_num_threads() -> Any:
    return 1


def get_default_device() -> Any:
    return _state.device_of() or _state.CPU


def is_autocast_enabled(device_type: Any = "cpu") -> Any:
    return _state.cast_to[0] is not None


def is_tensor(x: object) -> Any:
    return isinstance(x, Tensor)


def is_grad_enabled() -> Any:
    return _state.grad[0]


def is_inference_mode_enabled() -> Any:
    return False


def use_deterministic_algorithms(mode: Any, **_: Any) -> None:
    """All are."""


def seed() -> Any:
    return default_generator.seed()


def initial_seed() -> Any:
    return default_generator.initial_seed()


def get_rng_state() -> Any:
    return default_generator.get_state()


def set_rng_state(state: Any) -> None:
    default_generator.set_state(state)


def numel(input: Tensor) -> Any:
    return input.numel()


def can_cast(a: Any, b: Any) -> Any:
    return not (a.is_floating_point and not b.is_floating_point)


class finfo:
    """The range of a float type."""

    def __init__(self, kind: Any = None):
        kind = kind or _dtypes.default()
        bits, most = {
            "float64": (52, 1.7976931348623157e308),
            "float32": (23, 3.4028234663852886e38),
        }.get(
            kind.name,
            {"float16": (10, 65504.0), "bfloat16": (7, 3.3895313892515355e38)}.get(
                kind.name, (0, 0.0)
            ),
        )
        self.eps, self.max, self.min, self.bits, self.dtype = (
            2.0**-bits,
            most,
            -most,
            8 * kind.itemsize,
            kind.name,
        )
        self.tiny = self.smallest_normal = {"float64": 2.0**-1022, "float16": 2.0**-14}.get(
            kind.name, 2.0**-126
        )


class iinfo:
    """The range of an integer type."""

    def __init__(self, kind: Any):
        self.bits = 8 * kind.itemsize
        self.max = (1 << self.bits - (1 if kind.is_signed else 0)) - 1
        self.min = -self.max - 1 if kind.is_signed else 0


_finder.install()


def load(f: Any, map_location: Any = None, weights_only: Any = None, **_: Any) -> Any:
    from torch._files import load as of_file

    return of_file(f)


def save(obj: Any, f: Any, **_: Any) -> None:
    from torch._files import save as to_file

    to_file(obj, f)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'torch' has no attribute {name!r}")
    if name in ("vmap", "autocast"):
        return getattr(
            _importlib.import_module("torch.func" if name == "vmap" else "torch.amp"), name
        )
    if _finder.known(f"torch.{name}"):
        return _importlib.import_module(f"torch.{name}")
    if name in _TYPES:
        return _finder.placeholder(name)
    raise _state.lacking(name)


# Asked for in annotations and with isinstance; nothing is ever one of them.
_TYPES = [
    "SymInt",
    "SymFloat",
    "SymBool",
    "ScriptModule",
    "Stream",
    "Event",
    "Storage",
    "UntypedStorage",
    "TypedStorage",
    "layout",
    "memory_format",
    "FloatTensor",
    "LongTensor",
    "BoolTensor",
    "DoubleTensor",
    "HalfTensor",
    "IntTensor",
    "ByteTensor",
]


from torch import autograd, nn, optim, random
from torch.nn.functional import dropout, embedding, layer_norm, relu, rms_norm, selu

_ = _sys
