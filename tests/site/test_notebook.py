"""A page as a notebook and a script: nothing of it is lost, and formulas render anywhere."""

import ast
import contextlib
import inspect
import io
import itertools
import json
import re

import exercises
import matplotlib.pyplot as plt
import pytest
import test_page_tasks
import torch
from cases import every
from mhsite.beside import notebook
from mhsite.pages import formulas as katex, measured, page as pages, release, your_turn
from mhsite.pages.cells import CHINESE_FONT
from mhsite.pages.page import models_of, page_paths, parse, read, skeleton, spans
from mhsite.pages.settings import settings
from mhsite.stories import results
from mhsite.stories.source import DOCS, LANGUAGES, Section, SourceError

pytestmark = pytest.mark.usefixtures("nothing_runs")
HOME = "https://site/"
PAGES = [
    found
    for language in LANGUAGES
    for path in page_paths(language)
    if (found := read(DOCS / language / path)).has_code
]
each_page = every("page", PAGES)


def cells_of(page):
    return json.loads(notebook.notebook(page, HOME))["cells"]


def text(cell):
    return "".join(cell["source"])


def prose(page):
    return "\n\n".join(text(cell) for cell in cells_of(page) if cell["cell_type"] == "markdown")


def formulas(page):
    """All of a page, of its prose, titles and tables, in order of their kinds."""
    for block in page.walk():
        if block.kind == "math":
            yield block.value
        elif block.kind in ("prose", "heading", "block", "table"):
            if " chart=" in block.value:
                continue  # a picture: its headings are drawn
            said = block.text if block.kind == "prose" else block.title
            if block.kind == "table" and block.value.startswith("measured "):
                said = " | ".join(headings_of_each_device(block.value.split()[1:], said))
            yield from (span.value for span in spans(said) if span.kind == "math")


def headings_of_each_device(asked, said):
    name, *wanted = asked
    devices = measured.of_devices(name, len(said.split(" | ")) + len(wanted))
    columns = [measured.with_cells(found, wanted, file)["columns"] for file, found in devices]
    for own in columns:
        yield from measured.headings_of(own, columns[0], said.split(" | "))


def seen(tex):
    """What a reader sees of a formula, drawn by KaTeX: its signs in order."""
    drawn = re.sub(r"<annotation.*?</annotation>", "", katex.render(tex), flags=re.S)
    return re.sub(r"<[^>]+>|\s", "", re.search(r"<math.*?</math>", drawn, re.S)[0])


def in_notebook(said):
    """The formulas of a notebook as a MathJax finds them; code has none."""
    said = re.sub(r"(`+).+?\1|<code>.*?</code>", "", said, flags=re.S)
    found = re.findall(r"\$\$(.+?)\$\$|(?<!\\)\$(?!\s)((?:\\.|[^$\\])+?)\$", said, re.S)
    return [display or inline for display, inline in found]


@each_page
def test_no_formula_is_lost_or_red(page):
    made = in_notebook(prose(page))
    assert not [tex for tex in made if re.search(r"\\(query|key|value|weights|output)\b", tex)]
    assert sorted(map(seen, made)) == sorted(map(seen, formulas(page)))


@each_page
def test_no_title_citation_or_figure_is_lost(page):
    said = prose(page)
    for block in page.walk():
        if block.kind in ("heading", "block") and block.title:
            words = re.sub(r"`+([^`]*)`+|\$[^$]*\$|\s?\[@[^\]]*\]|\]\([^)]*\)", r"\0", block.title)
            for part in filter(str.strip, re.split(r"\0|[\[\]]", words)):
                assert part.strip() in said, block.title
    cited = [part.value for part in skeleton(page) if part.kind == "citation"]
    works = notebook.bibliography.works()
    for key in set(cited):
        assert said.count(f"]({works[key]['url']})") >= cited.count(key), key
    drawn = {results.drawn(b.section) for b in page.walk() if b.kind == "include"}
    for part in skeleton(page):
        if part.kind == "figure" and (name := part.value.split("figures/")[-1]) not in drawn:
            assert f"({HOME}figures/{name})" in said
    for sign in ("[@", "--8<--", "/// ", "<!--"):
        assert sign not in re.sub(r"`[^`]*`", "", said)


