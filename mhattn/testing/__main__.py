"""Examine a layer, or a small model, from the command line.

``python -m mhattn.testing package.module:Layer``, ``python -m mhattn.testing transformers:qwen3``
"""

import argparse
import ast
import importlib
import inspect
import json
import sys
from dataclasses import asdict
from typing import Any

import torch

from mhattn.testing.calls import SIZES, Calls, signature
from mhattn.testing.doctor import check_attention
from mhattn.testing.models import ModelReport, check_model
from mhattn.testing.report import Report
from mhattn.testing.tiny import tiny_model

__all__: list[str] = []

USUAL = {"embed_dim": 24, "num_heads": 3}  # where a class needs them and has no default


def made(
    target: type, sizes: dict[str, int | None], extra: dict[str, Any]
) -> tuple[Any, dict[str, int]]:
    """An object of a class, and its sizes: those asked for, the class's own, or the usual ones."""
    names, required = signature(target)
    options, told = dict(extra), dict[str, int]()
    for size, asked in sizes.items():
        name, value = next((each for each in SIZES[size] if each in names), None), asked
        if name in options:
            value = options[name]
        elif name and value is None and name not in required:
            # Not passed on, as the class has it anyway: but the doctor is told, and need not guess.
            value = inspect.signature(target).parameters[name].default
        elif name:
            value = value or USUAL.get(size)
            options |= {name: value} if value else {}
        if isinstance(value, int):
            told[size] = value
    if missing := [name for name in required if name not in options]:
        raise ValueError(f"{target.__name__} needs {missing[0]}: say --set {missing[0]}=...")
    # The same weights in every run, so that a report can be compared with the one before.
    torch.manual_seed(0)
    try:
        return target(**options), told
    # Whatever somebody else's class may raise: who reads it needs the call that failed, not our own
    # lines.
    except Exception as error:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        said = f"{type(error).__name__}: {error}"
        raise ValueError(f"{target.__name__}({given}) raised {said}") from error


def pair(text: str) -> tuple[str, Any]:
    """``name=value``, the value as Python writes it, or a word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be name=value, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def parser() -> argparse.ArgumentParser:
    """What may be asked for."""
    found = argparse.ArgumentParser(prog="python -m mhattn.testing", description=__doc__)
    found.add_argument(
        "layer",
        help="package.module:name of a class, an object or a function; or all attention of a small "
        "model: transformers:NAME of a configuration, or the path of a config.json",
    )
    found.add_argument("--json", action="store_true", help="print the report as JSON")
    for size in ("embed_dim", "num_heads", "num_kv_heads", "head_dim"):
        usual = f", or {USUAL[size]} where it has none" if size in USUAL else ""
        text = f"given to a class as {', '.join(SIZES[size])}; default: the layer's own{usual}"
        found.add_argument(f"--{size.replace('_', '-')}", type=int, help=text)
    helps = {
        "set": "an argument of the class, as batch_first=True",
        "call": "an argument of check_attention, as causal=True",
    }
    for option, text in helps.items():
        found.add_argument(
            f"--{option}", type=pair, action="append", default=[], metavar="NAME=VALUE", help=text
        )
    return found


def named(path: str) -> Any:
    """What ``package.module:name`` names."""
    module, colon, name = path.partition(":")
    if not colon:
        raise ValueError(f"layer must be package.module:name, got {path!r}")
    sys.path.insert(0, "")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{module} has no {name!r}")
        found = getattr(found, part)
    return found


def how_to_call(asked: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """The layer, and what `check_attention` is told of it."""
    layer, sizes = named(asked.layer), {size: getattr(asked, size) for size in SIZES}
    told = {size: value for size, value in sizes.items() if value is not None}
    if isinstance(layer, type):
        layer, told = made(layer, sizes, dict(asked.set))
    elif asked.set:
        raise ValueError(f"--set is for a class, {asked.layer} is none")
    call = dict(asked.call)
    if unknown := sorted(set(call) - set(Calls.__dataclass_fields__)):
        raise ValueError(f"{unknown[0]} is no argument of check_attention")
    own = getattr(layer, "batch_first", None)
    # Called otherwise than it was built, the layer mixes sequences: the report would be of that.
    if own is not None and call.get("batch_first", own) != own:
        other = call["batch_first"]
        raise ValueError(f"the layer has batch_first={own}: say --set batch_first={other}")
    return layer, told | call


def examined(asked: argparse.Namespace) -> Report | ModelReport:
    """The report that is asked for."""
    place, _, name = asked.layer.partition(":")
    if place == "transformers" or asked.layer.endswith(".json"):
        strange = [n for n in ("set", "call", *SIZES) if getattr(asked, n)]
        if strange:
            raise ValueError(f"--{strange[0].replace('_', '-')} is for a layer, not for a model")
        model, inputs = tiny_model(name if place == "transformers" else asked.layer)
        return check_model(model, **inputs)
    layer, how = how_to_call(asked)
    return check_attention(layer, **how)


def main(arguments: list[str] | None = None) -> int:
    """Print the report; 0 if it is ok, 1 if not, 2 if the layer can't be examined."""
    asked = parser().parse_args(arguments)
    try:
        report = examined(asked)
    except (ImportError, TypeError, ValueError) as error:
        parser().error(str(error))
    print(json.dumps(asdict(report), indent=2) if asked.json else report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
