"""Examine layers, or small models, from the command line.

``python -m mhattn.testing package.module:Layer``, ``python -m mhattn.testing layers.py``,
``python -m mhattn.testing transformers:qwen3``
"""

import _thread
import argparse
import ast
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from mhattn.testing.calls import SIZES, Calls
from mhattn.testing.doctor import check_attention
from mhattn.testing.formats import Examined, Place, as_annotations, as_json, as_sarif
from mhattn.testing.language import language
from mhattn.testing.models import check_model
from mhattn.testing.targets import USUAL, attention_in, is_of_model, made, named, split
from mhattn.testing.tiny import tiny_model

__all__: list[str] = []

FORMATS = {
    "text": lambda found: "\n\n".join(str(each.report) for each in found),
    "json": as_json,
    "sarif": as_sarif,
    "github": as_annotations,
}


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
        nargs="+",
        help="package.module:name or path/to/file.py:name of a class, an object or a function; a "
        "file, whose classes of attention are known by their names; or all attention of a small "
        "model: transformers:NAME of a configuration, or the path of a config.json",
    )
    text = "what is printed; github: annotations beside the source. Default: text"
    found.add_argument("--format", choices=FORMATS, default="text", help=text)
    text = "stop, with status 2, if one layer or file takes longer"
    found.add_argument("--timeout", type=float, metavar="SECONDS", help=text)
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


def how_to_call(target: Any, asked: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """The layer, and what `check_attention` is told of it."""
    layer, sizes = target, {size: getattr(asked, size) for size in SIZES}
    told = {size: value for size, value in sizes.items() if value is not None}
    if isinstance(layer, type):
        layer, told = made(layer, sizes, dict(asked.set))
    elif asked.set:
        raise ValueError(f"--set is for a class, {target!r} is none")
    call = dict(asked.call)
    if unknown := sorted(set(call) - set(Calls.__dataclass_fields__)):
        raise ValueError(f"{unknown[0]} is no argument of check_attention")
    own = getattr(layer, "batch_first", None)
    # Called otherwise than it was built, the layer mixes sequences: the report would be of that.
    if own is not None and call.get("batch_first", own) != own:
        other = call["batch_first"]
        raise ValueError(f"the layer has batch_first={own}: say --set batch_first={other}")
    return layer, told | call


def examined(target: str, asked: argparse.Namespace) -> Iterator[Examined | str]:
    """Reports of what a target names; of a class in a file that can't be examined, a sentence."""
    told = [n for n in ("set", "call", *SIZES) if getattr(asked, n)]
    if is_of_model(target):
        if told:
            raise ValueError(f"--{told[0].replace('_', '-')} is for a layer, not for a model")
        model, inputs = tiny_model(target.removeprefix("transformers:"))
        report = check_model(model, **inputs)
        yield Examined(report, {n: Place.of(model.get_submodule(n)) for n in report.layers})
    elif split(target)[1]:
        yield one_layer(named(target), asked)
    else:
        for layer in attention_in(target):
            try:
                yield one_layer(layer, asked)
            except (TypeError, ValueError) as error:
                yield f"{layer.__name__}: not examined: {error}"


def one_layer(layer: Any, asked: argparse.Namespace) -> Examined:
    """The report of a class, an object or a function."""
    layer, how = how_to_call(layer, asked)
    report = check_attention(layer, **how)
    return Examined(report, {report.layer: Place.of(layer)})


class Late:
    """Stops what runs in the main thread after some seconds.

    Args:
        seconds: None: never.

    Attributes:
        over: whether it has.
    """

    def __init__(self, seconds: float | None) -> None:
        self.over = False
        self.timer = threading.Timer(seconds or 0, self._stop) if seconds else None

    def _stop(self) -> None:
        self.over = True
        _thread.interrupt_main()

    def __enter__(self) -> "Late":
        if self.timer:
            # A shell's background jobs ignore the interrupt: then nothing would ever stop.
            self.handler = signal.signal(signal.SIGINT, signal.default_int_handler)
            self.timer.daemon = True
            self.timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.timer:
            self.timer.cancel()
            signal.signal(signal.SIGINT, self.handler)


def main(arguments: list[str] | None = None) -> int:
    """Print reports; 0 if all are ok, 1 if not, 2 if one can't be had."""
    asked = parser().parse_args(arguments)
    try:
        language()
    except ValueError as error:  # before the work, not after it
        parser().error(str(error))
    found: list[Examined] = []
    for target in asked.layer:
        late = Late(asked.timeout)
        before = len(found)
        try:
            with late:
                for each in examined(target, asked):
                    if isinstance(each, Examined):
                        found.append(each)
                    else:
                        print(each, file=sys.stderr)
        except KeyboardInterrupt:
            if not late.over:
                raise
            parser().error(f"{target} was not done after {asked.timeout:g} s")
        except (ImportError, SyntaxError, TypeError, ValueError) as error:
            parser().error(str(error))
        if len(found) == before:
            parser().error(f"no class of {target} could be examined")
    print(FORMATS[asked.format](found))
    return 0 if all(each.report.ok for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
