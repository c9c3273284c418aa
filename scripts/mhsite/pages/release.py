"""Which state of the project a site was built from, and where its package can be had."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from functools import cache

from mhattn import __version__ as version
from mhsite import words
from mhsite.pages.page import Page
from mhsite.pages.settings import settings
from mhsite.stories.source import ROOT


def commit() -> str:
    """The commit, or the tag of this version where nobody knows the commit."""
    # An archive without its history is one of a release, which has a tag.
    return _git("rev-parse", "HEAD") or f"v{version}"


def commit_time() -> str:
    """When the commit was made: the same commit gives the same bytes."""
    return _git("log", "-1", "--format=%ct") or "0"


def date() -> datetime:
    """The day of the commit."""
    return datetime.fromtimestamp(int(commit_time()), UTC)


def changed(page: Page) -> str:
    """The day of the last commit that changed a page or its story, where the history is known."""
    story = page.name.removesuffix(".md")
    names = [f"docs/{page.language}/{page.name}", f"docs/{story}.py"]
    names += [f"docs/stories/{story}{kind}.pycon" for kind in ("", f".{page.language}")]
    return max(_changes().get(name, "") for name in names)


# One call of git for all pages, instead of one for each file of each page.
@cache
def _changes() -> dict[str, str]:
    """The day on which each file of the pages was last changed."""
    # A shallow clone knows one commit, which it would name as the last change of every page.
    if _git("rev-parse", "--is-shallow-repository") != "false":
        return {}
    found: dict[str, str] = {}
    day = ""
    for line in _git("log", "--format=day %cs", "--name-only", "--", "docs").splitlines():
        if line.startswith("day "):
            day = line.removeprefix("day ")
        elif line:
            found.setdefault(line, day)
    return found


def state(language: str) -> str:
    """Version, date and licence in one line."""
    return f"mhattn {version} ({date():%Y-%m-%d}) · {words.of(language, 'page.licence')}"


def footer(language: str) -> str:
    """The state in HTML, with a link to the licence."""
    licence = words.of(language, "page.licence")
    link = f'<a href="{settings()["repo_url"]}/blob/main/LICENSE">{licence}</a>'
    return state(language).replace(licence, link)


def bibtex(page: Page) -> str:
    """How to cite a page, in this state."""
    below = "" if page.language == "en" else f"{page.language}/"
    fields = {
        "title": f"{{{page.headings[0].title}}}",
        "author": "{The mhattn developers}",
        "year": f"{date():%Y}",
        "url": f"{settings()['site_url']}{below}{page.url}",
        "note": f"mhattn {version}, {date():%Y-%m-%d}",
    }
    other = [page.language] if below else []
    key = "-".join(["mhattn", *page.name.removesuffix(".md").split("/"), *other])
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@misc{{{key},\n{lines}}}"


def requirement(*extras: str) -> str:
    """What pip installs the package from, as ``extra: package`` in mkdocs.yml has it."""
    said = settings()
    asked = f"[{','.join(extras)}]" if extras else ""
    return said["extra"]["package"].format(
        extras=asked, repo_url=said["repo_url"], commit=commit(), version=version
    )


def wheel_place() -> str:
    """Where the site has the package as a wheel, which `mhsite.beside.wheel` makes."""
    return f"packages/mhattn-{version}-py3-none-any.whl"


def wheel(*extras: str) -> str:
    """What pip installs the package from without git: the wheel of the site."""
    asked = f"[{','.join(extras)}]" if extras else ""
    return f"mhattn{asked} @ {settings()['site_url']}{wheel_place()}"


def colab(page: Page) -> str:
    """Where Colab opens a page's notebook, if the repository is one that it can read.

    The notebooks are in a branch of their own, which the site's workflow makes.
    """
    owner = settings()["repo_url"].removeprefix("https://github.com/")
    if "://" in owner:
        return ""
    path = "" if page.language == "en" else f"{page.language}/"
    path += page.name.removesuffix(".md")
    return f"https://colab.research.google.com/github/{owner}/blob/notebooks/{path}.ipynb"


@cache
def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8").stdout.strip()
    except OSError:  # no git, as in a downloaded archive
        return ""
