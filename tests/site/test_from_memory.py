"""The list of tasks to write from memory: its judges are there, its solutions those of pages."""

import json
import re

import exercises
import memory_table
import pytest
import test_page_tasks
from mhsite.pages import running
from mhsite.pages.page import read
from mhsite.stories.source import DOCS

JUDGE = re.compile(r"\((?P<page>[\w/-]+\.md)#(?P<id>[\w-]+)\)")
ENTRY = re.compile(r"^### (\d+)\. .*?(?=^##|\Z)", re.M | re.S)


def entries(language="en"):
    text = (DOCS / language / "from-memory.md").read_text(encoding="utf-8")
    return {int(found[1]): found[0] for found in ENTRY.finditer(text)}


def judges(entry):
    """The sections that judge, in the paragraph that says what to write."""
    (asked,) = re.findall(r"^\*\*Write\*\*.*?(?=\n\n)", entry, re.M | re.S)
    return JUDGE.findall(asked.partition("**Judge:**")[2])


def test_the_counted_solutions_are_those_of_the_pages():
    """If not: `python tests/site/memory_table.py`, then `stories.py --rewrite from-memory`."""
    kept = json.loads(memory_table.FILE.read_text(encoding="utf-8"))
    assert list(kept.items()) == list(memory_table.solutions().items())


def test_there_are_fifteen_entries_in_the_order_of_the_table():
    assert list(entries()) == list(range(1, 16))
    names = [name.partition("/")[0] for name in memory_table.TASKS]
    pages = []
    for entry in entries().values():
        found = [page for page, _ in judges(entry)] or ["from-memory.md"]
        pages += [page.removesuffix(".md").removeprefix("labs/") for page in found]
    assert pages == names


@pytest.mark.parametrize("number", range(1, 16))
def test_a_judge_is_in_the_section_that_is_linked(number):
    """Or on the page itself."""
    entry = entries()[number]
    if not judges(entry):
        assert "\n/// task |" in entry
    for page, section in judges(entry):
        text = (DOCS / "en" / page).read_text(encoding="utf-8")
        own = re.search(rf"^## [^\n]*{{ #{section} }}\n.*?(?=^## |\Z)", text, re.M | re.S)
        assert own, (page, section)
        assert "\n/// task |" in own[0], (page, section)


def test_the_judges_that_run_in_their_pages_are_those_that_it_names():
    there = running._names()
    found = [n for n, entry in entries().items() if {page for page, _ in judges(entry)} & there]
    text = (DOCS / "en" / "from-memory.md").read_text(encoding="utf-8")
    assert found == [1, 2, 3, 4, 7]
    assert "The tests of tasks 1 to 4 and 7 run in their pages" in text
    fields = {test_page_tasks.page_of(task) for task in test_page_tasks.fields()}
    assert {page for n in found for page, _ in judges(entries()[n])} <= fields


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_entry_has_three_questions_with_answers(language):
    for number, entry in entries(language).items():
        asked = [part for part in entry.split("\n\n") if part.startswith(("**Then", "**追问"))]
        assert len(asked) == 1, number
        assert len(JUDGE.findall(asked[0])) + asked[0].count(".md)") >= 3, number


def test_every_task_is_one_of_the_site():
    assert set(memory_table.TASKS) <= {task.name for task in exercises.tasks()}
    assert read(DOCS / "zh" / "from-memory.md").headings
