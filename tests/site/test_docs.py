"""What is public is documented, and nothing else is."""

import importlib

import pytest
from mhsite.pages.page import read, skeleton
from mhsite.stories.source import DOCS, LANGUAGES, ROOT

import mhattn

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "mhattn").glob("*/[!_]*.py")
)


def public_names():
    """Where each public name is defined: ``mhattn.core.masks.causal_mask``."""
    for module in MODULES:
        exported = importlib.import_module(module).__all__
        yield from (f"{module}.{name}" for name in exported)


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_module_stands_once_in_the_reference(language):
    """By a line ``::: module``; test_site.py sees what mkdocstrings makes of it."""
    pages = sorted((DOCS / language / "reference").glob("*.md"))
    parts = [part for page in pages for part in skeleton(read(page)) if part.kind == "api"]
    shown = [part.value for part in parts]
    assert len(shown) == len(set(shown)), "twice in the reference"
    with_names = {name.rpartition(".")[0] for name in public_names()}
    assert with_names - set(shown) == set(), f"no line ::: in docs/{language}/reference"
    assert set(shown) - with_names == set(), "in the reference, but not public"


def test_what_the_package_exports_is_public():
    homes = {name.rpartition(".")[2] for name in public_names()}
    assert set(mhattn.__all__) <= homes
    for name in mhattn.__all__:
        assert getattr(mhattn, name).__doc__, name
