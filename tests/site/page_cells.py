"""Runs the statements of a page as a reader's page would: with the stand-in for torch first in
the path, without NumPy.

A program of its own, which `test_page_torch.py` starts. It reads lists of cells, ``[name, source,
mode]``, as lines of JSON
and writes what each cell printed, its error and its seconds. Drawing is taken and forgotten: what
stands in for matplotlib in
the site has tests of its own.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import signal
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/page"
SECONDS = next((int(each[10:]) for each in sys.argv if each.startswith("--seconds=")), 0)  # a cell


class Undrawn:
    """Whatever is asked of it, it gives another like itself."""

    def __init__(self, *shape):
        self.__dict__["shape"] = shape

    def __call__(self, *_, **__):
        return Undrawn()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Undrawn(len(self)) if name == "flat" else Undrawn()

    def __setattr__(self, name, value):
        pass

    def __len__(self):
        return self.shape[0] if self.shape else 2

    def __iter__(self):
        return iter([Undrawn(*self.shape[1:]) for _ in range(len(self))])

    def __getitem__(self, index):
        return Undrawn(*self.shape[1:])

    def __setitem__(self, index, value):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __mul__(self, other):
        return self

    __rmul__ = __add__ = __radd__ = __sub__ = __rsub__ = __truediv__ = __mul__

    def __lt__(self, other):
        return False

    def __float__(self):
        return 0.0


def anything(name):
    """What a module of matplotlib has under a name."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Undrawn()


def subplots(rows=1, columns=1, *_, **named):
    """A figure and as many Axes as are asked for."""
    rows, columns = named.get("nrows", rows), named.get("ncols", columns)
    return Undrawn(), Undrawn(
        *(n for n in (rows, columns) if n > 1 or named.get("squeeze") is False)
    )


class Drawing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds matplotlib and all below it; NumPy is not there."""

    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        if first == "numpy" and "--real" not in sys.argv:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return (
            importlib.machinery.ModuleSpec(name, self, is_package=True)
            if first == "matplotlib"
            else None
        )

    def create_module(self, spec):
        module = ModuleType(spec.name)
        module.__path__, module.subplots = [], subplots
        module.__getattr__ = anything
        return module

    def exec_module(self, module):
        pass


class WithoutNumpy(importlib.machinery.SourceFileLoader):
    """Reads a module of ours as the page has it."""

    def get_data(self, path):
        return super().get_data(path).replace(b"\nimport numpy as np\n", b"\nnp = None\n")

    def path_stats(self, path):
        raise OSError("its bytecode is of another text")


class Package(importlib.abc.MetaPathFinder):
    """Finds the modules of ours that import NumPy and do without it in a page."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("mhattn.models."):
            return None
        place = str(ROOT / f"{name.replace('.', '/')}.py")
        return importlib.util.spec_from_file_location(name, place, loader=WithoutNumpy(name, place))


def plots():
    """`mhattn.show.plots` with its colours, which draws nothing."""
    tree = ast.parse((ROOT / "mhattn/show/plots.py").read_text(encoding="utf-8"))
    module = ModuleType("mhattn.show.plots")
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id in (
            "COLORS",
            "HEAD_COLORS",
            "NEGATIVE",
        ):
            setattr(module, node.targets[0].id, ast.literal_eval(node.value))
    module.plot_weights = lambda weights, ax=None, **_: Undrawn() if ax is None else ax
    module.plot_heads = lambda weights, axes=None, **_: (
        Undrawn(len(weights)) if axes is None else axes
    )
    return module


class TooSlow(BaseException):
    """A cell took longer than it may."""


def stop(*_):
    raise TooSlow(f"more than {SECONDS} seconds")


def run(cells):
    """What each cell printed, and how long it took; an error stands in the place of the text."""
    names, found = {"__name__": "__main__"}, []
    sys.displayhook = lambda value: (
        value is None or isinstance(value, Undrawn) or print(repr(value))
    )
    for name, source, mode in cells:
        out, error = io.StringIO(), None
        start = time.perf_counter()
        signal.alarm(SECONDS)
        try:
            with redirect_stdout(out):
                exec(compile(source, name, mode), names)
        except BaseException as why:
            error = f"{type(why).__name__}: {why}"
            if "--trace" in sys.argv:
                import traceback

                traceback.print_exc()
        signal.alarm(0)
        found.append([out.getvalue(), error, time.perf_counter() - start])
    return found


