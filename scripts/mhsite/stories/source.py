"""Read the files whose code the pages show: their named sections, and the code in them."""

from __future__ import annotations

import ast
import builtins
import doctest
import re
import symtable
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, wraps
from itertools import groupby, takewhile, zip_longest
from pathlib import Path

from click import ClickException

from mhsite.folders import DOCS as DOCS, ROOT as ROOT

STORIES = DOCS / "stories"
LABS = DOCS / "labs"
LANGUAGES = ("en", "zh")
LINE_LENGTH = 100  # of the package's source, as in pyproject.toml

MARKER = re.compile(r"^\s*# --8<-- \[(?P<kind>start|end):(?P<name>[\w-]+)\]\s*$")
# Behind a line of a story or of its output: `mhsite.pages.traps` reads it, and no page shows it.
MARK = re.compile(r"  #(?: \[(?:wrong|right)(?:: [^\]]+)?\])+$")

PROMPT = re.compile(r"(>>>|\.\.\.)(?: |$)")
DISCARDED = re.compile(r"^(\s*)_ = ")
DEFINITION = re.compile(r"(?:def|class|async def) |@")


class SourceError(ClickException):
    """Something wrong in a file of this project; the message says file, line and why.

    A command made with click, as MkDocs is, ends with the message and without a traceback.
    """

    def __init__(self, why: object, path: Path | str | None = None, line: int | None = None):
        where = [str(part) for part in (path, line) if part is not None]
        super().__init__(": ".join([":".join(where)] * bool(where) + [str(why)]))


def of_file(read: Callable[[Path], object]) -> Callable[[Path], object]:
    """Keep what ``read`` makes of a file, until the file changes."""
    kept = {}

    @wraps(read)
    def reader(path: Path):
        about = path.stat()
        version = about.st_mtime_ns, about.st_size
        if path not in kept or kept[path][0] != version:
            kept[path] = version, read(path)
        return kept[path][1]

    return reader


@dataclass(frozen=True)
class Cell:
    """A piece of a story: its code as pages show it, and what it printed last."""

    code: str
    output: str


@dataclass(frozen=True)
class Section:
    """One named section: ``text`` starts on line ``line`` of ``path``, counted from 1.

    The text is without its ``marks``: pairs of a line of the text, counted from 0, and the mark.
    """

    path: Path
    name: str
    line: int
    text: str
    marks: tuple[tuple[int, str], ...] = ()

    @property
    def is_story(self) -> bool:
        return self.path.suffix == ".pycon"

    @cached_property
    def shown(self) -> str:
        """The section as a page shows it."""
        return textwrap.dedent(self.text).strip()

    @property
    def cells(self) -> list[Cell]:
        """A story's section as cells of code, each with what it printed."""
        return console_cells(self.text)

    @property
    def code(self) -> str:
        """The section as a reader would type it into a file: no prompts, no outputs."""
        if self.is_story:
            return console_code(self.text)
        code = self.shown + "\n"
        return code if self.path.parent == LABS else runnable(code, self.path)

    def examples(self) -> list[doctest.Example]:
        """A story's examples; of other code the statements, which print what nobody foretells."""
        if not self.is_story:
            return [doctest.Example(code, "", lineno=at) for code, at in _statements(self.text)]
        try:
            return doctest.DocTestParser().get_examples(self.text, str(self.path))
        except ValueError as error:
            why = f"in section {self.name!r}: {error}"
            raise SourceError(why, self.path, self.line) from None

    def printing(self, printed: list[str]) -> str:
        """Its text, if its examples print this."""
        return "\n".join(replace(self, marks=()).rewritten(printed))

    def rewritten(self, printed: list[str]) -> list[str]:
        """Its lines in the file, if its examples print this; a mark stays behind its line."""
        marks = [dict(self.marks).get(i, "") for i in range(self.text.count("\n") + 1)]
        lines = [line + mark for line, mark in zip(self.text.split("\n"), marks, strict=True)]
        for example, got in reversed(list(zip(self.examples(), printed, strict=True))):
            start = example.lineno + example.source.count("\n")
            end = start + example.want.count("\n")
            outputs = [line or "<BLANKLINE>" for line in got.splitlines()]
            pairs = zip_longest(outputs, marks[start:end], fillvalue="")
            lines[start:end] = [line + mark for line, mark in pairs][: len(outputs)]
        return lines

    def difference(self, number: int, printed: str) -> str:
        """What is said of the example of this number, from 0, that prints this and should not."""
        example = self.examples()[number]
        expected, got = (_indented(text or "nothing") for text in (example.want, printed))
        return self.message(example, f"expected\n{expected}\ngot\n{got}")

    def message(self, example: doctest.Example, why: str) -> str:
        line = self.line + example.lineno
        return f"{self.path}:{line}: in section {self.name!r}\n{_indented(example.source)}\n{why}"


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.rstrip("\n").split("\n"))


