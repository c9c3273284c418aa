"""The tasks of the pages whose cells run where they are read: the page's field judges every answer
as torch does.

Two processes judge the same answers with `runner.Session`: in one the stand-in is torch, in the
other torch itself. The page's solution and each ``right…`` of ``tasks`` pass, each ``wrong…`` is
refused, as is what `attacks` makes of the solution; both tell the reader the same words.
"""

import ast
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import exercises
import pytest
from drawn import few_now
from mhsite import words
from mhsite.pages import running, your_turn
from mhsite.pages.page import read, spans
from mhsite.stories import fingerprints
from mhsite.stories.source import DOCS, ROOT

PROGRAM = Path(__file__).with_name("page_tasks.py")
ATTACKS = ("empty", "scaled")
DIGITS = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def fields():
    """The tasks of the pages whose cells run."""
    return [task for task in exercises.tasks() if page_of(task) in running._names()]


def page_of(task):
    return f"labs/{task.page}.md" if task.in_lab else f"{task.page}.md"


@functools.cache
def page_in(language, name):
    """The cells of a page, and of each field how many stand above it, and its call."""
    page = read(DOCS / language / name)
    cells, found = [], {}
    turns = your_turn.cells(page)

    def walk(blocks):
        for block in blocks:
            if block.kind == "include":
                shown = [block.section.code]  # a lab's section is one cell
                if block.section.path.suffix == ".pycon":
                    shown = [cell.code for cell in block.section.cells]
                cells.extend(code.rstrip() for code in shown)
                first.append(block.value)
            elif block.line in turns and block.value == "details":
                call = turns[block.line].split("\n\n\n")[-1].removeprefix("# ")
                found[first[-1]] = len(cells), call
                walk(block.blocks)
            else:
                walk(block.blocks)

    first = []
    walk(page.blocks)
    return cells, found


def parts_of(task, language):
    """The solution of a task without its calls, and the name that its test is handed."""
    shown = [exercises.shown_section(each, language) for each in task.references[1:]]
    body = ast.parse("".join(each.code for each in shown)).body
    kept = [node for node in body if not isinstance(node, ast.Expr)]
    return "\n\n".join(map(ast.unparse, kept)), ast.unparse(task.call.args[0])


class Renamed(ast.NodeTransformer):
    """What the page's own solution is called beside an answer of the same name."""

    def __init__(self, name):
        self.name = name

    def visit_Name(self, node):
        return ast.Name(f"own_{node.id}", node.ctx) if node.id == self.name else node


def answers(task, language):
    """What a reader writes into the field, by the name of the candidate."""
    solution, name = parts_of(task, language)
    own = f"{solution}\n\nown_{name} = {name}\n\n"
    given = set(exercises.bound(solution))
    written = ast.parse(task.candidates).body
    imports = [node for node in written if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {module for node in imports for module in fingerprints._bound(node)}
    bindings = "\n".join(ast.unparse(exercises.as_binding(node, modules)) for node in written)
    found = {"solution": solution}
    for candidate in task.names:
        body = fingerprints.needed(bindings, candidate)
        read = {n.id for node in body for n in ast.walk(node) if isinstance(n, ast.Name)}
        copied = (ast.parse(ast.unparse(node)) for node in body)
        code = "\n\n".join(ast.unparse(Renamed(name).visit(node)) for node in copied)
        found[candidate] = (own if read & given else "") + f"{code}\n\n{name} = {candidate}"
    functions = [n.name for n in ast.parse(solution).body if isinstance(n, exercises.DEFINED)]
    for attack in ATTACKS:
        changed = f"attacks.changed({name}, attacks.noted(attacks.{attack}))"
        found[attack] = f"import attacks\n\n{solution}\n\n{name} = {changed}"
    if name in functions:
        found["missing"] = f"def {name}(*_, **__):\n    return None"
        found["clearing"] = f"import attacks\n\n{solution}\n\n{name} = attacks.clearing({name})"
        found["after"] = solution  # nothing stays of what was cleared
    return found


def job(tasks, language):
    """One page, with some of its tasks."""
    (name,) = {page_of(task) for task in tasks}
    cells, found = page_in(language, name)
    return {
        "said": words.of(language, "python.mistakes"),
        "cells": cells,
        "tasks": [
            {
                "name": task.name,
                "above": found[task.references[0]][0],
                "call": found[task.references[0]][1],
                "answers": answers(task, language),
            }
            for task in tasks
        ],
    }


# What a page can't judge as torch does: the task, its answers, and why.
LACKS = {
    "serial-parallel/launched": (None, "it counts kernels of torch's, which the stand-in lacks"),
}
# Tasks that need a model which a page trains for minutes.
TRAINS = {
    "build-and-train",
    *(f"make-gqa/{task}" for task in ("layer", "model-test", "cache", "further")),
    *(f"rank-heads/{task}" for task in ("removal", "gradient", "prune")),
}
SECONDS = 60  # that one answer may take, what it needs above it included


class Judge:
    """A process that judges answers."""

    def __init__(self, folder, *options):
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *options, f"--seconds={SECONDS}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=ROOT,
            env={"MHATTN_FILES": str(folder), "OMP_NUM_THREADS": "1", "PATH": ""},
        )

    def asked(self, job):
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def judges(tmp_path_factory):
    """The page's own, with loops as fast as a page has them; and torch's."""
    made = [Judge(tmp_path_factory.mktemp("files"), each) for each in ("--fast", "--real")]
    yield made
    for each in made:
        each.process.stdin.close()
        each.process.wait()
        each.process.stdout.close()


