"""A tensor: flat numbers, a shape, strides and an offset. Views share the numbers, as in torch.

Operations are functions of other modules; `_methods` hangs them onto the class.
"""

import math
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from torch import _kernels, _state
from torch._dtypes import BOOL, FLOAT32, INT64, default, dtype, keep

__all__ = ["Size", "Tensor", "contiguous_strides", "new", "positions", "tensor", "view_of"]


class Size(tuple):
    """A shape."""

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    __str__ = __repr__

    def numel(self) -> int:
        return math.prod(self)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return Size(found) if isinstance(key, slice) else found

    def __add__(self, other: tuple[int, ...]) -> "Size":
        return Size(tuple(self) + tuple(other))


@lru_cache(4096)
def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor of this shape whose numbers stand row by row."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(size, 1)
    return tuple(reversed(found))


def positions(shape: Sequence[int], strides: Sequence[int], start: int = 0) -> list[int]:
    """Where each number of a view stands among the flat ones."""
    found = [start]
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        steps = [stride * i for i in range(size)]
        found = [at + step for at in found for step in steps]
    return found


class Tensor:
    """Numbers in a shape."""

    requires_grad_flag = False
    grad: "Tensor | None" = None
    _node: Any = None
    _base: "Tensor | None" = None
    __array_priority__ = 1000
    is_cuda = is_sparse = is_quantized = is_mkldnn = is_nested = is_mps = is_xpu = (
        is_complex_flag
    ) = False
    names = property(lambda self: (None,) * self.ndim)
    layout = "torch.strided"
    _backward_hooks: Any = None

    def __new__(cls, *data: Any, **named: Any) -> "Tensor":
        if (data and isinstance(data[0], array)) or (data and data[0] is None and len(data) > 1):
            return object.__new__(cls)
        if cls is not Tensor:
            return object.__new__(cls)
        if len(data) == 1 and not isinstance(data[0], int):
            return tensor(data[0], dtype=default())
        from torch._factories import empty

        return empty(*data)

    def __init__(
        self,
        data: Any = None,
        shape: Any = None,
        kind: dtype = FLOAT32,
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        device: Any = None,
    ):
        if not isinstance(shape, tuple):  # Tensor([1.0, 2.0]) has been made by __new__
            return
        self._data, self.shape, self.dtype, self._offset = data, Size(shape), kind, offset
        self._strides = contiguous_strides(self.shape) if strides is None else strides
        self._device = device

    # what it is

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return math.prod(self.shape)

    nelement = numel

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        return self._strides if dim is None else self._strides[dim]

    def storage_offset(self) -> int:
        return self._offset

    def element_size(self) -> int:
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.numel() * self.dtype.itemsize

    @property
    def device(self) -> Any:
        return self._device or _state.CPU

    @property
    def is_meta(self) -> bool:
        return self._data is None

    def data_ptr(self) -> int:
        return (
            0
            if self._data is None
            else self._data.buffer_info()[0] + self._offset * self._data.itemsize
        )

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return False

    def is_contiguous(self, memory_format: Any = None) -> bool:
        if self._strides == contiguous_strides(self.shape) or 0 in self.shape:
            return True
        pairs = zip(self.shape, self._strides, contiguous_strides(self.shape), strict=True)
        return all(size == 1 or own == right for size, own, right in pairs)

    def flat(self) -> array:
        """All numbers, row by row. Only to be read: it may be the tensor's own memory."""
        data = self._data
        if data is None:
            raise NotImplementedError("a tensor on the device meta has a shape, but no numbers")
        count = math.prod(self.shape)
        if self.is_contiguous():
            if count == len(data):
                return data
            return data[self._offset : self._offset + count]
        if count == 0:
            return array(self.dtype.code)
        return _kernels.strided(data, tuple(self.shape), self._strides, self._offset)

    def write(self, numbers: Iterable[Any]) -> None:
        """Put numbers of its own type, row by row, into its memory."""
        data = self._data
        count = math.prod(self.shape)
        if self.is_contiguous():
            new = numbers if isinstance(numbers, array) else array(self.dtype.code, numbers)
            memoryview(data)[self._offset : self._offset + count] = memoryview(new)
            return
        for at, number in zip(
            positions(self.shape, self._strides, self._offset), numbers, strict=True
        ):
            data[at] = number

    # out of it

    def item(self) -> Any:
        if self.numel() != 1:
            raise RuntimeError(
                f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
            )
        if self._data is None:
            raise RuntimeError("Tensor.item() cannot be called on meta tensors")
        number = self._data[self._offset]
        return bool(number) if self.dtype is BOOL else number

    def tolist(self) -> Any:
        numbers = self.flat().tolist()
        if self.dtype is BOOL:
            numbers = list(map(bool, numbers))
        if not self.shape:
            return numbers[0]
        for size in reversed(self.shape[1:]):
            count = math.prod(self.shape) // size if size else 0
            if not size:  # empty lists, as many as the axes before have places
                return _empty(self.shape)
            numbers = [numbers[i : i + size] for i in range(0, len(numbers), size)]
            del count
        return numbers

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def _one(self) -> Any:
        if self.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return self.item()

    def __float__(self) -> float:
        return float(self._one())

    def __int__(self) -> int:
        return int(self._one())

    def __index__(self) -> int:
        if self.dtype.is_floating_point or self.numel() != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.numel() > 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        if not self.numel():
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
        return bool(self.item())

    def __contains__(self, number: Any) -> bool:
        return bool((self == number).any())

    def __format__(self, form: str) -> str:
        return format(self.item(), form) if not self.shape else object.__format__(self, form)

    def __round__(self, digits: int = 0) -> "Tensor":
        return self.round(decimals=digits or 0)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        from torch._printing import text

        return text(self)

    def __reduce__(self) -> Any:
        return _rebuilt, (
            type(self),
            self.flat()[:],
            tuple(self.shape),
            self.dtype,
            self.requires_grad,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tensor":
        if id(self) in memo:
            return memo[id(self)]
        if self._node is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment"
            )
        data = None if self._data is None else self.flat()[:]
        copied = _rebuilt(
            type(self), data, tuple(self.shape), self.dtype, self.requires_grad, self._device
        )
        if self.grad is not None:
            copied.grad = self.grad.clone()
        memo[id(self)] = copied
        return copied

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))

    # gradients

    @property
    def requires_grad(self) -> bool:
        return self.requires_grad_flag or self._node is not None

    @requires_grad.setter
    def requires_grad(self, on: bool) -> None:
        self.requires_grad_(on)

    def requires_grad_(self, on: bool = True) -> "Tensor":
        if on and not self.dtype.is_floating_point:
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        if not on and self._node is not None:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in "
                "a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        self.requires_grad_flag = bool(on)
        return self

    @property
    def is_leaf(self) -> bool:
        return self._node is None

    @property
    def grad_fn(self) -> Any:
        return self._node

    @property
    def data(self) -> "Tensor":
        return self.detach()

    @data.setter
    def data(self, other: "Tensor") -> None:
        self._data, self.shape, self.dtype = other._data, other.shape, other.dtype
        self._strides, self._offset, self._device = other._strides, other._offset, other._device


