"""A story in its second language, beside the first: only what the language changes runs again.

Both have one state. An example runs again, in Chinese, if its code differs, or if it names what
differs by now: a list of words, a function that prints them, a plot. What both have made the same
is shared again. So what takes long, and says nothing, runs once, and is told twice.

What runs again must not change what both share, or it would be changed twice: then the story
stops, with the line. A test runs Chinese stories from top to bottom by themselves and compares.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import os
import random
import re
import shutil
import symtable
import sys
import traceback
import types
from collections import OrderedDict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from matplotlib import _pylab_helpers
from matplotlib.artist import Artist

from mhsite.stories.source import Section, SourceError

NUMBER = re.compile(r"\d+(?:\.\d+)?")
CHANGES = {
    *("append", "extend", "insert", "update", "add", "pop", "remove", "clear", "sort"),
    *("setdefault", "reverse", "discard", "popitem"),
}


class Own(dict):
    """The names that Chinese has for itself; all others are those of the English run."""

    def __init__(self, shared: dict[str, Any]):
        super().__init__()
        self.shared = shared

    def __missing__(self, name: str) -> Any:
        return self.shared[name]


class Second:
    """The Chinese run of a story, example by example after the English one.

    Args:
        shared: the names of the English run.
        folder: where this run's files go, as `mhsite.stories.runner.run` writes those of a story.
        shown: the list that gets what the story shows, as `mhsite.stories.grids` notes it.
    """

    def __init__(self, shared: dict[str, Any], folder: Path, shown: list):
        self.shared, self.own, self.folder, self.shown = shared, Own(shared), folder, shown
        self.definitions: dict[str, tuple[str, str]] = {}
        self.figures: OrderedDict = OrderedDict()
        self.grids: list = []
        self.outputs: dict[str, dict] = {}
        (folder / "files").mkdir(parents=True)

    def begin(self, english: Section, chinese: Section) -> None:
        """The next section in both languages."""
        ours, theirs = english.examples(), chinese.examples()
        self.english, self.section, self.printed, self.again = english, chinese, [], False
        self.code = {one.lineno: other.source for one, other in zip(ours, theirs, strict=True)}
        differ = any(bare(one.source) != bare(self.code[one.lineno]) for one in ours)
        self.draws_anew = differ or any(self._touched(one.source) for one in ours)

    def before(self, example) -> None:
        """Before English runs an example: if Chinese runs it too, what it changes is kept."""
        code = self.code[example.lineno]
        self.again = (
            bare(example.source) != bare(code)
            or self._touched(example.source)
            or (self.draws_anew and self._draws(example.source))
        )
        self.chance = _chance()
        if not self.again:
            return
        for name in changed(example.source) | self._changed_within(example.source):
            if name in self.shared and name not in self.own:
                copied = _copy(self.shared[name])
                if copied is not self.shared[name]:
                    self.own[name] = copied
        for name in bound(example.source) - set(self.own):
            if name in self.shared:
                self.own[name] = self.shared[name]  # as it was
        for name in self._reached(example.source) & set(self.definitions):
            if name not in self.own and self._touched(name):
                exec(compile(self.definitions[name][1], "<in Chinese>", "exec"), self.own)

    def after(self, example, got: str) -> None:
        """After English ran it, and printed ``got``."""
        code, names = self.code[example.lineno], bound(example.source)
        # An iterator can be used up once.
        if self.again or any(hasattr(self.shared.get(name), "__next__") for name in names):
            got = self._run(example, code, got)
            self._define(example.source, code)
            names = names | changed(example.source) | self._changed_within(example.source)
            for name in names & set(self.own):
                if name in self.shared and same(self.own[name], self.shared[name]):
                    del self.own[name]
            self._share_functions()
        else:
            for name in names & set(self.own):
                del self.own[name]
            self._define(example.source, code)
        self.printed.append(got)

    def _define(self, english: str, chinese: str) -> None:
        """Note the functions of an example, and forget those whose names it gives to others."""
        gone = bound(english)
        kept = {name: both for name, both in self.definitions.items() if name not in gone}
        self.definitions = kept | _definitions(english, chinese)

    def _share_functions(self) -> None:
        """A function that says the same, and calls nothing of Chinese's own, is one again."""
        for name in set(self.own) & set(self.definitions):
            ours, theirs = self.definitions[name]
            if bare(ours) == bare(theirs) and not self._reached(name) & set(self.own) - {name}:
                del self.own[name]

    def names(self) -> dict[str, Any]:
        """All names as Chinese has them."""
        return self.shared | self.own

    @contextlib.contextmanager
    def speaking(self) -> Iterator[None]:
        """Within it figures, what is shown and files are those of the Chinese run."""
        files = os.environ["MHATTN_FILES"]
        english = _pylab_helpers.Gcf.figs, list(self.shown)
        os.environ["MHATTN_FILES"] = str(self.folder / "files")
        _pylab_helpers.Gcf.figs, self.shown[:] = self.figures, self.grids
        try:
            yield
        finally:
            self.figures, self.grids = _pylab_helpers.Gcf.figs, list(self.shown)
            _pylab_helpers.Gcf.figs, self.shown[:] = english
            os.environ["MHATTN_FILES"] = files

    def finish(self) -> None:
        """Take the files that English wrote and Chinese did not."""
        for path in sorted((self.folder.parent / "files").glob("*")):
            if path.is_file() and not (self.folder / "files" / path.name).exists():
                shutil.copy(path, self.folder / "files" / path.name)

    def _run(self, example, code: str, got: str) -> str:
        line = self.english.line + example.lineno
        after, printed = _chance(), io.StringIO()
        shared = {n: mark(self.shared.get(n)) for n in self._reached(code) - set(self.own)}
        name = f"<{self.english.path.stem} in Chinese:{line}>"
        linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
        mode = "single" if self.english.is_story else "exec"
        _set_chance(self.chance)
        try:
            with self.speaking(), contextlib.redirect_stdout(printed):
                exec(compile(code, name, mode), self.own)
        except Exception as error:
            why = "".join(traceback.format_exception_only(error))
            raise SourceError(f"in Chinese:\n{code}\n{why}", self.english.path, line) from error
        for each, before in shared.items():
            if each not in self.own and mark(self.shared.get(each)) != before:
                why = f"in Chinese this runs again and changes {each!r}, which both languages share"
                why += f": split what computes from what is said\n{code}"
                raise SourceError(why, self.english.path, line)
        if _chance() != after:
            why = f"in Chinese this takes other random numbers\n{code}"
            raise SourceError(why, self.english.path, line)
        said = printed.getvalue()
        if sorted(NUMBER.findall(said)) != sorted(NUMBER.findall(got)):
            why = f"in Chinese this prints other numbers\n{said}\nin English\n{got}"
            raise SourceError(why, self.english.path, line)
        return said

    def _reached(self, code: str) -> set[str]:
        """The names that code takes, itself or in the story's functions that it calls."""
        found, left = set(), [read(code)]
        while left:
            new = left.pop() - found
            found |= new
            left += [read(self.definitions[n][0]) for n in new if n in self.definitions]
        return found

    def _changed_within(self, code: str) -> set[str]:
        """What the story's functions that code reaches change of the names outside them."""
        named = self._reached(code) & set(self.definitions)
        return set().union(*(changed(self.definitions[name][0]) for name in named))

    def _touched(self, code: str) -> bool:
        """Does it name something that Chinese has for itself?"""
        return bool(self._reached(code) & set(self.own))

    def _draws(self, code: str) -> bool:
        if isinstance(ast.parse(code).body[0], ast.FunctionDef):
            return False
        names = self._reached(code)
        plots = any(name == "plt" or name.startswith("plot_") for name in names)
        return plots or any(_is_drawn(self.shared.get(name)) for name in names)


