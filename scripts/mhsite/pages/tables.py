"""The tables that a comment on a page asks for, as Markdown."""

from __future__ import annotations

from collections.abc import Callable

from mhsite.pages import atlas, bibliography, claims, glossary, known_models, measured, runs
from mhsite.pages.page import Block
from mhsite.stories.source import SourceError


def table(block: Block, language: str, url: Callable[[str], str]) -> str:
    """``<!-- measured NAME | heading | … -->`` is docs/data/measured/*/NAME.json under headings.

    ``<!-- runs STORY:NAME -->`` says where docs/data/runs/STORY.json has its numbers from.
    ``<!-- claim NAME -->`` says how a claim of docs/data/claims did when it was tried again;
    ``<!-- claims CHAPTER -->`` lists them, ``<!-- said SUBJECT -->`` what people repeat.
    ``<!-- configurations | heading | … -->`` is docs/data/configurations.json.
    ``<!-- models | heading | … -->`` is mhattn/costs/model_sizes.toml; bibliography and glossary
    have no headings. ``url`` gives the address of a file of the site.
    """
    kind, _, name = block.value.partition(" ")
    headings = [heading.strip() for heading in block.title.split("|")] if block.title else []
    if kind == "measured":
        return measured.markdown(name, headings, language, url)
    if kind == "runs" and not headings:
        return runs.markdown(name, language, url)
    if kind == "claim" and not headings:
        return claims.mark(name, language, url)
    if kind == "claims" and not headings:
        return claims.markdown(name, language)
    if kind == "said" and not headings:
        return claims.said(name, language)
    if kind == "configurations":
        return atlas.markdown(name, headings, language)
    if block.value == "models":
        return known_models.markdown(headings, language)
    if block.value == "bibliography" and not headings:
        return bibliography.markdown(language)
    if block.value == "glossary" and not headings:
        return glossary.markdown(language)
    # A misspelt comment would otherwise vanish from the page without a trace.
    raise SourceError(f"{block.text.strip()} names no table")
