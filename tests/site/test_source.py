"""Stories: each runs and prints what it says; what cannot be read or run is named by its line."""

import ast
import doctest
import io
import os
import re
import subprocess
import sys

import matplotlib.pyplot as plt
import pytest
import torch
from cases import every
from mhsite.stories import keys, runner, source, translation
from mhsite.stories.source import STORIES, SourceError, sections
from mhsite.stories.svg import site_svg

from mhattn import COLORS, plot_weights
from mhattn.show import NEGATIVE

STORIES = sorted(STORIES.glob("*.pycon"))
COLUMNS = 84  # what a page shows without a scroll bar

each_story = every("story", STORIES)
each_file = every("story", keys.all_stories())


# The stories of this project


def test_story_runs(story_run):
    """Each in a process of its own, or from the cache, where only a run that passed is filed."""
    errors = story_run.stdout + story_run.stderr
    assert [name for name, folder in keys.results().items() if folder is None] == [], errors


def returns(function):
    """Whether it returns something, whatever the functions inside it do."""
    found = list(ast.walk(function))
    inside = {n for f in found[1:] if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    return any(isinstance(n, ast.Return) and n.value for n in found if n not in inside)


@each_story
def test_what_a_story_shows_it_prints(story):
    """So that its code, pasted into a file, prints the same."""
    calls = {"print"} | {
        node.name
        for section in sections(story).values()
        for node in ast.walk(ast.parse(section.code))
        if isinstance(node, ast.FunctionDef) and not returns(node)
    }
    for section in sections(story).values():
        for example in section.examples():
            where = f"{story.name}:{section.line + example.lineno}"
            assert example.exc_msg is None, f"{where}: expects a traceback; catch and print it"
            assert not example.options, f"{where}: a doctest option"
            assert "<BLANKLINE>" not in example.want, f"{where}: prints an empty line"
            (statement,) = ast.parse(example.source).body
            if example.want and isinstance(statement, ast.Expr):
                call = getattr(statement.value, "func", None)
                assert getattr(call, "id", None) in calls, f"{where}: shows without print"


@each_file
def test_story_fits_the_page(story):
    lines = enumerate(story.read_text(encoding="utf-8").splitlines(), 1)
    lines = ((number, source.MARK.sub("", line)) for number, line in lines)  # never shown
    wide = [number for number, line in lines if len(line) > COLUMNS and line[0] != "|"]
    assert wide == []  # but tables, which are shown as such


@each_story
def test_story_has_no_code_outside_sections(story):
    inside = "\n".join(section.text for section in sections(story).values())
    text = story.read_text(encoding="utf-8")
    assert text.count(">>> ") == inside.count(">>> ")
    assert "# doctest:" not in text
    assert not re.search(r"[^\n]\n# --8<-- \[end:", text), "no blank line before an end marker"


@each_story
def test_section_without_outputs_is_code(story):
    for section in sections(story).values():
        assert ast.parse(section.code).body, section.name
        assert "# (" + "1)!" not in section.code


# Running one


def lines_of(text):
    return "\n".join(line.strip() for line in text.strip().splitlines()) + "\n"


def section_file(path, body, name="one"):
    path.write_text(f"# --8<-- [start:{name}]\n{body}\n\n# --8<-- [end:{name}]\n", encoding="utf-8")
    return path


def run(path):
    """What a story prints, and where its file says something else."""
    namespace, text, differences = {"__name__": "__main__"}, "", []
    for section in sections(path).values():
        printed, wrong = runner.run_story_section(section, namespace)
        text += "".join(printed)
        differences += [section.difference(number, printed[number]) for number in wrong]
    return text, differences


def test_right_output_passes(tmp_path):
    path = section_file(tmp_path / "good.pycon", ">>> x = 2\n>>> print(x)\n2\n>>> print(x + 1)\n3")
    assert run(path) == ("2\n3\n", [])


def test_every_wrong_output_is_named_by_line_code_expected_and_got(tmp_path):
    body = ">>> x = 2\n>>> print(x)\n3\n>>> print(x)\n2\n>>> x\n4\n5"
    path = section_file(tmp_path / "bad.pycon", body)
    text, differences = run(path)
    assert text == "2\n2\n2\n"
    assert [difference.split("\n") for difference in differences] == [
        [f"{path}:3: in section 'one'", "    print(x)", "expected", "    3", "got", "    2"],
        [f"{path}:7: in section 'one'", "    x", "expected", "    4", "    5", "got", "    2"],
    ]


def test_unexpected_output_is_a_difference(tmp_path):
    path = section_file(tmp_path / "bad.pycon", ">>> print(2)\n>>> x = 1")
    _, (difference,) = run(path)
    assert re.search(r"bad.pycon:2: (.*\n)+expected\n    nothing\ngot\n    2", difference)


def test_exception_names_line_code_and_error(tmp_path):
    path = section_file(tmp_path / "bad.pycon", ">>> x = 2\n>>> for y in [0]:\n...     x / y")
    with pytest.raises(SourceError) as caught:
        run(path)
    assert str(caught.value).startswith(f"{path}:3: in section 'one'\n    for y in [0]:\n")
    assert "ZeroDivisionError: division by zero" in str(caught.value)


def test_sections_share_their_names_and_lines_go_on(tmp_path):
    path = section_file(tmp_path / "two.pycon", ">>> x = 2")
    more = "# --8<-- [start:two]\n>>> print(x)\n5\n\n# --8<-- [end:two]\n"
    path.write_text(path.read_text(encoding="utf-8") + more, encoding="utf-8")
    _, (difference,) = run(path)
    assert difference.startswith(f"{path}:6: in section 'two'")


def test_lab_error_names_its_line(tmp_path):
    path = section_file(tmp_path / "lab.py", "x = 2\n\ndef f():\n    return x / 0\n\nf()")
    (section,) = sections(path).values()
    with pytest.raises(SourceError, match=r"lab.py:5: in section 'one'\n    return x / 0\nZeroDiv"):
        runner.run_lab_section(section, {})


def test_two_figures_in_a_section_are_an_error(tmp_path):
    path = section_file(tmp_path / "two.pycon", ">>> x = 1")
    plt.figure(), plt.figure()
    with pytest.raises(SourceError, match=r"two.pycon:2: section 'one' leaves 2 figures open"):
        runner.save_figure(sections(path)["one"], tmp_path, {})


def test_figure_keeps_its_text_and_is_drawn_the_same_twice(tmp_path):
    path = section_file(tmp_path / "f.pycon", ">>> x = 1")
    drawn = []
    for _ in range(2):
        with plt.rc_context(runner.LOOK):
            plt.figure().add_subplot(title="Softmax")
            name = runner.save_figure(sections(path)["one"], tmp_path, {})
        drawn.append((tmp_path / name).read_text(encoding="utf-8"))
    assert drawn[0] == drawn[1]
    assert re.search(r"<text[^>]*>Softmax</text>", drawn[0])
    assert "currentColor" in drawn[0]
    assert "#000000" not in drawn[0]
    assert plt.get_fignums() == []


# Rewriting


@pytest.fixture
def sandbox(monkeypatch):
    """Undoes what the runner sets for a whole process."""
    monkeypatch.setenv("MHATTN_FILES", ".")
    monkeypatch.setenv("COLUMNS", "100")
    threads = torch.get_num_threads()
    with plt.rc_context():
        yield
    torch.set_num_threads(threads)


TWICE = """\
# --8<-- [start:one]
>>> x = 2
>>> for i in range(2):
...     print(i)
0
9

# --8<-- [end:one]
# --8<-- [start:two]
>>> print(x)
2
>>> print("a\\nb")
>>> print("c")  # (1)!
c
d

# --8<-- [end:two]
"""


@pytest.mark.usefixtures("sandbox")
def test_rewrite_corrects_outputs_and_nothing_else(tmp_path):
    path = tmp_path / "story.pycon"
    path.write_text(TWICE, encoding="utf-8")
    runner.rewrite(path)
    right = (
        TWICE.replace("0\n9\n", "0\n1\n").replace('b")\n', 'b")\na\nb\n').replace("c\nd\n", "c\n")
    )
    assert path.read_text(encoding="utf-8") == right
    assert run(path) == ("0\n1\n2\na\nb\nc\n", [])
    runner.rewrite(path)
    assert path.read_text(encoding="utf-8") == right


@pytest.mark.usefixtures("sandbox")
def test_rewrite_keeps_empty_lines_as_doctest_writes_them(tmp_path):
    path = section_file(tmp_path / "story.pycon", '>>> print("a\\n\\nb")')
    runner.rewrite(path)
    assert "a\n<BLANKLINE>\nb\n" in path.read_text(encoding="utf-8")
    assert run(path) == ("a\n\nb\n", [])


MARKED = """\
>>> x = 1  # not this  # [wrong]
>>> for i in range(3):
...     print("| a |", i)  # [right: trap-b]
| a | 5
| a | 1  # [wrong: a b] [right]
>>> print(7)
7  # [right]"""


@pytest.mark.usefixtures("sandbox")
def test_rewrite_keeps_marks_behind_their_lines(tmp_path):
    path = section_file(tmp_path / "story.pycon", MARKED)
    before = path.read_text(encoding="utf-8")
    runner.rewrite(path)
    after = before.replace("| 5\n", "| 0\n").replace(" [right]\n>>>", " [right]\n| a | 2\n>>>")
    assert path.read_text(encoding="utf-8") == after


def test_marks_are_seen_by_nobody_else(tmp_path):
    """Neither on the page nor in the code that runs, the texts to translate, the outputs."""
    marked = sections(section_file(tmp_path / "marked.pycon", MARKED))["one"]
    plain = "\n".join(source.MARK.sub("", line) for line in MARKED.split("\n"))
    section = sections(section_file(tmp_path / "plain.pycon", plain))["one"]
    assert (marked.text, marked.code, marked.cells) == (section.text, section.code, section.cells)
    assert "[" not in marked.text
    assert [text.said for text in translation.texts_of(marked)] == ["not this"]
    assert marked.marks == (
        (0, "  # [wrong]"),
        (2, "  # [right: trap-b]"),
        (4, "  # [wrong: a b] [right]"),
        (6, "  # [right]"),
    )
    outputs = ["", "0\n1\n2\n", "7\n"]
    assert marked.printing(outputs) == section.printing(outputs)


@pytest.mark.parametrize("line", ["x = 1  # [wrogn]", "x = 1  # wrong", "x = y  # [right] is it"])
def test_other_comments_are_no_marks(tmp_path, line):
    section = sections(section_file(tmp_path / "story.pycon", f">>> {line}"))["one"]
    assert section.code == f"{line}\n"
    assert section.marks == ()


@pytest.mark.usefixtures("sandbox")
def test_rewrite_leaves_a_story_that_fails(tmp_path):
    path = section_file(tmp_path / "story.pycon", ">>> print(1)\n2\n>>> 1 / 0")
    before = path.read_text(encoding="utf-8")
    with pytest.raises(SourceError, match="ZeroDivisionError"):
        runner.rewrite(path)
    assert path.read_text(encoding="utf-8") == before


# Sections


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("s one\nx", ":1: section 'one' has no end"),
        ("s one\ns two\ne two\ne one", ":2: section 'two' starts inside another or twice"),
        ("s one\ne one\nx\ns one\ne one", ":4: section 'one' starts inside another or twice"),
        ("x\ne one", ":2: section 'one' ends but did not start"),
        ("s one\nx\ne two", ":3: section 'two' ends but did not start"),
    ],
)
def test_bad_markers_are_named_by_file_and_line(tmp_path, body, error):
    for short, kind in (("s", "start"), ("e", "end")):
        body = re.sub(rf"^{short} (\w+)$", rf"# --8<-- [{kind}:\1]", body, flags=re.M)
    path = tmp_path / "story.pycon"
    path.write_text(body, encoding="utf-8")
    with pytest.raises(SourceError) as caught:
        sections(path)
    assert str(caught.value) == f"{path}{error}"


