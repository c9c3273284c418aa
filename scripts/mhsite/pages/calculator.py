"""The calculator as the build writes it into its page: a form, and the answers of its defaults.

docs/assets/calculator.js takes over from there.
"""

from __future__ import annotations

import json
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
from mhsite import words

MODEL, DEVICE, TOKENS = "llama-3.1-8b", "h100", 8192
BITS = (32, 16, 8, 6, 5, 4)
MOST = 64  # devices in the list
BYTES = ("bytes", "KiB", "MiB", "GiB", "TiB")
TIMES = ("ns", "µs", "ms", "s")


def html(language: str) -> str:
    """The form and the answers of its defaults."""
    labels = words.of(language, "calculator.form")
    rows = [known_model(name) for name in known_models()]
    models = "".join(
        f'<optgroup label="{escape(family)}">'
        + "".join(option(model.name, model.title, MODEL) for model in of)
        + "</optgroup>"
        for family, of in groupby(rows, lambda model: model.family)
    )
    chips = "".join(
        f'<optgroup label="{escape(maker)}">'
        + "".join(option(chip.name, chip.title, DEVICE) for chip in of)
        + "</optgroup>"
        for maker, of in groupby(map(known_accelerator, known_accelerators()), lambda c: c.maker)
    )
    bits = "".join(option(n, words.of(language, "calculator.bits", count=n), 16) for n in BITS)
    counts = option("", words.of(language, "calculator.auto"), "")
    counts += "".join(option(2**i, 2**i, "") for i in range(MOST.bit_length()))
    fields = [
        choice("model", labels, models),
        choice("device", labels, chips),
        entry("tokens", labels, TOKENS),
        entry("batch", labels, 1),
        choice("weight_bits", labels, bits),
        choice("cache_bits", labels, bits),
        choice("devices", labels, counts),
    ]
    reset = words.of(language, "calculator.reset")
    return (
        '<form class="mh-calculator">'
        # Without the script a choice would change nothing: the answers are of the defaults.
        f'<fieldset class="mh-fields" disabled>{"".join(fields)}</fieldset>'
        f'<p class="mh-calc-error" id="mh-calc-error" hidden></p>{default_answers(language)}'
        f"<noscript>{words.of(language, 'calculator.no_script')}</noscript>"
        '<p class="mh-calc-notes" hidden></p><div class="mh-calc-more"></div>'
        f'<button type="reset" class="md-button" hidden>{reset}</button>'
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


def choice(name: str, labels: dict, options: str) -> str:
    return f'<label>{labels[name]}<select name="{name}">{options}</select></label>'


def entry(name: str, labels: dict, value: object) -> str:
    field = f'<input name="{name}" value="{value}" inputmode="text" autocomplete="off">'
    return f"<label>{labels[name]}{field}</label>"


def default_answers(language: str) -> str:
    chip = known_accelerator(DEVICE)
    cost = known_model(MODEL).serving(TOKENS, chip)
    parts = [
        f"<div><dt>{title}</dt><dd><b data-answer={name}>{first}</b> "
        f"<span data-answer={name}-more>{second}</span></dd></div>"
        for name, title, first, second in answers(language, cost, chip)
    ]
    return f'<dl class="mh-answers">{"".join(parts)}</dl>'


def answers(language: str, cost: ServingCost, chip: Accelerator) -> list[tuple[str, str, str, str]]:
    """What people come for, of one sequence that fits on one device: name, title and answer."""
    total = cost.weight_bytes + cost.cache_bytes
    left = scaled(chip.memory - total, 1024, BYTES)
    token = scaled(cost.token_bytes, 1024, BYTES)
    titles, one = words.of(language, "calculator.answers"), words.of(language, "calculator.one")
    found = {
        "cache": (scaled(cost.cache_bytes, 1024, BYTES),
                  words.of(language, "calculator.added", size=token)),
        "memory": (scaled(total, 1024, BYTES),
                   words.of(language, "calculator.fits", device=chip.title, left=left)),
        "prompt": (scaled(cost.prompt_nanoseconds, 1000, TIMES), one),
        "rate": (significant(10**9 / cost.step_nanoseconds), one),
    }  # fmt: skip
    return [(name, titles[name], *answer) for name, answer in found.items()]


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
