"""The museum: exhibits by what one sees, and below them every other trap of the pages, by kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape

from mhsite import words
from mhsite.pages import bibliography, exhibits, fragments, navigation
from mhsite.pages.page import Span, read, with_spans
from mhsite.pages.traps import FILE, Trap, kinds, outcome, pair, traps
from mhsite.stories.source import DOCS, LANGUAGES, SourceError

PAGE = "museum.md"
DOCTOR = "doctor.md"
TITLED = re.compile(r"#+ .*\{ #([\w-]+) \}")
ROW = re.compile(r"\| `([\w-]+)` \|")
LINKED = re.compile("\\[([^\\[\\]]*)\1")
SIGNS = {r"\infty": "∞", r"\le": "≤", r"\times": "×", r"\cdot": "·", r"\,": " ", "-": "−"}
SMALL = re.compile(r"[^\\^{}&]+")  # a formula that needs no typesetting
STRONG = re.compile(r"\*+([^*]+)\*+")
THREAD = re.compile(r"https://github\.com/[\w.-]+/([\w.-]+)/(?:issues|pull|discussions)/(\d+)")


def html(value: str, language: str, address: Callable[[str], str]) -> str:
    """What ``<!-- museum SIGHT -->`` becomes; of ``others``, a table, and of ``given``, code."""
    what = value.partition(" ")[2]
    if what == "given":
        code = f"<pre><code>{escape(exhibits.given(), quote=False)}</code></pre>"
        return fragments.sheet("museum", address) + code
    if what == "others":
        return _others(language, address)
    found = traps(language)
    made = "".join(
        _exhibit(name, exhibit, found[exhibit["trap"]], address)
        for name, exhibit in exhibits.of_sight(what).items()
    )
    return f'<div class="mh-museum" data-search-exclude>{made}</div>'


def listed(value: str, language: str) -> list[Trap]:
    """The traps behind the exhibits of a sight, or all that have no exhibit."""
    what, found = value.partition(" ")[2], traps(language)
    if what == "given":
        return []
    if what == "others":
        keys = [key for entries in others().values() for key in entries]
    else:
        keys = [exhibit["trap"] for exhibit in exhibits.of_sight(what).values()]
    if strange := [key for key in keys if key not in found]:
        raise SourceError(f"no page has the trap {strange[0]}", FILE)
    return [found[key] for key in keys]


def others() -> dict[str, dict[str, dict]]:
    """The traps that have no exhibit, by kind."""
    shown = exhibits.traps_shown()
    return {
        kind: {key: said for key, said in entries.items() if key not in shown}
        for kind, entries in kinds().items()
    }


def said_of(key: str) -> dict:
    """What docs/data/museum.toml says of a trap."""
    for entries in kinds().values():
        if key in entries:
            return entries[key]
    raise SourceError(f"docs/data/museum.toml has no {key}", FILE)


def _exhibit(name: str, exhibit: dict, trap: Trap, address: Callable[[str], str]) -> str:
    language = trap.page.language
    title, see = (_prose(exhibit[part][language], small=True) for part in ("title", "see"))
    notes = _notes(trap, said_of(trap.key), address)
    return (
        f'<div id="{name}"><p><a href="{_link(trap, address)}">{title}</a>{notes}</p>'
        f"<p>{see}</p>{exhibits.sides(exhibit, language)}</div>"
    )


def _others(language: str, address: Callable[[str], str]) -> str:
    """A table with a body for each kind; a row opens to show the chapter's own lines."""
    found, english = traps(language), traps(LANGUAGES[0])
    titles = words.of(language, "museum.kinds")
    bodies = ""
    for kind, entries in others().items():
        rows = "".join(_row(found[key], english[key], entries[key], address) for key in entries)
        head = f'<tr><th colspan="2" scope="rowgroup">{escape(titles[kind])}</th></tr>'
        bodies += f'<tbody id="others-{kind}">{head}{rows}</tbody>'
    return f'<table class="mh-mistakes" data-search-exclude>{bodies}</table>'