def test_sections_know_their_lines(tmp_path):
    path = section_file(tmp_path / "a.pycon", ">>> x = 1\n>>> print(x)\n1")
    two = "# --8<-- [start:two]\n# --8<-- [end:two]\n"
    path.write_text("text\n" + path.read_text(encoding="utf-8") + two, encoding="utf-8")
    assert [(s.name, s.line) for s in sections(path).values()] == [("one", 3), ("two", 9)]
    assert sections(path)["one"].text == ">>> x = 1\n>>> print(x)\n1\n\n"


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("nosuch.pycon:one", "there is no file 'nosuch.pycon'"),
        ("mhattn/core/functional.py:nosuch", "functional.py: there is no section 'nosuch'"),
    ],
)
def test_unknown_reference_is_an_error(reference, error):
    with pytest.raises(SourceError, match=error):
        translation.shown_section(reference)


def test_inconsistent_prompt_is_an_error(tmp_path):
    path = section_file(tmp_path / "a.pycon", ">>>print(1)")
    with pytest.raises(SourceError, match=r"a.pycon:2: in section 'one': .*blank"):
        sections(path)["one"].examples()


# The code that is copied


def test_code_has_no_prompts_or_outputs(tmp_path):
    body = lines_of(
        """>>> x = 1
        >>> for i in range(x):  # (B, H)
        ...     print("# (a)", f(1))
        ...
        >>> print(x)
        1
        """
    )
    path = section_file(tmp_path / "a.pycon", body.replace("... print", "...     print"))
    assert sections(path)["one"].code == (
        'x = 1\nfor i in range(x):  # (B, H)\n    print("# (a)", f(1))\n\nprint(x)\n'
    )


