"""The code that a function needs, and the hash of that code.

A measurement and a run that was made beforehand are filed with the hash of the function that made
them. When the hash of the function is another today, the numbers are stale, and their page says so.

The hash covers the statements that the function needs in its own file, and, in modules of `mhattn`
and of `scripts`, the statements behind every name that these import. Comments and docstrings do not
count. Two kinds of code are left out, because they change no number:

- modules that only check arguments or find files (`LEFT_OUT`);
- where a CPU made the numbers, functions that only tensors on a GPU reach. Their names end in
  `_on_gpu`, and a test holds that they are called behind `is_cuda` alone.

A function that was written anew and returns the same to the last bit counts as it was (`AS_FILED`).
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from mhsite.stories import keys
from mhsite.stories.meaning import dump
from mhsite.stories.source import ROOT, free_names

SCRIPTS = ROOT / "scripts"
# These modules refuse arguments or find files. No number depends on them, so a better error message
# makes no measurement stale.
LEFT_OUT = {
    "mhattn.core.checks",
    "mhattn.inside.checks",
    "mhattn.models.checks",
    "mhattn.variants.checks",
    "mhattn.costs.integers",
    "mhattn.lessons.files",
    "mhsite.stories.models",
}
# A module that was renamed counts under its old name: a move changes no number either.
MOVED = {
    "mhattn.parallel.compare": "mhattn.parallel.demo",
    "mhsite.pages.measured": "mhsite.measured",
    "mhsite.folders": "mhsite.source",
}
# A function that was written anew and returns the same, bit for bit, counts as the one that ran:
# its text stands in this module. A test compares what both return.
# A time that was measured with the old one is not today's, which is no longer than it was.
AS_FILED = {
    ("mhattn.models.language_model", "load_gguf"): "mhsite.stories.as_filed",
    ("mhattn.core.positions", "Rotary"): "mhsite.stories.as_filed",
    ("mhattn.core.positions", "RotaryTable"): "mhsite.stories.as_filed",
    ("mhattn.core.fused", "group_as_rows"): "mhsite.stories.as_filed",
}
# How the name of a function ends that only a GPU's tensors reach. A name can be read without a GPU
# and without running anything; a decorator would itself be part of the code and of its hash.
ON_GPU = "_on_gpu"
SETS = "torch.set_"  # a bare call that changes all that follows, as `torch.set_default_dtype`
DEFINES = ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
SEEDS = ("torch.manual_seed(", "_ = torch.manual_seed(")


KEPT = functools.lru_cache(maxsize=1 << 16)  # trees are kept: what is asked of a statement is too


@KEPT
def needed(text: str, name: str, on_gpu: bool = True, seeds: bool = False) -> Sequence[ast.stmt]:
    """The statements of a file that a name needs, in the order of the file.

    Where several statements bind a name, the last one before its use counts. Where all of them
    follow the use, as a function may call one that is defined below it, the first one counts.

    Args:
        text: the file.
        name: what is needed.
        on_gpu: whether functions that only a GPU's tensors reach count as well.
        seeds: whether it takes along the seeds that are set before what it needs is computed.

    Raises:
        KeyError: if nothing binds the name.
    """
    body = _parsed(text).body
    needed_places: set[int] = set()
    left = [(name, len(body))]
    while left:
        wanted, user = left.pop()
        binds = [index for index, node in enumerate(body) if wanted in _bound(node)]
        if not binds:
            if user == len(body):
                raise KeyError(name)
            continue  # a builtin, an argument
        index = max((i for i in binds if i < user), default=binds[0])
        if index not in needed_places:
            needed_places.add(index)
            read = _read(body[index])
            left += [(other, index) for other in read if on_gpu or not other.endswith(ON_GPU)]
    last = max(needed_places)
    # Nobody asks for `torch.set_default_dtype` by a name, and yet it changes what follows it.
    sets = {i for i, node in enumerate(body[:last]) if _code(node).startswith(SETS)}
    if seeds:  # a definition draws nothing before it is called
        drawing = (i for i in needed_places if not isinstance(body[i], DEFINES))
        before = body[: max(drawing, default=0)]
        sets |= {i for i, node in enumerate(before) if _code(node).startswith(SEEDS)}
    return [body[index] for index in sorted(needed_places | sets)]


def fingerprint(text: str, name: str, on_gpu: bool = False, seeds: bool = False) -> str:
    """The hash of the code that a name of this text needs, here and in modules of this project."""
    package = keys.package()
    scripts = {path: path.stat().st_mtime_ns for path in SCRIPTS.glob("*/*.py")}
    state = id(package), scripts, dict(MOVED), dict(AS_FILED)
    if _hashes.get("of") != state:  # something has changed
        _hashes.clear()
        _hashes["of"], _hashes["kept"] = state, package
    asked = text, name, on_gpu, seeds
    if asked not in _hashes:
        _hashes[asked] = _hash(text, name, on_gpu, seeds, package)
    return _hashes[asked]


_hashes: dict = {}  # each is asked for by a page, its notebook and its Markdown, in both languages


def _hash(text: str, name: str, on_gpu: bool, seeds: bool, package: keys.Package) -> str:
    parts: dict[tuple[str, str], str] = {}
    _follow(needed(text, name, on_gpu, seeds), "", package, parts, on_gpu)
    as_filed = {(MOVED.get(module, module), what): code for (module, what), code in parts.items()}
    lines = (f"{where} {what}\0{code}" for (where, what), code in sorted(as_filed.items()))
    return hashlib.sha256("\0".join(lines).encode()).hexdigest()[:16]


def _follow(
    statements: Sequence[ast.stmt],
    module: str,
    package: keys.Package,
    parts: dict,
    on_gpu: bool,
) -> None:
    """Add these statements, and what they import, to ``parts``: code by module and name.

    The imports themselves are no part: where a name comes from matters less than what it means.
    """
    for number, node in enumerate(statements):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            # Several names may need the same statement: it is noted once, under what it binds.
            names = set() if _code(node).startswith(SEEDS) else _bound(node)
            what = " ".join(sorted(names)) or f"statement {number}"
            parts[module, what] = _without_docstrings(node)
    used = {attribute for node in statements for attribute in _attributes(node)}
    for node in statements:
        for address, bound in _imported(node):
            for where, names in _places(address, bound, used, package):
                for name in names:
                    if (where, name) not in parts:
                        parts[where, name] = ""  # noted first: imports may go in circles
                        _enter(where, name, package, parts, on_gpu)


def _enter(module: str, name: str, package: keys.Package, parts: dict, on_gpu: bool) -> None:
    try:
        statements = needed(_text_as_filed(module, package), name, on_gpu)
    except KeyError:  # a module's own attribute, as __name__
        return
    _follow(statements, module, package, parts, on_gpu)


def _places(
    address: tuple[str, ...], bound: str, used: set[tuple[str, str]], package: keys.Package
) -> Iterable[tuple[str, list[str]]]:
    """The modules that an import may mean, each with the names that are taken from it.

    ``from mhattn.core import masks`` may mean a module or what a door exports. Of a module that is
    imported as a whole, the names are those in ``used``: what stands behind its dot.
    """
    root, *rest = address
    if root == "mhattn":
        found = package.found(tuple(rest)) if rest else package.inside("")
        modules = {f"mhattn.{name}" for name in found}
    elif (SCRIPTS / root).is_dir():
        several = (".".join(address), ".".join(address[:-1]))
        modules = {next((m for m in several if _file(m).is_file()), "")} - {""}
    else:
        modules = set()
    for module in sorted(modules - LEFT_OUT):
        if len(modules) == 1 and module.split(".")[-1] != address[-1]:
            yield module, [address[-1]]
        else:  # the module itself: what is used are its attributes
            yield module, sorted(attribute for name, attribute in used if name == bound)


def _text_as_filed(module: str, package: keys.Package) -> str:
    """The text of a module, with functions as they were where today's return the same."""
    text = _text(module, package)
    for (where, name), filed in AS_FILED.items():
        if where == module:
            today, then = (_source(each, name) for each in (text, _text(filed, package)))
            text = text.replace(today, then)
    return text