def _statements(code: str) -> Iterator[tuple[str, int]]:
    """Of each statement its code and its first line, counted from 0."""
    lines = code.splitlines(keepends=True)
    for node in ast.parse(code).body:
        start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]) - 1
        yield "".join(lines[start : node.end_lineno]), start


@of_file
def sections(path: Path) -> dict[str, Section]:
    """The sections of a file in order of appearance, or a `SourceError` that names the line."""
    found: dict[str, Section] = {}
    name, start, lines = None, 0, path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if not (marker := MARKER.match(line)):
            continue
        kind, this = marker["kind"], marker["name"]
        if kind == "start" and (name is not None or this in found):
            raise SourceError(f"section {this!r} starts inside another or twice", path, number)
        if kind == "end" and this != name:
            raise SourceError(f"section {this!r} ends but did not start", path, number)
        if kind == "start":
            name, start = this, number + 1
        else:
            found[this], name = _section(path, this, start, lines[start - 1 : number - 1]), None
    if name is not None:
        raise SourceError(f"section {name!r} has no end", path, start - 1)
    return found


def _section(path: Path, name: str, line: int, lines: list[str]) -> Section:
    split = [_without_mark(each) for each in lines]
    marks = tuple((i, mark) for i, (_, mark) in enumerate(split) if mark)
    return Section(path, name, line, "\n".join(text for text, _ in split) + "\n", marks)


def _without_mark(line: str) -> tuple[str, str]:
    """A line of a file, and the mark behind it, if there is one."""
    mark = MARK.search(line)
    return (line[: mark.start()], mark[0]) if mark else (line, "")


def told_in(language: str, file: str) -> str:
    """The name of a story, or of the folder of its figures, in a language."""
    name, dot, ending = file.partition(".")
    return file if language == "en" else f"{name}.{language}{dot}{ending}"


@cache
def console_code(text: str) -> str:
    """The code of an interactive session, as a reader would type it into a file."""
    return "".join(cell.code for cell in console_cells(text))


def console_cells(text: str) -> list[Cell]:
    """The code of an interactive session up to each output, with that output.

    A session keeps what it doesn't want to see from being printed with ``_ = ``. A file needs no
    such thing; there, a definition stands apart from what is around it.
    """
    cells: list[tuple[list[str], list[str]]] = []
    defines = False
    for line in text.splitlines():
        if match := PROMPT.match(line):
            if not cells or cells[-1][1]:
                cells.append(([], []))
                defines = False
            code = DISCARDED.sub(r"\1", line[match.end() :])
            if match[1] == ">>>":
                before, defines = defines, bool(DEFINITION.match(code))
                if cells[-1][0] and (before or defines):
                    cells[-1][0].append("")
            cells[-1][0].append(code)
        elif line and cells:
            cells[-1][1].append(line.replace("<BLANKLINE>", ""))
    return [Cell("\n".join(code) + "\n", "\n".join(output)) for code, output in cells]


def runnable(code: str, module: Path) -> str:
    """A piece of the package's own source, with the imports that it needs to run by itself."""
    lines, package = import_lines(module), module.relative_to(ROOT).parts[0]
    needed = {lines[name] for name in free_names(code) if name in lines}
    own, rest = _leading_imports(code, package)
    header = sorted_imports(needed | own, package)
    blank = "\n\n" if rest.startswith(("def ", "class ", "@", "#")) else "\n"
    return f"{header}{blank}{rest}" if header else code


