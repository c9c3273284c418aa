"""`x[…]`, `x[…] = y`, and what writes into a tensor that is there already."""

import math
from array import array
from collections.abc import Sequence
from typing import Any

from torch import _kernels, _state
from torch._autograd import record
from torch._dtypes import BOOL, INT64
from torch._elementwise import cast, result_type
from torch._shapes import broadcast_shapes, expand, flat_of, sum_to
from torch._tensor import Tensor, contiguous_strides, new, positions, tensor, view_of

__all__ = ["get", "put", "replace"]


def _parts(key: Any, x: Tensor) -> list[Any]:
    """The key as a list, `...` and what is left out written as slices, lists as tensors."""
    parts = list(key) if isinstance(key, tuple) else [key]
    found: list[Any] = []
    for part in parts:
        if isinstance(part, (list, range)) or (
            hasattr(part, "__array__") and not isinstance(part, Tensor)
        ):
            part = tensor(list(part), dtype=None if len(part) else INT64)
        if isinstance(part, Tensor) and not part.ndim and part.dtype is not BOOL:
            part = part if part.dtype.is_floating_point else int(part.item())
        found.append(part)
    taken = sum(_axes(part) for part in found)
    if taken > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    if any(part is Ellipsis for part in found):
        at = next(i for i, part in enumerate(found) if part is Ellipsis)
        found[at : at + 1] = [slice(None)] * (x.ndim - taken)
    else:
        found += [slice(None)] * (x.ndim - taken)
    return found