def _is_drawn(value: Any) -> bool:
    if isinstance(value, list | tuple) and len(value):
        return _is_drawn(value[0])
    if getattr(getattr(value, "dtype", None), "kind", "") == "O":
        return value.size > 0 and _is_drawn(value.flat[0])
    return isinstance(value, Artist)


@cache
def bare(code: str) -> str:
    """What code does, whatever its comments and docstrings say."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        is_text = isinstance(body, list) and body and isinstance(body[0], ast.Expr)
        if is_text and isinstance(getattr(body[0].value, "value", None), str):
            body[0] = ast.Pass()
    return ast.dump(tree)


@cache
def read(code: str) -> frozenset[str]:
    """The global names whose values code takes, also within what it defines.

    Not those that it binds before: the variable of a loop is nobody else's.
    """
    reader = _Reader()
    reader.visit(ast.parse(code))
    return frozenset(reader.found)


class _Reader(ast.NodeVisitor):
    """Goes through code in the order in which it runs, branches one after the other."""

    def __init__(self):
        self.found, self.bound = set(), set()

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)
        elif node.id not in self.bound:
            self.found.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.in_order(node.value, *node.targets)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id not in self.bound:
            self.found.add(node.target.id)
        self.in_order(node.value, node.target)

    def visit_For(self, node: ast.For) -> None:
        self.in_order(node.iter, node.target, *node.body, *node.orelse)

    def visit_ListComp(self, node: ast.AST) -> None:
        """What has names of its own: a comprehension, a function, a class."""
        names = _global(ast.unparse(node)) - {getattr(node, "name", "")}
        self.found |= names - self.bound
        self.bound |= {getattr(node, "name", "")}

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp
    visit_Lambda = visit_FunctionDef = visit_ClassDef = visit_ListComp

    def in_order(self, *nodes: ast.AST) -> None:
        for node in nodes:
            self.visit(node)


def _global(code: str) -> set[str]:
    def walk(table: symtable.SymbolTable) -> Iterator[str]:
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if (top and symbol.is_referenced()) or (not top and symbol.is_global()):
                yield symbol.get_name()
        for child in table.get_children():
            yield from walk(child)

    return set(walk(symtable.symtable(code, "<story>", "exec")))


@cache
def bound(code: str) -> frozenset[str]:
    """The names that code binds at the top level."""
    symbols = symtable.symtable(code, "<story>", "exec").get_symbols()
    return frozenset(s.get_name() for s in symbols if s.is_assigned() or s.is_imported())


@cache
def changed(code: str) -> frozenset[str]:
    """The global names whose values code changes in place, as far as its text shows it."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.AugAssign):
            found.add(_root(node.target))
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(_root(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            attribute = node.func.attr
            if attribute in CHANGES or (attribute[-1] == "_" and attribute[0] != "_"):
                found.add(_root(node.func))
    return frozenset(found & (bound(code) | _global(code)))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return getattr(node, "id", "")


def _definitions(ours: str, theirs: str) -> dict[str, tuple[str, str]]:
    """The functions and classes of an example, in both languages."""
    pairs = zip(ast.parse(ours).body, ast.parse(theirs).body, strict=True)
    found = {}
    for one, other in pairs:
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            found[one.name] = ast.unparse(one), ast.unparse(other)
        elif isinstance(one, ast.Assign) and isinstance(one.value, ast.Lambda):
            found[_root(one.targets[0])] = ast.unparse(one), ast.unparse(other)
    return found


def _torch() -> Any:
    return sys.modules.get("torch")


def _copy(value: Any) -> Any:
    """A copy of what is about to be changed; what a list or dictionary holds is the same."""
    if isinstance(value, list | set | dict):
        kind = type(value)
        if isinstance(value, dict):
            copied = value.copy()
            copied.update({key: _copy(each) for key, each in value.items()})
            return copied
        return kind(map(_copy, value))
    torch = _torch()
    if torch and isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return value


def same(one: Any, other: Any) -> bool:
    """Are both the same, so that one is enough?"""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    torch = _torch()
    if torch and isinstance(one, torch.Tensor):
        alike = one.dtype == other.dtype and one.requires_grad == other.requires_grad
        return alike and torch.equal(one, other)
    if torch and isinstance(one, torch.nn.Module):
        alike = one.training == other.training
        return alike and same(dict(one.state_dict()), dict(other.state_dict()))
    if type(one).__module__ == "numpy":
        return one.shape == other.shape and bool((one == other).all())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, int | float | complex | str | bytes | set | frozenset | range | type(None)):
        return one == other
    return False


def mark(value: Any, depth: int = 3) -> Any:
    """What changes when a value is changed in place."""
    torch = _torch()
    if isinstance(value, types.ModuleType | type):
        return None
    if torch and isinstance(value, torch.Tensor):
        return id(value), value._version
    if torch and isinstance(value, torch.nn.Module):
        parts = [*value.parameters(), *value.buffers()]
        return value.training, [each._version for each in parts]
    if torch and isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, dict) and depth:
        return [(key, mark(each, depth - 1)) for key, each in value.items()]
    if isinstance(value, list | tuple) and depth:
        return [(id(each), mark(each, depth - 1)) for each in value]
    return value if isinstance(value, int | float | str) else None


def _chance() -> tuple:
    """Where the random generators stand."""
    torch, numpy = _torch(), sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy else ()
    drawn = tuple(x.tobytes() if hasattr(x, "tobytes") else x for x in drawn)
    return random.getstate(), drawn, torch.get_rng_state().numpy().tobytes() if torch else b""


def _set_chance(state: tuple) -> None:
    python, drawn, noise = state
    torch, numpy = _torch(), sys.modules.get("numpy")
    random.setstate(python)
    if numpy and drawn:
        kind, keys, *rest = drawn
        numpy.random.set_state((kind, numpy.frombuffer(keys, dtype="uint32"), *rest))
    if torch and noise:
        torch.set_rng_state(torch.frombuffer(bytearray(noise), dtype=torch.uint8))
