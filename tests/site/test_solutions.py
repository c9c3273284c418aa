"""The tasks of the pages: whoever solves one passes its test, and each misunderstanding fails.

``tasks/<page>.py`` has what readers may write, in the names of the page: ``right…`` is another
solution than the page's, ``wrong…`` a misunderstanding, told by the comment above it. That comment
names the error where it isn't the test that refuses. A lab has several exercises, some pages two
tasks: there each has a file, ``tasks/<page>/<section>.py``, by the section of its test. What
``attacks.py`` makes of the page's own solution is refused as well, but scaled where a candidate
``right_scaled`` passes.

A test says in words what is off, in both languages, and that the task is passed. No answer spoils
what the next one is given: after each, the page's solution passes again.
"""

import ast
import re
import time

import attacks
import exercises
import pytest
import torch
from exercises import SENTENCE, Task, tasks
from mhsite.stories import fingerprints
from mhsite.stories.source import ROOT, free_names, sections
from mhsite.stories.translation import shown_section

# Before these tasks a page trains, or reads a model of some hundred megabytes.
HEAVY = {"browse-heads", "head-importance", "language-model", "live-model", "two-languages"}
HEAVY |= {"rxnmapper"}
HEAVY |= {"make-gqa", "rank-heads"}  # its story, which each build runs, has the solutions
SECONDS = 1  # of computing; a test that takes longer is slow


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
    assert len(wrong) >= 3
    assert len(wrong) < len(task.names), "no other right solution"
    names = task.ready()
    solution = names["TRIED"][1]
    start = time.process_time()
    assert task.refusal(names, solution) is None, "the solution of the page"
    # A test of seconds, as where a model is trained, is repeated once behind all wrong answers.
    quick = time.process_time() - start < SECONDS
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
            explains(refusal, name, error[0] if error else "AssertionError")
            assert refusal not in reasons, f"{name} and {reasons[refusal]} fail alike"
            reasons[refusal] = name
            if quick or name == wrong[-1]:
                spoilt = task.refusal(names, solution)
                assert spoilt is None, (f"after {name} the page's solution fails", spoilt[:3])
    tried_otherwise(task, names, solution)


def explains(refusal: tuple, who: str, error: str = "AssertionError") -> None:
    """A refusal is of this kind; if it is the test that refuses, it says why in words."""
    assert refusal[0] == error, (who, refusal[:3])
    if error == "AssertionError":
        assert SENTENCE["en"].search(refusal[1]), f"{who} is told no more than {refusal[1]!r}"


def tried_otherwise(task: Task, names: dict, solution: object) -> None:
    """The page's solution with another answer, with none, and one that clears what it gets."""
    for attack in (attacks.empty, attacks.scaled):
        answers_differ = []

        def change(answer, attack=attack, answers_differ=answers_differ):
            answers_differ.append(attack(answer) is not answer)
            return attack(answer)

        refusal = task.refusal(names, attacks.changed(solution, change))
        if attack is attacks.scaled and "right_scaled" in task.names:
            assert refusal is None, refusal[:3]
        elif any(answers_differ):
            assert refusal, f"the solution of the page passes when its answer is {attack.__name__}"
            explains(refusal, attack.__name__)
    if callable(solution):
        assert task.refusal(names, lambda *_, **__: None), "nothing is computed, and all is well"
        task.refusal(names, attacks.clearing(solution))
        spoilt = task.refusal(names, solution)
        assert spoilt is None, ("what the test hands out stays as it was changed", spoilt[:3])


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("task", [pytest.param(task, id=task.name) for task in tasks()])
def test_a_test_says_in_the_language_of_the_page_what_is_off(task, language):
    """Each assertion has a reason in words, and at the end stands that it is passed."""
    code = task.test_code(language)
    reasons, said = exercises.reasons(code), SENTENCE[language].search
    assert reasons, "nothing is asserted"
    wordless = [check for check, text in reasons.items() if not said(text)]
    assert not wordless, "\n".join(wordless)
    assert exercises.PASSED[language] in code, "nothing says that it is passed"


@pytest.mark.parametrize("task", [param for param in each_task() if param.values[0].in_lab])
def test_a_lab_without_a_solution_fails(task):
    """What follows in a notebook needs the solution of each exercise."""
    lab = sections(shown_section(task.references[0]).path)
    left_out = {reference.rpartition(":")[2] for reference in task.references[1:]}
    rest = "\n".join(section.code for name, section in lab.items() if name not in left_out)
    needed = free_names(rest) - {"__name__"}
    assert ast.unparse(task.call.args[0]) in needed, "what follows does without the solution"


def test_every_file_of_candidates_belongs_to_a_task():
    files = exercises.CANDIDATES.rglob("*.py")
    found = {path.relative_to(exercises.CANDIDATES).with_suffix("").as_posix() for path in files}
    assert found == {task.name for task in tasks()}
