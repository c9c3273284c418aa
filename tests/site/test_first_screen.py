"""What a reader sees before scrolling: the answer with its number, and a picture.

No table that isn't folded away hides a column on a laptop.
"""

import re

from mhsite.pages import navigation
from mhsite.pages.settings import settings
from test_site import SIDES, address
from visits import each_visit

# The road, In depth, Variants, Cost, Inside models, Practice. Behind them: labs, whose first screen
# is a task, what is played with, and what is looked up.
SECTIONS = settings("en")["nav"][:6]
CHAPTERS = [page for page in navigation.names_in(SECTIONS) if not page.endswith("index.md")]
CHAPTER_SIDES = [side for side in SIDES if side[1] in CHAPTERS]
A_YEAR = re.compile(r"\b(19|20)\d\d\b")


@each_visit(CHAPTER_SIDES)
def test_an_answer_and_a_picture_come_first(visits, language, page):
    seen = visits(address(language, page))
    laptop, phone = seen["first on a laptop"], seen["first on a phone"]
    assert laptop["top"] is not None, "there is no picture"
    assert laptop["bottom"] <= 800 or laptop["top"] <= 560, laptop
    assert phone["top"] <= 1200, phone  # on the second of two screens
    assert re.search(r"\d", A_YEAR.sub("", laptop["before"])), laptop["before"]


@each_visit(SIDES)
def test_no_table_hides_a_column_on_a_laptop(visits, language, page):
    assert visits(address(language, page))["hidden columns"] == []
