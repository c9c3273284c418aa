"""What code means to a story's results: what it does, not how it is written.

Comments, docstrings, blank lines and the breaking of lines change no result, so a typo in them runs
nothing. Pages show code as its file has it now, never as it was when it ran. The errors of other
processes name lines of code; no story prints them, since they name folders as well.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import polib

from mhsite.stories import cache, translation
from mhsite.stories.source import Section, SourceError, sections

IMPORT = re.compile(
    r"\bfrom\s+mhattn(?P<of>(?:\.\w+)*)\s+import\s*"
    r"(?:\((?P<many>[^)]*)\)|(?P<few>\*|\w+(?:\s+as\s+\w+)?(?:\s*,\s*\w+(?:\s+as\s+\w+)?)*))"
)
USE = re.compile(r"\bmhattn((?:\.\w+)+)")
UNDER_ANOTHER_NAME = re.compile(r"\bimport mhattn as\b")
READ_DOCSTRINGS = {"__doc__", "getdoc", "help"}
# What has docstrings. A string alone at a prompt is none: it is printed.
DOCUMENTED = {ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef}
# Python 3.12 added type parameters to the tree, and 3.13 stopped writing empty fields. What one
# Python ran or measured is often read with another.
WITH_EMPTY = {"show_empty": True} if sys.version_info >= (3, 13) else {}


@dataclass(frozen=True)
class Meaning:
    """What a module, a story or a lab means.

    Args:
        code: the hash of what it does, and of what a story expects to be printed.
        docstrings: the hash of its docstrings, which count only where code may print them.
        imports: what it takes from the package, as ``core.masks.causal_mask``. All of it is ``""``:
            of an import under another name nobody can say what is used.
        others: the other packages that it imports, by the first part of their names.
        reads_docstrings: whether it may print a docstring, as the checks of `mhattn.testing` do.
    """

    code: str
    docstrings: str
    imports: list[str]
    others: list[str]
    reads_docstrings: bool


def of_module(text: str) -> Meaning:
    """The meaning of a module's text."""
    return _remembered(("module", text), lambda: _of_module(text))


def of_story(story: Path) -> Meaning:
    """The meaning of a story or lab, together with the Chinese of its strings."""
    catalog = translation.catalog_of(story)
    texts = [path.read_text(encoding="utf-8") for path in (story, catalog) if path]
    return _remembered((story.suffix, *texts), lambda: _of_story(story, catalog))


def imported(text: str) -> frozenset[str]:
    """What a text, such as a string in code, takes from the package, as `Meaning` says it."""
    taken = {use[1:] for use in USE.findall(IMPORT.sub("", text))}
    for match in IMPORT.finditer(text):
        room = match["of"][1:]
        names = re.sub(r"#[^\n]*", "", match["many"] or match["few"] or "*")
        names = re.sub(r"\bas\s+\w+", "", names)
        taken |= {room} if "*" in names else {_dotted(room, n) for n in re.findall(r"\w+", names)}
    return frozenset(taken | ({""} if UNDER_ANOTHER_NAME.search(text) else set()))


def dump(tree: ast.AST) -> str:
    """A tree in words, the same from Python 3.11 on."""
    return ast.dump(tree, **WITH_EMPTY).replace(", type_params=[]", "")


def hash_of(parts: Iterable[str | bytes]) -> str:
    """The hash of several texts, each with its length, so that none runs into the next."""
    digest = hashlib.sha256()
    for part in parts:
        written = part.encode() if isinstance(part, str) else part
        digest.update(len(written).to_bytes(8, "big") + written)
    return digest.hexdigest()[:32]


@functools.cache
def _rules() -> str:
    """The hash of this file: what other rules made of a text is not looked for."""
    return hash_of([Path(__file__).read_bytes()])


_kept: dict[str, Meaning] = {}


def _remembered(texts: tuple[str, ...], make: Callable[[], Meaning]) -> Meaning:
    """What was made of these texts before; of those that can't be read, the texts themselves.

    Parsing all stories and the whole package takes seconds, so another process may have filed it.
    """
    name = hash_of([_rules(), *texts])
    if name not in _kept:
        try:
            filed = cache.remembered("meanings", name, lambda: asdict(make()))
            _kept[name] = Meaning(**filed)
        except (OSError, SourceError, SyntaxError, ValueError):
            imports = set().union(*map(imported, texts))
            return Meaning(hash_of(texts), "", sorted(imports), ["anything"], False)
    return _kept[name]


