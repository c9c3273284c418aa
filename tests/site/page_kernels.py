"""Each kernel on the same numbers, by JavaScript and by Python, in Pyodide.

Of each call it tells what differs most, relative to the numbers; None where JavaScript declined.
"""

import json
import math
import random
from array import array

from torch import _kernels

rng = random.Random(0)


def numbers(kind, count):
    return array(kind, [rng.gauss(0, 1) for _ in range(count)])


def yes(count):
    return array("B", [rng.randrange(2) for _ in range(count)])


def far(a, b, kind):
    a, b = array(kind, a), array(kind, b)
    assert len(a) == len(b)
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if not (x != x and y != y) and x != y]
    return max((abs(x - y) / max(1, abs(y)) for x, y in pairs), default=0)


BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")
SIZES = (8, 25, 40, 6), (13, 17, 19, 2), (1, 100, 60, 1), (64, 1, 64, 1), (3, 70, 61, 1)
special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, 3e38, 1.0]
calls = {}
for kind in "fd":
    x, y = numbers(kind, 6000), numbers(kind, 6000)
    odd, even = array(kind, special * 64), array(kind, [s for s in special for _ in range(64)])
    for name in _kernels.UNARY:
        if name != "invert":
            to = "B" if name == "isnan" else kind
            calls[f"unary {name} {kind}"] = ("unary", to, name, array(kind, map(abs, x)))
            calls[f"unary {name} {kind} odd"] = ("unary", to, name, odd)
    for name in BINARY:
        to = "B" if len(name) == 2 else kind
        calls[f"binary {name} {kind}"] = ("binary", to, name, x, y)
        calls[f"binary {name} {kind} odd"] = ("binary", to, name, odd, even)
        for number in 0.5, 0.0, -math.inf, math.nan:
            for reverse in False, True:
                calls[f"scalar {name} {kind} {number} {reverse}"] = (
                    "scalar",
                    to,
                    name,
                    odd,
                    number,
                    reverse,
                )
    for n, k, m, count in SIZES:
        calls[f"product {n} {k} {m} {count} {kind}"] = (
            "matmul_rows",
            kind,
            numbers(kind, n * k * count),
            numbers(kind, k * m * count),
            n,
            k,
            m,
            count,
        )
    rows = array(kind, [*special * 3, *numbers(kind, 600 - 24)])
    for m in 1, 3, 6, 12, 200:
        calls[f"softmax {m} {kind}"] = ("softmax_rows", kind, rows, m)
        calls[f"sums {m} {kind}"] = ("sum_rows", kind, x, m)
        for inner in 1, 2, 5:
            calls[f"sums {m} {inner} {kind}"] = ("sum_along", kind, x, m, inner)
            calls[f"logsumexp {m} {inner} {kind}"] = ("logsumexp_along", kind, x, m, inner)
    half = yes(6000)
    for name, pair in {"both": (x, y), "left": (x, 2.5), "right": (-math.inf, y)}.items():
        calls[f"choose {name} {kind}"] = ("choose", kind, half, *pair)
for kind in "fdBqi":
    data = array(kind, [rng.randrange(200) for _ in range(3000)])
    for shape, strides, start in (
        ((5, 60, 10), (10, 50, 1), 0),
        ((30, 100), (1, 30), 0),
        ((4, 9, 20), (0, 20, 1), 7),
        ((20, 30), (100, 3), 11),
        ((300, 1), (10, 1), 5),
        ((700,), (2,), 3),
        ((17, 31), (0, 0), 9),
    ):
        calls[f"view {shape} {strides} {kind}"] = ("strided", kind, data, shape, strides, start)

told = {}
fast = dict(_kernels._FAST)
for name, (kernel, kind, *arguments) in calls.items():
    by_javascript = fast[kernel](*arguments)
    if by_javascript is None:
        told[name] = None
        continue
    assert by_javascript.typecode == kind, (name, by_javascript.typecode)
    _kernels.register(kernel, None)
    told[name] = far(by_javascript, getattr(_kernels, kernel)(*arguments), kind)
    _kernels.register(kernel, fast[kernel])

for kind in "fd":
    rows = numbers(kind, 700)
    places = [rng.randrange(9) for _ in range(100)]
    one, two = array(kind, [0]) * 63, array(kind, [0]) * 63
    fast["add_rows"](one, places, rows, 7)
    _kernels.register("add_rows", None)
    _kernels.add_rows(two, places, rows, 7)
    _kernels.register("add_rows", fast["add_rows"])
    told[f"rows {kind}"] = far(one, two, kind)

    x = numbers(kind, 1200)
    by_javascript = fast["norm_rows"](x, 12, 1e-5)
    _kernels.register("norm_rows", None)
    pairs = zip(by_javascript, _kernels.norm_rows(x, 12, 1e-5), strict=True)
    told[f"norms {kind}"] = max(far(one, two, kind) for one, two in pairs)
    _kernels.register("norm_rows", fast["norm_rows"])

words = array("I", [rng.getrandbits(32) for _ in range(1600)])
normal = fast["normal_blocks"](words, 0.5, 2.0)
right = []
for i in range(0, 1600, 16):
    shares = [(word & 0xFFFFFF) / 2**24 for word in words[i : i + 16]]
    polar = [
        (math.sqrt(-2 * math.log(1 - r)), 2 * math.pi * a)
        for r, a in zip(shares[:8], shares[8:], strict=True)
    ]
    for wave in math.cos, math.sin:
        right += [r * wave(a) * 2 + 0.5 for r, a in polar]
told["normal"] = far(normal, right, "f")
# The memory grows: JavaScript finds it again.
grown = [array("d", [1]) * 1_000_000 for _ in range(60)]
told["after growth"] = far(fast["scalar"]("add", grown[-1], 1.0, False)[:9], [2.0] * 9, "d")
result = json.dumps(told)
