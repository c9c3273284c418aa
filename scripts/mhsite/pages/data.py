"""The site's tables, bibliography, glossary and known models, as Markdown."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from mhattn.costs import known_model, known_models
from mhsite.pages import measured, runs
from mhsite.pages.measured import table_markdown
from mhsite.pages.page import Block, Page, Span, keys, read, trap_ids, with_spans
from mhsite.pages.settings import settings
from mhsite.stories.source import DOCS, SourceError, of_file

CITED = {"en": (" and ", " et al.", ", "), "zh": ("、", " 等", "，")}
CITING = {"en": ("Cited in ", ", ", "."), "zh": ("引用于", "、", "。")}
NAMES = {
    "en": {"torch": "PyTorch", "hf": "Hugging Face", "paper": "Papers", "also": "Also"},
    "zh": {"torch": "PyTorch", "hf": "Hugging Face", "paper": "论文", "also": "又称"},
}
SOURCES = {
    "en": {"owner": "owner", "library": "library", "paper": "paper"},
    "zh": {"owner": "官方", "library": "软件库", "paper": "论文"},
}
SEEN = {
    "en": {"window": "{}", "chunk": "chunks of {}", "all": "all", "state": "linear"},
    "zh": {"window": "{}", "chunk": "分块 {}", "all": "全部", "state": "线性"},
}
SEEN["en"] |= {"shared": " shared", "comma": ", "}
SEEN["zh"] |= {"shared": "（共用）", "comma": "、"}
EXTRAS = {
    "en": {"norm": "QK-norm", "cap": "soft-capping at {}", "sinks": "learned sinks"},
    "zh": {"norm": "QK-norm", "cap": "软上限 {}", "sinks": "可学习的汇点"},
}
EXTRAS["en"] |= {"index": "{} chosen keys", "bare": "{} layers without positions"}
EXTRAS["zh"] |= {"index": "选出 {} 个键", "bare": "{} 层不带位置"}
EXTRAS["en"]["part"], EXTRAS["zh"]["part"] = "{} numbers turned", "旋转 {} 个数"
LONG = 131_072  # tokens: 128k
# The columns of known models; docs/assets/known-models.js has their names in the address.
COLUMNS = ["model", "heads", "kv-heads", "size", "layers", "width", "parameters", "active"]
COLUMNS += ["context", "token", "long", "layers-see", "rotary-base", "also", "source"]


def bibliography() -> dict[str, dict]:
    return _parsed(DOCS / "data" / "bibliography.toml")


def glossary() -> list[dict]:
    """The groups of docs/data/glossary.toml, each with the list of its terms under ``term``."""
    return _parsed(DOCS / "data" / "glossary.toml")["group"]


def searched() -> Iterator[tuple[str, list[str]]]:
    """Pages or sections, each with what its subject is called here, elsewhere and by readers."""
    for term in (term for group in glossary() for term in group["term"]):
        kinds = ("code", "torch", "hf", "paper", "also", "also_zh")
        called = [name for kind in kinds for name in term.get(kind, [])]
        yield term["page"], [term["en"], term["zh"], *called]
    yield from _parsed(DOCS / "data" / "glossary.toml")["searched"].items()


def description(name: str, language: str) -> str:
    """What a page is about, in one sentence, if anybody has written that."""
    file = DOCS / "data" / "descriptions.toml"
    return _parsed(file).get(name, {}).get(language, "") if file.is_file() else ""


def moved() -> dict[str, str]:
    """Addresses that pages had, with those that they have: ``old/`` to ``new/#section``."""
    file = DOCS / "data" / "addresses.toml"
    return _parsed(file)["moved"] if file.is_file() else {}


@of_file
def _parsed(path: Path) -> dict:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def short_name(key: str, language: str) -> str:
    """A citation as it stands in a sentence: ``Vaswani et al., 2017``."""
    if key not in bibliography():
        raise SourceError(f"[@{key}] is not in docs/data/bibliography.toml")
    entry, (together, others, comma) = bibliography()[key], CITED[language]
    names = [author.split(",")[0] for author in entry["authors"]]
    who = names[0] + others if len(names) > 2 else together.join(names)
    return f"{who}{comma}{entry['year']}"


def citation(span: Span, language: str, url: Callable[[str], str]) -> str:
    """The works that stand side by side in one pair of brackets, each a link to ``url(key)``."""
    first, between, last = {"en": ("(", "; ", ")"), "zh": ("（", "；", "）")}[language]
    links = between.join(f"[{short_name(key, language)}]({url(key)})" for key in keys(span))
    if language == "zh":  # full-width brackets stand without spaces
        return first + links + last
    before, after = re.fullmatch(r"(\s?).*?( ?)", span.text, re.S).groups()
    return before + first + links + last + after


