"""What is public is documented, and nothing else is."""

import importlib
import re

import pytest
from mhsite.stories.source import LANGUAGES, ROOT

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
def test_public_is_documented_and_documented_is_public(site, language):
    pages = (site / ("" if language == "en" else language) / "reference").rglob("index.html")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    found = re.findall(r'id="(mhattn\.[\w.]+)"', text)
    documented = set(found)
    assert len(found) == len(documented), "twice in the reference"
    names = set(public_names())
    assert names - documented == set(), "not in the reference"
    known = names | set(MODULES)
    members = {name for name in documented - known if name.rpartition(".")[0] in known}
    assert documented - known - members == set(), "in the reference, but not public"
    assert [name for name in members if name.rpartition(".")[2].startswith("_")] == []


def test_what_the_package_exports_is_public():
    homes = {name.rpartition(".")[2] for name in public_names()}
    assert set(mhattn.__all__) <= homes
    for name in mhattn.__all__:
        assert getattr(mhattn, name).__doc__, name
