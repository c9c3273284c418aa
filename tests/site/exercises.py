"""The tasks of the pages as tests see them: test, solution, and what else readers may write."""

import ast
import builtins
import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from mhsite.pages.page import page_paths
from mhsite.stories import fingerprints
from mhsite.stories.source import DOCS, sections
from mhsite.stories.translation import shown_section

CANDIDATES = Path(__file__).parent / "tasks"
# A task on a page: its cells up to the end of the fold behind it, which has the solution.
TASK = re.compile(r"^/// task \|.*?^/// details \|.*?^///$", re.M | re.S)
INCLUDE = re.compile(r'^--8<-- "(.+)"$', re.M)
NUMBER = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?")
# Two words at least: numbers alone don't tell a reader what is off.
SENTENCE = {
    "en": re.compile(r"[A-Za-z]{2,}.*?\b[A-Za-z]{2,}", re.S),
    "zh": re.compile(r"[一-鿿]{2}"),
}
SAID = ("msg", "err_msg")  # as torch.testing and numpy.testing call it
DEFINED = ast.FunctionDef | ast.ClassDef
PASSED = {"en": "passed", "zh": "通过"}


@dataclass
class Task:
    """A task of a page: its test, its solution, and what else readers may write."""

    page: str
    references: list[str]
    in_lab: bool = False
    alone: bool = True  # on its page

    @property
    def name(self) -> str:
        section = self.references[0].rpartition(":")[2]
        return self.page if self.alone and not self.in_lab else f"{self.page}/{section}"

    @cached_property
    def candidates(self) -> str:
        return (CANDIDATES / f"{self.name}.py").read_text(encoding="utf-8")

    @cached_property
    def names(self) -> list[str]:
        """Of all candidates, in the order of their file."""
        return [name for name in bound(self.candidates) if name.startswith(("right", "wrong"))]

    @cached_property
    def cells(self) -> tuple[str, str]:
        """The code of the task, and that of its solution."""
        first, *others = [shown_section(each).code for each in self.references]
        return first, "".join(others)

    @cached_property
    def call(self) -> ast.Call:
        """How the solution is handed to the test."""
        calls = [node.value for node in ast.parse(self.cells[1]).body if isinstance(node, ast.Expr)]
        (call,) = [x for x in calls if getattr(x.func, "id", "") in bound(self.cells[0])]
        return call

    @property
    def test(self) -> str:
        return self.call.func.id

    @cached_property
    def story(self) -> str:
        """All code of the page."""
        found = sections(shown_section(self.references[0]).path).values()
        return "\n".join(section.code for section in found)

    def test_code(self, language: str) -> str:
        """The test as a page in this language shows it, and what the test calls of the page."""
        file = self.references[0].partition(":")[0]
        named = sections(shown_section(self.references[0]).path)
        code = [shown_section(f"{file}:{name}", language).code for name in named]
        body = [node for part in code for node in ast.parse(part).body]
        functions = {node.name: ast.unparse(node) for node in body if isinstance(node, DEFINED)}
        wanted, called = [self.test], {}
        while wanted:
            if (name := wanted.pop()) in functions and name not in called:
                called[name] = functions[name]
                wanted += [
                    node.id
                    for node in ast.walk(ast.parse(functions[name]))
                    if isinstance(node, ast.Name)
                ]
        return "\n".join(called.values())

    def ready(self) -> dict:
        """The names of the page: of its story only what the task needs has run."""
        (solution,) = self.call.args
        torch_too = ["torch"] * ("torch.set_" in self.story)
        tried = ", ".join([self.test, ast.unparse(solution), *self.names, *torch_too])
        body = ast.parse(f"{self.story}\n{self.candidates}\nTRIED = [{tried}]").body
        imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        modules = {name for node in imports for name in fingerprints._bound(node)}
        bindings = [ast.unparse(as_binding(node, modules)) for node in body]
        needed = fingerprints.needed("\n".join(bindings), "TRIED")
        names = {"__name__": "__main__"}
        torch.manual_seed(0)
        exec(compile(ast.Module(list(needed), []), self.page, "exec"), names)
        return names

    def refusal(self, names: dict, candidate: object) -> tuple | None:
        """With what and where the test of the page refuses a candidate; None if it passes."""
        torch.manual_seed(0)
        try:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                names[self.test](candidate)
        except Exception as error:
            trace, inside = error.__traceback__, names[self.test].__code__
            while trace.tb_frame.f_code is not inside:
                trace = trace.tb_next
            why = NUMBER.sub(lambda number: f"{float(number[0]):.3g}", str(error))
            return type(error).__name__, why, trace.tb_lineno, told(trace.tb_frame.f_locals)
        last = printed.getvalue().rstrip().rpartition("\n")[2]
        assert last.endswith(PASSED["en"]), f"after success the test prints {last!r} last"
        return None


