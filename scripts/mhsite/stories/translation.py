"""A story's code in Chinese before it runs: other comments, docstrings and strings, the same names.

The catalog beside a story, docs/stories/masks.zh.po, has the Chinese for each of its texts, in the
form that translators' programs read (gettext's). A text is what stands within the quotes, with the
braces of an f-string, or behind the ``#`` of a comment. A story has one translation of each, and
another one where an entry's context (``msgctxt``) names a section, or a place in it. Every text
with a word in it has an entry, be it the same in Chinese, with the reason; without one nothing is
built.
"""

from __future__ import annotations

import ast
import difflib
import functools
import hashlib
import io
import re
import textwrap
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import polib

from mhsite.stories import cache, source
from mhsite.stories.source import PROMPT, Section, SourceError, of_file, sections, told_in

CONTINUED = re.compile(r"\.\.\.(?: |$)")
PACKAGE = source.DOCS / "data" / "mhattn.zh.po"  # of its source that pages show
COMMAND = "python scripts/stories.py --translate"
WORD = re.compile(r"[A-Za-z]{2}")
CODE = re.compile(
    r"[\w.\[\]()*-]*[_/.=][\w./\[\]()*=-]*|[a-z]+(?:,[a-z]+)*->[a-z]+|#[0-9a-fA-F]{6}|utf-8"
    r"|\w+,\w+=[-.\d]+|off|none|center|equal|bold|normal|round|log|meta|agg"
)
SHAPE = re.compile(r"\([^()]*,[^()]*\)")
FORMULA = re.compile(r"\$[^$]*\$|\\+[a-zA-Z]")
LITERAL = re.compile(r"(?P<prefix>\w*)(?P<quote>\"\"\"|'''|\"|')(?P<inner>.*)(?P=quote)", re.S)
# What matplotlib and torch take as words of their own.
SETTINGS = set(
    """
    ha va color c fc ec ls lw marker arrowstyle connectionstyle style mode device dtype
    scale xscale yscale which axis aspect layout loc fontstyle fontweight weight family align
    edgecolor facecolor textcoords xycoords coordinates activation norm kind encoding indexing
    reduction linestyle where transform cmap
    """.split()  # noqa: SIM905
)

