"""Products of matrices, and what is made of them."""

import math
from collections.abc import Sequence
from typing import Any

from torch import _kernels, _state
from torch._autograd import record
from torch._dtypes import dtype, promote_types
from torch._elementwise import cast
from torch._shapes import broadcast_shapes, expand, permute, reshape, sum_to, transpose
from torch._tensor import Tensor, new

__all__ = ["einsum", "linear", "matmul"]


def _plain(kind: dtype) -> str:
    return {
        "float32": "float",
        "float64": "double",
        "int64": "long int",
        "bfloat16": "c10::BFloat16",
    }.get(kind.name, kind.name)


def _spelt(kind: dtype) -> str:
    return {"float32": "Float", "float64": "Double", "int64": "Long"}.get(
        kind.name, kind.name.capitalize()
    )


def matmul(a: Tensor, b: Tensor) -> Tensor:
    if not a.ndim or not b.ndim:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {a.ndim}D and {b.ndim}D"
        )
    if _state.cast_to[0] is not None:
        a, b = cast(a, _state.cast_to[0]), cast(b, _state.cast_to[0])
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {_plain(a.dtype)} != "
            f"{_plain(b.dtype)}"
            if a.ndim > 1 and b.ndim > 1
            else "dot : expected both vectors to have same dtype, but found "
            f"{_spelt(a.dtype)} and {_spelt(b.dtype)}"
        )
    if a.ndim == 1 and b.ndim == 1:
        if a.shape != b.shape:
            raise RuntimeError(
                f"inconsistent tensor size, expected tensor [{a.shape[0]}] and src "
                f"[{b.shape[0]}] to have the same "
                f"number of elements, but got {a.shape[0]} and {b.shape[0]} elements respectively"
            )
        return _named(reshape(_product(reshape(a, 1, -1), reshape(b, -1, 1)), ()), "Dot")
    if a.ndim == 1:
        if b.ndim == 2 and a.shape[0] != b.shape[0]:
            raise RuntimeError(
                f"size mismatch, got input ({b.shape[1]}), mat ({b.shape[1]}x{b.shape[0]}), vec "
                f"({a.shape[0]})"
            )
        return _named(matmul(a.unsqueeze(0), b).squeeze(-2), "Squeeze")
    if b.ndim == 1:
        if a.ndim == 2 and a.shape[1] != b.shape[0]:
            raise RuntimeError(
                f"size mismatch, got input ({a.shape[0]}), mat ({a.shape[0]}x{a.shape[1]}), vec "
                f"({b.shape[0]})"
            )
        return _named(matmul(a, b.unsqueeze(1)).squeeze(-1), "Mv" if a.ndim == 2 else "View")
    return _product(a, b)


def _named(x: Tensor, name: str) -> Tensor:
    if x._node is not None:
        x._node._name = name + "Backward0"
    return x


def _product(a: Tensor, b: Tensor) -> Tensor:
    n, k, m = a.shape[-2], a.shape[-1], b.shape[-1]
    if b.shape[-2] != k:
        _complain(a, b)
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*lead, n, m)
    kind = promote_types(a.dtype, b.dtype)
    _state.flops[0] += 2 * math.prod(shape) * k
    if a._data is None or b._data is None:
        return new(None, shape, kind, a._device or b._device)
    if b.ndim == 2 and a.ndim > 2:  # one matrix for all: a single product
        numbers = _kernels.matmul_rows(a.flat(), b.flat(), math.prod(a.shape[:-1]), k, m, 1)
    else:
        left = a if a.shape[:-2] == lead else expand(a, *lead, n, k)
        right = b if b.shape[:-2] == lead else expand(b, *lead, k, m)
        numbers = _kernels.matmul_rows(left.flat(), right.flat(), n, k, m, math.prod(lead))
    made = new(numbers, shape, kind)
    name = "Mm" if len(shape) == 2 else "UnsafeView" if b.ndim == 2 or len(shape) > 3 else "Bmm"
    return record(made, name, (a, b), lambda g: _slopes(g, a, b))