def table(block: Block, language: str, url: Callable[[str], str]) -> str:
    """``<!-- measured NAME | heading | … -->`` is docs/data/measured/*/NAME.json under headings.

    ``<!-- runs STORY:NAME -->`` says where docs/data/runs/STORY.json has its numbers from.
    ``<!-- models | heading | … -->`` is mhattn/costs/model_sizes.toml; bibliography and glossary
    have no headings. ``url`` gives the address of a file of the site.
    """
    kind, _, name = block.value.partition(" ")
    headings = [heading.strip() for heading in block.title.split("|")] if block.title else []
    if kind == "measured":
        return measured.markdown(name, headings, language, url)
    if kind == "runs" and not headings:
        return runs.markdown(name, language, url)
    if block.value == "models":
        return models_markdown(headings, language)
    if block.value == "bibliography" and not headings:
        return bibliography_markdown(language)
    if block.value == "glossary" and not headings:
        return glossary_markdown(language)
    raise SourceError(f"{block.text.strip()} names no table")


def models_markdown(headings: list[str], language: str) -> str:
    """A row for each known model: an anchor, sizes, caches, kinds of layers, and its source."""
    if len(headings) != len(COLUMNS):
        raise SourceError(f"models has {len(COLUMNS)} columns, got headings {headings}")
    named = zip(COLUMNS, headings, strict=True)
    headings = [f'<span data-column="{name}">{heading}</span>' for name, heading in named]
    rows = [model_row(known_model(name), language) for name in known_models()]
    return table_markdown(headings, rows)


def model_row(model, language: str) -> list[str]:
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
    kept = model.kv_cache_bytes_per_token() / 1024
    return [
        f'<span class="mh-model" id="{model.name}" data-is="{about}">{model.title}</span>',
        str(model.num_heads),
        kv_heads,
        head_dim if model.splits_width else f"**{head_dim}**",
        str(model.layers),
        str(model.embed_dim),
        *_parameters(model),
        f"{model.context / 1024:g}" if model.context else "–",
        f"{kept:.1f}".removesuffix(".0") if kept else "–",
        _long_cache(model),
        _seen(model, language),
        _rotary_bases(model),
        _extras(model, language) or "–",
        f"[{SOURCES[language][model.source_kind]}]({model.source})"
        + "".join(f" [+]({address})" for address in model.more_sources),
    ]


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
    words = SEEN[language]
    parts = [
        f"{kind.layers} × {words[kind.sees].format(kind.window)}"
        + (f" + {kind.every}:1" if kind.every > 1 else "")
        + (words["shared"] if kind.shared else "")
        for kind in model.layer_kinds
    ]
    return words["comma"].join(parts) if parts[1:] or model.window else words["all"]


def _rotary_bases(model) -> str:
    """``1M``; where windows have a base of their own, it stands first: ``10k, 1M``."""
    bases = [base for base in (model.local_rope_base, model.rope_base) if base]
    short = [f"{base // 10**6}M" if base >= 10**6 else f"{base // 1000}k" for base in bases]
    return ", ".join(short) or "–"


def _extras(model, language: str) -> str:
    words = EXTRAS[language]
    found = {"norm": model.qk_norm, "cap": model.soft_cap, "sinks": model.sinks}
    found |= {"index": model.index and model.index.top_keys, "bare": model.layers_without_rope}
    in_latent = model.latent and model.rope_base and model.latent.qk_rope_head_dim
    found["part"] = model.rotary_dim or in_latent
    said = [words[name].format(value) for name, value in found.items() if value]
    return SEEN[language]["comma"].join(said)


def bibliography_markdown(language: str) -> str:
    """One list item per work, with the anchor that citations link to, and where it is cited."""
    items, cited = [], citing(language)
    for key, entry in sorted(bibliography().items(), key=_by_author):
        authors = "; ".join(entry["authors"])
        title = f"[{entry['title']}]({entry['url']}){{ #{key} }}"
        about = f"{authors} ({entry['year']}). {title}. {entry['venue']}."
        items.append(f"- {about} {cited.get(key, '')}".rstrip())
    return "\n".join(items)


def _by_author(item: tuple[str, dict]) -> tuple:
    key, entry = item
    return entry["authors"][0].casefold(), entry["year"], key


def citing(language: str) -> dict[str, str]:
    """For each work that is cited, the pages that cite it; Markdown."""
    (cited_in, comma, stop), found = CITING[language], {}
    for path in pages(language):
        for key in _cited(path):
            found.setdefault(key, []).append(to_page(read(path).name, language))
    return {key: cited_in + comma.join(links) + stop for key, links in found.items()}


