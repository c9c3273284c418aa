"""The frame that stands on a page where a figure is going to be."""

from __future__ import annotations

import re
from pathlib import Path

from mhsite import words
from mhsite.stories import cache
from mhsite.stories.source import LABS, STORIES, sections

ZOOM = 1.45  # as in `mhsite.stories.svg`, which would load matplotlib
SMALL, COLUMN = 250, 690
POINTS = 72  # in an inch
USUAL = (4.2, 2.6)  # inches, as in `mhsite.stories.runner`
SIZE = re.compile(r"figsize=\(([\d.]+), ([\d.]+)\)")
BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def frame(story: str, figure: str, language: str, *, waits: bool) -> str:
    """An SVG of the figure's own size, as far as that is known."""
    width, height = size(story, figure)
    shown = round(width * ZOOM) if width < SMALL else COLUMN
    says = words.of(language, "figure.waits" if waits else "figure.failed")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{shown}" fill="currentColor" font-size="10" font-family="system-ui, sans-serif">'
        f'<rect x="1" y="1" width="{width - 2:g}" height="{height - 2:g}" rx="4" fill="none" '
        'stroke="currentColor" stroke-dasharray="4 4" opacity="0.5"/>'
        f'<text x="{width / 2:g}" y="{height / 2:g}" text-anchor="middle">{says}</text></svg>'
    )


def size(story: str, figure: str) -> tuple[float, float]:
    """In points: as it was drawn last, or as its code says, or as most are."""
    names = story, story.removesuffix(".zh")
    paths = [STORIES / f"{name}.pycon" for name in names] + [LABS / f"{story}.py"]
    path = next((path for path in paths if path.is_file()), None)
    last = cache.older(path, figure) if path else None
    if last and (box := BOX.search(last.read_text(encoding="utf-8"))):
        return float(box[1]), float(box[2])
    section = sections(path).get(Path(figure).stem) if path else None
    said = SIZE.findall(section.text) if section else []
    width, height = map(float, said[-1]) if said else USUAL
    return width * POINTS, height * POINTS