@each_page
def test_all_code_is_there_and_says_what_it_needs(page):
    first, install, *others = cells_of(page)
    assert text(first).startswith(f"# {page.headings[0].title}\n")
    assert f"({HOME}{page.url})" in text(first)
    extras = "[models]" if models_of(page) else ""
    commit = release.commit()
    wanted = f"mhattn{extras} @ git+{settings()['repo_url']}@{commit}"
    command, why, instead = text(install).splitlines()
    assert command == f'%pip install --quiet "{wanted}"'
    wheel = f'"{release.wheel(*["models"] * bool(extras))}"'
    assert wheel.startswith(f'"mhattn{extras} @ {settings()["site_url"]}packages/mhattn-')
    mirror = "" if page.language == "en" else "-i https://pypi.tuna.tsinghua.edu.cn/simple "
    assert instead == f"# %pip install --quiet {mirror}{wheel}"
    assert why.startswith("# ")
    assert "GitHub" in why
    codes = [cell for cell in others if cell["cell_type"] == "code" and not is_added(cell)]
    sections = [block.section for block in page.walk() if block.kind == "include"]
    bare = [text(cell).replace(CHINESE_FONT, "").replace(";", "") for cell in codes]
    assert [ast.dump(always(code)) for code in bare] == [
        ast.dump(always(section.code.replace(";", ""))) for section in sections
    ]
    assert [cell["execution_count"] for cell in codes] == list(range(1, len(codes) + 1))
    script = notebook.script(page, HOME)
    ast.parse(script)
    head = script.split("\n\n")[0]
    assert f"# {page.headings[0].title}\n" in head
    assert head.splitlines()[-2:] == [
        f"# python -m pip install {mirror}{wheel}",
        f'# python -m pip install "{wanted}"',
    ]
    assert HOME + page.url in head
    for model in models_of(page):
        assert f"{model.megabytes} MB" in head
        assert f"{model.megabytes} MB" in text(first)


def always(code):
    """Code without the question whether the reader has written anything."""
    made = ast.parse(code)
    made.body = [line for node in made.body for line in (node.body if asks(node) else [node])]
    for node in ast.walk(made):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (said := ast.get_docstring(node)):
            node.body[0].value.value = said  # which is indented with its function
    return made


def asks(node):
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("unwritten(")


def is_own(cell):
    """Is it the reader's, before a solution?"""
    return text(cell).startswith(("# Your turn: ", "# 轮到你了："))


def is_added(cell):
    """Is it no code of the page's: the reader's own, or what asks whether they wrote it?"""
    return is_own(cell) or "\ndef unwritten(" in text(cell)


def solutions_with_tests(page):
    """The sections of tasks, and those of the fold behind each."""
    blocks = [block for block in page.walk() if block.kind == "block" and block.mark == "///"]
    for task, fold in itertools.pairwise(blocks):
        if task.value == "task" and fold.value == "details":
            shown = [
                [b.section.code for b in x.walk() if b.kind == "include"] for x in (task, fold)
            ]
            yield "\n".join(shown[0]), "\n".join(shown[1])


NO_NAME = {"how-many-heads.md"}  # its test is handed an expression


@each_page
def test_before_each_solution_stands_a_cell_of_the_readers_own(page):
    cells = [cell for cell in cells_of(page)[2:] if cell["cell_type"] == "code"]
    own = [number for number, cell in enumerate(cells) if is_own(cell)]
    assert sum("\ndef unwritten(" in text(cell) for cell in cells) == (len(own) > 0)
    tasks = list(solutions_with_tests(page))
    tested = [code for _, code in tasks if re.search(r"^\w+\(\w+\)$", code, re.M)]
    assert len(own) == (0 if page.name in NO_NAME else len(tested))
    script = notebook.script(page, HOME)
    for number in own:
        stub, before, after = (text(cells[number + step]) for step in (0, -1, 1))
        assert stub in script
        *_, call = stub.split("\n")
        test, name = re.fullmatch(r"# (\w+)\((\w+).*\)", call).groups()
        assert f"def {test}(" in before
        head = rf"(@.+\n    )*((def|class) {name}\b|{name} = )"
        guarded = rf"^if unwritten\(\"{name}\"\):\n    {head}"
        assert re.search(guarded, after, re.M)
        assert after.replace(";", "") in script.replace(";", "")
        assert re.search(rf"^((def|class) {name}\b.*:\n    \.\.\.|{name} = \.\.\.)", stub, re.M)
        assert (cells[number]["execution_count"], cells[number]["outputs"]) == (None, [])
        without_bases = re.sub(r"^(class \w+)\(.*\):", r"\1:", stub, flags=re.M)
        exec(without_bases, {})  # whoever runs all cells isn't stopped by it
        assert judged(without_bases, after, test, name) is None
        for answer in f"def {name}(*_): return 1", f"class {name}: x = 1", f"{name} = print":
            assert judged(answer, after, test, name)[0]


