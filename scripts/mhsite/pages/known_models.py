"""The table of known models, mhattn/costs/model_sizes.toml, as Markdown."""

from __future__ import annotations

import tomllib

from mhattn.costs import known_model, known_models
from mhsite import words
from mhsite.pages.measured import table_markdown
from mhsite.stories.source import DOCS, SourceError

RELEASED = DOCS / "data" / "released.toml"
LONG = 131_072  # tokens: 128k
# The columns of known models; docs/assets/known-models.js has their names in the address.
COLUMNS = ["model", "released", "heads", "kv-heads", "size", "layers-see", "parameters", "active"]
COLUMNS += ["long", "source", "layers", "width", "context", "token", "rotary-base", "also"]


def markdown(headings: list[str], language: str) -> str:
    """A row for each known model, newest first: year, sizes, caches, kinds of layers, source."""
    if len(headings) != len(COLUMNS):
        raise SourceError(f"models has {len(COLUMNS)} columns, got headings {headings}")
    named = zip(COLUMNS, headings, strict=True)
    headings = [f'<span data-column="{name}">{heading}</span>' for name, heading in named]
    rows = [model_row(known_model(name), year, language) for name, year in released().items()]
    # known-models.css aligns its numbers: a style in every cell would weigh a kilobyte.
    return table_markdown(headings, rows).replace("---:", "---")


def released() -> dict[str, str]:
    """The year of each known model, newest first; of one year, as in the package's file."""
    years = {}
    for year, names in tomllib.loads(RELEASED.read_text("utf-8")).items():
        for name in names:
            if name in years:
                raise SourceError(f"{name} has two years, {years[name]} and {year}", RELEASED)
            years[name] = year
    if odd := sorted(years.keys() ^ set(known_models())):
        why = "must have a year for each known model, and for nothing else"
        raise SourceError(f"{why}; see {', '.join(odd)}", RELEASED)
    # sorted keeps the order of equals
    return {name: years[name] for name in sorted(known_models(), key=lambda n: -int(years[n]))}


def model_row(model, year: str, language: str) -> list[str]:
    """Bold is a head size other than the width divided by the heads; a dash stands for nothing.

    What most readers look for stands first, where a narrow screen shows it.
    """
    softmax = [kind for kind in model.layer_kinds if kind.sees != "state"]
    kv_heads = ", ".join(dict.fromkeys(str(kind.num_kv_heads) for kind in softmax))
    head_dim = ", ".join(dict.fromkeys(str(kind.head_dim) for kind in softmax))
    if model.latent:
        kv_heads = "–"
    if model.latent or model.v_head_dim != model.head_dim:
        head_dim += f" / {model.v_head_dim}"
    experts = " MoE" if model.mlp and model.mlp.experts else ""
    about = f"{model.family} {model.attention} {model.kind}{experts}"  # a reader may filter by it
    sources = words.of(language, "models.sources")
    kept = model.kv_cache_bytes_per_token() / 1024
    return [
        f'<span class="mh-model" id="{model.name}" data-is="{about}">{model.title}</span>',
        year,
        str(model.num_heads),
        kv_heads,
        head_dim if model.splits_width else f"**{head_dim}**",
        _seen(model, language),
        *_parameters(model),
        _long_cache(model),
        f"[{sources[model.source_kind]}]({model.source})" + _more_sources(model, language),
        str(model.layers),
        str(model.embed_dim),
        f"{model.context / 1024:g}" if model.context else "–",
        f"{kept:.1f}".removesuffix(".0") if kept else "–",
        _rotary_bases(model),
        _extras(model, language) or "–",
    ]


def _more_sources(model, language: str) -> str:
    links = []
    for number, address in enumerate(model.more_sources, 2):
        name = words.of(language, "models.more", title=model.title, number=number)
        links.append(f' [+]({address}){{ .mh-more aria-label="{name}" }}')
    return "".join(links)


def _long_cache(model) -> str:
    """GiB of one sequence of 128k tokens; a table of learned positions has no room for them."""
    if model.kind == "encoder" or model.learned_positions:
        return "–"
    return _three_digits(model.kv_cache_bytes(LONG) / 2**30)


def _parameters(model) -> tuple[str, str]:
    """In billions, counted: all, and those that a token uses.

    Where the count is known to differ, as published; italic. It links to what was published.
    """
    if model.mlp is None or model.vocabulary is None or model.tied is None:
        return "–", "–"
    said, active = (_billions(model.parameters(active=active)) for active in (False, True))
    if model.differs:
        said = f"*{_billions(model.published_parameters)}*"
        active = active if model.mlp.experts else "–"
    return f"[{said}]({model.published_source})" if model.published_source else said, active


def _billions(number: int) -> str:
    return _three_digits(number / 1e9)


def _three_digits(number: float) -> str:
    """Without an exponent: ``1030``, ``0.124``."""
    return f"{float(f'{number:.3g}'):g}"


def _seen(model, language: str) -> str:
    """What the layers see: ``52 × 1024, 10 × all``."""
    sees = {"window": "{size}"} | words.of(language, "models.sees")
    parts = [
        f"{kind.layers} × {sees[kind.sees].format(size=kind.window)}"
        + (f" + {kind.every}:1" if kind.every > 1 else "")
        + (words.of(language, "models.shared") if kind.shared else "")
        for kind in model.layer_kinds
    ]
    comma = words.of(language, "punctuation.list_comma")
    return comma.join(parts) if parts[1:] or model.window else sees["all"]


def _rotary_bases(model) -> str:
    """``1M``; where windows have a base of their own, it stands first: ``10k, 1M``."""
    bases = [base for base in (model.local_rope_base, model.rope_base) if base]
    short = [f"{base // 10**6}M" if base >= 10**6 else f"{base // 1000}k" for base in bases]
    return ", ".join(short) or "–"


def _extras(model, language: str) -> str:
    names = {"norm": "QK-norm"} | words.of(language, "models.extras")
    found = {"norm": model.qk_norm, "cap": model.soft_cap, "sinks": model.sinks}
    found |= {"index": model.index and model.index.top_keys, "bare": model.layers_without_rope}
    in_latent = model.latent and model.rope_base and model.latent.qk_rope_head_dim
    found["part"] = model.rotary_dim or in_latent
    extras = [names[name].format(number=value) for name, value in found.items() if value]
    return words.of(language, "punctuation.list_comma").join(extras)
