"""Has the large loops of the stand-in for torch done by JavaScript, over Python's own memory.

The loops stand in `docs/assets/run-kernels.js`. They get addresses of arrays, among them that of
an array which is made here and filled there; nothing is copied. A call costs some microseconds, so
what is small is left to Python.
"""

import math
from array import array

from torch import _kernels

LEAST = 256  # numbers that are worth a call
SUMMED = 4096  # products that are
YES_OR_NO = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "logical_not"}


def _empty(kind, count):
    return array(kind, [0]) * count


def _at(numbers):
    return numbers.buffer_info()[0]


def register(loops, unary_names, binary_names):
    """Give the loops to torch.

    Args:
        loops: an object with a function for each kernel.
        unary_names: what its function ``unary`` knows, with blanks between.
        binary_names: what ``binary`` and ``scalar`` know.
    """
    unary_names, binary_names = set(unary_names.split()), set(binary_names.split())
    # Looked up once: each look-up at an object of JavaScript makes a new proxy.
    js = {name: getattr(loops, name) for name in [*_kernels.KNOWN]}

    def unary(name, a):
        count, kind = len(a), a.typecode
        fits = kind == "B" if name == "logical_not" else kind in "fd"
        if count < LEAST or name not in unary_names or not fits:
            return None
        out = _empty("B" if name in YES_OR_NO else kind, count)
        js["unary"](name, kind, _at(a), out.typecode, _at(out), count)
        return out

    def binary(name, a, b):
        count, kind = len(a), a.typecode
        if count < LEAST or name not in binary_names or kind not in "fd" or b.typecode != kind:
            return None
        out = _empty("B" if name in YES_OR_NO else kind, count)
        js["binary"](name, kind, _at(a), _at(b), out.typecode, _at(out), count)
        return out

    def scalar(name, a, number, reverse=False):
        count, kind = len(a), a.typecode
        if count < LEAST or name not in binary_names or kind not in "fd":
            return None
        out = _empty("B" if name in YES_OR_NO else kind, count)
        js["scalar"](name, kind, _at(a), float(number), reverse, out.typecode, _at(out), count)
        return out

    def matmul_rows(a, b, n, k, m, count=1):
        if a.typecode not in "fd" or a.typecode != b.typecode or n * k * m * count < SUMMED:
            return None
        out = _empty(a.typecode, count * n * m)
        js["matmul_rows"](a.typecode, _at(a), _at(b), _at(out), n, k, m, count)
        return out

    def softmax_rows(a, m):
        if len(a) < LEAST:
            return None
        out = _empty(a.typecode, len(a))
        js["softmax_rows"](a.typecode, _at(a), _at(out), len(a), m)
        return out

    def worth_a_sum(a):
        """Python's own sum of 64-bit floats is closer to the true one, which a few numbers show."""
        return len(a) >= {"f": LEAST, "d": SUMMED}.get(a.typecode, math.inf)

    def sum_rows(a, m):
        if not worth_a_sum(a):
            return None
        out = _empty(a.typecode, len(a) // m)
        js["sum_rows"](a.typecode, _at(a), _at(out), len(out), m)
        return out

    def sum_along(a, m, inner):
        if not worth_a_sum(a):
            return None
        out = _empty(a.typecode, len(a) // m)
        js["sum_along"](a.typecode, _at(a), _at(out), len(a), m, inner)
        return out

    def logsumexp_along(a, m, inner):
        if len(a) < LEAST or a.typecode not in "fd":
            return None
        out = _empty(a.typecode, len(a) // m)
        js["logsumexp_along"](a.typecode, _at(a), _at(out), len(a), m, inner)
        return out

    def add_rows(whole, places, rows, m):
        if len(rows) < LEAST or whole.typecode not in "fd" or rows.typecode != whole.typecode:
            return None
        at = array("i", places)
        js["add_rows"](whole.typecode, _at(whole), len(whole), _at(at), len(at), _at(rows), m)
        return True

    def norm_rows(a, m, eps):
        if len(a) < LEAST or a.typecode not in "fd":
            return None
        out, scales = _empty(a.typecode, len(a)), _empty(a.typecode, len(a) // m)
        js["norm_rows"](a.typecode, _at(a), _at(out), _at(scales), len(a), m, float(eps))
        return out, scales

    def strided(data, shape, strides, start):
        count = math.prod(shape)
        if count < LEAST:
            return None
        shape, strides = _kernels.joined(shape, strides)
        places, kind = array("i", (*shape, *strides)), data.typecode
        out = _empty(kind, count)
        js["strided"](kind, _at(data), len(data), _at(places), len(shape), start, _at(out), count)
        return out

    def choose(condition, a, b):
        count = len(condition)
        kinds = {each.typecode for each in (a, b) if isinstance(each, array)}
        if count < LEAST or len(kinds) != 1 or not kinds <= {"f", "d"}:
            return None
        (kind,), number = kinds, 0.0
        places = []
        for each in a, b:
            if isinstance(each, array):
                places.append(_at(each))
            else:
                places.append(0)
                number = float(each)
        out = _empty(kind, count)
        js["choose"](_at(condition), kind, *places, number, _at(out), count)
        return out

    def normal_blocks(words, mean, std):
        out = _empty("f", len(words))
        js["normal_blocks"](_at(words), mean, std, _at(out), len(words))
        return out

    for each in (
        unary,
        binary,
        scalar,
        matmul_rows,
        softmax_rows,
        sum_rows,
        sum_along,
        logsumexp_along,
        add_rows,
        norm_rows,
        strided,
        choose,
        normal_blocks,
    ):
        _kernels.register(each.__name__, each)