def register():
    """What a page's typed arrays do, done by NumPy: the loops of `torch._kernels` over the same
    memory.
    """
    from array import array

    import numpy as np
    from torch import _kernels

    def matmul_rows(a, b, n, k, m, count):
        if a.typecode not in "fd" or n * k * m * count < 500:
            return None
        x = np.frombuffer(a, a.typecode).reshape(count, n, k).astype("d")
        y = np.frombuffer(b, b.typecode).reshape(count, k, m).astype("d")
        return array(a.typecode, (x @ y).astype(a.typecode).tobytes())

    arithmetic = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    functions = {"sqrt": np.sqrt, "square": np.square, "neg": np.negative, "exp": np.exp}

    def binary(name, a, b):
        if (
            name not in arithmetic
            or len(a) < 200
            or a.typecode != b.typecode
            or a.typecode not in "fd"
        ):
            return None
        return array(
            a.typecode,
            arithmetic[name](np.frombuffer(a, a.typecode), np.frombuffer(b, b.typecode)).tobytes(),
        )

    def scalar(name, a, number, reverse):
        if name not in arithmetic or len(a) < 200 or a.typecode not in "fd":
            return None
        x, y = np.frombuffer(a, a.typecode), np.dtype(a.typecode).type(number)
        return array(
            a.typecode, (arithmetic[name](y, x) if reverse else arithmetic[name](x, y)).tobytes()
        )

    def unary(name, a):
        if name not in functions or len(a) < 200 or a.typecode not in "fd":
            return None
        return array(a.typecode, functions[name](np.frombuffer(a, a.typecode)).tobytes())

    def softmax_rows(a, m):
        x = np.frombuffer(a, a.typecode).reshape(-1, m).astype("d")
        with np.errstate(invalid="ignore"):  # a row that sees nothing is nan, as in torch
            powers = np.exp(x - x.max(-1, keepdims=True))
        return array(
            a.typecode, (powers / powers.sum(-1, keepdims=True)).astype(a.typecode).tobytes()
        )

    def strided(data, shape, strides, start):
        numbers = np.frombuffer(data, data.typecode)[start:]
        steps = [stride * data.itemsize for stride in strides]
        return array(
            data.typecode, np.lib.stride_tricks.as_strided(numbers, shape, steps).tobytes()
        )

    def choose(condition, a, b):
        parts = [np.frombuffer(x, x.typecode) if isinstance(x, array) else x for x in (a, b)]
        kinds = [x.typecode for x in (a, b) if isinstance(x, array)]
        if len(condition) < 200 or not kinds or len(set(kinds)) > 1 or kinds[0] not in "fd":
            return None
        chosen = np.where(np.frombuffer(condition, "B") != 0, *parts).astype(kinds[0])
        return array(kinds[0], chosen.tobytes())

    def sum_rows(a, m):
        if a.typecode not in "fd" or not m:
            return None
        return array(
            a.typecode,
            np.frombuffer(a, a.typecode)
            .reshape(-1, m)
            .sum(-1, dtype="d")
            .astype(a.typecode)
            .tobytes(),
        )

    def sum_along(a, m, inner):
        if a.typecode not in "fd":
            return None
        rows = np.frombuffer(a, a.typecode).reshape(-1, m, inner)
        return array(a.typecode, rows.sum(1, dtype="d").astype(a.typecode).tobytes())

    def normal_blocks(words, mean, std):
        shares = (np.frombuffer(words, "I") & 0xFFFFFF).reshape(-1, 2, 8) * 2.0**-24
        radii, angles = np.sqrt(-2 * np.log(1 - shares[:, 0])), 2 * np.pi * shares[:, 1]
        both = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)
        return array("f", (both * std + mean).astype("f").tobytes())

    for kernel in (
        normal_blocks,
        matmul_rows,
        binary,
        scalar,
        unary,
        softmax_rows,
        strided,
        choose,
        sum_rows,
        sum_along,
    ):
        _kernels.register(kernel.__name__, kernel)


def prepare(*, real, fast):
    """What a page has: the stand-in first in the path, drawing that is forgotten; no NumPy."""
    if fast:
        import numpy  # noqa: F401  before the finder says that there is none
    own = [] if real else [str(PAGE)]
    sys.path[:] = [
        *own,
        str(ROOT),
        *(each for each in sys.path if each != str(Path(__file__).parent)),
    ]
    sys.meta_path[:0] = [Drawing()] if real else [Drawing(), Package()]
    sys.modules["mhattn.show.plots"] = plots()
    if fast:
        register()
    signal.signal(signal.SIGALRM, stop)


def main():
    """Lists of cells, one a line, each in names of its own."""
    prepare(real="--real" in sys.argv, fast="--fast" in sys.argv)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()
