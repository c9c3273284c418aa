"""The atlas: what the page draws of each model, and what it says of any two.

A row is a known model's, from mhattn/costs/model_sizes.toml, or that of a class of transformers,
from docs/data/configurations.json, which `measuring.configurations` files. docs/assets/atlas.js
draws them; nothing that it shows is typed.
"""

from __future__ import annotations

import csv
import io
import json
import tomllib
from functools import cache
from typing import Any

from mhattn.costs import ModelSizes, known_accelerator, known_model
from mhsite import words
from mhsite.pages import known_models, timeline
from mhsite.pages.measured import table_markdown
from mhsite.stories.source import DOCS, SourceError

CHOSEN = DOCS / "data" / "configurations.toml"
FOUND = DOCS / "data" / "configurations.json"
LIBRARY = "https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/"
LONG = 32_768  # tokens of the text for which caches and steps are counted
TWO = 2  # bytes of a number
COLUMNS = 8  # of the table of classes
CARD = ["name", "title", "year", "date", "lane", "parameters", "active", "width", "layers"]
CARD += ["token", "long", "step", "experts", "per_token", "order", "source", "dated"]


def chosen() -> dict[str, dict[str, Any]]:
    """The table of each kind of model that has a row by its class, or a reason why not."""
    return tomllib.loads(CHOSEN.read_text("utf-8"))


def found() -> list[dict[str, Any]]:
    """The rows of classes, as filed."""
    return json.loads(FOUND.read_text("utf-8"))


@cache
def rows() -> list[dict[str, Any]]:
    """All models that the atlas draws, newest first; those with a year only end their year."""
    known = [_known(known_model(name), int(y)) for name, y in known_models.released().items()]
    classes = [_class(row, chosen()[row["type"]]) for row in found()]
    decoders = [row for row in known if row is not None]
    dates = timeline.dates()
    rows = [_dated(row, *dates.get(row["name"], ("", ""))) for row in [*decoders, *classes]]
    # sorted keeps the order of equals
    return sorted(rows, key=lambda row: row["date"] or str(row["year"]), reverse=True)


def _dated(row: dict[str, Any], date: str, source: str) -> dict[str, Any]:
    """The row with its date, if a page says it, and its place in the timeline."""
    year = int(date[:4]) if date else row["year"]
    return row | {"year": year, "date": date, "dated": source, "lane": timeline.lane(row["kinds"])}


def files() -> dict[str, str]:
    """The rows for the script and for readers: the same twice."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows())
    text = io.StringIO()
    sheet = csv.writer(text, lineterminator="\n")
    sheet.writerow([*CARD, "kinds"])
    for row in rows():
        sheet.writerow([*(row[name] for name in CARD), json.dumps(row["kinds"])])
    return {"data/atlas.json": f"[\n{lines}\n]\n", "data/atlas.csv": text.getvalue()}


def _known(model: ModelSizes, year: int) -> dict[str, Any] | None:
    """A known model's row; None: an encoder, which keeps nothing while it writes."""
    if model.kind != "decoder":
        return None
    counted = model.mlp is not None and model.vocabulary is not None and model.tied is not None
    whole = model.published_parameters if model.differs or not counted else model.parameters()
    active = model.parameters(active=True) if counted and not model.differs else None
    ends = bool(model.learned_positions)  # a table of them ends before so long a text
    step = None
    if active and not ends:
        step = model.serving(LONG, known_accelerator("h100")).step_flops
    mlp = model.mlp
    return {
        "name": model.name,
        "title": model.title,
        "year": year,
        "class": False,
        "source": model.source,
        "parameters": whole,
        "active": active,
        "width": model.embed_dim,
        "layers": model.layers,
        "experts": mlp.experts if mlp else 0,
        "per_token": mlp.per_token if mlp else 0,
        "norm": model.qk_norm,
        "sinks": model.sinks,
        "cap": model.soft_cap or 0,
        "bare": model.layers_without_rope or 0,
        "learned": ends,
        "turned": bool(model.rope_base),
        "rotary": _turned(model),
        "order": "",
        "kinds": [_known_kind(model, kind) for kind in model.layer_kinds],
        "token": model.kv_cache_bytes_per_token(),
        "long": None if ends else model.kv_cache_bytes(LONG),
        "step": step,
    }


def _turned(model: ModelSizes) -> int:
    """Numbers of a head that are turned, if not all; Kimi Linear has the part and turns nothing."""
    part = model.latent.qk_rope_head_dim if model.latent else 0
    return (model.rotary_dim or part) if model.rope_base else 0


