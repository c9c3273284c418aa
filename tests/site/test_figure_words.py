"""What is said about a figure holds in the light theme and in the dark one.

A figure is drawn on the page's own background: what is dark on a light page is bright on a dark
one. So a text names shape, place, label, or how strong a colour is, never how dark.
"""

import re

import pytest
from mhsite.pages.page import page_paths, parse, read
from mhsite.stories.source import DOCS, LANGUAGES

COLOURS = {
    "en": r"black|white|pale[rst]*|dark(?:er|est)?|bright(?:er|est)?|light(?:er|est)|blue|red"
    r"|green|orange|yellow|purple|violet|pink|brown",
    "zh": r"[深浅][色灰]|颜色[深浅]|[越最更较很变][深浅](?!的?层)|[黑蓝红绿紫橙黄棕粉亮暗]"
    r"|(?<!空)白(?!话)",
}
# In prose a colour is said of a figure if one of these follows.
PARTS = {
    "en": r"(?: [a-z]+)? (?:cell|column|row|line|curve|dot|point|band|bar|map|arrow|patch|circle"
    r"|one)s?\b",
    "zh": r"的?(?:格|列|行|线|点|带|条|箭头|块|圆|一条|一格)",
}
# Words that are names: the course's sentence, a story's own words.
NAMES = {
    "en": r"\*dark\*|(?i:black cats|brown sheep|\*black\*|black, cats|black: v)|brings dark"
    r"|\b(?:of|to|from|and) black(?=[ ,.;:](?! ?(?:line|dot|cell|bar|band|frame|arrow|point)))"
    r"|of black(?= points (?:to the )?right)",
    "zh": r"“黑”|“黑色”|黑猫|棕羊|蓝蛙|把黑色|猫到黑|黑、猫|黑和猫|白发|青山",
}
# Pages whose pictures have a background of their own, white in both themes.
PHOTOGRAPHS = {"image-maps.md"}


def about_figures(page):
    """Lines and texts of a page that describe figures: descriptions, captions, parts in prose."""
    language, bounds = page.language, r"\b" if page.language == "en" else ""
    part = re.compile(f"{bounds}(?:{COLOURS[language]}){bounds}{PARTS[language]}")
    captions = [b for b in page.walk() if b.kind == "block" and b.value == "caption"]
    yield from ((b.line, b.title) for b in page.walk() if b.kind == "figure")
    yield from ((b.line, b.text) for caption in captions for b in caption.blocks)
    for block in page.walk():
        if block.kind == "prose":
            text = re.sub(NAMES[language], "", block.text)
            for match in part.finditer(text):
                yield block.line + text.count("\n", 0, match.start()), match[0]


def colour_faults(page):
    """Each colour that is true in one theme only, with its file and line."""
    language, bounds = page.language, r"\b" if page.language == "en" else ""
    colour = re.compile(f"(?i){bounds}(?:{COLOURS[language]}){bounds}")
    for line, text in about_figures(page):
        for match in colour.finditer(re.sub(NAMES[language], "", text)):
            around = text[max(0, text.find(match[0]) - 30) :][:70]
            yield f"{page.path}:{line}: {match[0]!r} is false in one theme: {around}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_colours_of_figures_are_true_in_both_themes(language):
    pages = [read(DOCS / language / path) for path in page_paths(language)]
    held = (page for page in pages if page.name not in PHOTOGRAPHS)
    assert [fault for page in held for fault in colour_faults(page)] == []


@pytest.mark.parametrize(
    ("language", "text", "faults"),
    [
        ("en", "![Two maps. The dark cells lie on the diagonal.](figures/a/b.svg)", ["dark"]),
        ("en", "![Pale dots, and darker ones.](figures/a/b.svg)", ["Pale", "darker"]),
        ("en", "![A line from black to cats.](figures/a/b.svg)", []),
        ("en", "![A frame of black dots.](figures/a/b.svg)", ["black"]),
        ("en", "/// caption\nThe black line is the mean.\n///", ["black"]),
        ("en", "/// caption\nBlack cats love *black* ink.\n///", []),
        ("en", "Look at the blue line above.", ["blue"]),
        ("en", "These cats are black, and so are those.", []),
        ("en", "Most maps have a dark first column.", ["dark"]),
        ("zh", "![两张图。深色的格子在对角线上。](figures/a/b.svg)", ["深色"]),
        ("zh", "![“黑”的箭头指向右方，颜色浓。](figures/a/b.svg)", []),
        ("zh", "/// caption\n黑线是平均值，颜色越深越大。\n///", ["黑", "越深"]),
        ("zh", "上面的蓝点都在零附近。", ["蓝"]),
        ("zh", "这些猫是黑的。留出空白。", []),
    ],
)
def test_a_colour_is_seen(language, text, faults):
    path = DOCS / language / "page.md"
    page = parse(f"# T {{ #t }}\n\n{text}\n", path=path)
    seen = [re.search(r": '(.+?)' is", fault)[1] for fault in colour_faults(page)]
    assert sorted(set(seen)) == sorted(faults)
