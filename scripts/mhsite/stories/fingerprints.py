"""The code behind one name, and its hash: when that changes, what was measured with it is stale.

Of a file only those statements count that the name needs, whatever their comments and docstrings
say; of the package's modules, and those of `scripts`, only what these statements import. What only
refuses arguments is left out, and, of what a CPU computed, each function whose name says that only
tensors on a GPU reach it.
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
# They refuse, or find a file; what is computed they do not change.
LEFT_OUT = {
    "mhattn.core.checks",
    "mhattn.costs.integers",
    "mhattn.lessons.files",
    "mhsite.stories.models",
}
ON_GPU = "_on_gpu"  # how such a name ends
SETS = "torch.set_"  # a bare call that changes all that follows, as `torch.set_default_dtype`


@functools.lru_cache(maxsize=1024)
def needed(text: str, name: str, on_gpu: bool = True) -> Sequence[ast.stmt]:
    """The statements of a file that a name needs, in the order of the file; all, or a CPU's.

    A name that is bound several times is what the last statement before its use made of it, or, of
    what a function calls that stands above it, the first after it.

    Raises:
        KeyError: if nothing binds the name.
    """
    body = _parsed(text).body
    found: set[int] = set()
    left = [(name, len(body))]
    while left:
        wanted, user = left.pop()
        binds = [index for index, node in enumerate(body) if wanted in _bound(node)]
        if not binds:
            if user == len(body):
                raise KeyError(name)
            continue  # a builtin, an argument
        index = max((i for i in binds if i < user), default=binds[0])
        if index not in found:
            found.add(index)
            read = _read(body[index])
            left += [(each, index) for each in read if on_gpu or not each.endswith(ON_GPU)]
    last = max(found)
    sets = {i for i, node in enumerate(body[:last]) if ast.unparse(node).startswith(SETS)}
    return [body[index] for index in sorted(found | sets)]


def fingerprint(text: str, name: str, on_gpu: bool = False) -> str:
    """The hash of all that a name of this text needs, there and in modules of this project."""
    package = keys.package()
    parts: dict[tuple[str, str], str] = {}
    _follow(needed(text, name, on_gpu), "", package, parts, on_gpu)
    told = "\0".join(f"{where} {what}\0{code}" for (where, what), code in sorted(parts.items()))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _follow(
    statements: Sequence[ast.stmt],
    module: str,
    package: keys.Package,
    parts: dict,
    on_gpu: bool,
) -> None:
    """Note these statements, and all that they import."""
    for number, node in enumerate(statements):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            # Several names may need the same statement: it is noted once, under what it binds.
            what = " ".join(sorted(_bound(node))) or f"statement {number}"
            parts[module, what] = _told(node)
    used = {attribute for node in statements for attribute in _attributes(node)}
    for node in statements:
        for address, bound in _imported(node):
            for where, names in _places(address, bound, used, package):
                for each in names:
                    if (where, each) not in parts:
                        parts[where, each] = ""
                        _enter(where, each, package, parts, on_gpu)


def _enter(module: str, name: str, package: keys.Package, parts: dict, on_gpu: bool) -> None:
    try:
        statements = needed(_text(module, package), name, on_gpu)
    except KeyError:  # a module's own attribute, as __name__
        return
    _follow(statements, module, package, parts, on_gpu)


def _places(
    address: tuple[str, ...], bound: str, used: set[tuple[str, str]], package: keys.Package
) -> Iterable[tuple[str, list[str]]]:
    """The modules that an import may mean, each with the names that are taken from it."""
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


def _bound(node: ast.stmt) -> set[str]:
    """The names that a statement binds at the top level."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {bound for _, bound in _imported(node)}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    return {each.id for each in names if isinstance(each.ctx, ast.Store)}


def _read(node: ast.stmt) -> set[str]:
    """The names of the top level that a statement reads, also within what it defines."""
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    changed = {node.target.id} if _adds_to_a_name(node) else set()
    read = {each.id for each in names if isinstance(each.ctx, ast.Load)}
    return read & (free_names(ast.unparse(node)) | _bound(node)) | changed


def _adds_to_a_name(node: ast.stmt) -> bool:
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)


def _attributes(node: ast.stmt) -> set[tuple[str, str]]:
    """Of each name with a dot behind it, the name and what stands behind the dot."""
    found = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
    return {(each.value.id, each.attr) for each in found if isinstance(each.value, ast.Name)}


@functools.lru_cache(maxsize=4096)
def _told(node: ast.stmt) -> str:
    """A statement without its docstrings, the same from Python 3.11 on; comments are not in it."""
    return dump(_Bare().visit(ast.parse(ast.unparse(node))))


class _Bare(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return ast.Pass() if is_text else node


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)