def _leading_imports(code: str, package: str) -> tuple[set[str], str]:
    """The imports that an example starts with, one name each, and what stands below them."""
    statements = ast.parse(code).body
    imports = list(
        takewhile(lambda node: isinstance(node, ast.Import | ast.ImportFrom), statements)
    )
    lines = {line for node in imports for line in _import_lines(node, package).values()}
    below = code.splitlines(keepends=True)[imports[-1].end_lineno if imports else 0 :]
    return lines, "".join(below).lstrip("\n")


def sorted_imports(lines: Iterable[str], package: str) -> str:
    """Imports of one name each, sorted and merged as ruff does it."""
    plain, from_modules = [], defaultdict(list)
    for (node,) in (ast.parse(line).body for line in lines):
        (alias,) = node.names
        if isinstance(node, ast.Import):
            plain.append((alias.name, ast.unparse(node)))
        else:
            from_modules[node.module, alias.asname].append(alias)  # each "as" has its own line
    written = [(_origin(name, package), 0, name.lower(), (), line) for name, line in plain]
    for (name, _), aliases in from_modules.items():
        aliases.sort(key=_rank)
        line = _from_import(name, [ast.unparse(alias) for alias in aliases])
        written.append((_origin(name, package), 1, name.lower(), _rank(aliases[0]), line))
    groups = groupby(sorted(written), key=lambda item: item[0])
    return "\n".join("".join(item[-1] + "\n" for item in group) for _, group in groups)


def _origin(module: str, package: str) -> int:
    """0 for Python's own modules, 1 for those of others, 2 for the package's."""
    top = module.split(".")[0]
    return 2 if top == package else int(top not in sys.stdlib_module_names)


def _rank(alias: ast.alias) -> tuple[int, str]:
    """Constants come before classes, and these before all other names."""
    name = alias.name
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name.lower()


def _from_import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= LINE_LENGTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


@cache
def free_names(code: str) -> set[str]:
    """The global names that a piece of code reads but does not bind."""

    def walk(table: symtable.SymbolTable):
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                yield symbol.get_name()
        for child in table.get_children():
            yield from walk(child)

    table = symtable.symtable(code, "<section>", "exec")
    bound = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    return set(walk(table)) - bound - set(dir(builtins))


@of_file
def import_lines(module: Path) -> dict[str, str]:
    """For each global name of a module of the package, the line that imports it elsewhere."""
    path = module.relative_to(ROOT).with_suffix("").parts
    name = ".".join(path[:-1] if path[-1] == "__init__" else path)
    lines = {}
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines |= _import_lines(node, path[0])
        else:
            lines |= {
                bound: f"from {address(name, bound)} import {bound}" for bound in _bound(node)
            }
    return lines


def _import_lines(node: ast.Import | ast.ImportFrom, package: str) -> dict[str, str]:
    """For each name that a statement imports, a line that imports it alone."""

    def source(name: str) -> str:
        if isinstance(node, ast.Import):
            return ""
        parents = [package] * node.level + [node.module] * bool(node.module)
        return f"from {address('.'.join(parents), name)} "

    return {
        alias.asname or alias.name.split(".")[0]: source(alias.name)
        + ast.unparse(ast.Import([alias]))
        for alias in node.names
    }


def address(module: str, name: str) -> str:
    """Where to import a name that ``module`` defines: the first package that exports it."""
    parts = module.split(".")
    for stop in range(1, len(parts)):
        door = ROOT.joinpath(*parts[:stop], "__init__.py")
        if door.is_file() and name in exported(door).get(".".join(parts[stop:]), ""):
            return ".".join(parts[:stop])
    return module


@of_file
def exported(door: Path) -> dict[str, list[str]]:
    """For each module, as a package's ``__init__.py`` says it in ``NAMES``, what is exported."""
    for node in ast.parse(door.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and _bound(node) == ["NAMES"]:
            return {module: names.split() for module, names in ast.literal_eval(node.value).items()}
    return {}


def _bound(node: ast.stmt) -> list[str]:
    """The names that a function, a class or an assignment binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    names = (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    return [name.id for name in names if isinstance(name.ctx, ast.Store)]