@of_file
def _cited(path: Path) -> set[str]:
    found: set[str] = set()

    def note(span: Span) -> str:
        if span.kind == "citation":
            found.update(keys(span))
        return span.text

    page = read(path)
    for block in page.walk():
        glossary = block.kind == "table" and block.value == "glossary"
        with_spans(table(block, page.language, str) if glossary else block.text, note)
    return found


def glossary_markdown(language: str) -> str:
    """A heading for each group and a definition list of its terms, in the order of the file."""
    lines = []
    for group in glossary():
        lines.append(f"## {group[language]} {{ #{group['id']} }}\n")
        lines += [term_markdown(term, language) for term in group["term"]]
    return "\n".join(lines)


def term_markdown(term: dict, language: str) -> str:
    """A term with its anchor; what it means, with a link to its page; what others call it."""
    other = "zh" if language == "en" else "en"
    names = [f"**{term[language]}**"]
    if term[other] != term[language]:
        names.append(f'<span lang="{other}">{term[other]}</span>')
    names += [f"${term['symbol']}$"] if "symbol" in term else []
    names += [f"`{name}`" for name in term.get("code", [])]
    space = " " if language == "en" else ""
    link = f"[{title(term['page'], language)}]({term['page']})"
    lines = [f"{' · '.join(names)} {{ #{term['id']} }}"]
    lines.append(f":   {term[f'meaning_{language}']}{space}→ {link}")
    if others := other_names(term, language):
        lines.append(f":   {others}")
    return "\n".join(lines) + "\n"


def other_names(term: dict, language: str) -> str:
    """``PyTorch: `attn_mask`. Hugging Face: `attention_mask`.``"""
    comma, colon, stop = (", ", ": ", ". ") if language == "en" else ("、", "：", "。")
    names = {key: [f"`{name}`" for name in term.get(key, [])] for key in ("torch", "hf")}
    names["paper"] = term.get("paper", [])
    names["also"] = term.get("also", []) + (term.get("also_zh", []) if language == "zh" else [])
    said = [NAMES[language][key] + colon + comma.join(names[key]) for key in names if names[key]]
    return (stop.join(said) + stop).strip() if said else ""


def title(target: str, language: str) -> str:
    """What a link to ``masks.md#padding`` is called: page and heading, ``Masks: Padding``.

    Of the page's title, only what stands before a colon.
    """
    page, _, anchor = target.partition("#")
    file = DOCS / language / page
    if not file.is_file():
        raise SourceError(f"there is no page {page}")
    headings = read(file).headings
    found = [re.split("[:：]", headings[0].title)[0]]
    if anchor:
        found += [heading.title for heading in headings if heading.value == anchor]
        if len(found) == 1:
            raise SourceError(f"{page} has no heading #{anchor}")
    return (": " if language == "en" else "：").join(found)


def pages(language: str) -> list[Path]:
    """The pages in the order of the nav."""
    return [DOCS / language / name for name in names_in(settings(language)["nav"])]


def road(language: str) -> list[str]:
    """The pages under the nav's first title behind the home page, which come in order."""
    return list(names_in(settings(language)["nav"][0]))[1:]


def names_in(nav: list | dict | str) -> Iterator[str]:
    """The pages that stand in a part of the nav, in order."""
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from names_in(item)


def to_page(name: str, language: str, to: Callable[[str], str] = str) -> str:
    return f"[{title(name, language)}]({to(name)})"


def anchors(page: Page) -> set[str]:
    """What links to a page can name: headings, traps, and the terms, works and models it lists."""
    found = {heading.value for heading in page.headings} | set(trap_ids(page).values())
    tables = {block.value for block in page.walk() if block.kind == "table"}
    if "glossary" in tables:
        for group in glossary():
            found |= {group["id"], *(term["id"] for term in group["term"])}
    if "bibliography" in tables:
        found |= set(bibliography())
    if "models" in tables:
        found |= set(known_models())
    return found


def check_link(target: str, page: Page) -> None:
    """Fail if a link on ``page`` names a page or a heading that is not there."""
    path, _, anchor = target.partition("#")
    file = path.partition("?")[0]  # behind it stands what a widget is asked for
    if ":" in file or (file and not file.endswith(".md")):
        return
    path = (page.path.parent / file).resolve()
    if file and not path.is_file():
        raise SourceError(f"there is no page {file}")
    if anchor and anchor not in anchors(read(path) if file else page):
        raise SourceError(f"{file or 'this page'} has no heading #{anchor}")
