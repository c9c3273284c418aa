"""The register of claims: docs/data/claims/<chapter>.toml, on its own page and where each stands.

A claim is a conclusion from toys or from one model. A page marks it, below the sentence, with
``<!-- claim NAME -->``; `measuring.claims` tries it again with seeds that it never saw, and what
came of that is filed in docs/data/claims/<chapter>.json, held or fallen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mhsite import words
from mhsite.pages import navigation
from mhsite.pages.settings import toml
from mhsite.stories.source import DOCS, LANGUAGES, SourceError

FOLDER = DOCS / "data" / "claims"
PAGE = "claims.md"
SAYINGS = "sayings"
TEXTS = ("says", "stands")  # what a claim must have in both languages
SCOPES = ("exact", "toy", "model", "measured")
VERDICTS = ("holds", "when", "fails", "open")


def chapters() -> list[str]:
    """The files of claims, in the order of the site."""
    names = {path.stem for path in FOLDER.glob("*.toml")} - {SAYINGS}
    order = ("road", "depth", "variants", "cost", "inside", "practice")
    if strange := names - set(order):
        raise SourceError(f"a chapter of claims is one of {', '.join(order)}", path(min(strange)))
    return [name for name in order if name in names]


def path(chapter: str) -> Path:
    return FOLDER / f"{chapter}.toml"


def of(chapter: str) -> dict[str, dict]:
    """The claims of a chapter by their names, checked."""
    found = toml(path(chapter))
    for name, claim in found.items():
        _check(name, claim, path(chapter))
    return found


def every() -> dict[str, dict]:
    """All claims by their names, in the order of the site."""
    found: dict[str, dict] = {}
    for chapter in chapters():
        if twice := found.keys() & of(chapter).keys():
            raise SourceError(f"the claim {min(twice)} stands in two chapters", path(chapter))
        found |= {name: claim | {"chapter": chapter} for name, claim in of(chapter).items()}
    return found


def _check(name: str, claim: dict, file: Path) -> None:
    """Fail if a claim lacks what its page shows."""
    for key in TEXTS:
        if set(claim.get(key, {})) != set(LANGUAGES):
            raise SourceError(f"{name}.{key} must have en and zh", file)
    if claim.get("scope") not in SCOPES:
        raise SourceError(f"{name}.scope must be one of {', '.join(SCOPES)}", file)
    attacks = words.of(LANGUAGES[0], "claims.attacks")
    if strange := set(claim.get("survived", [])) - attacks.keys():
        raise SourceError(f"{name}.survived: {min(strange)} is none of {', '.join(attacks)}", file)


def draws(chapter: str) -> dict[str, list[dict]]:
    """Of each claim of a chapter, what came of it each time it was tried again, oldest first."""
    file = FOLDER / f"{chapter}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def mark(name: str, language: str, url: Callable[[str], str]) -> str:
    """``<!-- claim NAME -->``: that the sentence above was tried again, and how that went."""
    claim = every().get(name)
    if claim is None:
        raise SourceError(f"docs/data/claims has no claim {name!r}")
    link = f"[{words.of(language, 'claims.mark')}]({url(PAGE)}#{name})"
    colon = words.of(language, "punctuation.colon")
    return f"{link}{colon}{_went(name, claim, language)}\n{{ .mh-measured }}"


def _went(name: str, claim: dict, language: str) -> str:
    """How often it held when it was tried again, and what was seen the last time."""
    found = draws(claim["chapter"]).get(name, [])
    if not found:
        return words.of(language, "claims.never")
    last, held = found[-1], sum(each["holds"] for each in found)
    about: dict[str, Any] = {"count": len(found), "held": held, "date": last["date"]}
    text = words.of(language, "claims.went", **about)
    if "seen" in claim:
        seen = claim["seen"][language].format(**last["numbers"])
        text += words.of(language, "claims.seen", seen=seen)
    return text


def markdown(chapter: str, language: str) -> str:
    """``<!-- claims CHAPTER -->``: each claim, what it stands on, what it survived."""
    found = {name: claim | {"chapter": chapter} for name, claim in of(chapter).items()}
    return "\n\n".join(_entry(name, claim, language) for name, claim in found.items())


def _entry(name: str, claim: dict, language: str) -> str:
    page = claim["page"].partition("#")[0]
    link = f"[{navigation.title(page, language)}]({claim['page']})"
    comma = words.of(language, "punctuation.list_comma")
    stop = words.of(language, "punctuation.full_stop")
    space = words.of(language, "punctuation.sentence_space")
    parts = [words.of(language, "claims.scopes")[claim["scope"]], claim["stands"][language]]
    if attacks := claim.get("survived"):
        told = words.of(language, "claims.attacks")
        named = comma.join(told[each] for each in attacks)
        parts.append(words.of(language, "claims.survived", attacks=named))
    parts.append(words.of(language, "claims.again") + _went(name, claim, language))
    small = space.join(part if part.endswith(stop) else part + stop for part in parts)
    return f"{claim['says'][language]} → {link}\n{{ #{name} }}\n\n{small}\n{{ .mh-measured }}"


def sayings() -> list[dict]:
    """What people repeat about attention, each with a verdict and what that rests on."""
    file = path(SAYINGS)
    found = toml(file)["saying"]
    for each in found:
        said = each["says"]["en"]
        if each.get("verdict") not in VERDICTS:
            raise SourceError(f"{said!r}: verdict must be one of {', '.join(VERDICTS)}", file)
        if not each.get("rests"):
            raise SourceError(f"{said!r} rests on nothing", file)
    return found


def said(about: str, language: str) -> str:
    """``<!-- said SUBJECT -->``: what is repeated about it, each with a verdict and its reason."""
    found = [each for each in sayings() if each["about"] == about]
    if not found:
        raise SourceError(f"nothing is said about {about!r}", path(SAYINGS))
    comma = words.of(language, "punctuation.list_comma")
    space = words.of(language, "punctuation.sentence_space")
    verdicts = words.of(language, "claims.verdicts")
    lines = []
    for each in found:
        links = comma.join(_rest(rest, language) for rest in each["rests"])
        says, verdict = each["says"][language], verdicts[each["verdict"]]
        lines.append(f"“{says}”\n:   **{verdict}** {each['because'][language]}{space}→ {links}")
    return "\n\n".join(lines)


def _rest(rest: str, language: str) -> str:
    """A link to a claim of the register, a citation, or a section of a page."""
    if rest.startswith("@"):
        return f"[{rest}]"
    if rest in every():
        return f"[{words.of(language, 'claims.one')}](#{rest})"
    return f"[{navigation.title(rest, language)}]({rest})"