def _link(trap: Trap, address: Callable[[str], str]) -> str:
    return fragments.url(trap.page, address) + trap.target.removeprefix(trap.page.name)


def _row(trap: Trap, english: Trap, said: dict, address: Callable[[str], str]) -> str:
    """One mistake: its name, which opens both sides and what came out; chapter, check, reports."""
    language = trap.page.language
    code, came = pair(trap), outcome(trap, english)
    names = words.of(language, "museum.sides")
    sides = "".join(
        _side(name, names[name], code[i], came[i] if i < len(came) else None, language)
        for i, name in enumerate(("wrong", "right"))
    )
    chapter = navigation.title(trap.page.name, language)
    link = f'<a href="{_link(trap, address)}">{escape(chapter)}</a>'
    return (
        f'<tr id="{trap.key.replace(":", "-")}"><td><details><summary>{_prose(trap.title)}'
        f"</summary>{sides}</details></td><td>{link}{_notes(trap, said, address)}</td></tr>"
    )


def _side(name: str, word: str, code: str, came: tuple[str, str] | None, language: str) -> str:
    if not code and not came:
        return ""
    lines = f"<code>{escape(code, quote=False)}</code>" if code else ""
    head, result = came or ("", "")
    text = f"{head}{words.of(language, 'punctuation.colon')}{result}" if head else result
    given = f"<samp>{escape(text, quote=False)}</samp>" if result else ""
    return f'<div class="mh-{name}"><b>{word}</b>{lines}{given}</div>'


def _prose(text: str, *, small: bool = False) -> str:
    """A title or a sentence in HTML: of a link its words; small formulas as one types them."""

    def write(span: Span) -> str:
        if span.kind == "math":
            tex = unescape(span.value)
            typed = small and _is_small(span)
            return f"<i>{_typed(tex)}</i>" if typed else fragments.formula(tex, display=False)
        code = f"<code>{span.text.strip('`')}</code>"
        return {"code": code, "citation": "", "link": "\1"}[span.kind]

    plain = with_spans(escape(text, quote=False), write)
    return STRONG.sub(r"<em>\1</em>", LINKED.sub(r"\1", plain))


def _is_small(span: Span) -> bool:
    """A formula that can be typed weighs a hundredth of one that is typeset."""
    return span.kind != "math" or bool(SMALL.fullmatch(_typed(span.value)))


def _typed(tex: str) -> str:
    """A formula as one types it."""
    for name, sign in SIGNS.items():
        tex = tex.replace(name, sign)
    return tex


def _notes(trap: Trap, said: dict, address: Callable[[str], str]) -> str:
    """The check that finds it, and the public threads that the trap's text cites."""
    language, notes = trap.page.language, []
    if "check" in said:
        doctor = read(DOCS / language / DOCTOR)
        link = f"{fragments.url(doctor, address)}#{sections_of_checks(language)[said['check']]}"
        check = words.of(language, "museum.check")
        notes.append(f'{check}<a href="{link}">{said["check"]}</a>')
    if threads := list(filter(None, map(_thread, dict.fromkeys(trap.cited)))):
        comma = words.of(language, "punctuation.list_comma")
        notes.append(words.of(language, "museum.seen") + comma.join(threads))
    return f" <small>{' · '.join(notes)}</small>" if notes else ""


def sections_of_checks(language: str) -> dict[str, str]:
    """Of each check of the doctor's, the section of its page whose table has it."""
    found, section = {}, ""
    for line in (DOCS / language / DOCTOR).read_text(encoding="utf-8").splitlines():
        if heading := TITLED.match(line):
            section = heading[1]
        elif (row := ROW.match(line)) and section.startswith("checks-"):
            found[row[1]] = section
    return found


def _thread(key: str) -> str:
    """A link to a public issue or pull request; of other works, nothing."""
    address = bibliography.works()[key]["url"]
    found = THREAD.fullmatch(address)
    return f'<a href="{address}">{found[1]}#{found[2]}</a>' if found else ""
