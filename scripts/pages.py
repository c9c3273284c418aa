"""A page's skeleton: what both languages must have in common, and what repairs one from the other.

`python scripts/pages.py` says where English and Chinese differ. With `--fix docs/zh/masks.md` it
copies includes, ids, math and figures of the English page into the Chinese one, or back.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from snippets import DOCS, LANGUAGES, ROOT

HEADING = re.compile(r"^(?P<level>#{1,6}) (?P<title>.+?)(?: \{ #(?P<id>[\w.-]+) \})?$")
INCLUDE = re.compile(r'^--8<-- "(?P<target>[^"]+)"$')
FENCE = re.compile(r"^(?P<fence>`{3,})\s*(?P<language>[\w-]*)")
FIGURE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<target>[^)\s]+)\)")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
CITATION = re.compile(r"\[@(?P<target>[\w-]+)\]")
BLOCK = re.compile(r"^/{3,} (?P<target>[\w-]+)")
API = re.compile(r"^::: (?P<target>[\w.]+)")
TABLE = re.compile(r"^<!-- (?P<target>[\w-]+(?: [\w-]+)?)(?P<headings>(?: \| [^|]+)*) -->$")
INLINE_CODE = re.compile(r"(`+).+?\1")


@dataclass(frozen=True)
class Part:
    """One piece of a page's skeleton, on line ``line``: ``start`` to ``stop`` is its text."""

    kind: str
    value: str
    line: int


def page_paths(language: str = "en") -> list[Path]:
    """The pages of a language, relative to its folder, in order of their paths."""
    folder = DOCS / language
    return sorted(path.relative_to(folder) for path in folder.rglob("*.md"))


def skeleton(text: str) -> list[Part]:
    """Headings, includes, display math, figures, tables, links, citations, blocks, in order."""
    parts: list[Part] = []
    math: list[str] | None = None
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if math is not None:
            if stripped == "$$":
                parts.append(Part("math", " ".join(math), number))
                math = None
            else:
                math.append(stripped)
        elif match := INCLUDE.match(stripped):
            parts.append(Part("include", match["target"], number))
        elif fence:
            fence = "" if stripped == fence else fence
            if fence:
                parts.append(Part("code", stripped, number))
        elif match := FENCE.match(stripped):
            fence = match["fence"]
            parts.append(Part("fence", match["language"], number))
        elif stripped == "$$":
            math = []
        else:
            parts += _line_parts(stripped, number)
    return parts


def _line_parts(line: str, number: int) -> list[Part]:
    if match := HEADING.match(line):
        return [Part("heading", f"{match['level']} {match['id']}", number)]
    if match := BLOCK.match(line):
        return [Part("block", match["target"], number)]
    if match := API.match(line):
        return [Part("api", match["target"], number)]
    if match := TABLE.match(line):
        return [Part("table", match["target"], number)]
    line = INLINE_CODE.sub("", line)
    kinds = {"figure": FIGURE, "link": LINK, "citation": CITATION}
    found = [(match, kind) for kind, pattern in kinds.items() for match in pattern.finditer(line)]
    found.sort(key=lambda pair: pair[0].start())
    return [Part(kind, match["target"], number) for match, kind in found]


def compared(parts: list[Part]) -> list[tuple[str, str]]:
    """What must be equal in both languages: links and citations in any order within a section."""
    result: list[tuple[str, str]] = []
    floating: list[tuple[str, str]] = []
    for part in parts:
        if part.kind in ("link", "citation"):
            floating.append((part.kind, part.value))
            continue
        if part.kind == "heading":
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
        sides.append(compared(skeleton(file.read_text(encoding="utf-8"))))
    if sides[0] == sides[1]:
        return []
    for index, (english, chinese) in enumerate(zip(*sides, strict=False)):
        if english != chinese:
            what = f"{english} in English, {chinese} in Chinese"
            return [f"docs/*/{path}: part {index + 1} is {what}"]
    longer = LANGUAGES[len(sides[1]) > len(sides[0])]
    extra = max(sides, key=len)[min(map(len, sides))]
    return [f"docs/*/{path}: only docs/{longer} has {extra}"]


def fix(path: Path) -> None:
    """Copy ids, includes, display math and figure targets into ``path`` from the other language.

    The n-th of a kind goes to the n-th of that kind, so both pages need equally many.
    """
    language = path.resolve().relative_to(DOCS).parts[0]
    other = DOCS / LANGUAGES[language == LANGUAGES[0]] / path.resolve().relative_to(DOCS / language)
    mine, theirs = path.read_text(encoding="utf-8"), other.read_text(encoding="utf-8")
    for name, pattern in (
        ("headings", r"(?<= \{ #)[\w.-]+(?= \}$)"),
        ("includes", r'(?<=^--8<-- ")[^"]+(?="$)'),
        ("formulas", r"(?<=^\$\$\n).*?(?=\n\$\$$)"),
        ("figures", r"(?<=\]\()[^)\s]+\.svg(?=\))"),
    ):
        flags = re.M | (re.S if name == "formulas" else 0)
        right = re.findall(pattern, theirs, flags)
        if len(right) != len(re.findall(pattern, mine, flags)):
            raise ValueError(f"{path} and {other} do not have equally many {name}")
        source = iter(right)
        mine = re.sub(pattern, lambda match, source=source: next(source), mine, flags=flags)
    path.write_text(mine, encoding="utf-8", newline="\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fix", metavar="PAGE", type=Path, help="repair this page from the other")
    options = parser.parse_args()
    if options.fix:
        fix(options.fix)
    paths = sorted({path for language in LANGUAGES for path in page_paths(language)})
    found = [difference for path in paths for difference in differences(path)]
    print("\n".join(found) or f"{len(paths)} pages, equal skeletons")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
