"""The glossary: docs/data/glossary.toml as a page, and the names by which readers search."""

from __future__ import annotations

from collections.abc import Iterator

from mhsite import words
from mhsite.pages import navigation
from mhsite.pages.settings import toml
from mhsite.stories.source import DOCS

FILE = DOCS / "data" / "glossary.toml"
INDEX = "a-z"  # the anchor of the list of all terms


def groups() -> list[dict]:
    """The groups of docs/data/glossary.toml, each with the list of its terms under ``term``."""
    return toml(FILE)["group"]


def searched() -> Iterator[tuple[str, list[str]]]:
    """Pages or sections, each with what its subject is called here, elsewhere and by readers."""
    for term in (term for group in groups() for term in group["term"]):
        # Names of other libraries as well: a reader searches for what stands in the code before
        # him.
        kinds = ("code", "torch", "hf", "paper", "also", "also_zh")
        called = [name for kind in kinds for name in term.get(kind, [])]
        yield term["page"], [term["en"], term["zh"], *called]
    yield from toml(FILE)["searched"].items()


def markdown(language: str) -> str:
    """All terms from A to Z; then, for each group, a definition list in the order of the file."""
    lines = [index(language)]
    for group in groups():
        lines.append(f"## {group[language]} {{ #{group['id']} }}\n")
        lines += [term_markdown(term, language) for term in group["term"]]
    return "\n".join(lines)


def index(language: str) -> str:
    """A line for each letter, with links to the terms that begin with it in English."""
    terms = [term for group in groups() for term in group["term"]]
    letters: dict[str, list[str]] = {}
    for term in sorted(terms, key=lambda term: term["en"].casefold()):
        # Who reads Chinese looks up the English word of a paper.
        names = dict.fromkeys([term["en"], term[language]])
        link = f"[{' '.join(names)}](#{term['id']})"
        letters.setdefault(term["en"][0].upper(), []).append(link)
    title = f"## {words.of(language, 'glossary.index')} {{ #{INDEX} }}\n"
    return "\n\n".join([title, *(f"**{a}** {' · '.join(letters[a])}" for a in letters)]) + "\n"


def term_markdown(term: dict, language: str) -> str:
    """A term with its anchor; what it means, with a link to its page; what others call it."""
    # Beside it stands the term in the other language: papers and code are in English, and whoever
    # learned it in one language meets it in the other.
    other = "zh" if language == "en" else "en"
    names = [f"**{term[language]}**"]
    if term[other] != term[language]:
        names.append(f'<span lang="{other}">{term[other]}</span>')
    names += [f"${term['symbol']}$"] if "symbol" in term else []
    names += [f"`{name}`" for name in term.get("code", [])]
    space = words.of(language, "punctuation.sentence_space")
    link = f"[{navigation.title(term['page'], language)}]({term['page']})"
    lines = [f"{' · '.join(names)} {{ #{term['id']} }}"]
    lines.append(f":   {term[f'meaning_{language}']}{space}→ {link}")
    if others := other_names(term, language):
        lines.append(f":   {others}")
    return "\n".join(lines) + "\n"


def other_names(term: dict, language: str) -> str:
    """``PyTorch: `attn_mask`. Hugging Face: `attention_mask`.``"""
    comma = words.of(language, "punctuation.list_comma")
    colon = words.of(language, "punctuation.colon")
    stop = words.of(language, "punctuation.full_stop")
    between = stop + words.of(language, "punctuation.sentence_space")
    titles = {"torch": "PyTorch", "hf": "Hugging Face"} | words.of(language, "glossary.names")
    names = {key: [f"`{name}`" for name in term.get(key, [])] for key in ("torch", "hf")}
    names["paper"] = term.get("paper", [])
    names["also"] = term.get("also", []) + (term.get("also_zh", []) if language == "zh" else [])
    said = [titles[key] + colon + comma.join(names[key]) for key in names if names[key]]
    return between.join(said) + stop if said else ""
