"""Models that transformers has a class for: built without numbers, run, and looked at.

docs/data/configurations.toml says which, and with which sizes where the class's defaults are not a
released model's. What is found stands in docs/data/configurations.json; none of it is typed.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mhsite.pages.atlas import FOUND, chosen
from mhsite.stories import models

TOKENS = 8  # of the text that is read; a window is asked for its size
MLPS = ("mlp", "feed_forward", "block_sparse_moe", "moe")  # keep nothing, so they needn't run
NORM = re.compile(r"(^|\.)((q|k|query|key)_(layer)?norm|qk_norm)$")
EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
TAKEN = ("num_experts_per_tok", "num_experts_per_token")


def with_rows() -> dict[str, dict[str, Any]]:
    """Of these, those with a row."""
    return {name: table for name, table in chosen().items() if "reason" not in table}


def missing() -> list[str]:
    """The installed transformers' language models with neither a row nor a reason."""
    return [line for line in models.without_row() if line.split(":")[0] not in chosen()]


def write() -> None:
    """Look at all of them anew, and file what is found, a line for each."""
    lines = [json.dumps(row(name, table)) for name, table in with_rows().items()]
    FOUND.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def row(name: str, table: dict[str, Any]) -> dict[str, Any]:
    """What the class has and does with these sizes: parameters, caches, norms, positions."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[name](**table.get("sizes", {}))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config).eval()
    parameters = sum(weights.numel() for weights in model.parameters())
    experts = next((getattr(config, n) for n in EXPERTS if getattr(config, n, None)), 0)
    taken = next((getattr(config, n) for n in TAKEN if getattr(config, n, None)), 0)
    resting = _routed(model, experts) * (experts - taken) // experts if experts else 0
    about = _file(type(config))
    return {
        "name": table["title"].lower().replace(" ", "-"),
        "title": table["title"],
        "type": name,
        **about,
        "checkpoint": table.get("checkpoint", about["checkpoint"]),
        "parameters": parameters,
        "active": parameters - resting,
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "vocabulary": config.vocab_size,
        "tied": bool(config.tie_word_embeddings),
        "experts": experts,
        "per_token": taken,
        "norm": any(NORM.search(n) and "index" not in n for n, _ in model.named_modules()),
        "sinks": any(name.endswith((".sinks", ".sink")) for name, _ in model.named_parameters()),
        **_run(model, config),
    }


def agrees(row: dict[str, Any], said: str) -> bool:
    """Whether a count is what a name says: ``7B``, ``1.7B``, ``A2.7B``, ``501B-A23B``.

    Names round, or drop what is behind their last digit.
    """
    parts = re.findall(r"(?<![\w.])(A?)(\d+(?:\.\d+)?)B(?![a-z])", said, re.IGNORECASE)
    for active, number in parts:
        count = row["active" if active else "parameters"] / 1e9
        last = 10 ** -len(number.partition(".")[2])
        if not float(number) - last / 2 <= count < float(number) + last:
            return False
    return bool(parts)


def _file(kind: type) -> dict[str, Any]:
    """Where a configuration's class stands, the checkpoint that it names, and its year."""
    path = Path(inspect.getfile(kind))
    text = path.read_text("utf-8")
    named = re.search(r'checkpoint="([^"]+)"', text)
    years = re.compile(r"Copyright (20\d\d)")
    found = years.findall(text)  # else it was made from a file beside it
    found = found or [
        y for p in path.parent.glob("*.py") for y in years.findall(p.read_text("utf-8"))
    ]
    return {
        "file": f"{path.parent.name}/{path.name}",
        "checkpoint": named[1] if named else "",
        "year": min(map(int, found)),
    }


def _routed(model: Any, experts: int) -> int:
    """Weights of all experts among which routers choose: stacked, or a list of modules."""
    import torch

    weights = 0
    for name, module in model.named_modules():
        if name.split(".")[-1] == "experts":
            listed = isinstance(module, torch.nn.ModuleList)
            stacked = [p.numel() for p in module.parameters() if listed or p.shape[0] == experts]
            weights += sum(stacked)
    return weights


def _run(model: Any, config: Any) -> dict[str, Any]:
    """The caches that the class fills, layer by layer, and where it turns queries and keys."""
    import torch

    decoder, turned, now = model.get_decoder(), {}, []
    for number, layer in enumerate(decoder.layers):
        layer.register_forward_pre_hook(lambda *_, number=number: now.append(number))
        for name in MLPS:
            if hasattr(layer, name):
                setattr(layer, name, _nothing())
    module = sys.modules[type(decoder).__module__]
    before = {name: each for name, each in vars(module).items() if name.startswith("apply_rotary")}
    for name, function in before.items():
        setattr(module, name, _watched(function, turned, now))
    try:
        ids = torch.zeros(1, TOKENS, dtype=torch.long, device="meta")
        with torch.no_grad():
            cache = model(input_ids=ids, use_cache=True).past_key_values
    finally:
        for name, function in before.items():
            setattr(module, name, function)
    layers = [json.dumps(_kept(x, n in turned, config)) for n, x in enumerate(cache.layers)]
    kinds = Counter(layers)
    letters = {kind: chr(ord("a") + n) for n, kind in enumerate(kinds)}
    return {
        "layers": len(layers),
        "rotary": max(turned.values(), default=0),
        "kinds": [{"layers": count} | json.loads(kind) for kind, count in kinds.items()],
        "order": "".join(letters[layer] for layer in layers),
    }


def _nothing() -> Any:
    import torch

    class Nothing(torch.nn.Module):
        def forward(self, x: Any, *more: Any, **_: Any) -> Any:
            return (x, *more) if more else x  # of ZAYA: what its router saw one layer before

    return Nothing()


def _watched(function: Callable, turned: dict[int, int], now: list[int]) -> Callable:
    """The same function, which notes how many numbers of a head it turns, and in which layer."""

    def watched(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        turned[now[-1]] = max(turned.get(now[-1], 0), given["cos"].shape[-1])
        return function(*args, **kwargs)

    return watched


def _kept(layer: Any, turned: bool, config: Any) -> dict[str, Any]:
    """What one layer's cache holds: numbers of each token, a window's, or a state."""
    import torch

    sizes = {
        name: sum(x.numel() for x in getattr(layer, name, {}).values() if torch.is_tensor(x))
        for name in ("recurrent_states", "conv_states")
    }
    state, convolved = sizes.values()
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    index = getattr(layer, "indexer_keys", None)
    kept: dict[str, Any] = {"sees": "state" if state else "convolution"}
    numbers = 0
    if torch.is_tensor(keys):
        numbers = sum(x.shape[1] * x.shape[-1] for x in (keys, values))
        numbers += index.shape[-1] if torch.is_tensor(index) else 0
        latent = keys.shape[-1] == getattr(config, "kv_lora_rank", None)
        kept = {"sees": "all", "latent": latent, "turned": turned}
        kept |= {"kv_heads": keys.shape[1], "key": keys.shape[-1], "value": values.shape[-1]}
    if type(layer).__name__ == "DynamicIndexedLayer":
        kept |= {"top_keys": config.index_topk, "indexer": torch.is_tensor(index)}
        kept["index"] = config.index_n_heads * config.index_head_dim if kept["indexer"] else 0
    if window := getattr(layer, "sliding_window", None):
        kept |= {"sees": "window", "window": window}
    return kept | {"numbers": numbers, "state": state, "convolved": convolved}