def judged(own, solution, test, name):
    """What a solution's cell hands to the test behind an own cell, and whether that is the own;
    None if the solution steps in."""
    handed, names = [], {test: lambda *given: handed.append(given[0])}
    exec(f"{inspect.getsource(your_turn.unwritten)}\n{own}", names)
    mine, body = names[name], ast.parse(solution).body
    (asked,) = [node for node in body if asks(node) and f"'{name}'" in ast.unparse(node.test)]
    if eval(ast.unparse(asked.test), names):
        return None
    called = next(node for node in body if ast.unparse(node).startswith(f"{test}("))
    assert body.index(asked) < body.index(called)
    exec(ast.unparse(ast.Module([asked, called], [])), names)
    return handed[0] is mine, handed[0]


@each_page
def test_nothing_else_needs_what_a_solution_alone_defines(page):
    """Or who writes an answer of their own is stopped further down."""
    codes = [text(cell) for cell in cells_of(page)[2:] if cell["cell_type"] == "code"]
    for number, code in enumerate(codes):
        body = ast.parse(code).body
        for at, node in enumerate(body):
            if asks(node):
                wanted = re.findall(r"'(\w+)'", ast.unparse(node.test))
                inside = {*exercises.bound(ast.unparse(ast.Module(node.body, [])))} - {*wanted}
                later = [ast.unparse(x) for x in body[at + 1 :]] + codes[number + 1 :]
                read = {
                    n.id
                    for n in ast.walk(ast.parse("\n".join(later)))
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
                }
                assert inside & read == set(), (page.name, code)


def runs(page, answer):
    """Run the notebook's cells in order, with an answer in the reader's first cell.

    Returns what the cells print from there on, up to the first that is stopped; and the names.
    """
    names, printed, written = {"__name__": "__main__"}, io.StringIO(), False
    torch.manual_seed(0)
    for cell in cells_of(page)[2:]:
        code = text(cell)
        if cell["cell_type"] != "code":
            continue
        if is_own(cell) and not written:
            code, written = answer or code, True
        with contextlib.redirect_stdout(printed if written else io.StringIO()):
            try:
                exec(compile(code, page.name, "exec"), names)
            except Exception as error:
                if not written:
                    raise
                return f"{type(error).__name__}: {error}", names
            finally:
                plt.close("all")
    return printed.getvalue(), names


