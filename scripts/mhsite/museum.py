"""The museum: every silent mistake of the pages, by kind, from the traps where they stand."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

from mhsite import data, pieces
from mhsite.page import Page, Span, read, with_spans
from mhsite.source import DOCS, LANGUAGES, SourceError
from mhsite.traps import FILE, Trap, kinds, outcome, pair, traps

PAGE = "museum.md"
SIDES = {"en": ("wrong", "right"), "zh": ("错误", "正确")}
CHECK = {"en": "check: ", "zh": "检查项："}
SEEN = {"en": "seen in ", "zh": "实例："}
BETWEEN = {"en": ": ", "zh": "："}
COMMA = {"en": ", ", "zh": "、"}
THREAD = re.compile(r"https://github\.com/[\w.-]+/([\w.-]+)/(?:issues|pull|discussions)/(\d+)")


def html(value: str, language: str, address: Callable[[str], str]) -> str:
    """What ``<!-- museum KIND -->`` becomes; of ``<!-- museum kinds -->``, links to all of them."""
    kind = value.partition(" ")[2]
    if kind == "kinds":
        return _kinds(language)
    if kind not in kinds():
        raise SourceError(f"docs/data/museum.toml has no [{kind}]")
    here, english = traps(language), traps(LANGUAGES[0])
    entries = kinds()[kind].items()
    if strange := [key for key, _ in entries if key not in here]:
        raise SourceError(f"no page has the trap {strange[0]}", FILE)
    made = (entry(here[key], english[key], said, address) for key, said in entries)
    return f'<div class="mh-museum" data-search-exclude>{"".join(made)}</div>'


def _kinds(language: str) -> str:
    titles = {h.value: h.title for h in read(DOCS / language / PAGE).headings}
    links = [
        f'<a href="#{kind}">{escape(titles[kind])}</a> {len(entries)}'
        for kind, entries in kinds().items()
    ]
    return f'<p class="mh-kinds">{" · ".join(links)}</p>'


def entry(trap: Trap, english: Trap, said: dict, address: Callable[[str], str]) -> str:
    """One mistake: its name, both sides with what came out, the check, where it was seen."""
    language = trap.page.language
    if not (code := pair(trap, english, said))[0]:
        raise SourceError(f"{trap.key} has no wrong lines", FILE)
    came = outcome(trap, english, said)
    if not came:
        raise SourceError(f"{trap.key} has no result", FILE)
    sides = "".join(
        _side(name, SIDES[language][i], code[i], came[i] if i < len(came) else None, language)
        for i, name in enumerate(("wrong", "right"))
    )
    link = pieces.url(Page((), trap.page.path), address) + trap.address
    return (
        f'<div id="{trap.key.replace(":", "-")}"><p><a href="{link}">{_title(trap.title)}</a>'
        f"{_notes(trap, said)}</p>{sides}</div>"
    )


def _side(name: str, word: str, code: str, came: tuple[str, str] | None, language: str) -> str:
    if not code and not came:
        return ""
    lines = f"<code>{escape(code, quote=False)}</code>" if code else ""
    head, result = came or ("", "")
    text = f"{head}{BETWEEN[language]}{result}" if head else result
    given = f"<samp>{escape(text, quote=False)}</samp>" if result else ""
    return f'<div class="mh-{name}"><b>{word}</b>{lines}{given}</div>'


def _title(text: str) -> str:
    """A title's Markdown as HTML: code and formulas are all that is in one."""

    def write(span: Span) -> str:
        if span.kind == "math":
            return pieces.formula(span.value, display=False)
        code = span.text.strip("`")
        return f"<code>{escape(code, quote=False)}</code>" if span.kind == "code" else span.text

    return with_spans(text, write)


def _notes(trap: Trap, said: dict) -> str:
    """The check that finds it, and the public threads that the trap's text cites."""
    language, notes = trap.page.language, []
    if "check" in said:
        notes.append(f"{CHECK[language]}{said['check']}")
    if threads := list(filter(None, map(_thread, dict.fromkeys(trap.cited)))):
        notes.append(SEEN[language] + COMMA[language].join(threads))
    return f" <small>{' · '.join(notes)}</small>" if notes else ""


def _thread(key: str) -> str:
    """A link to a public issue or pull request; of other works, nothing."""
    address = data.bibliography()[key]["url"]
    found = THREAD.fullmatch(address)
    return f'<a href="{address}">{found[1]}#{found[2]}</a>' if found else ""
