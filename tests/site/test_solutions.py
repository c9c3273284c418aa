"""The tasks of the pages: whoever solves one passes its test, and each misunderstanding fails.

``tasks/<page>.py`` has what readers may write, in the names of the page: ``right…`` is another
solution than the page's, ``wrong…`` a misunderstanding, told by the comment above it. That comment
names the error where it isn't the test that refuses. A lab has several exercises, and a file for
each, ``tasks/<lab>/<section>.py``, by the section of the exercise.
"""

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import torch
from mhsite.pages.page import page_paths
from mhsite.stories import fingerprints
from mhsite.stories.source import DOCS, ROOT, free_names, sections
from mhsite.stories.translation import shown_section

# Before these tasks a page trains, or reads a model of some hundred megabytes.
HEAVY = {"browse-heads", "head-importance", "language-model", "live-model", "two-languages"}
HEAVY |= {"rxnmapper"}
HEAVY |= {"make-gqa", "rank-heads"}  # its story, which each build runs, has the solutions
CANDIDATES = Path(__file__).parent / "tasks"
# A task on a page: its cells up to the end of the fold behind it, which has the solution.
TASK = re.compile(r"^/// task \|.*?^/// details \|.*?^///$", re.M | re.S)
INCLUDE = re.compile(r'^--8<-- "(.+)"$', re.M)
NUMBER = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?")


@dataclass
class Task:
    """The task of a page: its test, its solution, and what else readers may write."""

    page: str
    references: list[str]
    in_lab: bool = False

    @property
    def name(self) -> str:
        section = self.references[0].rpartition(":")[2]
        return f"{self.page}/{section}" if self.in_lab else self.page

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
        """Where and with what the test of the page refuses a candidate; None if it passes."""
        torch.manual_seed(0)
        try:
            names[self.test](candidate)
        except Exception as error:
            trace, inside = error.__traceback__, names[self.test].__code__
            while trace.tb_frame.f_code is not inside:
                trace = trace.tb_next
            why = NUMBER.sub(lambda number: f"{float(number[0]):.3g}", str(error))
            return type(error).__name__, trace.tb_lineno, why, told(trace.tb_frame.f_locals)
        return None


def tasks() -> list[Task]:
    """Every task of the site."""
    found = []
    for path in page_paths("en"):
        text = (DOCS / "en" / path).read_text(encoding="utf-8")
        for task in TASK.findall(text):
            found.append(Task(path.stem, INCLUDE.findall(task), path.parts[0] == "labs"))
        assert text.count("\n/// task |") == len(TASK.findall(text)), path
    return found


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


@pytest.fixture
def as_a_story(task, monkeypatch, request):
    """Where a story runs, with the files that it wrote; what it sets in torch is set back."""
    monkeypatch.chdir(ROOT)
    if "MHATTN_FILES" in task.story:
        folder = request.getfixturevalue("result_of")(task.page) / "files"
        monkeypatch.setenv("MHATTN_FILES", str(folder))
    if ".cache/models" in task.story:
        request.getfixturevalue("trained")
    kind, gradients = torch.get_default_dtype(), torch.is_grad_enabled()
    yield
    torch.set_default_dtype(kind)
    torch.set_grad_enabled(gradients)
    torch.set_printoptions(profile="default")


def each_task() -> list:
    """The tasks of the site; those of heavy pages are tried at night."""
    marks = {page: [pytest.mark.nightly] for page in HEAVY}
    return [pytest.param(task, marks=marks.get(task.page, ()), id=task.name) for task in tasks()]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # as the page does
@pytest.mark.parametrize("task", each_task())
def test_who_solves_a_task_passes_and_who_misunderstands_it_fails(task, as_a_story):
    wrong = [name for name in task.names if name.startswith("wrong")]
    assert len(wrong) >= (2 if task.in_lab else 3)  # an exercise of a lab is a small step
    assert len(wrong) < len(task.names), "no other right solution"
    names = task.ready()
    assert task.refusal(names, names["TRIED"][1]) is None, "the solution of the page"
    lines, reasons = task.candidates.splitlines(), {}
    for node in ast.parse(task.candidates).body:
        for name in fingerprints._bound(node) & set(task.names):
            refusal = task.refusal(names, names[name])
            if name.startswith("right"):
                assert refusal is None, name
                continue
            comment = lines[node.lineno - 2]
            assert comment.startswith("# "), name
            error = re.search(r"\w+Error", comment)
            assert refusal, f"{name} passes"
            assert refusal[0] == (error[0] if error else "AssertionError"), (name, refusal[:3])
            assert refusal not in reasons, f"{name} and {reasons[refusal]} fail alike"
            reasons[refusal] = name


@pytest.mark.parametrize("task", [param for param in each_task() if param.values[0].in_lab])
def test_a_lab_without_a_solution_fails(task, as_a_story):
    """Neither an exercise that is left out passes its test, nor a notebook without the solution."""
    names = task.ready()
    assert task.refusal(names, lambda *_, **__: None), "nothing is computed, and all is well"
    lab = sections(shown_section(task.references[0]).path)
    left_out = {reference.rpartition(":")[2] for reference in task.references[1:]}
    rest = "\n".join(section.code for name, section in lab.items() if name not in left_out)
    needed = free_names(rest) - {"__name__"}
    assert ast.unparse(task.call.args[0]) in needed, "what follows does without the solution"


def test_every_file_of_candidates_belongs_to_a_task():
    files = CANDIDATES.rglob("*.py")
    found = {path.relative_to(CANDIDATES).with_suffix("").as_posix() for path in files}
    assert found == {task.name for task in tasks()}