def _of_module(text: str) -> Meaning:
    reader, tree = _Reader(text, {*DOCUMENTED, ast.Module}), ast.parse(text)
    reader.visit(tree)
    return _meaning([reader], [dump(tree)], [])


def _of_story(story: Path, catalog: Path | None) -> Meaning:
    readers, does, told = [], [], []
    for section in sections(story).values():
        code, printed = _code(section), []
        if section.is_story:  # of a lab nobody foretells what it prints
            printed = [(each.want, sorted(each.options.items())) for each in section.examples()]
        tree = ast.parse(code)
        readers.append(_Reader(code, DOCUMENTED))
        readers[-1].visit(tree)
        does += [section.name, dump(tree), repr(printed)]
    if catalog:
        strings = "\0".join(text for reader in readers for text in reader.strings)
        entries = polib.pofile(str(catalog), encoding="utf-8")
        told = [_told(entry, story) for entry in entries]
        does += [_told(entry, story) for entry in entries if entry.msgid in strings]
    return _meaning(readers, does, told)


def _code(section: Section) -> str:
    """A section's code as it runs."""
    if section.is_story:
        return "".join(example.source for example in section.examples())
    return section.text


def _told(entry: polib.POEntry, story: Path) -> str:
    """An entry of a catalog; of one for a single place, at which place its text stands there.

    Comments with the same text are counted as well: see `mhsite.stories.translation.Known`.
    """
    section, _, number = (entry.msgctxt or "").partition(" ")
    places = []
    if number and section in sections(story):
        text = re.escape(entry.msgid)
        same = re.compile(rf"""(["'])(?={text}["'])|#[ #]*(?={text}$)""", re.M)
        places = [bool(match[1]) for match in same.finditer(sections(story)[section].text)]
    return repr((entry.msgctxt, entry.msgid, entry.msgstr, entry.fuzzy, places))


def _meaning(readers: list[_Reader], does: list[str], told: list[str]) -> Meaning:
    docstrings = [text for reader in readers for text in reader.docstrings]
    imports, others = (
        sorted(set().union(*(getattr(reader, kind) for reader in readers)))
        for kind in ("imports", "others")
    )
    reads = any(reader.reads_docstrings for reader in readers)
    return Meaning(hash_of(does), hash_of(docstrings + told), imports, others, reads)


class _Reader(ast.NodeVisitor):
    """Takes the docstrings out of code, and notes its strings and what it imports."""

    def __init__(self, code: str, documented: set[type]):
        self.documented = documented
        self.lines = [line.encode() for line in code.split("\n")]  # columns count bytes
        self.docstrings: list[str] = []
        self.strings: list[str] = []  # as they are written
        self.imports: set[str] = set()
        self.others: set[str] = set()
        self.reads_docstrings = False

    def visit(self, node: ast.AST) -> None:
        if type(node) in self.documented and isinstance(first := [*node.body, None][0], ast.Expr):
            value = first.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                self.docstrings.append(value.value)
                del node.body[0]
        super().visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top, _, name = alias.name.partition(".")
            if top != "mhattn":
                self.others.add(top)
            elif name or alias.asname:
                self.imports.add(name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        top, _, room = (node.module or "").partition(".")
        if top != "mhattn":
            self.others.add(top)
        else:
            self.imports |= {room if a.name == "*" else _dotted(room, a.name) for a in node.names}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        top, _, name = _chain(node).partition(".")
        if top == "mhattn":
            self.imports.add(name)
        else:
            self.generic_visit(node)
        self._note_name(node.attr)

    def visit_Name(self, node: ast.Name) -> None:
        self._note_name(node.id)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self.strings.append(self._written(node))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.strings.append(self._written(node))
            self.imports |= imported(node.value)  # code that a process is given
            self._note_name(node.value)

    def _note_name(self, name: str) -> None:
        self.reads_docstrings |= name in READ_DOCSTRINGS

    def _written(self, node: ast.expr) -> str:
        rows = self.lines[node.lineno - 1 : node.end_lineno]
        rows[-1] = rows[-1][: node.end_col_offset]
        rows[0] = rows[0][node.col_offset :]
        return b"\n".join(rows).decode(errors="replace")


def _chain(node: ast.expr) -> str:
    """A chain of attributes of a name, as ``mhattn.core.masks``; of other things, nothing."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join(reversed([*names, node.id])) if isinstance(node, ast.Name) else ""


def _dotted(room: str, name: str) -> str:
    return f"{room}.{name}" if room else name
