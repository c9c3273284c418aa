"""Other shapes of the same numbers, broadcasting, and tensors put together."""

import math
from array import array
from collections.abc import Sequence
from itertools import chain, repeat as repeat_
from typing import Any

from torch import _kernels, _state
from torch._autograd import record
from torch._dtypes import dtype, keep, promote_types
from torch._tensor import Tensor, contiguous_strides, new, view_of

__all__ = ["broadcast_shapes", "expand", "flat_of", "permute", "reshape", "sum_to"]


def axis(dim: int, ndim: int) -> int:
    """A dim counted from the front, or torch's error."""
    top = max(ndim, 1)
    if not -top <= dim < top:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-top}, {top - 1}], but got "
            f"{dim})"
        )
    return dim % top


def sizes(asked: tuple[Any, ...]) -> list[int]:
    """The sizes of `view(2, 3)` or `view((2, 3))`."""
    if (
        len(asked) == 1
        and not isinstance(asked[0], int)
        and not (isinstance(asked[0], Tensor) and not asked[0].ndim)
    ):
        asked = tuple(asked[0])
    return [int(each) for each in asked]


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which all of these are stretched."""
    first = tuple(shapes[0])
    for second in shapes[1:]:
        second = tuple(second)
        if first == second:
            continue
        n = max(len(first), len(second))
        a, b = (1,) * (n - len(first)) + first, (1,) * (n - len(second)) + second
        for i in range(n - 1, -1, -1):
            if a[i] != b[i] and 1 not in (a[i], b[i]):
                raise RuntimeError(
                    f"The size of tensor a ({a[i]}) must match the size of tensor b ({b[i]}) at "
                    "non-singleton "
                    f"dimension {i}"
                )
        first = tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))
    return first


def stretched(flat: array, shape: Sequence[int], to: Sequence[int]) -> array:
    """Numbers of this shape, repeated to fill the larger one."""
    shape, to = tuple(shape), tuple(to)
    shape = (1,) * (len(to) - len(shape)) + shape
    if shape == to:
        return flat
    if len(flat) == 1:
        return flat * math.prod(to)
    if _kernels.has("strided"):
        steps = contiguous_strides(shape)
        steps = tuple(
            0 if size != new else step for size, new, step in zip(shape, to, steps, strict=True)
        )
        return _kernels.strided(flat, to, steps, 0)
    inner, at = 1, len(to) - 1
    while at >= 0:
        if shape[at] == to[at]:
            inner *= to[at]
            at -= 1
            continue
        times = 1  # neighbouring axes of size one are stretched together
        while at >= 0 and shape[at] == 1:
            times *= to[at]
            at -= 1
        if inner == 1:
            flat = array(flat.typecode, chain.from_iterable(map(repeat_, flat, repeat_(times))))
        elif inner == len(flat):
            flat = flat * times
        else:
            out = array(flat.typecode)
            for i in range(0, len(flat), inner):
                out += flat[i : i + inner] * times
            flat = out
        inner *= times
    return flat


def flat_of(x: Tensor, shape: Sequence[int]) -> array:
    """The tensor's numbers, broadcast to the shape."""
    return x.flat() if x.shape == tuple(shape) else stretched(x.flat(), x.shape, shape)


def sum_to(g: Tensor, shape: Sequence[int]) -> Tensor:
    """What a gradient is for that which was broadcast."""
    shape = tuple(shape)
    if g.shape == shape:
        return g
    lead = g.ndim - len(shape)
    dims = [
        *range(lead),
        *(i + lead for i, size in enumerate(shape) if size == 1 and g.shape[i + lead] != 1),
    ]
    if dims:
        g = g.sum(dims, keepdim=True)
    return g.reshape(shape)


# views