def tasks() -> list[Task]:
    """Every task of the site."""
    found = []
    for path in page_paths("en"):
        text = (DOCS / "en" / path).read_text(encoding="utf-8")
        own, in_lab = TASK.findall(text), path.parts[0] == "labs"
        found += [Task(path.stem, INCLUDE.findall(x), in_lab, len(own) == 1) for x in own]
        assert text.count("\n/// task |") == len(own), path
    return found


def reasons(code: str) -> dict[str, str]:
    """Each assertion of some code, and the words in which it says why it fails."""
    nodes = list(ast.walk(ast.parse(code)))
    texts = {}  # what stands in a name, as in: wrong = f"head {h}: "; wrong += "..."
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
            texts.setdefault(ast.unparse(target), []).append(words(node.value))
    found = {}
    for node in nodes:
        if isinstance(node, ast.Assert):
            said = node.msg
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("assert_"):
            said = next((each.value for each in node.keywords if each.arg in SAID), None)
        elif isinstance(node, ast.Raise):
            said = node.exc.args[0] if getattr(node.exc, "args", ()) else None
        else:
            continue
        inner = [each.id for each in ast.walk(said or node) if isinstance(each, ast.Name)]
        named = [text for name in inner for text in texts.get(name, [])]
        found[ast.unparse(node)] = " … ".join([words(said), *named]) if said else ""
    return found


def words(node: ast.AST) -> str:
    """The text of a string, and of an f-string what stands outside of braces."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return " … ".join(
        x.value for x in parts if isinstance(x, ast.Constant) and isinstance(x.value, str)
    )


def bound(code: str) -> list[str]:
    """The names that the statements of some code bind at the top level."""
    return [name for node in ast.parse(code).body for name in sorted(fingerprints._bound(node))]


def as_binding(node: ast.stmt, modules: set[str]) -> ast.stmt:
    """A statement that changes what a name has, as ``x[0] = 1``, as one that binds the name."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node
    changed = {root for each in ast.walk(node) for root in changed_by(each)}
    for loop in ast.walk(node):
        if isinstance(loop, ast.For) and changed & fingerprints._bound(ast.Expr(loop.target)):
            changed |= {each.id for each in ast.walk(loop.iter) if isinstance(each, ast.Name)}
    changed -= modules | set(dir(builtins))
    same = [ast.parse(f"{name} = {name}").body[0] for name in sorted(changed)]
    return ast.If(ast.Constant(True), [node, *same], []) if same else node


def changed_by(node: ast.AST) -> Iterator[str]:
    """The first name of what is set, as ``x.y[0]``, or of a call alone, as ``x.add(1)``."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        node = node.value.func
    elif not isinstance(getattr(node, "ctx", None), ast.Store):
        return
    inner = node
    while isinstance(inner, ast.Attribute | ast.Subscript | ast.Call):
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    if inner is not node and isinstance(inner, ast.Name):
        yield inner.id


def told(value: object) -> str:
    """A value in words that are equal for equal values, but for their last digits."""
    if isinstance(value, torch.Tensor):
        large = value.numel() > 1000
        return told((value.double().norm() if large else value).tolist())
    if isinstance(value, dict):
        return told(list(value.items()))
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(told, value))}]"
    if isinstance(value, float):
        return f"{value:.3g}"
    return repr(value) if isinstance(value, str | int | None) else ""
