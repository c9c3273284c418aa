"""What a page says on top of how its stories ran here; on a published site nothing."""

from __future__ import annotations

from html import escape

from mhsite import words
from mhsite.pages.page import Page
from mhsite.stories import cache, results
from mhsite.stories.source import STORIES, SourceError, told_in

CURES = {cache.CannotWrite: "notices.cannot_write", Exception: "notices.other_error"}
# The number is of when the page was built; `engines.serve` writes the newest one beside the site.
COUNT = """<script>(async function count() {
  const answer = await fetch("FILE").catch(() => null)
  if (answer?.ok) document.querySelector(".mh-done").textContent = await answer.text()
  setTimeout(count, 3000)
})()</script>"""
WHO = "Python {Python}, torch {torch} on {system} {machine}"


def of(page: Page, file: str) -> str:
    """The notices of a page, the worst first; at ``file`` stands how many stories are done."""
    names, language = stories(page), page.language
    failed = [text for name in names if (text := results.failure(name))]
    differ = [text for name in names for text in results.differences(name)]
    found = _warning(words.of(language, "notices.failed"), failed)
    found += _warning(words.of(language, "notices.differs"), differ)
    if any(results.is_missing(name) and not results.failure(name) for name in names):
        if why := results.stopped():
            text = words.of(language, "notices.stopped", cure=cure(why, language))
            return found + _warning(text, [reason(why)])
        found += _note(words.of(language, "notices.computing", progress=progress()))
        found += COUNT.replace("FILE", file)
    others = {WHO.format(**who) for name in names if (who := results.elsewhere(name))}
    said = (words.of(language, "notices.elsewhere", machine=machine) for machine in sorted(others))
    return found + "".join(map(_note, said))


def reason(why: Exception) -> str:
    """An error in one line: where and what of one that we raise, the kind of any other."""
    return str(why.message) if isinstance(why, SourceError) else repr(why)


def cure(why: Exception, language: str) -> str:
    """What a reader can do so that stories are run again."""
    kind = next(kind for kind in CURES if isinstance(why, kind))
    return words.of(language, CURES[kind])


def progress() -> str:
    """How many stories are done."""
    return '<span class="mh-done">{} / {}</span>'.format(*results.done())


def stories(page: Page) -> list[str]:
    """The stories and labs that a page shows something of."""
    names = dict.fromkeys(
        block.section.path.stem for block in page.walk() if block.kind == "include"
    )
    for block in page.walk():
        if block.kind == "figure" and block.value.startswith(("figures/", "../figures/")):
            name = block.value.split("figures/")[-1].split("/")[0]
            told = told_in(page.language, name)
            names[told if (STORIES / f"{told}.pycon").is_file() else name] = None
    return [name for name in names if results.is_known(name)]


def _warning(text: str, details: list[str]) -> str:
    if not details:
        return ""
    said = escape("\n\n".join(details), quote=False)
    return f'<div class="admonition warning"><p>{text}</p><pre>{said}</pre></div>'


def _note(text: str) -> str:
    return f'<div class="admonition note"><p>{text}</p></div>'
