"""A page's skeleton: what both languages must have in common, and what repairs one from the other.

`python scripts/pages.py` says where English and Chinese differ. With `--fix docs/zh/masks.md` it
copies includes, ids, math and figures of the English page into the Chinese one, or back.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from mhsite.pages.page import Block, Part, page_paths, read, skeleton, without_words
from mhsite.stories.source import DOCS, LANGUAGES, ROOT, SourceError

FIXED = {"heading": "headings", "include": "includes", "math": "formulas", "figure": "figures"}


def compared(parts: Iterable[Part]) -> list[tuple[str, str]]:
    """What must be equal in both languages: links and citations in any order within a section.

    What a link asks a widget for, behind a question mark, may differ, as the data do.
    """
    result: list[tuple[str, str]] = []
    floating: list[tuple[str, str]] = []
    for part in parts:
        if part.kind in ("link", "citation"):
            # Only of our own pages: in somebody else's address, what stands behind the question
            # mark is part of it.
            asks = part.kind == "link" and ":" not in part.value
            value = re.sub(r"\?[^#]*", "", part.value) if asks else part.value
            floating.append((part.kind, value))
            continue
        if part.kind == "heading":
            # Word order differs between languages, so a paragraph's links may come in another one;
            # but they stay in their section.
            result += sorted(floating)
            floating = []
        result.append((part.kind, part.value))
    return result + sorted(floating)


def differences(path: Path) -> list[str]:
    """Where the English and the Chinese page at ``path`` differ, one line each."""
    sides = []
    for language in LANGUAGES:
        file = DOCS / language / path
        if not file.is_file():
            return [f"{file.relative_to(ROOT)}: this page is missing"]
        sides.append(compared(skeleton(read(file))))
    if sides[0] == sides[1]:
        return []
    for index, (english, chinese) in enumerate(zip(*sides, strict=False)):
        if english != chinese:
            what = f"{english} in English, {chinese} in Chinese"
            # The first difference alone: behind it, all parts are against their neighbours.
            return [f"docs/*/{path}: part {index + 1} is {what}"]
    longer = LANGUAGES[len(sides[1]) > len(sides[0])]
    extra = max(sides, key=len)[min(map(len, sides))]
    return [f"docs/*/{path}: only docs/{longer} has {extra}"]


def fix(path: Path) -> None:
    """Copy ids, includes, display math and figure targets into ``path`` from the other language.

    The n-th of a kind goes to the n-th of that kind, so both pages need equally many.
    """
    path = path.resolve()
    language = next((each for each in LANGUAGES if path.is_relative_to(DOCS / each)), None)
    if language is None:
        raise SourceError("a page lies in docs/en or docs/zh, this one does not", path)
    other = DOCS / LANGUAGES[language == LANGUAGES[0]] / path.relative_to(DOCS / language)
    for page in (path, other):
        if not page.is_file():
            raise SourceError("there is no such page", page)
    mine, theirs = read(path), read(other)
    right: dict[str, list[Block]] = {}
    for kind, name in FIXED.items():
        right[kind] = [block for block in theirs.walk() if block.kind == kind]
        if len(right[kind]) != sum(block.kind == kind for block in mine.walk()):
            raise SourceError(f"this page and {other} do not have equally many {name}", path)
    text = "".join(_written(block, right) for block in mine.blocks)
    path.write_text(text, encoding="utf-8", newline="\n")


def _written(block: Block, right: dict[str, list[Block]]) -> str:
    """A block as it should stand, after the next of its kind in ``right``, which loses it."""
    if block.kind == "block":
        inside = "".join(_written(each, right) for each in block.blocks)
        return f"{block.text}{inside}{block.mark}\n"
    if block.kind not in right:
        return block.text
    other = right[block.kind].pop(0)
    if block.kind == "heading":
        return f"{block.mark} {block.title} {{ #{other.value} }}\n"
    if block.kind == "figure":
        return f"![{block.title}]({other.value})\n"
    # Words in a formula are translated: one that is equal but for them is right already.
    if block.kind == "math" and without_words(block.value) == without_words(other.value):
        return block.text
    return other.text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fix", metavar="PAGE", type=Path, help="repair this page from the other")
    options = parser.parse_args()
    try:
        if options.fix:
            fix(options.fix)
        return compare()
    except SourceError as error:
        print(error)
        return 1


def compare() -> int:
    paths = sorted({path for language in LANGUAGES for path in page_paths(language)})
    found = [difference for path in paths for difference in differences(path)]
    print("\n".join(found) or f"{len(paths)} pages, equal skeletons")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
