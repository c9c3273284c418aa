"""A model of transformers with random weights, so small that it can be examined in seconds."""

import difflib
import importlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mhattn.testing.fed import Feed
from mhattn.testing.shrunk import KEPT, classes_of, fitted, shrink

__all__ = ["tiny_model"]


def tiny_model(of: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model of transformers, shrunk, and inputs for it.

    Every kind of layer that the configuration has is kept once; widths, heads and vocabularies
    become small; weights are random, the same in each call.

    Args:
        of: a name of transformers' configurations, as ``"qwen3"``, or the path of a
            ``config.json``.

    Returns:
        The model, in evaluation mode, and two sequences of 11 tokens, or two pictures.

    Raises:
        ImportError: transformers isn't installed.
        ValueError: there is no such configuration, or its model can't be built so small.

    Examples:
        >>> model, inputs = tiny_model("gpt2")
        >>> type(model).__name__, {name: tuple(x.shape) for name, x in inputs.items()}
        ('GPT2Model', {'input_ids': (2, 11)})
    """
    transformers: Any = importlib.import_module("transformers")
    first = ""
    with torch.random.fork_rng(devices=[]):
        for kept in KEPT:
            config = _config(of, transformers)
            try:
                shrink(config, transformers, kept)
                classes = classes_of(config, transformers)
            except Exception as error:  # whatever somebody else's class may raise
                first = first or f"no small model of {of!r} can be built: {said(error)}"
                continue
            for kind in classes:
                try:
                    return _runs(kind, config, transformers)
                except Unfit as error:
                    first = first or f"{error}"
                except Exception as error:
                    first = first or f"no small model of {of!r} can be built: {said(error)}"
    raise ValueError(first or f"no small model of {of!r} can be built: no class is known for it")


class Unfit(Exception):
    """Why a model doesn't run."""


def said(error: Exception) -> str:
    """What an error says, in one line."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def _runs(kind: Any, config: Any, transformers: Any) -> tuple[nn.Module, dict[str, Any]]:
    """A model with random weights, and inputs that it takes."""
    fitted(config, kind._from_config, transformers)
    torch.manual_seed(0)
    model = kind._from_config(config).eval()
    first = f"it takes {model.main_input_name}"
    for number, inputs in enumerate(Feed(model, config).tries()):
        try:
            with torch.no_grad():
                model(**inputs)
        except Exception as error:  # other inputs may do
            first = said(error) if not number else first
        else:
            return model, inputs
    raise Unfit(f"no inputs for {kind.__name__} are known here: {first}")


def _config(of: str, transformers: Any) -> Any:
    path = Path(of)
    if path.suffix == ".json":
        if not path.is_file():
            raise ValueError(f"no configuration {of!r}: there is no such file")
        told = json.loads(path.read_text(encoding="utf-8"))
        kind = told.get("model_type")
        if kind not in transformers.CONFIG_MAPPING:
            raise ValueError(f"{of} must name a model_type of transformers, got {kind!r}")
        return transformers.CONFIG_MAPPING[kind].from_dict(told)
    if of not in transformers.CONFIG_MAPPING:
        near = difflib.get_close_matches(of, transformers.CONFIG_MAPPING, n=3, cutoff=0.5)
        told = f"; like it: {', '.join(near)}" if near else ""
        raise ValueError(f"no configuration {of!r} in transformers{told}")
    config = transformers.CONFIG_MAPPING[of]()
    if type(getattr(config, "backbone_config", None)).__name__ == "TimmBackboneConfig":
        # That library isn't here; any other tower has the same attention behind it.
        stages = {"embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4}
        names = ["stage2", "stage3", "stage4"]
        config.backbone_config = transformers.ResNetConfig(**stages, out_features=names)
    return config
