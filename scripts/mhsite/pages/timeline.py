"""When the decoders of the atlas were first published, and of which kind each is.

docs/data/dates.json has the words of the pages that say so, which `measuring.dates` files;
docs/assets/atlas.js draws them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mhsite.stories.source import DOCS, SourceError

FOUND = DOCS / "data" / "dates.json"
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# From the plainest to the one that needs most words; a model is of the last that fits.
LANES = ("heads", "groups", "single", "window", "latent", "chosen", "state")
_NAME = rf"(?P<name>{'|'.join(MONTHS)})[a-z]*\.?"
_FORMS = (
    r"arXiv:(?P<short>\d\d)(?P<month>\d\d)\.\d+",
    r"(?P<year>\d{4})[-./](?P<month>\d\d?)(?:[-./](?P<day>\d\d?))?(?!\d)",
    r"(?P<month>\d\d?)/(?P<day>\d\d?)/(?P<year>\d{4})",
    rf"\b{_NAME} (?P<day>\d\d?), (?P<year>\d{{4}})",
    rf"\b(?P<day>\d\d?)(?:st|nd|rd|th)? {_NAME} (?P<year>\d{{4}})",
    rf"\b{_NAME} (?P<year>\d{{4}})",
)
FORMS = [re.compile(form, re.IGNORECASE) for form in _FORMS]


def when(says: str) -> str:
    """The date in a page's words, as ``2024-07-23``, or ``2020-05`` where they have no day."""
    for form in FORMS:
        if match := form.search(says):
            part = {"day": None} | match.groupdict()
            year = part["year"] if "year" in part else "20" + part["short"]
            month = part.get("month") or MONTHS.index(part["name"].lower()) + 1
            return "-".join([year, *(f"{int(x):02}" for x in (month, part["day"]) if x)])
    raise SourceError(f"no date in {says!r}", FOUND)


def pages() -> list[dict[str, Any]]:
    """The pages, as filed: address, words, models."""
    return json.loads(FOUND.read_text("utf-8"))


def dates() -> dict[str, tuple[str, str]]:
    """Of each model whose date was found: the date, and the page that says it."""
    found: dict[str, tuple[str, str]] = {}
    for page in pages():
        for name in page["models"]:
            if name in found:
                raise SourceError(f"{name} stands on two pages", FOUND)
            found[name] = (when(page["says"]), page["source"])
    return found


def lane(kinds: list[dict[str, Any]]) -> str:
    """Of which kind a row of the atlas is: the last of LANES that fits."""
    sees = {kind["sees"] for kind in kinds}
    if sees & {"state", "convolution"}:
        return "state"
    if any(kind["top"] for kind in kinds):
        return "chosen"
    if any(kind["latent"] for kind in kinds):
        return "latent"
    if sees & {"window", "chunk"}:
        return "window"
    fewest = min(kind["kv"] for kind in kinds)
    if fewest == 1:
        return "single"
    return "groups" if any(kind["kv"] < kind["heads"] for kind in kinds) else "heads"
