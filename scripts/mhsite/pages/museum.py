"""The museum: every silent mistake of the pages, by kind, from the traps where they stand."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape

from mhsite import words
from mhsite.pages import bibliography, fragments
from mhsite.pages.page import Span, read, spans, with_spans
from mhsite.pages.traps import FILE, Trap, kinds, outcome, pair, traps
from mhsite.stories.source import DOCS, LANGUAGES, SourceError

PAGE = "museum.md"
DOCTOR = "doctor.md"
TITLED = re.compile(r"#+ .*\{ #([\w-]+) \}")
ROW = re.compile(r"\| `([\w-]+)` \|")
STOP = re.compile(r"(?<=[.!?])\s+(?=\S)|(?<=[。！？])(?![）”])")
KEPT = re.compile("\0(\\d+)\0")
COLON = re.compile("[:：]$")
LONG = {"en": 170, "zh": 75}  # letters of what is said of an entry
LINKED = re.compile("\\[([^\\[\\]]*)\1")
SIGNS = {r"\infty": "∞", r"\le": "≤", r"\times": "×", r"\cdot": "·", r"\,": " ", "-": "−"}
SMALL = re.compile(r"[^\\^{}&]+")  # a formula that needs no typesetting
STRONG = re.compile(r"\*+([^*]+)\*+")
THREAD = re.compile(r"https://github\.com/[\w.-]+/([\w.-]+)/(?:issues|pull|discussions)/(\d+)")


def html(value: str, language: str, address: Callable[[str], str]) -> str:
    """What ``<!-- museum KIND -->`` becomes; of ``<!-- museum kinds -->``, links to all of them."""
    if value == "museum kinds":
        return _kinds(language)
    english = traps(LANGUAGES[0])
    made = "".join(
        entry(trap, english[trap.key], kinds()[value.partition(" ")[2]][trap.key], address)
        for trap in listed(value, language)
    )
    return f'<div class="mh-museum" data-search-exclude>{made}</div>'


def listed(value: str, language: str) -> list[Trap]:
    """The traps of a kind; of the list of kinds, none."""
    kind = value.partition(" ")[2]
    if kind == "kinds":
        return []
    if kind not in kinds():
        raise SourceError(f"docs/data/museum.toml has no [{kind}]")
    found = traps(language)
    if strange := [key for key in kinds()[kind] if key not in found]:
        raise SourceError(f"no page has the trap {strange[0]}", FILE)
    return [found[key] for key in kinds()[kind]]


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
    code, came = pair(trap), outcome(trap, english)
    names = words.of(language, "museum.sides")
    sides = "".join(
        _side(name, names[name], code[i], came[i] if i < len(came) else None, language)
        for i, name in enumerate(("wrong", "right"))
    )
    link = fragments.url(trap.page, address) + trap.target.removeprefix(trap.page.name)
    return (
        f'<div id="{trap.key.replace(":", "-")}"><p><a href="{link}">{_prose(trap.title)}</a>'
        f"{_notes(trap, said, address)}</p>{_about(trap)}{sides}</div>"
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


def _about(trap: Trap) -> str:
    """What is wrong, in the trap's own words: its first sentences, up to one that leads to code.

    If that is the very first one, it ends here in a full stop.
    """
    language, first = trap.page.language, trap.block.blocks[0]
    kept: list[str] = []  # a stop within code ends no sentence

    def keep(span: Span) -> str:
        kept.append(span.text)
        return f"\0{len(kept) - 1}\0"

    prose = with_spans(first.text, keep) if first.kind == "prose" else ""
    about: list[str] = []
    stop = words.of(language, "punctuation.full_stop")
    for sentence in STOP.split(" ".join(prose.split())):
        whole = KEPT.sub(lambda match: kept[int(match[1])], sentence).strip()
        too_long = len("".join(about) + whole) > LONG[language]
        if about and (too_long or COLON.search(whole) or not all(map(_is_small, spans(whole)))):
            break
        about.append(COLON.sub(stop, whole))
    text = words.of(language, "punctuation.sentence_space").join(filter(None, about))
    return f"<p>{_prose(text, small=True)}</p>" if text else ""


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