def _axes(part: Any) -> int:
    """How many axes of the tensor this part of a key is for."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if isinstance(part, Tensor) and part.dtype is BOOL:
        return part.ndim
    return 1


def _view(x: Tensor, parts: list[Any]) -> tuple[Tensor, dict[int, Any]]:
    """What slices, integers and None make of it, and the tensors that are left, by their axis."""
    shape: list[int] = []
    strides: list[int] = []
    offset, at = x._offset, 0
    lists: dict[int, Any] = {}
    for part in parts:
        if part is None:
            shape.append(1)
            strides.append(0 if not shape[1:] else strides[-1] if strides else 0)
            continue
        if isinstance(part, bool) or (
            isinstance(part, Tensor) and part.dtype is BOOL and not part.ndim
        ):
            lists[len(shape)] = tensor([0] if part else [], dtype=INT64)
            shape.append(1)
            strides.append(0)
            continue
        if isinstance(part, Tensor):
            if part.dtype is BOOL:
                for d in range(part.ndim):
                    if part.shape[d] != x.shape[at + d]:
                        raise IndexError(
                            f"The shape of the mask {list(part.shape)} at index {d} does not "
                            "match the shape of the "
                            f"indexed tensor {list(x.shape)} at index {at + d}"
                        )
                places = part.nonzero(as_tuple=True)
            elif part.dtype.is_floating_point:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
            else:
                places = (part,)
            for each in places:
                lists[len(shape)] = each
                shape.append(x.shape[at])
                strides.append(x._strides[at])
                at += 1
            continue
        size, stride = x.shape[at], x._strides[at]
        if isinstance(part, slice):
            start, stop, step = (
                None if v is None else int(v) for v in (part.start, part.stop, part.step)
            )
            if step is not None and step <= 0:
                raise ValueError("step must be greater than zero")
            start, stop, step = slice(start, stop, step).indices(size)
            count = max(0, -(-(stop - start) // step))
            offset += start * stride if count else 0
            shape.append(count)
            strides.append(stride * step)
        else:
            try:
                number = part.__index__()
            except (AttributeError, TypeError):
                raise TypeError(
                    "only integers, slices (`:`), ellipsis (`...`), None and long or byte "
                    "Variables are valid indices "
                    f"(got {type(part).__name__})"
                ) from None
            if not -size <= number < size:
                raise IndexError(
                    f"index {number} is out of bounds for dimension {at} with size {size}"
                )
            offset += (number % size) * stride
        at += 1
    return view_of(x, shape, strides, offset), lists


def _chosen(
    v: Tensor, lists: dict[int, Tensor], strides: Sequence[int], start: int
) -> tuple[list[int], list[int]]:
    """Where what the lists name stands among numbers of these strides, and its shape."""
    dims = sorted(lists)
    together = broadcast_shapes(*(lists[d].shape for d in dims))
    steps = [0] * math.prod(together)
    for d in dims:
        size, stride = v.shape[d], strides[d]
        column = flat_of(lists[d], together)
        for number in column:
            if not -size <= number < size:
                raise IndexError(
                    f"index {number} is out of bounds for dimension {d} with size {size}"
                )
        steps = [
            step + (number % size if number < 0 else number) * stride
            for step, number in zip(steps, column, strict=True)
        ]
    neighbours = dims[-1] - dims[0] == len(dims) - 1
    first = dims[0] if neighbours else 0
    rest = [d for d in range(v.ndim) if d not in lists]
    before, after = [d for d in rest if d < first], [d for d in rest if d >= first]
    shape = [*(v.shape[d] for d in before), *together, *(v.shape[d] for d in after)]
    heads = positions([v.shape[d] for d in before], [strides[d] for d in before], start)
    tails = positions([v.shape[d] for d in after], [strides[d] for d in after])
    return [a + b + c for a in heads for b in steps for c in tails], shape


def get(x: Tensor, key: Any) -> Tensor:
    """`x[key]`: a view where slices and integers do, otherwise a copy."""
    parts = _parts(key, x)
    v, lists = _view(x, parts)
    if lists:
        return _picked(x, v, lists)
    if (x._node is None and not x.requires_grad_flag) or not _state.grad[0]:
        return v
    before, offset, strides = x.shape, v._offset - x._offset, v._strides
    if not x.is_contiguous():  # places are counted among the numbers row by row
        v2, _ = _view(new(x.flat(), x.shape, x.dtype), parts)
        offset, strides = v2._offset, v2._strides
    shape = v.shape

    def back(g: Tensor) -> tuple[Tensor]:
        return (_spread(g, before, shape, strides, offset),)

    return record(v, _name_of(parts), (x,), back)


def _name_of(parts: list[Any]) -> str:
    """What torch calls the last step of such a view."""
    last = [part for part in parts if not (isinstance(part, slice) and part == slice(None))]
    if not last:
        return "Alias"
    return "Unsqueeze" if last[-1] is None else "Slice" if isinstance(last[-1], slice) else "Select"


def _spread(g: Tensor, before: Sequence[int], shape: Any, strides: Any, offset: int) -> Tensor:
    """A gradient of a view as one of the whole, zero elsewhere."""
    count = math.prod(before)
    whole = new(array(g.dtype.code, bytes(count * array(g.dtype.code).itemsize)), before, g.dtype)
    view_of(whole, shape, strides, offset).write(g.flat())
    if g.requires_grad:
        return record(
            whole,
            "SliceBackward",
            (g,),
            lambda h: (view_of(h.contiguous(), shape, strides, offset),),
        )
    return whole


def _picked(x: Tensor, v: Tensor, lists: dict[int, Tensor]) -> Tensor:
    if x._data is None:
        raise NotImplementedError("a tensor on the device meta has no numbers to pick")
    rows = len(lists) == 1 and 0 in lists and v.is_contiguous()
    if rows and v.ndim > 1:  # whole rows, as an embedding takes them
        places = lists[0].flat().tolist()
        size, m = v.shape[0], math.prod(v.shape[1:])
        flat = v.flat()
        for number in places:
            if not -size <= number < size:
                raise IndexError(
                    f"index {number} is out of bounds for dimension 0 with size {size}"
                )
        out = array(x.dtype.code)
        for i in places:
            i %= size
            out += flat[i * m : i * m + m]
        made, index = new(out, (*lists[0].shape, *v.shape[1:]), x.dtype), None
    else:
        index, shape = _chosen(v, lists, v._strides, v._offset)
        data = v._data
        made = new([data[i] for i in index], shape, x.dtype)
    if not x.requires_grad or not _state.grad[0]:
        return made

    def back(g: Tensor) -> tuple[Tensor]:
        whole = array(g.dtype.code, bytes(v.numel() * array(g.dtype.code).itemsize))
        numbers = g.flat()
        if index is None:
            _kernels.add_rows(whole, [i % size for i in places], numbers, m)
        else:
            own, _ = _chosen(v, lists, contiguous_strides(v.shape), 0)
            for i, number in zip(own, numbers, strict=True):
                whole[i] += number
        return (new(whole, v.shape, g.dtype),)

    whole_view = v
    if v.shape != x.shape or v._offset != x._offset or v._strides != x._strides:
        parts_shape, strides, offset = v.shape, v._strides, v._offset - x._offset
        if not x.is_contiguous():
            raise _state.lacking("a gradient of a list of places in a view that is not contiguous")
        before = x.shape
        whole_view = record(
            v, "Slice", (x,), lambda g: (_spread(g, before, parts_shape, strides, offset),)
        )
        return record(made, "Index", (whole_view,), back)
    return record(made, "Index", (x,), back)


def put(x: Tensor, key: Any, value: Any) -> None:
    """`x[key] = value`."""
    v, lists = _view(x, _parts(key, x))
    given = value if isinstance(value, Tensor) else tensor(value, dtype=x.dtype)
    _leaf_check(x)
    if not lists:
        target: Sequence[int] = v.shape
    else:
        places, target = _chosen(v, lists, v._strides, v._offset)
    if given.ndim > len(target):
        extra = given.ndim - len(target)
        if any(size != 1 for size in given.shape[:extra]):
            raise RuntimeError(
                f"shape mismatch: value tensor of shape {list(given.shape)} cannot be broadcast "
                "to indexing result of "
                f"shape {list(target)}"
            )
        given = given.reshape(given.shape[extra:])
    try:
        fits = broadcast_shapes(given.shape, target) == tuple(target)
    except RuntimeError:
        fits = False
    if not fits:
        expand(given, *target)  # says what does not fit
    numbers = flat_of(cast(given.detach(), x.dtype), target)
    if not lists:
        v.write(array(numbers.typecode, numbers) if numbers is x._data else numbers)
        where = None
    else:
        data = x._data
        for i, number in zip(places, numbers, strict=True):
            data[i] = number
        where = places
    if _state.grad[0] and (x.requires_grad or given.requires_grad):
        base = x._base if x._base is not None else x
        where = positions(v.shape, v._strides, v._offset) if where is None else where
        _rebase(base, x, where, target, given)


def _rebase(base: Tensor, x: Tensor, where: list[int], shape: Sequence[int], given: Tensor) -> None:
    """From now on, what was made of the base before, but at these places of what was given."""
    if not base.is_contiguous() or base._offset:
        raise _state.lacking("a gradient through writing into a tensor that is not contiguous")
    shape = tuple(shape)
    old = view_of(base, base.shape, base._strides, base._offset)
    old._node, old.requires_grad_flag = base._node, base.requires_grad_flag

    def back(g: Tensor) -> tuple[Tensor, Tensor | None]:
        numbers = g.flat()
        part = new([numbers[i] for i in where], shape, g.dtype)
        kept = array(numbers.typecode, numbers)
        for i in where:
            kept[i] = 0
        return new(kept, g.shape, g.dtype), sum_to(
            part, given.shape
        ) if given.requires_grad else None

    base._node, base.requires_grad_flag = None, False
    record(base, "CopySlices", (old, given), back)
    if x is not base:
        before, strides, offset, own = base.shape, x._strides, x._offset, x.shape
        x._node = None
        record(x, "AsStrided", (base,), lambda g: (_spread(g, before, own, strides, offset),))


def _leaf_check(x: Tensor) -> None:
    if not _state.grad[0]:
        return
    base = x._base if x._base is not None else x
    if x.requires_grad_flag and x._node is None:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
        )
    if x._base is not None and base.requires_grad_flag and base._node is None:
        raise RuntimeError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation."
        )


def replace(x: Tensor, value: Any) -> Tensor:
    """Write these numbers into the tensor's own memory: what `add_`, `copy_`, `zero_` … come down
    to.
    """
    _leaf_check(x)
    if x._data is None:
        return x
    given = value if isinstance(value, Tensor) else tensor(value, dtype=x.dtype)
    if (
        result_type(given).is_floating_point
        and not x.dtype.is_floating_point
        and given.ndim
        and x.dtype is BOOL
    ):
        given = given != 0
    if broadcast_shapes(given.shape, x.shape) != x.shape:
        raise RuntimeError(
            f"output with shape {list(x.shape)} doesn't match the broadcast shape "
            f"{list(broadcast_shapes(given.shape, x.shape))}"
        )
    numbers = flat_of(cast(given.detach(), x.dtype), x.shape)
    x.write(
        array(numbers.typecode, numbers)
        if numbers is x._data or numbers is given._data
        else numbers
    )
    if _state.grad[0] and (x.requires_grad or given.requires_grad):
        if x._base is None:
            old = view_of(x, x.shape, x._strides, x._offset)
            old._node, old.requires_grad_flag = x._node, x.requires_grad_flag
            x.requires_grad_flag, x._node = False, None
            record(x, "Copy", (old, given), lambda g: (g * 0, sum_to(g, given.shape)))
            if given._node is not None:
                x._node._name = given._node._name
        else:
            _rebase(x._base, x, positions(x.shape, x._strides, x._offset), x.shape, given)
    return x


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any = 1) -> Tensor:
    made = x.clone()
    lead = (slice(None),) * (dim % x.ndim)
    for at, i in enumerate(index.tolist()):
        made[(*lead, i)] = made[(*lead, i)] + alpha * source[(*lead, at)]
    return made


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    return get(
        x, (slice(None),) * (dim % max(x.ndim, 1)) + (index if index.ndim else index.reshape(1),)
    )


def take_along_dim(x: Tensor, indices: Tensor, dim: int) -> Tensor:
    whole = broadcast_shapes(
        [1 if d == dim % x.ndim else size for d, size in enumerate(x.shape)],
        [1 if d == dim % x.ndim else size for d, size in enumerate(indices.shape)],
    )
    wide = [x.shape[d] if d == dim % x.ndim else size for d, size in enumerate(whole)]
    index = [indices.shape[d] if d == dim % x.ndim else size for d, size in enumerate(whole)]
    return expand(x, *wide).gather(dim, expand(indices, *index))
