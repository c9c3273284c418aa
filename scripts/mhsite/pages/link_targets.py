"""What a link on a page can lead to; a link to anything else is an error."""

from __future__ import annotations

from mhattn.costs import known_models
from mhsite.pages import atlas, bibliography, claims, glossary
from mhsite.pages.page import Page, read, trap_ids
from mhsite.stories.source import SourceError


def anchors(page: Page) -> set[str]:
    """What links to a page can name: headings, traps, and the terms, works and models it lists."""
    # From the blocks, not from the HTML: a broken link is found before anything is rendered.
    found = {heading.value for heading in page.headings} | set(trap_ids(page).values())
    tables = {block.value for block in page.walk() if block.kind == "table"}
    if "glossary" in tables:
        found.add(glossary.INDEX)
        for group in glossary.groups():
            found |= {group["id"], *(term["id"] for term in group["term"])}
    if "bibliography" in tables:
        found |= set(bibliography.works())
    if "models" in tables:
        found |= set(known_models())
    if "configurations" in tables:
        found |= {row["name"] for row in atlas.found()}
    for chapter in claims.chapters():
        found |= set(claims.of(chapter)) if f"claims {chapter}" in tables else set()
    return found


def check_link(target: str, page: Page) -> None:
    """Fail if a link on ``page`` names a page or a heading that is not there."""
    path, _, anchor = target.partition("#")
    file = path.partition("?")[0]  # behind it stands what a widget is asked for
    # Other sites, and files that the build makes, are checked by the tests of the finished site.
    if ":" in file or (file and not file.endswith(".md")):
        return
    path = (page.path.parent / file).resolve()
    if file and not path.is_file():
        raise SourceError(f"there is no page {file}")
    if anchor and anchor not in anchors(read(path) if file else page):
        raise SourceError(f"{file or 'this page'} has no heading #{anchor}")
