"""A reader's edits of cells, made as a person makes them: keys, clicks, fingers; what each is told.

One page is open for all edits of a table, as a reader keeps one open: only its first click loads
Python.
"""

import pytest
from mhsite import words
from test_run_cells import (
    COLD,
    UNFOLD,
    field_of,
    needs_python,
    press,
    quiet,  # noqa: F401
    said,
    settled,
)
from test_site import address
from visits import violations

# What a reader types instead of a cell's code, what the line below it says, and what stands there.
TYPED = {
    "another number": ("print(6 * 8)", "differs", "48"),
    "a value at the end": ("x = 3\nx + 1", "differs", "4"),
    "nothing": ("", "silent", ""),
    "a line that gives a name is gone": ("print(sentence_of_mine)", "wrong", "has no value yet"),
    "a misspelt name": ("number = 1\nprint(nubmer)", "wrong", "Did you mean number?"),
    "a wrong shape": ("torch.ones(6, 8) @ torch.ones(4, 4)", "wrong", "8 is not 4"),
    "view behind transpose": ("torch.ones(2, 3).T.view(6)", "wrong", "reshape"),
    "a missing bracket": ("print((1, 2)", "wrong", "never closed"),
    "a bracket of a Chinese keyboard": ("print（1）", "wrong", "English keyboard"),
    "a missing colon": ("for i in range(3)\nprint(i)", "wrong", "colon"),
    "no block below a colon": ("for i in range(3):\n\b\b\b\bprint(i)", "wrong", "blanks"),
    "no comma": ("x = [1 2]", "wrong", "comma"),
    "a wrong import": ("from mhattn import tabel", "wrong", "Did you mean table?"),
    "NumPy": ("import numpy as np", "wrong", "numpy is not in this page"),
    "a misspelt function of torch": ("torch.sofmax(torch.ones(2), 0)", "wrong", "mean softmax?"),
    "a GPU": ("torch.ones(2).to('cuda')", "wrong", "GPU"),
    "a command of notebooks": ("!pip install numpy", "wrong", "can't install"),
    "a large tensor": ("print(torch.zeros(1000, 1000))", "differs", "..., 0., 0., 0.]])"),
    "too much to print": ("print(torch.zeros(1000, 1000).tolist())", "wrong", "too much"),
    "a loop that prints": ("while True:\nprint('x' * 99)", "wrong", "loop has no end"),
    "more memory than there is": ("torch.zeros(10**6, 10**6)", "wrong", "more memory"),
    "input": ("input('How many? ')", "wrong", "can't ask for input"),
    "the end of Python": ("exit()", "wrong", "needs no exit"),
    "await outside": ("await x", "wrong", "stands outside"),
    "what tags look like": ("print('<b>bold</b>')", "differs", "<b>bold</b>"),
}


def test_what_readers_type_is_answered_in_plain_words(quiet):  # noqa: F811
    needs_python()
    page = quiet("masks/")
    press(page)
    pre, off = field_of(page, 0), {}
    field = pre.locator("textarea")
    for name, (code, ends, holds) in TYPED.items():
        field.click()
        page.keyboard.press("Control+a")
        page.keyboard.press("Delete")
        before, *behind = (f"import torch\n{code}" if "torch" in code else code).split("\b")
        page.keyboard.type(before)
        for more in behind:
            page.keyboard.press("Backspace")
            page.keyboard.type(more)
        page.keyboard.press("Control+Enter")
        panel = settled(pre)
        line, out = said(panel), panel.locator(".mh-result").inner_text()
        if not (line.startswith(words.of("en", f"run.{ends}").split("{")[0]) and holds in out):
            off[name] = line, out[:300]
        if ends == "wrong" and not pre.locator("mark").count():
            off[name] = "no line is marked", out[:300]
        assert panel.bounding_box()["height"] < 900  # what is long scrolls in its box
    assert off == {}


