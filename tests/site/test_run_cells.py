"""Cells run where they are read, and tasks are judged there: the runner alone, then in Chromium."""

import importlib
import io
import re
import subprocess
import sys
import tarfile

import matplotlib.pyplot as plt
import pytest
import torch
from mhsite import words
from mhsite.pages import navigation, running
from mhsite.pages.page import read
from mhsite.stories.source import DOCS, LANGUAGES
from test_site import address

PAGES = [*navigation.road("en"), "by-hand.md", "questions.md"]
PLAIN = ["why-attention.md", "masks.md"]
TRAINS = "build-and-train.md"  # several times 200 to 300 steps: minutes in a page
COLD = 90_000  # milliseconds that a loaded machine may take to load Python
TRAINING = 240_000  # that it may take for 300 steps of the road's training


@pytest.fixture
def runner(monkeypatch):
    """The module that runs cells, as the page loads it, under this Python."""
    monkeypatch.syspath_prepend(str(running.HERE))
    for name in ("mistakes", "needs", "runner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    made = importlib.import_module("runner")
    yield made
    for name in ("mistakes", "needs", "runner"):
        sys.modules.pop(name, None)


@pytest.fixture
def session(runner):
    return runner.Session(words.of("en", "python.mistakes"))


def run_all(session, sources, upto, own=None):
    """What a page does: go back to where it has to, and run the cells up to one."""
    own = own or sources
    plan = session.plan(sources, upto)
    return plan[0], [session.run(i, sources[i], own[i]) for i in plan]


def test_cells_share_a_state_and_run_once(session):
    cells = ["x = [1]", "x.append(2)", "print(x)"]
    first, results = run_all(session, cells, 2)
    assert (first, [each["output"] for each in results]) == (0, ["", "", "[1, 2]\n"])
    first, (result,) = run_all(session, cells, 2)
    assert (first, result["output"]) == (2, "[1, 2]\n")


def test_a_cell_that_runs_again_starts_from_the_state_before_it(session):
    """In a notebook, x would grow with each run."""
    cells = ["x = [1]", "x.append(2)\nprint(x)"]
    for _ in range(3):
        assert run_all(session, cells, 1)[1][-1]["output"] == "[1, 2]\n"
    assert run_all(session, cells, 0)[0] == 0
    assert run_all(session, cells, 1)[1][-1]["output"] == "[1, 2]\n"


def test_what_changed_above_runs_again_and_no_more(session):
    cells = ["a = 1", "b = a + 1", "print(a, b)"]
    run_all(session, cells, 2)
    changed = ["a = 1", "b = a + 5", "print(a, b)"]
    first, results = run_all(session, changed, 2, cells)
    assert (first, results[-1]["output"]) == (1, "1 6\n")


def test_functions_see_the_state_that_was_gone_back_to(session):
    cells = ["k = 1\ndef f():\n    return k", "k = 7", "print(f())"]
    assert run_all(session, cells, 2)[1][-1]["output"] == "7\n"
    assert (
        run_all(session, ["k = 1\ndef f():\n    return k", "k = 8", "print(f())"], 2)[1][-1][
            "output"
        ]
        == "8\n"
    )


def test_names_of_one_thing_stay_names_of_one_thing(session):
    cells = ["a = [0]\nb = a", "a[0] += 1\nprint(b)"]
    for _ in range(2):
        assert run_all(session, cells, 1)[1][-1]["output"] == "[1]\n"


def test_random_numbers_go_on_from_the_same_place(session):
    cells = ["import random", "print(random.random())"]
    once = run_all(session, cells, 1)[1][-1]["output"]
    assert run_all(session, cells, 1)[1][-1]["output"] == once


def test_a_state_that_cannot_be_copied_is_made_anew(session):
    cells = ["g = (i for i in range(9))", "print(next(g))", "print(next(g))"]
    assert run_all(session, cells, 2)[1][-1]["output"] == "1\n"
    first, results = run_all(session, cells, 2)
    assert (first, results[-1]["output"]) == (0, "1\n")


def test_a_changed_cell_that_failed_runs_again_before_the_next(session):
    own = ["x = 1", "y = x", "print(y)"]
    broken = ["x = 1", "y = nosuch", "print(y)"]
    assert run_all(session, broken, 1, own)[1][-1]["error"]["type"] == "NameError"
    assert session.plan(broken, 2) == [1, 2]


def test_only_what_a_reader_adds_is_echoed(session):
    """Pages show things with print, and pasted code prints the same."""
    own = "x = 3\nx + 1"
    assert session.run(0, own, own)["output"] == ""
    assert session.run(1, "x = 3\nx + 2", own)["output"] == "5\n"
    assert session.run(2, "x = 3\nNone", own)["output"] == ""
    assert session.run(3, "print(x)", own)["output"] == "3\n"


def test_reset_forgets_all(session):
    run_all(session, ["x = 1"], 0)
    session.reset()
    assert session.plan(["x = 1", "x"], 1) == [0, 1]
    assert session.run(0, "print(x)")["error"]["type"] == "NameError"


LACKING = "raise type('Lacking', (NotImplementedError, AttributeError), {})"

# Of each mistake: the code, the line that is blamed, and what the plain sentence must hold.
MISTAKES = {
    "indent": ("x = 1\n  y = 2", 2, "blanks"),
    "unclosed": ("x = (1,\n", 1, "("),
    "unquoted": ("x = 'a\n", 1, "quote"),
    "colon": ("if 1\n    pass", 1, "colon"),
    "syntax": ("x = 1\ny = 2 3", 2, "comma"),
    "name": ("weights = 1\nprint(wieghts)", 2, "weights"),
    "index": ("x = [1]\n\nx[3]", 3, "0"),
    "key": ("{}['a']", 1, "'a'"),
    "arguments": ("def f(a):\n    pass\nf()", 3, "arguments"),
    "none": ("def f():\n    pass\nf().x", 3, "None"),
    "module": ("import nosuch", 1, "nosuch"),
    "attribute": ("(1).shape", 1, "shape"),
    "unpack": ("a, b = 1, 2, 3", 1, "="),
    "zero": ("1 / 0", 1, "zero"),
    "recursion": ("def f():\n    return f()\nf()", 2, "itself"),
    "product": ("import torch\ntorch.ones(6, 8) @ torch.ones(4, 4)", 2, "6 × 8"),
    "broadcast": ("import torch\ntorch.ones(2, 3) + torch.ones(2, 4)", 2, "3"),
    "reshape": ("import torch\ntorch.ones(20).view(6, 3)", 2, "20"),
    "join": ("import torch\ntorch.cat([torch.ones(2, 3), torch.ones(2, 4)])", 2, "equal"),
    "dtype": ("import torch\ntorch.ones(2, 2) @ torch.ones(2, 2).long()", 2, "float"),
    "axis": ("import torch\ntorch.ones(2).sum(dim=3)", 2, "axis"),
    "empty": ("import torch\ntorch.ones(0).max()", 2, "empty"),
    "type": ("issubclass(1, int)", 1, "kind"),
    "other": ("raise ValueError('must be even')", 1, "message"),
    "block": ("for i in range(3):\nprint(i)", 2, "four blanks"),
    "vectors": ("import torch\ntorch.ones(4) @ torch.ones(5)", 2, "4 numbers and the other 5"),
    "forward": ("import torch\ntorch.nn.Module()(3)", 2, "forward"),
    "super": (
        "from torch import nn\nclass M(nn.Module):\n    def __init__(self):\n"
        "        self.a = nn.Linear(2, 3)\nM()",
        4,
        "super()",
    ),
    "closed": ("x = (1, 2]", 1, "]"),
    "sign": ("x = 1\nprint（x）", 2, "（"),
    "blank": ("x\u00a0= 1", 1, "blanks"),
    "command": ("import torch\n!pip install numpy", 2, "notebooks"),
    "prompt": (">>> x = 1", 1, ">>>"),
    "elif": ("if 1:\n    pass\nelse if 2:\n    pass", 3, "elif"),
    "call": ("print 3", 1, "print(…)"),
    "equals": ("x = 3\nif x = 3:\n    pass", 2, "=="),
    "outside": ("x = 3\nreturn x", 2, "return"),
    "batches": ("import torch\ntorch.ones(2, 6, 8) @ torch.ones(2, 4, 4)", 2, "[2, 8]"),
    "vector": ("import torch\ntorch.ones(6, 8) @ torch.ones(4)", 2, "8"),
    "order": ("import torch\ntorch.ones(2, 3, 4).transpose(0, 1).view(6, 4)", 2, "reshape"),
    "ragged": ("import torch\ntorch.tensor([[1, 2], [3]])", 2, "equally long"),
    "indices": ("import torch\ntorch.nn.Embedding(4, 3)(torch.ones(2))", 2, "long()"),
    "single": ("import torch\ntorch.ones(2).item()", 2, "mean()"),
    "truth": ("import torch\nif torch.ones(2) > 0:\n    pass", 2, ".all()"),
    "grad": ("import torch\ntorch.ones(2).sum().backward()", 2, "requires_grad"),
    "twice": (
        "import torch\nx = torch.ones(2, requires_grad=True)\ny = (x * x).sum()\n"
        "y.backward()\ny.backward()",
        5,
        "anew",
    ),
    "loss": ("import torch\ntorch.ones(2, requires_grad=True).exp().backward()", 2, "sum()"),
    "leaf": ("import torch\nx = torch.ones(2, requires_grad=True)\nx += 1", 3, "x = x + 1"),
    "callable": ("x = 3\nx(4)", 2, "int"),
    "parts": ("x = 3\nx[0]", 2, "int"),
    "whole": ("x = [1, 2]\nx[1, 0]", 2, "slices"),
    "combine": ("'a' + 1", 1, "type(x)"),
    "format": ("import torch\nf'{torch.ones(2):.2f}'", 2, ".item()"),
    "import": ("from mhattn import tabel", 1, "Did you mean table?"),
    "overflow": ("import math\nmath.exp(1000)", 2, "larger"),
    "memory": ("x = [0] * 10**30", 1, "memory"),
    "exit": ("exit()", 1, "exit"),
    "assert": ("assert 1 == 2", 1, "assert"),
    "file": ("open('no/such')", 1, "file"),
    # What only a page says
    "absent": (f"{LACKING}('torch.sofmax is not in this page')", 1, "Did you mean softmax?"),
    "device": (f"{LACKING}('torch.Tensor.cuda is not in this page')", 1, "GPU"),
    "lacking": (f"{LACKING}('tensors without numbers')", 1, "small torch"),
    "input": ("raise OSError('[Errno 29] I/O error')", 1, "input"),
    "alone": ("""raise RuntimeError("can't start new thread")""", 1, "threads"),
    "printed": ("print('x' * 300_000)", 1, "too much"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_common_mistakes_are_told_in_plain_words(runner, name):
    code, line, holds = MISTAKES[name]
    for language in LANGUAGES:
        said = words.of(language, "python.mistakes")
        error = runner.Session(said).run(0, code, "")["error"]
        assert error["line"] == line
        start = re.split(r"\{", said[name])[0]
        assert error["plain"].startswith(start)
        assert "{" not in error["plain"].replace("{sign}", "")
        if language == "en":
            assert holds in error["plain"]
        else:
            assert re.search("[一-鿿]", error["plain"])


def test_every_sentence_is_of_a_rule(runner):
    import mistakes

    rules = {sentence for _, _, sentence in mistakes.RULES}
    assert rules == set(MISTAKES)
    assert rules | {"near", "taken"} == set(words.of("en", "python.mistakes"))


def test_a_misspelt_name_is_asked_for(session):
    for code, meant in {
        "wieghts = 1\nprint(weights)": "wieghts",
        "x = true": "True",
        "Print(3)": "print",
        "import math\nmath.sqtr(2)": "sqrt",
    }.items():
        assert session.run(0, code, "")["error"]["plain"].endswith(f"Did you mean {meant}?")


def test_a_name_that_a_changed_cell_gave_is_traced_to_it(session):
    own = ["import torch\nX = torch.ones(2)", "print(X)"]
    for now in ("", "import torch\nx = torch.ones(2)"):
        session.plan([now, own[1]], 1)
        error = session.run(1, own[1], own[1], [[0, own[0], now]])["error"]
        assert error["taken"] == 0
        assert "cell 1" in error["plain"]
    error = session.run(1, "print(Y)", own[1], [[0, own[0], ""]])["error"]
    assert "taken" not in error


def test_what_cannot_be_read_at_all_is_an_error_of_its_cell(session):
    """Each came out of the parser in another way, and ended Python itself."""
    late = "x = 1\ndef f():\n    x\n    global x"
    for code in ("await x", "def f(a, a):\n    pass", "x = 1\0", late):
        assert session.plan([code, "x"], 1)[-1] == 1
        assert session.run(0, code, "")["error"]["type"] in ("SyntaxError", "ValueError")


def test_a_long_loop_says_how_far_it_is(runner, monkeypatch):
    """The outermost loop alone, about once in a second; what a cell gives stays the same."""
    clock, told = iter(range(0, 9999)), []
    monkeypatch.setattr(runner.time, "perf_counter", lambda: next(clock) / 2)
    session = runner.Session(None, None, lambda *step: told.append(step))
    code = (
        "found = []\ndef many(n):\n    for i in range(n):\n        for j in range(2):\n"
        "            found.append(i)\n        if i == 6:\n            break\nmany(10)\n"
        "for i in range(3):\n    pass\nelse:\n    print(len(found), found[-1], i)"
    )
    assert session.run(0, code)["output"] == "14 6 2\n"
    assert [step[:2] for step in told] == [(1, 10), (3, 10), (5, 10), (1, 3)]
    assert session.run(1, "for i in range(4):\n    i / (i - 2)", "")["error"]["line"] == 2


def test_warnings_are_shown(session):
    code = "import sys\nprint('careful', file=sys.stderr)"
    assert session.run(0, code)["output"] == "careful\n"


def test_what_has_no_sentence_has_none(session):
    assert session.run(0, "raise KeyboardInterrupt")["error"]["plain"] == ""


def test_a_loop_that_prints_without_end_ends(session):
    result = session.run(0, "while True:\n    print('x' * 1000)")
    assert result["error"]["line"] == 2
    assert len(result["output"]) <= 200_000
    assert "loop" in result["error"]["plain"]


TEST = """def test(double):
    for x in 1, 5:
        assert double(x) == 2 * x, f"double({x}) is off by {double(x) - 2 * x}"
    print("passed")
"""


# Pages whose cells are quick under torch itself, where each runs with what it needs alone.
SLICED = ["why-attention.md", "masks.md", "why-heads.md"]


@pytest.mark.parametrize("name", SLICED)
def test_what_a_cell_needs_is_enough(runner, name, tmp_path, monkeypatch):
    """With only the cells that it is said to need, it prints what it prints behind all others."""
    monkeypatch.chdir(tmp_path)
    blocks = (block for block in read(DOCS / "en" / name).walk() if block.kind == "include")
    cells = [cell for block in blocks for cell in block.section.cells]
    sources, left_out = [cell.code for cell in cells], 0
    for i, cell in enumerate(cells):
        plan = importlib.import_module("needs").needed(sources, i)
        left_out += i - len(plan)
        session = runner.Session()
        for number in plan:
            assert session.run(number, sources[number])["error"] is None
        result = session.run(i, cell.code)
        plt.close("all")
        assert (result["error"], result["output"].rstrip()) == (None, cell.output.rstrip())
    assert left_out


DRAWING = ["attention.md", "multi-head.md", "shapes.md", "questions.md"]


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWING)
def test_who_draws_random_numbers_is_known(runner, name, tmp_path, monkeypatch):
    """Or a cell would be left out whose draws the next ones go on from."""
    monkeypatch.chdir(tmp_path)
    needs = importlib.import_module("needs")
    blocks = (block for block in read(DOCS / "en" / name).walk() if block.kind == "include")
    sources = [cell.code for block in blocks for cell in block.section.cells]
    cells, session, defined = [needs.Cell(source) for source in sources], runner.Session(), {}
    for cell in cells:
        defined |= cell.defines
    defined = needs._through(defined, cells)
    unseen = []
    for cell, source in zip(cells, sources, strict=True):
        before = torch.get_rng_state()
        session._execute(source, "<cell>", source)
        plt.close("all")
        drew = not torch.equal(before, torch.get_rng_state())
        if drew and not (needs._does(cell, defined)[1] or cell.seeds):
            unseen.append(source)
    assert unseen == []


NEEDS = {
    "a name": (["x = 1", "y = 2", "print(x)"], [0]),
    "through others": (["x = 1", "y = x", "z = 0", "print(y)"], [0, 1]),
    "a change in place": (["x = []", "x.append(1)", "y = x[0]", "print(x)"], [0, 1]),
    "a change of a part": (["x = [1]", "x[0] = 2", "print(x)"], [0, 1]),
    "a change under another name": (["x = [1]", "y = x\ny.append(2)", "print(x)"], [0, 1]),
    "a function that changes": (
        ["x = []", "def add(y):\n    y.append(1)", "z = add(x)", "print(x)"],
        [0, 1, 2],
    ),
    "a function that only reads": (
        ["x = [1]", "def first(y):\n    return y[0]", "z = first(x)", "print(x)"],
        [0],
    ),
    "another value": (["x = 1", "x = 2", "print(x)"], [1]),
    "draws before": (
        ["import torch", "a = torch.rand(2)", "print(torch.rand(2))"],
        [0, 1],
    ),
    "no draws before a seed": (
        ["import torch", "a = torch.rand(2)", "torch.manual_seed(0)\nprint(torch.rand(2))"],
        [0],
    ),
    "what can't be read": (["x = (", "y = 1", "print(2)"], [0]),
}


@pytest.mark.parametrize("why", NEEDS)
def test_what_a_cell_needs(runner, why):
    sources, needed = NEEDS[why]
    assert importlib.import_module("needs").needed(sources, len(sources) - 1) == needed


def test_a_cell_that_was_left_out_runs_in_its_place(session):
    """Cell 1 changes x before cell 2 does, whenever a reader first asks for it."""
    cells = ["x = [0]", "y = 1", "x.append(y)", "print(x)", "print(y)"]
    assert run_all(session, cells, 3)[1][-1]["output"] == "[0, 1]\n"
    assert run_all(session, cells, 4)[1][-1]["output"] == "1\n"
    cells[1] = "y = 5"
    assert run_all(session, cells, 3)[1][-1]["output"] == "[0, 5]\n"


def test_an_answer_is_judged_and_leaves_no_trace(session):
    run_all(session, [TEST, "def double(x):\n    return x + x", "test(double)"], 2)
    wrong = session.judge("def double(x):\n    return x + 1", "test(double)", ["test"])
    assert (wrong["passed"], wrong["error"]["message"]) == (False, "double(5) is off by -4")
    right = session.judge("def double(x):\n    return 2 * x", "test(double)", ["test"])
    assert (right["passed"], right["output"]) == (True, "passed\n")
    assert session.run(0, "print(double(3))")["output"] == "6\n"


def test_no_answer_passes_by_what_the_page_has(session):
    """The page's own solution further down must not stand in for an answer."""
    run_all(session, [TEST, "def double(x):\n    return x + x"], 1)
    for answer in ("", "x = 1", "# def double(x): ..."):
        result = session.judge(answer, "test(double)", ["test"])
        assert (result["passed"], result["unwritten"]) == (False, ["double"])


def test_an_answer_cannot_change_the_test(session):
    run_all(session, [TEST], 0)
    answer = "def test(f):\n    print('passed')\ndef double(x):\n    return 0"
    assert not session.judge(answer, "test(double)", ["test"])["passed"]


def test_the_line_of_a_wrong_answer_is_the_answers(session):
    run_all(session, [TEST], 0)
    result = session.judge("def double(x):\n    y = x\n    return y.z", "test(double)", ["test"])
    assert result["error"]["line"] == 3
    result = session.judge("def double(x):\n    return None", "test(double)", ["test"])
    assert result["error"]["line"] is None  # it is the test that stops
    assert "return" in result["error"]["plain"]


def test_the_zip_is_the_same_twice_and_holds_what_cells_import():
    once = running.modules()
    running.modules.cache_clear()
    assert running.modules() == once
    assert len(once) < 600_000


IMPORT_ALL = """
import importlib, pathlib, sys
sys.path.insert(0, sys.argv[1])
sys.modules["numpy"] = None
import matplotlib, torch
failed = []
for path in sorted(pathlib.Path(sys.argv[1], "mhattn").rglob("*.py")):
    name = ".".join(path.relative_to(sys.argv[1]).with_suffix("").parts)
    try:
        importlib.import_module(name.removesuffix(".__init__"))
    except Exception as why:
        failed.append(f"{name}: {why!r}")
sys.exit("\\n".join(failed) or 0)
"""


def test_every_module_that_travels_can_be_imported_in_a_page(tmp_path):
    """Without NumPy: one that asks for it takes along every lab with a model."""
    with tarfile.open(fileobj=io.BytesIO(running.modules())) as archive:
        archive.extractall(tmp_path, filter="data")
    command = [sys.executable, "-S", "-c", IMPORT_ALL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env={"PATH": ""})
    assert done.returncode == 0, done.stderr


# As a reader does it

UNFOLD = """key => {
    for (let fold = key.closest("details"); fold; fold = fold.parentElement.closest("details"))
        fold.open = true
}"""


def press(page, index=0):
    """Press "Edit and run" of a cell, and wait until it has run; its panel."""
    key = page.locator("button.mh-run").nth(index)
    pre = key.locator("xpath=ancestor::pre")
    key.evaluate(UNFOLD)
    key.click()
    return settled(pre)


def settled(pre, timeout=COLD):
    panel = pre.locator("xpath=following-sibling::div[1]")
    panel.and_(pre.page.locator("[aria-busy=false]")).wait_for(timeout=timeout)
    return panel


def field_of(page, index):
    return (
        page.locator("section.highlight > pre").filter(has=page.locator("button.mh-run")).nth(index)
    )


def rewrite(pre, old, new):
    """Change a piece of a cell's code and press Ctrl+Enter."""
    field = pre.locator("textarea")
    code = field.input_value()
    assert old in code
    field.fill(code.replace(old, new, 1))
    field.press("Control+Enter")
    return settled(pre)


def said(panel):
    return panel.locator(".mh-run-line").inner_text()


@pytest.fixture
def quiet(open_page, home):
    """Opens a page; no request leaves the site, and nothing goes wrong in silence."""
    noise = []

    def open_(place, **options):
        page = open_page(place, **options)
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("request", lambda request: note(request.url))
        return page

    def note(url):
        if not url.startswith((home, "data:", "blob:")):
            noise.append(url)

    yield open_
    assert noise == []


def needs_python():
    if running.fetched() is None:
        pytest.skip("Pyodide can't be had")


def test_nothing_is_loaded_before_the_first_click(open_page):
    needs_python()
    page = open_page("why-attention/")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(500)
    assert asked == []
    loaded = page.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
    assert not [url for url in loaded if "pyodide" in url or "run-worker" in url or ".bz2" in url]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_reader_changes_a_number_and_sees_what_follows(quiet, language):
    needs_python()
    page = quiet(address(language, "why-attention.md"))
    panel = press(page)
    assert words.of(language, "run.equal").split("{")[0] in said(panel)
    first = field_of(page, 0)
    panel = rewrite(first, "[1., 0, 1", "[7., 0, 1")
    assert panel.locator("tbody tr").nth(1).locator("td").first.inner_text() == "7"
    assert first.locator("xpath=following-sibling::p[@class='mh-own']").is_visible()
    # The cell of the means, which nobody touched, computes with the changed row.
    panel = press(page, 2)
    assert panel.locator("tbody tr").nth(1).locator("td").first.inner_text() == "3.50"
    # Reset gives the page's own state.
    panel.locator(".mh-run-keys button").last.click()
    assert "[1., 0, 1" in first.locator("textarea").input_value()
    field_of(page, 2).locator("textarea").press("Control+Enter")
    panel = settled(field_of(page, 2))
    assert words.of(language, "run.equal").split("{")[0] in said(panel)


def test_wrong_shapes_deleted_lines_and_endless_loops(quiet):
    needs_python()
    page = quiet("why-attention/")
    press(page, 4)
    pre = field_of(page, 4)
    panel = rewrite(pre, "weights @ meaning", "weights[:3] @ meaning")
    assert said(panel) == words.of("en", "run.wrong")
    code = pre.locator("textarea").input_value().split("\n")
    line = next(i for i, text in enumerate(code, 1) if "weights[:3]" in text)
    assert f"line {line}" in panel.locator(".mh-fault").inner_text()
    assert "weights[:3]" in pre.locator("mark").inner_text()
    panel = rewrite(pre, code[0] + "\n", "")  # they = 4
    assert "they has no value yet" in panel.locator(".mh-fault").inner_text()
    pre.locator("textarea").fill("while True:\n    pass")
    pre.locator("textarea").press("Control+Enter")
    stop = panel.get_by_role("button", name=words.of("en", "run.stop"))
    stop.wait_for()
    page.wait_for_timeout(1500)
    assert page.evaluate("1 + 1") == 2  # the page itself isn't frozen
    stop.click()
    settled(pre)
    assert said(panel) == words.of("en", "run.stopped")
    panel.get_by_role("button", name=words.of("en", "run.back")).click()
    pre.locator("textarea").press("Control+Enter")
    settled(pre)
    assert "what the page shows" in said(panel)


def test_a_long_run_says_so(quiet):
    needs_python()
    page = quiet("masks/")
    press(page)
    pre = field_of(page, 0)
    pre.locator("textarea").fill("while True:\n    pass")
    pre.locator("textarea").press("Control+Enter")
    start = words.of("en", "run.long").split("{")[0]
    page.wait_for_function(
        "start => document.querySelector('.mh-run-line').textContent.startsWith(start)",
        arg=start,
        timeout=30_000,
    )
    page.get_by_role("button", name=words.of("en", "run.stop")).click()


def candidates(name):
    """What readers may write for a task: the right answer, and wrong ones."""
    text = (DOCS.parent / "tests" / "site" / "tasks" / name).read_text(encoding="utf-8")
    parts = re.split(r"^(?=(?:# .*\n)?def )", text, flags=re.M)
    return {re.search(r"def (\w+)", part)[1]: part for part in parts if "def " in part}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_task_refuses_a_wrong_answer_and_takes_the_right_one(quiet, language):
    needs_python()
    page = quiet(address(language, "why-attention.md"))
    turn = page.locator(".mh-turn")
    turn.get_by_role("button").first.click()
    field = turn.locator("textarea")
    assert field.input_value().startswith("def average(X):")
    tried = candidates("why-attention.md".replace(".md", ".py"))
    panel = turn.locator(".mh-panel")
    idle = panel.and_(page.locator("[aria-busy=false]"))
    for name in ("wrong_all", "wrong_count", "wrong_axis"):
        field.fill(tried[name].replace(f"def {name}", "def average"))
        turn.get_by_role("button", name=words.of(language, "run.check")).click()
        idle.wait_for(timeout=COLD)
        assert said(panel) in (
            words.of(language, "run.refused"),
            words.of(language, "run.wrong_answer"),
        )
        assert panel.locator(".mh-fault").inner_text()
    field.fill(tried["right"].replace("def right", "def average"))
    field.press("Control+Enter")
    idle.wait_for(timeout=COLD)
    assert said(panel) == words.of(language, "run.passed")
    # It is kept in this browser.
    page.reload()
    assert words.of(language, "run.done") in turn.inner_text()
    turn.get_by_role("button").first.click()
    assert "tril" in turn.locator("textarea").input_value()


def test_keys_alone_on_a_phone(quiet):
    """Escape and Tab leave the field; nothing is wider than the screen."""
    needs_python()
    page = quiet("masks/", viewport={"width": 360, "height": 740})
    panel = press(page)
    pre = field_of(page, 0)
    field = pre.locator("textarea")
    field.focus()
    field.press("Control+Home")
    page.keyboard.press("Tab")
    assert field.input_value().startswith("    ")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert panel.locator("button").first.evaluate("key => key === document.activeElement")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    box = field.bounding_box()
    assert box["width"] <= 360
    assert field.get_attribute("aria-label") == words.of("en", "run.field").format(number=1)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", PLAIN)
def test_every_cell_prints_in_the_page_what_the_page_shows(quiet, name, language):
    cells_print(quiet, name, language)


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", [name for name in PAGES if name not in (*PLAIN, TRAINS)])
def test_every_cell_of_the_other_pages_prints_what_the_page_shows(quiet, name, language):
    cells_print(quiet, name, language)


@pytest.mark.nightly
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_cell_of_the_page_that_trains_prints_what_it_shows(quiet, language):
    cells_print(quiet, TRAINS, language)


# Cells that print something else in the page: of each page, the first line of the cell, and why.
ELSE = {
    "questions.md": {
        "from torch.nn.attention.flex_attention import create_block_mask": (
            "masks of blocks are compiled by torch"
        ),
        "inputs = torch.randn(3, 1, 4, 256, 64).bfloat16()": (
            "torch's fused attention rounds to 16 bits on the way, the stand-in its result"
        ),
        "import logging": "torch.compile",
        "from torch._dynamo.testing import CompileCounter": "torch.compile",
        "from torch.profiler import ProfilerActivity, profile": "torch's profiler",
    },
}


def cells_print(quiet, name, language):
    needs_python()
    page = quiet(address(language, name))
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true })")
    off = []
    ends = [words.of(language, f"run.{end}") for end in ("equal", "silent", "differs", "wrong")]
    ends = tuple(end.split("{")[0] for end in ends)
    keys = page.locator("button.mh-run")
    for i in range(keys.count()):
        pre = keys.nth(i).locator("xpath=ancestor::pre")
        keys.nth(i).evaluate("key => key.click()")
        panel = settled(pre, TRAINING)
        own = pre.locator("xpath=following-sibling::p[contains(@class, 'mh-own')][1]")
        fault = panel.locator(".mh-fault")
        ran = said(panel).startswith(ends)
        if not ran or fault.count() or own.is_visible():
            off.append((pre.locator("textarea").input_value().split("\n")[0], said(panel)))
    first = [line for line, _ in off]
    assert sorted(first) == sorted(ELSE.get(name, {})), off


def test_pages_with_keys_are_those_that_the_issue_names(site):
    needs_python()
    with_keys = {
        path.parent.relative_to(site).as_posix()
        for path in site.rglob("index.html")
        if "assets/run.js" in path.read_text(encoding="utf-8")
    }
    labs = [name for name in running._names() if name.startswith("labs/")]
    wanted = {name.removesuffix(".md") for name in [*PAGES, *labs]}
    wanted = {each for each in wanted if read(DOCS / "en" / f"{each}.md").has_code}
    assert with_keys == wanted | {f"zh/{each}" for each in wanted}
