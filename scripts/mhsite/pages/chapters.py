"""The way through the chapters: the road, its steps, and a card for each page of a section.

All of it comes from the nav of mkdocs.yml and from the pages, in the language of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape

from mhsite import words
from mhsite.pages import fragments, navigation, running, your_turn
from mhsite.pages.page import Block, Page, read
from mhsite.pages.settings import settings
from mhsite.stories.source import DOCS, SourceError

Address = Callable[[str], str]

# The home page is a way in, and no page to be read from top to bottom.
INDEX = "index.md"


def listed(block: Block, page: Page) -> list[tuple[str, list[str]]]:
    """The pages that ``<!-- cards … -->`` names, by groups with their titles.

    ``road`` is the road. No name at all means the section whose first page this is.
    """
    if block.value.strip() == "road":
        return [("", navigation.road(page.language))]
    if block.value:
        return [("", [f"{name}.md" for name in block.value.split()])]
    found: list[tuple[str, list[str]]] = []
    for item in _section(page):
        ((title, below),) = item.items()
        if not isinstance(below, str):
            found.append((title, list(navigation.names_in(below))))
        # Pages that stand alone in the nav are one list, until a group with a title begins.
        elif found and not found[-1][0]:
            found[-1][1].append(below)
        else:
            found.append(("", [below]))
    return found


def cards(block: Block, page: Page, address: Address) -> Iterator[str]:
    """The cards of the pages that a block names: headings, and lists in HTML."""
    kind = "ol" if block.value.strip() == "road" else "ul"
    for title, names in listed(block, page):
        if title:
            yield f"## {title} {{ #about-{names[0].removesuffix('.md')} }}"
        shown = "".join(_card(name, page, address) for name in names)
        keeps = kind == "ol" or " data-tasks=" in shown
        ticks = fragments.script("road", address) if keeps else ""
        yield f'<{kind} class="mh-cards">{shown}</{kind}>{ticks}'


def _section(page: Page) -> list:
    """What stands in the nav under the title whose first page this is."""
    for item in settings(page.language)["nav"]:
        (below,) = item.values() if isinstance(item, dict) else [item]
        if not isinstance(below, str) and next(navigation.names_in(below)) == page.name:
            return below[1:]
    raise SourceError(f"{page.name} is not the first page of a section of the nav")


def _card(name: str, page: Page, address: Address) -> str:
    path = DOCS / page.language / name
    if not path.is_file():
        raise SourceError(f"there is no page {name}")
    about = read(path)
    parts = [fragments.time(about), after(about)]
    said = " · ".join(filter(None, parts))
    fields = len(your_turn.cells(about)) if about.is_notebook and running.runs(about) else 0
    tasks = f' data-tasks="{fields}"' if fields else ""  # of which a browser keeps what is solved
    link = f'<a href="{fragments.url(about, address)}"{tasks}>{_picture(about, address)}'
    title = f"<b>{escape(navigation.title(name, page.language))}</b></a>"
    told = f"<p>{escape(navigation.description(name, page.language))}</p><small>{said}</small>"
    return f"<li>{link}{title}{told}</li>"


def _picture(page: Page, address: Address) -> str:
    name = fragments.picture(page)
    return f'<img src="{address(name)}" alt="" loading="lazy">' if name else ""


def after(page: Page) -> str:
    """Which pages behind the road one reads before, of a page behind it."""
    first = navigation.road(page.language)
    if page.name in first or fragments.is_looked_up(page):
        return ""
    needed = [navigation.title(name, page.language) for name in page.needs if name not in first]
    if not needed:
        return words.of(page.language, "course.after_it")
    pages = words.of(page.language, "punctuation.list_comma").join(needed)
    return words.of(page.language, "course.after_pages", pages=pages)


def steps(page: Page, address: Address) -> str:
    """Where a page of the road stands on it, and the way to the others."""
    names = navigation.road(page.language)
    if page.name not in names:
        return ""
    here = names.index(page.name)
    links = []
    for number, name in enumerate(names):
        mark = ' aria-current="step"' if number == here else ""
        title = escape(navigation.title(name, page.language))
        url = fragments.url(read(DOCS / page.language / name), address)
        links.append(f'<li><a href="{url}" title="{title}"{mark}>{number + 1}</a></li>')
    said = words.of(page.language, "course.place", number=here + 1, count=len(names))
    label = f'aria-label="{words.of(page.language, "course.name")}"'
    made = f'<nav class="mh-road" {label}><span>{said}</span><ol>{"".join(links)}</ol></nav>'
    return made + fragments.script("road", address)


def hidden(name: str) -> list[str]:
    """What of the theme's frame isn't shown: cards are the way from the home page."""
    return ["navigation", "toc"] if name == INDEX else []


def contents(page: Page) -> str:
    """A page's sections, folded, for screens on which no column has them; Markdown.

    Of the page of questions all questions, unfolded, for every screen.
    """
    asked = page.name == "questions.md"
    found = [block for block in page.headings if block.mark in ("##", "###" if asked else "")]
    # A page with two sections needs no list of them.
    if len(found) < 3 or page.name == INDEX:
        return ""
    kind = "mh-questions" if asked else "mh-contents"
    title = words.of(page.language, "page.questions" if asked else "page.sections")
    options = f"    open: {asked}\n    attrs: {{class: {kind}}}\n"
    lines = (f"{'    ' * (len(b.mark) - 2)}- [{b.title}](#{b.value})\n" for b in found)
    return f"/// details | {title}\n{options}\n{''.join(lines)}///\n\n"


def origin(block: Block, text: str) -> str:
    """What a number of the course stands on, folded to one small line; Markdown."""
    is_claim = block.value.startswith("claim ")
    title = words.of(block.language, "claims.mark" if is_claim else "runs.where")
    return f"/// details | {title}\n    attrs: {{class: mh-origin}}\n\n{text}///\n\n"
