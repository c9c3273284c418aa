"""Files that `torch.save` wrote: a zip of a pickle and the numbers."""

import io
import pickle
import zipfile
from array import array
from collections import OrderedDict
from typing import Any

from torch._dtypes import DTYPES, dtype
from torch._state import lacking
from torch._tensor import Tensor, new, view_of

__all__ = ["load", "save"]

STORED = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}


def _tensor(
    stored: Tensor,
    offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool = False,
    hooks: Any = None,
    *_: Any,
) -> Tensor:
    made = view_of(stored, size, stride, offset)
    made._base = None
    return made.requires_grad_() if requires_grad else made


def _parameter(data: Tensor, requires_grad: bool, hooks: Any) -> Any:
    from torch.nn import Parameter

    return Parameter(data, requires_grad)


class _Reader(pickle.Unpickler):
    """Makes tensors and plain things, and nothing else that a file may name."""

    def __init__(self, text: bytes, numbers: Any):
        super().__init__(io.BytesIO(text))
        self.numbers = numbers
        self.known: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _parameter
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in STORED:
            return DTYPES[STORED[name]]
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if module == "torch" and name == "Size":
            from torch._tensor import Size

            return Size
        raise pickle.UnpicklingError(f"Unsupported global: {module}.{name}")

    def persistent_load(self, pid: Any) -> Tensor:
        _, kind, key, _, count = pid
        if key not in self.known:
            self.known[key] = new(_numbers(self.numbers(key), kind), (count,), kind)
        return self.known[key]


def _numbers(raw: bytes, kind: dtype) -> array:
    if kind.name == "float16":
        import struct

        return array("f", struct.unpack(f"<{len(raw) // 2}e", raw))
    if kind.name == "bfloat16":
        bits = array("I", [half << 16 for half in array("H", raw)])
        return array("f", bits.tobytes())
    return array(kind.code, raw)


def load(f: Any) -> Any:
    """What is in a file."""
    with zipfile.ZipFile(f) as file:
        (pickled,) = [name for name in file.namelist() if name.endswith("/data.pkl")]
        folder = pickled.removesuffix("data.pkl")
        return _Reader(file.read(pickled), lambda key: file.read(f"{folder}data/{key}")).load()


def save(obj: Any, f: Any) -> None:
    raise lacking("save")
