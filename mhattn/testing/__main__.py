"""Examine a layer from the command line: ``python -m mhattn.testing package.module:Layer``."""

import argparse
import ast
import importlib
import sys
from typing import Any

from torch import nn

from mhattn.testing.calls import SIZES, Calls, signature
from mhattn.testing.doctor import check_attention

__all__: list[str] = []


def made(target: type[nn.Module], sizes: dict[str, int | None], extra: dict[str, Any]) -> nn.Module:
    """An object of a class, with the sizes that its constructor has names for."""
    names, required = signature(target)
    options = dict(extra)
    for size, value in sizes.items():
        name = next((each for each in SIZES[size] if each in names), None)
        if name and name not in options and value is not None:
            options[name] = value
    missing = [name for name in required if name not in options]
    if missing:
        raise SystemExit(f"{target.__name__} needs {missing[0]}: say --set {missing[0]}=...")
    return target(**options)


def pair(text: str) -> tuple[str, Any]:
    """``name=value``, the value as Python writes it, or a word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be name=value, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def main(arguments: list[str] | None = None) -> int:
    """Print the report; 0 if it is ok, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m mhattn.testing", description=__doc__)
    parser.add_argument("layer", help="package.module:name of a class, an object or a function")
    parser.add_argument("--embed-dim", type=int, default=24)
    parser.add_argument("--num-heads", type=int, default=3)
    parser.add_argument("--num-kv-heads", type=int)
    parser.add_argument("--head-dim", type=int)
    helps = {"set": "of the class", "call": "of check_attention, as causal=True"}
    for option, text in helps.items():
        parser.add_argument(
            f"--{option}",
            type=pair,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"an argument {text}",
        )
    asked = parser.parse_args(arguments)
    module, colon, name = asked.layer.partition(":")
    if not colon:
        parser.error(f"layer must be package.module:name, got {asked.layer!r}")
    sys.path.insert(0, "")
    layer: Any = importlib.import_module(module)
    for part in name.split("."):
        layer = getattr(layer, part)
    names = ("embed_dim", "num_heads", "num_kv_heads", "head_dim")
    sizes = {size: getattr(asked, size) for size in names}
    if isinstance(layer, type):
        layer = made(layer, sizes, dict(asked.set))
    how = {size: value for size, value in sizes.items() if value is not None} | dict(asked.call)
    unknown = set(how) - set(Calls.__dataclass_fields__)
    if unknown:
        parser.error(f"{sorted(unknown)[0]} is no argument of check_attention")
    report = check_attention(layer, **how)
    print(report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