def _empty(shape: Sequence[int]) -> list[Any]:
    return [] if not shape or not shape[0] else [_empty(shape[1:]) for _ in range(shape[0])]


def _rebuilt(
    cls: type,
    data: Any,
    shape: tuple[int, ...],
    kind: dtype,
    requires_grad: bool,
    device: Any = None,
) -> Any:
    made = object.__new__(cls)
    Tensor.__init__(made, data, shape, kind, device=device)
    if requires_grad:
        made.requires_grad_flag = True
    return made


def new(data: Any, shape: Sequence[int], kind: dtype, device: Any = None) -> Tensor:
    """A tensor of flat numbers, which become an array of its type if they aren't one."""
    made = object.__new__(Tensor)
    if data is not None and not (
        isinstance(data, array) and data.typecode == kind.code and not kind.shorten
    ):
        data = keep(kind, data)
    made._data, made.shape, made.dtype, made._offset = data, Size(shape), kind, 0
    made._strides, made._device = contiguous_strides(made.shape), device
    return made


def view_of(base: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
    """A tensor over the same numbers."""
    made = object.__new__(Tensor)
    made._data, made.shape, made.dtype, made._offset = base._data, Size(shape), base.dtype, offset
    made._strides, made._device = tuple(strides), base._device
    made._base = base if base._base is None else base._base
    return made


def _nested(values: Any, shape: list[int], depth: int, flat: list[Any]) -> None:
    if isinstance(values, Tensor):
        values = values.tolist() if values.shape else values.item()
    elif hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, (list, tuple, range)):
        if isinstance(values, str) and not shape:
            raise TypeError("new(): invalid data type 'str'")
        if depth != len(shape):
            raise ValueError(
                f"expected sequence of length {shape[depth]} at dim {depth} (got "
                f"{type(values).__name__})"
            )
        if not isinstance(values, (int, float)):
            if hasattr(values, "item"):
                values = values.item()
            elif isinstance(values, str):
                raise ValueError(f"too many dimensions '{type(values).__name__}'")
            else:
                raise RuntimeError(f"Could not infer dtype of {type(values).__name__}")
        flat.append(values)
        return
    if depth == len(shape):
        if flat:
            raise TypeError(f"not a sequence at dim {depth}")
        shape.append(len(values))
    if len(values) != shape[depth]:
        raise ValueError(
            f"expected sequence of length {shape[depth]} at dim {depth} (got {len(values)})"
        )
    if (
        values
        and type(values[0]) is float
        and set(map(type, values)) == {float}
        and depth == len(shape) - 1
    ):
        flat += values
        return
    for each in values:
        _nested(each, shape, depth + 1, flat)


def tensor(
    data: Any, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of nested lists."""
    device = _state.device_of(device)
    if isinstance(data, Tensor):
        made = data.detach().clone()
        made = made if dtype is None else made.to(dtype)
    else:
        shape: list[int] = []
        flat: list[Any] = []
        _nested(data, shape, 0, flat)
        kinds = set(map(type, flat))
        if dtype is None:
            inner = _first_tensor(data)
            floats = any(issubclass(kind, float) for kind in kinds) or not flat
            dtype = inner or (default() if floats else BOOL if kinds == {bool} else INT64)
        made = new(
            keep(dtype, flat, cast=kinds != {float} or not dtype.is_floating_point), shape, dtype
        )
    if device is not None and device.type == "meta":
        made._data, made._device = None, device
    return made.requires_grad_() if requires_grad else made


def _first_tensor(data: Any) -> dtype | None:
    """The type of tensors in a list, which a float of Python beside them does not widen."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return data.dtype if isinstance(data, Tensor) else None