def _strides_for(x: Tensor, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The strides with which the same memory has another shape; None where there are none."""
    if x.is_contiguous():
        return contiguous_strides(tuple(shape))
    if x.numel() == 0:
        return contiguous_strides(tuple(shape))
    found: list[int] = []
    at = len(shape) - 1
    chunk, base = 1, x._strides[-1]
    for i in range(x.ndim - 1, -1, -1):
        chunk *= x.shape[i]
        if i == 0 or (x.shape[i - 1] != 1 and x._strides[i - 1] != chunk * base):
            room = 1
            while at >= 0 and (room < chunk or shape[at] == 1):
                found.append(room * base)
                room *= shape[at]
                at -= 1
            if room != chunk:
                return None
            if i:
                chunk, base = 1, x._strides[i - 1]
    return tuple(reversed(found)) if at < 0 else None


def _filled(x: Tensor, asked: list[int]) -> list[int]:
    """The sizes, with -1 worked out."""
    count = x.numel()
    if -1 in asked:
        at = asked.index(-1)
        rest = math.prod(size for i, size in enumerate(asked) if i != at)
        if rest <= 0 or count % rest or asked.count(-1) > 1:
            raise RuntimeError(f"shape '{asked}' is invalid for input of size {count}")
        asked = [*asked[:at], count // rest, *asked[at + 1 :]]
    if math.prod(asked) != count:
        raise RuntimeError(f"shape '{asked}' is invalid for input of size {count}")
    return asked


def view(x: Tensor, *shape: Any) -> Tensor:
    if len(shape) == 1 and isinstance(shape[0], dtype):
        return _as_type(x, shape[0])
    asked = _filled(x, sizes(shape))
    strides = _strides_for(x, asked)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        )
    before = x.shape
    return record(
        view_of(x, asked, strides, x._offset), "View", (x,), lambda g: (reshape(g, before),)
    )


def _as_type(x: Tensor, kind: dtype) -> Tensor:
    if kind.itemsize != x.dtype.itemsize or kind.shorten or x.dtype.shorten:
        raise _state.lacking("Tensor.view(dtype) between types of other sizes")
    return new(array(kind.code, x.flat().tobytes()), x.shape, kind)


def reshape(x: Tensor, *shape: Any) -> Tensor:
    asked = _filled(x, sizes(shape))
    strides = _strides_for(x, asked)
    before = x.shape
    if strides is None:
        made = new(x.flat()[:], asked, x.dtype)
        return record(made, "UnsafeView", (x,), lambda g: (reshape(g, before),))
    return record(
        view_of(x, asked, strides, x._offset), "View", (x,), lambda g: (reshape(g, before),)
    )


def permute(x: Tensor, *dims: Any) -> Tensor:
    order = [axis(d, x.ndim) for d in sizes(dims)]
    if sorted(order) != list(range(x.ndim)):
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            "length of the desired "
            f"ordering of dimensions i.e. input.dim() = {x.ndim} is not equal to len(dims) = "
            f"{len(order)}"
        )
    back = [order.index(i) for i in range(x.ndim)]
    made = view_of(x, [x.shape[d] for d in order], [x._strides[d] for d in order], x._offset)
    return record(made, "Permute", (x,), lambda g: (permute(g, back),))


def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    a, b = axis(dim0, x.ndim), axis(dim1, x.ndim)
    shape, strides = list(x.shape), list(x._strides)
    if x.ndim:
        shape[a], shape[b], strides[a], strides[b] = shape[b], shape[a], strides[b], strides[a]
    return record(
        view_of(x, shape, strides, x._offset), "Transpose", (x,), lambda g: (transpose(g, a, b),)
    )


def t(x: Tensor) -> Tensor:
    if x.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.ndim}D")
    if x.ndim < 2:
        return x
    made = view_of(x, x.shape[::-1], x._strides[::-1], x._offset)
    return record(made, "T", (x,), lambda g: (t(g),))


def mT(x: Tensor) -> Tensor:
    if x.ndim < 2:
        raise RuntimeError(
            f"tensor.mT is only supported on matrices or batches of matrices. Got {x.ndim}-D "
            "tensor."
        )
    return transpose(x, -2, -1)


def movedim(x: Tensor, source: Any, destination: Any) -> Tensor:
    pairs = (
        [source] if isinstance(source, int) else list(source),
        ([destination] if isinstance(destination, int) else list(destination)),
    )
    starts, ends = ([axis(d, x.ndim) for d in part] for part in pairs)
    rest = iter([d for d in range(x.ndim) if d not in starts])
    where = dict(zip(ends, starts, strict=True))
    return permute(x, [where[d] if d in where else next(rest) for d in range(x.ndim)])


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    at = axis(dim, x.ndim + 1)
    shape, strides = list(x.shape), list(x._strides)
    step = shape[at] * strides[at] if at < x.ndim else 1
    shape.insert(at, 1)
    strides.insert(at, step)
    return record(
        view_of(x, shape, strides, x._offset), "Unsqueeze", (x,), lambda g: (squeeze(g, at),)
    )


def squeeze(x: Tensor, dim: Any = None) -> Tensor:
    dims = (
        range(x.ndim)
        if dim is None
        else [axis(d, x.ndim) for d in ([dim] if isinstance(dim, int) else dim)]
    )
    kept = [i for i in range(x.ndim) if not (i in dims and x.shape[i] == 1)]
    before = x.shape
    made = view_of(x, [x.shape[i] for i in kept], [x._strides[i] for i in kept], x._offset)
    return record(made, "Squeeze", (x,), lambda g: (reshape(g, before),))


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    if not x.ndim:
        return reshape(x, 1)
    a, b = axis(start_dim, x.ndim), axis(end_dim, x.ndim)
    if a > b:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if a == b:
        return x
    return reshape(x, *x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :])


def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    at = axis(dim, x.ndim)
    inner = list(sizes)
    known = math.prod(size for size in inner if size != -1)
    if (-1 in inner and (not known or x.shape[at] % known)) or (
        -1 not in inner and known != x.shape[at]
    ):
        raise RuntimeError(
            f"unflatten: Provided sizes {inner} don't multiply up to the size of dim {at} "
            f"({x.shape[at]}) in the input "
            "tensor"
        )
    inner = [x.shape[at] // known if size == -1 else size for size in inner]
    return view(x, *x.shape[:at], *inner, *x.shape[at + 1 :])


def expand(x: Tensor, *shape: Any) -> Tensor:
    asked = sizes(shape)
    lead = len(asked) - x.ndim
    if lead < 0:
        raise RuntimeError(
            f"expand(torch.{x.dtype.name}{{{list(x.shape)}}}, size={asked}): the number of sizes "
            "provided "
            f"({len(asked)}) must be greater or equal to the number of dimensions in the tensor "
            f"({x.ndim})"
        )
    strides = [0] * lead
    for i, (size, stride) in enumerate(zip(x.shape, x._strides, strict=True), lead):
        if asked[i] == -1:
            asked[i] = size
        if asked[i] != size and size != 1:
            raise RuntimeError(
                f"The expanded size of the tensor ({asked[i]}) must match the existing size "
                f"({size}) at non-singleton "
                f"dimension {i}.  Target sizes: {asked}.  Tensor sizes: {list(x.shape)}"
            )
        strides.append(stride if asked[i] == size else 0)
    before = x.shape
    return record(
        view_of(x, asked, strides, x._offset), "Expand", (x,), lambda g: (sum_to(g, before),)
    )


def broadcast_to(x: Tensor, shape: Any) -> Tensor:
    return expand(x, *shape)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    shape = broadcast_shapes(*(x.shape for x in tensors))
    return tuple(expand(x, *shape) for x in tensors)


def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    at = axis(dim, x.ndim)
    start = int(start) % x.shape[at] if start < 0 else int(start)
    if start + length > x.shape[at]:
        raise RuntimeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({x.shape[at]})."
        )
    return x[(slice(None),) * at + (slice(start, start + length),)]


def select(x: Tensor, dim: int, index: int) -> Tensor:
    return x[(slice(None),) * axis(dim, x.ndim) + (int(index),)]


def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    at = axis(dim, x.ndim)
    lead = (slice(None),) * at
    return tuple(x[(*lead, i)] for i in range(x.shape[at]))


def split(x: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    at = axis(dim, x.ndim)
    size = x.shape[at]
    if isinstance(split_size_or_sections, int):
        step = split_size_or_sections
        lengths = [min(step, size - i) for i in range(0, size, step)] if size else [0]
    else:
        lengths = list(split_size_or_sections)
        if sum(lengths) != size:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's "
                "size at dimension "
                f"{at}), but got split_sizes={lengths}"
            )
    lead, found, start = (slice(None),) * at, [], 0
    for length in lengths:
        found.append(x[(*lead, slice(start, start + length))])
        start += length
    return tuple(found)


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    return split(x, max(1, -(-x.shape[axis(dim, x.ndim)] // chunks)), dim)


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    a, b = axis(dim1, x.ndim), axis(dim2, x.ndim)
    rows, columns = x.shape[a], x.shape[b]
    count = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    start = x._offset + (offset * x._strides[b] if offset > 0 else -offset * x._strides[a])
    rest = [i for i in range(x.ndim) if i not in (a, b)]
    shape, strides = (
        [*(x.shape[i] for i in rest), count],
        [*(x._strides[i] for i in rest), x._strides[a] + x._strides[b]],
    )
    before = x.shape

    def back(g: Tensor) -> tuple[Tensor]:
        whole = new([0] * math.prod(before), before, g.dtype)
        diagonal(whole, offset, a, b).write(g.flat())
        return (whole,)

    return record(view_of(x, shape, strides, start if count else x._offset), "Diagonal", (x,), back)


def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    at = axis(dimension, x.ndim)
    shape, strides = list(x.shape), list(x._strides)
    count = (shape[at] - size) // step + 1
    shape[at], strides[at] = count, x._strides[at] * step
    made = view_of(x, [*shape, size], [*strides, x._strides[at]], x._offset)
    before = x.shape

    def back(g: Tensor) -> tuple[Tensor]:
        whole = new([0] * math.prod(before), before, g.dtype)
        for i, piece in enumerate(unbind(g, at)):
            part = (slice(None),) * at + (slice(i * step, i * step + size),)
            whole[part] = whole[part] + movedim(piece, -1, at)
        return (whole,)

    return record(made, "Unfold", (x,), back)


def as_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    return view_of(x, size, stride, x._offset if storage_offset is None else storage_offset)


# put together


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    tensors = [x for x in tensors if x.shape != (0,)] or list(tensors)[:1]
    if not tensors:
        raise RuntimeError("torch.cat(): expected a non-empty list of Tensors")
    first = tensors[0]
    if not first.ndim:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    at = axis(dim, first.ndim)
    kind = first.dtype
    for i, x in enumerate(tensors):
        kind = promote_types(kind, x.dtype)
        if x.ndim != first.ndim:
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {first.ndim} and {x.ndim}"
            )
        for d in range(first.ndim):
            if d != at and x.shape[d] != first.shape[d]:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {at}. Expected size "
                    f"{first.shape[d]} but got "
                    f"size {x.shape[d]} for tensor number {i} in the list."
                )
    lengths = [x.shape[at] for x in tensors]
    shape = (*first.shape[:at], sum(lengths), *first.shape[at + 1 :])
    if any(x._data is None for x in tensors):
        return new(None, shape, kind, next(x._device for x in tensors if x._data is None))
    flats = [x.flat() if x.dtype is kind else keep(kind, x.flat()) for x in tensors]
    outer = math.prod(first.shape[:at])
    blocks = [len(flat) // outer if outer else 0 for flat in flats]
    out = array(kind.code)
    for o in range(outer):
        for flat, block in zip(flats, blocks, strict=True):
            out += flat[o * block : (o + 1) * block]
    return record(new(out, shape, kind), "Cat", tensors, lambda g: split(g, lengths, at))


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    for i, x in enumerate(tensors):
        if x.shape != tensors[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} "
                "at entry 0 and "
                f"{list(x.shape)} at entry {i}"
            )
    at = axis(dim, tensors[0].ndim + 1)
    made = cat([unsqueeze(x, at) for x in tensors], at)
    if made._node is not None:
        made._node._name = "StackBackward0"
    return made


def repeat(x: Tensor, *repeats: Any) -> Tensor:
    times = sizes(repeats)
    lead = len(times) - x.ndim
    if lead < 0:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        )
    shape = (1,) * lead + tuple(x.shape)
    wide = reshape(x, [part for size in shape for part in (1, size)])
    wide = expand(
        wide, [part for size, time in zip(shape, times, strict=True) for part in (time, size)]
    )
    return reshape(wide, [size * time for size, time in zip(shape, times, strict=True)]).clone()


def repeat_interleave(x: Tensor, repeats: Any, dim: int | None = None) -> Tensor:
    if dim is None:
        x, dim = flatten(x), 0
    at = axis(dim, x.ndim)
    counts = repeats.tolist() if isinstance(repeats, Tensor) else repeats
    counts = (
        [counts] * x.shape[at]
        if isinstance(counts, int)
        else counts * (x.shape[at] if len(counts) == 1 else 1)
    )
    index = [i for i, count in enumerate(counts) for _ in range(count)]
    return x[(slice(None),) * at + (index,)]


def flip(x: Tensor, *dims: Any) -> Tensor:
    for d in sizes(dims):
        at = axis(d, x.ndim)
        x = x[(slice(None),) * at + (list(range(x.shape[at] - 1, -1, -1)),)]
    return x


def roll(x: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    if dims is None:
        return reshape(roll(flatten(x), shifts, 0), x.shape)
    pairs = [(shifts, dims)] if isinstance(shifts, int) else list(zip(shifts, dims, strict=True))
    for shift, dim in pairs:
        at = axis(dim if isinstance(dim, int) else dim[0], x.ndim)
        n = x.shape[at]
        x = x[(slice(None),) * at + ([(i - shift) % n for i in range(n)],)]
    return x


def tril(x: Tensor, diagonal: int = 0, upper: bool = False) -> Tensor:
    rows, columns = x.shape[-2:]
    flat, kind = x.flat(), x.dtype
    zero = array(kind.code, [0])
    out = array(kind.code)
    for i in range(len(flat) // columns if columns else 0):
        cut = min(max((i % rows) + diagonal + (0 if upper else 1), 0), columns)
        row = flat[i * columns : (i + 1) * columns]
        out += zero * cut + row[cut:] if upper else row[:cut] + zero * (columns - cut)
    name = "Triu" if upper else "Tril"
    return record(new(out, x.shape, kind), name, (x,), lambda g: (tril(g, diagonal, upper),))


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return tril(x, diagonal, upper=True)


def diag(x: Tensor, diagonal_: int = 0) -> Tensor:
    return diagonal(x, diagonal_).clone() if x.ndim == 2 else diag_embed(x, diagonal_)


def diag_embed(x: Tensor, offset: int = 0) -> Tensor:
    n = x.shape[-1] + abs(offset)
    made = new([0] * (math.prod(x.shape[:-1]) * n * n), (*x.shape[:-1], n, n), x.dtype)
    diagonal(made, offset, -2, -1).write(x.flat())
    return record(made, "DiagEmbed", (x,), lambda g: (diagonal(g, offset, -2, -1),))