def _slopes(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first = second = None
    if a.requires_grad:
        first = sum_to(_product(g, transpose(b, -2, -1)), a.shape)
    if b.requires_grad:
        if b.ndim == 2 and a.ndim > 2:  # all rows at once, not a product for each and their sum
            rows, grads = reshape(a, -1, a.shape[-1]), reshape(g, -1, g.shape[-1])
            second = _product(transpose(rows, 0, 1), grads)
        else:
            second = sum_to(_product(transpose(a, -2, -1), g), b.shape)
    return first, second


def _complain(a: Tensor, b: Tensor) -> None:
    if a.ndim == 3 and b.ndim == 3 and a.shape[0] == b.shape[0]:
        want = [a.shape[0], a.shape[-1]]
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: {want} but got: "
            f"[{b.shape[0]}, {b.shape[1]}]."
        )
    rows = math.prod(a.shape[:-1]) if b.ndim == 2 else a.shape[-2]
    if b.ndim > 2:
        lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        count = math.prod(lead)
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{count}, "
            f"{a.shape[-1]}] but got: "
            f"[{count}, {b.shape[-2]}]."
        )
    raise RuntimeError(
        f"mat1 and mat2 shapes cannot be multiplied ({rows}x{a.shape[-1]} and "
        f"{b.shape[-2]}x{b.shape[-1]})"
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if x.dtype is not weight.dtype and _state.cast_to[0] is None:
        raise RuntimeError(
            f"mat1 and mat2 must have the same dtype, but got {_plain(x.dtype).capitalize()} and "
            f"{_plain(weight.dtype).capitalize()}"
        )
    if x.ndim == 1 and x.shape != weight.shape[-1:]:
        _complain(x.unsqueeze(0), transpose(weight, 0, 1))
    made = matmul(x, transpose(weight, 0, 1) if weight.ndim == 2 else weight)
    if bias is None:
        return made
    return _named(made + bias, "Addmm" if x.ndim == 2 else "View")


def dot(a: Tensor, b: Tensor) -> Tensor:
    if a.ndim != 1 or b.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    return matmul(a, b)


def outer(a: Tensor, b: Tensor) -> Tensor:
    return a[:, None] * b[None, :]


def einsum(equation: str, *operands: Any) -> Tensor:
    """Each operand in the axes that its letters name, multiplied, and summed over those that the
    result lacks.
    """
    if len(operands) == 1 and not isinstance(operands[0], Tensor):
        operands = tuple(operands[0])
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise RuntimeError(
            "einsum(): more operands were provided than specified in the equation"
            if len(operands) > len(terms)
            else "einsum(): fewer operands were provided than specified in the equation"
        )
    terms, most = _spelt_out(terms, operands)
    dots = "".join(chr(0x2460 + i) for i in range(20 - most, 20))
    if not arrow:
        letters = "".join(terms)
        right = dots + "".join(
            sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots)
        )
    right = right.replace("...", dots)
    size: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        for letter, n in zip(term, x.shape, strict=True):
            if size.get(letter, 1) == 1:
                size[letter] = n
            elif n not in (1, size[letter]):
                raise RuntimeError(
                    f"einsum(): subscript {letter} has size {n} for operand 1 which does not "
                    "broadcast with previously "
                    f"seen size {size[letter]}"
                )
    made, names = operands[0], terms[0]
    made, names = _once(made, names)
    for at, (term, x) in enumerate(zip(terms[1:], operands[1:], strict=True), 1):
        x, term = _once(x, term)
        later = right + "".join(terms[at + 1 :])
        made, names = _pair(made, names, x, term, later)
    gone = [i for i, letter in enumerate(names) if letter not in right]
    if gone:
        made = made.sum(gone)
        names = "".join(letter for letter in names if letter in right)
    return permute(made, [names.index(letter) for letter in right])


def _spelt_out(terms: list[str], operands: Sequence[Tensor]) -> tuple[list[str], int]:
    """The terms with a letter of its own for each axis that `...` stands for."""
    counts = [
        x.ndim - len(term.replace("...", "")) if "..." in term else 0
        for term, x in zip(terms, operands, strict=True)
    ]
    return [
        term.replace("...", "".join(chr(0x2460 + i) for i in range(20 - count, 20)))
        for term, count in zip(terms, counts, strict=True)
    ], max(counts)


def _once(x: Tensor, term: str) -> tuple[Tensor, str]:
    """A letter that stands twice takes the diagonal."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            i = term.index(letter)
            j = term.index(letter, i + 1)
            x = x.diagonal(0, i, j)
            term = "".join(c for at, c in enumerate(term) if at not in (i, j)) + letter
    return x, term


def _pair(a: Tensor, s: str, b: Tensor, t: str, later: str) -> tuple[Tensor, str]:
    """Two operands as one product of matrices."""
    only = [i for i, c in enumerate(s) if c not in t and c not in later]
    if only:
        a, s = a.sum(only), "".join(c for i, c in enumerate(s) if i not in only)
    only = [i for i, c in enumerate(t) if c not in s and c not in later]
    if only:
        b, t = b.sum(only), "".join(c for i, c in enumerate(t) if i not in only)
    shared = [c for c in s if c in t and c in later]
    summed = [c for c in s if c in t and c not in later]
    mine, theirs = [c for c in s if c not in t], [c for c in t if c not in s]
    x = permute(a, [s.index(c) for c in shared + mine + summed])
    y = permute(b, [t.index(c) for c in shared + summed + theirs])
    lead = len(shared)
    both = broadcast_shapes(x.shape[:lead], y.shape[:lead])
    widths = [max(a.shape[s.index(c)], b.shape[t.index(c)]) for c in summed]
    x = expand(x, *both, *x.shape[lead : lead + len(mine)], *widths)
    y = expand(y, *both, *widths, *y.shape[lead + len(summed) :])
    middle = math.prod(widths)
    rows, columns = x.shape[lead : lead + len(mine)], y.shape[lead + len(summed) :]
    left = reshape(x, math.prod(both), math.prod(rows), middle)
    right = reshape(y, math.prod(both), middle, math.prod(columns))
    made = reshape(_product(left, right), (*both, *rows, *columns))
    return made, "".join(shared + mine + theirs)


def cdist(a: Tensor, b: Tensor, p: float = 2.0) -> Tensor:
    return (a.unsqueeze(-2) - b.unsqueeze(-3)).norm(p, dim=-1)