RUN = ["why-attention.md", "masks.md", "why-heads.md", "labs/see-order.md"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", RUN)
def test_whoever_runs_all_cells_is_judged_by_what_they_wrote(name, language, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = read(DOCS / language / name)
    task = next(task for task in exercises.tasks() if test_page_tasks.page_of(task) == name)
    wanted = ast.unparse(task.call.args[0])
    wrong = next(each for each in task.names if each.startswith("wrong"))
    passed = exercises.PASSED[language]
    # Nothing is written: the page's solution steps in.
    said, names = runs(page, "")
    assert said.startswith(passed)
    # An answer of the reader's own passes or is refused, and is what stays.
    answers = test_page_tasks.answers(task, language)
    for candidate, passes in (("right", True), (wrong, False)):
        said, names = runs(page, answers[candidate])
        assert said.startswith(passed if passes else "AssertionError: ")
        assert names[wanted] is names[candidate]


@pytest.mark.parametrize(
    ("tex", "plain"),
    [
        (r"\query{Q} = X W^Q", "Q = X W^Q"),
        (r"\sum_j \weights{A_{ij}}\, d\weights{A_{ij}}", r"\sum_j A_{ij}\, dA_{ij}"),
        (r"\frac{\query{Q}\key{K}^\top}{\sqrt{D}}", r"\frac{QK^\top}{\sqrt{D}}"),
        (r"\sqrt\query{d}", r"\sqrt d"),
        (r"x^\weights{ab} \weights{A_{ij}}^2", r"x^{ab} {A_{ij}}^2"),
        (r"\weights{\alpha}x \query q", r"\alpha x q"),
        (r"\output{O_{\query{Q}}}", "O_{Q}"),
        (r"\queryset", r"\queryset"),
    ],
)
def test_a_formula_without_colours(tex, plain):
    assert notebook.plain_tex(tex) == plain


def test_a_brace_without_an_end_is_an_error():
    with pytest.raises(SourceError, match="has a brace without an end"):
        notebook.plain_tex(r"\query{Q")


TOY = """\
# Title { #t }

![a line](figures/toy/draw.svg)
/// caption
Said of it.
///

/// details | The code of $x$
```pycon
--8<-- "toy.pycon:draw"
```
///

/// details | Why `<b>`?
Because.
///
"""
PRINTED = "one\n| a<b |   x |\n|-----|----:|\n| c   | 1.0 |\ntwo\n"


@pytest.fixture
def toy(monkeypatch):
    section = Section(DOCS / "stories" / "toy.pycon", "draw", 1, ">>> f(1)\n")
    monkeypatch.setattr(pages, "shown_section", lambda reference, language: section)
    monkeypatch.setattr(results, "drawn", lambda section: "toy/draw.svg")
    monkeypatch.setattr(results, "figure", lambda name, language: f"<svg>{name}</svg>")
    monkeypatch.setattr(results, "printed", lambda section: PRINTED)
    return parse(TOY, DOCS / "en" / "masks.md")


def test_form_of_a_notebook(toy):
    _, _, title, code, rest = cells_of(toy)
    assert text(title) == "**The code of $x$**"
    assert code["metadata"] == {"jupyter": {"source_hidden": True}, "tags": ["hide-input"]}
    said = [output.get("text", output.get("data")) for output in code["outputs"]]
    assert ["".join(said[0]), "".join(said[2])] == ["one\n", "two\n"]
    assert "<td>1.0</td>" in "".join(said[1]["text/html"])
    assert "a&lt;b" in "".join(said[1]["text/html"])
    assert "".join(said[1]["text/plain"]) == "\n".join(PRINTED.split("\n")[1:4])
    assert "".join(said[3]["image/svg+xml"]) == "<svg>toy/draw.svg</svg>"
    assert text(rest).startswith("Said of it.\n"), "below what it is about"
    why = "<details><summary>Why <code>&lt;b&gt;</code>?</summary>\n\nBecause.\n\n</details>"
    assert text(rest).endswith(why)


def test_a_figure_of_elsewhere_is_shown(toy, monkeypatch):
    monkeypatch.setattr(results, "drawn", lambda section: None)
    assert f"![a line]({HOME}figures/toy/draw.svg)\n\nSaid of it." in prose(toy)


@pytest.mark.parametrize("language", LANGUAGES)
def test_home_says_how_to_install_the_package_alone(language):
    home = (DOCS / language / "index.md").read_text(encoding="utf-8")
    wanted = f"mhattn @ git+{settings()['repo_url']}"
    assert f'```bash\npython -m pip install "{wanted}"\n```\n' in home


def test_one_setting_says_where_the_package_is(monkeypatch):
    there = {"extra": {"package": "mhattn{extras}=={version}"}, "repo_url": "x"}
    monkeypatch.setattr(release, "settings", lambda: there)
    assert release.requirement("models") == f"mhattn[models]=={release.version}"


def test_where_colab_finds_a_notebook(monkeypatch):
    page = read(DOCS / "zh" / "masks.md")
    there = {"repo_url": "https://github.com/owner/name"}
    monkeypatch.setattr(release, "settings", lambda: there)
    at = "https://colab.research.google.com/github/owner/name/blob/notebooks/zh/masks.ipynb"
    assert release.colab(page) == at
    there["repo_url"] = "https://elsewhere.org/owner/name"
    assert release.colab(page) == "", "Colab reads no other host"