def _known_kind(model: ModelSizes, kind: Any) -> dict[str, Any]:
    softmax = kind.sees != "state"
    index = model.index if kind.indexed or not model.mixed else None
    latent = model.latent.kv_lora_rank if model.latent and softmax else 0
    return {
        "layers": kind.layers,
        "sees": kind.sees,
        "heads": kind.num_heads,
        "kv": 0 if latent else kind.num_kv_heads,
        "key": kind.head_dim,
        "value": kind.v_head_dim or (model.v_head_dim if softmax else kind.head_dim),
        "latent": latent,
        "numbers": kind.numbers,
        "window": kind.window or 0,
        "state": kind.state,
        "shared": kind.shared,
        "every": kind.every,
        "top": index.top_keys if index else 0,
        "reused": False,
    }


def _class(row: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """The row of a class of transformers."""
    kinds = [_class_kind(row, kind) for kind in row["kinds"]]
    pairs = long = 0
    for kind, made in zip(row["kinds"], kinds, strict=True):
        seen = min(LONG, kind.get("window") or LONG)
        long += kind["layers"] * (seen * kind["numbers"] + kind["state"])
        met = min(seen, kind.get("top_keys") or seen)
        # Behind a latent, a head's query meets the latent twice, for score and mix, and a key once.
        width = kind.get("key", 0) * (2 if kind.get("latent") else 1) + kind.get("value", 0)
        each = met * made["heads"] * width + kind.get("index", 0) * LONG + 2 * kind["state"]
        pairs += kind["layers"] * each
    looked_up = 0 if row["tied"] else row["vocabulary"] * row["width"]
    attending = [k for k in row["kinds"] if "turned" in k]
    bare = sum(k["layers"] for k in attending if not k["turned"])
    full = max((k["key"] for k in attending if "key" in k), default=0)
    names = ("name", "title", "year", "parameters", "active", "width", "layers", "order")
    return {name: row[name] for name in names} | {
        "class": True,
        "source": LIBRARY + row["file"],
        "experts": row["experts"],
        "per_token": row["per_token"],
        "norm": row["norm"],
        "sinks": row["sinks"],
        "cap": 0,
        "bare": bare,
        "learned": False,
        "turned": row["rotary"] > 0,
        "rotary": row["rotary"] if row["rotary"] != full else 0,
        "kinds": kinds,
        "token": TWO * sum(k["layers"] * k["numbers"] for k in row["kinds"]),
        "long": TWO * long,
        "step": 2 * (row["active"] - looked_up + pairs),
    }


def _class_kind(row: dict[str, Any], kind: dict[str, Any]) -> dict[str, Any]:
    latent = kind["key"] if kind.get("latent") else 0
    return {
        "layers": kind["layers"],
        "sees": kind["sees"],
        "heads": row["heads"] if "turned" in kind else 0,
        "kv": 0 if latent else kind.get("kv_heads", 0),
        "key": kind.get("key", 0),
        "value": kind.get("value", 0),
        "latent": latent,
        "numbers": kind["numbers"],
        "window": kind.get("window", 0),
        "state": kind["state"],
        "shared": False,
        "every": 1,
        "top": kind.get("top_keys", 0),
        "reused": "top_keys" in kind and not kind["indexer"],
    }


def markdown(name: str, headings: list[str], language: str) -> str:
    """``configurations``: the rows of classes; ``configurations reasons``: why others have none."""
    if name == "reasons":
        return _reasons(headings, language)
    if name or len(headings) != COLUMNS:
        raise SourceError(f"configurations has {COLUMNS} columns, got headings {headings}")
    lines = []
    for row in (row for row in rows() if row["class"]):
        seen = [_seen(kind, language) for kind in row["kinds"]]
        heads = [k for k in row["kinds"] if k["key"]]
        lines.append(
            [
                f'<span id="{row["name"]}">[{row["title"]}]({row["source"]})</span>',
                str(row["year"]),
                words.of(language, "punctuation.list_comma").join(seen),
                "/".join(dict.fromkeys(str(kind["heads"]) for kind in heads)),
                "/".join(dict.fromkeys(str(kind["kv"] or "–") for kind in heads)),
                f"{row['parameters'] / 1e9:.3g}",
                f"{row['active'] / 1e9:.3g}",
                f"{row['long'] / 2**30:.2g}",
            ]
        )
    return table_markdown(headings, lines)


def _seen(kind: dict[str, Any], language: str) -> str:
    sees = words.of(language, "models.sees")[kind["sees"]] if kind["sees"] != "window" else ""
    return f"{kind['layers']} × {sees or kind['window']}"


def _reasons(headings: list[str], language: str) -> str:
    said = words.of(language, "models.reasons")
    of: dict[str, list[str]] = {reason: [] for reason in said}
    for name, table in chosen().items():
        if "reason" in table:
            of[table["reason"]].append(f"`{name}`")
    comma = words.of(language, "punctuation.list_comma")
    return table_markdown(headings, [[said[why], comma.join(names)] for why, names in of.items()])
