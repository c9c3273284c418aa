"""The reference in Chinese: each public name says in Chinese what it is, and the form stays."""

import re
from itertools import chain

import griffe
import polib
import pytest
from mhsite.pages import api, cells, chinese_api
from mhsite.pages.page import read
from mhsite.stories.source import DOCS
from mhsite.stories.translation import PACKAGE
from test_site import PAGES, html

HAN = re.compile("[一-鿿]")
REFERENCE = [name for name in PAGES if name.startswith("reference/")]
DOCSTRING = """\
Share out each query's attention
over the keys.

More of it.

Args:
    query: floats, `(..., L, D)`.
    mask: booleans that broadcast
        to `(..., L, S)`: see below.

Returns:
    The weights.

Examples:
    Two keys.

    >>> print("query: floats, `(..., L, D)`.")
    query: floats, `(..., L, D)`.
"""
KNOWN = {
    "Share out each query's attention over the keys.": "分给各个键。",
    "floats, `(..., L, D)`.": "浮点数，`(..., L, D)`。",
    "booleans that broadcast to `(..., L, S)`: see below.": "布尔值，见下。",
    "The weights.": "权重。",
}


def modules():
    walked = chain.from_iterable(read(DOCS / "en" / name).walk() for name in REFERENCE)
    return [block.value for block in walked if block.kind == "api"]


def objects():
    """Each module of the reference, and each public name in it."""
    for name in modules():
        module = api._module(cells.module_of(name))
        yield module
        yield from api.members(module)


def test_each_public_name_says_in_chinese_what_it_is():
    found = [(each.path, api.about(each, "zh")) for each in objects()]
    assert len(found) > 400
    # A formula is the same in both languages.
    missing = [path for path, said in found if not HAN.search(said)]
    assert missing == ["mhattn.costs.attention.CostStep.multiplications"]


def test_entries_are_used_and_stand_in_one_catalog():
    entries = polib.pofile(str(chinese_api.CATALOG))
    said = [entry.msgid for entry in entries]
    used = {
        words for each in objects() for _, words, *_ in chinese_api.pieces(each.docstring.value)
    }
    assert [text for text in said if text not in used] == []
    assert len(said) == len(set(said))
    assert set(said) & {entry.msgid for entry in polib.pofile(str(PACKAGE))} == set()
    assert [entry.msgid for entry in entries if not entry.translated()] == []


def test_code_in_an_entry_is_that_of_the_docstring():
    code = re.compile("``?[^`]+``?")
    for entry in polib.pofile(str(chinese_api.CATALOG)):
        assert set(code.findall(entry.msgstr)) <= set(code.findall(entry.msgid)), entry.msgid
        links = [re.findall(r"https?://[\w./-]+\w", text) for text in (entry.msgid, entry.msgstr)]
        assert links[0] == links[1]


def form(docstring):
    """The kinds of a docstring's sections, and the names in them."""
    for section in griffe.parse_google(
        griffe.Docstring(docstring), returns_multiple_items=False, warnings=False
    ):
        value = section.value
        names = [getattr(each, "name", "") for each in value] if isinstance(value, list) else []
        kinds = [str(getattr(each, "annotation", "")) for each in value] if names else []
        yield section.kind.value, names, kinds


def test_a_docstring_has_the_same_form_in_both_languages():
    changed = 0
    for each in objects():
        english = each.docstring.value
        chinese = chinese_api.translated(english)
        changed += english != chinese
        assert list(form(english)) == list(form(chinese)), each.path
        examples = [re.findall(r"^ *>>> .*$", text, re.M) for text in (english, chinese)]
        assert examples[0] == examples[1]
    assert changed > 400


def test_paragraphs_and_descriptions_are_translated_and_the_rest_stays(monkeypatch):
    monkeypatch.setattr(chinese_api, "catalog", lambda: KNOWN)
    told = chinese_api.translated(DOCSTRING)
    assert told == DOCSTRING.replace(
        "Share out each query's attention\nover the keys.", "分给各个键。"
    ).replace(
        "    query: floats, `(..., L, D)`.\n    mask",
        "    query: 浮点数，`(..., L, D)`。\n    mask",
    ).replace(
        "booleans that broadcast\n        to `(..., L, S)`: see below.", "布尔值，见下。"
    ).replace("The weights.", "权重。")
    monkeypatch.setattr(chinese_api, "catalog", dict)
    assert chinese_api.translated(DOCSTRING) == DOCSTRING


@pytest.mark.parametrize("name", REFERENCE)
def test_the_pages_show_it_and_the_search_reads_it(site, name):
    """In English nothing is Chinese, in Chinese the first paragraph of each name."""
    for language in ("en", "zh"):
        contents = html(site, language, name).select(".doc-contents")
        own = (each.select("p:not(.doc-class-bases)", limit=1) for each in contents)
        found = [paragraphs[0] for paragraphs in own if paragraphs]
        assert len(found) == len(contents) > 15
        chinese = [each for each in found if HAN.search(each.text)]
        if language == "en":
            assert chinese == []
        else:
            others = [each.text for each in found if each not in chinese]
            formula = ["count * rows * inner * columns。"]
            assert others == formula * (name == "reference/costs.md")
            assert not any(each.has_attr("data-search-exclude") for each in chinese)