def test_the_last_cell_first_and_one_that_a_later_one_needs_emptied(quiet):  # noqa: F811
    """The page says which cell gave the name that is gone, and leads there."""
    needs_python()
    page = quiet("masks/")
    count = page.locator("button.mh-run").count()
    panel = press(page, count - 1)
    equal = words.of("en", "run.equal").split("{")[0]
    assert said(panel).startswith(equal)
    press(page, 0)
    first = field_of(page, 0)
    first.locator("textarea").click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.press("Control+Enter")
    assert said(settled(first)).startswith(words.of("en", "run.silent").split("{")[0])
    later = press(page, 3)
    assert words.of("en", "python.mistakes.taken").format(number=1) in later.inner_text()
    later.get_by_role("button", name=words.of("en", "run.show_it")).click()
    assert first.locator("textarea").evaluate("field => field === document.activeElement")
    later.get_by_role("button", name=words.of("en", "run.reset")).click()
    assert said(later) == words.of("en", "run.was_reset")
    later.get_by_role("button", name=words.of("en", "run.run"), exact=True).click()
    assert said(settled(field_of(page, 3))).startswith(equal)
    # Edited twice, and put back
    field_of(page, 3).locator("textarea").click()
    page.keyboard.press("Control+End")
    for key in "1", "2":
        page.keyboard.type(f"\n{key}")
        page.keyboard.press("Control+Enter")
        settled(field_of(page, 3))
        assert later.locator("pre").last.inner_text().strip().endswith(key)
    later.get_by_role("button", name=words.of("en", "run.back")).click()
    page.keyboard.press("Control+Enter")
    assert said(settled(field_of(page, 3))).startswith(equal)


@pytest.mark.slow
def test_a_finger_on_a_dark_phone_in_chinese(quiet):  # noqa: F811
    """Full-width signs are what a Chinese keyboard types first."""
    needs_python()
    page = quiet(
        "zh/masks/",
        viewport={"width": 360, "height": 740},
        has_touch=True,
        is_mobile=True,
        color_scheme="dark",
    )
    key = page.locator("button.mh-run").first
    key.evaluate(UNFOLD)
    key.tap()
    pre = field_of(page, 0)
    panel = settled(pre)
    pre.locator("textarea").tap()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("print（1，2）")
    panel.get_by_role("button", name=words.of("zh", "run.run"), exact=True).tap()
    page.wait_for_function("() => document.querySelector('.mh-fault')", timeout=COLD)
    settled(pre)
    assert words.of("zh", "python.mistakes.sign").format(sign="（") in panel.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for button in panel.get_by_role("button").all():
        assert not button.is_visible() or button.bounding_box()["height"] >= 24


@pytest.mark.slow
def test_a_lost_network_is_said_and_found_again(quiet):  # noqa: F811
    """Python that runs needs none; one that was stopped is loaded by scripts of the site."""
    needs_python()
    page = quiet("masks/")
    press(page)
    pre = field_of(page, 0)
    page.context.set_offline(True)
    pre.locator("textarea").fill("print(6 * 7)")
    pre.locator("textarea").press("Control+Enter")
    panel = settled(pre)
    assert "42" in panel.inner_text()
    pre.locator("textarea").fill("while True:\n    pass")
    pre.locator("textarea").press("Control+Enter")
    panel.get_by_role("button", name=words.of("en", "run.stop")).click()
    settled(pre)
    pre.locator("textarea").fill("print(6 * 8)")
    pre.locator("textarea").press("Control+Enter")
    settled(pre)
    lost = words.of("en", "run.failed").split("{")[0]
    assert said(panel).startswith(lost) or "48" in panel.inner_text()
    page.context.set_offline(False)
    pre.locator("textarea").press("Control+Enter")
    settled(pre)
    assert "48" in panel.inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize(
    ("language", "name"), [("en", "masks"), ("zh", "why-heads"), ("en", "shapes")]
)
def test_axe_finds_nothing_in_what_runs(quiet, language, name, scheme):  # noqa: F811
    """With a cell that ran, one that failed, and a task that was judged, refused and taken."""
    needs_python()
    page = quiet(address(language, f"{name}.md"))
    press(page)
    press(page, 1)
    pre = field_of(page, 1)
    pre.locator("textarea").fill("print(1)\nnosuch")
    pre.locator("textarea").press("Control+Enter")
    settled(pre)
    turn = page.locator(".mh-turn").first
    turn.evaluate(UNFOLD)
    turn.get_by_role("button").first.click()
    turn.locator("textarea").press("Control+Enter")
    panel = turn.locator(".mh-panel")
    panel.and_(page.locator("[aria-busy=false]")).wait_for(timeout=COLD)
    assert panel.locator(".mh-run-line").inner_text()
    assert violations(page, scheme) == []