MODULE = """\
from __future__ import annotations
import math
import torch.nn.functional as F
from torch import Tensor, nn as layers
from mhattn._other import helper

LIMIT: int = 3

def double(x: Tensor) -> Tensor:
    return 2 * x

# --8<-- [start:part]
class Part(layers.Module):
    def forward(self, x):
        total = math.sqrt(len(x))
        return helper(double(F.relu(x)), total, LIMIT)
# --8<-- [end:part]
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "ROOT", tmp_path)
    (tmp_path / "pack").mkdir()
    path = tmp_path / "pack" / "part.py"
    path.write_text(MODULE, encoding="utf-8")
    return path


def test_package_source_is_copied_with_the_imports_it_needs(module):
    header, _, code = sections(module)["part"].code.partition("\n\n\n")
    assert header.splitlines() == [
        "import math",
        "",
        "import torch.nn.functional as F",
        "from mhattn._other import helper",
        "from torch import nn as layers",
        "",
        "from pack.part import LIMIT, double",
    ]
    assert code.startswith("class Part(layers.Module):\n    def forward")


RUFF = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=I", "--line-length=100"]


def ruffs(code):
    """What ruff makes of the imports."""
    command = [
        sys.executable,
        *["-m", "ruff", "check", "--isolated", "--select", "I", "--fix", "--quiet", "-"],
    ]
    command = [*RUFF, "--fix", "--quiet", "--stdin-filename", "pasted.py", "-"]
    return subprocess.run(
        command, cwd=source.ROOT, input=code, capture_output=True, encoding="utf-8", check=True
    ).stdout


LINES = {
    "from mhattn.core.masks import causal_mask",
    "from mhattn.core.masks import Mask",
    "from mhattn.core.masks import LIMIT",
    "from mhattn.core.masks import F",  # one capital letter is no constant
    "from mhattn.core.masks import a_name_that_makes_the_line_longer",
    "from mhattn.core.masks import another_name_that_makes_it_long",
    "from mhattn import checks as check",
    "from torch import nn as layers",
    "from torch import Tensor",
    "import torch",
    "import math",
    "from collections.abc import Callable",
    "import torch.nn.functional as F",
    "from functools import partial",
}


def test_imports_are_sorted_as_ruff_does():
    code = source.sorted_imports(LINES, "mhattn")
    assert "from mhattn.core.masks import (\n    LIMIT,\n    F,\n    Mask,\n    a_name_that" in code
    assert ruffs(code) == code == ruffs("\n".join(sorted(LINES)) + "\n")


def test_free_names_are_those_that_only_others_bind():
    code = "import a\nb = 1\ndef f(c, d=e):\n    g = [h for h in c]\n    return a, b, g, print, k\n"
    assert source.free_names(code) == {"e", "k"}


@pytest.mark.parametrize(
    "path", sorted(source.ROOT.glob("mhattn/**/[!_]*.py")), ids=lambda p: p.stem
)
def test_every_import_line_imports_its_name(path):
    """The lines that copied source starts with: each by itself must bind what it says."""
    for name, line in source.import_lines(path).items():
        namespace = {}
        exec(line, namespace)
        assert name in namespace, line


# The command


def stories_command(*arguments):
    command = [sys.executable, source.ROOT / "scripts" / "stories.py", *arguments]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)


def test_an_unknown_story_is_a_readable_error():
    for command in (["--rewrite", "nosuch²"], ["nosuch²"], ["--arithmetic", "nosuch²"]):
        done = stories_command(*command)
        assert done.returncode == 1
        assert "there is no story" in done.stdout
        assert "nosuch².pycon" in done.stdout
        assert "Traceback" not in done.stdout + done.stderr


def test_doctest_reads_stories_as_we_do():
    """Truth for the runner: plain doctest, with all sections of a story as one test."""
    story = STORIES[0]
    lines = story.read_text(encoding="utf-8").splitlines()
    text = "\n".join(source.MARK.sub("", line) for line in lines)  # they are the site's own
    test = doctest.DocTestParser().get_doctest(text, {}, story.name, str(story), 0)
    examples = [example for section in sections(story).values() for example in section.examples()]
    assert [(e.source, e.want) for e in test.examples] == [(e.source, e.want) for e in examples]


def test_cells_of_a_table_become_one_path_a_look():
    """Merged, each cell is still where it was, in its own colour, and empty ones are gone."""
    _, ax = plt.subplots(figsize=(3, 2))
    plot_weights(torch.tensor([[0.5, 0.25, 0.0], [0.25, -0.5, 0.75]]), ax=ax, vmax=1.0)
    drawn = io.StringIO()
    plt.savefig(drawn, format="svg")
    cell = r'<path d="([^"]*)"[^>]* shape-rendering[^>]*style="([^"]*opacity[^"]*)"'
    paths = re.findall(cell, site_svg(drawn.getvalue()))
    places = {look: re.findall(r"M([\d.]+) ([\d.]+)h", path) for path, look in paths}
    assert len(places) == len(paths) == 4
    every = [(float(x), float(y)) for each in places.values() for x, y in each]
    (left, middle, right), (top, bottom) = (sorted({at[axis] for at in every}) for axis in (0, 1))
    cells = {look: {(float(x), float(y)) for x, y in each} for look, each in places.items()}
    ours, negative = f"var(--mh-weights, {COLORS['weights']})".lower(), NEGATIVE.lower()
    assert cells == {
        f"fill: {ours}; fill-opacity: 0.50": {(left, top)},
        f"fill: {ours}; fill-opacity: 0.25": {(middle, top), (left, bottom)},
        f"fill: {negative}; fill-opacity: 0.50": {(middle, bottom)},
        f"fill: {ours}; fill-opacity: 0.75": {(right, bottom)},
    }
