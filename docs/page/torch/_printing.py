"""A tensor in words, as torch writes it."""

import math
from typing import Any

from torch._dtypes import BOOL, INT64, default
from torch._tensor import Tensor

__all__ = ["printoptions", "set_printoptions", "text"]

OPTIONS: dict[str, Any] = {
    "precision": 4,
    "threshold": 1000,
    "edgeitems": 3,
    "linewidth": 80,
    "sci_mode": None,
}
PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    profile: str | None = None, sci_mode: bool | None = None, **options: Any
) -> None:
    """Digits, line width and so on of all that is printed from now on."""
    OPTIONS.update(PROFILES.get(profile or "", {}))
    OPTIONS.update({name: value for name, value in options.items() if value is not None})
    OPTIONS["sci_mode"] = sci_mode


class printoptions:
    """The same for a `with`."""

    def __init__(self, **options: Any):
        self.options = options

    def __enter__(self) -> None:
        self.before = dict(OPTIONS)
        set_printoptions(**self.options)

    def __exit__(self, *_: object) -> None:
        OPTIONS.update(self.before)


class _Form:
    """How the numbers of one tensor are written: all equally wide."""

    def __init__(self, numbers: list[Any], floats: bool):
        self.floats, self.whole, self.powers, self.width = floats, True, False, 1
        digits = OPTIONS["precision"]
        if not floats:
            self.width = max((len(str(number)) for number in numbers), default=1)
            return
        shown = [number for number in numbers if math.isfinite(number) and number]
        if not shown:
            return
        least, most = min(map(abs, shown)), max(map(abs, shown))
        self.whole = all(number == math.ceil(number) for number in shown)
        asked = OPTIONS["sci_mode"]
        self.powers = most / least > 1000 or most > 1e8 or least < 1e-4 if asked is None else asked
        form = f".{digits}e" if self.powers else ".0f" if self.whole else f".{digits}f"
        point = 1 if self.whole and not self.powers else 0
        self.width = max(1, *(len(format(number, form)) + point for number in shown))

    def __call__(self, number: Any) -> str:
        digits = OPTIONS["precision"]
        if not self.floats:
            written = str(number)
        elif self.powers:
            written = format(number, f"{self.width}.{digits}e")
        elif self.whole:
            written = format(number, ".0f") + ("." if math.isfinite(number) else "")
        else:
            written = format(number, f".{digits}f")
        return written.rjust(self.width)


def _ends(values: Any, depth: int) -> list[Any]:
    """What is shown of nested lists of which the middles are left out, flat."""
    if depth == 0:
        return [values]
    edge = OPTIONS["edgeitems"]
    if len(values) > 2 * edge:
        values = values[:edge] + values[-edge:]
    return [number for each in values for number in _ends(each, depth - 1)]


def _line(values: list[Any], indent: int, short: bool, form: _Form) -> str:
    edge = OPTIONS["edgeitems"]
    across = max(1, (OPTIONS["linewidth"] - indent) // (form.width + 2))
    if short and len(values) > 2 * edge:
        words = [*map(form, values[:edge]), " ...", *map(form, values[-edge:])]
    else:
        words = list(map(form, values))
    lines = [", ".join(words[i : i + across]) for i in range(0, len(words), across)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _nest(values: Any, depth: int, indent: int, short: bool, form: _Form) -> str:
    if depth == 0:
        return form(values)
    if depth == 1:
        return _line(values, indent, short, form)
    edge = OPTIONS["edgeitems"]
    inner = [
        _nest(each, depth - 1, indent + 1, short, form) for each in _shown(values, short, edge)
    ]
    if short and len(values) > 2 * edge:
        inner.insert(edge, "...")
    return "[" + ("," + "\n" * (depth - 1) + " " * (indent + 1)).join(inner) + "]"


def _shown(values: list[Any], short: bool, edge: int) -> list[Any]:
    return values[:edge] + values[-edge:] if short and len(values) > 2 * edge else values


def _closed(written: str, suffixes: list[str], indent: int, new_line: bool) -> str:
    parts = [written]
    last = len(written) - written.rfind("\n") + 1
    for suffix in suffixes:
        if new_line or last + len(suffix) + 2 > OPTIONS["linewidth"]:
            parts.append(",\n" + " " * indent + suffix)
            last, new_line = indent + len(suffix), False
        else:
            parts.append(", " + suffix)
            last += len(suffix) + 2
    return "".join(parts) + ")"


def text(x: Tensor) -> str:
    """What `print` writes."""
    parameter = getattr(x, "_is_param", False)
    start = "Parameter containing:\ntensor(" if parameter else "tensor("
    prefix = "tensor("
    suffixes = []
    plain = x.dtype in (default(), INT64, BOOL)
    if x._data is None:
        body = "..."
        suffixes.append("device='meta'")
        suffixes.append(f"size={tuple(x.shape)}")
        plain = x.dtype is default()
    elif not x.numel():
        body = "[]"
        if x.ndim != 1:
            suffixes.append(f"size={tuple(x.shape)}")
        plain = x.dtype is default()
    else:
        values = x.tolist()
        short = x.numel() > OPTIONS["threshold"]
        flat = _ends(values, x.ndim) if short else x.flat().tolist()
        if x.dtype is BOOL:
            flat = list(map(bool, flat))
        body = _nest(values, x.ndim, len(prefix), short, _Form(flat, x.dtype.is_floating_point))
    if not plain:
        suffixes.append(f"dtype={x.dtype}")
    if parameter:
        if x.requires_grad:
            suffixes.append("requires_grad=True")
    elif x._node is not None:
        suffixes.append(f"grad_fn=<{x._node.name()}>")
    elif x.requires_grad:
        suffixes.append("requires_grad=True")
    return start[: -len(prefix)] + _closed(prefix + body, suffixes, len(prefix), False)
