"""MkDocs has a date, May 2027: what it does for us and its successor, Zensical, cannot do yet.

Both build the same small project here. When Zensical learns something of this, the test of it
fails: take it out of `LACKING`, let `with_zensical` use it, and say so in CONTRIBUTING ("The
engine"). When nothing is left, `with_mkdocs` and the hook may go.
"""

import json
import subprocess
import sys

import pytest
import zensical
from bs4 import BeautifulSoup

FILES = {
    "parent.yml": """
site_name: Small
site_url: https://host/
theme: {name: material, custom_dir: theme}
markdown_extensions: [toc, md_in_html]
nav: [index.md]
""",
    "mkdocs.yml": """
INHERIT: parent.yml
strict: true
hooks: [hook.py]
plugins: [mkdocs-jupyter]
markdown_extensions: [toc, attr_list]
nav: [index.md, lab.ipynb]
""",
    "hook.py": """
def on_page_content(html, page, config, files):
    return f"{html}<p>said by the hook</p>"
""",
    "docs/index.md": "# Home\n\nA [link](lab.ipynb).\n\n## Here { #here }\n",
    "docs/lab.ipynb": json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# A lab"},
                {
                    "cell_type": "code",
                    "id": "b",
                    "metadata": {},
                    "execution_count": 1,
                    "source": "6 * 7",
                    "outputs": [{"output_type": "stream", "name": "stdout", "text": "forty-two\n"}],
                },
            ],
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    ),
    "theme/sitemap.xml": "<urlset>ours</urlset>",
    "theme/main.html": '{% extends "base.html" %}{% block config %}'
    '{{ super() | replace("/workers/search.", "/workers/ours.") }}{% endblock %}',
}


class Built:
    """The small project as one of the engines builds it; ``changes`` are files that differ."""

    def __init__(self, engine, folder, changes=None):
        self.folder = folder
        for name, text in (FILES | (changes or {})).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", engine, "build", "-f", "mkdocs.yml"],
            cwd=folder,
            capture_output=True,
            encoding="utf-8",
        )
        self.code, self.said = done.returncode, done.stdout + done.stderr

    def page(self, name):
        """A page's HTML; nothing if the engine made no such page."""
        path = self.folder / "site" / name / "index.html"
        return path.read_text(encoding="utf-8") if path.is_file() else ""


def build(engine, factory):
    made = Built(engine, factory.mktemp(engine))
    assert made.code == 0, made.said
    return made


@pytest.fixture(scope="module")
def by_zensical(tmp_path_factory):
    return build("zensical", tmp_path_factory)


@pytest.fixture(scope="module")
def by_mkdocs(tmp_path_factory):
    return build("mkdocs", tmp_path_factory)


def runs_hooks(built):
    """`scripts/hooks.py` has the stories run, adds the files beside the pages, builds Chinese."""
    return "said by the hook" in built.page("")


def renders_notebooks(built):
    """A lab is an executed notebook, which mkdocs-jupyter renders."""
    return "forty-two" in built.page("lab")


def takes_the_nearest_list(built):
    """`docs/zh.yml` says only what differs: its lists stand in the place of those it inherits."""
    soup = BeautifulSoup(built.page(""), "html.parser")
    entries = soup.select(".md-nav--primary > .md-nav__list > .md-nav__item")
    return len(entries) == 2  # of the child's nav alone


LACKING = [runs_hooks, renders_notebooks, takes_the_nearest_list]
each_lacking = pytest.mark.parametrize("ability", LACKING, ids=lambda ability: ability.__name__)
HOW = "See the head of this file."


@each_lacking
def test_zensical_cannot_do_this_yet(by_zensical, ability):
    learned = f"Zensical {zensical.version()} has learned it: {ability.__doc__} {HOW}"
    assert not ability(by_zensical), learned


@pytest.mark.slow
@each_lacking
def test_mkdocs_does_what_zensical_cannot(by_mkdocs, ability):
    assert ability(by_mkdocs)


def test_zensical_renders_no_single_page_yet():
    """`mkdocs serve` renders first what is asked for: `page_renderer` calls parts of MkDocs.

    Zensical has no parts to call: all of it is these three, which build or serve a whole site.
    """
    assert set(zensical.__all__) == {"build", "serve", "version"}, HOW


def test_zensical_takes_our_templates(by_zensical):
    """So our search and our sitemap can move with us."""
    assert "/workers/ours." in by_zensical.page("")
    sitemap = by_zensical.folder / "site" / "sitemap.xml"
    assert sitemap.read_text(encoding="utf-8") == FILES["theme/sitemap.xml"]


@pytest.mark.parametrize("link", ["gone.md", "#gone"])
def test_zensical_stops_at_a_broken_link(tmp_path, link):
    made = Built("zensical", tmp_path, {"docs/index.md": f"# Home\n\n[link]({link})\n"})
    assert made.code != 0
    assert "does not exist" in made.said