@KEPT
def _source(text: str, name: str) -> str:
    """The lines of the function or class of this name."""
    (node,) = (n for n in _parsed(text).body if isinstance(n, DEFINES) and name in _bound(n))
    return ast.get_source_segment(text, node) or ""


def _text(module: str, package: keys.Package) -> str:
    if module.startswith("mhattn."):
        return package.texts[module.removeprefix("mhattn.")].partition("\0")[0]
    return _file(module).read_text(encoding="utf-8")


def _file(module: str) -> Path:
    return SCRIPTS.joinpath(*module.split(".")).with_suffix(".py")


def _imported(node: ast.stmt) -> list[tuple[tuple[str, ...], str]]:
    """What an import names, each with the name that it has here."""
    if isinstance(node, ast.ImportFrom) and node.module:
        start = tuple(node.module.split("."))
        return [((*start, alias.name), alias.asname or alias.name) for alias in node.names]
    if isinstance(node, ast.Import):
        return [(tuple(a.name.split(".")), a.asname or a.name.split(".")[0]) for a in node.names]
    return []


@KEPT  # asked of each statement of a file for each name of it
def _bound(node: ast.stmt) -> set[str]:
    """The names that a statement binds at the top level."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {bound for _, bound in _imported(node)}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


@KEPT
def _read(node: ast.stmt) -> set[str]:
    """The names of the top level that a statement reads, also within what it defines."""
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    changed = {node.target.id} if _adds_to_a_name(node) else set()
    read = {name.id for name in names if isinstance(name.ctx, ast.Load)}
    return read & (free_names(_code(node)) | _bound(node)) | changed


def _adds_to_a_name(node: ast.stmt) -> bool:
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)


@KEPT
def _attributes(node: ast.stmt) -> set[tuple[str, str]]:
    """Of each name with a dot behind it, the name and what stands behind the dot."""
    dots = (part for part in ast.walk(node) if isinstance(part, ast.Attribute))
    return {(dot.value.id, dot.attr) for dot in dots if isinstance(dot.value, ast.Name)}


@KEPT
def _without_docstrings(node: ast.stmt) -> str:
    """The tree of a statement as text, the same on every Python from 3.11 on."""
    return dump(_DocstringsOut().visit(ast.parse(_code(node))))


class _DocstringsOut(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return ast.Pass() if is_text else node


@KEPT
def _code(node: ast.stmt) -> str:
    return ast.unparse(node)


@KEPT
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)