def pages():
    """Of each page that can be judged its fields, in each language: who is drawn runs now."""
    by_page = {}
    for task in fields():
        if task.name not in TRAINS:
            by_page.setdefault(task.page, []).append(task)
    road = [("en", page) for page, (first, *_) in by_page.items() if not first.in_lab]
    others = [(x, page) for x in ("en", "zh") for page in by_page if (x, page) not in road]
    cases = [pytest.param(*case, by_page[case[1]], id="-".join(case)) for case in road]
    for param in few_now(others, 1, of="fields of tasks", name="-".join):
        language, page = param.values[0]
        marks = param.marks
        cases.append(pytest.param(language, page, by_page[page], id=param.id, marks=marks))
    return cases


def as_words(text):
    """A message without its numbers."""
    return DIGITS.sub("#", text or "")


def told(answer):
    """What a reader sees of a judgement, but for numbers."""
    return answer["passed"], answer["unwritten"], answer["type"], as_words(answer["message"])


@pytest.mark.parametrize(("language", "page", "tasks"), pages())
def test_the_field_of_a_task_judges_as_torch_does(judges, language, page, tasks):
    asked = job(tasks, language)
    for judge in judges:
        judge.asked(asked)
    found, right = (judge.answer() for judge in judges)
    off = []
    for task in tasks:
        names, _ = LACKS.get(task.name, ([], ""))
        for name, answer in found[task.name].items():
            want = right[task.name][name]
            off += [
                f"{task.name}, {name}, under torch: {x}" for x in faults(task, name, want, language)
            ]
            if names is None or name in names:
                assert answer["type"] == "Lacking" or not answer["passed"], (task.name, name)
                continue
            off += [f"{task.name}, {name}: {x}" for x in faults(task, name, answer, language)]
            if told(answer) != told(want):
                off.append(f"{task.name}, {name}: {told(answer)}, torch: {told(want)}")
    assert off == []


def faults(task, name, answer, language):
    """What is wrong with the judgement of an answer, whatever torch says."""
    passes = name.startswith(("right", "solution", "after"))
    if name == "scaled" and "right_scaled" in task.names:
        passes = True
    if name == "clearing" or (name in ATTACKS and not answer["differs"]):
        return  # it may be right: what it was given is the test's alone
    if answer["passed"] != passes:
        yield f"{'is refused' if passes else 'passes'}: {answer['message']}"
    elif not passes and not answer["unwritten"]:
        said = f"{answer['message']} {answer['plain']}"
        if not exercises.SENTENCE[language].search(said):
            yield f"is refused without a sentence in the page's language: {said}"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_of_these_tasks_has_two_hints_that_hold_no_solution(language):
    tasks = {page: [x for x in fields() if page_of(x) == page] for page in map(page_of, fields())}
    for name, own in tasks.items():
        boxes = [b for b in read(DOCS / language / name).walk() if b.value == "task"]
        assert len(boxes) == len(own), name
        for box, task in zip(boxes, own, strict=True):
            hints = [block for block in box.blocks if block.is_hint]
            assert box.blocks[-1] is hints[-1], "nothing stands behind the hints"
            assert len(hints) == len({hint.title for hint in hints}) == 2, task.name
            said = "\n".join(b.text for hint in hints for b in hint.blocks)
            codes = {squeezed(span.value.strip("`")) for span in spans(said) if span.kind == "code"}
            lines = {squeezed(ast.unparse(each)) for each in answered(task.cells[1])}
            assert codes & lines == set(), task.name


def answered(solution):
    """What a solution returns: the expressions that would give it away whole."""
    for node in ast.walk(ast.parse(solution)):
        whole = node.value if isinstance(node, ast.Return) else None
        if whole is not None and not isinstance(whole, ast.Name):
            yield whole


def squeezed(code):
    return re.sub(r"\s", "", code)


def test_what_is_left_out_is_a_task():
    names = {task.name for task in fields()}
    assert set(LACKS) <= names
    assert names >= TRAINS
