"""The calculator as the build writes it into its page: a form, and the answers of its defaults.

docs/assets/calculator.js takes over from there, with the words that are given to it here.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from decimal import ROUND_HALF_UP, Context
from html import escape
from itertools import groupby
from typing import Any

from mhattn.costs import (
    Accelerator,
    ModelSizes,
    ServingCost,
    known_accelerator,
    known_accelerators,
    known_model,
    known_models,
)
from mhsite.stories.source import DOCS

MODEL, DEVICE, TOKENS = "llama-3.1-8b", "h100", 8192
BITS = (32, 16, 8, 6, 5, 4)
MOST = 64  # devices in the list
BYTES = ("bytes", "KiB", "MiB", "GiB", "TiB")
TIMES = ("ns", "µs", "ms", "s")


def html(language: str) -> str:
    """The form and the answers of its defaults, with the words that the script needs."""
    words = tomllib.loads((DOCS / "data" / "calculator.toml").read_text(encoding="utf-8"))[language]
    rows = [known_model(name) for name in known_models()]
    models = "".join(
        f'<optgroup label="{escape(family)}">'
        + "".join(option(model.name, model.title, MODEL) for model in of)
        + "</optgroup>"
        for family, of in groupby(rows, lambda model: model.family)
    )
    chips = [known_accelerator(name) for name in known_accelerators()]
    bits = "".join(option(n, words["bits"].format(n), 16) for n in BITS)
    counts = option("", words["auto"], "")
    counts += "".join(option(2**i, 2**i, "") for i in range(MOST.bit_length()))
    fields = [
        choice("model", words, models),
        choice("device", words, "".join(option(chip.name, chip.title, DEVICE) for chip in chips)),
        entry("tokens", words, TOKENS),
        entry("batch", words, 1),
        choice("weight_bits", words, bits),
        choice("cache_bits", words, bits),
        choice("devices", words, counts),
    ]
    given = escape(json.dumps(words, ensure_ascii=False))
    return (
        f'<form class="mh-calculator" data-words="{given}">'
        # Without the script a choice would change nothing: the answers are of the defaults.
        f'<fieldset class="mh-fields" disabled>{"".join(fields)}</fieldset>'
        f'<p class="mh-calc-error" id="mh-calc-error" hidden></p>{default_answers(words)}'
        f"<noscript>{words['no_script']}</noscript>"
        '<p class="mh-calc-notes" hidden></p><div class="mh-calc-more"></div>'
        f'<button type="reset" class="md-button" hidden>{words["reset"]}</button>'
        '<p class="mh-calc-said" role="status"></p></form>'
    )


def known_sizes() -> str:
    """The module known-sizes.js: the known models and accelerators."""
    names = ("name", "title", "memory", "bandwidth", "flops")
    tables = {
        "MODELS": [model_sizes(known_model(name)) for name in known_models()],
        "DEVICES": [
            {name: getattr(known_accelerator(chip), name) for name in names}
            for chip in known_accelerators()
        ],
    }
    return "".join(
        f"export const {name} = {json.dumps(rows, separators=(',', ':'))}\n"
        for name, rows in tables.items()
    )


def model_sizes(model: ModelSizes) -> dict[str, Any]:
    """What the calculator needs of a model; what its sources don't say is null."""
    names = ("name", "kind", "embed_dim", "vocabulary", "tied", "learned_positions")
    sizes = {name: getattr(model, name) for name in (*names, "published_parameters")}
    return sizes | {"mlp": model.mlp and asdict(model.mlp), "kinds": model.kind_sizes()}


def option(value: object, text: object, chosen: object) -> str:
    selected = " selected" if value == chosen else ""
    return f'<option value="{value}"{selected}>{escape(str(text))}</option>'


def choice(name: str, words: dict, options: str) -> str:
    return f'<label>{words[name]}<select name="{name}">{options}</select></label>'


def entry(name: str, words: dict, value: object) -> str:
    field = f'<input name="{name}" value="{value}" inputmode="text" autocomplete="off">'
    return f"<label>{words[name]}{field}</label>"


def default_answers(words: dict) -> str:
    chip = known_accelerator(DEVICE)
    cost = known_model(MODEL).serving(TOKENS, chip)
    parts = [
        f"<div><dt>{words[name]}</dt><dd><b data-answer={name}>{first}</b> "
        f"<span data-answer={name}-more>{second}</span></dd></div>"
        for name, first, second in answers(words, cost, chip)
    ]
    return f'<dl class="mh-answers">{"".join(parts)}</dl>'


def answers(words: dict, cost: ServingCost, chip: Accelerator) -> list[tuple[str, str, str]]:
    """The three answers that people come for, of one sequence that fits on one device."""
    total = cost.weight_bytes + cost.cache_bytes
    left = scaled(chip.memory - total, 1024, BYTES)
    rate = significant(10**9 / cost.step_nanoseconds)
    return [
        ("cache", scaled(cost.cache_bytes, 1024, BYTES),
         words["added"].format(scaled(cost.token_bytes, 1024, BYTES))),
        ("memory", scaled(total, 1024, BYTES),
         words["fits"].format(device=chip.title, left=left)),
        ("prompt", scaled(cost.prompt_nanoseconds, 1000, TIMES), words["one"]),
        ("rate", rate, words["one"]),
    ]  # fmt: skip


def scaled(number: float, base: int, units: tuple[str, ...]) -> str:
    """Three digits and a unit, as calculator.js writes them."""
    unit = 0
    while number >= 0.9995 * base and unit < len(units) - 1:
        number, unit = number / base, unit + 1
    if unit == 0:
        return f"{number:.0f} {units[0]}"
    return f"{precise(number, 4 if number >= 999.5 else 3)} {units[unit]}"


def significant(number: float) -> str:
    """Three digits, grouped by thousands, as calculator.js writes them."""
    text = precise(number, 3)
    return text if number < 99.95 else f"{int(float(text)):,}"


def precise(number: float, digits: int) -> str:
    """What toPrecision gives in JavaScript: of the exact value of a float, a half is rounded up."""
    rounded = Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal_from_float(number)
    return f"{float(rounded):#.{digits}g}".rstrip(".")