DOCUMENTED = ast.FunctionDef | ast.ClassDef
ARGUMENTS = set(
    """
    figsize sharex sharey alpha vmin vmax label title titles ms mfc mec shrinkA shrinkB
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Text:
    """A text in code: where it stands there, and its line of the code, counted from 0."""

    said: str
    start: int
    end: int
    line: int
    shown: str


def catalog_of(path: Path) -> Path | None:
    """The file with the Chinese for a story, a lab or the package's own source, if there is one."""
    catalog = catalog_for(path)
    return catalog if catalog.is_file() else None


def catalog_for(path: Path) -> Path:
    if path.suffix == ".py" and path.parent != source.LABS:
        return PACKAGE
    return path.with_name(f"{path.stem}.zh.po")  # of a Chinese story it would be x.zh.zh.po


@functools.lru_cache(maxsize=4096)
def texts(code: str, *, shown: bool = False) -> tuple[Text, ...]:
    """The texts of a piece of code that may need a translation, in their order.

    ``shown``: it is source that runs elsewhere; of its strings only docstrings count, and of
    these, as on the page, the first line.
    """
    return tuple(_texts(code, shown))


def _texts(code: str, shown: bool) -> Iterator[Text]:
    lines = code.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    taken, docstrings = _settings(code), _docstrings(code)
    for kind, (row, column), end in _literals(code):
        start, stop = starts[row - 1] + column, starts[end[0] - 1] + end[1]
        piece = code[start:stop]
        if kind == "comment":
            inner, at = piece.lstrip("# "), stop - len(piece.lstrip("# "))
            needs = WORD.search(SHAPE.sub("", inner)) and not inner.startswith(("doctest:", "noqa"))
        else:
            match = LITERAL.fullmatch(piece)
            inner, at = match["inner"], start + match.start("inner")
            needs = "b" not in match["prefix"].lower() and (row, column) not in taken
            needs = needs and _has_word(inner, "f" in match["prefix"].lower())
            needs = needs and (not shown or (row, column) in docstrings)
        if needs:
            said = inner.split("\n")[0] if shown else inner
            yield Text(said, at, at + len(inner), row - 1, lines[row - 1].strip())


def _has_word(inner: str, formatted: bool) -> bool:
    said = FORMULA.sub(" ", "".join(_parts(inner)[::2]) if formatted else inner)
    return bool(WORD.search(said)) and not CODE.fullmatch(said.strip())


def _parts(inner: str) -> list[str]:
    """An f-string's text and, at every second place, what stands in braces."""
    parts, depth, start, position = [], 0, 0, 0
    while position < len(inner):
        letter = inner[position]
        if not depth and inner[position : position + 2] in ("{{", "}}"):
            position += 2
            continue
        if letter in "{}" and (depth or letter == "{"):
            before, depth = depth, depth + (1 if letter == "{" else -1)
            if not before or not depth:
                cut = position if not before else position + 1
                parts.append(inner[start:cut])
                start = cut
        position += 1
    return [*parts, inner[start:]]


def _settings(code: str) -> set[tuple[int, int]]:
    """Where strings stand that are a library's own words, not said to a reader."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.keyword) and node.arg in SETTINGS:
            found |= _constants(node.value)
        elif isinstance(node, ast.Call) and _called(node.func) in ("data_file", "einsum"):
            found |= {place for each in node.args for place in _constants(each)}
        elif isinstance(node, ast.Subscript) and _called(node.value).isupper():  # as COLORS
            found |= _constants(node.slice)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in SETTINGS:
                    found |= _constants(value)
                if isinstance(key, ast.Constant) and key.value in SETTINGS | ARGUMENTS:
                    found |= _constants(key)
    return found


def _docstrings(code: str) -> set[tuple[int, int]]:
    nodes = (node for node in ast.walk(ast.parse(code)) if isinstance(node, DOCUMENTED))
    return {
        place for node in nodes if ast.get_docstring(node) for place in _constants(node.body[0])
    }


def _called(node: ast.expr) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def _constants(node: ast.expr) -> set[tuple[int, int]]:
    found = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return {(each.lineno, each.col_offset) for each in found if isinstance(each.value, str)}


def _literals(code: str) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Where comments and strings are; from Python 3.12 on an f-string comes in several tokens."""
    opened = []
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            opened.append(token.start)
        elif kind == "FSTRING_END":
            start = opened.pop()
            if not opened:
                yield "string", start, token.end
        elif kind in ("STRING", "COMMENT") and not opened:
            yield kind.lower(), token.start, token.end


def in_chinese(section: Section, code: str, known: Known, line: int) -> str:
    """A piece of a section's code with its texts in Chinese; it starts on this line of the file."""
    made, end, path = [], 0, section.path
    for text in texts(code, shown=_is_source(section)):
        said = known(section.name, text.said)
        if said is None:
            why = f"no Chinese for {text.said!r}; to note it: {COMMAND} {path.stem}"
            raise SourceError(why, path, line + text.line)
        made += [code[end : text.start], said]
        end = text.end
    translated = "".join([*made, code[end:]])
    if not _is_source(section) and not does_the_same(code, translated):
        why = f"in Chinese this is other code, not only other words:\n{_indented(translated)}"
        raise SourceError(why, path, line)
    return translated


def _indented(code: str) -> str:
    return textwrap.indent(code.rstrip("\n"), "    ")


class _Blank(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        values = [self.visit(v) for v in node.values if isinstance(v, ast.FormattedValue)]
        return ast.JoinedStr(sorted(values, key=ast.dump))  # another language, another order

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        return node  # its format is no text


def does_the_same(one: str, other: str) -> bool:
    """Do two pieces of code differ in words only?"""
    try:
        return len({ast.dump(_Blank().visit(ast.parse(code))) for code in (one, other)}) == 1
    except SyntaxError:
        return False


def chinese_sections(story: Path) -> dict[str, Section]:
    """A story's sections as Chinese readers get them; what they print is as in English."""
    catalog = catalog_of(story)
    versions = [(path.stat().st_mtime_ns, path.stat().st_size) for path in (story, catalog)]
    return _chinese_sections(story, catalog, *versions)


@functools.lru_cache(maxsize=256)
def _chinese_sections(story: Path, catalog: Path, *_versions) -> dict[str, Section]:
    # It takes a second a story, and every process that renders pages asks for all: so it is filed.
    digest = hashlib.sha256()
    for path in (Path(__file__), Path(source.__file__), story, catalog):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    name = digest.hexdigest()[:32]
    chinese = cache.remembered("translations", name, lambda: _chinese_texts(story, catalog))
    path = story.with_name(f"{story.stem}.zh{story.suffix}")
    english = sections(story).items()
    return {name: replace(section, path=path, text=chinese[name]) for name, section in english}


def _chinese_texts(story: Path, catalog: Path) -> dict[str, str]:
    """The text of each section in Chinese; an entry that none of them needs is an error."""
    entries, english = _entries(catalog), sections(story)
    made = {name: _translated(each, Known(entries)).text for name, each in english.items()}
    used = {use for uses in _uses(english.values()).values() for use in uses}
    for entry in entries:
        if (entry.msgctxt, entry.msgid) not in used:
            why = f"{story.name} has no {entry.msgid!r} now; to mend it: {COMMAND} {story.stem}"
            raise SourceError(why, catalog, entry.linenum)
    return made


class Known:
    """The Chinese for each text in turn, as its catalog has it, or None.

    An entry may be for all sections, for one (``msgctxt "rows"``), or for one place of the text
    there, counted from 1 (``msgctxt "rows 2"``).
    """

    def __init__(self, entries: Iterable[polib.POEntry]):
        finished = (entry for entry in entries if entry.msgstr and not entry.fuzzy)
        self.chinese = {(entry.msgctxt, entry.msgid): entry.msgstr for entry in finished}
        self.count = Counter()

    def __call__(self, section: str, said: str) -> str | None:
        self.count[section, said] += 1
        contexts = f"{section} {self.count[section, said]}", section, None
        return next((self.chinese[c, said] for c in contexts if (c, said) in self.chinese), None)


def _uses(shown: Iterable[Section]) -> dict[str, list[tuple[str | None, str]]]:
    """For each text of these sections, under which names it may stand in the catalog."""
    uses, count = {}, Counter()
    for section in shown:
        for text in texts_of(section):
            said = text.said
            count[section.name, said] += 1
            contexts = section.name, f"{section.name} {count[section.name, said]}"
            uses.setdefault(said, [(None, said)]).extend((each, said) for each in contexts)
    return {said: list(dict.fromkeys(each)) for said, each in uses.items()}


@of_file
def _entries(catalog: Path) -> polib.POFile:
    try:
        return polib.pofile(str(catalog), encoding="utf-8", check_for_duplicates=True)
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot be read: {error}", catalog) from None


def _is_source(section: Section) -> bool:
    return catalog_for(section.path) == PACKAGE


def _pieces(section: Section) -> Iterator[tuple[int, int, str]]:
    """The examples of a section: from which of its lines to which, and their code."""
    if not section.is_story:
        yield 0, section.text.count("\n"), textwrap.dedent(section.text)
        return
    lines, number = section.text.split("\n"), 0
    while number < len(lines):
        start, number = number, number + 1
        if PROMPT.match(lines[start]):
            while number < len(lines) and CONTINUED.match(lines[number]):
                number += 1
            yield start, number, "\n".join(line[4:] for line in lines[start:number])


def texts_of(section: Section) -> Iterator[Text]:
    for start, _, code in _pieces(section):
        for text in texts(code, shown=_is_source(section)):
            yield replace(text, line=section.line + start + text.line)


def _translated(section: Section, known: Known) -> Section:
    """A section with its texts in Chinese, as if it were of a story in Chinese."""
    lines, made, end = section.text.split("\n"), [], 0
    for start, stop, code in _pieces(section):
        said = in_chinese(section, code, known, section.line + start).split("\n")
        if section.is_story:
            said = [f">>> {said[0]}".rstrip(), *(f"... {line}".rstrip() for line in said[1:])]
        made += lines[end:start] + said
        end = stop
    if _is_source(section):
        return replace(section, text="\n".join(made))
    path = section.path.with_name(f"{section.path.stem}.zh{section.path.suffix}")
    return replace(section, path=path, text="\n".join([*made, *lines[end:]]))


@functools.lru_cache(maxsize=512)
def _chinese_source(section: Section, _version: int) -> Section:
    return _translated(section, Known(_entries(PACKAGE)))


def note(shown: Iterable[Section]) -> list[str]:
    """Bring the catalog of these sections up to date, and say where Chinese is missing.

    What they do not say any more goes; where a text only changed, its old Chinese is kept as a
    proposal, marked as fuzzy.
    """
    shown = list(shown)
    path = catalog_for(shown[0].path)
    old = _entries(path) if path.is_file() else polib.POFile()
    known, made = (
        {(entry.msgctxt, entry.msgid): entry for entry in old},
        polib.POFile(wrapwidth=100),
    )
    made.metadata = {"Language": "zh_CN", "Content-Type": "text/plain; charset=UTF-8"}
    uses, missing = _uses(shown), []
    gone = [said for section, said in known if not section and said not in uses]
    for section in shown:
        for text in texts_of(section):
            for use in [use for use in uses.pop(text.said, ()) if use in known or not use[0]]:
                entry = known.get(use) or _proposed(text.said, gone, known)
                entry.comment = f"{section.name}: {text.shown}"
                made.append(entry)
                if entry.msgstr and entry.fuzzy:
                    why = f"the Chinese of {text.said!r} is that of an older text"
                    why += f": correct it in {path.name}, then delete '#, fuzzy'"
                    missing.append(f"{section.path}:{text.line}: {why}")
                elif not entry.msgstr:
                    missing.append(f"{section.path}:{text.line}: no Chinese for {text.said!r}")
    made.save(str(path))
    return missing


def _proposed(said: str, gone: list[str], known: dict) -> polib.POEntry:
    """A new entry, with the Chinese of one that is gone and was much the same."""
    entry = polib.POEntry(msgid=said)
    if near := difflib.get_close_matches(said, gone, n=1):
        entry.msgstr, entry.flags = known[None, near[0]].msgstr, ["fuzzy"]
    return entry


def shown_section(reference: str, language: str = "en") -> Section:
    """The section that ``--8<-- "reference"`` shows, as in ``masks.pycon:causal``.

    A Chinese page shows that of ``masks.zh.pycon``, if there is such a story, or the one that
    the catalog ``masks.zh.po`` makes of it.
    """
    file, _, name = reference.partition(":")
    if (twin := source.STORIES / told_in(language, file)).is_file():
        file = twin.name
    for base in (source.STORIES, source.LABS, source.ROOT):
        if (path := base / file).is_file():
            found = sections(path)
            if language != "en" and base != source.ROOT and catalog_of(path):
                found = chinese_sections(path)
            if name not in found:
                raise SourceError(f"there is no section {name!r}", path)
            if language != "en" and base == source.ROOT and PACKAGE.is_file():
                return _chinese_source(found[name], PACKAGE.stat().st_mtime_ns)
            return found[name]
    raise SourceError(f"there is no file {file!r} in docs/stories, docs/labs or the project")
