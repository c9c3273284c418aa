"""Readers' own words lead to the section with the answer, and a pasted message to its own."""

import pytest
from asked import ASKED, ask, halves, indexed, measured, places, shares
from mhsite.stories.source import LANGUAGES

each_language = pytest.mark.parametrize("language", LANGUAGES)

PASTED = ASKED["pasted"]


@each_language
def test_readers_words_lead_to_the_section(language):
    """With a click on what can be seen: six of ten at the first page, more in the first three."""
    found = measured(language, ASKED[language])
    assert len(ASKED[language]) == 50
    share = shares(found.values())
    assert share["link first"] >= 80, found
    assert share["link in 3"] >= 90, found
    assert share["page in 3"] >= 92, found


@each_language
def test_words_that_nothing_was_mended_for_lead_there_too(language):
    """Nearly as often."""
    found = measured(language, ASKED["fresh"][language])
    share = shares(found.values())
    assert share["link first"] >= 55, found
    assert share["link in 3"] >= 80, found
    assert share["page in 3"] >= 92, found


@each_language
def test_a_pasted_message_finds_its_section_first(language):
    found = ask(language, PASTED)
    missed = {
        query: found[query][:2]
        for query, name in PASTED.items()
        if places(found[query], [name])[0] > 1
    }
    assert missed == {}


@each_language
def test_all_answers_exist(language):
    known = {document["location"] for document in indexed(language)}
    names = [
        name
        for each in (*ASKED[language].values(), *ASKED["fresh"][language].values())
        for name in each["answers"]
    ]
    assert [
        name
        for name in [*names, *PASTED.values()]
        if name.replace("#", "/#") + "/" * ("#" not in name) not in known
    ] == []


def test_no_query_stands_in_both_halves():
    for language in LANGUAGES:
        one, other = halves(ASKED[language])
        assert not {*one} & {*other}
        assert abs(len(one) - len(other)) <= 1
